"""Whole training steps on paper: what the rows of three plans take by the kernels' shares of the peak (paper_model.py).

Here because a kernel's share says little of a step: most rows of a net are bound by memory, and some kernels are hardly called. A row takes the
time of its multiply-adds, at the share of its kernel, or that of its bytes at DRAM's rate, whichever is longer; nothing waits.
"""
import json
import os
import subprocess
import tempfile
from collections import namedtuple
from math import prod

# `recipe`: itself, or its file, which is taken as it stands. `schedule`: None is the recipe's own.
Net = namedtuple('Net', 'title recipe schedule')
IMAGES = {'kind': 'synthetic'}
NETS = (
    Net('GPT-2 small, 8 texts of 1024 tokens, bf16, everything stored', {
        'name': 'gpt2-small', 'model': {'family': 'gpt2', 'resid_pdrop': 0.0, 'embd_pdrop': 0.0, 'attn_pdrop': 0.0}, 'data': IMAGES, 'batch': 8,
        'sequence': 1024, 'steps': 1, 'clip_norm': 1.0, 'optimizer': {'name': 'adamw', 'lr': 1e-5, 'weight_decay': 0.01}}, 'none'),
    Net('ResNet-50, 32 images of 224 x 224, bf16, everything stored', {
        'name': 'resnet50', 'model': {'family': 'resnet', 'block': 'bottleneck', 'units': [3, 4, 6, 3], 'width': 64, 'stem': 'imagenet', 'classes': 1000,
                                      'image': [224, 224, 3]},
        'data': IMAGES, 'batch': 32, 'steps': 1, 'optimizer': {'name': 'sgd', 'lr': 0.01, 'momentum': 0.9}}, 'none'),
    Net('Llama 3.2 1B with adapters, `tools/recipes/llama-3.2-1b-lora.json`: one text of 2048 tokens in 1500 MB', 'tools/recipes/llama-3.2-1b-lora.json',
        None),
)

PRODUCT, PRODUCT_X, PRODUCT_W = 'product bf16, 128 x 128', "a linear layer's gradient of x, bf16", "a linear layer's gradient of w, bf16"
HEAD = ('logits of the loss head, bf16', "the loss head's gradient of x, bf16", "the loss head's gradient of w, bf16")
STREAMS = {('layer_norm', 'forward'): 'layer norm forward of 768 columns, bf16', ('gelu', 'forward'): 'GELU, bf16', ('adamw', 'update'): 'AdamW'}


def manifest_of(reprise, net):
  recipe = dict(net.recipe) if isinstance(net.recipe, dict) else json.loads(
      ''.join(line for line in open(net.recipe, encoding='utf-8') if not line.lstrip().startswith('//')))
  recipe.update({'dtype': 'bf16', 'backend': 'cuda'})
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, 'recipe.json')
    with open(path, 'w', encoding='utf-8') as file:
      json.dump(recipe, file)
    schedule = ['--schedule', net.schedule] if net.schedule else []
    subprocess.run([reprise, 'plan', path, *schedule, '-o', folder], check=True, capture_output=True)
    with open(os.path.join(folder, 'manifest.json'), encoding='utf-8') as file:
      return json.load(file)


class Row:
  """A row with the shapes of what it reads and writes."""

  def __init__(self, manifest, program, row):
    tensors = {f'slot:{slot["id"]}': slot for slot in manifest['slots'] if slot['program'] == program}
    for kind in ('state', 'carried'):
      tensors.update({f'{kind}:{index}': tensor for index, tensor in enumerate(manifest[kind])})
    self.name, self.flops, self.bytes = (row['op'], row['pass']), row['flops'], row['bytes']
    self.reads, self.writes = ([tensors[each]['shape'] for each in row[key] if each in tensors] for key in ('reads', 'writes'))


def computed(outputs):
  """How much more a product computes than its rows and columns, by the tile that computes the least."""
  rows, columns = outputs
  covered = lambda tile: -(-rows // tile[0]) * tile[0] * (-(-columns // tile[1]) * tile[1])
  return min(covered(tile) for tile in ((128, 128), (256, 64), (64, 256))) / (rows * columns)


def matrix(shape):
  return prod(shape[:-1]), shape[-1]


def products_of(row):
  """[(the kernel on paper, share of the row's flops that it computes)]; empty where bytes alone count."""
  op, step = row.name
  if op == 'linear' and row.flops:
    of = {'forward': PRODUCT, 'backward_data': PRODUCT_X, 'backward_weight': PRODUCT_W}[step]
    return [(of, computed(matrix(row.writes[0])))]
  if op == 'loss_head':
    # A frozen matrix has no gradient; the plan's flops count it all the same.
    kernels = HEAD[:1] if step != 'backward' else HEAD if any(len(s) == 2 and s in row.writes[1:] for s in row.reads) else HEAD[:2]
    return [(each, 1 / 3 if step == 'backward' else 1) for each in kernels]
  if op in ('conv', 'norm_conv'):
    y_or_dx_or_dw, channels = row.writes[0], row.reads[0][-1]
    if channels % 8 != 0:
      return [('convolution of 3 channels, bf16', 1) if step == 'forward' else ('its gradient of w, of 3 channels, bf16', 1)]
    if step == 'backward_weight':
      return [('its gradient of w, of relu(norm(x))' if op == 'norm_conv' else 'its gradient of w', computed((y_or_dx_or_dw[0], prod(y_or_dx_or_dw[1:]))))]
    narrow = y_or_dx_or_dw[-1] <= 64
    kernel = 'its gradient of x' if step == 'backward_data' else 'the same of relu(norm(x))' if op == 'norm_conv' else \
        'convolution 3x3 of 64 channels, bf16' if narrow else 'convolution 3x3 of 128 channels or more, bf16'
    return [(kernel, computed(matrix(y_or_dx_or_dw)))]
  if op == 'attention':
    heads = next(shape for shape in row.writes + row.reads if len(shape) == 3 and shape[2] == row.writes[0][1])[1]
    tensor = row.writes[0] if step == 'forward' else next(s for s in row.reads if len(s) == 3 and s[-1] != row.writes[0][-1] and s[1] == row.writes[0][1])
    D = 64 if tensor[-1] // heads <= 64 else 128
    if step == 'forward':
      return [(f'attention forward, D = {D}, bf16', 1)]
    # Of the five products of the backward one kernel computes three, the other four.
    return [(f'attention backward: dq, D = {D}, bf16', 3 / 5), (f'attention backward: dk and dv, D = {D}, bf16', 4 / 5)]
  return []


class Step:
  """Seconds of a plan's micro-batch and update by kernel, on one card."""

  def __init__(self, manifest, card, share_of):
    self.calls, self.work, self.seconds = {}, {}, {}
    fma = {'bf16': card.bf16_fma, 'f32': card.f32_fma}
    rate = card.multiprocessors * card.clock_ghz * 1e9
    for program in manifest['programs']:
      if program['name'] not in ('micro_first', 'update'):
        continue
      for each in program['rows']:
        row = Row(manifest, program['name'], each)
        moving = row.bytes / (card.dram_gbs * 1e9)
        parts = products_of(row)
        if not parts:
          share = share_of(STREAMS[row.name])[0] if row.name in STREAMS else 1
          self.add('.'.join(row.name), f'{row.bytes / 1e9:.2f} GB', row.bytes, moving / share)
        for kernel, flops in parts:
          share, of = share_of(kernel)
          self.add(kernel, 'flops', flops * row.flops, max(flops * row.flops / 2 / (rate * fma[of] * share), moving / len(parts)))
    self.total = sum(self.seconds.values())

  def add(self, kernel, unit, work, seconds):
    self.calls[kernel] = self.calls.get(kernel, 0) + 1
    before = self.work.get(kernel, (unit, 0))
    self.work[kernel] = (unit if unit == 'flops' else 'bytes', before[1] + work)
    self.seconds[kernel] = self.seconds.get(kernel, 0) + seconds


def work_text(unit, amount):
  return f'{amount / 1e9:.1f} GFLOP' if unit == 'flops' else f'{amount / 1e9:.2f} GB'


def table(reprise, net, cards, share_of):
  manifest = manifest_of(reprise, net)
  steps = [Step(manifest, card, lambda title, card=card: share_of(title, card)) for card in cards]
  least = 0.01  # of a step: what takes less on all cards is one line
  shown = [kernel for kernel in steps[0].seconds if any(step.seconds[kernel] >= least * step.total for step in steps)]
  shown.sort(key=lambda kernel: -steps[0].seconds[kernel])
  heads = ' | '.join(f'{card.name}, ms | share' for card in cards)
  lines = [f'### {net.title}', '', f'| kernel | calls | work | {heads} |', '|---|---|---|' + '---|---|' * len(cards)]
  cells = lambda of: ' | '.join(f'{1e3 * of(step):.2f} | {100 * of(step) / step.total:.0f}%' for step in steps)
  for kernel in shown:
    lines.append(f'| {kernel} | {steps[0].calls[kernel]} | {work_text(*steps[0].work[kernel])} | {cells(lambda step, kernel=kernel: step.seconds[kernel])} |')
  others = [kernel for kernel in steps[0].seconds if kernel not in shown]
  lines.append(f'| {len(others)} others | {sum(steps[0].calls[each] for each in others)} | | '
               f'{cells(lambda step: sum(step.seconds[each] for each in others))} |')
  lines.append(f'| **a step** | {sum(steps[0].calls.values())} | | {cells(lambda step: step.total)} |')
  return '\n'.join(lines)
