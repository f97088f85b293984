// Products of two activations, matrix by matrix. The counterpart of lib/cpu/gemm/product.cpp. One
// launch computes all matrices as the parts of one product's depth (tile_product.h); each part has
// sums of its own. Part b reads depths [b K, (b + 1) K), which are the depths of matrix b.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/tile_product.h"
#include "cuda/gemm/tile_source.h"

namespace reprise {
namespace {

constexpr uint64_t kMaxParts = 65535;  // maximum size of a grid in y

template <typename A, typename B, typename Stored>
void launch_matrices(const KernelContext& context, const A& a, const B& b, const ProductArgsOf<Stored>& args,
                     uint64_t first, uint64_t count) {
  const uint64_t M = args.M, N = args.N;
  const TileOutput<Stored> to{args.c + first * M * N, {N}, nullptr, args.accumulate_c, N % 4 == 0, M * N};
  launch_product(context, TileProduct<A, B, TileOutput<Stored>>{a, b, to, {M, N, count * args.K}, args.K, nullptr},
                 static_cast<uint32_t>(count));
}

// Launches the products with b in either layout. Matrices [depth][index] need no stride from one
// matrix to the next, because the depths of the next matrix directly follow.
template <typename A, typename Stored>
void launch_with(const KernelContext& context, const A& a, const ProductArgsOf<Stored>& args, uint64_t first,
                 uint64_t count) {
  const Stored* b = args.b + first * args.K * args.N;
  if (args.transposed_b)
    return launch_matrices(context, a, MatrixRowsSource<Stored>{b, args.N, args.K}, args, first, count);
  launch_matrices(context, a, MatrixDepthsSource<Stored>{{b, args.N, args.N}}, args, first, count);
}

}  // namespace

template <typename Stored>
Status cuda_product_forward(const KernelContext& context, const ProductArgsOf<Stored>& args) {
  for (uint64_t first = 0; first < args.B; first += kMaxParts) {
    const uint64_t count = minimum(kMaxParts, args.B - first);
    const Stored* a = args.a + first * args.M * args.K;
    if (args.transposed_a) {
      launch_with(context, ColumnsSource<Stored>{a, args.M, args.M}, args, first, count);
    } else {
      launch_with(context, MatrixRowsSource<Stored>{a, args.M, args.K}, args, first, count);
    }
  }
  return launch_status();
}

REPRISE_CUDA_INSTANTIATE(cuda_product_forward, ProductArgs)

}  // namespace reprise
