// Attention for generation: a few new rows against the cached keys and values of all earlier
// positions. Reading the cache takes most of the time. So this kernel does not use the tiles of
// attention.cpp. For each query head it reads once, in order, the keys and values of the positions
// that the row sees.
#include <cmath>
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/vector_math.h"
#include "lib/cpu/vector_of.h"

namespace reprise {
namespace {

constexpr uint32_t kBlock = 64;  // positions in one step of the online softmax

// Computes query head h of row t, which is at `position`: an online softmax over the positions that
// the row sees, kBlock at a time.
template <typename Stored>
REPRISE_INLINE void decode_body(const AttentionDecodeArgsOf<Stored>& args, uint32_t t, uint32_t h, uint32_t position) {
  const uint32_t heads = args.attention.heads, kv_heads = args.attention.kv_heads, D = args.C / heads;
  const uint64_t row = uint64_t{kv_heads} * D, shared = uint64_t{h / (heads / kv_heads)} * D;
  const Stored* query = args.qkv + t * (args.C + 2 * row) + uint64_t{h} * D;
  const float scale = attention_scale(args.attention, D), softcap = args.attention.softcap;
  const uint32_t begin = args.attention.first_seen(position, 0);
  float q[kAttentionMaxHead], y[kAttentionMaxHead], weights[kBlock];
  for (uint32_t d = 0; d < D; ++d) q[d] = float{query[d]} * scale;
  for (uint32_t d = 0; d < D; ++d) y[d] = 0;
  float largest = -__builtin_inff(), sum = 0;
  for (uint32_t first = begin; first <= position; first += kBlock) {
    const uint32_t count = position - first < kBlock ? position - first + 1 : kBlock;
    const float before = largest;
    for (uint32_t s = 0; s < count; ++s) {
      weights[s] = sum_of_products(q, args.keys + (first + s) * row + shared, D);
      if (softcap > 0) weights[s] = softcap * vector_tanh(weights[s] / softcap);
      largest = weights[s] > largest ? weights[s] : largest;
    }
    const float rescale = first == begin ? 0.0f : vector_exp(before - largest);
    sum *= rescale;
    for (uint32_t d = 0; d < D; ++d) y[d] *= rescale;
    for (uint32_t s = 0; s < count; ++s) {
      const float weight = vector_exp(weights[s] - largest);
      const Stored* value = args.values + (first + s) * row + shared;
      sum += weight;
      REPRISE_INDEPENDENT
      for (uint32_t d = 0; d < D; ++d) y[d] += weight * float{value[d]};
    }
  }
  Stored* out = args.y + uint64_t{t} * args.C + uint64_t{h} * D;
  for (uint32_t d = 0; d < D; ++d) out[d] = y[d] / sum;
}
REPRISE_STORAGE_LEVELS(decode_head, decode_body,
                       (const AttentionDecodeArgsOf<Stored>& args, uint32_t t, uint32_t h, uint32_t position),
                       (args, t, h, position))

// Sets `rows` to the number of rows before the padding. Notes a fault and returns false if a row
// has an impossible position.
template <typename Stored>
bool count_rows(const KernelContext& context, const AttentionDecodeArgsOf<Stored>& args, uint32_t& rows) {
  rows = 0;
  for (uint32_t t = 0; t < args.P; ++t) {
    const int64_t start = args.document_start[t];
    if (start > t) continue;
    const bool follows = t == rows && (t == 0 || start == args.document_start[0]);
    if (!follows || t - start >= args.L) {
      note_fault(context, DataFault::kDocument, t);
      return false;
    }
    ++rows;
  }
  return true;
}

}  // namespace

template <typename Stored>
Status cpu_attention_decode(const KernelContext& context, const AttentionDecodeArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint32_t heads = args.attention.heads, D = args.C / heads;
  const uint64_t row = uint64_t{args.attention.kv_heads} * D;
  uint32_t rows = 0;
  if (!count_rows(context, args, rows)) rows = 0;
  const auto position = [&args](uint32_t t) { return static_cast<uint32_t>(int64_t{t} - args.document_start[t]); };
  for (uint32_t t = 0; t < rows; ++t) {
    const Stored* keys = args.qkv + t * (args.C + 2 * row) + args.C;
    std::memcpy(args.keys + position(t) * row, keys, row * sizeof(Stored));
    std::memcpy(args.values + position(t) * row, keys + row, row * sizeof(Stored));
  }
  std::memset(args.y + uint64_t{rows} * args.C, 0, uint64_t{args.P - rows} * args.C * sizeof(Stored));
  parallel_for(*context.workers, rows * heads,
               [&](uint32_t task) { decode_head(level, args, task / heads, task % heads, position(task / heads)); });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_attention_decode, AttentionDecodeArgs)

}  // namespace reprise
