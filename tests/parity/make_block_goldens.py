#!/usr/bin/env python3
# Makes the goldens of tests/golden/formats with the PyPI packages `gguf`, `libgguf` and
# `bitsandbytes` (pip install gguf libgguf; pip install --no-deps bitsandbytes): blocks and the
# floats that they decode to, floats and the blocks that they encode to, and a small GGUF file. With
# these files the tests of tools/files/formats need no Python, and other projects' readers and
# writers judge ours.
import ctypes
import importlib.util
import os

import gguf
import libgguf
import numpy as np

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "formats")
kTypes = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "Q2_K", "Q3_K"]
kHalves = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
           "IQ4_NL": [0], "Q2_K": [80, 82], "Q3_K": [108]}
# Scales: the largest half, the smallest subnormal and normal, zero, negative, a typical one.
kScales = np.array([65504, 2**-24, 2**-14, -0.0, -3.0517578125e-05, 0.01], np.float16)


def hex_of(array):
  return np.ascontiguousarray(array).view(np.uint8).tobytes().hex()


def decoded(random):
  for name in kTypes:
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    for n in range(3 if values == 256 else 6 if values == 32 else 64):
      block = random.integers(0, 256, size, np.uint8)
      for at in kHalves.get(name, []):
        block[at:at + 2] = random.choice(kScales, 1).view(np.uint8)
      if values == 1 and n < 6:
        block = kScales[n:n + 1].view(np.uint8)
      floats = gguf.dequantize(block.reshape(1, -1), kind).astype(np.float32)
      if np.isnan(floats).any():
        continue
      yield f"decode {name} {hex_of(block)} {hex_of(floats)}"


def encoded(random):
  for name in ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]:
    kind = gguf.GGMLQuantizationType[name]
    values, _ = gguf.GGML_QUANT_SIZES[kind]
    for n in range(8 if values == 32 else 96):
      floats = (random.standard_normal((1, values)) * 2.0**random.integers(-28, 16)).astype(np.float32)
      if n == 0:
        floats[:] = 0
      if values == 32 and n == 1:
        floats[0] = (np.arange(32) - 16) * 0.5  # halves, which are ties in rounding
        floats[0, 0] = 127
      if values == 1 and n < 24:  # ties between two numbers of 11 or 8 bits, and their neighbours
        bits = np.uint32(0x3F800000 + (n << (12 if name == "F16" else 15)) + (n % 3 - 1))
        floats[0] = bits.view(np.float32) * np.float32(2.0**(-15 if n % 2 else 3))
      if name == "F16":
        blocks = floats.astype(np.float16)  # as gguf itself does
      else:
        blocks = gguf.quantize(floats, kind)
      yield f"encode {name} {hex_of(floats)} {hex_of(blocks)}"


def encoded_k(random):
  for n in range(12):
    floats = (random.standard_normal((1, 256)) * 2.0**random.integers(-12, 8)).astype(np.float32)
    if n == 0:
      floats[:] = 0
    if n == 1:
      floats = np.abs(floats)
    if n == 2:
      floats[0, :32] = 0
    if n == 3:
      floats[0, 40:] = -3
    yield f"encode Q4_K {hex_of(floats)} {hex_of(libgguf.quantize_rows(floats, gguf.GGMLQuantizationType.Q4_K))}"


# Uses the library of bitsandbytes that needs no torch.
def decoded_nf4(random):
  folder = os.path.dirname(importlib.util.find_spec("bitsandbytes").origin)
  library = ctypes.CDLL(os.path.join(folder, "libbitsandbytes_cpu.so"))
  for n in range(6):
    codes = random.integers(0, 256, 32, np.uint8)
    largest, floats = (random.standard_normal(1)**2).astype(np.float32), np.zeros(64, np.float32)
    sizes = [ctypes.c_longlong(size) for size in (64, 1, 64)]
    library.cdequantize_blockwise_cpu_nf4_fp32(codes.ctypes.data_as(ctypes.c_void_p), largest.ctypes.data_as(ctypes.c_void_p),
                                               floats.ctypes.data_as(ctypes.c_void_p), *sizes)
    yield f"decode NF4 {hex_of(largest)}{hex_of(codes)} {hex_of(floats)}"


def write_small_file(path, random):
  writer = gguf.GGUFWriter(path, "llama")
  writer.add_block_count(1)
  writer.add_custom_alignment(64)
  for kind, value in [("uint8", 200), ("int8", -100), ("uint16", 60000), ("int16", -30000), ("uint32", 4000000000), ("int32", -2000000000),
                      ("uint64", 2**63 + 1), ("int64", -2**62), ("float32", 0.1), ("float64", 0.1), ("bool", True)]:
    getattr(writer, "add_" + kind)("test." + kind, value)
  writer.add_array("test.strings", ["", "a", "\u0120b", "two\nlines"])
  writer.add_array("test.integers", [3, -1, 6])
  writer.add_array("test.floats", [0.5, -1.5])
  writer.add_tensor("token_embd.weight", random.standard_normal((3, 32)).astype(np.float32))
  writer.add_tensor("blk.0.attn_q.weight", gguf.quantize(random.standard_normal((2, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q8_0),
                    raw_dtype=gguf.GGMLQuantizationType.Q8_0)
  writer.add_tensor("output_norm.weight", random.standard_normal(5).astype(np.float16))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  with open(os.path.splitext(path)[0] + ".txt", "w") as file:
    for tensor in gguf.GGUFReader(path).tensors:
      floats = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
      file.write(f"{tensor.name} {tensor.tensor_type.name} {','.join(str(d) for d in reversed(tensor.shape.tolist()))} {hex_of(floats)}\n")


def main():
  random = np.random.default_rng(16)
  with open(os.path.join(kFolder, "blocks.txt"), "w") as file:
    file.writelines(line + "\n" for line in [*decoded(random), *encoded(random), *encoded_k(random), *decoded_nf4(random)])
  write_small_file(os.path.join(kFolder, "small.gguf"), random)


if __name__ == "__main__":
  np.seterr(over="ignore")
  main()
