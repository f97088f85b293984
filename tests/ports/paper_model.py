#!/usr/bin/env python3
"""Prints cuda/PAPER_MODEL.md: what limits each main kernel on an Orin Nano Super and on an H100, computed from tests/golden/cuda, and what
whole steps would take (paper_steps.py). Its argument is the program `reprise`, which plans these steps.

Here because cards are seldom at hand: what a main loop asks of each part of a multiprocessor is known from its machine code,
what the part gives from public figures. The largest quotient is the least that an iteration can take. `make cuda BLESS=1` writes the page.
"""
import os
import re
import sys
from collections import namedtuple

import paper_peers
import paper_steps

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../golden/cuda')

# Of a multiprocessor and a clock where nothing else is said.
Card = namedtuple('Card', 'name architecture multiprocessors clock_ghz bf16_fma mma_share f32_fma l2_bytes dram_gbs')
CARDS = (
    Card('Orin Nano Super', 87, 8, 1.02, 1024, 1.0, 128, 47, 77),
    Card('H100 SXM', 90, 132, 1.83, 2048, 0.63, 128, 5120 / 132, 3350),
)
RATES = """\
| rate | Orin Nano Super | H100 SXM | from |
|---|---|---|---|
| multiprocessors, clock | 8, 1.02 GHz | 132, 1.83 GHz | NVIDIA's data sheets; 1.83 GHz gives H100's 989 TF of dense bf16 |
| warp instructions issued a clock | 4 | 4 | CUDA C++ programming guide, "Compute Capabilities" |
| bf16 multiply-adds a clock | 1024 | 2048 | data sheets: 16.7 and 989 TF |
| of which `mma.sync` reaches | all | 63% | Luo et al. 2024 (arXiv:2402.13499): `mma` on Hopper; on Ampere it reaches the peak |
| f32 multiply-adds a clock | 128 | 128 | programming guide, "Arithmetic Instructions" (8.6 and its relatives, 9.0) |
| integer multiply-adds, others, a clock | 64, 64 | 64, 64 | the same; `IMAD` shares the f32 pipes, the others have their own |
| conversions, reciprocals and the like a clock | 16 | 16 | the same |
| shared memory, and what lanes shuffle, bytes a clock | 128 | 128 | the same, "Shared Memory": 32 banks of 4 bytes |
| L2, bytes a clock and multiprocessor | 47 | 39 | **assumed**, see below |
| DRAM, GB/s | 77 | 3350 | data sheets: 102 and 3350; see below |

L2: NVIDIA's A100 whitepaper has 5120 bytes a clock for 108 multiprocessors; neither card's figure is published. DRAM: reads
reach three quarters on AGX Orin (152.8 of 204.8 GB/s), and so are counted here.
"""

# What is modelled. `bytes` are of an element of the operands. Of a product: `columns` is the width of C, where it is narrow, and `again`
# how often an element of A is met along the depth. Of a loop nothing more. Of a stream: `fresh` is the share of the loop's loads and stores that go to DRAM.
Work = namedtuple('Work', 'title file kernel kind bytes columns again fresh golden', defaults=(4, None, 1, 1.0, None))
WORKS = (
    Work('product f32, 128 x 128', 'linear', r'tile_product_simt<SimtTile<128, 8>, false, RowChunks<float>, RowChunks<float>', 'product'),
    Work('product bf16, 128 x 128', 'linear', r'tile_product_mma<MmaTile<128, 128>, false, RowChunks<Bf16>, RowChunks<Bf16>, ScaledOutput<Bf16', 'product', 2),
    Work("a linear layer's gradient of x, bf16", 'linear', r'tile_product_mma<MmaTile<128, 128>, false, RowChunks<Bf16>, ColumnChunks<Bf16>', 'product', 2),
    Work("a linear layer's gradient of w, bf16", 'linear', r'tile_product_mma<MmaTile<128, 128>, false, ColumnChunks<Bf16>, ColumnChunks<Bf16>', 'product', 2),
    Work('logits of the loss head, bf16', 'loss_head', r'tile_product_mma<MmaTile<128, 128>, false, RowChunks<Bf16>, RowChunks<Bf16>, HeadOutput', 'product', 2),
    Work("the loss head's gradient of x, bf16", 'loss_head', r'tile_product_mma<MmaTile<128, 128>, false, RowChunks<Bf16>, ColumnChunks<Bf16>, HeadOutput', 'product', 2),
    Work("the loss head's gradient of w, bf16", 'loss_head', r'tile_product_mma<MmaTile<128, 128>, false, ColumnChunks<Bf16>, ColumnChunks<Bf16>, HeadOutput', 'product', 2),
    Work('product tf32', 'linear', r'tile_product_mma<Tf32Tile, false, RowChunks<float>, RowChunks<float>', 'product'),
    Work("a linear layer's gradient of x, tf32", 'linear', r'tile_product_mma<Tf32Tile, false, RowChunks<float>, ColumnChunks<float>', 'product'),
    Work("a linear layer's gradient of w, tf32", 'linear', r'tile_product_mma<Tf32Tile, false, ColumnChunks<float>, ColumnChunks<float>', 'product'),
    Work('product bf16x3', 'linear', r'tile_product_mma<Bf16x3Tile, false, RowChunks<float>, RowChunks<float>', 'product'),
    Work("a linear layer's gradient of x, bf16x3", 'linear', r'tile_product_mma<Bf16x3Tile, false, RowChunks<float>, ColumnChunks<float>', 'product'),
    Work("a linear layer's gradient of w, bf16x3", 'linear', r'tile_product_mma<Bf16x3Tile, false, ColumnChunks<float>, ColumnChunks<float>', 'product'),
    Work('convolution 3x3 of 64 channels, bf16', 'conv', r'tile_product_mma<MmaTile<256, 64>, true, WindowChunks<false, Bf16>', 'product', 2, 64, 9),
    Work('convolution 3x3 of 128 channels or more, bf16', 'conv', r'tile_product_mma<MmaTile<128, 128>, true, WindowChunks<false, Bf16>', 'product', 2,
         again=9),
    Work('the same of relu(norm(x))', 'conv', r'tile_product_mma<MmaTile<128, 128>, true, WindowChunks<true, Bf16>', 'product', 2, again=9),
    Work('its gradient of x', 'conv', r'tile_product_mma<MmaTile<128, 128>, false, WindowChunks<false, Bf16>, PhaseTap', 'product', 2, again=9),
    Work('its gradient of w', 'conv', r'tile_product_mma<MmaTile<128, 128>, false, ColumnChunks<Bf16>, TapChunks<false, Bf16>', 'product', 2),
    Work('its gradient of w, of relu(norm(x))', 'conv', r'tile_product_mma<MmaTile<128, 128>, false, ColumnChunks<Bf16>, TapChunks<true, Bf16>', 'product', 2),
    Work('convolution of 3 channels, bf16', 'conv', r'tile_product_simt<SimtTile<64, 8>, true, PixelsSource<Bf16>', 'product', columns=64),
    Work('its gradient of w, of 3 channels, bf16', 'conv', r'tile_product_simt<SimtTile<64, 8>, false, ColumnsSource<Bf16>, TapsSource<Bf16>', 'product'),
    Work('convolution 3x3 of 64 channels, f32', 'conv', r'tile_product_simt<SimtTile<64, 8>, true, WindowChunks<false, float>', 'product', columns=64,
         again=9),
    Work('the same of relu(norm(x)), f32', 'conv', r'tile_product_simt<SimtTile<64, 8>, true, WindowChunks<true, float>', 'product', columns=64,
         again=9),
    Work('its gradient of x, f32', 'conv', r'tile_product_simt<SimtTile<64, 8>, false, WindowChunks<false, float>', 'product', columns=64, again=9),
    Work('its gradient of w, f32', 'conv', r'tile_product_simt<SimtTile<64, 8>, false, ColumnChunks<float>, TapChunks<false', 'product'),
    Work('convolution 3x3 of 128 channels or more, tf32', 'conv', r'tile_product_mma<Tf32Tile, true, WindowChunks<false, float>', 'product', again=9),
    Work('the same of relu(norm(x)), tf32', 'conv', r'tile_product_mma<Tf32Tile, true, WindowChunks<true, float>', 'product', again=9),
    Work('its gradient of x, tf32', 'conv', r'tile_product_mma<Tf32Tile, false, WindowChunks<false, float>, PhaseTap', 'product', again=9),
    Work('its gradient of w, tf32', 'conv', r'tile_product_mma<Tf32Tile, false, ColumnChunks<float>, TapChunks<false', 'product'),
    Work('convolution 3x3 of 128 channels or more, bf16x3', 'conv', r'tile_product_mma<Bf16x3Tile, true, WindowChunks<false, float>', 'product', again=9),
    Work('the same of relu(norm(x)), bf16x3', 'conv', r'tile_product_mma<Bf16x3Tile, true, WindowChunks<true, float>', 'product', again=9),
    Work('its gradient of x, bf16x3', 'conv', r'tile_product_mma<Bf16x3Tile, false, WindowChunks<false, float>, PhaseTap', 'product', again=9),
    Work('its gradient of w, bf16x3', 'conv', r'tile_product_mma<Bf16x3Tile, false, ColumnChunks<float>, TapChunks<false', 'product'),
    Work('attention forward, D = 64, bf16', 'attention_forward_mma', r'attention_forward_mma<64>', 'loop'),
    Work('attention forward, D = 128, bf16', 'attention_forward_mma', r'attention_forward_mma<128>', 'loop'),
    Work('attention backward: dq, D = 64, bf16', 'attention_backward_mma', r'attention_backward_queries_mma<64>', 'loop'),
    Work('attention backward: dk and dv, D = 64, bf16', 'attention_backward_mma', r'attention_backward_keys_mma<64>', 'loop'),
    Work('attention backward: dq, D = 128, bf16', 'attention_backward_mma', r'attention_backward_queries_mma<128>', 'loop'),
    Work('attention backward: dk and dv, D = 128, bf16', 'attention_backward_mma', r'attention_backward_keys_mma<128>', 'loop'),
    # Of x, gamma and beta only x comes from DRAM.
    Work('layer norm forward of 768 columns, bf16', 'layer_norm', r'norm_forward_warp_row<8, 3, true, Bf16>', 'stream', fresh=1 / 2),
    Work('GELU, bf16', 'elementwise', r'map_elements<GeluTanh, Bf16', 'stream'),
    Work('SwiGLU, f32', 'elementwise', r'map_elements<Swiglu, float', 'stream'),
    # Four of seven bytes are the way of whole packs, the others that of a tail.
    Work('AdamW', 'optimizer', r'adamw_update', 'stream', fresh=4 / 7),
)


class Kernel:
  """A line of a golden: sass_counts.py says what it means."""

  def __init__(self, line):
    head, *parts = line.split(' | ')
    self.name = head[:head.index(': threads')]
    number = lambda word: int(re.search(rf'{word} (\d+)', head)[1])
    self.threads, self.registers, self.blocks = number('threads'), number('registers'), number('blocks')
    self.limit = head.split(' by ')[-1]
    self.loop, self.around = Counts(''), Counts('')
    for part in parts:
      if part.startswith('loop '):
        self.loop = Counts(part)
      elif part.startswith('around '):
        self.around = Counts(part)


class Counts:
  def __init__(self, text):
    self.count = {name: int(n) for name, n in re.findall(r'([A-Za-z]+) (\d+)', text.split(';')[0].partition(':')[2])}
    self.bytes = {name: int(n) for name, n in re.findall(r'(\w+) \d+ \((\d+) B\)', text)}
    found = re.match(r'\w+ (\d+):', text)
    self.total = int(found[1]) if found else 0

  def plus(self, other, turns):
    """`turns` times this and once the other."""
    sum_ = Counts('')
    sum_.total = turns * self.total + other.total
    for mine, its, to in ((self.count, other.count, sum_.count), (self.bytes, other.bytes, sum_.bytes)):
      for name in mine.keys() | its.keys():
        to[name] = turns * mine.get(name, 0) + its.get(name, 0)
    return sum_


def find_kernel(work, architecture):
  path = f'{FOLDER}/{work.golden or f"sm_{architecture}"}.txt'
  lines = [line for line in open(path, encoding='utf-8') if re.match(f'{work.file} {work.kernel}', line)]
  if len(lines) != 1:
    sys.exit(f'{path}: {len(lines)} kernels are "{work.file} {work.kernel}", which paper_model.py models as "{work.title}": name one there')
  return Kernel(lines[0].rstrip('\n'))


# How much slower tensor cores multiply than bf16: tf32 at half the rate, and three products of bf16 in the place of one.
SLOWER = {'bf16': 1, 'tf32': 2, 'bf16x3': 3}


def math_of(kernel):
  for tile, math in (('Tf32Tile', 'tf32'), ('Bf16x3Tile', 'bf16x3')):
    if tile in kernel.name:
      return math
  return 'bf16' if kernel.loop.count.get('HMMA', 0) else 'f32'


class Demand:
  """Clocks of a multiprocessor that one block's iteration takes of each part; and those of its products at the card's peak."""

  def __init__(self, work, card):
    self.kernel = kernel = find_kernel(work, card.architecture)
    count, warps, depth = kernel.loop, kernel.threads / 32, None
    if work.kind == 'product':
      count, depth = self._slab(kernel)
    of = lambda *names: sum(count.count.get(name, 0) for name in names) * kernel.threads
    moved = lambda *names: sum(count.bytes.get(name, 0) for name in names) * kernel.threads
    products = of('HMMA') * 64  # m16n8k16 is 2048 multiply-adds of a warp; of tf32 m16n8k8 is half as many, at half the rate
    imad = of('IMAD')
    self.clocks = {
        'issue': count.total * warps / 4,
        'HMMA': products / (card.bf16_fma * card.mma_share),
        'f32': max((of('FFMA', 'FADD', 'FMUL') + imad) / card.f32_fma, imad / 64),
        'integer': of('integer') / 64,
        'special': of('MUFU', 'convert') / 16,
        'shared': (moved('LDS', 'LDSM', 'STS', 'LDGSTS') + of('SHFL') * 4) / 128,
        'L2': moved('LDG', 'LDGSTS', 'STG') / card.l2_bytes,
        'DRAM': 0,
    }
    dram_a_clock = card.dram_gbs / card.clock_ghz / card.multiprocessors
    if work.kind == 'product':
      self.clocks['DRAM'] = self._product_bytes(work, card, depth) / dram_a_clock
    elif work.kind == 'stream':
      self.clocks['DRAM'] = work.fresh * moved('LDG', 'STG') / dram_a_clock
    self.limit = max(self.clocks, key=self.clocks.get)
    self.most = self.clocks[self.limit]
    # Products on tensor cores and in f32 are compared with the card's peak, streams with DRAM.
    if products:
      self.peak, self.peak_of = products / card.bf16_fma / self.most, math_of(kernel)
    elif work.kind == 'stream':
      self.peak, self.peak_of = self.clocks['DRAM'] / self.most, 'DRAM'
    else:
      self.peak, self.peak_of = of('FFMA') / card.f32_fma / self.most, 'f32'

  def _slab(self, kernel):
    """The main loop as often as a slab has it, and what brings the slab."""
    simt, mma = re.search(r'SimtTile<(\d+), (\d+)>', kernel.name), re.search(r'MmaTile<(\d+), (\d+)>', kernel.name)
    tensor = math_of(kernel) != 'f32'
    self.rows, self.columns = (int(mma[1]), int(mma[2])) if mma else (128, 128) if tensor else (int(simt[1]), int(simt[1]))
    products = kernel.loop.count.get('HMMA', 0) * 64 // SLOWER[math_of(kernel)] if tensor else kernel.loop.count.get('FFMA', 0)
    depth = products * kernel.threads // (self.rows * self.columns)
    if tensor:
      return kernel.loop, depth
    return kernel.loop.plus(kernel.around, int(simt[2]) // depth), int(simt[2])

  def _product_bytes(self, work, card, depth):
    """That a block's slab costs of DRAM: all blocks that are resident read the rows and columns under them once."""
    blocks = self.kernel.blocks * card.multiprocessors
    across = max(1, min(blocks // 4, (work.columns or 1 << 30) // self.columns))
    return (blocks / across * self.rows / work.again + across * self.columns) * depth * work.bytes / blocks


def table(card):
  parts = ('issue', 'HMMA', 'f32', 'integer', 'special', 'shared', 'L2', 'DRAM')
  lines = [f'| kernel | blocks | {" | ".join(parts)} | limit | of peak |', '|---|---|' + '---|' * len(parts) + '---|---|']
  for work in WORKS:
    demand = Demand(work, card)
    cells = [f'{demand.clocks[part]:.0f}' if demand.clocks[part] else '' for part in parts]
    lines.append(f'| {work.title} | {demand.kernel.blocks} ({demand.kernel.limit}) | {" | ".join(cells)} | {demand.limit} | '
                 f'{100 * demand.peak:.0f}% of {demand.peak_of} |')
  return '\n'.join(lines)


def table_of_maths():
  """What the same product takes by each math, of f32 and beside it bf16."""
  gflop, lines = 2 * 8192 * 3072 * 768 / 1e9, []
  for title in ('product f32, 128 x 128', 'product tf32', 'product bf16x3', 'product bf16, 128 x 128'):
    cells = []
    for card in CARDS:
      peak, of = share_of(title, card)
      fma = card.f32_fma if of == 'f32' else card.bf16_fma / SLOWER[of]
      rate = peak * 2 * fma * card.multiprocessors * card.clock_ghz
      cells.append(f'{rate / 1000:.1f} | {100 * peak:.0f}% | {1000 * gflop / rate:.2f}')
    lines.append(f'| {title} | {" | ".join(cells)} |')
  heads = [f'{card.name}, TF/s | of its peak | ms' for card in CARDS]
  return '\n'.join([f'| kernel | {" | ".join(heads)} |', '|---|' + '---|---|---|' * len(CARDS), *lines])


def share_of_peer(kernel, name):
  card = Card(*paper_peers.CARDS[name])
  work = next((work for work in WORKS if work.title == kernel), Work(kernel, f'sm_{card.architecture}', kernel, 'loop', golden='others'))
  return Demand(work, card).peak


def share_of(title, card):
  """Of which peak a kernel reaches which share, on paper."""
  demand = Demand(next(work for work in WORKS if work.title == title), card)
  return demand.peak, demand.peak_of


def used_kernels():
  return '\n'.join(f'- {work.title}:\n  `{find_kernel(work, CARDS[0].architecture).name}`' for work in WORKS)


if len(sys.argv) != 2:
  sys.exit('usage: paper_model.py REPRISE, a program that plans')
peers, errors = paper_peers.table(share_of_peer)
error_of = lambda *architectures: '{:.1f} to {:.1f}'.format(min(errors[each][0] for each in architectures), max(errors[each][1] for each in architectures))
h200 = Card(*paper_peers.CARDS['H200'])
step_on_h200 = 1e3 * paper_steps.Step(paper_steps.manifest_of(sys.argv[1], paper_steps.NETS[0]), h200, lambda title: share_of(title, h200)).total
steps = '\n\n'.join(paper_steps.table(sys.argv[1], net, CARDS, share_of) for net in paper_steps.NETS)
print(f"""# CUDA's main kernels on paper

**Every figure here is computed, none is measured.** `tests/ports/paper_model.py` writes this page from `tests/golden/cuda`, what the
compiler made of each kernel's main loop; `make cuda BLESS=1` renews both.

A row is one iteration of the main loop of one block; of the f32 tile and of convolutions, one slab of the depth with what brings it. A
column is how many clocks of a multiprocessor the iteration takes of one of its parts, if that part never waits. Blocks that share a
multiprocessor (how many, and what keeps out more, stands beside the kernel) take turns in all of them. So the largest column is the
least that an iteration can take, and the limit; the last column says which share of the card's peak that is: of its multiply-adds in
bf16 or f32, of those by a recipe's `"math"` (tf32 has half the peak of bf16, bf16x3 a third), or of its DRAM's bytes where a kernel only
streams.

What the model leaves out makes a card slower than this: latencies, barriers, the first and the last slabs, tails of the grid. What it
counts too much makes it faster: both ways of a branch in the loop, loads that hit the first cache, words of shared memory that several
lanes read at once. DRAM of a product counts the rows and columns under all resident blocks once; of attention it is left out, because the
keys and values of a head stay in L2, and so are the small loops inside the main one that begin their copies. The forward's main loop is
that of keys which all queries see, without dropout; the backward's hold both ways of the mask and of dropout, which most of their turns
skip.

## Orin Nano Super, sm_87

{table(CARDS[0])}

## H100 SXM, sm_90

{table(CARDS[1])}

## Products of f32 by a recipe's "math"

A product of 8192 x 3072 by 3072 x 768, which is {2 * 8192 * 3072 * 768 / 1e9:.1f} GFLOP, at the shares above.
The first row is what f32 takes without a word.

{table_of_maths()}

## Whole steps

What a micro-batch and its update take if every row takes the time of its multiply-adds at its kernel's share above, or of its bytes at
DRAM's rate, whichever is longer, and nothing waits: **computed, and less than a card takes.** Rows, their flops and bytes are those of
`reprise plan`; `tests/ports/paper_steps.py` says which kernel computes which row. A product counts what its tiles compute beyond its edges.
What decodes stored weights, what adds up the parts of split sums and launches themselves are left out. Kernels under 1% of a step on both
cards are "others".

{steps}

## Beside what was measured

The same model of kernels that others have written and timed, and of ours on the one card that they have met. Theirs were compiled here,
and their loops counted as ours are (`tests/golden/cuda/others.txt`).

{peers}

{paper_peers.SOURCES}
So a card of Ampere's kind takes **{error_of(80, 86)} times** what this page says, and one of Hopper's **{error_of(90)} times**: a share above is
what a kernel cannot exceed, not what it reaches. Between kernels of a kind the order is right (the four SGEMMs), the distance is not. The
step of GPT-2 small took {paper_peers.STEP_ON_H200_MS:.0f} ms on the H200 [c], which this page's rules put at {step_on_h200:.1f} ms.

## Rates

{RATES}
## Which kernels

{used_kernels()}""")
