// A convolution that normalises what it reads against batch-norm, ReLU and the plain convolution one after the other, and one that takes
// statistics of what it writes against a pass of their own: the same bits.
// Here because a plan that folds must train as one that does not; the reference alone would allow a rounding's difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {

namespace {

KernelCase call(Op op, Pass pass, std::vector<std::optional<Tensor>> arguments, CaseAttribute attribute = {}) {
  KernelCase c;
  c.op = op, c.pass = pass, c.arguments = std::move(arguments), c.attribute = attribute;
  return c;
}

CaseRunResult run_all(const Backend& backend, const KernelCase& c, std::vector<Array> values) {
  const TestWorkers two(2);
  CaseRunResult result = run_case(backend, c, {.values = std::move(values)}, {.workers = &two.workers()});
  EXPECT_TRUE(result.status.ok() && result.fault.empty()) << result.fault;
  return result;
}
std::vector<double> run(const Backend& backend, const KernelCase& c, std::vector<Array> values) {
  return read_values(Element::kF32, run_all(backend, c, std::move(values)).outputs[0]);
}

uint32_t input_of(const KernelCase& c) { return c.pass == Pass::kForward ? 3 : 1; }

// The input of a norm_conv case as it is convolved.
Array rectified(const Backend& backend, const KernelCase& c, const std::vector<Array>& v) {
  const uint32_t in = input_of(c);
  const Tensor& x = c.tensor(in);
  const KernelCase norm =
      call(Op::kBatchNorm, Pass::kForward, {x, x, c.tensor(in + 2), c.tensor(in + 3), c.tensor(in + 4), c.tensor(in + 5)},
           NormAttribute{1e-5f, 0, x.leading_elements()});
  const KernelCase relu = call(Op::kRelu, Pass::kForward, {x, x});
  Array y = v[in], a = v[in];
  const std::vector<double> normalised = run(backend, norm, {Array(), v[in], v[in + 2], v[in + 3], v[in + 4], v[in + 5]});
  std::copy(normalised.begin(), normalised.end(), y.begin());
  const std::vector<double> cut = run(backend, relu, {Array(), y});
  std::copy(cut.begin(), cut.end(), a.begin());
  return a;
}

std::vector<double> in_three_calls(const Backend& backend, const KernelCase& c, const std::vector<Array>& v) {
  KernelCase conv = call(Op::kConv, c.pass, c.arguments, c.attribute);
  conv.accumulate = c.accumulate;
  std::vector<Array> values = v;
  values[input_of(c)] = rectified(backend, c, v);
  conv.arguments.resize(input_of(c) + 2);
  values.resize(input_of(c) + 2);
  return run(backend, conv, values);
}

// Layers that the table of cases has not, being slow for a reference: more channels than the Winograd transforms, or a packed panel,
// take at a time, and rows that collide in a cache.
std::vector<KernelCase> wide_cases() {
  const struct {
    uint32_t size, C, K;
    uint16_t kernel, stride;
  } layers[] = {{16, 272, 80, 3, 1}, {17, 144, 48, 3, 2}, {9, 320, 40, 1, 2}, {7, 1024, 24, 1, 1}, {14, 64, 16, 3, 2}, {30, 16, 32, 3, 1}};
  std::vector<KernelCase> cases;
  for (const auto& l : layers) {
    const uint16_t pad = l.kernel / 2;
    const uint32_t P = (l.size + 2u * pad - l.kernel) / l.stride + 1;
    const auto x = shaped({2, l.size, l.size, l.C}), y = shaped({2, P, P, l.K}), w = shaped({l.K, l.kernel, l.kernel, l.C});
    const auto c = shaped({l.C}), k = shaped({l.K});
    const WindowAttribute window{l.kernel, l.kernel, l.stride, pad, 1e-5f};
    cases.push_back(call(Op::kNormConv, Pass::kForward, {y, k, k, x, w, c, c, c, c}, window));
    cases.push_back(call(Op::kNormConv, Pass::kBackwardWeight, {w, x, y, c, c, c, c}, window));
    for (size_t i = cases.size() - 2; i < cases.size(); ++i) {
      cases[i].id = std::string(cases[i].info().name) + " c" + std::to_string(l.C) + " k" + std::to_string(l.K);
    }
  }
  return cases;
}
std::vector<KernelCase> norm_conv_cases() {
  std::vector<KernelCase> cases = wide_cases();
  for (const KernelCase& c : kernel_cases()) {
    if (c.op == Op::kNormConv) cases.push_back(c);
  }
  return cases;
}

class NormConv : public ::testing::TestWithParam<GemmTileChoice> {
 protected:
  void SetUp() override {
    backend = backend_with(GetParam());
    if (backend == nullptr) GTEST_SKIP() << "this machine or this link lacks the tile";
  }
  const Backend* backend = nullptr;
};

TEST_P(NormConv, HasTheBitsOfThreeCalls) {
  for (const VectorLevel level : {VectorLevel::kBaseline, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    const Backend* lowered = backend_with(GetParam(), level);
    if (lowered == nullptr) continue;
    for (const KernelCase& c : norm_conv_cases()) {
      const std::vector<Array> values = make_data(c).values;
      EXPECT_TRUE(run(*lowered, c, values) == in_three_calls(*lowered, c, values)) << c.id << ", " << vector_level_name(level);
    }
  }
}

// A step that has gone wrong must not be cut back to zero.
TEST_P(NormConv, PassesNaN) {
  for (const KernelCase& c : norm_conv_cases()) {
    std::vector<Array> values = make_data(c).values;
    Array& x = values[input_of(c)];
    x.flat(x.size() / 2) = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> folded = run(*backend, c, values), apart = in_three_calls(*backend, c, values);
    for (size_t i = 0; i < folded.size(); ++i) ASSERT_EQ(std::isnan(folded[i]), std::isnan(apart[i])) << c.id << " at " << i;
  }
}

TEST_P(NormConv, TakesTheStatisticsOfAPassOfTheirOwn) {
  for (const KernelCase& c : norm_conv_cases()) {
    if (c.pass != Pass::kForward || !c.has(1)) continue;
    const std::vector<Array> values = make_data(c).values;
    const CaseRunResult both = run_all(*backend, c, values);
    const Tensor& written_to = c.tensor(0);
    Array y(Array::shape_type{written_to.shape[0], written_to.shape[1], written_to.shape[2], written_to.shape[3]});
    const std::vector<double> written = read_values(Element::kF32, both.outputs[0]);
    std::copy(written.begin(), written.end(), y.begin());
    const KernelCase statistics = call(Op::kBatchNorm, Pass::kStatistics, {c.tensor(1), c.tensor(2), c.tensor(0)},
                                       NormAttribute{c.as<WindowAttribute>().statistics_epsilon, 0, c.tensor(0).leading_elements()});
    const CaseRunResult apart = run_all(*backend, statistics, {values[1], values[2], y});
    EXPECT_TRUE(both.outputs[1] == apart.outputs[0] && both.outputs[2] == apart.outputs[1]) << c.id;
  }
}

std::string name_of(const ::testing::TestParamInfo<GemmTileChoice>& info) {
  const char* const names[] = {"Fastest", "Portable", "Baseline", "Neon", "Avx2", "Avx512", "Blis"};
  return names[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Tiles, NormConv,
                         ::testing::Values(GemmTileChoice::kBaseline, GemmTileChoice::kNeon, GemmTileChoice::kAvx2, GemmTileChoice::kAvx512,
                                           GemmTileChoice::kBlis),
                         name_of);

}  // namespace
}  // namespace reprise::test
