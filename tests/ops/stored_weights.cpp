// See stored_weights.h. This file contains an encoder for formats that the tools can only decode,
// or whose encoder in the tools would change the scales of a block that is encoded again. The
// encoder uses only the decoder: all blocks have the same fixed scales, and each number gets the
// bit pattern whose decoded number is nearest.
#include "tests/ops/stored_weights.h"

#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tools/files/formats/ggml_blocks.h"

namespace reprise::test {
namespace {

using Bytes = std::vector<unsigned char>;

uint64_t blocks_in(DType type, uint64_t elements) { return elements / dtype_info(type).block_elements; }

std::vector<float> decode(DType type, const Bytes& bytes, uint64_t elements) {
  std::vector<float> floats(elements);
  dequantise_blocks(block_type_of(type).value(), bytes.data(), blocks_in(type, elements), floats.data());
  return floats;
}

// The parts of a block that are not integers: numbers in f16, and bytes that contain small scales.
// The encoder sets them to fixed values, and no scale to zero.
struct Scales {
  std::vector<std::pair<size_t, uint16_t>> halves;  // for each f16: offset in bytes, and its bits
  size_t first = 0, end = 0;                        // the bytes [first, end) of the block contain small scales
};
constexpr uint16_t kSixteenth = 0x2c00, kSmall = 0x1800, kSmaller = 0x1400;  // 2^-4, 2^-9, 2^-10
const std::map<DType, Scales> kScales = {
    {DType::kIQ4_NL, {{{0, kSmall}}}},
    {DType::kQ2_K, {{{80, kSixteenth}, {82, kSixteenth}}, 0, 16}},
    {DType::kQ3_K, {{{108, kSmall}}, 96, 108}},
    {DType::kQ5_K, {{{0, kSmall}, {2, kSmall}}, 4, 16}},
    {DType::kQ6_K, {{{208, kSmaller}}, 192, 208}},
    {DType::kNF4Double, {{{0, 0}, {2, 0x3d00}, {4, 0}, {6, 0x3e00}}, 8, 16}},  // the two f32 scales are 2^-5 and 2^-3
};

// One number of a block: the positions of its bits in the block, and the decoded number for each
// pattern of these bits.
struct Place {
  std::vector<size_t> bits;
  std::vector<float> numbers;
};
struct Encoder {
  Bytes empty;  // a block with the fixed scales, whose other bits are all clear
  std::vector<Place> places;
};

void set_pattern(Bytes& block, const Place& place, size_t pattern) {
  for (size_t b = 0; b < place.bits.size(); ++b) {
    if ((pattern >> b & 1) != 0)
      block[place.bits[b] / 8] = static_cast<unsigned char>(block[place.bits[b] / 8] | 1 << place.bits[b] % 8);
  }
}

Encoder make_encoder(DType type) {
  const auto& [name, elements, bytes] = dtype_info(type);
  const Scales& scales = kScales.at(type);
  Encoder encoder{Bytes(bytes), std::vector<Place>(elements)};
  std::vector<bool> is_scale(bytes);
  for (size_t at = scales.first; at < scales.end; ++at)
    encoder.empty[at] = static_cast<unsigned char>(0x35 + at % 3 * 0x11), is_scale[at] = true;
  for (const auto& [at, half] : scales.halves)
    std::memcpy(&encoder.empty[at], &half, sizeof half), is_scale[at] = is_scale[at + 1] = true;
  const std::vector<float> none = decode(type, encoder.empty, elements);
  for (size_t bit = 0; bit < size_t{bytes} * 8; ++bit) {
    if (is_scale[bit / 8]) continue;
    Bytes block = encoder.empty;
    block[bit / 8] = static_cast<unsigned char>(block[bit / 8] ^ 1 << bit % 8);
    const std::vector<float> one = decode(type, block, elements);
    size_t changed = 0;
    for (size_t i = 0; i < elements; ++i) {
      if (one[i] != none[i]) encoder.places[i].bits.push_back(bit), ++changed;
    }
    if (changed != 1)
      throw std::logic_error(std::string(name) + ": bit " + std::to_string(bit) + " belongs to " +
                             std::to_string(changed) + " numbers");
  }
  for (size_t i = 0; i < elements; ++i) {
    Place& place = encoder.places[i];
    for (size_t pattern = 0; pattern < size_t{1} << place.bits.size(); ++pattern) {
      Bytes block = encoder.empty;
      set_pattern(block, place, pattern);
      place.numbers.push_back(decode(type, block, elements)[i]);
    }
  }
  return encoder;
}

const Encoder& encoder_of(DType type) {
  static std::map<DType, Encoder> made;
  const auto found = made.find(type);
  return found != made.end() ? found->second : made.emplace(type, make_encoder(type)).first->second;
}

Bytes encode_nearest(const Encoder& encoder, const std::vector<float>& values) {
  Bytes bytes;
  for (size_t first = 0; first < values.size(); first += encoder.places.size()) {
    Bytes block = encoder.empty;
    for (size_t i = 0; i < encoder.places.size(); ++i) {
      const Place& place = encoder.places[i];
      const auto error = [&](size_t pattern) { return std::fabs(place.numbers[pattern] - values[first + i]); };
      size_t best = 0;
      for (size_t pattern = 1; pattern < place.numbers.size(); ++pattern)
        best = error(pattern) < error(best) ? pattern : best;
      set_pattern(block, place, best);
    }
    bytes.insert(bytes.end(), block.begin(), block.end());
  }
  return bytes;
}

Bytes encode(DType type, const Array& values) {
  const std::vector<float> floats(values.begin(), values.end());
  if (kScales.count(type) > 0) return encode_nearest(encoder_of(type), floats);
  Bytes bytes(stored_bytes(type, floats.size()));
  quantise_blocks(block_type_of(type).value(), floats.data(), blocks_in(type, floats.size()), bytes.data());
  return bytes;
}

}  // namespace

void write_stored_weights(DType type, const Array& values, unsigned char* out) {
  const Bytes bytes = encode(type, values);
  std::copy(bytes.begin(), bytes.end(), out);
}

void round_stored_weights(DType type, Array& values) {
  const std::vector<float> floats = decode(type, encode(type, values), values.size());
  std::copy(floats.begin(), floats.end(), values.begin());
}

}  // namespace reprise::test
