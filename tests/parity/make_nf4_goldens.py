#!/usr/bin/python3
# Makes tests/golden/weights/nf4: matrices as bitsandbytes stores them in NF4, and the numbers that
# it decodes from them. They judge tools/files/weights/bitsandbytes_weights.h by bitsandbytes. In
# addition to torch it needs pip install --no-deps bitsandbytes; run it with
# build/parity-venv/bin/python. It must not use Reprise's code.
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import save_file

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "weights", "nf4")


def main():
  folder = sys.argv[1] if len(sys.argv) > 1 else kFolder
  os.makedirs(folder, exist_ok=True)
  torch.manual_seed(1)
  stored, numbers = {"norm.weight": torch.randn(7)}, {}
  numbers["norm.weight"] = stored["norm.weight"]
  for name, shape, nested, block in (("plain.weight", (24, 64), False, 64), ("nested.weight", (80, 256), True, 64), ("large.weight", (8, 256), True, 128),
                                     ("uneven.weight", (5, 33), False, 64), ("wide.weight", (40, 512), True, 64)):
    matrix = torch.randn(shape) * 0.05
    matrix[0] *= 20
    packed, state = quantize_4bit(matrix, blocksize=block, compress_statistics=nested, quant_type="nf4")
    stored[name] = packed
    stored.update({f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()})
    numbers[name] = dequantize_4bit(packed, state).to(torch.float32).contiguous()
  save_file(stored, os.path.join(folder, "model.safetensors"))
  save_file(numbers, os.path.join(folder, "numbers.safetensors"))


if __name__ == "__main__":
  main()
