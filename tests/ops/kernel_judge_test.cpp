// Wrong kernels that the judge must reject, beside plain right ones that it must accept.
// Here because a judge that accepts everything proves nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/data_fault.h"
#include "tests/ops/kernel_judge.h"
#include "tests/ref/random.h"

namespace reprise::test {

void PrintTo(const KernelCase& c, std::ostream* out) { *out << c.id; }

namespace {

// ---- Plain kernels: right, slow, one thread unless said otherwise.

Status relu(const KernelContext&, const UnaryArgsOf<float>& a) {
  for (uint64_t i = 0; i < a.n; ++i) a.y[i] = a.x[i] > 0 ? a.x[i] : 0.0f;
  return ok_status();
}
Status relu_backward(const KernelContext&, const ActivationBackwardArgsOf<float>& a) {
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
void conv_with(const ConvForwardArgsOf<float>& a, int pad, uint32_t channels, bool cut = true) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  for (uint64_t i = 0; i < uint64_t{s.N} * s.P * s.Q * s.K; ++i) a.y[i] = 0;
  for_each_window_tap(s, pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t c = 0; c < channels; ++c) a.y[row * s.K + k] += normalised(a.norm, a.x[pixel * s.C + c], c, cut) * a.w.f32()[(k * taps + tap) * s.C + c];
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
// Statistics of y but for its last `left_out` rows, where they are wanted.
Status statistics_of_conv(const KernelContext& k, const ConvForwardArgsOf<float>& a, uint64_t left_out = 0) {
  if (a.mean == nullptr) return ok_status();
  return statistics(k, {a.mean, a.rstd, a.y, nullptr, 0, uint64_t{a.shape.N} * a.shape.P * a.shape.Q - left_out, a.shape.K, a.shape.window.epsilon});
}
Status conv(const KernelContext& k, const ConvForwardArgsOf<float>& a) {
  conv_with(a, a.shape.window.pad, a.shape.C);
  return statistics_of_conv(k, a);
}
void conv_weight_with(const ConvBackwardWeightArgsOf<float>& a, bool accumulate) {
  const ConvShape& s = a.shape;
  const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
  for (uint64_t i = 0; !accumulate && i < s.K * taps * s.C; ++i) a.dw[i] = 0;
  for_each_window_tap(s, s.window.pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
    for (uint32_t k = 0; k < s.K; ++k)
      for (uint32_t c = 0; c < s.C; ++c) a.dw[(k * taps + tap) * s.C + c] += a.dy[row * s.K + k] * normalised(a.norm, a.x[pixel * s.C + c], c);
  });
}
Status conv_weight(const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
  conv_weight_with(a, a.accumulate_dw);
  return ok_status();
}

// dx from sums over all rows; where there is a beta, dy counts where relu's input is positive, or what `passes` says.
bool passes_relu(float y, float) { return y > 0; }
void norm_backward_with(const BatchNormBackwardArgsOf<float>& a, bool (*passes)(float y, float dy)) {
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
Status norm_backward(const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
  norm_backward_with(a, passes_relu);
  return ok_status();
}

Status norm_add_relu(const KernelContext&, const NormAddReluArgsOf<float>& a) {
  for (uint64_t i = 0; i < a.M * a.C; ++i) {
    const float y = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C), false) + a.b[i];
    a.y[i] = y > 0 ? y : 0.0f;
  }
  return ok_status();
}

// Two tasks sum half of the rows each into scratch; the partials are added in fixed order.
void bias_with(const KernelContext& context, const LinearBackwardBiasArgsOf<float>& a, uint32_t tasks, bool clear, bool accumulate) {
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

void max_pool_with(const MaxPoolForwardArgsOf<float>& a, float padding, bool last_wins) {
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
Status max_pool(const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
  max_pool_with(a, -std::numeric_limits<float>::infinity(), false);
  return ok_status();
}

void dropout_with(const DropoutArgsOf<float>& a, uint32_t stream, uint32_t step) {
  StepScalars scalars = *a.scalars;
  scalars.step = step;
  for (uint64_t i = 0; i < a.n; ++i) {
    a.y[i] = static_cast<float>(a.x[i] * ref::dropout_factor(scalars, stream, i, a.dropout.probability));
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
      const float position = a.positions.data != nullptr ? a.positions.f32()[i % a.T * a.C + c] : 0.0f;
      a.y[i * a.C + c] = a.table.f32()[static_cast<uint64_t>(a.tokens[i]) * a.C + c] + position;
    }
  }
  return ok_status();
}

// ---- attention, each row of weights by itself; the seams are whose keys a head reads and where a position's past begins ----

struct PlainHead {
  uint32_t D, row;          // floats of a position's q, k and v together
  const float *q, *k, *v;   // of position 0
};
PlainHead plain_head(const AttentionForwardArgsOf<float>& a, uint32_t b, uint32_t h, uint32_t shared) {
  const uint32_t heads = a.attention.heads, kv_heads = a.attention.kv_heads, D = a.C / heads, row = (heads + 2 * kv_heads) * D;
  const float* start = a.qkv + uint64_t{b} * a.T * row;
  return {D, row, start + h * D, start + (heads + shared) * D, start + (heads + kv_heads + shared) * D};
}
double plain_score(const PlainHead& head, uint32_t t, uint32_t s) {
  double sum = 0;
  for (uint32_t d = 0; d < head.D; ++d) sum += double{head.q[t * head.row + d]} * head.k[s * head.row + d];
  return sum / std::sqrt(static_cast<double>(head.D));
}
template <typename Shared, typename First>
Status attention_with(const KernelContext& k, const AttentionForwardArgsOf<float>& a, const Shared& shared, const First& first) {
  const uint32_t heads = a.attention.heads;
  for (uint32_t i = 0; a.document_start != nullptr && i < a.B * a.T; ++i) {
    const int32_t start = a.document_start[i];
    if (start >= 0 && start <= static_cast<int32_t>(i % a.T)) continue;
    note_fault(k, DataFault::kDocument, i);
    return ok_status();
  }
  for (uint32_t row = 0; row < a.B * heads * a.T; ++row) {
    const uint32_t t = row % a.T, h = row / a.T % heads, b = row / a.T / heads;
    const PlainHead head = plain_head(a, b, h, shared(h));
    const uint32_t from = first(a.document_start == nullptr ? 0 : static_cast<uint32_t>(a.document_start[b * a.T + t]), t);
    double sum = 0;
    std::vector<double> y(head.D);
    for (uint32_t s = from; s <= t; ++s) {
      const double weight = std::exp(plain_score(head, t, s));
      const double factor = ref::dropout_factor(*a.scalars, a.attention.stream, uint64_t{row} * a.T + s, a.attention.dropout);
      sum += weight;
      for (uint32_t d = 0; d < head.D; ++d) y[d] += factor * weight * head.v[s * head.row + d];
    }
    a.lse[row] = static_cast<float>(std::log(sum));
    for (uint32_t d = 0; d < head.D; ++d) a.y[(uint64_t{b} * a.T + t) * a.C + h * head.D + d] = static_cast<float>(y[d] / sum);
  }
  return ok_status();
}
uint32_t from_start(uint32_t start, uint32_t) { return start; }
Status attention(const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
  return attention_with(k, a, [&](uint32_t h) { return h / (a.attention.heads / a.attention.kv_heads); }, from_start);
}


// The backward by the CPU's kernel for heads that share nothing: qkv is spread out, so that every head has keys and values of its own,
// and the gradients of what is shared are added up, of the heads that `counts` says.
template <typename Counts>
Status attention_backward_with(const KernelContext& k, const AttentionBackwardArgsOf<float>& a, const Counts& counts) {
  const uint32_t heads = a.attention.heads, kv_heads = a.attention.kv_heads, D = a.C / heads, group = heads / kv_heads;
  const uint64_t rows = uint64_t{a.B} * a.T, narrow = uint64_t{heads + 2 * kv_heads} * D, wide = uint64_t{3} * a.C;
  const auto for_each_column = [&](const auto& f) {  // f(part, head, wide column, narrow column)
    for (uint32_t part = 0; part < 3; ++part)
      for (uint32_t h = 0; h < heads; ++h)
        for (uint32_t d = 0; d < D; ++d) {
          const uint32_t first = part == 0 ? h : heads + (part - 1) * kv_heads + h / group;
          f(part, h, (part * heads + h) * D + d, first * D + d);
        }
  };
  std::vector<float> qkv(rows * wide), dqkv(rows * wide), scratch(rows * heads + kAlignment);
  for (uint64_t i = 0; i < rows; ++i) {
    for_each_column([&](uint32_t, uint32_t, uint32_t to, uint32_t from) { qkv[i * wide + to] = a.qkv[i * narrow + from]; });
  }
  AttentionBackwardArgsOf<float> apart = a;
  apart.dqkv = dqkv.data(), apart.qkv = qkv.data(), apart.scratch = scratch.data(), apart.scratch_bytes = scratch.size() * sizeof(float);
  apart.attention.kv_heads = heads;
  const Status status = cpu_attention_backward<float>(k, apart);
  if (!status.ok()) return status;
  std::fill(a.dqkv, a.dqkv + rows * narrow, 0.0f);
  for (uint64_t i = 0; i < rows; ++i) {
    for_each_column([&](uint32_t part, uint32_t h, uint32_t from, uint32_t to) {
      if (part == 0 || counts(h % group, group)) a.dqkv[i * narrow + to] += dqkv[i * wide + from];
    });
  }
  return status;
}
Status attention_backward(const KernelContext& k, const AttentionBackwardArgsOf<float>& a) {
  return attention_backward_with(k, a, [](uint32_t, uint32_t) { return true; });
}
// With other starts of documents: move(start, t).
template <typename Move>
Status attention_backward_from(const KernelContext& k, const AttentionBackwardArgsOf<float>& a, const Move& move) {
  if (a.document_start == nullptr) return attention_backward(k, a);
  std::vector<int32_t> starts(a.document_start, a.document_start + uint64_t{a.B} * a.T);
  for (uint32_t i = 0; i < starts.size(); ++i) starts[i] = move(starts[i], static_cast<int32_t>(i % a.T));
  AttentionBackwardArgsOf<float> moved = a;
  moved.document_start = starts.data();
  return attention_backward(k, moved);
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
  rules.of<LinearBackwardBias>().scratch_bytes = [](const ShapedCall& c) { return 2 * c[LinearBackwardBias::kDb].elements() * sizeof(float); };
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
    plain<LinearBackwardBias, bias>(),
    plain<MaxPoolForward, max_pool>(),
    plain<DropoutForward, dropout>(),
    plain<DropoutBackward, dropout>(),
    plain<EmbeddingForward, embedding>(),
    plain<AttentionForward, attention>(),
    plain<AttentionBackward, attention_backward>(),
    plain<GradNormFinish, norm_finish>(),
};

Backend plain_backend() {
  Backend b{.rules = &kPlainRules, .kernel_set = [] { return "plain"; }};
  for (const PlainKernel& kernel : kPlainKernels) kernel.plant(b);
  return b;
}

bool has_plain_kernel(const KernelCase& c) {
  return std::any_of(std::begin(kPlainKernels), std::end(kPlainKernels),
                     [&](const PlainKernel& kernel) { return kernel.op == c.op && kernel.pass == c.pass; });
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
  Op op;
  Pass pass;
  void (*plant)(Backend&);
};
template <typename K, NamedKernel<K> wrong>
Mutant mutant(const char* name) {
  return {name, K::kInfo.op, K::kInfo.pass, [](Backend& backend) { backend.set<K, float, wrong>(); }};
}

const Mutant kMutants[] = {
    mutant<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      UnaryArgsOf<float> shorter = a;
      shorter.n -= 1;
      return relu(k, shorter);
    }>("relu_drops_the_last_element"),
    mutant<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      a.y[a.n] = 1;
      return relu(k, a);
    }>("relu_writes_past_the_end"),
    mutant<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      a.y[-1] = 1;
      return relu(k, a);
    }>("relu_writes_before_the_start"),
    mutant<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      const Status status = relu(k, a);
      const_cast<float*>(a.x)[0] = 5;
      return status;
    }>("relu_changes_its_input"),
    mutant<ReluForward, [](const KernelContext&, const UnaryArgsOf<float>&) {
      return ok_status();
    }>("relu_does_nothing"),
    mutant<ReluForward, [](const KernelContext& k, const UnaryArgsOf<float>& a) {
      const Status status = relu(k, a);
      return status.ok() ? Status{Code::kUnsupported, "", 0} : status;
    }>("relu_reports_an_error"),
    mutant<ReluBackward, [](const KernelContext& k, const ActivationBackwardArgsOf<float>& a) {
      if (a.dx != a.dy) return relu_backward(k, a);
      for (uint64_t i = 0; i < a.n; ++i) a.dx[i] = 0;
      return ok_status();
    }>("relu_backward_clears_before_it_reads"),
    mutant<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad + 1, a.shape.C);
      return statistics_of_conv(k, a);
    }>("conv_pads_one_too_many"),
    mutant<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad, a.shape.C > 500 ? a.shape.C - 1 : a.shape.C);
      return statistics_of_conv(k, a);
    }>("conv_drops_the_last_of_many_channels"),
    mutant<ConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad, a.shape.C);
      return statistics_of_conv(k, a, uint64_t{a.shape.P} * a.shape.Q > 1 ? 1 : 0);
    }>("conv_leaves_a_row_out_of_its_statistics"),
    mutant<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      ConvForwardArgsOf<float> without = a;
      without.shape.window.epsilon = 0;
      return conv(k, without);
    }>("conv_takes_its_statistics_without_epsilon"),
    mutant<ConvBackwardWeight, [](const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
      conv_weight_with(a, false);
      return ok_status();
    }>("conv_weight_forgets_to_accumulate"),
    mutant<ConvBackwardWeight, [](const KernelContext&, const ConvBackwardWeightArgsOf<float>& a) {
      conv_weight_with(a, true);
      return ok_status();
    }>("conv_weight_always_accumulates"),
    mutant<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      const ConvShape& s = a.shape;
      const uint64_t taps = uint64_t{s.window.kernel_h} * s.window.kernel_w;
      if (100 < taps * s.C) return conv(k, a);  // slow
      for (uint64_t row = 0; row < uint64_t{s.N} * s.P * s.Q; ++row)
        for (uint32_t o = 0; o < s.K; ++o) {
          a.y[row * s.K + o] = 0;
          for (uint64_t i = 0; i < taps * s.C; ++i) {
            a.y[row * s.K + o] += normalised(a.norm, 0, static_cast<uint32_t>(i % s.C)) * a.w.f32()[o * taps * s.C + i];
          }
        }
      for_each_window_tap(s, s.window.pad, [&](uint64_t row, uint64_t pixel, uint64_t tap) {
        for (uint32_t o = 0; o < s.K; ++o)
          for (uint32_t c = 0; c < s.C; ++c) {
            const float change = normalised(a.norm, a.x[pixel * s.C + c], c) - normalised(a.norm, 0, c);
            a.y[row * s.K + o] += change * a.w.f32()[(o * taps + tap) * s.C + c];
          }
      });
      return statistics_of_conv(k, a);
    }>("norm_conv_normalises_padding"),
    mutant<NormConvForward, [](const KernelContext& k, const ConvForwardArgsOf<float>& a) {
      conv_with(a, a.shape.window.pad, a.shape.C, false);
      return statistics_of_conv(k, a);
    }>("norm_conv_does_not_cut"),
    mutant<NormConvBackwardWeight, [](const KernelContext& k, const ConvBackwardWeightArgsOf<float>& a) {
      const std::vector<float> zeros(a.shape.C);
      ConvBackwardWeightArgsOf<float> without = a;
      without.norm.beta = zeros.data();
      return conv_weight(k, without);
    }>("norm_conv_forgets_beta"),
    mutant<NormConvBackwardWeight, [](const KernelContext& k, const ConvBackwardWeightArgsOf<float>& a) {
      ConvBackwardWeightArgsOf<float> plain = a;
      plain.norm = {};
      return conv_weight(k, plain);
    }>("norm_conv_reads_x"),
    mutant<NormReluBackward, [](const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
      norm_backward_with(a, [](float, float) { return true; });
      return ok_status();
    }>("norm_relu_passes_every_gradient"),
    mutant<NormReluBackward, [](const KernelContext&, const BatchNormBackwardArgsOf<float>& a) {
      norm_backward_with(a, [](float, float dy) { return dy > 0; });
      return ok_status();
    }>("norm_relu_cuts_the_gradient_by_its_own_sign"),
    mutant<NormAddReluForward, [](const KernelContext&, const NormAddReluArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.M * a.C; ++i) {
        a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C)) + a.b[i];
      }
      return ok_status();
    }>("norm_add_relu_cuts_before_it_adds"),
    mutant<NormAddReluForward, [](const KernelContext&, const NormAddReluArgsOf<float>& a) {
      for (uint64_t i = 0; i < a.M * a.C; ++i) {
        a.y[i] = normalised({a.mean, a.rstd, a.gamma, a.beta}, a.x[i], static_cast<uint32_t>(i % a.C));
      }
      return ok_status();
    }>("norm_add_relu_adds_nothing"),
    mutant<BatchNormStatistics, [](const KernelContext&, const BatchNormStatisticsArgsOf<float>& a) {
      const float M = static_cast<float>(a.M);
      for (uint32_t c = 0; c < a.C; ++c) {
        float sum = 0, squares = 0;
        for (uint64_t m = 0; m < a.M; ++m) sum += a.x[m * a.C + c], squares += a.x[m * a.C + c] * a.x[m * a.C + c];
        a.mean[c] = sum / M;
        a.rstd[c] = 1 / std::sqrt(std::max(0.0f, squares / M - a.mean[c] * a.mean[c]) + a.epsilon);
      }
      return ok_status();
    }>("variance_as_a_difference_of_means"),
    mutant<BatchNormStatistics, [](const KernelContext& k, const BatchNormStatisticsArgsOf<float>& a) {
      const Status status = statistics(k, a);
      for (uint32_t c = 0; c < a.C; ++c) a.rstd[c] *= std::sqrt(static_cast<float>(a.M - 1) / static_cast<float>(a.M));
      return status;
    }>("statistics_unbiased"),
    mutant<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, k.workers->count == 1 ? 1 : 2, true, a.accumulate_db);
      return ok_status();
    }>("bias_splits_by_the_number_of_workers"),
    mutant<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, 2, false, a.accumulate_db);
      return ok_status();
    }>("bias_believes_that_scratch_is_clear"),
    mutant<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      bias_with(k, a, 3, true, a.accumulate_db);
      return ok_status();
    }>("bias_needs_more_scratch_than_it_says"),
    mutant<LinearBackwardBias, [](const KernelContext& k, const LinearBackwardBiasArgsOf<float>& a) {
      const Status status = bias(k, a);
      uint32_t last = 0;
      parallel_for(*k.workers, 2, [&](uint32_t task) { last = task; });
      if (last == 0) a.db[0] = std::nextafter(a.db[0], 1e9f);
      return status;
    }>("bias_depends_on_the_order_of_tasks"),
    mutant<MaxPoolForward, [](const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
      max_pool_with(a, -std::numeric_limits<float>::infinity(), true);
      return ok_status();
    }>("max_pool_takes_the_last_maximum"),
    mutant<MaxPoolForward, [](const KernelContext&, const MaxPoolForwardArgsOf<float>& a) {
      max_pool_with(a, 0.0f, false);
      return ok_status();
    }>("max_pool_lets_padding_win"),
    mutant<DropoutForward, [](const KernelContext&, const DropoutArgsOf<float>& a) {
      dropout_with(a, a.dropout.stream + 1, a.scalars->step);
      return ok_status();
    }>("dropout_of_another_stream"),
    mutant<DropoutForward, [](const KernelContext&, const DropoutArgsOf<float>& a) {
      dropout_with(a, a.dropout.stream, 0);
      return ok_status();
    }>("dropout_of_another_step"),
    mutant<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      EmbeddingForwardArgsOf<float> wider = a;
      wider.V += 1;
      return embedding(k, wider);
    }>("embedding_accepts_the_first_token_past_the_table"),
    mutant<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      const Status status = embedding(k, a);
      if (k.scalars->fault.code != DataFault::kNone) ++k.scalars->fault.position;
      return status;
    }>("embedding_notes_the_token_behind_the_wrong_one"),
    mutant<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      const Status status = embedding(k, a);
      k.scalars->skip = 0;
      return status;
    }>("embedding_notes_a_fault_but_lets_the_update_run"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      return attention_with(k, a, [&](uint32_t h) { return h % a.attention.kv_heads; }, from_start);
    }>("attention_deals_heads_out_in_turn"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      return attention_with(k, a, [](uint32_t) { return 0u; }, from_start);
    }>("attention_shares_the_first_keys_among_all_heads"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      return attention_with(k, a, [&](uint32_t h) { return h / (a.attention.heads / a.attention.kv_heads); },
                            [](uint32_t start, uint32_t) { return start == 0 ? 0 : start - 1; });
    }>("attention_sees_the_last_position_of_the_document_before"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      return attention_with(k, a, [&](uint32_t h) { return h / (a.attention.heads / a.attention.kv_heads); },
                            [](uint32_t start, uint32_t t) { return start != 0 && start < t ? start + 1 : start; });
    }>("attention_misses_the_first_position_of_the_document"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      return attention_with(k, a, [&](uint32_t h) { return h / (a.attention.heads / a.attention.kv_heads); },
                            [](uint32_t start, uint32_t) { return start / 64 * 64; });
    }>("attention_sees_the_whole_tile_that_its_document_starts_in"),
    mutant<AttentionForward, [](const KernelContext& k, const AttentionForwardArgsOf<float>& a) {
      AttentionForwardArgsOf<float> one = a;
      one.document_start = nullptr;
      return attention(k, one);
    }>("attention_forgets_documents"),
    mutant<AttentionBackward, [](const KernelContext& k, const AttentionBackwardArgsOf<float>& a) {
      return attention_backward_with(k, a, [](uint32_t member, uint32_t group) { return member == group - 1; });
    }>("attention_backward_keeps_the_last_head_of_a_group"),
    mutant<AttentionBackward, [](const KernelContext& k, const AttentionBackwardArgsOf<float>& a) {
      return attention_backward_from(k, a, [](int32_t start, int32_t) { return start == 0 ? 0 : start - 1; });
    }>("attention_backward_sees_the_last_position_of_the_document_before"),
    mutant<AttentionBackward, [](const KernelContext& k, const AttentionBackwardArgsOf<float>& a) {
      return attention_backward_from(k, a, [](int32_t start, int32_t t) { return start != 0 && start < t ? start + 1 : start; });
    }>("attention_backward_misses_the_first_position_of_the_document"),
    mutant<AttentionBackward, [](const KernelContext& k, const AttentionBackwardArgsOf<float>& a) {
      return attention_backward_from(k, a, [](int32_t, int32_t) { return 0; });
    }>("attention_backward_forgets_documents"),
    mutant<GradNormFinish, [](const KernelContext& k, const GradNormFinishArgs& a) {
      const Status status = norm_finish(k, a);
      if (a.scalars->clip_factor < 1) a.scalars->clip_factor = a.max_norm / a.scalars->gradient_norm;
      return status;
    }>("clip_without_the_small_number"),
    mutant<GradNormFinish, [](const KernelContext& k, const GradNormFinishArgs& a) {
      a.scalars->skip = 0;
      return norm_finish(k, a);
    }>("norm_forgets_a_skip"),
};

class JudgeRejects : public ::testing::TestWithParam<Mutant> {};

TEST_P(JudgeRejects, Mutant) {
  Backend backend = plain_backend();
  GetParam().plant(backend);
  int cases = 0, rejected = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (c.op != GetParam().op || c.pass != GetParam().pass) continue;
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
