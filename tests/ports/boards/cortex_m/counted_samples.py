#!/usr/bin/env python3
"""Writes the micro-batch of ports/cortex_m/counted_batch.h for tiny.json as a file of samples, so
that a host trains on the samples of a board.

Reason: a training that moves between board and host must have the bits of a training on the host
alone.
"""
import json
import struct
import sys

SAMPLES, PIXELS = 2, 16
state, pixels = 1, []
for _ in range(SAMPLES * PIXELS):
    state = (state * 1664525 + 1013904223) % 2**32
    pixels.append((state >> 8) * 2.0**-24)
images, labels = struct.pack(f'<{len(pixels)}f', *pixels), struct.pack(f'<{SAMPLES}q', *(n % 2 for n in range(SAMPLES)))
header = json.dumps({'images': {'dtype': 'F32', 'shape': [SAMPLES, 1, 4, 4], 'data_offsets': [0, len(images)]},
                     'labels': {'dtype': 'I64', 'shape': [SAMPLES], 'data_offsets': [len(images), len(images) + len(labels)]}}).encode()
header += b' ' * (-len(header) % 8)
with open(sys.argv[1], 'wb') as file:
    file.write(struct.pack('<Q', len(header)) + header + images + labels)
