// Dropout: y = x / (1 - p) if the element's draw is at or above the threshold, else 0. Its backward
// is the same function. No mask is stored: it is a function of a counter (rng.h), so recomputation
// and backward draw it again.
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/cpu/pointwise/random_mask.h"
#include "lib/rng.h"

namespace reprise {
namespace {

// Computes elements [begin, end). `begin` must be a multiple of 4.
template <int kLanes, typename Stored>
REPRISE_INLINE void dropout_body(const DropoutArgsOf<Stored>& args, uint64_t begin, uint64_t end) {
  const uint32_t threshold = dropout_threshold(args.dropout.probability);
  const float scale = 1.0f / (1.0f - args.dropout.probability);
  uint32_t words[kMaskWords];
  for (uint64_t e = begin; e < end; e += kMaskWords) {
    draw_mask_words<kLanes>(words, *args.scalars, args.dropout.stream, e / 4);
    const uint64_t n = smaller(kMaskWords, end - e);
    Stored* y = args.y + e;
    const Stored* x = args.x + e;
    REPRISE_INDEPENDENT
    for (uint64_t i = 0; i < n; ++i) {
      const float kept = x[i] * scale;  // read unconditionally: a conditional read would become a masked one
      y[i] = words[i] >= threshold ? kept : 0.0f;
    }
  }
}

// Computes elements [begin, end) if each group of args.dropout.shared neighbours has one draw.
template <typename Stored>
REPRISE_INLINE void shared_dropout_body(const DropoutArgsOf<Stored>& args, uint64_t begin, uint64_t end) {
  const StepScalars& s = *args.scalars;
  const uint64_t shared = args.dropout.shared;
  const uint32_t threshold = dropout_threshold(args.dropout.probability);
  const float scale = 1.0f / (1.0f - args.dropout.probability);
  for (uint64_t e = begin; e < end;) {
    const uint64_t draw = e / shared, stop = smaller(end, (draw + 1) * shared);
    const bool kept =
        philox_mask(s.seed, s.step, s.micro_batch, args.dropout.stream, draw / 4).word[draw % 4] >= threshold;
    Stored* y = args.y;
    const Stored* x = args.x;
    REPRISE_INDEPENDENT
    for (uint64_t i = e; i < stop; ++i) {
      const float passed = x[i] * scale;
      y[i] = kept ? passed : 0.0f;
    }
    e = stop;
  }
}

REPRISE_STORAGE_LEVELS(shared_dropout_block, shared_dropout_body,
                       (const DropoutArgsOf<Stored>& args, uint64_t begin, uint64_t end), (args, begin, end))
REPRISE_STORAGE_LEVELS(dropout_block, dropout_body<kLanes>,
                       (const DropoutArgsOf<Stored>& args, uint64_t begin, uint64_t end), (args, begin, end))

}  // namespace

template <typename Stored>
Status cpu_dropout(const KernelContext& context, const DropoutArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  for_each_piece(*context.workers, {args.n, kBlockElements}, [&](uint64_t begin, uint64_t end) {
    (args.dropout.shared == 1 ? dropout_block<Stored> : shared_dropout_block<Stored>)(level, args, begin, end);
  });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_dropout, DropoutArgs)

}  // namespace reprise
