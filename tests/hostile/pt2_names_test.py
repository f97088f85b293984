#!/usr/bin/env python3
"""Gives every value, parameter and buffer of a .pt2 file a name that would end a comment or a
literal of C++. The net must be imported and planned, plan.h must compile to a program, and its
names must be the file's.

pt2_names_test.py REPRISE FOLDER; CXX is the compiler. tests/hostile/pt2_names_test.sh runs it."""
import json
import os
import random
import subprocess
import sys
import zipfile

PIECES = ['*/', '/*', '//', '\n', '\r', '\\', '\\\n', '??/', '??/\n', '"', "'", ')reprise"', 'R"(', '#include </etc/passwd>\n', '\n#error planted\n', '\n#define main planted\n',
          '7', '\x01', '\x1b[31m', '\x7f', '\x85', '\u2028', '\u202e', '\U0001f600', ' ', '\t', '%s%n', '$(touch x)', '`touch x`', '@', '.', ';', '}']
PRINTER = '''#include "plan.h"
#include <cstdio>
int main() {
  for (const reprise::StateTensor& state : reprise::generated::kPlan.state) {
    for (const char* text = state.name; *text != 0; ++text) std::printf("%02x", static_cast<unsigned>(static_cast<unsigned char>(*text)));
    std::puts("");
  }
}
'''


def hostile_names(words, seed):
    """Returns a distinct name for each word, which keeps the word's end: importers distinguish
    weights and biases by it."""
    draw = random.Random(seed)
    return {word: ''.join(draw.choice(PIECES) for _ in range(draw.randrange(1, 6))) + str(n) + '.' + word for n, word in enumerate(sorted(words))}


def names_in(value, found):
    """Adds the names of values, parameters and buffers in `value` to `found`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ('parameter_name', 'buffer_name') and isinstance(inner, str):
                found.add(inner)
            if key == 'as_tensor' and isinstance(inner, dict):
                found.add(inner['name'])
            if key == 'tensor_values':
                found.update(inner)
            names_in(inner, found)
    elif isinstance(value, list):
        for inner in value:
            names_in(inner, found)


def renamed(value, names):
    if isinstance(value, dict):
        return {names.get(key, key): renamed(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def main():
    reprise, folder = sys.argv[1:3]
    source = zipfile.ZipFile('tests/golden/pt2/resnet.pt2')
    model = json.loads(source.read('resnet/models/model.json'))
    weights = json.loads(source.read('resnet/data/weights/model_weights_config.json'))
    values, stored = set(), set(weights['config'])
    names_in(model['graph_module'], values)
    names = hostile_names({name for name in values | stored if '_' in name or '.' in name}, 1)
    with zipfile.ZipFile(folder + '/net.pt2', 'w') as target:
        for entry in source.infolist():
            text = source.read(entry)
            if entry.filename.endswith('models/model.json'):
                model['graph_module'] = renamed(model['graph_module'], names)
                text = json.dumps(model).encode()
            if entry.filename.endswith('model_weights_config.json'):
                text = json.dumps(renamed(weights, names)).encode()
            target.writestr(zipfile.ZipInfo(entry.filename), text)
    run = lambda *words: subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.decode()
    run(reprise, 'import', folder + '/net.pt2', '-o', folder + '/net.json')
    run(reprise, 'plan', folder + '/net.json', '-o', folder + '/plan')
    with open(folder + '/main.cpp', 'w') as file:
        file.write(PRINTER)
    subprocess.run(os.environ.get('CXX', 'g++').split() + ['-std=c++20', '-fconstexpr-ops-limit=4000000000' if 'clang' not in os.environ.get('CXX', '') else '-fconstexpr-steps=2000000000',
                   '-I.', '-I' + folder + '/plan', folder + '/main.cpp', '-o', folder + '/printer'], check=True)
    in_plan = {bytes.fromhex(line).decode() for line in run(folder + '/printer').split()}
    listed = {parameter['name'] for parameter in json.loads(run(reprise, 'parameters', folder + '/net.json', '--json'))['parameters']}
    assert listed <= in_plan, listed - in_plan
    planted = sum(any(piece in name for piece in PIECES[:12]) for name in listed)
    assert planted > len(listed) // 3, f'only {planted} of {len(listed)} names have something planted: {listed}'
    print(f'{planted} of {len(listed)} parameters have names that would be code')


main()
