// Token and position embeddings: gathers rows of a table, and adds gradients to them. Row numbers
// are data, so they are checked first.
#include <cstring>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/data_fault.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/pointwise/embedding_rules.h"
#include "lib/cpu/weight_format.h"

namespace reprise {
namespace {

constexpr uint64_t kEmbeddingChannels = 64;  // channels of the table that one task of the backward writes

// True if the table has all tokens; otherwise notes the first missing token as a fault.
bool tokens_are_right(const KernelContext& context, const int32_t* tokens, uint64_t count, uint32_t V) {
  for (uint64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= V) {
      note_fault(context, DataFault::kToken, i);
      return false;
    }
  }
  return true;
}

// Writes a part of a row of y: scale * row, plus `position` if it is not null.
template <typename Stored>
REPRISE_INLINE void put_row_body(Stored* y, const float* row, const float* position, float scale, uint64_t count) {
  if (position == nullptr) {
    REPRISE_INDEPENDENT
    for (uint64_t c = 0; c < count; ++c) y[c] = scale * row[c];
    return;
  }
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < count; ++c) y[c] = scale * row[c] + position[c];
}

template <typename Stored>
REPRISE_INLINE void add_to_body(float* sum, const Stored* x, float scale, uint64_t n) {
  REPRISE_INDEPENDENT
  for (uint64_t c = 0; c < n; ++c) sum[c] += scale * float{x[c]};
}

REPRISE_STORAGE_LEVELS(put_row, put_row_body,
                       (Stored * y, const float* row, const float* position, float scale, uint64_t count),
                       (y, row, position, scale, count))
REPRISE_STORAGE_LEVELS(add_to, add_to_body, (float* sum, const Stored* x, float scale, uint64_t n), (sum, x, scale, n))

// Writes rows [begin, end) of y: each is the token's row of the table plus the position's row. The
// table and the positions may be stored in any format.
template <typename Stored>
void embed_rows(VectorLevel level, const EmbeddingForwardArgsOf<Stored>& args, uint64_t begin, uint64_t end) {
  REPRISE_STACK_BUFFER(float, rows, decoded_channels(args.table.type, args.C));
  REPRISE_STACK_BUFFER(float, positions, decoded_channels(args.positions.type, args.C));
  for (uint64_t i = begin; i < end; ++i) {
    for (uint64_t c = 0; c < args.C; c += kDecodedChannels) {
      const uint64_t count = smaller(kDecodedChannels, args.C - c);
      const float* row =
          find_weights(level, args.table, static_cast<uint64_t>(args.tokens[i]) * args.C + c, count, rows);
      const float* position = args.positions.data == nullptr
                                  ? nullptr
                                  : find_weights(level, args.positions, i % args.T * args.C + c, count, positions);
      put_row(level, args.y + i * args.C + c, row, position, args.scale, count);
    }
  }
}

void clear(const Workers& workers, float* x, uint64_t n) {
  for_each_piece(workers, {n, 4 * kBlockElements},
                 [&](uint64_t begin, uint64_t end) { std::memset(x + begin, 0, (end - begin) * sizeof(float)); });
}

// Adds dy of position t in all sequences, in their order, to the gradient of position t.
template <typename Stored>
void add_position(VectorLevel level, const EmbeddingBackwardArgsOf<Stored>& args, uint64_t t) {
  float* sum = args.dpositions + t * args.C;
  for (uint64_t b = 0; b < args.B; ++b) {
    if (b == 0 && !args.accumulate_dpositions) std::memset(sum, 0, args.C * sizeof(float));
    add_to(level, sum, args.dy + (b * args.T + t) * args.C, 1.0f, args.C);
  }
}

}  // namespace

template <typename Stored>
Status cpu_embedding_forward(const KernelContext& context, const EmbeddingForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t rows = uint64_t{args.B} * args.T;
  if (!tokens_are_right(context, args.tokens, rows, args.V)) {
    std::memset(args.y, 0, rows * args.C * sizeof(Stored));
    return ok_status();
  }
  for_each_piece(*context.workers, split_rows(rows, args.C),
                 [&](uint64_t begin, uint64_t end) { embed_rows(level, args, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  const uint64_t rows = uint64_t{args.B} * args.T;
  if (args.dtable != nullptr) {
    // Without a table there is no V, and no token is read.
    const bool right = tokens_are_right(context, args.tokens, rows, args.V);
    if (!args.accumulate_dtable) clear(*context.workers, args.dtable, uint64_t{args.V} * args.C);
    if (right) for_each_piece(*context.workers, {args.C, kEmbeddingChannels}, [&](uint64_t begin, uint64_t end) {
      for (uint64_t i = 0; i < rows; ++i) {
        const uint64_t token = static_cast<uint64_t>(args.tokens[i]);
        add_to(level, args.dtable + token * args.C + begin, args.dy + i * args.C + begin, args.scale, end - begin);
      }
    });
  }
  if (args.dpositions != nullptr) {
    const uint64_t used = args.B == 0 ? 0 : uint64_t{args.T} * args.C;
    if (!args.accumulate_dpositions) clear(*context.workers, args.dpositions + used, uint64_t{args.L} * args.C - used);
    for_each_piece(*context.workers, {args.T, larger(1, kBlockElements / larger(1, uint64_t{args.B} * args.C))},
                   [&](uint64_t begin, uint64_t end) {
                     for (uint64_t t = begin; t < end; ++t) add_position(level, args, t);
                   });
  }
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_embedding_forward, EmbeddingForwardArgs)
REPRISE_INSTANTIATE(cpu_embedding_backward, EmbeddingBackwardArgs)

}  // namespace reprise
