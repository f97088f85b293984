// Returns all bytes of one tensor in a safetensors file, for tests that compare tensors. The tools
// have no such function, because they never load a whole tensor outside the arena.
#pragma once

#include <vector>

#include "tools/files/formats/safetensors.h"

namespace reprise {

inline std::vector<unsigned char> stored_bytes(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::vector<unsigned char> bytes(tensor.bytes);
  file.read(tensor, 0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace reprise
