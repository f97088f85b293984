// Token and position embeddings. The forward gathers rows of a table; the backward adds gradients
// to the table's rows without atomics. The counterpart of lib/cpu/pointwise/embedding.cpp. As on
// the CPU, the gradient of a row is summed over the positions of its token, in the order of the
// positions.
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "cuda/weight_format.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;

// ---- tokens ----

__device__ inline bool is_in_table(int32_t token, uint32_t V) { return token >= 0 && static_cast<uint32_t>(token) < V; }

__global__ void __launch_bounds__(kBlockThreads)
    note_bad_tokens(StepScalars* scalars, uint32_t row, const int32_t* tokens, uint64_t count, uint32_t V) {
  REPRISE_SHARED(uint64_t, shared, kWarps);
  uint64_t first = kNoFault;
  for (uint64_t i = threadIdx.x; i < count; i += kBlockThreads) {
    if (first == kNoFault && !is_in_table(tokens[i], V)) first = i;
  }
  first = block_min<kWarps>(shared, first);
  if (threadIdx.x == 0) note_fault(scalars, DataFault::kToken, row, first);
}

void launch_note_bad_tokens(const KernelContext& context, const int32_t* tokens, uint64_t count, uint32_t V) {
  REPRISE_LAUNCH(note_bad_tokens, 1, kBlockThreads, context.queue, context.scalars, context.row, tokens, count, V);
}

// ---- forward ----

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) gather_rows(const EmbeddingForwardArgsOf<Stored> args) {
  const uint64_t packs = args.C / kWidth, total = uint64_t{args.B} * args.T * packs;
  for (uint64_t i = grid_thread(); i < total; i += grid_threads()) {
    const uint64_t row = i / packs, c = i % packs * kWidth;
    const int32_t token = args.tokens[row];
    Pack<kWidth> y = {};
    if (is_in_table(token, args.V)) y = decode_weights<kWidth>(args.table, static_cast<uint64_t>(token) * args.C + c);
    if (args.positions.data == nullptr) {
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) y.at[k] *= args.scale;
    } else {
      const Pack<kWidth> position = decode_weights<kWidth>(args.positions, row % args.T * args.C + c);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) y.at[k] = fmaf(args.scale, y.at[k], position.at[k]);
    }
    store_pack(args.y + i * kWidth, y);
  }
}

// ---- the table's gradient: a block owns some rows of the table and looks for their tokens ----

constexpr uint32_t kOwnedRows = kWarpLanes;  // rows of the table that a block owns
constexpr uint32_t kMaxHits = 4 * kBlockThreads;

// Checks the next kBlockThreads tokens, one for each thread, and appends to the lists the tokens
// that are rows of this block, in order. A token's entry is its row, counted from first_row, and
// its position. `held` is the length of the lists; returns the new length. `counts` has kWarps
// values.
template <typename Rows, typename Positions, typename Counts>
__device__ uint32_t find_hits(Rows& rows, Positions& positions, Counts& counts, uint32_t held, const int32_t* tokens,
                              uint64_t first, uint64_t end, uint32_t first_row) {
  const uint64_t i = first + threadIdx.x;
  const uint32_t row = i < end ? static_cast<uint32_t>(tokens[i]) - first_row : kOwnedRows;  // lower rows wrap
  const bool hit = row < kOwnedRows;
  const uint32_t lanes = warp_bits(hit);
  if (lane_index() == 0) counts[warp_index()] = bit_count(lanes);
  __syncthreads();
  uint32_t at = held + bit_count(lanes & ((1u << lane_index()) - 1u));
  for (uint32_t w = 0; w < kWarps; ++w) {
    const uint32_t count = counts[w];
    held += count;
    if (w < warp_index()) at += count;
  }
  if (hit) rows[at] = static_cast<uint8_t>(row), positions[at] = i;
  __syncthreads();
  return held;
}

// Sorts the positions by row and keeps the order within a row. begins[r] is the index of row r's
// first position. One warp sorts; each lane does one row.
template <typename Rows, typename Positions, typename Sorted, typename Begins>
__device__ void sort_by_row(Rows& rows, Positions& positions, Sorted& sorted, Begins& begins, uint32_t held) {
  if (warp_index() == 0) {
    uint32_t before = 0;
    for (uint32_t e = 0; e < held; ++e) before += rows[e] < lane_index() ? 1 : 0;
    begins[lane_index()] = before;
    if (lane_index() == 0) begins[kOwnedRows] = held;
    for (uint32_t e = 0; e < held; ++e) {
      if (rows[e] == lane_index()) sorted[before++] = positions[e];
    }
  }
  __syncthreads();
}

// Returns `sum` plus the gradients of positions sorted[begin] to sorted[end - 1], for one pack of a
// row of dtable.
template <uint32_t kWidth, typename Stored, typename Sorted>
__device__ Pack<kWidth> add_positions(Pack<kWidth> sum, const Stored* dy, float scale, uint64_t C, Sorted& sorted,
                                      uint32_t begin, uint32_t end) {
  constexpr uint32_t kAhead = 4;  // positions whose gradients are read before the first is added
  for (uint32_t first = begin; first < end; first += kAhead) {
    Pack<kWidth> held[kAhead] = {};
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kAhead; ++h) {
      if (first + h < end) held[h] = load_pack<kWidth>(dy + sorted[first + h] * C);
    }
    REPRISE_UNROLL
    for (uint32_t h = 0; h < kAhead; ++h) {
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k)
        sum.at[k] = first + h < end ? fmaf(scale, held[h].at[k], sum.at[k]) : sum.at[k];
    }
  }
  return sum;
}

// Adds the gradients of the listed positions to the block's rows of dtable. A row without positions
// is set to zero if `overwrite` is true, and is not written otherwise.
template <uint32_t kWidth, typename Stored, typename Sorted, typename Begins>
__device__ void add_to_rows(const EmbeddingBackwardArgsOf<Stored>& args, uint32_t first_row, Sorted& sorted,
                            Begins& begins, bool overwrite) {
  const uint32_t packs = args.C / kWidth, rows = static_cast<uint32_t>(minimum(kOwnedRows, args.V - first_row));
  for (uint64_t i = threadIdx.x; i < uint64_t{rows} * packs; i += kBlockThreads) {
    const auto r = static_cast<uint32_t>(i / packs);
    const uint32_t c = static_cast<uint32_t>(i % packs) * kWidth, begin = begins[r], end = begins[r + 1];
    if (begin == end && !overwrite) continue;
    float* out = args.dtable + uint64_t{first_row + r} * args.C + c;
    Pack<kWidth> sum = {};
    if (!overwrite) sum = load_pack<kWidth>(out);
    store_pack(out, add_positions<kWidth>(sum, args.dy + c, args.scale, args.C, sorted, begin, end));
  }
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) add_to_table(const EmbeddingBackwardArgsOf<Stored> args) {
  REPRISE_SHARED(uint8_t, rows, kMaxHits);
  REPRISE_SHARED(uint64_t, positions, kMaxHits);
  REPRISE_SHARED(uint64_t, sorted, kMaxHits);
  REPRISE_SHARED(uint32_t, begins, kOwnedRows + 1);
  REPRISE_SHARED(uint32_t, counts, kWarps);
  const uint64_t count = uint64_t{args.B} * args.T;
  const uint32_t first_row = blockIdx.x * kOwnedRows;
  bool overwrite = !args.accumulate_dtable;
  uint32_t held = 0;
  for (uint64_t first = 0; first < count; first += kBlockThreads) {
    held = find_hits(rows, positions, counts, held, args.tokens, first, count, first_row);
    const bool last = first + kBlockThreads >= count, full = held + kBlockThreads > kMaxHits;
    if (!last && !full) continue;
    sort_by_row(rows, positions, sorted, begins, held);
    add_to_rows<kWidth>(args, first_row, sorted, begins, overwrite);
    __syncthreads();  // the next iteration overwrites the lists
    overwrite = false;
    held = 0;
  }
}

// ---- the positions' gradient: position t sums over the sequences, in their order ----

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) sum_positions(const EmbeddingBackwardArgsOf<Stored> args) {
  const uint64_t packs = args.C / kWidth;
  for (uint64_t i = grid_thread(); i < args.L * packs; i += grid_threads()) {
    const uint64_t t = i / packs;
    float* out = args.dpositions + i * kWidth;
    Pack<kWidth> sum = {};
    if (args.accumulate_dpositions) sum = load_pack<kWidth>(out);
    for (uint64_t b = 0; b < args.B && t < args.T; ++b) {
      const Pack<kWidth> dy = load_pack<kWidth>(args.dy + (b * args.T + t) * args.C + i % packs * kWidth);
      REPRISE_UNROLL
      for (uint32_t k = 0; k < kWidth; ++k) sum.at[k] += dy.at[k];
    }
    store_pack(out, sum);
  }
}

}  // namespace

template <typename Stored>
Status cuda_embedding_forward(const KernelContext& context, const EmbeddingForwardArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const uint64_t rows = uint64_t{args.B} * args.T, wide = args.C % kWide == 0 ? kWide : 1;
  launch_note_bad_tokens(context, args.tokens, rows, args.V);
  const auto kernel = wide > 1 ? gather_rows<kWide, Stored> : gather_rows<1, Stored>;
  REPRISE_LAUNCH(kernel, blocks_for(rows * args.C / wide), kBlockThreads, context.queue, args);
  return launch_status();
}

template <typename Stored>
Status cuda_embedding_backward(const KernelContext& context, const EmbeddingBackwardArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<float>;
  const bool wide = args.C % kWide == 0;
  if (args.dtable != nullptr) {  // without a table there is no V, and no token is read
    launch_note_bad_tokens(context, args.tokens, uint64_t{args.B} * args.T, args.V);
    const auto kernel = wide ? add_to_table<kWide, Stored> : add_to_table<1, Stored>;
    REPRISE_LAUNCH(kernel, static_cast<uint32_t>(parts(args.V, kOwnedRows)), kBlockThreads, context.queue, args);
  }
  if (args.dpositions != nullptr) {
    const auto kernel = wide ? sum_positions<kWide, Stored> : sum_positions<1, Stored>;
    REPRISE_LAUNCH(kernel, blocks_for(uint64_t{args.L} * args.C / (wide ? kWide : 1)), kBlockThreads, context.queue,
                   args);
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_embedding_forward, EmbeddingForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_embedding_backward, EmbeddingBackwardArgs)

}  // namespace reprise
