// The blocks in which GGUF files store numbers: a few integers that share a scale, and the plain types beside them.
// Here because weights are read from such files, and Q8_0 is written too. The layouts are ggml's (github.com/ggml-org/ggml,
// ggml-common.h); a value is computed from its block alone, with one rounding at most before the last, so that its bits do not depend
// on how many are read at once.
#pragma once

#include <cstdint>
#include <optional>

#include "lib/tensor.h"

namespace reprise {

// The numbers are the file's.
enum class BlockType : uint32_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14,
  kIQ4_NL = 20, kBf16 = 30,
  kNF4 = 1u << 31, kNF4Double,  // bitsandbytes', which no GGUF holds
};

struct BlockLayout {
  BlockType type;
  const char* name;  // ggml's: "Q4_K"
  uint32_t values;   // of a block; a row of a tensor is whole blocks
  uint32_t bytes;    // of a block
};

constexpr uint32_t kMostBlockValues = 512;

// Of a type's number in a file; null where no blocks of that type are read here.
const BlockLayout* find_block_layout(uint32_t type);
const BlockLayout& block_layout(BlockType type);

// ggml's name of a type's number, of types that are not read here, too; null where ggml has none.
const char* ggml_type_name(uint32_t type);

// blocks[count * bytes] -> values[count * values].
void dequantise_blocks(BlockType type, const void* blocks, uint64_t count, float* values);

// The format in which lib reads such blocks as they are (lib/weight_format.h), and back; none where it does not.
std::optional<DType> weight_format_of(BlockType type);
std::optional<BlockType> block_type_of(DType format);

// Whether quantise_blocks() makes blocks of that type: F32, F16, BF16, Q8_0, Q5_1, Q5_0, Q4_1, Q4_0, Q4_K, NF4 and NF4_DOUBLE.
bool is_written(BlockType type);

// values[count * values] -> blocks[count * bytes], of finite values. F16 and BF16 take the nearest number, ties to even; Q8_0 a half
// d = largest / 127, then 32 integers, the nearest to value / d with halves away from zero; the others as ggml defines them. The same bits as
// ggml's own reference (quantize_row_q8_0_ref and its like), and as bitsandbytes', but for the codes of NF4_DOUBLE's magnitudes: bitsandbytes takes
// one offset for a tensor and one scale for 256 magnitudes, a block here its own for eight, which are nearer to them.
void quantise_blocks(BlockType type, const float* values, uint64_t count, void* blocks);

}  // namespace reprise
