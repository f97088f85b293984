// See known_numbers.h. Ops have ONNX's meaning, over row-major lists.
#include "tools/plan/onnx/known_numbers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace reprise {
namespace {

using Inputs = std::vector<const KnownNumbers*>;
using Result = std::optional<KnownNumbers>;

int64_t elements_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t d : shape) {
    if (d < 0 || (d > 0 && n > static_cast<int64_t>(kMaxKnown) / d)) return -1;
    n *= d;
  }
  return n;
}

// Returns the index into a list of shape `shape`, which is broadcast to `result`, for element `at`
// of the result.
int64_t broadcast_place(const std::vector<int64_t>& shape, const std::vector<int64_t>& result, int64_t at) {
  int64_t place = 0, stride = 1;
  for (size_t back = 1; back <= result.size(); ++back) {
    const int64_t digit = at % result[result.size() - back];
    at /= result[result.size() - back];
    if (back > shape.size()) continue;
    const int64_t size = shape[shape.size() - back];
    place += (size == 1 ? 0 : digit) * stride;
    stride *= size;
  }
  return place;
}

std::optional<std::vector<int64_t>> broadcast_shape(const Inputs& inputs) {
  std::vector<int64_t> shape;
  for (const KnownNumbers* input : inputs) {
    if (input->shape.size() > shape.size()) shape.insert(shape.begin(), input->shape.size() - shape.size(), 1);
    for (size_t back = 1; back <= input->shape.size(); ++back) {
      int64_t& size = shape[shape.size() - back];
      const int64_t own = input->shape[input->shape.size() - back];
      if (size != own && size != 1 && own != 1) return std::nullopt;
      size = own == 1 ? size : own;
    }
  }
  return elements_of(shape) < 0 ? std::nullopt : std::optional(shape);
}

Result pointwise(const Inputs& inputs, bool is_integer, const std::function<double(const std::vector<double>&)>& f) {
  const auto shape = broadcast_shape(inputs);
  if (!shape) return std::nullopt;
  KnownNumbers result = {*shape, {}, is_integer};
  std::vector<double> values(inputs.size());
  for (int64_t at = 0, n = elements_of(*shape); at < n; ++at) {
    for (size_t i = 0; i < inputs.size(); ++i)
      values[i] = inputs[i]->numbers[static_cast<size_t>(broadcast_place(inputs[i]->shape, *shape, at))];
    const double value = f(values);
    result.numbers.push_back(is_integer ? std::trunc(value) : value);
  }
  return result;
}

// Returns the inputs at row `n`. An input for which is_rows() is true is reduced to this row; other
// inputs stay complete. `space` stores the results.
Inputs rows_at(const Inputs& inputs, int64_t n, std::vector<KnownNumbers>& space) {
  Inputs row;
  space.clear();
  space.reserve(inputs.size());
  for (const KnownNumbers* input : inputs) {
    space.push_back(*input);
    if (input->is_rows()) {
      space.back().shape[0] = 1;
      for (double& number : space.back().numbers) number += static_cast<double>(n) * input->each_row;
    }
    row.push_back(&space.back());
  }
  return row;
}

// Applies a sum, a difference or a product to rows. Returns nothing if is_rows() would not be true
// for the result. The result is at most quadratic in the row, so that the first, second and last
// row show whether it is linear.
Result pointwise_of_rows(const Inputs& inputs, int64_t rows, bool is_integer,
                         const std::function<double(const std::vector<double>&)>& f) {
  std::vector<KnownNumbers> space;
  Result first = pointwise(rows_at(inputs, 0, space), is_integer, f);
  const Result second = pointwise(rows_at(inputs, 1, space), is_integer, f),
               last = pointwise(rows_at(inputs, rows - 1, space), is_integer, f);
  if (!first || !second || !last || first->shape.empty() || first->shape[0] != 1 || first->numbers.empty())
    return std::nullopt;
  first->each_row = second->numbers[0] - first->numbers[0];
  for (size_t i = 0; i < first->numbers.size(); ++i) {
    if (second->numbers[i] != first->numbers[i] + first->each_row) return std::nullopt;
    if (last->numbers[i] != first->numbers[i] + static_cast<double>(rows - 1) * first->each_row) return std::nullopt;
  }
  first->shape[0] = rows;
  return first->is_rows() ? first : std::nullopt;
}

struct Pointwise {
  const char* op;
  size_t inputs;
  double (*f)(const std::vector<double>& v);
  bool is_integer = false;  // true: the result is integers, whatever the inputs are
};
constexpr Pointwise kPointwise[] = {
    {"Add", 2, [](const std::vector<double>& v) { return v[0] + v[1]; }},
    {"Sub", 2, [](const std::vector<double>& v) { return v[0] - v[1]; }},
    {"Mul", 2, [](const std::vector<double>& v) { return v[0] * v[1]; }},
    {"Div", 2, [](const std::vector<double>& v) { return v[0] / v[1]; }},
    {"Pow", 2, [](const std::vector<double>& v) { return std::pow(v[0], v[1]); }},
    {"Mod", 2, [](const std::vector<double>& v) { return v[0] - v[1] * std::floor(v[0] / v[1]); }},
    {"Min", 2, [](const std::vector<double>& v) { return std::min(v[0], v[1]); }},
    {"Max", 2, [](const std::vector<double>& v) { return std::max(v[0], v[1]); }},
    {"Neg", 1, [](const std::vector<double>& v) { return -v[0]; }},
    {"Abs", 1, [](const std::vector<double>& v) { return std::abs(v[0]); }},
    {"Sqrt", 1, [](const std::vector<double>& v) { return std::sqrt(v[0]); }},
    {"Reciprocal", 1, [](const std::vector<double>& v) { return 1 / v[0]; }},
    {"Exp", 1, [](const std::vector<double>& v) { return std::exp(v[0]); }},
    {"Log", 1, [](const std::vector<double>& v) { return std::log(v[0]); }},
    {"Sin", 1, [](const std::vector<double>& v) { return std::sin(v[0]); }},
    {"Cos", 1, [](const std::vector<double>& v) { return std::cos(v[0]); }},
    {"Tanh", 1, [](const std::vector<double>& v) { return std::tanh(v[0]); }},
    {"Sigmoid", 1, [](const std::vector<double>& v) { return 1 / (1 + std::exp(-v[0])); }},
    {"Sign", 1, [](const std::vector<double>& v) { return static_cast<double>((v[0] > 0) - (v[0] < 0)); }},
    {"Round", 1, [](const std::vector<double>& v) { return std::nearbyint(v[0]); }},
    {"Floor", 1, [](const std::vector<double>& v) { return std::floor(v[0]); }},
    {"Ceil", 1, [](const std::vector<double>& v) { return std::ceil(v[0]); }},
    {"Equal", 2, [](const std::vector<double>& v) { return v[0] == v[1] ? 1.0 : 0.0; }, true},
    {"Less", 2, [](const std::vector<double>& v) { return v[0] < v[1] ? 1.0 : 0.0; }, true},
    {"Greater", 2, [](const std::vector<double>& v) { return v[0] > v[1] ? 1.0 : 0.0; }, true},
    {"LessOrEqual", 2, [](const std::vector<double>& v) { return v[0] <= v[1] ? 1.0 : 0.0; }, true},
    {"GreaterOrEqual", 2, [](const std::vector<double>& v) { return v[0] >= v[1] ? 1.0 : 0.0; }, true},
    {"IsNaN", 1, [](const std::vector<double>& v) { return v[0] != v[0] ? 1.0 : 0.0; }, true},
    {"Xor", 2, [](const std::vector<double>& v) { return (v[0] != 0) != (v[1] != 0) ? 1.0 : 0.0; }, true},
    {"And", 2, [](const std::vector<double>& v) { return v[0] != 0 && v[1] != 0 ? 1.0 : 0.0; }, true},
    {"Or", 2, [](const std::vector<double>& v) { return v[0] != 0 || v[1] != 0 ? 1.0 : 0.0; }, true},
    {"Not", 1, [](const std::vector<double>& v) { return v[0] == 0 ? 1.0 : 0.0; }, true},
    {"Where", 3, [](const std::vector<double>& v) { return v[0] != 0 ? v[1] : v[2]; }},
};

int64_t counted(int64_t axis, size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; }

// The shape of a list as [outer, size, inner]: the axes before one axis, this axis, and the axes
// after it.
struct Along {
  int64_t outer = 1, size = 1, inner = 1;
  bool is_valid = false;
  Along(const std::vector<int64_t>& shape, int64_t axis) {
    if (axis < 0 || axis >= static_cast<int64_t>(shape.size())) return;
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      (d < axis ? outer : d == axis ? size : inner) *= shape[static_cast<size_t>(d)];
    is_valid = true;
  }
};

Result taken(const KnownNumbers& x, int64_t axis, const std::vector<int64_t>& places,
             const std::vector<int64_t>& shape) {
  const Along along(x.shape, axis);
  if (!along.is_valid || elements_of(shape) < 0) return std::nullopt;
  KnownNumbers result = {shape, {}, x.is_integer};
  for (int64_t o = 0; o < along.outer; ++o) {
    for (int64_t place : places) {
      if (place < 0) place += along.size;
      if (place < 0 || place >= along.size) return std::nullopt;
      for (int64_t i = 0; i < along.inner; ++i)
        result.numbers.push_back(x.numbers[static_cast<size_t>((o * along.size + place) * along.inner + i)]);
    }
  }
  return result;
}

Result gathered(NodeReader& reader, const Inputs& in) {
  reader.integer("padding", -1);  // "padding" affects only the gradient
  const int64_t axis = counted(reader.integer("axis", 0), in[0]->shape.size());
  if (axis < 0 || axis >= static_cast<int64_t>(in[0]->shape.size())) return std::nullopt;
  std::vector<int64_t> shape(in[0]->shape.begin(), in[0]->shape.begin() + axis);
  shape.insert(shape.end(), in[1]->shape.begin(), in[1]->shape.end());
  shape.insert(shape.end(), in[0]->shape.begin() + axis + 1, in[0]->shape.end());
  return taken(*in[0], axis, in[1]->integers(), shape);
}

Result sliced(const Inputs& in) {
  if (in.size() < 3 || in[0] == nullptr || in[1] == nullptr || in[2] == nullptr) return std::nullopt;
  std::vector<int64_t> axes(in[1]->numbers.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (in.size() > 3 && in[3] != nullptr) axes = in[3]->integers();
  const std::vector<int64_t> steps =
      in.size() > 4 && in[4] != nullptr ? in[4]->integers() : std::vector<int64_t>(axes.size(), 1);
  if (in[1]->numbers.size() < axes.size() || in[2]->numbers.size() < axes.size() || steps.size() < axes.size())
    return std::nullopt;
  Result x = *in[0];
  for (size_t n = 0; n < axes.size() && x; ++n) {
    const int64_t axis = counted(axes[n], x->shape.size());
    if (axis < 0 || axis >= static_cast<int64_t>(x->shape.size()) || steps[n] == 0) return std::nullopt;
    const SliceRange range =
        slice_range(in[1]->integers()[n], in[2]->integers()[n], steps[n], x->shape[static_cast<size_t>(axis)]);
    std::vector<int64_t> places, shape = x->shape;
    for (int64_t i = 0; i < range.count; ++i) places.push_back(range.first + i * range.step);
    shape[static_cast<size_t>(axis)] = range.count;
    x = taken(*x, axis, places, shape);
  }
  return x;
}

Result concatenated(NodeReader& reader, const Inputs& in) {
  const int64_t axis = counted(reader.integer("axis", 0), in[0]->shape.size());
  KnownNumbers result = {in[0]->shape, {}, in[0]->is_integer};
  if (axis < 0 || axis >= static_cast<int64_t>(result.shape.size())) return std::nullopt;
  int64_t size = 0;
  for (const KnownNumbers* x : in) {
    if (x->shape.size() != result.shape.size()) return std::nullopt;
    size += x->shape[static_cast<size_t>(axis)];
  }
  result.shape[static_cast<size_t>(axis)] = size;
  if (elements_of(result.shape) < 0) return std::nullopt;
  for (int64_t o = 0; o < Along(in[0]->shape, axis).outer; ++o) {
    for (const KnownNumbers* x : in) {
      const Along along(x->shape, axis);
      const int64_t run = along.size * along.inner;
      if ((o + 1) * run > static_cast<int64_t>(x->numbers.size())) return std::nullopt;
      result.numbers.insert(result.numbers.end(), x->numbers.begin() + o * run, x->numbers.begin() + (o + 1) * run);
    }
  }
  return result;
}

// Repeats the list along each axis as often as the second list states.
Result tiled(const Inputs& in) {
  const std::vector<int64_t> times = in[1]->integers();
  KnownNumbers result = {in[0]->shape, {}, in[0]->is_integer};
  if (times.size() != result.shape.size() ||
      std::any_of(times.begin(), times.end(), [](int64_t n) { return n < 0 || n > static_cast<int64_t>(kMaxKnown); }))
    return std::nullopt;
  for (size_t d = 0; d < times.size(); ++d) result.shape[d] *= times[d];
  for (int64_t at = 0, n = elements_of(result.shape); at < n; ++at) {
    int64_t place = 0, stride = 1, rest = at;
    for (size_t d = times.size(); d-- > 0; rest /= result.shape[d]) {
      place += rest % result.shape[d] % in[0]->shape[d] * stride;
      stride *= in[0]->shape[d];
    }
    result.numbers.push_back(in[0]->numbers[static_cast<size_t>(place)]);
  }
  return result;
}

Result expanded(const Inputs& in) {
  const KnownNumbers target = {in[1]->integers(), {}, in[0]->is_integer};
  const auto shape = broadcast_shape({in[0], &target});
  if (!shape) return std::nullopt;
  KnownNumbers result = {*shape, {}, in[0]->is_integer};
  for (int64_t at = 0, n = elements_of(*shape); at < n; ++at)
    result.numbers.push_back(in[0]->numbers[static_cast<size_t>(broadcast_place(in[0]->shape, *shape, at))]);
  return result;
}

Result transposed(NodeReader& reader, const KnownNumbers& x) {
  std::vector<int64_t> every(x.shape.size());
  std::iota(every.begin(), every.end(), 0);
  const std::vector<int64_t> order = reader.integers("perm", {every.rbegin(), every.rend()});
  if (!std::is_permutation(order.begin(), order.end(), every.begin(), every.end())) return std::nullopt;
  KnownNumbers result = {{}, {}, x.is_integer};
  std::vector<int64_t> strides;
  for (const int64_t axis : order) {
    result.shape.push_back(x.shape[static_cast<size_t>(axis)]);
    strides.push_back(Along(x.shape, axis).inner);
  }
  for (int64_t at = 0, n = elements_of(result.shape); at < n; ++at) {
    int64_t place = 0, rest = at;
    for (size_t d = order.size(); d-- > 0; rest /= result.shape[d]) place += rest % result.shape[d] * strides[d];
    result.numbers.push_back(x.numbers[static_cast<size_t>(place)]);
  }
  return result;
}

Result ranged(const Inputs& in) {
  if (in[0]->numbers.empty() || in[1]->numbers.empty() || in[2]->numbers.empty()) return std::nullopt;
  const double start = in[0]->numbers.at(0), limit = in[1]->numbers.at(0), delta = in[2]->numbers.at(0);
  const double count = std::max(std::ceil((limit - start) / delta), 0.0);  // max() returns a first argument that is NaN
  if (!(count >= 0) || count > static_cast<double>(kMaxRows)) return std::nullopt;
  if (count > static_cast<double>(kMaxKnown))
    return KnownNumbers{{static_cast<int64_t>(count)}, {start}, in[0]->is_integer, delta};
  KnownNumbers result = {{static_cast<int64_t>(count)}, {}, in[0]->is_integer};
  for (int64_t i = 0; i < result.shape[0]; ++i) result.numbers.push_back(start + static_cast<double>(i) * delta);
  return result;
}

Result clipped(NodeReader& reader, const Inputs& in) {
  if (in.empty() || in[0] == nullptr) return std::nullopt;
  double limits[2] = {reader.number("min", -INFINITY), reader.number("max", INFINITY)};
  for (size_t n = 1; n < in.size() && n < 3; ++n) {
    if (in[n] != nullptr && in[n]->numbers.size() == 1) limits[n - 1] = in[n]->numbers[0];
  }
  KnownNumbers result = *in[0];
  for (double& number : result.numbers) number = std::min(std::max(number, limits[0]), limits[1]);
  return result;
}

// Computes y[..., i, ...] = x[..., places[..., i, ...], ...] along the axis.
Result gathered_singly(NodeReader& reader, const Inputs& in) {
  const KnownNumbers &x = *in[0], &places = *in[1];
  const Along of_x(x.shape, counted(reader.integer("axis", 0), x.shape.size())),
      along(places.shape, counted(reader.integer("axis", 0), places.shape.size()));
  const bool fits = of_x.is_valid && along.is_valid && x.shape.size() == places.shape.size() &&
                    along.outer == of_x.outer && along.inner == of_x.inner;
  if (!fits) return std::nullopt;
  KnownNumbers result = {places.shape, {}, x.is_integer};
  for (int64_t at = 0, n = elements_of(places.shape); at < n; ++at) {
    int64_t place = static_cast<int64_t>(places.numbers[static_cast<size_t>(at)]);
    place += place < 0 ? of_x.size : 0;
    if (place < 0 || place >= of_x.size) return std::nullopt;
    const int64_t inner = at % along.inner, outer = at / (along.inner * along.size);
    result.numbers.push_back(x.numbers[static_cast<size_t>((outer * of_x.size + place) * of_x.inner + inner)]);
  }
  return result;
}

// Gathers as GatherND does: each row along the last axis of `places` is an index into the first
// axes of x.
Result gathered_by_places(NodeReader& reader, const Inputs& in) {
  const KnownNumbers &x = *in[0], &places = *in[1];
  if (reader.integer("batch_dims", 0) != 0 || places.shape.empty()) return std::nullopt;
  const size_t digits = static_cast<size_t>(places.shape.back());
  if (digits == 0 || digits > x.shape.size()) return std::nullopt;
  KnownNumbers result = {{places.shape.begin(), places.shape.end() - 1}, {}, x.is_integer};
  result.shape.insert(result.shape.end(), x.shape.begin() + static_cast<long>(digits), x.shape.end());
  if (elements_of(result.shape) < 0) return std::nullopt;
  const int64_t run = elements_of({x.shape.begin() + static_cast<long>(digits), x.shape.end()});
  for (size_t at = 0; at + digits <= places.numbers.size(); at += digits) {
    int64_t place = 0;
    for (size_t d = 0; d < digits; ++d) {
      int64_t digit = static_cast<int64_t>(places.numbers[at + d]);
      digit += digit < 0 ? x.shape[d] : 0;
      if (digit < 0 || digit >= x.shape[d]) return std::nullopt;
      place = place * x.shape[d] + digit;
    }
    for (int64_t i = 0; i < run; ++i) result.numbers.push_back(x.numbers[static_cast<size_t>(place * run + i)]);
  }
  return result;
}

Result summed_up(NodeReader& reader, const Inputs& in) {
  const Along along(in[0]->shape, in[1]->numbers.size() == 1
                                      ? counted(static_cast<int64_t>(in[1]->numbers[0]), in[0]->shape.size())
                                      : -1);
  if (!along.is_valid || reader.integer("exclusive", 0) != 0 || reader.integer("reverse", 0) != 0) return std::nullopt;
  KnownNumbers result = *in[0];
  for (size_t at = 0; at < result.numbers.size(); ++at) {
    const int64_t inner = static_cast<int64_t>(at) / along.inner % along.size;
    if (inner > 0) result.numbers[at] += result.numbers[at - static_cast<size_t>(along.inner)];
  }
  return result;
}

// Keeps the numbers on and above a diagonal, or on and below it, and sets the others to 0.
Result triangle(NodeReader& reader, const Inputs& in) {
  const size_t rank = in[0]->shape.size();
  const bool is_upper = reader.integer("upper", 1) != 0;
  if (rank < 2 || (in.size() > 1 && in[1]->numbers.size() != 1)) return std::nullopt;
  const int64_t rows = in[0]->shape[rank - 2], columns = in[0]->shape[rank - 1],
                diagonal = in.size() > 1 ? in[1]->integers()[0] : 0;
  KnownNumbers result = *in[0];
  for (size_t at = 0; at < result.numbers.size(); ++at) {
    const int64_t column = static_cast<int64_t>(at) % columns, row = static_cast<int64_t>(at) / columns % rows;
    const bool stays = is_upper ? column - row >= diagonal : column - row <= diagonal;
    if (!stays) result.numbers[at] = 0;
  }
  return result;
}

Result reduced(NodeReader& reader, const Inputs& in) {
  const std::string op = reader.node().op.substr(6);
  const auto join = [&op](double a, double b) {
    return op == "Prod" ? a * b : op == "Max" ? std::max(a, b) : op == "Min" ? std::min(a, b) : a + b;
  };
  std::vector<int64_t> axes = reader.integers("axes", {});
  if (in.size() > 1) axes = in[1]->integers();
  const bool keeps = reader.integer("keepdims", 1) != 0;
  const bool is_known = op == "Sum" || op == "Mean" || op == "Prod" || op == "Max" || op == "Min";
  const bool stays = reader.integer("noop_with_empty_axes", 0) != 0 && axes.empty();
  if (!is_known || stays) return std::nullopt;
  const size_t rank = in[0]->shape.size();
  std::vector<bool> goes(rank, axes.empty());
  for (const int64_t each : axes) {
    const int64_t axis = counted(each, rank);
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
    goes[static_cast<size_t>(axis)] = true;
  }
  std::vector<int64_t> kept = in[0]->shape, shape;
  for (size_t d = 0; d < rank; ++d) {
    if (goes[d]) kept[d] = 1;
    if (!goes[d] || keeps) shape.push_back(kept[d]);
  }
  KnownNumbers result = {shape, std::vector<double>(static_cast<size_t>(elements_of(kept))), in[0]->is_integer};
  std::vector<int64_t> counts(result.numbers.size());
  for (int64_t at = 0, n = elements_of(in[0]->shape); at < n; ++at) {
    const auto place = static_cast<size_t>(broadcast_place(kept, in[0]->shape, at));
    const double number = in[0]->numbers[static_cast<size_t>(at)];
    result.numbers[place] = counts[place]++ == 0 ? number : join(result.numbers[place], number);
  }
  for (size_t i = 0; op == "Mean" && i < counts.size(); ++i) {
    result.numbers[i] /= static_cast<double>(counts[i]);
    if (result.is_integer) result.numbers[i] = std::trunc(result.numbers[i]);
  }
  return result;
}

Result cast(NodeReader& reader, const KnownNumbers& x) {
  const int64_t to = reader.integer("to", 0);
  KnownNumbers result = x;
  const auto is = [to](OnnxType type) { return to == static_cast<int64_t>(type); };
  result.is_integer =
      !is(OnnxType::kFloat) && !is(OnnxType::kDouble) && !is(OnnxType::kHalf) && !is(OnnxType::kBfloat16);
  for (double& number : result.numbers) {
    if (is(OnnxType::kBool)) number = number != 0 ? 1 : 0;
    else if (result.is_integer) number = std::trunc(number);
  }
  return result;
}

}  // namespace

std::vector<int64_t> KnownNumbers::integers() const {
  constexpr double kMax = 9007199254740992.0;
  std::vector<int64_t> list;
  for (const double number : numbers)
    list.push_back(number == number ? static_cast<int64_t>(std::clamp(number, -kMax, kMax)) : 0);
  return list;
}

bool KnownNumbers::is_whole() const { return elements_of(shape) == static_cast<int64_t>(numbers.size()); }

bool KnownNumbers::is_rows() const {
  if (shape.empty() || numbers.empty() || is_whole()) return false;
  return elements_of({shape.begin() + 1, shape.end()}) == static_cast<int64_t>(numbers.size());
}

KnownNumbers known_integers(const std::vector<int64_t>& numbers) {
  return {{static_cast<int64_t>(numbers.size())}, {numbers.begin(), numbers.end()}, true};
}

KnownNumbers twice(const KnownNumbers& numbers) {
  KnownNumbers result = numbers;
  result.shape[0] *= 2;
  result.numbers.insert(result.numbers.end(), numbers.numbers.begin(), numbers.numbers.end());
  return result;
}

SliceRange slice_range(int64_t start, int64_t end, int64_t step, int64_t size) {
  const auto within = [&](int64_t place, int64_t low, int64_t high) {
    return std::clamp(place < 0 ? place + size : place, low, high);
  };
  if (step > 0) {
    const int64_t first = within(start, 0, size), last = within(end, 0, size);
    return {first, std::max<int64_t>(0, (last - first + step - 1) / step), step};
  }
  if (size == 0) return {0, 0, step};
  const int64_t first = within(start, 0, size - 1), last = end < -size ? -1 : within(end, -1, size - 1);
  return {first, std::max<int64_t>(0, (first - last - step - 1) / -step), step};
}

namespace {
std::optional<KnownNumbers> computed_alone(NodeReader& reader, const std::vector<const KnownNumbers*>& in) {
  const std::string& op = reader.node().op;
  const size_t count = in.size();
  const bool has_all = std::none_of(in.begin(), in.end(), [](const KnownNumbers* x) { return x == nullptr; });
  const auto rows =
      std::find_if(in.begin(), in.end(), [](const KnownNumbers* x) { return x != nullptr && x->is_rows(); });
  if (rows == in.end() && op == "Slice") return sliced(in);
  if (rows == in.end() && op == "Clip") return clipped(reader, in);
  if (!has_all || count == 0) return std::nullopt;
  for (const Pointwise& each : kPointwise) {
    if (op != each.op || count != each.inputs) continue;
    const bool truncates = op == "Mod" && reader.integer("fmod", 0) != 0;
    const bool is_integer = each.is_integer || (op == "Pow" ? in.front() : in.back())->is_integer;
    if (rows == in.end() && truncates)
      return pointwise(in, is_integer, [](const auto& v) { return std::fmod(v[0], v[1]); });
    if (rows == in.end()) return pointwise(in, is_integer, each.f);
    return op == "Add" || op == "Sub" || op == "Mul" ? pointwise_of_rows(in, (*rows)->shape[0], is_integer, each.f)
                                                     : std::nullopt;
  }
  if (rows != in.end()) return std::nullopt;
  if (op == "Gather" && count == 2) return gathered(reader, in);
  if (op == "Concat") return concatenated(reader, in);
  if (op == "Expand" && count == 2) return expanded(in);
  if (op == "Tile" && count == 2) return tiled(in);
  if (op == "Range" && count == 3) return ranged(in);
  if (op == "Cast" && count == 1) return cast(reader, *in[0]);
  if (op == "Transpose" && count == 1) return transposed(reader, *in[0]);
  if (op == "GatherElements" && count == 2) return gathered_singly(reader, in);
  if (op == "GatherND" && count == 2) return gathered_by_places(reader, in);
  if (op == "CumSum" && count == 2) return summed_up(reader, in);
  if (op == "Trilu" && count <= 2) return triangle(reader, in);
  if (op.starts_with("Reduce")) return reduced(reader, in);
  return std::nullopt;
}
}  // namespace

std::optional<KnownNumbers> computed(NodeReader& reader, const std::vector<const KnownNumbers*>& in) {
  std::optional<KnownNumbers> result = computed_alone(reader, in);
  if (result)
    result->of_texts =
        std::any_of(in.begin(), in.end(), [](const KnownNumbers* x) { return x != nullptr && x->of_texts; });
  return result;
}

}  // namespace reprise
