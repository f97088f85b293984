// See stored_weights.h.
#include "tests/ops/stored_weights.h"

#include <vector>

#include "tools/formats/ggml_blocks.h"

namespace reprise::test {
namespace {

uint64_t blocks_in(DType type, uint64_t elements) { return elements / dtype_info(type).block_elements; }

std::vector<unsigned char> encode(DType type, const Array& values) {
  const std::vector<float> floats(values.begin(), values.end());
  std::vector<unsigned char> bytes(stored_bytes(type, floats.size()));
  quantise_blocks(block_type_of(type).value(), floats.data(), blocks_in(type, floats.size()), bytes.data());
  return bytes;
}

}  // namespace

void write_stored_weights(DType type, const Array& values, unsigned char* out) {
  const std::vector<unsigned char> bytes = encode(type, values);
  std::copy(bytes.begin(), bytes.end(), out);
}

void round_stored_weights(DType type, Array& values) {
  std::vector<float> floats(values.size());
  dequantise_blocks(block_type_of(type).value(), encode(type, values).data(), blocks_in(type, floats.size()), floats.data());
  std::copy(floats.begin(), floats.end(), values.begin());
}

}  // namespace reprise::test
