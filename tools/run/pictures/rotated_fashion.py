#!/usr/bin/env python3
"""rotated_fashion.py FOLDER [COUNT]: writes the first COUNT (500) images of each half of
Fashion-MNIST, rotated by 45 degrees, as a folder of kind `idx`.

A net that learns on a board needs data that are new to it; these simulate a tilted camera. Values
between pixels are interpolated.
"""
import gzip
import math
import os
import struct
import sys

SOURCE, DEGREES, SIDE = '/usr/share/datasets/fashion-mnist', 45, 28


def places():
    """Yields for each pixel the indices and weights of the four pixels at its position in the
    upright image."""
    cosine, sine, middle = math.cos(math.radians(DEGREES)), math.sin(math.radians(DEGREES)), (SIDE - 1) / 2
    for y in range(SIDE):
        for x in range(SIDE):
            across, down = x - middle, y - middle
            left, top = middle + cosine * across + sine * down, middle - sine * across + cosine * down
            column, row = math.floor(left), math.floor(top)
            right, below = left - column, top - row
            near = ((row, column, (1 - below) * (1 - right)), (row, column + 1, (1 - below) * right),
                    (row + 1, column, below * (1 - right)), (row + 1, column + 1, below * right))
            yield [(r * SIDE + c, weight) for r, c, weight in near if 0 <= r < SIDE and 0 <= c < SIDE]


def main():
    folder, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500
    os.makedirs(folder, exist_ok=True)
    table = list(places())
    for half in ('train', 't10k'):
        with gzip.open(f'{SOURCE}/{half}-images-idx3-ubyte.gz') as file:
            images = file.read(16 + count * SIDE * SIDE)[16:]
        with gzip.open(f'{SOURCE}/{half}-labels-idx1-ubyte.gz') as file:
            labels = file.read(8 + count)[8:]
        turned = bytearray()
        for first in range(0, count * SIDE * SIDE, SIDE * SIDE):
            image = images[first:first + SIDE * SIDE]
            turned += bytes(int(sum(image[place] * weight for place, weight in near) + 0.5) for near in table)
        with open(f'{folder}/{half}-images-idx3-ubyte', 'wb') as file:
            file.write(struct.pack('>4I', 0x803, count, SIDE, SIDE) + turned)
        with open(f'{folder}/{half}-labels-idx1-ubyte', 'wb') as file:
            file.write(struct.pack('>2I', 0x801, count) + labels)


main()
