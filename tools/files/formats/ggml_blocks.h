// The formats in which GGUF files store numbers: plain types, and blocks of a few integers that
// share a scale. Weights are read from such files, and some of the formats are also written. The
// layouts are ggml's (github.com/ggml-org/ggml, ggml-common.h). A value is computed from its block
// alone and is rounded at most twice. Its bits therefore do not depend on how many values are read
// at once.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/tensor.h"

namespace reprise {

// ggml's type numbers, as files store them.
enum class BlockType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBf16 = 30,
  kNF4 = 1u << 31,  // from this number on: formats of bitsandbytes, which no GGUF file has
  kNF4Double,
};

// The size of one format.
struct BlockLayout {
  BlockType type;
  const char* name;  // ggml's name: "Q4_K"
  uint32_t values;   // values in a block; a row of a tensor is a whole number of blocks
  uint32_t bytes;    // bytes of a block
};

constexpr uint32_t kMaxBlockValues = 512;

// Returns the layout of the type with this number; null if the type is not supported.
const BlockLayout* find_block_layout(uint32_t type);
// Returns the layout of a supported type.
const BlockLayout& block_layout(BlockType type);

// Returns ggml's name for a type number, including types that are not supported; null if ggml has
// no such type.
const char* ggml_type_name(uint32_t type);

// Decodes blocks[count * bytes] to values[count * values], where `bytes` and `values` of one block
// are those of block_layout(type).
void dequantise_blocks(BlockType type, const void* blocks, uint64_t count, float* values);

// Returns lib's type for the same blocks, if lib can compute with them directly
// (lib/weight_format.h); otherwise nothing. block_type_of() is the inverse.
std::optional<DType> weight_format_of(BlockType type);
std::optional<BlockType> block_type_of(DType format);

// True if quantise_blocks() supports the type: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, Q4_K,
// NF4 and NF4_DOUBLE.
bool is_written(BlockType type);

// Encodes values[count * values], which must be finite, as blocks[count * bytes]. F16 and BF16
// round to the nearest number, ties to even. Q8_0 stores d = largest / 127 as f16, then 32
// integers: value / d, rounded to nearest with ties away from zero. The other types are as ggml
// defines them. Throws std::logic_error unless is_written(type).
// The bits are equal to those of ggml's reference functions (for example quantize_row_q8_0_ref) and
// of bitsandbytes. The exception is the codes of NF4_DOUBLE's magnitudes: bitsandbytes has one
// offset for a tensor and one scale for 256 magnitudes. A block here has its own offset and scale
// for eight, which is more accurate.
void quantise_blocks(BlockType type, const float* values, uint64_t count, void* blocks);

}  // namespace reprise
