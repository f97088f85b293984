// See kernel_judge.h.
#include "tests/ops/kernel_judge.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <sstream>

#include "cuda/cuda_backend.h"
#include "lib/bf16.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {

namespace {
// Largest relative error of rounding to the nearest bf16, which has 8 significant bits. Numbers
// that are a bf16 are not changed.
constexpr double kBf16Rounding = 0x1p-8;

// Returns the relative error with which output `i` is stored as bf16; 0 if it is not bf16. An
// update rounds State to either neighbour at random (lib/state_format.h), so the error is twice as
// large.
double stored_rounding(const KernelCase& c, uint32_t i) {
  if (element_of(c, i) != Element::kBf16) return 0;
  return c.pass == Pass::kUpdate ? 2 * kBf16Rounding : kBf16Rounding;
}
}  // namespace

std::string difference(const std::string& name, const Expected& expected, const std::vector<double>& got,
                       double stored_rounding, double* worst_error) {
  if (expected.value.size() != got.size()) return name + ": the reference has another size; ";
  // Results below 2^-126, the smallest normal f32, may have an absolute error of up to 2^-126. So
  // this error is added to each tolerance.
  const double factor = ref::kSafety * ref::kRounding * std::sqrt(expected.terms);
  double worst = 0;
  size_t at = got.size();
  for (size_t i = 0; i < got.size(); ++i) {
    const double want = expected.value.flat(i);
    if (got[i] == want) continue;
    double tolerance = factor * expected.magnitude.flat(i) + (expected.terms > 0 ? 0x1p-126 : 0);
    if (expected.rounded.size() != 0) tolerance += ref::kSafety * kBf16Rounding * expected.rounded.flat(i);
    if (expected.terms > 0) tolerance += stored_rounding * (std::abs(want) + tolerance);
    const double error =
        std::isnan(got[i]) ? std::numeric_limits<double>::infinity() : std::abs(got[i] - want) / tolerance;
    if (error > worst) worst = error, at = i;
  }
  if (worst_error != nullptr) *worst_error = std::max(*worst_error, worst);
  if (worst <= 1) return "";
  std::ostringstream out;
  out.precision(9);
  out << name << "[" << at << " of " << got.size() << "] = " << got[at] << ", expected " << expected.value.flat(at)
      << ", " << worst << " times the tolerance; ";
  return out.str();
}

namespace {

std::string status_fault(const Status& status) {
  if (status.ok()) return "";
  return "status " + std::to_string(static_cast<int>(status.code)) + " (" + status.message + ", detail " +
         std::to_string(status.detail) + "); ";
}

std::string scalars_difference(const CaseExpected& expected, const StepScalars& got) {
  std::string out;
  out += difference("scalars.loss_sum", expected.loss_sum, {got.loss_sum});
  out += difference("scalars.weighted_loss", expected.weighted_loss, {got.weighted_loss});
  out += difference("scalars.gradient_norm", expected.gradient_norm, {got.gradient_norm});
  out += difference("scalars.clip_factor", expected.clip_factor, {got.clip_factor});
  for (uint32_t i = 0; i < 2; ++i) out += difference("scalars.rewards", expected.rewards[i], {got.rewards[i]});
  const auto same = [&](const char* name, uint64_t a, uint64_t b) {
    if (a != b)
      out += std::string("scalars.") + name + " = " + std::to_string(b) + ", expected " + std::to_string(a) + "; ";
  };
  same("seed", expected.scalars.seed, got.seed);
  same("step", expected.scalars.step, got.step);
  same("micro_batch", expected.scalars.micro_batch, got.micro_batch);
  same("step_labelled", expected.scalars.step_labelled, got.step_labelled);
  same("skip", expected.scalars.skip, got.skip);
  same("labelled", expected.scalars.labelled, got.labelled);
  same("correct", expected.scalars.correct, got.correct);
  for (uint32_t i = 0; i < 2; ++i) same("judged", expected.scalars.judged[i], got.judged[i]);
  if (got.step_weight != expected.scalars.step_weight)
    out += "scalars.step_weight = " + std::to_string(got.step_weight) + ", expected " +
           std::to_string(expected.scalars.step_weight) + "; ";
  if (got.learning_rate != expected.scalars.learning_rate) out += "scalars.learning_rate changed; ";
  return out;
}

// True if the backend has one of CUDA's two tables of kernels.
bool is_cuda(const Backend& backend) { return std::strncmp(backend.rules->name, "cuda", 4) == 0; }

// Enlarges the tolerance of the result by the fraction `share` of its magnitude.
void leave_tolerance(Expected& result, double share) {
  if (share == 0 || result.magnitude.size() == 0) return;
  const Array space = result.magnitude * (share / (ref::kSafety * kBf16Rounding));
  result.rounded = result.rounded.size() == 0 ? space : Array(result.rounded + space);
}
void leave_tolerance(CaseExpected& want, double share) {
  for (Expected& output : want.outputs) leave_tolerance(output, share);
  leave_tolerance(want.loss_sum, share);
  leave_tolerance(want.weighted_loss, share);
}

// Returns the data after converting by `math` the operands that a card multiplies on tensor cores.
// Returns the data unchanged if the math is f32 or the case has no such operands.
CaseData by_math(ProductMath math, const KernelCase& c, CaseData data) {
  const auto tensor_operands = family_of(c.op).tensor_operands;
  if (math == ProductMath::kF32 || tensor_operands == nullptr) return data;
  const std::optional<std::vector<uint32_t>> operands = tensor_operands(c);
  if (!operands) return data;
  data.multiplier.math = math;
  for (const uint32_t argument : *operands) {
    for (double& element : data.values[argument]) element = as_multiplied(math, element);
  }
  return data;
}

// Returns the data as the backend's kernels multiply them, and notes the multiplying unit in
// `data.multiplier`. Kernels that multiply in bf16 (SPEED 8.6) first round some weights to bf16, so
// the reference reads rounded weights too. The tolerance stays as for f32 sums.
CaseData as_multiplied(const Backend& backend, const KernelCase& c, CaseData data) {
  if (!stores_bf16(c))
    return is_cuda(backend) ? by_math(static_cast<const CudaMachine*>(backend.machine)->math, c, std::move(data))
                            : data;
  const auto rounded_weights = family_of(c.op).rounded_weights;
  if (is_cuda(backend)) {
    data.multiplier.tensor_cores = true;
  } else if (std::strstr(backend.kernel_set, "+bf16") != nullptr) {
    data.multiplier.pairs = static_cast<const CpuMachine*>(backend.machine);
  }
  const auto round = [&](uint32_t argument) {
    for (double& weight : data.values[argument]) weight = Bf16(static_cast<float>(weight));
  };
  for (uint32_t i = 0; rounded_weights != nullptr && data.multiplier.tensor_cores && i < c.arguments.size(); ++i) {
    if (c.info().arguments[i].storage == Storage::kWeight && c.has(i)) round(i);
  }
  if (rounded_weights == nullptr || data.multiplier.pairs == nullptr) return data;
  for (const uint32_t argument : rounded_weights(c, *data.multiplier.pairs)) round(argument);
  return data;
}

Array stored_output(const KernelCase& c, const CaseRunResult& result, uint32_t i) {
  const std::vector<double> values = read_values(element_of(c, i), result.outputs[i]);
  Array y(Array::shape_type{c.tensor(i).leading_elements(), c.tensor(i).last_dimension()});
  std::copy(values.begin(), values.end(), y.begin());
  return y;
}

std::string bits_difference(const KernelCase& c, const CaseRunResult& a, const CaseRunResult& b,
                            const std::string& what) {
  if (a.status.code != b.status.code || a.status.detail != b.status.detail) return "another status " + what + "; ";
  std::string fault = b.fault;
  for (uint32_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i] != b.outputs[i])
      fault += std::string(c.info().arguments[i].name) + " has other bits " + what + "; ";
  }
  return fault;
}

}  // namespace

std::string judge_reference(const CaseDevice& device, const KernelCase& c, double* worst_error) {
  const CaseData data = make_data(c);
  const TestWorkers one(1);
  const CaseRunResult result = run_case(device, c, data, {.workers = &one.workers()});
  if (c.expects_bad_index()) {
    std::string fault = result.fault + status_fault(result.status);
    if (result.data_fault.code != data.bad_data) fault += "did not note the fault in its data; ";
    if (result.data_fault.position != data.bad_position)
      fault += "the fault's position is not " + std::to_string(data.bad_position) + "; ";
    if (result.data_fault.row != 0) fault += "the fault's row is not the calling one; ";
    return fault;
  }
  std::string fault = result.fault + status_fault(result.status);
  if (result.data_fault.code != DataFault::kNone) fault += "noted a fault in data without one; ";
  const CaseData multiplied = as_multiplied(device.backend, c, data);
  CaseExpected want = expected(c, multiplied);
  leave_tolerance(want, left_out(multiplied.multiplier.math));
  if (want.only_skip) {
    return fault +
           (result.scalars.skip != want.scalars.skip ? "what is not finite must set skip in training alone; " : "");
  }
  if (const auto expect_from_stored = family_of(c.op).expect_from_stored) {
    expect_from_stored(c, [&](uint32_t i) { return stored_output(c, result, i); }, want);
  }
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.has(i) || result.outputs[i].empty()) continue;
    const Element element = element_of(c, i);
    const char* name = c.info().arguments[i].name;
    if (element == Element::kScalars) {
      fault += scalars_difference(want, result.scalars);
    } else if (element == Element::kCodes) {
      fault += code_difference(name, c.tensor(i).dtype, want.outputs[i], result.outputs[i]);
    } else {
      fault += difference(name, want.outputs[i], read_values(element, result.outputs[i]), stored_rounding(c, i),
                          worst_error);
    }
  }
  return fault;
}

namespace {
struct Again {
  CaseRunOptions options;
  const char* what;
};
std::string judge_again(const CaseDevice& device, const KernelCase& c, const TestWorkers& one,
                        std::initializer_list<Again> runs) {
  if (c.expects_bad_index() || c.is_non_finite()) return "";  // outputs are unspecified
  const CaseData data = make_data(c);
  const CaseRunResult base = run_case(device, c, data, {.workers = &one.workers()});
  std::string fault;
  for (const Again& run : runs) fault += bits_difference(c, base, run_case(device, c, data, run.options), run.what);
  return fault;
}
constexpr uint32_t kNaN = 0x7fa00001u, kFortyTwo = 0x42280000u;
}  // namespace

std::string judge_workers(const CaseDevice& device, const KernelCase& c) {
  const TestWorkers one(1), two(2, TaskOrder::kReversed), three(3, TaskOrder::kShuffled, 7);
  return judge_again(device, c, one,
                     {{{.workers = &two.workers(), .poison = kNaN}, "with 2 workers, tasks reversed, NaN before"},
                      {{.workers = &three.workers(), .poison = kFortyTwo, .odd_page = true},
                       "with 3 workers, tasks shuffled, 42.0 before, another address"},
                      {{.workers = &one.workers(), .poison = kFortyTwo, .odd_page = true},
                       "with 42.0 before, another address"}});
}

std::string judge_memory(const CaseDevice& device, const KernelCase& c) {
  const TestWorkers one(1);
  return judge_again(device, c, one,
                     {{{.workers = &one.workers(), .poison = kNaN}, "with NaN before"},
                      {{.workers = &one.workers(), .poison = kFortyTwo, .odd_page = true},
                       "with 42.0 before, another address"}});
}

bool has_in_place(const KernelCase& c) {
  return c.info().in_place_output >= 0 && c.has(static_cast<uint32_t>(c.info().in_place_output));
}

std::string judge_in_place(const CaseDevice& device, const KernelCase& c) {
  const CaseData data = make_data(c);
  const TestWorkers one(1), three(3, TaskOrder::kShuffled, 5);
  const CaseRunResult apart = run_case(device, c, data, {.workers = &one.workers()});
  const CaseRunResult together = run_case(device, c, data, {.workers = &three.workers(), .in_place = true});
  return bits_difference(c, apart, together, "in place");
}

namespace {
bool adds_complete_sums(const KernelCase& c, uint32_t i) {
  const ArgumentInfo& argument = c.info().arguments[i];
  return c.adds(i) && argument.storage == Storage::kF32 && !argument.running;
}

// Returns before + value, added in f32. `before` is the old content of the output. `value` is the
// result of the same call without accumulation. All numbers of `before` and `value` are exactly
// f32.
std::vector<double> f32_sums(const Array& before, const std::vector<double>& value) {
  std::vector<double> sums(value.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(before.flat(i)) + static_cast<float>(value[i]);
  return sums;
}
}  // namespace

std::string judge_accumulate(const CaseDevice& device, const KernelCase& c) {
  const CaseData data = make_data(c);
  if (c.expects_bad_index() || c.is_non_finite()) return "";
  CaseData zeros = data, none = data;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.adds(i) || !c.has(i)) continue;
    zeros.values[i].fill(0.0);
    none.values[i] = Array();
  }
  KernelCase overwriting = c;
  overwriting.accumulate = 0;
  const TestWorkers one(1);
  const CaseRunResult value = run_case(device, overwriting, none, {.workers = &one.workers()});
  const CaseRunResult to_zeros = run_case(device, c, zeros, {.workers = &one.workers()});
  const CaseRunResult sum = run_case(device, c, data, {.workers = &one.workers()});
  std::string fault = to_zeros.fault + value.fault + sum.fault;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    const Element element = element_of(c, i);
    if (value.outputs[i].empty() || element == Element::kScalars) continue;
    const std::string name = c.info().arguments[i].name;
    const std::vector<double> values = read_values(element, value.outputs[i]);
    if (read_values(element, to_zeros.outputs[i]) != values) fault += name + ": adding to zero is not overwriting; ";
    if (adds_complete_sums(c, i) && read_values(element, sum.outputs[i]) != f32_sums(data.values[i], values))
      fault += name + ": what is added is not the complete sum; ";
  }
  return fault;
}

std::string judge_stored_weights(const CaseDevice& device, const KernelCase& c) {
  if (c.expects_bad_index() || c.is_non_finite()) return "";
  const CaseData data = make_data(c);
  KernelCase wide = c;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.info().arguments[i].storage != Storage::kWeight || !c.has(i)) continue;
    wide.arguments[i]->dtype = DType::kF32;
    wide.arguments[i]->bytes = align_up(wide.arguments[i]->used_bytes());
  }
  const TestWorkers one(1);
  return bits_difference(c, run_case(device, wide, data, {.workers = &one.workers()}),
                         run_case(device, c, data, {.workers = &one.workers()}), "than the same weights as f32");
}

}  // namespace reprise::test
