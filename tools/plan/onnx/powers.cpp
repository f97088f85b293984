// See powers.h.
#include "tools/plan/onnx/powers.h"

#include <algorithm>
#include <cmath>

namespace reprise {
namespace {

constexpr double kRootOfTwoByPi = 0.79788456080286536, kCube = 0.044715;  // Hendrycks and Gimpel 2016

bool is_close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// Returns the coefficients of x^0 to x^3. Returns nothing if the value is neither a sum of powers
// nor a tensor, or if the tensor is expanded (ImportValue::expanded).
std::optional<std::array<double, 4>> powers_of(const ImportValue& value) {
  if (value.form == ImportForm::kPowers) return value.powers;
  if (value.form != ImportForm::kTensor || !value.expanded.empty()) return std::nullopt;
  return std::array<double, 4>{0, value.factor, 0, 0};
}

ImportValue powers_value(const TensorView& x, const std::array<double, 4>& powers) {
  ImportValue value;
  value.form = ImportForm::kPowers;
  value.view = x;
  value.powers = powers;
  return value;
}

// Returns `number` if it is one known number and `powers` is a sum of powers; nothing otherwise.
std::optional<double> number_with(const Importer& net, const ImportValue& powers, const ImportValue& number) {
  const bool is_beside = powers.form == ImportForm::kPowers && number.view.axes.size() <= powers.view.axes.size();
  return is_beside ? net.known_scalar(number) : std::nullopt;
}

}  // namespace

std::optional<ImportValue> sum_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b) {
  for (const auto& [powers, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (const auto number = number_with(net, *powers, *other)) {
      ImportValue sum = *powers;
      sum.powers[0] += *number;
      return sum;
    }
  }
  const auto of_a = powers_of(a), of_b = powers_of(b);
  const bool is_sum =
      of_a && of_b && a.view.is_same(b.view) && (a.form == ImportForm::kPowers || b.form == ImportForm::kPowers);
  if (!is_sum) return std::nullopt;
  std::array<double, 4> sum = *of_a;
  for (size_t n = 0; n < 4; ++n) sum[n] += (*of_b)[n];
  return powers_value(a.view, sum);
}

std::optional<ImportValue> product_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b) {
  for (const auto& [powers, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    if (const auto number = number_with(net, *powers, *other)) {
      ImportValue product = *powers;
      for (double& power : product.powers) power *= *number;
      return product;
    }
  }
  const auto of_a = powers_of(a), of_b = powers_of(b);
  if (!of_a || !of_b || !a.view.is_same(b.view)) return std::nullopt;
  std::array<double, 4> product = {};
  for (size_t n = 0; n < 4; ++n) {
    for (size_t m = 0; m < 4; ++m) {
      const double each = (*of_a)[n] * (*of_b)[m];
      if (each == 0) continue;
      if (n + m > 3) return std::nullopt;
      product[n + m] += each;
    }
  }
  return powers_value(a.view, product);
}

std::optional<ImportValue> power_of(const ImportValue& x, int exponent) {
  if (x.form != ImportForm::kTensor || !x.expanded.empty() || (exponent != 2 && exponent != 3)) return std::nullopt;
  std::array<double, 4> powers = {};
  powers[static_cast<size_t>(exponent)] = std::pow(x.factor, exponent);
  return powers_value(x.view, powers);
}

bool is_gelu_argument(const ImportValue& value) {
  const auto& p = value.powers;
  return value.form == ImportForm::kPowers && p[0] == 0 && p[2] == 0 && is_close(p[1], kRootOfTwoByPi) &&
         is_close(p[3], kCube * kRootOfTwoByPi);
}

std::optional<ImportValue> append_powers(Importer& net, NodeReader& reader, const ImportValue& value) {
  std::vector<ImportValue> terms;
  TensorView power = value.view;
  for (size_t n = 1; n < 4; ++n) {
    if (n > 1 &&
        std::all_of(value.powers.begin() + static_cast<long>(n), value.powers.end(), [](double p) { return p == 0; }))
      break;
    if (n > 1)
      power = net.append({{"op", "multiply"}}, net.name_of(reader.node()), {power.node, value.view.node}, value.view);
    if (value.powers[n] != 0) terms.push_back(tensor_value(power, value.powers[n]));
  }
  if (terms.empty()) terms.push_back(tensor_value(value.view, 0));
  if (terms.size() == 1 && value.powers[0] == 0) return terms[0];
  std::optional<TensorView> sum = net.whole(reader, terms[0]);
  for (size_t n = 1; n < terms.size() && sum; ++n) {
    const auto both = net.append_two(reader, "add", *sum, terms[n]);
    sum = both ? std::optional(both->view) : std::nullopt;
  }
  if (sum && value.powers[0] != 0) {
    const auto both = net.append_two(reader, "add", *sum, constant_value(KnownNumbers{{}, {value.powers[0]}, false}));
    sum = both ? std::optional(both->view) : std::nullopt;
  }
  return sum ? std::optional(tensor_value(*sum, 1)) : std::nullopt;
}

}  // namespace reprise
