"""Reads nvdisasm's output for a cubin: each kernel's instructions and its loops.

sass_counts.py counts the instructions of main loops with it. Loops are natural loops: a branch back
to a block that dominates the branching block. A subroutine that the compiler appends to a kernel (a
division, for example) is part of no loop; its call is.
"""
import re
import subprocess
from collections import namedtuple

# One instruction. `opcode` has its modifiers, as in LDG.E.128; `target` is the label that it names,
# or None. `guarded` is true if a predicate may skip it, `never` if one always does: the compiler
# writes three `@!PT LDS` before asynchronous copies.
Instruction = namedtuple('Instruction', 'opcode target guarded never')

_INSTRUCTION = re.compile(r'\s+/\*[0-9a-f]+\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);')
_LABEL = re.compile(r'(\.L_x_\w+|\$__internal\S*|\$_Z\S*):\s*$')
_ENDS = {'EXIT', 'RET', 'BRA', 'KILL', 'JMP', 'BRX', 'JMX'}


def read_kernels(nvdisasm, cubin):
  """Returns {mangled name: [label or Instruction]} of every kernel."""
  text = subprocess.run([nvdisasm, '-c', '-ndf', cubin], check=True, capture_output=True, text=True).stdout
  kernels, lines = {}, None
  for line in text.splitlines():
    if line.startswith('.text.') and line.endswith(':'):
      lines = kernels.setdefault(line[len('.text.'):-1], [])
    elif lines is None:
      continue
    elif label := _LABEL.match(line):
      lines.append(label[1])
    elif found := _INSTRUCTION.match(line):
      guard, opcode, operands = found.groups()
      target = re.search(r'`\((.*?)\)', operands)
      # A branch may also have its predicate as an operand.
      guarded = guard is not None or (opcode.startswith('BRA') and not operands.lstrip().startswith('`'))
      lines.append(Instruction(opcode, target[1] if target else None, guarded, (guard or '').strip() == '@!PT'))
  return kernels


def name_of(instruction):
  """Returns the opcode without its modifiers."""
  return instruction.opcode.split('.')[0]


class Flow:
  """Basic blocks of a kernel, and the possible followers of each. Block 0 is the entry."""

  def __init__(self, lines):
    self.blocks, self.followers, at_label = [[]], [], {}
    for line in lines:
      if isinstance(line, str):
        if self.blocks[-1]:
          self.blocks.append([])
        at_label[line] = len(self.blocks) - 1
      else:
        self.blocks[-1].append(line)
        if name_of(line) in _ENDS or self._jumps_by_call(line):
          self.blocks.append([])
    for index, block in enumerate(self.blocks):
      follow = set()
      last = block[-1] if block else None
      if last is None or name_of(last) not in _ENDS or last.guarded:
        follow.add(index + 1)
      if last is not None and last.target in at_label and (name_of(last) == 'BRA' or self._jumps_by_call(last)):
        follow.add(at_label[last.target])
      if last is not None and name_of(last) in ('BRX', 'JMX', 'JMP'):
        raise ValueError(f'{last.opcode}: a branch whose targets are not known; machine_code.py must learn it')
      self.followers.append({each for each in follow if each < len(self.blocks)})

  @staticmethod
  def _jumps_by_call(instruction):
    """True if the instruction is a CALL to a label of the kernel itself, which never returns: the
    compiler also leaves loops so."""
    return name_of(instruction) == 'CALL' and instruction.target is not None and instruction.target.startswith('.L_x_')

  def _order(self):
    """Returns the reachable blocks in reverse postorder: each before its followers, apart from back
    edges."""
    seen, order, stack = {0}, [], [(0, iter(sorted(self.followers[0])))]
    while stack:
      block, rest = stack[-1]
      following = next((each for each in rest if each not in seen), None)
      if following is None:
        order.append(block)
        stack.pop()
      else:
        seen.add(following)
        stack.append((following, iter(sorted(self.followers[following]))))
    return order[::-1]

  def loops(self):
    """Returns the loops as sets of blocks, the smallest first. Loops with the same head are one
    loop."""
    order = self._order()
    place = {block: index for index, block in enumerate(order)}
    before = {block: [] for block in order}
    for block in order:
      for following in self.followers[block]:
        before[following].append(block)
    # Dominators: Cooper, Harvey & Kennedy 2001, "A Simple, Fast Dominance Algorithm".
    over = {0: 0}
    changed = True
    while changed:
      changed = False
      for block in order[1:]:
        known = [each for each in before[block] if each in over]
        common = known[0]
        for each in known[1:]:
          while common != each:
            if place[each] > place[common]:
              each = over[each]
            else:
              common = over[common]
        if over.get(block) != common:
          over[block] = common
          changed = True

    def passed(head, block):
      while block != head and block != 0:
        block = over[block]
      return block == head

    bodies = {}
    for block in order:
      for head in self.followers[block]:
        if not passed(head, block):
          continue
        body, waiting = bodies.setdefault(head, {head}), [block]
        while waiting:
          each = waiting.pop()
          if each not in body:
            body.add(each)
            waiting.extend(before[each])
    return sorted(bodies.values(), key=lambda body: (len(body), min(body)))
