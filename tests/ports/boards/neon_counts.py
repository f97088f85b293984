#!/usr/bin/env python3
"""Analyses the compiler's code of AArch64's register tiles: objdump -dC --no-show-raw-insn FILE.o |
neon_counts.py FUNCTION...

prints a row of Markdown for the main loop of each function. Its numbers: instructions, those that
multiply and add, loads of vectors, the registers that these fill, moves between vectors, vectors in
the stack's memory. The last two are instructions per flop, and registers loaded per instruction
that multiplies. A loop extends from a branch's target to the branch, which follows it; the main
loop is the innermost one with the most multiplications.

Reason: no time on a Cortex-A78AE can be measured on the build machine. Exit status 1 if a function
has no such loop, or if its loop spills.
"""
import re
import sys

# A multiplication and an addition count as two: fmla has 4 lanes, bfdot 4 sums of 2 products,
# bfmmla 2 x 2 sums of 4.
FLOPS = {'fmla': 8, 'bfdot': 16, 'bfmmla': 32}
FUNCTION = re.compile(r'^[0-9a-f]+ <(.*)>:$')
INSTRUCTION = re.compile(r'^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$')
BRANCH = re.compile(r'^(b|b\.\w+|cbn?z|tbn?z|j\w+)$')
TARGET = re.compile(r'\b([0-9a-f]+) <')
VECTOR = re.compile(r'^\{?[vqsd][0-9]')


def flops_of(name, operands):
  """Returns the flops of an instruction, also of x86-64, where the registers give the width:
  vfmadd...ps, and vdpbf16ps with two products a lane."""
  lanes = 16 if '%zmm' in operands else 8 if '%ymm' in operands else 4
  if name.startswith('vfmadd') and name.endswith('ps'):
    return 2 * lanes
  return 4 * lanes if name == 'vdpbf16ps' else FLOPS.get(name, 0)


class Instruction:
  def __init__(self, address, name, operands):
    self.address, self.name, self.operands = int(address, 16), name, operands
    self.flops = flops_of(name, operands)
    self.moves_memory = name.startswith(('ld', 'st')) and VECTOR.match(operands) is not None
    target = TARGET.search(operands) if BRANCH.match(name) else None
    self.target = int(target.group(1), 16) if target else None


def read_functions(lines):
  """Returns the instructions of each function, by the last word of its name."""
  functions, body = {}, []
  for line in lines:
    if match := FUNCTION.match(line):
      word = match.group(1).replace('(anonymous namespace)', '').split('(')[0].split('::')[-1].split(' ')[0]
      body = functions.setdefault(word, [])
    elif match := INSTRUCTION.match(line):
      body.append(Instruction(*match.groups()))
  return functions


def main_loop(body):
  index_of = {instruction.address: index for index, instruction in enumerate(body)}
  spans = [(index_of[i.target], index_of[i.address]) for i in body if i.target in index_of and i.target <= i.address]
  inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
  loops = [body[first:last + 1] for first, last in inner]
  return max(loops, key=lambda loop: sum(i.flops for i in loop), default=[])


def row(name, loop):
  flops, multiplies = sum(i.flops for i in loop), sum(i.flops > 0 for i in loop)
  loads = [i for i in loop if i.moves_memory and i.name.startswith('ld')]
  registers = sum(2 if i.name == 'ldp' else 1 for i in loads)
  moves = sum(i.name in ('mov', 'dup', 'ins') and VECTOR.match(i.operands) is not None for i in loop)
  counts = (len(loop), multiplies, len(loads), registers, moves, spills(loop))
  return f'| {name} | ' + ' | '.join(map(str, counts)) + f' | {len(loop) / flops:.4f} | {registers / multiplies:.3f} |'


def spills(loop):
  return sum(i.moves_memory and '[sp' in i.operands for i in loop)


def main():
  functions, status = read_functions(sys.stdin), 0
  for name in sys.argv[1:]:
    loop = main_loop(functions.get(name, []))
    if not any(i.flops for i in loop):
      print(f'{name}: no loop that multiplies', file=sys.stderr)
      status = 1
      continue
    print(row(name, loop))
    if spills(loop) > 0:
      print(f'{name}: its main loop has vectors in the memory of the stack', file=sys.stderr)
      status = 1
  return status


if __name__ == '__main__':
  sys.exit(main())
