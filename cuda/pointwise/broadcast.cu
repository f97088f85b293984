// Products and sums of two activations, the second of which may be broadcast, and their gradients.
// The counterpart of lib/cpu/pointwise/broadcast.cpp. Memory bounds the time of all kernels. A
// thread reads 16 bytes at a time if rows are whole packs. In sums, neighbouring threads read
// neighbouring columns.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "cuda/pointwise/broadcast_rules.h"

namespace reprise {
namespace {

struct Multiply {
  __device__ static float of(float a, float b) { return a * b; }
};
struct Add {
  __device__ static float of(float a, float b) { return a + b; }
};

template <typename Map, uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) map_broadcast(const BroadcastArgsOf<Stored> args) {
  const Broadcast s = args.shape;
  const uint64_t n = s.elements();
  for (uint64_t i = grid_thread() * kWidth; i < n; i += grid_threads() * kWidth) {
    const uint64_t row = i / s.columns;
    const uint64_t at = s.segment_of(row / s.rows) * s.columns + i % s.columns;
    Pack<kWidth> a = load_pack<kWidth>(args.a + i);
    const Pack<kWidth> b = load_pack<kWidth>(args.b + at);
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) a.at[k] = Map::of(a.at[k], b.at[k]);
    store_pack(args.y + i, a);
  }
}

template <typename Map, typename Stored>
Status launch_map(const KernelContext& context, const BroadcastArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const bool wide = args.shape.columns % kWide == 0;
  const auto kernel = wide ? map_broadcast<Map, kWide, Stored> : map_broadcast<Map, 1, Stored>;
  REPRISE_LAUNCH(kernel, blocks_for(args.shape.elements() / (wide ? kWide : 1)), kBlockThreads, context.queue, args);
  return launch_status();
}

// ---- the gradient of b ----

template <typename Stored>
__device__ void store_sum(const BroadcastSumArgsOf<Stored>& args, uint64_t element, double sum) {
  const float rounded = static_cast<float>(sum);
  args.db[element] = args.accumulate_db ? float{args.db[element]} + rounded : rounded;
}

// Returns the sum that one thread computes, over every `lanes`-th use of a column in [use, end). A
// use is an element of y to which the column's element of b was broadcast. Up to kInFloat terms are
// added in f32; the results are added in f64.
template <bool kProducts, typename Stored>
__device__ double sum_uses(const BroadcastSumArgsOf<Stored>& args, uint64_t segment, uint64_t column, uint64_t use,
                           uint64_t end, uint32_t lanes) {
  constexpr uint32_t kInFloat = 16;
  const Broadcast& s = args.shape;
  double sum = 0;
  while (use < end) {
    float part = 0;
    for (uint32_t k = 0; k < kInFloat && use < end; ++k, use += lanes) {
      const uint64_t at = (s.run_of(segment, use / s.rows) * s.rows + use % s.rows) * s.columns + column;
      if constexpr (kProducts) {
        part = fmaf(args.dy[at], args.a[at], part);
      } else {
        part += float{args.dy[at]};
      }
    }
    sum += static_cast<double>(part);
  }
  return sum;
}

// Sums over uses. Block (x, y) processes tile x of the columns, in units y, y + gridDim.y, ...; a
// unit is one chunk of the uses of one segment. Neighbouring threads process neighbouring columns,
// and the block processes `lanes` uses at once. The lanes' sums are added in the order of the
// lanes.
template <bool kProducts, typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    sum_broadcast(const BroadcastSumArgsOf<Stored> args, double* partials, const CudaRowChunks chunks) {
  REPRISE_SHARED(double, shared, kBlockThreads);
  const Broadcast& s = args.shape;
  const uint64_t elements = s.segments() * s.columns, first = uint64_t{blockIdx.x} * kCudaBroadcastColumns;
  const uint32_t columns = static_cast<uint32_t>(minimum(s.columns - first, kCudaBroadcastColumns)),
                 lanes = kBlockThreads / columns;
  const uint32_t column = threadIdx.x % columns, lane = threadIdx.x / columns;
  for (uint64_t unit = blockIdx.y; unit < s.segments() * chunks.count(); unit += gridDim.y) {
    const uint64_t segment = unit % s.segments();
    const uint32_t chunk = static_cast<uint32_t>(unit / s.segments());
    double sum = 0;
    if (lane < lanes)
      sum = sum_uses<kProducts>(args, segment, first + column, chunks.begin(chunk) + lane, chunks.end(chunk), lanes);
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < columns) {
      double total = 0;
      for (uint32_t l = 0; l < lanes; ++l) total += shared[l * columns + column];
      const uint64_t element = segment * s.columns + first + column;
      if (partials == nullptr) {
        store_sum(args, element, total);
      } else {
        partials[chunk * elements + element] = total;
      }
    }
    __syncthreads();  // the next unit overwrites `shared`
  }
}

// Computes db: adds the sums of all chunks, in the order of the chunks.
template <typename Stored>
__global__ void __launch_bounds__(kBlockThreads)
    add_broadcast_chunks(const BroadcastSumArgsOf<Stored> args, const double* partials, uint32_t chunks) {
  const uint64_t elements = args.shape.segments() * args.shape.columns;
  for (uint64_t i = grid_thread(); i < elements; i += grid_threads()) {
    double sum = 0;
    for (uint32_t k = 0; k < chunks; ++k) sum += partials[k * elements + i];
    store_sum(args, i, sum);
  }
}

}  // namespace

template <typename Stored>
Status cuda_multiply(const KernelContext& context, const BroadcastArgsOf<Stored>& args) {
  return launch_map<Multiply>(context, args);
}

template <typename Stored>
Status cuda_broadcast_add(const KernelContext& context, const BroadcastArgsOf<Stored>& args) {
  return launch_map<Add>(context, args);
}

template <typename Stored>
Status cuda_broadcast_sum(const KernelContext& context, const BroadcastSumArgsOf<Stored>& args) {
  constexpr uint64_t kMaxInY = 65535;
  const Broadcast& s = args.shape;
  const CudaRowChunks chunks = cuda_broadcast_chunks(s);
  double* partials = chunks.count() == 1 ? nullptr : static_cast<double*>(args.scratch);
  const dim3 grid = grid_of(cuda_broadcast_tiles(s), minimum(s.segments() * chunks.count(), kMaxInY));
  const auto kernel = args.a != nullptr ? sum_broadcast<true, Stored> : sum_broadcast<false, Stored>;
  REPRISE_LAUNCH(kernel, grid, kBlockThreads, context.queue, args, partials, chunks);
  if (partials == nullptr) return launch_status();
  REPRISE_LAUNCH(add_broadcast_chunks<Stored>, blocks_for(s.segments() * s.columns), kBlockThreads, context.queue, args,
                 partials, chunks.count());
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_multiply, BroadcastArgs)
REPRISE_CUDA_INSTANTIATE(cuda_broadcast_add, BroadcastArgs)
REPRISE_CUDA_INSTANTIATE(cuda_broadcast_sum, BroadcastSumArgs)

}  // namespace reprise
