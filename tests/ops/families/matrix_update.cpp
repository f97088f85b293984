// Adafactor, APOLLO and Muon, which treat a parameter as a matrix: cases, data, reference and wrong
// kernels.
#include <algorithm>
#include <cmath>

#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"
#include "tests/ref/linear.h"

namespace reprise::test {
namespace {

using namespace ref;

double norm(const Array& a) { return std::sqrt(dot(a, a)); }
double root_mean_square(const Array& a) { return norm(a) / std::sqrt(static_cast<double>(a.size())); }
Array as_matrix(Array a) {
  a.reshape({a.shape(0), a.size() / a.shape(0)});
  return a;
}
Array of_one(double x) { return Array(Array::shape_type{1, 1}, x); }

// Inputs that the references of all three optimizers use.
struct Given {
  double learning_rate, clip_factor, step;  // `step` counts from 1
  Array p, g;                               // parameters and gradients, as matrices
};
Given given_of(const Oracle& o, uint32_t parameters, uint32_t gradients) {
  const StepScalars& s = o.data.scalars;
  return {s.learning_rate, s.clip_factor, s.step + 1.0, as_matrix(o.value(parameters)), as_matrix(o.value(gradients))};
}

// Returns (1 - decay) * p - step * u with its tolerance. `size_of_u` is added to the magnitude of
// each element of u, because u itself was computed with rounding errors.
Expected stepped(const Array& p, const Array& u, double decay, double step, double terms, double size_of_u = 0) {
  const Array along = step * u;
  return {(1 - decay) * p - along, xt::abs(p) + xt::abs(along) + std::abs(step) * size_of_u, terms};
}

// ---- Adafactor: Shazeer & Stern 2018 ----

struct Factored {
  Array p, row, column, u;
  double step, decay;
};
Factored adafactor(const FactoredAttribute& a, const Given& in, const Array& row, const Array* column) {
  const double keep = 1 - std::pow(in.step, -a.decay_power), lr = in.learning_rate * a.rate;
  const Array g = in.clip_factor * in.g, squares = g * g;
  const double rows = static_cast<double>(g.shape(0)), columns = static_cast<double>(g.shape(1));
  Factored out;
  Array v;
  if (column == nullptr) {
    v = out.row = keep * as_matrix(row) + (1 - keep) * (squares + static_cast<double>(a.epsilon));
  } else {
    out.row = keep * row + (1 - keep) * (xt::sum(squares, {1}) / columns + static_cast<double>(a.epsilon));
    out.column = keep * *column + (1 - keep) * (xt::sum(squares, {0}) / rows + static_cast<double>(a.epsilon));
    const double mean = xt::mean(out.row)();
    v = zeros_like(g);
    for (size_t r = 0; r < g.shape(0); ++r) {
      for (size_t c = 0; c < g.shape(1); ++c) v(r, c) = out.row(r) * out.column(c) / mean;
    }
  }
  out.u = g / xt::sqrt(v);
  const double scale = std::max(static_cast<double>(a.min_scale), root_mean_square(in.p));
  const double scaled = (a.adalomo != 0 ? lr : std::min(lr, 1 / std::sqrt(in.step))) * scale;
  out.decay = (a.adalomo != 0 ? scaled : lr) * a.weight_decay;
  out.step = scaled / std::max(1.0, root_mean_square(out.u) / a.clip);
  return out;
}

void expect_adafactor(Oracle& o) {
  using A = AdafactorUpdate;
  const FactoredAttribute& a = o.c.as<FactoredAttribute>();
  const Given in = given_of(o, A::kParameters, A::kGradients);
  const Factored f = adafactor(a, in, o.value(A::kRow), o.optional(A::kColumn));
  o.expect(A::kParameters, stepped(in.p, f.u, f.decay, f.step, 24));
  o.expect(A::kRow, {f.row, magnitudes(f.row), 8});
  o.expect(A::kColumn, {f.column, magnitudes(f.column), 8});
}

// ---- APOLLO: Zhu et al. 2024 ----

// Returns the projection matrix [shorter, r]: random signs, divided by sqrt(r).
Array projection(const ProjectedAttribute& a, const StepScalars& s, uint64_t shorter, uint32_t rank) {
  Array signs = zeros({shorter, rank});
  for (uint64_t i = 0; i < signs.size(); ++i) {
    const PhiloxBlock draw =
        philox(s.seed, uint64_t{0xfffffffcu} << 32 | s.step / a.period, i / 128 | uint64_t{a.stream} << 40);
    signs.flat(i) = ((draw.word[i % 128 / 32] >> i % 32 & 1) != 0 ? 1 : -1) / std::sqrt(static_cast<double>(rank));
  }
  return signs;
}

struct Projected {
  Array m, v, u;
  double growth;
};
Projected apollo(const ProjectedAttribute& a, const StepScalars& s, const Given& in, const Array& m, const Array& v,
                 double growth) {
  const bool by_row = in.g.shape(0) >= in.g.shape(1);
  const Array g = in.clip_factor * in.g, along = by_row ? g : transposed(g);  // [L, shorter]: L is the longer side of g
  const Array R = product(along, projection(a, s, along.shape(1), static_cast<uint32_t>(m.shape(1))));
  Projected out;
  out.m = a.beta1 * m + (1 - a.beta1) * R;
  out.v = a.beta2 * v + (1 - a.beta2) * R * R;
  const Array step = out.m / (xt::sqrt(out.v) + static_cast<double>(a.epsilon));
  Array u = along;
  for (size_t l = 0; l < along.shape(0); ++l) {
    const Array own_step = xt::view(step, l), own = xt::view(R, l);
    const double factor = a.by_tensor != 0 ? norm(step) / (norm(R) + 1e-8) : norm(own_step) / (norm(own) + 1e-8);
    for (size_t c = 0; c < along.shape(1); ++c) u(l, c) *= factor * std::sqrt(static_cast<double>(a.scale));
  }
  const double limit = growth > 0 ? std::max(norm(u) / (growth + 1e-8), 1.01) / 1.01 : 1;
  out.growth = norm(u) / limit;
  out.u = Array(by_row ? u : transposed(u)) / limit;
  return out;
}

void expect_apollo(Oracle& o) {
  using A = ApolloUpdate;
  const ProjectedAttribute& a = o.c.as<ProjectedAttribute>();
  const Given in = given_of(o, A::kParameters, A::kGradients);
  const Projected f =
      apollo(a, o.data.scalars, in, o.value(A::kFirstMoments), o.value(A::kSecondMoments), o.value(A::kGrowth)(0));
  const double terms = static_cast<double>(std::min(in.g.shape(0), in.g.shape(1))), lr = in.learning_rate * a.rate;
  // `largest` bounds an element of the projected gradient R. It is the gradients' bound times
  // sqrt(terms), about the size of a sum of `terms` random signs.
  const double largest = in.clip_factor * std::sqrt(terms);
  const double corrected = lr * std::sqrt(1 - std::pow(a.beta2, in.step)) / (1 - std::pow(a.beta1, in.step));
  o.expect(A::kParameters, stepped(in.p, f.u, lr * a.weight_decay, corrected, 16 * terms, xt::amax(xt::abs(f.u))()));
  o.expect(A::kFirstMoments, {f.m, xt::abs(f.m) + largest, terms + 8});
  o.expect(A::kSecondMoments, {f.v, xt::abs(f.v) + 2 * largest * largest, terms + 8});
  o.expect(A::kGrowth, {Array{f.growth}, Array{f.growth}, 4 * terms});
}

// ---- Muon: Jordan et al. 2024 ----

Array orthogonal(Array x, double epsilon, double* first_size) {
  x /= std::max(norm(x), epsilon);
  *first_size = xt::amax(xt::abs(x))();
  const bool tall = x.shape(0) > x.shape(1);
  if (tall) x = transposed(x);
  for (int i = 0; i < 5; ++i) {
    const Array square = product(x, transposed(x));
    const Array next = 3.4445 * x + product(-4.7750 * square + 2.0315 * product(square, square), x);
    x = next;
  }
  return tall ? transposed(x) : x;
}

void expect_muon(Oracle& o) {
  using A = MuonUpdate;
  const UpdateAttribute& a = o.c.as<UpdateAttribute>();
  const Given in = given_of(o, A::kParameters, A::kGradients);
  const double momentum = static_cast<double>(a.momentum);
  const Array g = in.clip_factor * in.g, old = as_matrix(o.value(A::kMomenta));
  const Array m = momentum * old + (1 - momentum) * g;
  double size = 0;
  const Array u = orthogonal(a.nesterov != 0 ? Array(g + momentum * (m - g)) : m, a.epsilon, &size);
  // Each of five steps multiplies small singular values by up to 3.4445, and with them the rounding
  // errors of the first step.
  const double enlarged = std::pow(3.4445, 5) * size, terms = static_cast<double>(in.g.shape(0) + in.g.shape(1));
  o.expect(A::kParameters,
           stepped(in.p, u, in.learning_rate * a.weight_decay, in.learning_rate * a.rate, terms, enlarged));
  o.expect(A::kMomenta, {m, xt::abs(old) + xt::abs(g), 6});
}

// ---- cases ----

constexpr float kRate = 0.75f;
constexpr uint32_t kStream = 9;

void add_adafactor(CaseTable& table, std::initializer_list<uint32_t> shape, bool is_matrix, const char* name,
                   DType stored = DType::kF32, CaseValues data = CaseValues::kPlain, bool capped = false) {
  using A = AdafactorUpdate;
  const auto p = shaped(shape, stored), g = shaped(shape);
  const contract::MatrixShape m = contract::matrix_of(*p);
  const auto row = is_matrix ? shaped({static_cast<uint32_t>(m.rows)}) : g;
  const auto column = is_matrix ? shaped({static_cast<uint32_t>(m.columns)}) : std::nullopt;
  const FactoredAttribute a = {.group = {1, 0, g->elements()},
                               .weight_decay = 0.1f,
                               .decay_power = capped ? 0.5 : 0.8,
                               .epsilon = 1e-30f,
                               .min_scale = 1e-3f,
                               .clip = capped ? 0.125f : 1.0f,
                               .adalomo = !capped,
                               .rate = capped ? 20 : kRate,
                               .stream = kStream};
  table
      .add<A>(name,
              {{A::kParameters, p},
               {A::kRow, row},
               {A::kColumn, column},
               {A::kGradients, g},
               {A::kScalars, scalars_tensor()}},
              a)
      .data = data;
}

void add_apollo(CaseTable& table, std::initializer_list<uint32_t> shape, uint32_t rank, bool by_tensor,
                const char* name, DType stored = DType::kF32, CaseValues data = CaseValues::kPlain) {
  using A = ApolloUpdate;
  const auto p = shaped(shape, stored), g = shaped(shape);
  const auto moments = shaped({static_cast<uint32_t>(contract::matrix_of(*p).longer()), rank});
  const ProjectedAttribute a = {.group = {1, 0, g->elements()},
                                .weight_decay = 0.1f,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .epsilon = 1e-6f,
                                .scale = by_tensor ? 128.0f : 1.0f,
                                .by_tensor = by_tensor,
                                .period = 5,
                                .rate = kRate,
                                .stream = kStream};
  table
      .add<A>(name,
              {{A::kParameters, p},
               {A::kFirstMoments, moments},
               {A::kSecondMoments, moments},
               {A::kGrowth, shaped({1})},
               {A::kGradients, g},
               {A::kScalars, scalars_tensor()}},
              a)
      .data = data;
}

void add_muon(CaseTable& table, std::initializer_list<uint32_t> shape, bool nesterov, const char* name,
              DType stored = DType::kF32, DType moments = DType::kF32, CaseValues data = CaseValues::kPlain) {
  using A = MuonUpdate;
  const auto g = shaped(shape);
  UpdateAttribute a = {};
  a.group = {1, 0, g->elements()};
  a.weight_decay = 0.1f, a.momentum = 0.95f, a.nesterov = nesterov, a.epsilon = 1e-7f, a.rate = kRate,
  a.stream = kStream;
  table
      .add<A>(name,
              {{A::kParameters, shaped(shape, stored)},
               {A::kMomenta, shaped(shape, moments)},
               {A::kGradients, g},
               {A::kScalars, scalars_tensor()}},
              a)
      .data = data;
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) {
    add_adafactor(table, {1024, 1024}, true, "square");
    add_apollo(table, {1024, 1024}, 1, true, "mini_square");
    add_apollo(table, {1024, 1024}, 64, false, "r64_square");
    return add_muon(table, {512, 512}, true, "square");
  }
  add_adafactor(table, {1, 7}, true, "row");
  add_adafactor(table, {37, 5}, true, "tall");
  add_adafactor(table, {19, 300}, true, "wide_capped", DType::kF32, CaseValues::kPlain, true);
  add_adafactor(table, {700, 67}, true, "long");
  add_adafactor(table, {8, 3, 3, 5}, true, "conv");
  add_adafactor(table, {300, 67}, true, "bf16", DType::kBf16);
  add_adafactor(table, {1003}, false, "vector");
  add_adafactor(table, {33}, false, "vector_bf16", DType::kBf16);
  add_adafactor(table, {20, 67}, true, "skip", DType::kF32, CaseValues::kSkip);
  for (const uint32_t rank : {1u, 4u}) {
    const bool mini = rank == 1;
    add_apollo(table, {37, 5}, rank, mini, mini ? "mini_tall" : "tall");
    add_apollo(table, {19, 300}, rank, mini, mini ? "mini_wide" : "wide");
    add_apollo(table, {300, 300}, rank, mini, mini ? "mini_square" : "square");
    add_apollo(table, {16, 3, 3, 5}, rank, mini, mini ? "mini_conv" : "conv");
    add_apollo(table, {300, 67}, rank, mini, mini ? "mini_bf16" : "bf16", DType::kBf16);
    add_apollo(table, {20, 67}, rank, mini, mini ? "mini_skip" : "skip", DType::kF32, CaseValues::kSkip);
    add_apollo(table, {20, 67}, rank, mini, mini ? "mini_first" : "first", DType::kF32, CaseValues::kConstant);
  }
  for (const bool nesterov : {false, true}) {
    add_muon(table, {37, 5}, nesterov, nesterov ? "tall_nesterov" : "tall");
    add_muon(table, {19, 300}, nesterov, nesterov ? "wide_nesterov" : "wide");
  }
  add_muon(table, {64, 64}, true, "square");
  add_muon(table, {16, 3, 3, 5}, true, "conv");
  add_muon(table, {70, 67}, true, "bf16", DType::kBf16, DType::kBf16);
  add_muon(table, {70, 67}, true, "bf16_codes", DType::kBf16, DType::kDynamic8);
  add_muon(table, {20, 67}, true, "skip", DType::kF32, DType::kF32, CaseValues::kSkip);
}

// ---- data ----

// Makes the means of squares positive. `growth` is APOLLO's limit of the update's size. For
// parameters in bf16, this limit is so large that it limits no update. For parameters in f32 it
// limits updates. For kConstant it is 0, as before the first step.
void fit_data(CaseDraft& draft) {
  const auto make_positive = [&draft](uint32_t i) {
    for (double& x : draft.value(i)) x = as_f32(0.05 + x * x);
  };
  if (draft.c.op == Op::kAdafactor) {
    make_positive(AdafactorUpdate::kRow);
    if (draft.c.has(AdafactorUpdate::kColumn)) make_positive(AdafactorUpdate::kColumn);
  }
  if (draft.c.op != Op::kApollo) return;
  make_positive(ApolloUpdate::kSecondMoments);
  const double size = std::sqrt(static_cast<double>(draft.value(ApolloUpdate::kGradients).size()));
  draft.value(ApolloUpdate::kGrowth)(0) =
      draft.c.data == CaseValues::kConstant ? 0
                                            : as_f32(draft.c.tensor(0).dtype == DType::kBf16 ? size * 100 : size / 50);
}

void expect(Oracle& o) {
  if (o.data.scalars.skip != 0) {
    for (uint32_t i = 0; i < o.c.arguments.size(); ++i) {
      if (o.c.has(i) && o.c.info().arguments[i].role == Role::kUpdated) o.expect(i, exact(o.value(i)));
    }
    return;
  }
  if (o.c.op == Op::kAdafactor) return expect_adafactor(o);
  o.c.op == Op::kApollo ? expect_apollo(o) : expect_muon(o);
}

// Returns values computed by hand. Adafactor's first step on a 1 x 1 matrix gives g / |g|. Five
// Newton-Schulz steps on the number 1 are a polynomial.
std::vector<KnownValue> known_values() {
  const FactoredAttribute first = {.group = {1, 0, 1},
                                   .weight_decay = 0,
                                   .decay_power = 0.8,
                                   .epsilon = 1e-30f,
                                   .min_scale = 1e-3f,
                                   .clip = 1,
                                   .adalomo = 1};
  const Given in = {.learning_rate = 0.5, .clip_factor = 1, .step = 1, .p = of_one(3), .g = of_one(-7)};
  const Array none = Array{0.0};
  const Factored f = adafactor(first, in, none, &none);
  double x = 1, size = 0;
  for (int i = 0; i < 5; ++i) x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
  const Array four = Array{{0.0, 2.0}, {-2.0, 0.0}};  // both singular values are the norm of the matrix / sqrt(2)
  double half = std::sqrt(0.5);
  for (int i = 0; i < 5; ++i)
    half = 3.4445 * half - 4.7750 * half * half * half + 2.0315 * half * half * half * half * half;
  return {{"Adafactor's first update is a sign", f.u, of_one(-1), 1e-9},
          {"its step is the parameters' size times the rate", Array{f.step}, Array{1.5}, 1e-9},
          {"Muon of one number", orthogonal(of_one(-5), 1e-7, &size), of_one(-x), 1e-9},
          {"Muon of a rotation", orthogonal(four, 1e-7, &size), Array{{0.0, half}, {-half, 0.0}}, 1e-9}};
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<AdafactorUpdate, [](const KernelContext& k, const AdafactorArgs& a) {
      AdafactorArgs other = a;
      other.adalomo = !a.adalomo;
      return cpu_adafactor_update(k, other);
    }>("adafactor_steps_as_adalomo"),
    wrong_kernel<AdafactorUpdate, [](const KernelContext& k, const AdafactorArgs& a) {
      AdafactorArgs other = a;
      other.clip = 1e6f;
      return cpu_adafactor_update(k, other);
    }>("adafactor_does_not_clip_its_update"),
    wrong_kernel<AdafactorUpdate, [](const KernelContext& k, const AdafactorArgs& a) {
      StepScalars next = *a.scalars;
      ++next.step;
      AdafactorArgs other = a;
      other.scalars = &next;
      return cpu_adafactor_update(k, other);
    }>("adafactor_counts_steps_from_two"),
    wrong_kernel<ApolloUpdate, [](const KernelContext& k, const ApolloArgs& a) {
      ApolloArgs other = a;
      other.by_tensor = !a.by_tensor;
      return cpu_apollo_update(k, other);
    }>("apollo_scales_channels_as_a_tensor"),
    wrong_kernel<ApolloUpdate, [](const KernelContext& k, const ApolloArgs& a) {
      ApolloArgs other = a;
      other.period = 1;
      return cpu_apollo_update(k, other);
    }>("apollo_draws_another_projection_each_step"),
    wrong_kernel<ApolloUpdate, [](const KernelContext& k, const ApolloArgs& a) {
      float none = 0;
      ApolloArgs other = a;
      other.growth = &none;
      return cpu_apollo_update(k, other);
    }>("apollo_does_not_limit_its_growth"),
    wrong_kernel<MuonUpdate, [](const KernelContext& k, const MuonArgs& a) {
      MuonArgs other = a;
      other.nesterov = !a.nesterov;
      return cpu_muon_update(k, other);
    }>("muon_takes_the_other_momentum"),
    wrong_kernel<MuonUpdate, [](const KernelContext& k, const MuonArgs& a) {
      StepScalars unclipped = *a.scalars;
      unclipped.clip_factor = 1;
      MuonArgs other = a;
      other.scalars = &unclipped;
      return cpu_muon_update(k, other);
    }>("muon_forgets_to_clip"),
};

constexpr Op kFamilyOps[] = {Op::kAdafactor, Op::kApollo, Op::kMuon};

}  // namespace

extern constinit const OpFamily kMatrixUpdateFamily = {.ops = kFamilyOps,
                                                       .multiplies = true,
                                                       .add_cases = add_cases,
                                                       .fit_data = fit_data,
                                                       .expect = expect,
                                                       .known_values = known_values,
                                                       .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
