// See norms.h.
#include "tools/plan/onnx/norms.h"

#include <algorithm>

namespace reprise {
namespace {

using nlohmann::json;

ImportValue as(const ImportValue& value, ImportForm form) {
  ImportValue result = value;
  result.form = form;
  return result;
}

// Returns the shape that a weight of `normed` must have: one number for each channel. With groups,
// axes of 1 follow the channels.
std::vector<int64_t> shape_of_weight(const ImportValue& normed) {
  const std::vector<int64_t> shape = normed.view.shape();
  if (normed.groups == 0) return {shape.back()};
  std::vector<int64_t> own(shape.size() - 1, 1);
  own[0] = shape[1];
  return own;
}
bool suits(const ImportValue& normed, const ImportValue& weight) {
  std::vector<int64_t> shape = weight.view.shape();
  const std::vector<int64_t> right = shape_of_weight(normed);
  while (shape.size() > right.size() && shape.front() == 1) shape.erase(shape.begin());
  return weight.form == ImportForm::kConstant && shape == right;
}

ImportValue all_of(Importer& net, NodeReader& reader, const ImportValue& normed, double number) {
  const std::vector<int64_t> shape = shape_of_weight(normed);
  const size_t count = static_cast<size_t>(std::max(shape.front(), shape.back()));
  return net.stored(reader.node(), constant_value(KnownNumbers{shape, std::vector<double>(count, number), false}));
}

// Appends a norm with its weight and, if it was centred, its bias.
std::optional<TensorView> append_norm(Importer& net, NodeReader& reader, const ImportValue& normed,
                                      const ImportValue& gamma, const ImportValue* beta) {
  const bool is_layer = normed.groups == 0;
  const auto laid = is_layer ? net.rows(reader, normed.view) : net.images(reader, normed.view);
  if (!laid) return std::nullopt;
  const std::vector<int> own = is_layer ? std::vector<int>() : laid->axes[1];
  const auto& groups = normed.group_axis;
  if (!is_layer && (groups.size() > own.size() || !std::equal(groups.begin(), groups.end(), own.begin())))
    return reader.refuse("its groups are not of neighbouring channels"), std::nullopt;
  const int64_t channels = laid->written.back();
  ImportValue parts[2] = {net.stored(reader.node(), gamma),
                          beta == nullptr ? ImportValue() : net.stored(reader.node(), *beta)};
  const size_t count = beta == nullptr ? 1 : 2;
  for (size_t n = 0; n < count; ++n) {
    if (parts[n].tensor != nullptr && suits(normed, parts[n])) continue;
    return reader.refuse("its weight and bias must be constants, of one number for each of " +
                         std::to_string(channels) + " channels"),
           std::nullopt;
  }
  const std::string name = net.name_of(reader.node(), parts[0].tensor);
  const char* op = !normed.is_centred ? "rms_norm" : is_layer ? "layer_norm" : "group_norm";
  json node = {{"op", op}, {"epsilon", normed.epsilon}};
  net.add_norm_parts(node, name, parts[0], count > 1 ? &parts[1] : nullptr);
  if (!is_layer) node["groups"] = normed.groups;
  net.note_joined(op);
  return net.append(node, name, {laid->node}, *laid);
}

// Appends the mean over the last axis.
std::optional<TensorView> append_mean_of_last(Importer& net, NodeReader& reader, const TensorView& x) {
  const auto mean = append_reduction(net, reader, x, {x.axes.size() - 1}, true, Reduction::kMean);
  return mean ? net.whole(reader, *mean) : std::nullopt;
}

std::optional<TensorView> append_variance(Importer& net, NodeReader& reader, const ImportValue& variance) {
  std::optional<TensorView> square;
  if (variance.is_centred) {
    square = net.whole(reader, as(variance, ImportForm::kSquare));
  } else {
    square = net.append({{"op", "multiply"}}, net.name_of(reader.node()), {variance.view.node, variance.view.node},
                        variance.view);
  }
  const auto mean = square ? append_mean_of_last(net, reader, *square) : std::nullopt;
  if (!mean || variance.epsilon == 0) return mean;
  const auto sum = net.append_two(reader, "add", *mean, constant_value(KnownNumbers{{}, {variance.epsilon}, false}));
  return sum ? std::optional(sum->view) : std::nullopt;
}

std::optional<TensorView> append_of_parts(Importer& net, NodeReader& reader, const ImportValue& part) {
  const auto unary_of = [&](const char* op, ImportForm below) -> std::optional<TensorView> {
    const auto x = net.whole(reader, as(part, below));
    return x ? std::optional(net.append({{"op", op}}, net.name_of(reader.node()), {x->node}, *x)) : std::nullopt;
  };
  switch (part.form) {
    case ImportForm::kMean: return append_mean_of_last(net, reader, part.view);
    case ImportForm::kCentred: {
      ImportValue mean = as(part, ImportForm::kMean);
      const auto whole = net.whole(reader, mean);
      mean = whole ? tensor_value(*whole) : ImportValue();
      mean.factor = -1;
      const auto sum = whole ? net.append_two(reader, "add", part.view, mean) : std::nullopt;
      return sum ? std::optional(sum->view) : std::nullopt;
    }
    case ImportForm::kSquare: {
      const auto x = net.whole(reader, as(part, ImportForm::kCentred));
      return x ? std::optional(net.append({{"op", "multiply"}}, net.name_of(reader.node()), {x->node, x->node}, *x))
               : std::nullopt;
    }
    case ImportForm::kVariance: return append_variance(net, reader, part);
    case ImportForm::kDeviation: return unary_of("sqrt", ImportForm::kVariance);
    case ImportForm::kInverse: return unary_of("reciprocal", ImportForm::kDeviation);
    default: break;
  }
  const ImportValue gamma = part.form == ImportForm::kScaled ? *part.other : all_of(net, reader, part, 1),
                    beta = all_of(net, reader, part, 0);
  return append_norm(net, reader, part, gamma, part.is_centred ? &beta : nullptr);
}

}  // namespace

bool is_mean_of_norm(Importer& net, NodeReader& reader, const ImportValue& x) {
  const bool is_square = x.form == ImportForm::kPowers && x.powers == std::array<double, 4>{0, 0, 1, 0};
  const bool is_value = x.form == ImportForm::kTensor && x.factor == 1 && x.expanded.empty();
  if (!is_square && !is_value && x.form != ImportForm::kSquare) return false;
  ImportValue mean = as(x, is_value ? ImportForm::kMean : ImportForm::kVariance);
  mean.is_centred = !is_square;
  net.set(reader, mean);
  return true;
}

bool is_epsilon(Importer& net, NodeReader& reader, const ImportValue& variance, double number) {
  if (variance.form != ImportForm::kVariance || number <= 0 || variance.epsilon != 0) return false;
  ImportValue sum = variance;
  sum.epsilon = number;
  net.set(reader, sum);
  return true;
}

bool is_centred(Importer& net, NodeReader& reader, const ImportValue& value, const ImportValue& mean) {
  if (mean.form != ImportForm::kMean) return false;
  const ImportValue x = net.product_settled(reader, value).value_or(ImportValue());
  if (x.form != ImportForm::kTensor || x.factor != 1 || !x.view.is_same(mean.view)) return false;
  net.set(reader, as(x, ImportForm::kCentred));
  return true;
}

bool is_normed(Importer& net, NodeReader& reader, const ImportValue& value, const ImportValue& by, bool divides) {
  if (by.form != (divides ? ImportForm::kDeviation : ImportForm::kInverse)) return false;
  const ImportValue x = net.product_settled(reader, value).value_or(ImportValue());
  const bool is_of_norm = x.view.is_same(by.view);
  const bool is_value = by.is_centred ? x.form == ImportForm::kCentred
                                      : x.form == ImportForm::kTensor && x.factor == 1 && x.expanded.empty();
  if (!is_of_norm || !is_value) return false;
  net.set(reader, as(by, ImportForm::kNormed));
  return true;
}

bool is_norm_weight(Importer& net, NodeReader& reader, const ImportValue& normed, const ImportValue& gamma) {
  if (normed.form != ImportForm::kNormed || !suits(normed, gamma)) return false;
  if (!normed.is_centred) {
    const auto y = append_norm(net, reader, normed, gamma, nullptr);
    if (y) net.set_tensor(reader, *y);
    return true;
  }
  ImportValue scaled = as(normed, ImportForm::kScaled);
  scaled.other = std::make_shared<ImportValue>(gamma);
  net.set(reader, scaled);
  return true;
}

bool is_norm_bias(Importer& net, NodeReader& reader, const ImportValue& scaled, const ImportValue& beta) {
  if (scaled.form != ImportForm::kScaled || !suits(scaled, beta)) return false;
  const auto y = append_norm(net, reader, scaled, *scaled.other, &beta);
  if (y) net.set_tensor(reader, *y);
  return true;
}

bool is_part_of_norm(const ImportValue& value) {
  const ImportForm parts[] = {ImportForm::kMean,     ImportForm::kCentred,   ImportForm::kSquare,
                              ImportForm::kVariance, ImportForm::kDeviation, ImportForm::kInverse};
  return std::find(std::begin(parts), std::end(parts), value.form) != std::end(parts);
}

std::optional<ImportValue> append_part_of_norm(Importer& net, NodeReader& reader, const ImportValue& part) {
  const auto view = append_of_parts(net, reader, part);
  return view ? std::optional(tensor_value(*view)) : std::nullopt;
}

}  // namespace reprise
