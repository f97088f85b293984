// The optimizers SGD, AdamW and Lion, with every storage type of parameters and moments: cases,
// data, reference and wrong kernels.
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

struct UpdateStep {
  double learning_rate, clip_factor;
  double weight_decay, momentum, beta1, beta2, epsilon;
  bool nesterov;
  double step;  // counts from 1
};
// A parameter and its moments after the update, and the magnitudes of the terms of each.
struct UpdatedElement {
  double p, m, v;
  double p_magnitude, m_magnitude, v_magnitude;
};

// Returns one element after a step of torch.optim.SGD without dampening.
UpdatedElement sgd(const UpdateStep& u, double p, double m, double gradient) {
  const double g = u.clip_factor * gradient + u.weight_decay * p;
  const double g_magnitude = std::abs(u.clip_factor * gradient) + std::abs(u.weight_decay * p);
  UpdatedElement out{};
  out.m = u.momentum * m + g;
  out.m_magnitude = std::abs(u.momentum * m) + g_magnitude;
  out.p = p - u.learning_rate * (u.nesterov ? g + u.momentum * out.m : out.m);
  out.p_magnitude = std::abs(p) + u.learning_rate * (g_magnitude + out.m_magnitude);
  return out;
}

// Returns one element after a step of torch.optim.AdamW (Loshchilov & Hutter 2019) without amsgrad.
UpdatedElement adamw(const UpdateStep& u, double p, double m, double v, double gradient) {
  const double g = u.clip_factor * gradient;
  UpdatedElement out{};
  out.m = u.beta1 * m + (1 - u.beta1) * g;
  out.m_magnitude = std::abs(u.beta1 * m) + std::abs((1 - u.beta1) * g);
  out.v = u.beta2 * v + (1 - u.beta2) * g * g;
  out.v_magnitude = out.v;
  const double mean = out.m / (1 - std::pow(u.beta1, u.step));
  const double root = std::sqrt(out.v / (1 - std::pow(u.beta2, u.step))) + u.epsilon;
  out.p = p - u.learning_rate * u.weight_decay * p - u.learning_rate * mean / root;
  out.p_magnitude = std::abs(p) + u.learning_rate * out.m_magnitude / (1 - std::pow(u.beta1, u.step)) / root;
  return out;
}

// Returns one element after a step of Lion (Chen et al. 2023, algorithm 2).
UpdatedElement lion(const UpdateStep& u, double p, double m, double gradient) {
  const double g = u.clip_factor * gradient, mean = u.beta1 * m + (1 - u.beta1) * g;
  UpdatedElement out{};
  out.p = p - u.learning_rate * ((mean > 0) - (mean < 0) + u.weight_decay * p);
  out.p_magnitude = std::abs(p) + u.learning_rate * (1 + u.weight_decay * std::abs(p));
  out.m = u.beta2 * m + (1 - u.beta2) * g;
  out.m_magnitude = std::abs(m) + (1 - u.beta2) * std::abs(g);
  return out;
}

// ---- cases ----

constexpr float kRate = 0.75f;  // factor of the learning rate in each update
constexpr uint32_t kStream = 5;

// Returns the constants for a group of one tensor.
UpdateAttribute constants_of(uint32_t n, float weight_decay) {
  UpdateAttribute update{};
  update.group = {1, 0, n};
  update.weight_decay = weight_decay;
  update.epsilon = 1e-8f;
  update.rate = kRate;
  update.stream = kStream;
  return update;
}

// The storage types of a case's parameters and moments. If moments are stored in codes, second
// moments have codes of their own.
struct StateTypes {
  DType parameters = DType::kF32, moments = DType::kF32;

  DType second() const { return moments == DType::kDynamic8 ? DType::kDynamic8Square : moments; }
  std::string name() const {
    const bool plain = parameters == DType::kF32 && moments == DType::kF32;
    return plain ? "" : std::string("_") + dtype_info(parameters).name + "_with_" + dtype_info(moments).name;
  }
};

void add_sgd(CaseTable& table, uint32_t n, float weight_decay, float momentum, bool nesterov, const char* name,
             CaseValues data = CaseValues::kPlain, const StateTypes& types = {}) {
  const auto p = shaped({n}, types.parameters), g = shaped({n});
  const auto m = momentum != 0 ? shaped({n}, types.moments) : std::nullopt;
  UpdateAttribute update = constants_of(n, weight_decay);
  update.momentum = momentum;
  update.nesterov = nesterov;
  using A = SgdUpdate;
  table
      .add<A>("n" + str(n) + name + types.name(),
              {{A::kParameters, p}, {A::kMomenta, m}, {A::kGradients, g}, {A::kScalars, scalars_tensor()}}, update)
      .data = data;
}
void add_adamw(CaseTable& table, uint32_t n, float weight_decay, const char* name, CaseValues data = CaseValues::kPlain,
               const StateTypes& types = {}) {
  const auto p = shaped({n}, types.parameters), m = shaped({n}, types.moments), v = shaped({n}, types.second());
  UpdateAttribute update = constants_of(n, weight_decay);
  update.beta1 = 0.9f;
  update.beta2 = 0.999f;
  update.epsilon = 1e-8f;
  using A = AdamWUpdate;
  table
      .add<A>("n" + str(n) + name + types.name(),
              {{A::kParameters, p},
               {A::kFirstMoments, m},
               {A::kSecondMoments, v},
               {A::kGradients, shaped({n})},
               {A::kScalars, scalars_tensor()}},
              update)
      .data = data;
}

void add_lion(CaseTable& table, uint32_t n, float weight_decay, const char* name, CaseValues data = CaseValues::kPlain,
              const StateTypes& types = {}) {
  const auto p = shaped({n}, types.parameters), m = shaped({n}, types.moments);
  UpdateAttribute update = constants_of(n, weight_decay);
  update.beta1 = 0.9;
  update.beta2 = 0.99;
  using A = LionUpdate;
  table
      .add<A>("n" + str(n) + name + types.name(),
              {{A::kParameters, p}, {A::kMomenta, m}, {A::kGradients, shaped({n})}, {A::kScalars, scalars_tensor()}},
              update)
      .data = data;
}

// Adds tensors with fewer elements than a block, with whole blocks, and with whole blocks and a
// partial block.
void add_stored(CaseTable& table, const StateTypes& types) {
  for (const uint32_t n : {67u, 512u, 20001u}) {
    add_sgd(table, n, 0.01f, 0.0f, false, "_plain", CaseValues::kPlain, types);
    add_sgd(table, n, 0.01f, 0.9f, true, "_nesterov_decay", CaseValues::kPlain, types);
    add_adamw(table, n, 0.01f, "_decay", CaseValues::kPlain, types);
    add_adamw(table, n, 0.01f, "_skip", CaseValues::kSkip, types);
    add_lion(table, n, 0.1f, "_decay", CaseValues::kPlain, types);
  }
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    for (const StateTypes& types : {StateTypes{},
                                    {DType::kF32, DType::kBf16},
                                    {DType::kF32, DType::kDynamic8},
                                    {DType::kBf16, DType::kDynamic8}}) {
      add_adamw(table, 1000000, 0.01f, "", CaseValues::kPlain, types);
    }
    return;
  }
  for (const DType moments : {DType::kF32, DType::kBf16, DType::kDynamic8}) {
    if (moments != DType::kF32) add_stored(table, {DType::kF32, moments});
    add_stored(table, {DType::kBf16, moments});
  }
  for (const uint32_t n : {1u, 67u, 10007u}) {
    add_sgd(table, n, 0.0f, 0.0f, false, "_plain");
    add_sgd(table, n, 0.01f, 0.0f, false, "_decay");
    add_sgd(table, n, 0.0f, 0.9f, false, "_momentum");
    add_sgd(table, n, 0.01f, 0.9f, true, "_nesterov_decay");
    add_sgd(table, n, 0.01f, 0.9f, true, "_skip", CaseValues::kSkip);
    add_adamw(table, n, 0.0f, "");
    add_adamw(table, n, 0.01f, "_decay");
    add_adamw(table, n, 0.01f, "_skip", CaseValues::kSkip);
    add_lion(table, n, 0.0f, "");
    add_lion(table, n, 0.1f, "_decay");
    add_lion(table, n, 0.1f, "_skip", CaseValues::kSkip);
  }
}

// ---- data ----

// Lion uses the sign of a mean of momentum and gradient. Makes every mean either exactly zero (at
// least one of five), or so large that rounding cannot change its sign.
void fit_lion(CaseDraft& draft) {
  Array &momenta = draft.value(LionUpdate::kMomenta), &gradients = draft.value(LionUpdate::kGradients);
  for (size_t i = 4; i < momenta.size(); i += 5) momenta(i) = 0;
  draft.round_stored(LionUpdate::kMomenta);
  for (size_t i = 0; i < momenta.size(); ++i) {
    double& g = gradients(i);
    if (momenta(i) == 0) {
      g = 0;
    } else if (std::abs(0.9 * momenta(i) + 0.1 * 0.625 * g) < 1e-3) {
      g = momenta(i) > 0 ? 1 : -1;
    }
  }
}
void fit_data(CaseDraft& draft) {
  if (draft.c.op == Op::kLion) return fit_lion(draft);
  if (draft.c.op != Op::kAdamW) return;
  for (double& v : draft.value(AdamWUpdate::kSecondMoments)) v = std::abs(v) < 0.05 ? 0.0 : as_f32(v * v);
}

// ---- results ----

// Sets the expected outputs. `updated` lists the arguments of p, m and v, as far as they exist.
// update(i) returns element i of all three.
template <typename Update>
void expect_updated(Oracle& o, const std::vector<uint32_t>& updated, const Update& update) {
  const Array& p = o.value(updated[0]);
  std::vector<Expected> next(3, {zeros_like(p), zeros_like(p), 12});
  for (size_t i = 0; i < p.size(); ++i) {
    const UpdatedElement e = update(i);
    next[0].value(i) = e.p, next[1].value(i) = e.m, next[2].value(i) = e.v;
    next[0].magnitude(i) = e.p_magnitude, next[1].magnitude(i) = e.m_magnitude, next[2].magnitude(i) = e.v_magnitude;
  }
  for (size_t i = 0; i < updated.size(); ++i) {
    if (o.c.has(updated[i])) o.expect(updated[i], o.data.scalars.skip != 0 ? exact(o.value(updated[i])) : next[i]);
  }
}

void expect_sgd(Oracle& o, const UpdateStep& step) {
  using A = SgdUpdate;
  const Array &p = o.value(A::kParameters), &g = o.value(A::kGradients), *m = o.optional(A::kMomenta);
  expect_updated(o, {A::kParameters, A::kMomenta},
                 [&](size_t i) { return sgd(step, p(i), m != nullptr ? (*m)(i) : 0.0, g(i)); });
}
void expect_adamw(Oracle& o, const UpdateStep& step) {
  using A = AdamWUpdate;
  const Array &p = o.value(A::kParameters), &m = o.value(A::kFirstMoments), &v = o.value(A::kSecondMoments),
              &g = o.value(A::kGradients);
  expect_updated(o, {A::kParameters, A::kFirstMoments, A::kSecondMoments},
                 [&](size_t i) { return adamw(step, p(i), m(i), v(i), g(i)); });
}
void expect_lion(Oracle& o, const UpdateStep& step) {
  using A = LionUpdate;
  const Array &p = o.value(A::kParameters), &m = o.value(A::kMomenta), &g = o.value(A::kGradients);
  expect_updated(o, {A::kParameters, A::kMomenta}, [&](size_t i) { return lion(step, p(i), m(i), g(i)); });
}

void expect(Oracle& o) {
  const StepScalars& s = o.data.scalars;
  const UpdateAttribute& a = o.c.as<UpdateAttribute>();
  const UpdateStep step{.learning_rate = static_cast<double>(s.learning_rate) * static_cast<double>(a.rate),
                        .clip_factor = s.clip_factor,
                        .weight_decay = a.weight_decay,
                        .momentum = a.momentum,
                        .beta1 = a.beta1,
                        .beta2 = a.beta2,
                        .epsilon = a.epsilon,
                        .nesterov = a.nesterov != 0,
                        .step = s.step + 1.0};
  if (o.c.op == Op::kSgd) return expect_sgd(o, step);
  o.c.op == Op::kAdamW ? expect_adamw(o, step) : expect_lion(o, step);
}

// Returns values computed by hand. Adam's first step changes a parameter by the learning rate,
// whatever the size of the gradient.
std::vector<KnownValue> known_values() {
  const UpdateStep first{.learning_rate = 0.5, .clip_factor = 1, .weight_decay = 0.25, .momentum = 0, .beta1 = 0.9,
                         .beta2 = 0.999, .epsilon = 1e-12, .nesterov = false, .step = 1};
  const UpdateStep nesterov{.learning_rate = 0.5, .clip_factor = 0.5, .weight_decay = 1, .momentum = 0.5, .beta1 = 0,
                            .beta2 = 0, .epsilon = 0, .nesterov = true, .step = 1};
  const UpdatedElement e = sgd(nesterov, 2, 4, 6);  // g = 3 + 2 = 5, m = 2 + 5 = 7, p = 2 - (5 + 3.5) / 2
  // For Lion, mean = -0.5 + 1.5 > 0. So p = 8 - (1 + 2) / 2, and m = -1 / 4 + 3 * 3 / 4.
  const UpdateStep by_hand{.learning_rate = 0.5, .clip_factor = 0.5, .weight_decay = 0.25, .momentum = 0, .beta1 = 0.5,
                           .beta2 = 0.25, .epsilon = 0, .nesterov = false, .step = 1};
  return {{"Lion's step by hand", Array{lion(by_hand, 8, -1, 6).p}, Array{6.5}},
          {"Lion's momentum by hand", Array{lion(by_hand, 8, -1, 6).m}, Array{2.0}},
          {"Adam's first step", Array{adamw(first, 2, 0, 0, -7).p}, Array{2 - 0.5 * 0.25 * 2 + 0.5}, 1e-9},
          {"Nesterov's momentum by hand", Array{e.m}, Array{7.0}},
          {"Nesterov's step by hand", Array{e.p}, Array{2 - 4.25}}};
}

// ---- wrong kernels ----

// Calls the correct kernel with changed scalars.
template <typename Change>
Status lion_with(const KernelContext& k, LionArgs args, const Change& change) {
  StepScalars scalars = *args.scalars;
  change(scalars);
  args.scalars = &scalars;
  return cpu_lion_update(k, args);
}

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<LionUpdate, [](const KernelContext& k, const LionArgs& a) {
      LionArgs swapped = a;
      std::swap(swapped.beta1, swapped.beta2);
      return cpu_lion_update(k, swapped);
    }>("lion_swaps_its_betas"),
    wrong_kernel<LionUpdate, [](const KernelContext& k, const LionArgs& a) {
      const bool plain = a.parameters.type == DType::kF32;
      for (uint64_t i = 0; plain && a.scalars->skip == 0 && i < a.n; ++i)
        a.parameters.f32()[i] -= a.scalars->learning_rate * a.weight_decay;
      return cpu_lion_update(k, a);
    }>("lion_decays_by_a_constant"),
    wrong_kernel<LionUpdate, [](const KernelContext& k, const LionArgs& a) {
      return lion_with(k, a, [](StepScalars& s) { s.skip = 0; });
    }>("lion_forgets_a_skip"),
    wrong_kernel<LionUpdate, [](const KernelContext& k, const LionArgs& a) {
      return lion_with(k, a, [](StepScalars& s) { s.clip_factor = 1; });
    }>("lion_forgets_to_clip"),
    wrong_kernel<LionUpdate, [](const KernelContext& k, const LionArgs& a) {
      LionArgs whole = a;
      whole.rate = 1;
      return cpu_lion_update(k, whole);
    }>("lion_forgets_its_rate"),
    wrong_kernel<AdamWUpdate, [](const KernelContext& k, const AdamWArgs& a) {
      AdamWArgs with_sign = a;
      if (a.second_moments.type == DType::kDynamic8Square) with_sign.second_moments.type = DType::kDynamic8;
      return cpu_adamw_update(k, with_sign);
    }>("adamw_takes_codes_of_squares_for_codes_with_a_sign"),
    wrong_kernel<AdamWUpdate, [](const KernelContext& k, const AdamWArgs& a) {
      AdamWArgs shorter = a;
      if (a.first_moments.type != DType::kF32 && kStateBlock < a.n) shorter.n = a.n / kStateBlock * kStateBlock;
      return cpu_adamw_update(k, shorter);
    }>("adamw_forgets_a_started_block"),
};

constexpr Op kFamilyOps[] = {Op::kSgd, Op::kAdamW, Op::kLion};

}  // namespace

extern constinit const OpFamily kOptimizerFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .known_values = known_values,
    .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
