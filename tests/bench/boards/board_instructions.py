#!/usr/bin/env python3
"""Writes the instructions of each row of a step on boards under QEMU into
tests/bench/pages/BOARD_INSTRUCTIONS.md: `make bench-board-instructions`.

--check measures one net on one board and reports which rows of the page differ by more than one per
cent. BUILD names the output folder. Other programs do not disturb these counts: a difference of two
pages shows the effect of a change of a kernel.
"""
import json
import math
import os
import re
import subprocess
import sys

BUILD = os.environ.get('BUILD', 'build')
PAGE = 'tests/bench/pages/BOARD_INSTRUCTIONS.md'
BOARDS = {'mps2-an500': 'M7', 'mps2-an386': 'M4', 'mps3-an547': 'M55'}
NETS = {'ResNet8': 'tools/recipes/small/resnet8.json', 'DS-CNN': 'tools/recipes/small/ds-cnn.json',
        'Deep-AE': 'tools/recipes/small/deep-ae.json'}
LEAST = 10_000  # instructions, of which a tick of the board's clock has 31 or 40; smaller rows are summed in one line
OF_ALL_WEIGHTS = (('grad_norm', 'reduce'), ('sgd', 'update'))  # one row each, in these nets
CHECKED = ('mps2-an500', 'DS-CNN')


def run_board(board, recipe):
    """Returns the program's output: ticks by name, and ticks by (program, row)."""
    command = ['make', '-s', 'run-board', f'BUILD={BUILD}', f'BOARD={board}', f'RECIPE={recipe}',
               'PROGRAM=tests/bench/boards/board_rows.cpp']
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f'board_instructions: {" ".join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}')
    words = re.findall(r'^([a-z][a-z0-9 ]*) (\d+)$', done.stdout, re.M)
    rows = re.findall(r'^(\d) (\d+) (\d+)$', done.stdout, re.M)
    return {name: int(number) for name, number in words}, {(int(p), int(r)): int(ticks) for p, r, ticks in rows}


def describe_rows(board, recipe):
    """Returns by (program, row): (kernel, shapes), and the row's work with its unit, multiply-adds
    or elements."""
    name = subprocess.run([f'{BUILD}/reprise', 'name', recipe], capture_output=True, text=True, check=True).stdout.strip()
    with open(f'{BUILD}/cortex-m/{board}/{name}/manifest.json') as file:
        manifest = json.load(file)
    shapes = {f'state:{i}': tensor['shape'] for i, tensor in enumerate(manifest['state'])}
    shapes |= {f'carried:{i}': tensor['shape'] for i, tensor in enumerate(manifest['carried'])}
    rows = {}
    for p, program in enumerate(('micro_first', 'update')):
        slots = {f'slot:{slot["id"]}': slot['shape'] for slot in manifest['slots'] if slot['program'] == program}
        for r, row in enumerate(next(each['rows'] for each in manifest['programs'] if each['name'] == program)):
            written, read = ([(shapes | slots)[tensor] for tensor in row[side]] for side in ('writes', 'reads'))
            large = [shape for shape in read if len(shape) > 1 and shape != written[0]]
            form = ' '.join(['x'.join(map(str, shape if shape[0] != 1 else shape[1:])) for shape in written[:1]] +
                            (['<-'] if large else []) + ['x'.join(map(str, shape if shape[0] != 1 else shape[1:])) for shape in large])
            work, unit = (row['flops'] / 2, 'multiply-add') if row['flops'] else (max(math.prod(s) for s in written + read), 'element')
            if (row['op'], row['pass']) in OF_ALL_WEIGHTS:
                form, work = 'all weights', sum(math.prod(tensor['shape']) for tensor in manifest['carried'] if tensor['kind'] == 'weight_gradient')
            rows[p, r] = (f'{row["op"]}.{row["pass"]}', form), work, unit
    return rows


def measure(board, recipe):
    """Returns {(kernel, shapes): (rows, instructions of one, its work, the work's unit)}, all
    instructions of a step, and all multiply-adds."""
    words, ticks = run_board(board, recipe)
    per_tick = 8e6 / words['ticks of 8000000 instructions']
    nothing = words['ticks of 4000 rows of nothing'] / 4000
    groups, rows, steps = {}, describe_rows(board, recipe), words['steps']
    if rows.keys() != ticks.keys():
        sys.exit(f'board_instructions: {recipe}: the board has other rows than its manifest')
    for place, (what, work, unit) in rows.items():
        count, instructions, _, _ = groups.get(what, (0, 0, 0, ''))
        groups[what] = count + 1, instructions + (ticks[place] / steps - nothing) * per_tick, work, unit
    all_rows = sum(instructions for _, instructions, _, _ in groups.values())
    whole = words['ticks of steps'] / steps * per_tick
    if not 0.95 * whole < all_rows < whole:
        sys.exit(f'board_instructions: {recipe} on {board}: the rows take {all_rows:.0f} instructions, and a step {whole:.0f}')
    return {what: (count, total / count, work, unit) for what, (count, total, work, unit) in groups.items()}, whole, \
        sum(work for _, work, unit in rows.values() if unit == 'multiply-add')


def compiler():
    return subprocess.run(['arm-none-eabi-g++', '-dumpfullversion'], capture_output=True, text=True, check=True).stdout.strip()


def write_page():
    measured = {net: [measure(board, recipe) for board in BOARDS] for net, recipe in NETS.items()}
    names = ' | '.join(BOARDS.values())
    lines = ['# Instructions of a step on boards', '',
             f'`make bench-board-instructions` writes this page: arm-none-eabi-g++ {compiler()}, QEMU with `-icount`, {", ".join(BOARDS)}.',
             'Instructions are counted, no time: a processor that starts two at once, or waits for memory, is not in them, and a vector of',
             "Helium's counts as one. The plans are without a budget, batch 1; rows of the same kernel and shapes stand together.", '',
             f'| a step | multiply-adds | {names} | of each multiply-add: {names} |', '|---|---|' + '---|' * (2 * len(BOARDS))]
    for net, boards in measured.items():
        work = boards[0][2]
        wholes = [whole for _, whole, _ in boards]
        lines.append(f'| {net} | {work:,.0f} | ' + ' | '.join(f'{w:,.0f}' for w in wholes) + ' | ' + ' | '.join(f'{w / work:.2f}' for w in wholes) + ' |')
    for net, boards in measured.items():
        lines += ['', f'## {net}', '', f'What a row writes <- what it reads; instructions of one row, and of each multiply-add (m) or element (e) there.', '',
                  f'| kernel | shapes | rows | {names} | | {names} |', '|---|---|---|' + '---|' * (2 * len(BOARDS) + 1)]
        small, rest = 0, [0.0] * len(BOARDS)
        for what, (count, instructions, work, unit) in boards[0][0].items():
            each = [groups[what][1] for groups, _, _ in boards]
            if instructions < LEAST:
                small, rest = small + count, [r + count * e for r, e in zip(rest, each)]
                continue
            lines.append(f'| {what[0]} | {what[1]} | {count} | ' + ' | '.join(f'{e:,.0f}' for e in each) + f' | {unit[0]} | ' +
                         ' | '.join(f'{e / work:.2f}' for e in each) + ' |')
        lines.append(f'| {small} smaller ones, together | | | ' + ' | '.join(f'{r:,.0f}' for r in rest) + ' | |' + ' |' * len(BOARDS))
    with open(PAGE, 'w') as file:
        file.write('\n'.join(lines) + '\n')


def check():
    with open(PAGE) as file:
        page = file.read()
    board, net = CHECKED
    groups, _, _ = measure(board, NETS[net])
    if f'arm-none-eabi-g++ {compiler()},' not in page:
        print(f'skipped: {PAGE} is of another compiler than arm-none-eabi-g++ {compiler()}')
        return
    section = re.search(rf'^## {net}$(.*?)(?=^## |\Z)', page, re.M | re.S).group(1)
    column = 3 + list(BOARDS).index(board)
    stated = {(cells[0], cells[1]): int(cells[column].replace(',', '')) for cells in
              ([cell.strip() for cell in line[1:-1].split('|')] for line in section.splitlines() if re.match(r'\| \w+\.\w+ \|', line))}
    found = {what: instructions for what, (_, instructions, _, _) in groups.items() if instructions >= LEAST}
    wrong = [f'{kernel} {form}: {found.get((kernel, form), 0):,.0f}, on the page {stated.get((kernel, form), 0):,}' for kernel, form in found.keys() | stated.keys()
             if abs(found.get((kernel, form), 0) - stated.get((kernel, form), 0)) > 0.01 * stated.get((kernel, form), 0)]
    if wrong:
        sys.exit(f'board_instructions: {PAGE} is of other kernels; make bench-board-instructions writes it:\n' + '\n'.join(sorted(wrong)))
    print(f'{len(found)} rows of {net} on {board} take the instructions of {PAGE}')


if sys.argv[1:] == ['--check']:
    check()
else:
    write_page()
