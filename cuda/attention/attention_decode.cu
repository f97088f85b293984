// Attention for generation: a few new rows against the cached keys and values of all positions
// before them. The counterpart of lib/cpu/attention/attention_decode.cpp. It does not use the tiles
// of attention.cu, because reading a long cache bounds the time of a row. A block computes one head
// of a row. Each of its warps processes four positions at a time.
#include <cmath>

#include "cuda/attention/attention_heads.h"
#include "cuda/cuda_kernels.h"
#include "cuda/data_fault.h"
#include "cuda/device_math.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/reduce.h"

namespace reprise {
namespace {

constexpr uint32_t kWarps = kBlockThreads / kWarpLanes;
constexpr uint32_t kAtOnce = 4;                                    // positions whose keys a warp reads together
constexpr uint32_t kColumns = kAttentionMaxHead / kWarpLanes;      // columns of the widest head in one lane: every 32nd
constexpr float kMinusInfinity = -__builtin_inff();
static_assert(kAttentionMaxHead <= kBlockThreads);

// The rows to compute. Rows whose document starts after them are padding. A row is invalid if it
// follows padding, belongs to another document than row 0, or has a position outside the cache.
// `count`: rows before the padding; 0 if a row is invalid. `bad`: the first invalid row; kNoFault
// if there is none.
struct DecodedRows {
  uint32_t count = 0;
  uint64_t bad = kNoFault;

  template <typename Stored>
  __device__ explicit DecodedRows(const AttentionDecodeArgsOf<Stored>& args) {
    for (uint32_t t = 0; t < args.P; ++t) {
      const int64_t start = args.document_start[t];
      if (start > t) continue;
      const bool follows = t == count && (t == 0 || start == args.document_start[0]);
      if (!follows || t - start >= args.L) {
        bad = t, count = 0;
        return;
      }
      ++count;
    }
  }
};

template <typename Stored>
__device__ uint32_t position_of(const AttentionDecodeArgsOf<Stored>& args, uint32_t t) {
  return static_cast<uint32_t>(int64_t{t} - args.document_start[t]);
}

// Appends the keys and values of the new rows to the caches. Records a fault if a row is invalid.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    append_rows(const AttentionDecodeArgsOf<Stored> args, StepScalars* scalars, uint32_t row) {
  const DecodedRows rows(args);
  if (grid_thread() == 0) note_fault(scalars, DataFault::kDocument, row, rows.bad);
  const uint32_t of_row = args.C / args.attention.heads * args.attention.kv_heads;
  for (uint64_t i = grid_thread(); i < uint64_t{rows.count} * of_row; i += grid_threads()) {
    const uint32_t t = static_cast<uint32_t>(i / of_row), column = static_cast<uint32_t>(i % of_row);
    const Stored* key = args.qkv + uint64_t{t} * (args.C + 2 * of_row) + args.C + column;
    const uint64_t at = uint64_t{position_of(args, t)} * of_row + column;
    args.keys[at] = key[0];
    args.values[at] = key[of_row];
  }
}

// Loads the lane's columns of one row of a head. Columns from D on become 0.
template <typename Stored>
__device__ void load_columns(float (&columns)[kColumns], const Stored* row, uint32_t D) {
  REPRISE_UNROLL
  for (uint32_t c = 0; c < kColumns; ++c) {
    const uint32_t d = c * kWarpLanes + lane_index();
    columns[c] = d < D ? float{row[d]} : 0.0f;
  }
}

// An online softmax over the positions that one warp processes. `y` is the weighted sum of values.
struct WarpSoftmax {
  float largest = kMinusInfinity, sum = 0;
  float y[kColumns] = {};

  // Caps the scores, which are equal in all lanes. Lane l computes score l % 4 and reads the other
  // scores from other lanes. So a lane computes only one tanh. With four tanh in each lane,
  // registers would spill.
  __device__ static void cap(float (&scores)[kAtOnce], float softcap) {
    float own = scores[0];
    REPRISE_UNROLL
    for (uint32_t s = 1; s < kAtOnce; ++s) own = lane_index() % kAtOnce == s ? scores[s] : own;
    own = softcap * device_tanh(own / softcap);
    REPRISE_UNROLL
    for (uint32_t s = 0; s < kAtOnce; ++s) scores[s] = __shfl_sync(kAllLanes, own, static_cast<int>(s));
  }

  // Adds the positions in [first, first + kAtOnce) that are before `end`. Requires first < end.
  // `softcap` is the cap of the scores; 0 if they are not capped.
  template <typename Stored>
  __device__ void add(const float (&q)[kColumns], const Stored* keys, const Stored* values, uint32_t first,
                      uint32_t end, uint64_t stride, uint32_t D, float softcap) {
    float scores[kAtOnce];
    REPRISE_UNROLL
    for (uint32_t s = 0; s < kAtOnce; ++s) {
      float key[kColumns];
      load_columns(key, keys + (first + s) * stride, first + s < end ? D : 0);
      float score = 0;
      REPRISE_UNROLL
      for (uint32_t c = 0; c < kColumns; ++c) score = fmaf(q[c], key[c], score);
      scores[s] = warp_sum(score);
    }
    if (softcap > 0) cap(scores, softcap);
    const float before = largest;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < kAtOnce; ++s) largest = first + s < end && scores[s] > largest ? scores[s] : largest;
    const float rescale = device_exp(before - largest);
    sum *= rescale;
    REPRISE_UNROLL
    for (uint32_t c = 0; c < kColumns; ++c) y[c] *= rescale;
    REPRISE_UNROLL
    for (uint32_t s = 0; s < kAtOnce; ++s) {
      if (first + s >= end) break;
      const float weight = device_exp(scores[s] - largest);
      float value[kColumns];
      load_columns(value, values + (first + s) * stride, D);
      sum += weight;
      REPRISE_UNROLL
      for (uint32_t c = 0; c < kColumns; ++c) y[c] = fmaf(weight, value[c], y[c]);
    }
  }
};

// Computes head h of row t in block t * heads + h. The block adds the results of its warps in the
// order of the warps.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads, 4) decode_head(const AttentionDecodeArgsOf<Stored> args) {
  REPRISE_SHARED(float, shared_largest, kWarps);
  REPRISE_SHARED(float, shared_sums, kWarps);
  REPRISE_SHARED(float, shared_y, kWarps * kAttentionMaxHead);
  const uint32_t heads = args.attention.heads, D = args.C / heads, t = blockIdx.x / heads, h = blockIdx.x % heads,
                 d = threadIdx.x;
  Stored* out = args.y + uint64_t{t} * args.C + h * D;
  if (t >= DecodedRows(args).count) {
    if (d < D) out[d] = 0.0f;
    return;
  }
  const uint32_t stride = args.attention.kv_heads * D, shared_head = h / (heads / args.attention.kv_heads) * D;
  const uint32_t end = position_of(args, t) + 1, begin = args.attention.first_seen(end - 1, 0);
  const float scale = device_attention_scale(args.attention, D);
  float q[kColumns];
  load_columns(q, args.qkv + uint64_t{t} * (args.C + 2 * stride) + h * D, D);
  REPRISE_UNROLL
  for (uint32_t c = 0; c < kColumns; ++c) q[c] *= scale;
  WarpSoftmax softmax;
  for (uint32_t first = begin + warp_index() * kAtOnce; first < end; first += kWarps * kAtOnce) {
    softmax.add(q, args.keys + shared_head, args.values + shared_head, first, end, stride, D, args.attention.softcap);
  }
  if (lane_index() == 0) shared_largest[warp_index()] = softmax.largest, shared_sums[warp_index()] = softmax.sum;
  REPRISE_UNROLL
  for (uint32_t c = 0; c < kColumns; ++c)
    shared_y[warp_index() * kAttentionMaxHead + c * kWarpLanes + lane_index()] = softmax.y[c];
  __syncthreads();
  float largest = kMinusInfinity, sum = 0, y = 0;
  for (uint32_t w = 0; w < kWarps; ++w) largest = shared_largest[w] > largest ? shared_largest[w] : largest;
  for (uint32_t w = 0; w < kWarps && begin + w * kAtOnce < end; ++w) {
    const float share = device_exp(shared_largest[w] - largest);
    sum = fmaf(share, shared_sums[w], sum);
    y = fmaf(share, shared_y[w * kAttentionMaxHead + d], y);
  }
  if (d < D) out[d] = y / sum;
}

}  // namespace

template <typename Stored>
Status cuda_attention_decode(const KernelContext& context, const AttentionDecodeArgsOf<Stored>& args) {
  const uint64_t of_row = uint64_t{args.C / args.attention.heads} * args.attention.kv_heads;
  REPRISE_LAUNCH(append_rows<Stored>, blocks_for(args.P * of_row), kBlockThreads, context.queue, args, context.scalars,
                 context.row);
  REPRISE_LAUNCH(decode_head<Stored>, args.P * args.attention.heads, kBlockThreads, context.queue, args);
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_attention_decode, AttentionDecodeArgs)

}  // namespace reprise
