// Products of two activations, matrix by matrix. In attention by heads and windows the matrices are
// many and small, so each worker computes a run of them. If there are few matrices, each product is
// split over the workers instead.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/gemm.h"
#include "lib/cpu/gemm/product_rules.h"

namespace reprise {
namespace {

// Computes matrices [begin, end) in order.
template <typename Stored>
void multiply_run(const KernelContext& context, const ProductArgsOf<Stored>& args, uint64_t begin, uint64_t end,
                  void* scratch) {
  const uint64_t M = args.M, N = args.N, K = args.K;
  for (uint64_t i = begin; i < end; ++i) {
    const Stored *a = args.a + i * M * K, *b = args.b + i * K * N;
    const MatrixPackerOf<Stored> rows{a, args.transposed_a ? 1 : static_cast<int64_t>(K),
                                      args.transposed_a ? static_cast<int64_t>(M) : 1};
    const MatrixPackerOf<Stored> columns{b, args.transposed_b ? static_cast<int64_t>(K) : 1,
                                         args.transposed_b ? 1 : static_cast<int64_t>(N)};
    gemm(context, {M, N, K}, rows, columns, MatrixOutputOf<Stored>{args.c + i * M * N, static_cast<int64_t>(N)},
         args.accumulate_c, scratch);
  }
}

}  // namespace

template <typename Stored>
Status cpu_product_forward(const KernelContext& context, const ProductArgsOf<Stored>& args) {
  const uint64_t runs = product_runs(args.B),
                 run_bytes = product_run_bytes(args.N, args.K, kStoredAs<Stored>, cpu_machine(context).size);
  if (args.scratch_bytes < runs * run_bytes)
    return {Code::kBadPlan, "a product's scratch must have the bytes of its scratch rule", 0};
  if (runs == 1) {
    multiply_run(context, args, 0, args.B, args.scratch);
    return ok_status();
  }
  parallel_for(*context.workers, static_cast<uint32_t>(runs), [&](uint32_t run) {
    const Workers alone = {.stack_bytes = context.workers->stack_bytes};
    KernelContext own = context;
    own.workers = &alone;
    multiply_run(own, args, args.B * run / runs, args.B * (run + 1) / runs,
                 static_cast<unsigned char*>(args.scratch) + run * run_bytes);
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_product_forward, ProductArgs)

}  // namespace reprise
