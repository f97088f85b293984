// All bytes of one tensor of a safetensors file, for tests that compare them.
// Here because the tools themselves never hold a whole tensor outside the arena.
#pragma once

#include <vector>

#include "tools/formats/safetensors.h"

namespace reprise {

inline std::vector<unsigned char> stored_bytes(const SafetensorsFile& file, const StoredTensor& tensor) {
  std::vector<unsigned char> bytes(tensor.bytes);
  file.read(tensor, 0, bytes.data(), bytes.size());
  return bytes;
}

}  // namespace reprise
