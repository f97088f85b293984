// Compares a convolution that folds batch-norm and ReLU with the three separate kernels. Also
// compares the statistics that a convolution computes of its output with the statistics of a
// separate kernel. The bits must be equal, because a plan with folded kernels must train like a
// plan with separate kernels. The tolerance of the reference would hide a difference of one
// rounding.
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

CaseRunResult run_all(const Backend& backend, const KernelCase& c, std::vector<Array> values) {
  const TestWorkers two(2);
  CaseRunResult result = run_case(backend, c, {.values = std::move(values)}, {.workers = &two.workers()});
  EXPECT_TRUE(result.status.ok() && result.fault.empty()) << result.fault;
  return result;
}
// Runs the case and returns the values of its first output.
std::vector<double> run(const Backend& backend, const KernelCase& c, std::vector<Array> values) {
  return read_values(Element::kF32, run_all(backend, c, std::move(values)).outputs.front());
}
template <typename K>
std::vector<Array> values_of(std::initializer_list<NamedArgument<K, Array>> inputs) {
  std::vector<Array> values(K::kArity);
  for (const auto& [argument, value] : inputs) values[argument] = value;
  return values;
}

// Returns relu(norm(x)), computed by the separate kernels. x and the norm are those of a case `c`
// of the folding convolution K.
template <typename K>
Array rectified(const Backend& backend, const KernelCase& c, const std::vector<Array>& v) {
  using Norm = BatchNormForward;
  using Relu = ReluForward;
  const Tensor& x = c.tensor(K::kX);
  const KernelCase norm = named_case<Norm>({{Norm::kY, x},
                                            {Norm::kX, x},
                                            {Norm::kMean, c.tensor(K::kMean)},
                                            {Norm::kRstd, c.tensor(K::kRstd)},
                                            {Norm::kGamma, c.tensor(K::kGamma)},
                                            {Norm::kBeta, c.tensor(K::kBeta)}},
                                           NormAttribute{1e-5f, 0, x.leading_elements()});
  const KernelCase relu = named_case<Relu>({{Relu::kY, x}, {Relu::kX, x}});
  Array y = v[K::kX], a = v[K::kX];
  const std::vector<double> normalised =
      run(backend, norm, values_of<Norm>({{Norm::kX, v[K::kX]}, {Norm::kMean, v[K::kMean]}, {Norm::kRstd, v[K::kRstd]},
                                          {Norm::kGamma, v[K::kGamma]}, {Norm::kBeta, v[K::kBeta]}}));
  std::copy(normalised.begin(), normalised.end(), y.begin());
  const std::vector<double> cut = run(backend, relu, values_of<Relu>({{Relu::kX, y}}));
  std::copy(cut.begin(), cut.end(), a.begin());
  return a;
}

// Computes a case of the folding convolution K by three kernels: batch-norm, ReLU and the plain
// convolution Plain. K's first arguments must be those of Plain, in the same order. K's next
// argument, kMean, is at the index of Plain's scratch.
template <typename K, typename Plain>
std::vector<double> in_three_calls_of(const Backend& backend, const KernelCase& c, std::vector<Array> values) {
  static_assert(uint32_t{K::kX} == uint32_t{Plain::kX} && uint32_t{K::kMean} == uint32_t{Plain::kScratch});
  KernelCase conv = c;
  conv.op = Plain::kInfo.op;
  conv.arguments.resize(Plain::kScratch);
  values[K::kX] = rectified<K>(backend, c, values);
  values.resize(Plain::kScratch);
  return run(backend, conv, values);
}
std::vector<double> in_three_calls(const Backend& backend, const KernelCase& c, const std::vector<Array>& values) {
  if (c.pass == Pass::kForward) return in_three_calls_of<NormConvForward, ConvForward>(backend, c, values);
  return in_three_calls_of<NormConvBackwardWeight, ConvBackwardWeight>(backend, c, values);
}

// Returns layers that are too slow for the table of cases. They have more channels than the
// Winograd transforms or a packed panel process at once, or rows that collide in a cache.
std::vector<KernelCase> wide_cases() {
  const struct {
    uint32_t size, C, K;
    uint16_t kernel, stride;
  } layers[] = {{16, 272, 80, 3, 1}, {17, 144, 48, 3, 2}, {9, 320, 40, 1, 2},
                {7, 1024, 24, 1, 1}, {14, 64, 16, 3, 2},  {30, 16, 32, 3, 1}};
  std::vector<KernelCase> cases;
  for (const auto& l : layers) {
    const uint16_t pad = l.kernel / 2;
    const uint32_t P = (l.size + 2u * pad - l.kernel) / l.stride + 1;
    const auto x = shaped({2, l.size, l.size, l.C}), y = shaped({2, P, P, l.K}),
               w = shaped({l.K, l.kernel, l.kernel, l.C});
    const auto c = shaped({l.C}), k = shaped({l.K});
    const WindowAttribute window{l.kernel, l.kernel, l.stride, pad, 1e-5f};
    using A = NormConvForward;
    cases.push_back(named_case<A>({{A::kY, y},
                                   {A::kMeanOfY, k},
                                   {A::kRstdOfY, k},
                                   {A::kX, x},
                                   {A::kW, w},
                                   {A::kMean, c},
                                   {A::kRstd, c},
                                   {A::kGamma, c},
                                   {A::kBeta, c}},
                                  window));
    using B = NormConvBackwardWeight;
    cases.push_back(named_case<B>(
        {{B::kDw, w}, {B::kX, x}, {B::kDy, y}, {B::kMean, c}, {B::kRstd, c}, {B::kGamma, c}, {B::kBeta, c}}, window));
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
      EXPECT_TRUE(run(*lowered, c, values) == in_three_calls(*lowered, c, values))
          << c.id << ", " << vector_level_name(level);
    }
  }
}

// A NaN in x must not become zero.
TEST_P(NormConv, PassesNaN) {
  for (const KernelCase& c : norm_conv_cases()) {
    std::vector<Array> values = make_data(c).values;
    Array& x = c.pass == Pass::kForward ? values[NormConvForward::kX] : values[NormConvBackwardWeight::kX];
    x.flat(x.size() / 2) = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> folded = run(*backend, c, values), apart = in_three_calls(*backend, c, values);
    for (size_t i = 0; i < folded.size(); ++i)
      ASSERT_EQ(std::isnan(folded[i]), std::isnan(apart[i])) << c.id << " at " << i;
  }
}

TEST_P(NormConv, TakesTheStatisticsOfAPassOfTheirOwn) {
  for (const KernelCase& c : norm_conv_cases()) {
    using A = NormConvForward;
    using Statistics = BatchNormStatistics;
    if (c.pass != Pass::kForward || !c.has(A::kMeanOfY)) continue;
    const std::vector<Array> values = make_data(c).values;
    const CaseRunResult both = run_all(*backend, c, values);
    const Tensor& written_to = c.tensor(A::kY);
    Array y(Array::shape_type{written_to.shape[0], written_to.shape[1], written_to.shape[2], written_to.shape[3]});
    const std::vector<double> written = read_values(Element::kF32, both.outputs[A::kY]);
    std::copy(written.begin(), written.end(), y.begin());
    const KernelCase statistics = named_case<Statistics>({{Statistics::kMean, c.tensor(A::kMeanOfY)},
                                                          {Statistics::kRstd, c.tensor(A::kRstdOfY)},
                                                          {Statistics::kX, written_to}},
                                                         NormAttribute{c.as<WindowAttribute>().statistics_epsilon, 0,
                                                                       written_to.leading_elements()});
    const CaseRunResult apart = run_all(*backend, statistics, values_of<Statistics>({{Statistics::kX, y}}));
    EXPECT_TRUE(both.outputs[A::kMeanOfY] == apart.outputs[Statistics::kMean]) << c.id;
    EXPECT_TRUE(both.outputs[A::kRstdOfY] == apart.outputs[Statistics::kRstd]) << c.id;
  }
}

std::string name_of(const ::testing::TestParamInfo<GemmTileChoice>& info) {
  const char* const names[] = {"Fastest", "Portable", "Baseline", "Neon", "Avx2", "Avx512", "Blis"};
  return names[static_cast<size_t>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Tiles, NormConv,
                         ::testing::Values(GemmTileChoice::kBaseline, GemmTileChoice::kNeon, GemmTileChoice::kAvx2,
                                           GemmTileChoice::kAvx512, GemmTileChoice::kBlis),
                         name_of);

}  // namespace
}  // namespace reprise::test
