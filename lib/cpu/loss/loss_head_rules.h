// How the loss head splits its rows into chunks, and the scratch of a chunk. Planner, checker and
// kernel share these definitions.
#pragma once

#include "lib/backend_rules.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {

// Returns the maximum rows of a chunk. Only one chunk's logits exist at a time: at most about 72
// MiB, or 128 rows if these take more. The maximum is at least 128 rows, because each chunk reads
// and writes all of dW and reads all of w twice. With few classes dW and w are small, so about V
// rows are enough. All chunks have about equal height, because a short last chunk would cost as
// much as a full one.
constexpr uint64_t loss_head_chunk_rows(uint64_t M, uint64_t V) {
  const uint64_t maximum = larger(128, smaller(smaller(1024, larger(256, V)), (uint64_t{18} << 20) / larger(V, 1)));
  return divide_up(M, larger(1, divide_up(M, maximum)));
}

// A chunk's logits are stored class by class, with one column for each row of the chunk. Softmax
// processes blocks of classes of about 128 KiB, which stay in L2 from one pass to the next.
constexpr uint64_t kLossHeadLine = 16;  // floats; rows are padded to whole vectors
constexpr uint64_t kLossHeadBlockFloats = 32768;
constexpr Partition loss_head_blocks(uint64_t V, uint64_t stride) {
  return {V, larger(1, kLossHeadBlockFloats / stride)};
}

// True if dx is computed transposed. A product packs its right operand in memory, so the right
// operand should be the smaller one. The right operand of dx [rows, C] = dlogits^T w is w; the
// right operand of dx^T = w^T dlogits is dlogits. dlogits is smaller if there are fewer rows than
// channels.
constexpr bool loss_head_transposes_dx(uint64_t rows, uint64_t C) { return rows < C; }

// [ logits V x stride | per block of classes, one line each: largest logits, their classes, sums
// | double per row: its loss | u32 per row: its index, and whether its prediction is right
// | dx C x stride if transposed, rows x C if it is bf16 | packed blocks ]
struct LossHeadScratch {
  uint64_t rows, stride, largest_at, classes_at, sums_at, losses_at, rows_at, dx_at, gemm_at, bytes;
};
constexpr LossHeadScratch loss_head_scratch(uint64_t M, uint64_t C, uint64_t V, bool backward, DType stored) {
  LossHeadScratch s{};
  s.rows = loss_head_chunk_rows(M, V);
  s.stride = divide_up(s.rows, kLossHeadLine) * kLossHeadLine;
  const uint64_t line = 4 * s.stride, blocks = align_up(loss_head_blocks(V, s.stride).count() * line);
  s.largest_at = align_up(V * line);
  s.classes_at = s.largest_at + blocks;
  s.sums_at = s.classes_at + blocks;
  s.losses_at = s.sums_at + blocks;
  s.rows_at = s.losses_at + align_up(8 * s.rows);
  s.dx_at = s.rows_at + align_up(4 * s.rows);
  const bool turns = loss_head_transposes_dx(s.rows, C);
  s.gemm_at = s.dx_at + (!backward                ? 0
                         : turns                  ? align_up(C * line)
                         : stored == DType::kBf16 ? align_up(4 * s.rows * C)
                                                  : 0);
  const uint64_t forward = gemm_scratch_bytes_up_to(s.rows, C);
  const uint64_t data = !backward ? 0
                        : turns   ? gemm_scratch_bytes_up_to(s.rows, V)
                                  : gemm_scratch_bytes(C, V, DType::kF32);
  const uint64_t weight = backward ? gemm_split_scratch_bytes(V, C, s.rows) : 0;
  s.bytes = s.gemm_at + larger(forward, larger(data, weight));
  return s;
}

// Returns the stack bytes of the largest of the loss head's products: logits (depth C), gradients
// of w (depth rows) and of x (depth V). All their outputs are f32.
constexpr uint64_t loss_head_stack_bytes(const Tensor& x, const Tensor& w, bool backward) {
  const uint64_t C = x.last_dimension(), V = w.shape[0], rows = loss_head_chunk_rows(x.leading_elements(), V);
  const uint64_t depth = backward ? larger(C, larger(V, rows)) : C;
  constexpr uint64_t kOwnFrameBytes = 512;
  return kOwnFrameBytes +
         product_stack_bytes(larger(rows, C), depth, {.lines = x.dtype != DType::kF32 || w.dtype != DType::kF32});
}

constexpr void add_loss_head_rules(BackendRules& rules) {
  rules.of<LossHeadBackward>().scratch_bytes = [](const ShapedCall& c) {
    using A = LossHeadBackward;
    return loss_head_scratch(c[A::kX].leading_elements(), c[A::kX].last_dimension(), c[A::kW].shape[0], true,
                             c[A::kX].dtype)
        .bytes;
  };
  const auto read_only = [&rules]<typename A>(const A*) {
    rules.of<A>().scratch_bytes = [](const ShapedCall& c) {
      return loss_head_scratch(c[A::kX].leading_elements(), c[A::kX].last_dimension(), c[A::kW].shape[0], false,
                               c[A::kX].dtype)
          .bytes;
    };
    rules.of<A>().stack_bytes = [](const ShapedCall& c) { return loss_head_stack_bytes(c[A::kX], c[A::kW], false); };
  };
  read_only(static_cast<const LossHeadForward*>(nullptr));
  read_only(static_cast<const LossHeadEvaluate*>(nullptr));
  rules.of<LossHeadBackward>().stack_bytes = [](const ShapedCall& c) {
    using A = LossHeadBackward;
    return loss_head_stack_bytes(c[A::kX], c[A::kW], true);
  };
  rules.of<LossHeadBackward>().weights = rules.of<LossHeadForward>().weights = rules.of<LossHeadEvaluate>().weights =
      kEveryWeight;
}

}  // namespace reprise
