# Reads and writes safetensors files as numpy arrays: u64 header length, JSON header, raw
# little-endian data. The judge must not share a reader with what it judges, and Debian has no
# safetensors package.
import json
import struct

import numpy as np

kDtypes = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
kNames = {np.dtype(value): name for name, value in kDtypes.items()}


class SafetensorsError(Exception):
  pass


def write_safetensors(path, tensors):
  """Writes `tensors`, name -> numpy array, in the dict's order; the header is padded with blanks to
  8 bytes."""
  header, chunks, offset = {}, [], 0
  for name, array in tensors.items():
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    header[name] = {"dtype": kNames[array.dtype], "shape": list(array.shape),
                    "data_offsets": [offset, offset + array.nbytes]}
    chunks.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
    offset += array.nbytes
  text = json.dumps(header, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  with open(path, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read_safetensors(path):
  """Returns name -> numpy array (copies); raises SafetensorsError, which names the file and its
  fault."""
  try:
    with open(path, "rb") as file:
      data = file.read()
  except OSError as error:
    raise SafetensorsError(f"{path}: {error.strerror}")
  if len(data) < 8 or struct.unpack("<Q", data[:8])[0] > len(data) - 8:
    raise SafetensorsError(f"{path}: not a safetensors file (the header is longer than the file)")
  start = 8 + struct.unpack("<Q", data[:8])[0]
  try:
    header = json.loads(data[8:start])
  except ValueError:
    raise SafetensorsError(f"{path}: the safetensors header is not JSON")
  header.pop("__metadata__", None)
  return {name: read_tensor(path, name, entry, data, start) for name, entry in header.items()}


def read_tensor(path, name, entry, data, start):
  if entry["dtype"] not in kDtypes:
    raise SafetensorsError(f"{path}: {name}: dtype {entry['dtype']} is not one of {', '.join(kDtypes)}")
  dtype = np.dtype(kDtypes[entry["dtype"]]).newbyteorder("<")
  begin, end = entry["data_offsets"]
  if end - begin != int(np.prod(entry["shape"], dtype=np.int64)) * dtype.itemsize or start + end > len(data):
    raise SafetensorsError(f"{path}: {name}: {end - begin} bytes do not fit shape {entry['shape']} or the file")
  array = np.frombuffer(data[start + begin:start + end], dtype=dtype).reshape(entry["shape"])
  return array.astype(dtype.newbyteorder("="))
