// Wrong kernels that the judge must reject, beside plain right ones that it must accept.
// Here because a judge that accepts everything proves nothing.
// It must not know the kernels of lib.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "lib/cpu/data_fault.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ref/random.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

// ---- Plain kernels: right, slow, one thread unless said otherwise.

Status relu(const KernelContext&, const UnaryArgs& a) {
  for (uint64_t i = 0; i < a.n; ++i) a.y[i] = a.x[i] > 0 ? a.x[i] : 0.0f;
  return ok_status();
}
Status relu_backward(const KernelContext&, const ActivationBackwardArgs& a) {
  for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = a.saved[i] > 0 ? a.dy[i] : 0.0f;
  return ok_status();
}

// `pad` apart from the window's own, and taps left out: the seams at which the mutants differ.
template <typename F>
void for_each_window_tap(const ConvShape& s, int pad, const F& f) {
  for (uint32_t n = 0; n < s.N; ++n)
    for (uint32_t p = 0; p < s.P; ++p)
      for (uint32_t q = 0; q < s.Q; ++q)
        for (uint32_t r = 0; r < s.window.kernel_h; ++r)
          for (uint32_t t = 0; t < s.window.kernel_w; ++t) {
            const long h = static_cast<long>(p * s.window.stride + r) - pad, w = static_cast<long>(q * s.window.stride + t) - pad;
            if (h < 0 || w < 0 || h >= static_cast<long>(s.H) || w >= static_cast<long>(s.W)) continue;
            const uint64_t row = (uint64_t{n} * s.P + p) * s.Q + q;
            const uint64_t pixel = (uint64_t{n} * s.H + static_cast<uint64_t>(h)) * s.W + static_cast<uint64_t>(w);
            f(row, pixel, r * s.window.kernel_w + t);
          }
}
// Channel c of what lies at x; rectified only where there is a norm, and `cut` says so.
float normalised(const InputNorm& norm, float x, uint32_t c, bool cut = true) {
  if (norm.mean == nullptr) return x;
  const float a = (x - norm.mean[c]) * (norm.rstd[c] * norm.gamma[c]) + norm.beta[c];
  return cut && a <= 0 ? 0.0f : a;
}
void conv_with(const ConvForwardArgs& a, int pad, uint32_t channels, bool cut = true) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  for (uint64_t i = 0; i < uint64_t{s.N} * s.P * s.Q * s.K; ++i) a.y[i] = 0;
  for_each_window_tap(s, pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t c = 0; c < channels; ++c) a.y[row * s.K + k] += normalised(a.norm, a.x[pixel * s.C + c], c, cut) * a.w[(k * taps + tap) * s.C + c];
  });
}
Status statistics(const KernelContext&, const BatchNormStatisticsArgs& a) {
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
// Statistics of y but for its last `left_out` rows, where they are wanted.
Status statistics_of_conv(const KernelContext& k, const ConvForwardArgs& a, uint64_t left_out = 0) {
  if (a.mean == nullptr) return ok_status();
  return statistics(k, {a.mean, a.rstd, a.y, nullptr, 0, uint64_t{a.shape.N} * a.shape.P * a.shape.Q - left_out, a.shape.K, a.shape.window.epsilon});
}
Status conv(const KernelContext& k, const ConvForwardArgs& a) {
  conv_with(a, a.shape.window.pad, a.shape.C);
  return statistics_of_conv(k, a);
}
void conv_weight_with(const ConvBackwardWeightArgs& a, bool accumulate) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  for (uint64_t i = 0; !accumulate && i < s.K * taps * s.C; ++i) a.dw[i] = 0;
  for_each_window_tap(s, s.window.pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t c = 0; c < s.C; ++c) a.dw[(k * taps + tap) * s.C + c] += a.dy[row * s.K + k] * normalised(a.norm, a.x[pixel * s.C + c], c);
  });
}
Status conv_weight(const KernelContext&, const ConvBackwardWeightArgs& a) {
  conv_weight_with(a, a.accumulate_dw);
  return ok_status();
}

// dx from sums over all rows; where there is a beta, dy counts where relu's input is positive, or what `passes` says.
bool passes_relu(float y, float) { return y > 0; }
void norm_backward_with(const BatchNormBackwardArgs& a, bool (*passes)(float y, float dy)) {
  const double M = static_cast<double>(a.M);
  for (uint32_t c = 0; c < a.C; ++c) {
    const InputNorm norm{a.mean, a.rstd, a.gamma, a.beta};
    const auto dy = [&](uint64_t i) { return a.beta == nullptr || passes(normalised(norm, a.x[i], c, false), a.dy[i]) ? a.dy[i] : 0.0f; };
    double sum = 0, product = 0;
    for (uint64_t i = c; i < a.M * a.C; i += a.C) sum += dy(i), product += double{dy(i)} * (double{a.x[i]} - a.mean[c]) * a.rstd[c];
    for (uint64_t i = c; i < a.M * a.C; i += a.C) {
      const double x = (double{a.x[i]} - a.mean[c]) * a.rstd[c];
      a.dx[i] = static_cast<float>(double{a.gamma[c]} * a.rstd[c] * (dy(i) - sum / M - x * product / M));
    }
    if (a.dgamma != nullptr) a.dgamma[c] = static_cast<float>(product) + (a.accumulate_dgamma ? a.dgamma[c] : 0.0f);
    if (a.dbeta != nullptr) a.dbeta[c] = static_cast<float>(sum) + (a.accumulate_dbeta ? a.dbeta[c] : 0.0f);
  }
}
Status norm_backward(const KernelContext&, const BatchNormBackwardArgs& a) {
  norm_backward_with(a, passes_relu);
  return ok_status();
}

Status norm_add_relu(const KernelContext&, const NormAddReluArgs& a) {
  for (uint64_t i = 0; i < a.M * a.C; ++i) {
    const float y = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C), false) + a.b[i];
    a.y[i] = y > 0 ? y : 0.0f;
  }
  return ok_status();
}

// Two tasks sum half of the rows each into scratch; the partials are added in fixed order.
void bias_with(const KernelContext& context, const LinearBackwardBiasArgs& a, uint32_t tasks, bool clear, bool accumulate) {
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
Status bias(const KernelContext& context, const LinearBackwardBiasArgs& a) {
  bias_with(context, a, 2, true, a.accumulate_db);
  return ok_status();
}

void max_pool_with(const MaxPoolForwardArgs& a, float padding, bool last_wins) {
  const PoolShape& s = a.shape;
  const ConvShape shape{s.N, s.H, s.W, s.C, s.P, s.Q, s.C, s.window};
  for (uint64_t i = 0; i < uint64_t{s.N} * s.P * s.Q * s.C; ++i) a.y[i] = padding, a.index[i] = 0;
  for_each_window_tap(shape, s.window.pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t c = 0; c < s.C; ++c) {
      const float x = a.x[pixel * s.C + c], best = a.y[row * s.C + c];
      if (!(last_wins ? x >= best : x > best)) continue;
      a.y[row * s.C + c] = x;
      a.index[row * s.C + c] = static_cast<uint8_t>(tap);
    }
  });
}
Status max_pool(const KernelContext&, const MaxPoolForwardArgs& a) {
  max_pool_with(a, -std::numeric_limits<float>::infinity(), false);
  return ok_status();
}

void dropout_with(const DropoutArgs& a, uint32_t stream, uint32_t step) {
  StepScalars scalars = *a.scalars;
  scalars.step = step;
  for (uint64_t i = 0; i < a.n; ++i) {
    a.y[i] = static_cast<float>(a.x[i] * ref::dropout_factor(scalars, stream, i, a.dropout.probability));
  }
}
Status dropout(const KernelContext&, const DropoutArgs& a) {
  dropout_with(a, a.dropout.stream, a.scalars->step);
  return ok_status();
}

Status embedding(const KernelContext& context, const EmbeddingForwardArgs& a) {
  for (uint64_t i = 0; i < uint64_t{a.B} * a.T; ++i) {
    if (a.tokens[i] < 0 || a.tokens[i] >= static_cast<int64_t>(a.V)) {
      note_fault(context, DataFault::kToken, i);
      return ok_status();
    }
    for (uint32_t c = 0; c < a.C; ++c) {
      const float position = a.positions != nullptr ? a.positions[i % a.T * a.C + c] : 0.0f;
      a.y[i * a.C + c] = a.table[static_cast<uint64_t>(a.tokens[i]) * a.C + c] + position;
    }
  }
  return ok_status();
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

uint64_t scratch_rule(Op op, Pass pass, const Tensor* const* tensors) {
  return op == Op::kLinear && pass == Pass::kBackwardBias ? 2 * tensors[0]->elements() * sizeof(float) : 0;
}

Backend plain_backend() {
  Backend b{};
  b.name = "plain";
  b.scratch_bytes = scratch_rule;
  b.relu_forward = relu;
  b.relu_backward = relu_backward;
  b.conv_forward = conv;
  b.conv_backward_weight = conv_weight;
  b.batch_norm_statistics = statistics;
  b.batch_norm_backward = norm_backward;
  b.norm_add_relu_forward = norm_add_relu;
  b.linear_backward_bias = bias;
  b.max_pool_forward = max_pool;
  b.dropout = dropout;
  b.embedding_forward = embedding;
  b.grad_norm_finish = norm_finish;
  return b;
}

bool has_plain_kernel(const KernelCase& c) {
  const std::string name = c.info().name;
  for (const char* known : {"relu.forward", "relu.backward", "conv.forward", "conv.backward_weight", "norm_conv.forward",
                            "norm_conv.backward_weight", "norm_relu.backward", "norm_add_relu.forward", "batch_norm.statistics", "linear.backward_bias", "max_pool.forward", "dropout.forward", "dropout.backward", "embedding.forward",
                            "grad_norm.finish"}) {
    if (name == known) return true;
  }
  return false;
}

// Everything the judge says of a backend on the cases of one kernel.
std::string judge_all(const Backend& backend, const KernelCase& c) {
  std::string fault = judge_reference(backend, c) + judge_workers(backend, c);
  if (has_in_place(c)) fault += judge_in_place(backend, c);
  if (c.accumulate != 0) fault += judge_accumulate(backend, c);
  return fault;
}

TEST(Judge, AcceptsPlainKernels) {
  for (const KernelCase& c : kernel_cases()) {
    if (has_plain_kernel(c)) {
      EXPECT_EQ(judge_all(plain_backend(), c), "") << c.id;
    }
  }
}

struct Mutant {
  const char* name;
  const char* kernel;
  void (*break_it)(Backend&);
};

const Mutant kMutants[] = {
    {"relu_drops_the_last_element", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext& k, const UnaryArgs& a) {
         UnaryArgs shorter = a;
         shorter.n -= 1;
         return relu(k, shorter);
       };
     }},
    {"relu_writes_past_the_end", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext& k, const UnaryArgs& a) {
         a.y[a.n] = 1;
         return relu(k, a);
       };
     }},
    {"relu_writes_before_the_start", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext& k, const UnaryArgs& a) {
         a.y[-1] = 1;
         return relu(k, a);
       };
     }},
    {"relu_changes_its_input", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext& k, const UnaryArgs& a) {
         const Status status = relu(k, a);
         const_cast<float*>(a.x)[0] = 5;
         return status;
       };
     }},
    {"relu_does_nothing", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext&, const UnaryArgs&) { return ok_status(); };
     }},
    {"relu_reports_an_error", "relu.forward", [](Backend& b) {
       b.relu_forward = [](const KernelContext& k, const UnaryArgs& a) {
         const Status status = relu(k, a);
         return status.ok() ? Status{Code::kUnsupported, "", 0} : status;
       };
     }},
    {"relu_backward_clears_before_it_reads", "relu.backward", [](Backend& b) {
       b.relu_backward = [](const KernelContext& k, const ActivationBackwardArgs& a) {
         if (a.dx != a.dy) return relu_backward(k, a);
         for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = 0;
         return ok_status();
       };
     }},
    {"conv_pads_one_too_many", "conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         conv_with(a, a.shape.window.pad + 1, a.shape.C);
         return statistics_of_conv(k, a);
       };
     }},
    {"conv_drops_the_last_of_many_channels", "conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         conv_with(a, a.shape.window.pad, a.shape.C > 500 ? a.shape.C - 1 : a.shape.C);
         return statistics_of_conv(k, a);
       };
     }},
    {"conv_leaves_a_row_out_of_its_statistics", "conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         conv_with(a, a.shape.window.pad, a.shape.C);
         return statistics_of_conv(k, a, uint64_t{a.shape.P} * a.shape.Q > 1 ? 1 : 0);
       };
     }},
    {"conv_takes_its_statistics_without_epsilon", "norm_conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         ConvForwardArgs without = a;
         without.shape.window.epsilon = 0;
         return conv(k, without);
       };
     }},
    {"conv_weight_forgets_to_accumulate", "conv.backward_weight", [](Backend& b) {
       b.conv_backward_weight = [](const KernelContext&, const ConvBackwardWeightArgs& a) {
         conv_weight_with(a, false);
         return ok_status();
       };
     }},
    {"conv_weight_always_accumulates", "conv.backward_weight", [](Backend& b) {
       b.conv_backward_weight = [](const KernelContext&, const ConvBackwardWeightArgs& a) {
         conv_weight_with(a, true);
         return ok_status();
       };
     }},
    {"norm_conv_normalises_padding", "norm_conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         const ConvShape& s = a.shape;
         const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
         if (taps * s.C > 100) return conv(k, a);  // slow
         for (uint64_t row = 0; row < uint64_t{s.N} * s.P * s.Q; ++row)
           for (uint32_t o = 0; o < s.K; ++o) {
             a.y[row * s.K + o] = 0;
             for (uint64_t i = 0; i < taps * s.C; ++i) {
               a.y[row * s.K + o] += normalised(a.norm, 0, static_cast<uint32_t>(i % s.C)) * a.w[o * taps * s.C + i];
             }
           }
         for_each_window_tap(s, s.window.pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
           for (uint32_t o = 0; o < s.K; ++o)
             for (uint32_t c = 0; c < s.C; ++c) {
               const float change = normalised(a.norm, a.x[pixel * s.C + c], c) - normalised(a.norm, 0, c);
               a.y[row * s.K + o] += change * a.w[(o * taps + tap) * s.C + c];
             }
         });
         return statistics_of_conv(k, a);
       };
     }},
    {"norm_conv_does_not_cut", "norm_conv.forward", [](Backend& b) {
       b.conv_forward = [](const KernelContext& k, const ConvForwardArgs& a) {
         conv_with(a, a.shape.window.pad, a.shape.C, false);
         return statistics_of_conv(k, a);
       };
     }},
    {"norm_conv_forgets_beta", "norm_conv.backward_weight", [](Backend& b) {
       b.conv_backward_weight = [](const KernelContext& k, const ConvBackwardWeightArgs& a) {
         const std::vector<float> zeros(a.shape.C);
         ConvBackwardWeightArgs without = a;
         without.norm.beta = zeros.data();
         return conv_weight(k, without);
       };
     }},
    {"norm_conv_reads_x", "norm_conv.backward_weight", [](Backend& b) {
       b.conv_backward_weight = [](const KernelContext& k, const ConvBackwardWeightArgs& a) {
         ConvBackwardWeightArgs plain = a;
         plain.norm = {};
         return conv_weight(k, plain);
       };
     }},
    {"norm_relu_passes_every_gradient", "norm_relu.backward", [](Backend& b) {
       b.batch_norm_backward = [](const KernelContext&, const BatchNormBackwardArgs& a) {
         norm_backward_with(a, [](float, float) { return true; });
         return ok_status();
       };
     }},
    {"norm_relu_cuts_the_gradient_by_its_own_sign", "norm_relu.backward", [](Backend& b) {
       b.batch_norm_backward = [](const KernelContext&, const BatchNormBackwardArgs& a) {
         norm_backward_with(a, [](float, float dy) { return dy > 0; });
         return ok_status();
       };
     }},
    {"norm_add_relu_cuts_before_it_adds", "norm_add_relu.forward", [](Backend& b) {
       b.norm_add_relu_forward = [](const KernelContext&, const NormAddReluArgs& a) {
         for (uint64_t i = 0; i < a.M * a.C; ++i) {
           a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C)) + a.b[i];
         }
         return ok_status();
       };
     }},
    {"norm_add_relu_adds_nothing", "norm_add_relu.forward", [](Backend& b) {
       b.norm_add_relu_forward = [](const KernelContext&, const NormAddReluArgs& a) {
         for (uint64_t i = 0; i < a.M * a.C; ++i) {
           a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C));
         }
         return ok_status();
       };
     }},
    {"variance_as_a_difference_of_means", "batch_norm.statistics", [](Backend& b) {
       b.batch_norm_statistics = [](const KernelContext&, const BatchNormStatisticsArgs& a) {
         const float M = static_cast<float>(a.M);
         for (uint32_t c = 0; c < a.C; ++c) {
           float sum = 0, squares = 0;
           for (uint64_t m = 0; m < a.M; ++m) sum += a.x[m * a.C + c], squares += a.x[m * a.C + c] * a.x[m * a.C + c];
           a.mean[c] = sum / M;
           a.rstd[c] = 1 / std::sqrt(std::max(0.0f, squares / M - a.mean[c] * a.mean[c]) + a.epsilon);
         }
         return ok_status();
       };
     }},
    {"statistics_unbiased", "batch_norm.statistics", [](Backend& b) {
       b.batch_norm_statistics = [](const KernelContext& k, const BatchNormStatisticsArgs& a) {
         const Status status = statistics(k, a);
         for (uint32_t c = 0; c < a.C; ++c) a.rstd[c] *= std::sqrt(static_cast<float>(a.M - 1) / static_cast<float>(a.M));
         return status;
       };
     }},
    {"bias_splits_by_the_number_of_workers", "linear.backward_bias", [](Backend& b) {
       b.linear_backward_bias = [](const KernelContext& k, const LinearBackwardBiasArgs& a) {
         bias_with(k, a, k.workers->count == 1 ? 1 : 2, true, a.accumulate_db);
         return ok_status();
       };
     }},
    {"bias_believes_that_scratch_is_clear", "linear.backward_bias", [](Backend& b) {
       b.linear_backward_bias = [](const KernelContext& k, const LinearBackwardBiasArgs& a) {
         bias_with(k, a, 2, false, a.accumulate_db);
         return ok_status();
       };
     }},
    {"bias_needs_more_scratch_than_it_says", "linear.backward_bias", [](Backend& b) {
       b.linear_backward_bias = [](const KernelContext& k, const LinearBackwardBiasArgs& a) {
         bias_with(k, a, 3, true, a.accumulate_db);
         return ok_status();
       };
     }},
    {"bias_depends_on_the_order_of_tasks", "linear.backward_bias", [](Backend& b) {
       b.linear_backward_bias = [](const KernelContext& k, const LinearBackwardBiasArgs& a) {
         const Status status = bias(k, a);
         uint32_t last = 0;
         parallel_for(*k.workers, 2, [&](uint32_t task) { last = task; });
         if (last == 0) a.db[0] = std::nextafter(a.db[0], 1e9f);
         return status;
       };
     }},
    {"max_pool_takes_the_last_maximum", "max_pool.forward", [](Backend& b) {
       b.max_pool_forward = [](const KernelContext&, const MaxPoolForwardArgs& a) {
         max_pool_with(a, -std::numeric_limits<float>::infinity(), true);
         return ok_status();
       };
     }},
    {"max_pool_lets_padding_win", "max_pool.forward", [](Backend& b) {
       b.max_pool_forward = [](const KernelContext&, const MaxPoolForwardArgs& a) {
         max_pool_with(a, 0.0f, false);
         return ok_status();
       };
     }},
    {"dropout_of_another_stream", "dropout.forward", [](Backend& b) {
       b.dropout = [](const KernelContext&, const DropoutArgs& a) {
         dropout_with(a, a.dropout.stream + 1, a.scalars->step);
         return ok_status();
       };
     }},
    {"dropout_of_another_step", "dropout.forward", [](Backend& b) {
       b.dropout = [](const KernelContext&, const DropoutArgs& a) {
         dropout_with(a, a.dropout.stream, 0);
         return ok_status();
       };
     }},
    {"embedding_notes_the_token_behind_the_wrong_one", "embedding.forward", [](Backend& b) {
       b.embedding_forward = [](const KernelContext& k, const EmbeddingForwardArgs& a) {
         const Status status = embedding(k, a);
         if (k.scalars->fault.code != DataFault::kNone) ++k.scalars->fault.position;
         return status;
       };
     }},
    {"embedding_notes_a_fault_but_lets_the_update_run", "embedding.forward", [](Backend& b) {
       b.embedding_forward = [](const KernelContext& k, const EmbeddingForwardArgs& a) {
         const Status status = embedding(k, a);
         k.scalars->skip = 0;
         return status;
       };
     }},
    {"embedding_accepts_the_first_token_past_the_table", "embedding.forward", [](Backend& b) {
       b.embedding_forward = [](const KernelContext& k, const EmbeddingForwardArgs& a) {
         EmbeddingForwardArgs wider = a;
         wider.V += 1;
         return embedding(k, wider);
       };
     }},
    {"clip_without_the_small_number", "grad_norm.finish", [](Backend& b) {
       b.grad_norm_finish = [](const KernelContext& k, const GradNormFinishArgs& a) {
         const Status status = norm_finish(k, a);
         if (a.scalars->clip_factor < 1) a.scalars->clip_factor = a.max_norm / a.scalars->gradient_norm;
         return status;
       };
     }},
    {"norm_forgets_a_skip", "grad_norm.finish", [](Backend& b) {
       b.grad_norm_finish = [](const KernelContext& k, const GradNormFinishArgs& a) {
         a.scalars->skip = 0;
         return norm_finish(k, a);
       };
     }},
};

class JudgeRejects : public ::testing::TestWithParam<Mutant> {};

TEST_P(JudgeRejects, Mutant) {
  Backend backend = plain_backend();
  GetParam().break_it(backend);
  int cases = 0, rejected = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (c.info().name != std::string(GetParam().kernel)) continue;
    ++cases;
    rejected += !judge_all(backend, c).empty();
  }
  EXPECT_GT(rejected, 0) << "none of " << cases << " cases rejects " << GetParam().name;
}
INSTANTIATE_TEST_SUITE_P(Wrong, JudgeRejects, ::testing::ValuesIn(kMutants), [](const auto& info) { return info.param.name; });

// The comparison itself: one element in error by a little more than the tolerance.
TEST(Difference, RejectsJustBeyondTheTolerance) {
  ref::Expected expected{ref::Array({3}, 1.0), ref::Array({3}, 2.0), 16};
  const double tolerance = ref::kSafety * ref::kRounding * 4 * 2;
  EXPECT_EQ(difference("y", expected, {1, 1 + 0.99 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1 + 1.01 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1 - 1.01 * tolerance, 1}), "");
  EXPECT_NE(difference("y", expected, {1, std::nan(""), 1}), "");
  EXPECT_NE(difference("y", expected, {1, 1}), "");
  expected.terms = 0;
  EXPECT_NE(difference("y", expected, {1, 1 + 1e-15, 1}), "");
}

}  // namespace
}  // namespace reprise::test
