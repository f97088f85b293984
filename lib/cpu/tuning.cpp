// Implements tuning.h: times a few products and convolutions with each candidate of each number.
#include "lib/cpu/tuning.h"

#include "lib/cpu/conv/conv_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/gemm/gemm_scratch.h"

namespace reprise {
namespace {

// ---- the trials: linear layers in f32 and bf16, a weight's gradient, two 3x3 convolutions ----

constexpr uint32_t kMaxRows = 512, kMinRows = 96, kInputs = 768, kOutputs = 1024;
// Returns a 3x3 convolution of an image whose height is rows / 8, so that its time grows with
// `rows`.
constexpr ConvShape square_conv(uint32_t channels, uint32_t width, uint32_t rows) {
  const uint32_t height = rows / 8;
  return {.N = 1,
          .H = height,
          .W = width,
          .C = channels,
          .P = height,
          .Q = width,
          .K = channels,
          .window = {.kernel_h = 3, .kernel_w = 3, .stride_h = 1, .pad_top = 1}};
}
constexpr ConvShape wide_conv(uint32_t rows) { return square_conv(128, 56, rows); }
constexpr ConvShape narrow_conv(uint32_t rows) { return square_conv(32, 32, rows); }
constexpr uint64_t kConvFloats = uint64_t{wide_conv(kMaxRows).H} * wide_conv(kMaxRows).W * wide_conv(kMaxRows).C;

struct Operands {
  float *x, *w, *y;
  void* scratch;
};
constexpr uint64_t kXFloats = larger(uint64_t{kMaxRows} * kInputs, kConvFloats),
                   kWFloats = uint64_t{kInputs} * kOutputs;
constexpr uint64_t kYFloats = larger(uint64_t{kMaxRows} * kOutputs, kConvFloats);
constexpr uint64_t kScratchBytes =
    larger(larger(gemm_scratch_bytes(kOutputs, kInputs), gemm_split_scratch_bytes(kOutputs, kInputs, kMaxRows)),
           conv_forward_scratch(wide_conv(kMaxRows), DType::kF32, DType::kF32, false).bytes);
static_assert(4 * (kXFloats + kWFloats + kYFloats) + kScratchBytes <= kTuningBytes);

using Trial = Status (*)(const KernelContext& context, const Operands& o, uint32_t rows);

Status multiply_rows(const KernelContext& context, const Operands& o, uint32_t rows) {
  return cpu_linear_forward<float>(context, {.y = o.y,
                                             .x = o.x,
                                             .w = o.w,
                                             .b = nullptr,
                                             .h = nullptr,
                                             .u = {},
                                             .scratch = o.scratch,
                                             .scratch_bytes = kScratchBytes,
                                             .M = rows,
                                             .C = kInputs,
                                             .K = kOutputs,
                                             .R = 0,
                                             .input_major = false,
                                             .scale = 1});
}

Status multiply_depths(const KernelContext& context, const Operands& o, uint32_t rows) {
  return cpu_linear_backward_weight<float>(context, {.dw = o.w,
                                                     .x = o.x,
                                                     .dy = o.y,
                                                     .scratch = o.scratch,
                                                     .scratch_bytes = kScratchBytes,
                                                     .M = rows,
                                                     .C = kInputs,
                                                     .K = kOutputs,
                                                     .input_major = false,
                                                     .accumulate_dw = false});
}

// Multiplies bf16 activations by weights whose rows are packed as pairs along the depth.
Status multiply_pairs_of_rows(const KernelContext& context, const Operands& o, uint32_t rows) {
  return cpu_linear_forward<Bf16>(context, {.y = reinterpret_cast<Bf16*>(o.y),
                                            .x = reinterpret_cast<const Bf16*>(o.x),
                                            .w = o.w,
                                            .b = nullptr,
                                            .h = nullptr,
                                            .u = {},
                                            .scratch = o.scratch,
                                            .scratch_bytes = kScratchBytes,
                                            .M = rows,
                                            .C = kInputs,
                                            .K = kOutputs,
                                            .R = 0,
                                            .input_major = true,
                                            .scale = 1});
}

Status convolve_wide(const KernelContext& context, const Operands& o, uint32_t rows) {
  return cpu_conv_forward<float>(context,
                                 {o.y, o.x, o.w, o.scratch, kScratchBytes, wide_conv(rows), {}, nullptr, nullptr});
}

Status convolve_narrow(const KernelContext& context, const Operands& o, uint32_t rows) {
  return cpu_conv_forward<float>(context,
                                 {o.y, o.x, o.w, o.scratch, kScratchBytes, narrow_conv(rows), {}, nullptr, nullptr});
}

// Fills the operands with whole numbers from -3 to 3, and returns their addresses. If the operands
// are read as bf16, their numbers are equally small. So all sums take equally long, and none
// overflows.
Operands lay_out(void* memory) {
  float* floats = static_cast<float*>(memory);
  for (uint64_t i = 0; i < kXFloats + kWFloats + kYFloats; ++i)
    floats[i] = static_cast<float>(static_cast<int64_t>(i % 7) - 3);
  return {floats, floats + kXFloats, floats + kXFloats + kWFloats, floats + kXFloats + kWFloats + kYFloats};
}

// ---- the choices ----

// A field of the blocking and its candidate values. A Question tries every pair of values of its
// two fields; if `second` has no values, only `first` varies.
struct Choice {
  uint32_t CpuBlocking::*field;
  const uint32_t* values;
  uint32_t count;
};
struct Question {
  Trial trial;
  Choice first, second;
  double share;           // part of TuningClock::at_most that this question may use
  bool of_pairs = false;  // true if the trial multiplies pairs; skipped if the machine has no tile for pairs
};

constexpr uint32_t kColumns[] = {256, 384, 512, 768, 1024}, kPacksOrNot[] = {192, ~0u},
                   kTasks[] = {16, 32, 64, 128, 256};
constexpr uint32_t kWinogradFloats[] = {4096, 8192, 16384, 32768}, kWinogradBlocks[] = {64, 128},
                   kWinogradGroups[] = {12, 32};
constexpr uint32_t kDirectFloats[] = {2048, 4096, 6144}, kFloatsAhead[] = {0, 16, 64, 128},
                   kRowsAhead[] = {0, 4, 8, 32};
template <uint32_t kCount>
constexpr Choice among(uint32_t CpuBlocking::*field, const uint32_t (&values)[kCount]) {
  return {field, values, kCount};
}
constexpr Question kQuestions[] = {
    {multiply_rows, among(&CpuBlocking::columns, kColumns), among(&CpuBlocking::pack_from, kPacksOrNot), 0.3},
    {multiply_depths, among(&CpuBlocking::depth_columns, kColumns), among(&CpuBlocking::pack_depths_from, kPacksOrNot),
     0.3},
    {multiply_rows, among(&CpuBlocking::product_tasks, kTasks), {}, 0.1},
    {multiply_rows, among(&CpuBlocking::floats_ahead, kFloatsAhead), {}, 0.06},
    {multiply_pairs_of_rows, among(&CpuBlocking::rows_ahead, kRowsAhead), {}, 0.06, true},
    {convolve_wide, among(&CpuBlocking::winograd_floats, kWinogradFloats),
     among(&CpuBlocking::winograd_block, kWinogradBlocks), 0.1},
    {convolve_wide, among(&CpuBlocking::winograd_tiles, kWinogradGroups), {}, 0.04},
    {convolve_narrow, among(&CpuBlocking::direct_floats, kDirectFloats), {}, 0.04},
};
constexpr uint32_t kMaxCandidates = 12;

// Scratch is planned for these maxima.
static_assert(kBlockingFields[0].maximum == kLargeBlocks.columns && kBlockingFields[3].maximum == kLargeBlocks.columns);
static_assert(kBlockingFields[5].maximum == kWinogradSpan && kBlockingFields[6].maximum == kWinogradBlock &&
              kBlockingFields[7].maximum == kMaxMr);
static_assert(kBlockingFields[6].minimum >= kMaxNr && kBlockingFields[8].maximum == kDirectBufferFloats);

class Measurement {
 public:
  Measurement(const CpuMachine& machine, const Workers& workers, const TuningClock& clock, const Operands& operands)
      : machine_(machine), workers_(workers), clock_(clock), operands_(operands) {}

  // Measures one question, and adopts its fastest candidate. The first candidate is the current
  // blocking. Another candidate may look fast by chance, so it must win again, in a measurement
  // against the current blocking alone.
  void answer(const Question& question) {
    CpuBlocking candidates[kMaxCandidates] = {machine_.blocking};
    double best[kMaxCandidates];
    const uint32_t count = list(question, candidates);
    const double start = clock_.seconds(), half = question.share * clock_.at_most / 2;
    const uint32_t rows = find_rows(question, count, start + half);
    if (rows == 0) return;
    take_turns(question, candidates, count, rows, start + half, best);
    uint32_t fastest = 0;
    for (uint32_t i = 1; i < count; ++i) {
      if (best[i] < best[fastest]) fastest = i;
    }
    if (!(best[fastest] < kGain * best[0])) return;
    const CpuBlocking two[] = {candidates[0], candidates[fastest]};
    take_turns(question, two, 2, rows, start + 2 * half, best);
    if (best[1] < kGain * best[0]) machine_.blocking = two[1];
  }

  const CpuBlocking& blocking() const { return machine_.blocking; }

 private:
  static constexpr double kForever = 1e30, kGain = 0.97;
  static constexpr uint32_t kRounds = 16;

  static constexpr double smaller_of(double a, double b) { return a < b ? a : b; }

  // Finds the best time of each candidate. Candidates take turns, so that a disturbance of the
  // machine affects all of them.
  void take_turns(const Question& question, const CpuBlocking* candidates, uint32_t count, uint32_t rows, double end,
                  double* best) {
    for (uint32_t i = 0; i < count; ++i) best[i] = kForever;
    double now = clock_.seconds(), last_round = 0;
    for (uint32_t round = 0; round < kRounds && now + last_round < end; ++round) {
      for (uint32_t i = 0; i < count; ++i) best[i] = smaller_of(best[i], seconds(question, candidates[i], rows));
      last_round = clock_.seconds() - now, now += last_round;
    }
  }

  // Writes the question's other candidates after candidates[0]. Returns the number of all
  // candidates.
  static uint32_t list(const Question& question, CpuBlocking* candidates) {
    uint32_t count = 1;
    for (uint32_t i = 0; i < question.first.count; ++i) {
      for (uint32_t j = 0; j < larger(1, question.second.count); ++j) {
        CpuBlocking& candidate = candidates[count++] = candidates[0];
        candidate.*question.first.field = question.first.values[i];
        if (question.second.count > 0) candidate.*question.second.field = question.second.values[j];
      }
    }
    return count;
  }

  // Returns the rows with which each candidate can be timed twice before `end`; 0 if even kMinRows
  // takes too long. The first call only warms the caches, and its time is not used. On a slow
  // machine that call alone may last beyond `end`.
  uint32_t find_rows(const Question& question, uint32_t count, double end) {
    (void)seconds(question, machine_.blocking, kMinRows);
    if (!(clock_.seconds() < end)) return 0;
    const double minimum = seconds(question, machine_.blocking, kMinRows),
                 each = (end - clock_.seconds()) / (2 * count);
    if (!(minimum < each)) return 0;
    const double rows = kMinRows * (each / minimum);
    return rows >= kMaxRows ? kMaxRows : static_cast<uint32_t>(rows) / kMinRows * kMinRows;
  }

  double seconds(const Question& question, const CpuBlocking& blocking, uint32_t rows) {
    CpuMachine machine = machine_;
    machine.blocking = blocking;
    const double start = clock_.seconds();
    const Status status = question.trial({.workers = &workers_, .machine = &machine}, operands_, rows);
    return status.ok() ? clock_.seconds() - start : kForever;
  }

  CpuMachine machine_;
  const Workers& workers_;
  const TuningClock& clock_;
  const Operands& operands_;
};

}  // namespace

CpuBlocking measure_blocking(const CpuMachine& machine, const Workers& workers, const TuningClock& clock,
                             void* memory) {
  if (machine.size == CpuSize::kSmall) return machine.blocking;
  const Operands operands = lay_out(memory);
  Measurement measurement(machine, workers, clock, operands);
  for (const Question& question : kQuestions) {
    if (!question.of_pairs || machine.pairs != nullptr) measurement.answer(question);
  }
  return measurement.blocking();
}

}  // namespace reprise
