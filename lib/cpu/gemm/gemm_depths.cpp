// The product C[M,N] (+)= A[K,M]^T B[K,N] of two row-major operands: the gradient of weights. Both
// operands are depth-major, so a tile reads both in place. The loop nest of gemm.h packs B, which
// would only copy it.
//
//   for k, a piece of fixed depth at a time
//     for columns j of C, CpuBlocking::depth_columns    B's rows [k, j] stay in L2 ...
//       for rows i of C, a tile at a time               ... while A's columns [k, i] are read once;
//         for tiles along j                                 the blocking may pack them first
//
// Sums over depths are divided into the same pieces as in gemm.h, so that the bits are equal.
#include "lib/cpu/gemm/gemm.h"

namespace reprise {
namespace {

using namespace gemm_detail;

// Minimum columns of a tile for which B is read in place: two cache lines for each depth. With
// fewer columns, half of a tile's prefetches may be for another tile.
constexpr uint32_t kLyingColumns = 32;

// Columns [j0, j_end) and depths [k0, k0 + kc) of a product.
struct DepthBlock {
  const float *a, *b;  // [K, M], [K, N]
  float* c;            // [M, N]
  uint64_t M, N;
  uint64_t j0 = 0, j_end = 0, k0 = 0;
  uint32_t kc = 0;
  bool add = false;

  bool is_last_of_piece() const { return j_end == N; }
  // Returns the distance, in floats, from this block of B to the next block: its right neighbour,
  // or the first block of the next piece of depths.
  int64_t b_ahead() const { return static_cast<int64_t>(is_last_of_piece() ? kc * N - j0 : j_end - j0); }
};

// Computes rows [i, i + rows) of C. The first row panel prefetches B's next block. Each row panel
// prefetches its next piece of A while it uses its current piece for the last time.
void run_depth_panel(const TileGeometry& g, const DepthBlock& block, uint64_t i, uint32_t rows, uint64_t j,
                     uint64_t j_end) {
  REPRISE_STACK_BUFFER(float, packed, uint64_t{block.kc} * g.blocks.tile);
  const int64_t M = static_cast<int64_t>(block.M), N = static_cast<int64_t>(block.N);
  DepthOperand a{block.a + block.k0 * block.M + i, M, block.is_last_of_piece() ? block.kc * M : 0};
  if (j_end - j >= g.blocking.pack_depths_from) {
    pack_depths(g.level, packed, rows, rows, a.data, a.step, block.kc);
    a = {packed, rows, 0};
  }
  const MatrixOutput output{block.c, N};
  for (; j < j_end; j += g.columns, a.ahead = 0) {
    const DepthOperand b{block.b + block.k0 * block.N + j, N, i == 0 ? block.b_ahead() : 0};
    put_tile(g, rows, block.add, output, {i, j, rows, g.columns, nullptr}, [&](float beta, float* c, int64_t stride) {
      g.tile.run_depths(rows, block.kc, a, b, beta, c, stride);
    });
  }
}

// Computes row panels [panel, panel_end) of C, columns [j, j_end).
void run_depth_panels(const TileGeometry& g, const DepthBlock& block, uint64_t panel, uint64_t panel_end, uint64_t j,
                      uint64_t j_end) {
  for (; panel < panel_end; ++panel) {
    const uint64_t i = panel * g.rows;
    run_depth_panel(g, block, i, static_cast<uint32_t>(smaller(g.rows, block.M - i)), j, j_end);
  }
}

// Calls use(block) for the blocks of a product of depth K, in order.
template <typename Use>
void for_each_depth_block(const TileGeometry& g, DepthBlock block, uint64_t K, bool accumulate, const Use& use) {
  const Partition depths = depth_pieces(K, 1, g.blocks.depth),
                  columns{block.N, g.blocking.depth_columns / g.columns * g.columns};
  for (uint32_t d = 0; d < depths.count(); ++d) {
    block.k0 = depths.begin(d), block.kc = static_cast<uint32_t>(depths.end(d) - depths.begin(d));
    block.add = accumulate || d > 0;
    for (uint32_t n = 0; n < columns.count(); ++n) {
      block.j0 = columns.begin(n), block.j_end = columns.end(n);
      use(block);
    }
  }
}

}  // namespace

void multiply_columns(const KernelContext& context, const GemmShape& shape, const float* a, const float* b, float* c,
                      bool accumulate, void* scratch) {
  const int64_t M = static_cast<int64_t>(shape.M), N = static_cast<int64_t>(shape.N);
  const TileGeometry g(context);
  const CpuSize size = cpu_machine(context).size;
  const uint32_t splits = gemm_splits(shape.M, shape.N, shape.K, size);
  const bool adds_area = accumulate && splits == 1 && shape.K > g.blocks.depth;  // gemm_split() computes such a sum
  if (adds_area || g.tile.run_depths == nullptr || g.columns < kLyingColumns || shape.M % g.tile.row_step != 0 ||
      shape.N % g.columns != 0) {
    return gemm_split(context, shape, MatrixPacker{a, 1, M}, MatrixPacker{b, 1, N}, c, accumulate, scratch);
  }
  const DepthBlock whole{.a = a, .b = b, .c = c, .M = shape.M, .N = shape.N};
  const Workers& workers = *context.workers;
  if (splits == 1) {
    return for_each_depth_block(g, whole, shape.K, accumulate, [&](const DepthBlock& block) {
      for_each_tile_task(workers, g, shape.M, block.j_end - block.j0,
                         [&](uint64_t panel, uint64_t panel_end, uint64_t j, uint64_t j_end) {
                           run_depth_panels(g, block, panel, panel_end, block.j0 + j, block.j0 + j_end);
                         });
    });
  }
  // If there were one task for each of few parts, workers would wait for the last part. So a task
  // computes only some rows of a part. Such parts have few depths, so B is still in a cache when
  // the next task reads it.
  const Partition panels =
      split_at_most(divide_up(shape.M, g.rows), splits < g.blocks.splits ? divide_up(kFewPanels, splits) : 1, 1);
  parallel_for(workers, splits * panels.count(), [&](uint32_t task) {
    const SplitPart part(shape, 1, scratch, task / panels.count(), size);
    const uint32_t p = task % panels.count();
    DepthBlock own = whole;
    own.a += part.k0 * shape.M, own.b += part.k0 * shape.N, own.c = part.partial;
    for_each_depth_block(g, own, part.depths, false, [&](const DepthBlock& block) {
      run_depth_panels(g, block, panels.begin(p), panels.end(p), block.j0, block.j_end);
    });
  });
  add_partials(workers, c, shape.M * shape.N, static_cast<float*>(scratch),
               gemm_split_part_floats(shape.M, shape.N, shape.K, size), splits, accumulate);
}

}  // namespace reprise
