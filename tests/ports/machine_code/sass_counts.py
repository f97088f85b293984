#!/usr/bin/env python3
"""Counts the compiler's instructions of each kernel and prints one line for each: sass_counts.py
NVDISASM FOLDER/NAME.sm_87.cubin

  NAME KERNEL: threads T, registers R, shared STATIC + DYNAMIC, blocks B by LIMIT | loop N: COUNTS | around N: COUNTS
B blocks share a multiprocessor; LIMIT (registers, shared, warps, blocks) is the resource that
allows no more. An instruction belongs to the innermost loop that contains it. `loop` is the
kernel's main loop: the one with the most HMMA; in a kernel without HMMA the one with the most FFMA,
among those that read shared memory and are half FFMA; else the one that loads the most bytes from
global memory. `around` is the loop around it. N counts all of its instructions, both ways of a
branch, and (n B) the bytes per lane of the instructions named before it. Counts that are zero are
left out; `divide` are calls of the compiler's division, reciprocal or root of floats, `call` are
other calls (divisions of 64-bit integers, shuffles of a divergent warp).

tests/golden/cuda holds these lines, so that every change of them is deliberate. A line that begins
with `fault: ` reports local memory in a main loop, a division of floats by a call in a product's
main loop, or unstated dynamic shared memory. In addition to the cubin it reads NAME.ptx (threads,
dynamic shared memory) and NAME.sm_87.ptxas (registers, static shared memory).
"""
import os
import re
import subprocess
import sys
from collections import Counter

from machine_code import Flow, name_of, read_kernels
from occupancy import occupancy

MOVES = ('LDSM', 'LDS', 'STS', 'LDGSTS', 'LDG', 'STG', 'LDL', 'STL')
NAMED = (('HMMA', 'FFMA', 'FADD', 'FMUL', 'double', 'MUFU', 'convert') + MOVES +
         ('ATOM', 'SHFL', 'BAR', 'divide', 'call', 'IMAD', 'integer', 'other'))
CLASSES = {
    'double': 'DFMA DADD DMUL DSETP DMNMX',
    'convert': 'I2F F2I F2F F2FP I2I FRND',
    'ATOM': 'ATOMG ATOMS ATOM RED',
    'integer': 'IADD3 LOP3 SHF LEA ISETP IMNMX VIMNMX VIADD VIADDMNMX IABS IADD POPC FLO BREV SGXT LOP IDP '
               'UIADD3 ULOP3 USHF ULEA UISETP UPOPC UFLO USGXT',
    'IMAD': 'IMAD UIMAD',
    'FADD': 'FADD FADD32I',
    'FMUL': 'FMUL FMUL32I',
    'FFMA': 'FFMA FFMA32I',
}
CLASS_OF = {opcode: name for name, opcodes in CLASSES.items() for opcode in opcodes.split()}
FLOAT_DIVISION = re.compile(r'div_rn|rcp|sqrt|_ddiv|drcp')


def class_of(instruction):
  name = name_of(instruction)
  if instruction.never:
    return 'other'
  if name == 'CALL':
    target = instruction.target or ''
    return 'other' if target.startswith('.L_x_') else 'divide' if FLOAT_DIVISION.search(target) else 'call'
  return CLASS_OF.get(name, name if name in NAMED else 'other')


def bytes_of(instruction):
  """Returns the bytes that an instruction moves per lane: LDG.E.128, LDS.U.64, LDSM.16.M88.4,
  STG.E.U16."""
  parts = instruction.opcode.split('.')
  if parts[0] == 'LDSM':
    return 4 * int(parts[-1] if parts[-1].isdigit() and int(parts[-1]) <= 4 else 1)
  for part, size in (('128', 16), ('64', 8), ('U16', 2), ('S16', 2), ('U8', 1), ('S8', 1)):
    if part in parts:
      return size
  return 4


class Counts:
  def __init__(self, instructions):
    self.total = len(instructions)
    self.count = Counter(class_of(each) for each in instructions)
    self.bytes = Counter()
    for each in instructions:
      if class_of(each) in MOVES:
        self.bytes[name_of(each)] += bytes_of(each)

  def text(self):
    words = [f'{name} {self.count[name]}' + (f' ({self.bytes[name]} B)' if name in MOVES else '') for name in NAMED if self.count[name]]
    return f'{self.total}: ' + ', '.join(words)


class MainLoop:
  """The loop in which a kernel spends its time, and the counts of the loop around it."""

  def __init__(self, lines):
    flow = Flow(lines)
    loops = flow.loops()

    taken, own = set(), []
    for loop in loops:
      own.append(Counts([each for block in sorted(loop - taken) for each in flow.blocks[block]]))
      taken |= loop
    self.product, self.loop, self.around = None, None, None
    if not loops:
      return
    products = [i for i, each in enumerate(own) if 2 * each.count['FFMA'] >= each.total and each.count['LDS']]
    main = max(range(len(loops)), key=lambda i: own[i].count['HMMA'])
    if own[main].count['HMMA']:
      self.product = 'HMMA'
    elif products:
      self.product, main = 'FFMA', max(products, key=lambda i: own[i].count['FFMA'])
    else:
      main = max(range(len(loops)), key=lambda i: own[i].bytes['LDG'])
    self.loop = own[main]
    self.around = next((own[i] for i in range(main + 1, len(loops)) if loops[i] > loops[main]), None)

  def text(self):
    if self.loop is None:
      return 'no loop'
    text = 'loop ' + self.loop.text()
    if self.product:
      text += f'; {self.loop.total / self.loop.count[self.product]:.2f} for each {self.product}'
    return text + (f' | around {self.around.text()}' if self.around else '')

  def faults(self):
    if self.loop is None:
      return []
    spills = self.loop.count['LDL'] + self.loop.count['STL'] > 0
    return ['its main loop has local memory (LDL, STL)'] * spills + \
           ['its main loop divides floats by a call'] * bool(self.product and self.loop.count['divide'])


# ---- the files next to the machine code -----

def read_ptx(path):
  """Returns {mangled name: (threads, dynamic shared bytes)}. Unstated threads are 1024, as the
  compiler assumes, and unstated bytes None."""
  kernels, name = {}, None
  for line in open(path, encoding='ascii'):
    if entry := re.search(r'\.entry (\w+)', line):
      name, threads, dynamic = entry[1], 1024, 0
    elif found := re.match(r'\.maxntid (\d+), (\d+), (\d+)', line):
      threads = int(found[1]) * int(found[2]) * int(found[3])
    elif found := re.search(r'// dynamic shared memory: (\d+) bytes', line):
      dynamic = int(found[1])
    elif 'reprise_dynamic_shared' in line and name and not dynamic:
      dynamic = None
    elif line.startswith('}') and name:
      kernels[name] = threads, dynamic
      name = None
  return kernels


def read_assembler_log(path):
  """Returns {mangled name: (registers, static shared bytes, bytes of stack)} of every kernel."""
  kernels, name, stack = {}, None, 0
  for line in open(path, encoding='ascii'):
    if found := re.search(r"Compiling entry function '(\w+)'", line):
      name = found[1]
    elif found := re.search(r'(\d+) bytes stack frame', line):
      stack = int(found[1])
    elif (found := re.search(r'Used (\d+) registers', line)) and name:
      shared = re.search(r'(\d+) bytes smem', line)
      kernels[name] = int(found[1]), int(shared[1]) if shared else 0, stack
      name = None
  return kernels


def short_names(mangled):
  """Returns demangled names without namespaces, parameters and the compiler's additions."""
  text = subprocess.run(['c++filt'], input='\n'.join(mangled), check=True, capture_output=True, text=True).stdout
  names = []
  for name in text.splitlines():
    name = name.replace('(anonymous namespace)::', '').replace('reprise::', '').removeprefix('void ')
    depth = 0
    for at in range(len(name) - 1, -1, -1):
      depth += {')': 1, '(': -1}.get(name[at], 0)
      if depth == 0:
        break
    if name.endswith(')'):
      name = name[:at]
    names.append(re.sub(r'\b(\d+)u\b', r'\1', re.sub(r'\((\w| )+\)', '', name)).replace('> >', '>>').replace('> >', '>>'))
  return names


def main(nvdisasm, cubin):
  stem, architecture, _ = os.path.basename(cubin).split('.')
  folder = os.path.dirname(cubin)
  architecture = int(architecture.removeprefix('sm_'))
  said = read_ptx(f'{folder}/{stem}.ptx')
  made = read_assembler_log(cubin.removesuffix('.cubin') + '.ptxas')
  kernels = read_kernels(nvdisasm, cubin)
  lines, faults = [], []
  for mangled, short in zip(kernels, short_names(kernels)):
    (threads, dynamic), (registers, static, stack), loop = said[mangled], made[mangled], MainLoop(kernels[mangled])
    kernel_faults = loop.faults()
    if dynamic is None:
      kernel_faults.append('it does not say how much dynamic shared memory it takes: write REPRISE_DYNAMIC_SHARED(name, bytes)')
    faults += [f'{stem}.cu: {short} for sm_{architecture}: {each}' for each in kernel_faults]
    if dynamic is None:
      continue
    stack_text = f'stack {stack}, ' if stack else ''
    blocks, limit = occupancy(architecture, threads, registers, static + dynamic)
    lines.append(f'{stem} {short}: threads {threads}, registers {registers}, {stack_text}shared {static} + {dynamic}, '
                 f'blocks {blocks} by {limit} | {loop.text()}')
  for line in [*sorted(lines), *(f'fault: {each}' for each in faults)]:
    print(line)


if __name__ == '__main__':
  main(*sys.argv[1:])
