// Tests the judge of kernels. It must reject every wrong kernel of a list, and accept simple
// correct kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ostream>

#include "lib/cpu/cpu_host_access.h"
#include "lib/cpu/data_fault.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ports/test_machine.h"
#include "tests/ref/random.h"
#include "tools/files/formats/ggml_blocks.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

// ---- Plain kernels: correct and slow, with one thread unless stated otherwise ----

Status relu(const KernelContext&, const UnaryArgsOf<float>& a) {
  for (uint64_t i = 0; i < a.n; ++i) a.y[i] = a.x[i] > 0 ? a.x[i] : 0.0f;
  return ok_status();
}
Status relu_backward(const KernelContext&, const ActivationBackwardArgsOf<float>& a) {
  for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = a.saved[i] > 0 ? a.dy[i] : 0.0f;
  return ok_status();
}

float weight_at(const Weight& w, uint64_t i) {
  if (w.type == DType::kF32) return static_cast<const float*>(w.data)[i];
  const DTypeInfo& block = dtype_info(w.type);
  float numbers[kMaxBlockValues];
  const unsigned char* bytes = static_cast<const unsigned char*>(w.data) + i / block.block_elements * block.block_bytes;
  dequantise_blocks(block_type_of(w.type).value(), bytes, 1, numbers);
  return numbers[i % block.block_elements];
}

// Calls f(row, pixel, tap) for every tap inside the image. `row` is the index of a pixel of y, and
// `pixel` the index of a pixel of x. `pad` replaces the window's padding above the image, so that
// tests can make it wrong.
template <typename F>
void for_each_window_tap(const ConvShape& s, int pad, const F& f) {
  const WindowAttribute& a = s.window;
  for (uint32_t n = 0; n < s.N; ++n)
    for (uint32_t p = 0; p < s.P; ++p)
      for (uint32_t q = 0; q < s.Q; ++q)
        for (uint32_t r = 0; r < a.kernel_h; ++r)
          for (uint32_t t = 0; t < a.kernel_w; ++t) {
            const long h = static_cast<long>(p * a.stride_h + r * a.dilation_h) - pad,
                       w = static_cast<long>(q * a.stride_w + t * a.dilation_w) - a.pad_left;
            if (h < 0 || w < 0 || h >= static_cast<long>(s.H) || w >= static_cast<long>(s.W)) continue;
            const uint64_t row = (uint64_t{n} * s.P + p) * s.Q + q;
            const uint64_t pixel = (uint64_t{n} * s.H + static_cast<uint64_t>(h)) * s.W + static_cast<uint64_t>(w);
            f(row, pixel, r * a.kernel_w + t);
          }
}
// Returns the element x of channel `c` after batch-norm; x itself if there is no norm. If `cut`,
// ReLU follows.
float normalised(const InputNorm& norm, float x, uint32_t c, bool cut = true) {
  if (norm.mean == nullptr) return x;
  const float a = (x - norm.mean[c]) * (norm.rstd[c] * norm.gamma[c]) + norm.beta[c];
  return cut && a <= 0 ? 0.0f : a;
}
void conv_with(const ConvForwardArgsOf<float>& a, int pad, uint32_t channels, bool cut = true) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  const uint32_t of_group = s.group_inputs();
  for (uint64_t i = 0; i < uint64_t{s.N} * s.P * s.Q * s.K; ++i) a.y[i] = a.b == nullptr ? 0 : a.b[i % s.K];
  for_each_window_tap(s, pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t i = 0; i < of_group; ++i) {
        const uint32_t c = k / s.group_outputs() * of_group + i;
        if (c >= channels) continue;
        a.y[row * s.K + k] +=
            normalised(a.norm, a.x[pixel * s.C + c], c, cut) * weight_at(a.w, (k * taps + tap) * of_group + i);
      }
  });
}
Status statistics(const KernelContext&, const BatchNormStatisticsArgsOf<float>& a) {
  for (uint32_t c = 0; c < a.C; ++c) {
    double sum = 0, squares = 0;
    for (uint64_t m = 0; m < a.M; ++m) sum += a.x[m * a.C + c];
    const double mean = sum / static_cast<double>(a.M);
    for (uint64_t m = 0; m < a.M; ++m) squares += (a.x[m * a.C + c] - mean) * (a.x[m * a.C + c] - mean);
    a.mean[c] = static_cast<float>(mean);
    a.rstd[c] = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(a.M) + a.epsilon));
  }
  return ok_status();
}
// Computes mean and rstd of y if the call requests them. Ignores the last `left_out` rows, so that
// tests can make the statistics wrong.
Status statistics_of_conv(const KernelContext& k, const ConvForwardArgsOf<float>& a, uint64_t left_out = 0) {
  if (a.mean == nullptr) return ok_status();
  return statistics(k, {a.mean, a.rstd, a.y, nullptr, 0, uint64_t{a.shape.N} * a.shape.P * a.shape.Q - left_out,
                        a.shape.K, a.shape.window.statistics_epsilon});
}
Status conv(const KernelContext& k, const ConvForwardArgsOf<float>& a) {
  conv_with(a, a.shape.window.pad_top, a.shape.C);
  return statistics_of_conv(k, a);
}
void conv_weight_with(const ConvBackwardWeightArgsOf<float>& a, bool accumulate) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  const uint32_t of_group = s.group_inputs();
  for (uint64_t i = 0; !accumulate && i < s.K * taps * of_group; ++i) a.dw[i] = 0;
  for_each_window_tap(s, s.window.pad_top, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t i = 0; i < of_group; ++i) {
        const uint32_t c = k / s.group_outputs() * of_group + i;
        a.dw[(k * taps + tap) * of_group + i] += a.dy[row * s.K + k] * normalised(a.norm, a.x[pixel * s.C + c], c);
      }
  });
}
Status conv_weight(const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
  std::vector<float> sums(uint64_t{a.shape.K} * a.shape.window.kernel_h * a.shape.window.kernel_w *
                          a.shape.group_inputs());
  ConvBackwardWeightArgsOf<float> apart = a;
  apart.dw = sums.data();
  conv_weight_with(apart, true);
  for (uint64_t i = 0; i < sums.size(); ++i) a.dw[i] = (a.accumulate_dw ? a.dw[i] : 0.0f) + sums[i];
  return ok_status();
}

// Computes dx, dgamma and dbeta with sums over all rows. If there is a beta, a ReLU follows the
// norm. dy then counts only where passes(input of the ReLU, dy) is true. The correct `passes` is
// passes_relu.
bool passes_relu(float y, float) { return y > 0; }
void norm_backward_with(const BatchNormBackwardArgsOf<float>& a, bool (*passes)(float y, float dy)) {
  const double M = static_cast<double>(a.M);
  for (uint32_t c = 0; c < a.C; ++c) {
    const InputNorm norm{a.mean, a.rstd, a.gamma, a.beta};
    const auto dy = [&](uint64_t i) {
      return a.beta == nullptr || passes(normalised(norm, a.x[i], c, false), a.dy[i]) ? a.dy[i] : 0.0f;
    };
    double sum = 0, product = 0;
    for (uint64_t i = c; i < a.M * a.C; i += a.C)
      sum += dy(i), product += double{dy(i)} * (double{a.x[i]} - a.mean[c]) * a.rstd[c];
    for (uint64_t i = c; i < a.M * a.C; i += a.C) {
      const double x = (double{a.x[i]} - a.mean[c]) * a.rstd[c];
      a.dx[i] = static_cast<float>(double{a.gamma[c]} * a.rstd[c] * (dy(i) - sum / M - x * product / M));
    }
    if (a.dgamma != nullptr) a.dgamma[c] = static_cast<float>(product) + (a.accumulate_dgamma ? a.dgamma[c] : 0.0f);
    if (a.dbeta != nullptr) a.dbeta[c] = static_cast<float>(sum) + (a.accumulate_dbeta ? a.dbeta[c] : 0.0f);
  }
}
Status norm_backward(const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
  norm_backward_with(a, passes_relu);
  return ok_status();
}

Status norm_add_relu(const KernelContext&, const NormAddReluArgsOf<float>& a) {
  for (uint64_t i = 0; i < a.M * a.C; ++i) {
    const float y =
        normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C), false) + a.b[i];
    a.y[i] = y > 0 ? y : 0.0f;
  }
  return ok_status();
}
Status linear_with(const LinearForwardArgsOf<float>& a, float (*read)(const Weight&, uint64_t)) {
  for (uint64_t m = 0; m < a.M; ++m)
    for (uint64_t k = 0; k < a.K; ++k) {
      double sum = 0;
      for (uint64_t c = 0; c < a.C; ++c)
        sum += double{a.x[m * a.C + c]} * double{read(a.w, a.input_major ? c * a.K + k : k * a.C + c)};
      sum = double{a.scale} * sum + (a.b != nullptr ? a.b[k] : 0.0f);
      for (uint64_t r = 0; r < a.R; ++r) sum += double{a.h[m * a.R + r]} * double{read(a.u, k * a.R + r)};
      a.y[m * a.K + k] = static_cast<float>(sum);
    }
  return ok_status();
}
Status linear(const KernelContext&, const LinearForwardArgsOf<float>& a) { return linear_with(a, weight_at); }

// Sums dy in `tasks` tasks. Each task sums a part of the rows into scratch, and the partial sums
// are then added in a fixed order.
void bias_with(const KernelContext& context, const LinearBackwardBiasArgsOf<float>& a, uint32_t tasks, bool clear,
               bool accumulate) {
  float* partials = static_cast<float*>(a.scratch);
  parallel_for(*context.workers, tasks, [&](uint32_t task) {
    float* partial = partials + uint64_t{task} * a.K;
    for (uint32_t k = 0; clear && k < a.K; ++k) partial[k] = 0;
    for (uint64_t m = a.M * task / tasks; m < a.M * (task + 1) / tasks; ++m)
      for (uint32_t k = 0; k < a.K; ++k) partial[k] += a.dy[m * a.K + k];
  });
  for (uint32_t k = 0; k < a.K; ++k) {
    float sum = partials[k];
    for (uint32_t task = 1; task < tasks; ++task) sum += partials[uint64_t{task} * a.K + k];
    a.db[k] = accumulate ? a.db[k] + sum : sum;
  }
}
Status bias(const KernelContext& context, const LinearBackwardBiasArgsOf<float>& a) {
  bias_with(context, a, 2, true, a.accumulate_db);
  return ok_status();
}

void avg_pool_with(const AvgPoolArgsOf<float>& a, bool counts_padding) {
  const PoolShape& s = a.shape;
  const ConvShape shape{s.N, s.H, s.W, s.C, s.P, s.Q, s.C, s.window};
  std::vector<uint32_t> places(uint64_t{s.N} * s.P * s.Q);
  for (uint64_t i = 0; i < places.size() * s.C; ++i) a.out[i] = 0;
  for_each_window_tap(shape, s.window.pad_top, [&](uint64_t row, uint64_t pixel, uint64_t) {
    ++places[row];
    for (uint32_t c = 0; c < s.C; ++c) a.out[row * s.C + c] += a.in[pixel * s.C + c];
  });
  for (uint64_t i = 0; i < places.size() * s.C; ++i) {
    a.out[i] /= static_cast<float>(counts_padding ? uint32_t{s.window.kernel_h} * s.window.kernel_w : places[i / s.C]);
  }
}
Status avg_pool(const KernelContext&, const AvgPoolArgsOf<float>& a) {
  avg_pool_with(a, a.shape.window.counts_padding != 0);
  return ok_status();
}

void max_pool_with(const MaxPoolForwardArgsOf<float>& a, float padding, bool last_wins) {
  const PoolShape& s = a.shape;
  const ConvShape shape{s.N, s.H, s.W, s.C, s.P, s.Q, s.C, s.window};
  for (uint64_t i = 0; i < uint64_t{s.N} * s.P * s.Q * s.C; ++i) a.y[i] = padding, a.index[i] = 0;
  for_each_window_tap(shape, s.window.pad_top, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t c = 0; c < s.C; ++c) {
      const float x = a.x[pixel * s.C + c], best = a.y[row * s.C + c];
      if (!(last_wins ? x >= best : x > best)) continue;
      a.y[row * s.C + c] = x;
      a.index[row * s.C + c] = static_cast<uint8_t>(tap);
    }
  });
}
Status max_pool(const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
  max_pool_with(a, -std::numeric_limits<float>::infinity(), false);
  return ok_status();
}

void dropout_with(const DropoutArgsOf<float>& a, uint32_t stream, uint32_t step) {
  StepScalars scalars = *a.scalars;
  scalars.step = step;
  for (uint64_t i = 0; i < a.n; ++i) {
    a.y[i] =
        static_cast<float>(a.x[i] * ref::dropout_factor(scalars, stream, i / a.dropout.shared, a.dropout.probability));
  }
}
Status dropout(const KernelContext&, const DropoutArgsOf<float>& a) {
  dropout_with(a, a.dropout.stream, a.scalars->step);
  return ok_status();
}

Status embedding(const KernelContext& context, const EmbeddingForwardArgsOf<float>& a) {
  for (uint64_t i = 0; i < uint64_t{a.B} * a.T; ++i) {
    if (a.tokens[i] < 0 || a.tokens[i] >= static_cast<int64_t>(a.V)) {
      note_fault(context, DataFault::kToken, i);
      return ok_status();
    }
    for (uint32_t c = 0; c < a.C; ++c) {
      const float position = a.positions.data != nullptr ? weight_at(a.positions, i % a.T * a.C + c) : 0.0f;
      a.y[i * a.C + c] = a.scale * weight_at(a.table, static_cast<uint64_t>(a.tokens[i]) * a.C + c) + position;
    }
  }
  return ok_status();
}

// Adds squares of each tensor's elements to its norm: the first sizes(n) of n elements. Correct is
// sizes(n) = n.
template <typename Sizes>
Status norm_reduce_of(const GradNormReduceArgs& a, Sizes sizes) {
  for (uint32_t t = 0; t < a.count; ++t) {
    const float* x = a.gradients + (a.tensors[t].offset - a.tensors[0].offset) / sizeof(float);
    for (uint64_t i = 0; i < sizes(a.tensors[t].elements()); ++i) a.norms[t] += static_cast<double>(x[i]) * x[i];
  }
  return ok_status();
}
Status norm_reduce(const KernelContext&, const GradNormReduceArgs& a) {
  std::fill_n(a.norms, a.count, 0.0);
  return norm_reduce_of(a, [](uint64_t n) { return n; });
}

Status norm_finish(const KernelContext&, const GradNormFinishArgs& a) {
  double sum = 0;
  for (uint32_t i = 0; i < a.count; ++i) sum += a.norms[i];
  const double norm = std::sqrt(sum);
  if (!std::isfinite(norm)) a.scalars->skip = 1;
  a.scalars->gradient_norm = static_cast<float>(norm);
  a.scalars->clip_factor = a.max_norm == 0 ? 1.0f : static_cast<float>(std::min(1.0, a.max_norm / (norm + 1e-6)));
  return ok_status();
}

constexpr BackendRules plain_rules() {
  BackendRules rules = {.name = "plain", .header = "", .constant = ""};
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) {
    return 2 * c[LinearBackwardBias::kDb].elements() * sizeof(float);
  };
  return rules;
}
constexpr BackendRules kPlainRules = plain_rules();

struct PlainKernel {
  Op op;
  Pass pass;
  void (*plant)(Backend&);
};
template <typename K, NamedKernel<K> kernel>
constexpr PlainKernel plain() {
  return {K::kInfo.op, K::kInfo.pass, [](Backend& backend) { backend.set<K, float, kernel>(); }};
}
const PlainKernel kPlainKernels[] = {
    plain<ReluForward, relu>(),
    plain<ReluBackward, relu_backward>(),
    plain<ConvForward, conv>(),
    plain<ConvBackwardWeight, conv_weight>(),
    plain<NormConvForward, conv>(),
    plain<NormConvBackwardWeight, conv_weight>(),
    plain<NormReluBackward, norm_backward>(),
    plain<NormAddReluForward, norm_add_relu>(),
    plain<BatchNormStatistics, statistics>(),
    plain<LinearForward, linear>(),
    plain<LinearBackwardBias, bias>(),
    plain<MaxPoolForward, max_pool>(),
    plain<AvgPoolForward, avg_pool>(),
    plain<DropoutForward, dropout>(),
    plain<DropoutBackward, dropout>(),
    plain<EmbeddingForward, embedding>(),
    plain<GradNormReduce, norm_reduce>(),
    plain<GradNormFinish, norm_finish>(),
};

Backend plain_backend() {
  Backend b{.rules = &kPlainRules, .kernel_set = "plain", .host = kCpuHostAccess};
  for (const PlainKernel& kernel : kPlainKernels) kernel.plant(b);
  return b;
}

bool has_plain_kernel(const KernelCase& c) {
  return std::any_of(std::begin(kPlainKernels), std::end(kPlainKernels),
                     [&](const PlainKernel& kernel) { return kernel.op == c.op && kernel.pass == c.pass; });
}

// Returns the faults that all judge functions find in a backend's kernel on one case.
std::string judge_all(const Backend& backend, const KernelCase& c) {
  std::string fault = judge_reference(backend, c) + judge_workers(backend, c);
  if (has_in_place(c)) fault += judge_in_place(backend, c);
  if (c.accumulate != 0) fault += judge_accumulate(backend, c);
  return fault;
}

// All cases are compared with the reference. Plain kernels are slow, so only every kEvery-th case
// is also judged by the other functions.
TEST(Judge, AcceptsPlainKernels) {
  constexpr int kEvery = 7;
  const Backend backend = plain_backend();
  int met = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (!has_plain_kernel(c)) continue;
    EXPECT_EQ(met++ % kEvery == 0 ? judge_all(backend, c) : judge_reference(backend, c), "") << c.id;
  }
  EXPECT_GT(met, 1000);
}

const WrongKernel kMutants[] = {
    wrong_kernel<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      UnaryArgsOf<float> shorter = a;
      shorter.n -= 1;
      return relu(k, shorter);
    }>("relu_drops_the_last_element"),
    wrong_kernel<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      a.y[a.n] = 1;
      return relu(k, a);
    }>("relu_writes_past_the_end"),
    wrong_kernel<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      a.y[-1] = 1;
      return relu(k, a);
    }>("relu_writes_before_the_start"),
    wrong_kernel<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      const Status status = relu(k, a);
      const_cast<float*>(a.x)[0] = 5;
      return status;
    }>("relu_changes_its_input"),
    wrong_kernel<ReluForward, [](const KernelContext&, const UnaryArgsOf<float>&) {
      return ok_status();
    }>("relu_does_nothing"),
    wrong_kernel<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      const Status status = relu(k, a);
      return status.ok() ? Status{Code::kUnsupported, "", 0} : status;
    }>("relu_reports_an_error"),
    wrong_kernel<ReluBackward, [](const KernelContext& k, const ActivationBackwardArgsOf<float>& a) {
      if (a.dx != a.dy) return relu_backward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = 0;
      return ok_status();
    }>("relu_backward_clears_before_it_reads"),
    wrong_kernel<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad_top + 1, a.shape.C);
      return statistics_of_conv(k, a);
    }>("conv_pads_one_too_many"),
    wrong_kernel<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad_top, a.shape.C > 500 ? a.shape.C - 1 : a.shape.C);
      return statistics_of_conv(k, a);
    }>("conv_drops_the_last_of_many_channels"),
    wrong_kernel<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      ConvForwardArgsOf<float> square = a;
      square.shape.window.stride_w = a.shape.window.stride_h,
      square.shape.window.dilation_w = a.shape.window.dilation_h;
      return conv(k, square);
    }>("conv_slides_along_a_row_as_down_a_column"),
    wrong_kernel<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      ConvForwardArgsOf<float> biasless = a;
      biasless.b = nullptr;
      return conv(k, biasless);
    }>("conv_forgets_its_bias"),
    wrong_kernel<ConvBackwardWeight, [](const KernelContext& k, const ConvBackwardWeightArgsOf<float>& a) {
      const ConvShape& s = a.shape;  // input channel c belongs to group c % groups, which is wrong
      std::vector<float> x(uint64_t{s.N} * s.H * s.W * s.C);
      for (uint64_t i = 0; i < x.size(); ++i) {
        const uint64_t c = i % s.C, group = c / s.group_inputs(), of_group = c % s.group_inputs();
        x[i] = a.x[i - c + of_group * s.window.groups + group];
      }
      ConvBackwardWeightArgsOf<float> mixed = a;
      mixed.x = x.data();
      return conv_weight(k, mixed);
    }>("conv_weight_mixes_its_groups"),
    wrong_kernel<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad_top, a.shape.C);
      return statistics_of_conv(k, a, uint64_t{a.shape.P} * a.shape.Q > 1 ? 1 : 0);
    }>("conv_leaves_a_row_out_of_its_statistics"),
    wrong_kernel<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      ConvForwardArgsOf<float> without = a;
      without.shape.window.statistics_epsilon = 0;
      return conv(k, without);
    }>("conv_takes_its_statistics_without_epsilon"),
    wrong_kernel<ConvBackwardWeight, [](const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
      conv_weight_with(a, false);
      return ok_status();
    }>("conv_weight_forgets_to_accumulate"),
    wrong_kernel<ConvBackwardWeight, [](const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
      conv_weight_with(a, true);
      return ok_status();
    }>("conv_weight_always_accumulates"),
    wrong_kernel<ConvBackwardWeight, [](const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
      conv_weight_with(a, a.accumulate_dw);
      return ok_status();
    }>("conv_weight_goes_on_from_what_is_there"),
    wrong_kernel<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      const ConvShape& s = a.shape;
      const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
      if (100 < taps * s.C) return conv(k, a);  // larger cases would be slow
      for (uint64_t row = 0; row < uint64_t{s.N} * s.P * s.Q; ++row)
        for (uint32_t o = 0; o < s.K; ++o) {
          a.y[row * s.K + o] = 0;
          for (uint64_t i = 0; i < taps * s.C; ++i) {
            a.y[row * s.K + o] +=
                normalised(a.norm, 0, static_cast<uint32_t>(i % s.C)) * weight_at(a.w, o * taps * s.C + i);
          }
        }
      for_each_window_tap(s, s.window.pad_top, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
        for (uint32_t o = 0; o < s.K; ++o)
          for (uint32_t c = 0; c < s.C; ++c) {
            const float change = normalised(a.norm, a.x[pixel * s.C + c], c) - normalised(a.norm, 0, c);
            a.y[row * s.K + o] += change * weight_at(a.w, (o * taps + tap) * s.C + c);
          }
      });
      return statistics_of_conv(k, a);
    }>("norm_conv_normalises_padding"),
    wrong_kernel<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad_top, a.shape.C, false);
      return statistics_of_conv(k, a);
    }>("norm_conv_does_not_cut"),
    wrong_kernel<NormConvBackwardWeight, [](const KernelContext& k, const ConvBackwardWeightArgsOf<float>& a) {
      const std::vector<float> zeros(a.shape.C);
      ConvBackwardWeightArgsOf<float> without = a;
      without.norm.beta = zeros.data();
      return conv_weight(k, without);
    }>("norm_conv_forgets_beta"),
    wrong_kernel<NormConvBackwardWeight, [](const KernelContext& k, const ConvBackwardWeightArgsOf<float>& a) {
      ConvBackwardWeightArgsOf<float> plain = a;
      plain.norm = {};
      return conv_weight(k, plain);
    }>("norm_conv_reads_x"),
    wrong_kernel<NormReluBackward, [](const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
      norm_backward_with(a, [](float, float) { return true; });
      return ok_status();
    }>("norm_relu_passes_every_gradient"),
    wrong_kernel<NormReluBackward, [](const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
      norm_backward_with(a, [](float, float dy) { return dy > 0; });
      return ok_status();
    }>("norm_relu_cuts_the_gradient_by_its_own_sign"),
    wrong_kernel<NormAddReluForward, [](const KernelContext&, const NormAddReluArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.M * a.C; ++i) {
        a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C)) + a.b[i];
      }
      return ok_status();
    }>("norm_add_relu_cuts_before_it_adds"),
    wrong_kernel<NormAddReluForward, [](const KernelContext&, const NormAddReluArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.M * a.C; ++i) {
        a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C));
      }
      return ok_status();
    }>("norm_add_relu_adds_nothing"),
    wrong_kernel<BatchNormStatistics, [](const KernelContext&, const BatchNormStatisticsArgsOf<float>& a) {
      const float M = static_cast<float>(a.M);
      for (uint32_t c = 0; c < a.C; ++c) {
        float sum = 0, squares = 0;
        for (uint64_t m = 0; m < a.M; ++m) sum += a.x[m * a.C + c], squares += a.x[m * a.C + c] * a.x[m * a.C + c];
        a.mean[c] = sum / M;
        a.rstd[c] = 1 / std::sqrt(std::max(0.0f, squares / M - a.mean[c] * a.mean[c]) + a.epsilon);
      }
      return ok_status();
    }>("variance_as_a_difference_of_means"),
    wrong_kernel<BatchNormStatistics, [](const KernelContext& k, const BatchNormStatisticsArgsOf<float>& a) {
      const Status status = statistics(k, a);
      for (uint32_t c = 0; c < a.C; ++c) a.rstd[c] *= std::sqrt(static_cast<float>(a.M - 1) / static_cast<float>(a.M));
      return status;
    }>("statistics_unbiased"),
    wrong_kernel<LinearForward, [](const KernelContext&, const LinearForwardArgsOf<float>& a) {
      // Half of the index, because the memory of bf16 weights has half the bytes.
      return linear_with(a, [](const Weight& w, uint64_t i) { return w.f32()[w.type == DType::kBf16 ? i / 2 : i]; });
    }>("linear_takes_bf16_weights_for_f32"),
    wrong_kernel<LinearForward, [](const KernelContext&, const LinearForwardArgsOf<float>& a) {
      return linear_with(a, [](const Weight& w, uint64_t i) {
        return w.type == DType::kBf16 ? std::bit_cast<float>((uint32_t{w.bf16()[i].bits} & ~1u) << 16) : w.f32()[i];
      });
    }>("linear_truncates_bf16_weights"),
    wrong_kernel<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      EmbeddingForwardArgsOf<float> alike = a;
      if (a.positions.data != nullptr && a.table.type == DType::kBf16) alike.positions.type = DType::kBf16;
      return embedding(k, alike);
    }>("embedding_takes_positions_to_be_stored_as_the_table_is"),
    wrong_kernel<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, k.workers->count == 1 ? 1 : 2, true, a.accumulate_db);
      return ok_status();
    }>("bias_splits_by_the_number_of_workers"),
    wrong_kernel<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, 2, false, a.accumulate_db);
      return ok_status();
    }>("bias_believes_that_scratch_is_clear"),
    wrong_kernel<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, 3, true, a.accumulate_db);
      return ok_status();
    }>("bias_needs_more_scratch_than_it_says"),
    wrong_kernel<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      const Status status = bias(k, a);
      uint32_t last = 0;
      parallel_for(*k.workers, 2, [&](uint32_t task) { last = task; });
      if (last == 0) a.db[0] = std::nextafter(a.db[0], 1e9f);
      return status;
    }>("bias_depends_on_the_order_of_tasks"),
    wrong_kernel<AvgPoolForward, [](const KernelContext&, const AvgPoolArgsOf<float>& a) {
      avg_pool_with(a, true);
      return ok_status();
    }>("avg_pool_always_counts_padding"),
    wrong_kernel<AvgPoolForward, [](const KernelContext&, const AvgPoolArgsOf<float>& a) {
      avg_pool_with(a, false);
      return ok_status();
    }>("avg_pool_never_counts_padding"),
    wrong_kernel<MaxPoolForward, [](const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
      max_pool_with(a, -std::numeric_limits<float>::infinity(), true);
      return ok_status();
    }>("max_pool_takes_the_last_maximum"),
    wrong_kernel<MaxPoolForward, [](const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
      max_pool_with(a, 0.0f, false);
      return ok_status();
    }>("max_pool_lets_padding_win"),
    wrong_kernel<DropoutForward, [](const KernelContext&, const DropoutArgsOf<float>& a) {
      dropout_with(a, a.dropout.stream + 1, a.scalars->step);
      return ok_status();
    }>("dropout_of_another_stream"),
    wrong_kernel<DropoutForward, [](const KernelContext&, const DropoutArgsOf<float>& a) {
      dropout_with(a, a.dropout.stream, 0);
      return ok_status();
    }>("dropout_of_another_step"),
    wrong_kernel<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      EmbeddingForwardArgsOf<float> wider = a;
      wider.V += 1;
      return embedding(k, wider);
    }>("embedding_accepts_the_first_token_past_the_table"),
    wrong_kernel<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      const Status status = embedding(k, a);
      if (k.scalars->fault.code != DataFault::kNone) ++k.scalars->fault.position;
      return status;
    }>("embedding_notes_the_token_behind_the_wrong_one"),
    wrong_kernel<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      const Status status = embedding(k, a);
      k.scalars->skip = 0;
      return status;
    }>("embedding_notes_a_fault_but_lets_the_update_run"),
    wrong_kernel<GradNormReduce, [](const KernelContext&, const GradNormReduceArgs& a) {
      return norm_reduce_of(a, [](uint64_t n) { return n; });
    }>("norm_adds_to_what_is_there"),
    wrong_kernel<GradNormReduce, [](const KernelContext&, const GradNormReduceArgs& a) {
      std::fill_n(a.norms, a.count, 0.0);
      return norm_reduce_of(a, [](uint64_t n) { return n <= 16384 ? n : n - n % 16384; });
    }>("norm_leaves_out_a_part_that_is_not_whole"),
    wrong_kernel<GradNormReduce, [](const KernelContext&, const GradNormReduceArgs& a) {
      std::fill_n(a.norms, a.count, 0.0);
      return norm_reduce_of(a, [](uint64_t n) { return n + 1; });
    }>("norm_takes_the_next_tensors_first_float"),
    wrong_kernel<GradNormReduce, [](const KernelContext& k, const GradNormReduceArgs& a) {
      const Status status = norm_reduce(k, a);
      a.norms[a.count] = 0;
      return status;
    }>("norm_writes_one_more_norm"),
    wrong_kernel<GradNormFinish, [](const KernelContext& k, const GradNormFinishArgs& a) {
      const Status status = norm_finish(k, a);
      if (a.scalars->clip_factor < 1) a.scalars->clip_factor = a.max_norm / a.scalars->gradient_norm;
      return status;
    }>("clip_without_the_small_number"),
    wrong_kernel<GradNormFinish, [](const KernelContext& k, const GradNormFinishArgs& a) {
      a.scalars->skip = 0;
      return norm_finish(k, a);
    }>("norm_forgets_a_skip"),
};

// A wrong kernel, and a function that returns the backend with all other kernels: plain_backend for
// the kernels of this file, and the CPU's backend for the wrong kernels of a family.
struct Mutant {
  WrongKernel wrong;
  Backend (*backend)();
};
std::vector<Mutant> mutants() {
  std::vector<Mutant> all;
  for (const WrongKernel& wrong : kMutants) all.push_back({wrong, plain_backend});
  for (const OpFamily* family : op_families()) {
    for (const WrongKernel& wrong : family->wrong_kernels)
      all.push_back({wrong, [] { return Backend(test_backend()); }});
  }
  return all;
}

class JudgeRejects : public ::testing::TestWithParam<Mutant> {};

TEST_P(JudgeRejects, Mutant) {
  const WrongKernel& wrong = GetParam().wrong;
  Backend backend = GetParam().backend();
  wrong.plant(backend);
  const auto rejects = [&](const KernelCase& c) {
    return c.op == wrong.op && c.pass == wrong.pass && !judge_all(backend, c).empty();
  };
  EXPECT_TRUE(std::ranges::any_of(kernel_cases(), rejects)) << "no case rejects " << wrong.name;
}
INSTANTIATE_TEST_SUITE_P(Wrong, JudgeRejects, ::testing::ValuesIn(mutants()),
                         [](const auto& info) { return info.param.wrong.name; });

// Tests the comparison itself: an error just above the tolerance must be detected.
TEST(Difference, RejectsJustBeyondTheTolerance) {
  ref::Expected expected{ref::Array({3}, 1.0), ref::Array({3}, 2.0), 16};
  const double tolerance = ref::kSafety * ref::kRounding * 4 * 2;
  EXPECT_EQ(difference("y", expected, {1, 1 + 0.99 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1 + 1.01 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1 - 1.01 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, std::nan(""), 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1}), "");
  double worst = 0;
  EXPECT_EQ(difference("y", expected, {1, 1 + 0.5 * tolerance, 1 - 0.75 * tolerance}, 0, &worst), "");
  EXPECT_NEAR(worst, 0.75, 1e-6);
  expected.terms = 0;
  EXPECT_NE(difference("y", expected, {1, 1 + 1e-15, 1}), "");
}

}  // namespace
}  // namespace reprise::test
