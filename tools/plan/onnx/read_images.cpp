// Ops of ONNX that read images [N,C,H,W] or signals [N,C,L]: convolutions, pools, norms by channel.
// Also means, sums, lengths and maxima over axes other than the batch.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tools/files/formats/json_text.h"
#include "tools/plan/onnx/importer.h"
#include "tools/plan/onnx/norms.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int64_t kMaxSide = 65535;  // maximum side of a window and of an image

// Returns equal numbers as one number, 3 for [3,3], because a net's keys accept one number for all
// sides.
json shortened(const std::vector<int64_t>& numbers) {
  const bool is_same = std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == numbers[0]; });
  return is_same ? json(numbers[0]) : json(numbers);
}

// A window in ONNX's terms, of two sides; a signal has one side, and the other is 1.
struct Window {
  std::vector<int64_t> kernel, stride, dilation, pad;  // pad: top, left, bottom, right
};

class WindowReader {
 public:
  WindowReader(NodeReader& reader, size_t sides) : reader_(reader), sides_(sides) {}

  // Returns the window; `in` has the sides of the images that it slides over.
  Window read(const std::vector<int64_t>& kernel, const std::vector<int64_t>& in) {
    Window window;
    window.kernel = sided("kernel_shape", kernel, 1);
    window.stride = sided("strides", reader_.integers("strides", {}), 1);
    window.dilation = sided("dilations", reader_.integers("dilations", {}), 1);
    std::vector<int64_t> pads = reader_.integers("pads", {});
    if (!pads.empty() && pads.size() != 2 * sides_) refuse("pads", pads, 2 * sides_);
    pads.resize(2 * sides_);
    window.pad = sides_ == 2 ? pads : std::vector<int64_t>{0, pads[0], 0, pads[1]};
    for (auto* numbers : {&window.kernel, &window.stride, &window.dilation, &window.pad}) {
      const bool may_be_zero = numbers == &window.pad;
      for (int64_t& n : *numbers) {
        if (n >= (may_be_zero ? 0 : 1) && n <= kMaxSide) continue;
        reader_.refuse("its window has a side, stride, dilation or pad of " + std::to_string(n));
        n = 1;
      }
    }
    pad_automatically(window, in);
    return window;
  }
  // Rounds the number of windows up instead of down, by more padding at the end.
  void round_up(Window& window, const std::vector<int64_t>& in) {
    for (size_t side = 0; side < 2; ++side) {
      const int64_t reach = window.dilation[side] * (window.kernel[side] - 1) + 1, stride = window.stride[side];
      const int64_t space = in[side] + window.pad[side] + window.pad[side + 2] - reach;
      if (space < 0 || space % stride == 0) continue;
      // PyTorch and ONNX use no window that begins in the padding at the end.
      const int64_t begin = (space / stride + 1) * stride;
      if (begin < in[side] + window.pad[side]) window.pad[side + 2] += stride - space % stride;
    }
  }

 private:
  std::vector<int64_t> sided(const char* name, const std::vector<int64_t>& numbers, int64_t absent) {
    std::vector<int64_t> sides = numbers.empty() ? std::vector<int64_t>(sides_, absent) : numbers;
    if (sides.size() != sides_) refuse(name, sides, sides_);
    sides.resize(sides_, 1);
    if (sides_ == 1) sides.insert(sides.begin(), 1);
    return sides;
  }
  void refuse(const char* name, const std::vector<int64_t>& numbers, size_t count) {
    reader_.refuse(std::string(name) + " is " + json(numbers).dump() + "; must be " + std::to_string(count) +
                   " numbers");
  }
  void pad_automatically(Window& window, const std::vector<int64_t>& in) {
    const std::string how = reader_.text("auto_pad", "NOTSET");
    if (how == "NOTSET") return;
    window.pad.assign(4, 0);
    if (how == "VALID") return;
    if (how != "SAME_UPPER" && how != "SAME_LOWER")
      return reader_.refuse("auto_pad is " + json_shown(how) + ", which is not known");
    for (size_t side = 0; side < 2; ++side) {
      const int64_t stride = std::max<int64_t>(1, window.stride[side]), out = (in[side] + stride - 1) / stride;
      const int64_t all =
          std::max<int64_t>(0, (out - 1) * stride + window.dilation[side] * (window.kernel[side] - 1) + 1 - in[side]);
      window.pad[how == "SAME_UPPER" ? side : side + 2] = all / 2;
      window.pad[how == "SAME_UPPER" ? side + 2 : side] = all - all / 2;
    }
  }
  NodeReader& reader_;
  const size_t sides_;
};

json keys_of(const Window& window) {
  json keys = {{"kernel", shortened(window.kernel)},
               {"stride", shortened(window.stride)},
               {"pad", shortened(window.pad)}};
  if (shortened(window.dilation) != 1) keys["dilation"] = shortened(window.dilation);
  return keys;
}

// Returns the layout of a window's output for images written as [N,H,W,C].
TensorView slid(const TensorView& x, const Window& window, int64_t channels, NodeReader& reader) {
  std::vector<int64_t> written = x.written;
  for (size_t side = 0; side < 2; ++side) {
    const int64_t space = written[side + 1] + window.pad[side] + window.pad[side + 2] -
                         window.dilation[side] * (window.kernel[side] - 1) - 1;
    if (space < 0) reader.refuse("its window is larger than its padded input");
    written[side + 1] = std::max<int64_t>(0, space) / window.stride[side] + 1;
  }
  written[3] = channels;
  if (x.axes.size() == 3) return TensorView::of("", {written[0], channels, written[2]}, {0, 2, 1}, written);
  return TensorView::of("", {written[0], channels, written[1], written[2]}, {0, 2, 3, 1}, written);
}

// Returns the input of the pad with zeros that wrote `images`, and adds the zeros to the window's
// padding. Returns the images' own node if there is no such pad, or if the padding would be above
// 255.
std::string images_within(Importer& net, const TensorView& images, Window& window) {
  constexpr int64_t kMaxPad = 255;
  const json* node = net.node_called(images.node);
  if (node == nullptr || node->at("op") != "pad") return images.node;
  const std::vector<int64_t> before = node->at("before"), behind = node->at("behind");
  const bool is_around = before.size() == 3 && before[2] == 0 && behind[2] == 0;
  if (!is_around) return images.node;
  const std::vector<int64_t> all = {window.pad[0] + before[0], window.pad[1] + before[1], window.pad[2] + behind[0],
                                    window.pad[3] + behind[1]};
  if (*std::max_element(all.begin(), all.end()) > kMaxPad) return images.node;
  window.pad = all;
  return node->at("inputs")[0];
}

// Returns the bias. Returns nothing if there is none, or if it is zeros that are not trained, which
// an exporter writes for a layer without a bias.
std::optional<ImportValue> bias_of(Importer& net, NodeReader& reader, size_t n) {
  if (!reader.has_input(n)) return net.bias(reader, n);
  const auto known = net.known_of(net.value(reader, n));
  const bool is_nothing =
      known && std::all_of(known->numbers.begin(), known->numbers.end(), [](double number) { return number == 0; });
  return is_nothing ? std::nullopt : net.parameter(reader, n);
}

void read_conv(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto weight = net.parameter(reader, 1);
  const auto bias = bias_of(net, reader, 2);
  const int64_t groups = reader.integer("group", 1);
  const std::vector<int64_t> kernel = reader.integers("kernel_shape", {});
  const std::vector<int64_t> shape = weight ? weight->view.shape() : std::vector<int64_t>();
  if (weight && shape.size() != 3 && shape.size() != 4)
    return reader.refuse("its weight has " + std::to_string(shape.size()) +
                         " dimensions; must have four, [K,C,R,S], or three, [K,C,R]");
  if (!weight) return;
  if (x && x->axes.size() != shape.size())
    return reader.refuse("its weight " + json(shape).dump() + " does not suit " + json(x->shape()).dump());
  const std::vector<int64_t> own(shape.begin() + 2, shape.end());
  if (!kernel.empty() && kernel != own)
    reader.refuse("kernel_shape is " + json(kernel).dump() + ", its weight's " + json(own).dump());
  const auto images = x ? net.images(reader, *x) : std::nullopt;
  const std::vector<int64_t> in =
      images ? std::vector<int64_t>{images->written[1], images->written[2]} : std::vector<int64_t>{1, 1};
  const Window window = WindowReader(reader, own.size()).read(own, in);
  if (groups < 1 || (images && groups * shape[1] != images->written[3])) {
    reader.refuse("group is " + std::to_string(groups) + " and its weight " + json(shape).dump() +
                  (images ? ", which does not suit " + std::to_string(images->written[3]) + " channels" : ""));
  }
  if (reader.failed() || !images) return;
  const TensorView layout = slid(*images, window, shape[0], reader);
  if (reader.failed()) return;
  Window whole = window;
  const std::string source = images_within(net, *images, whole);
  json node = keys_of(whole);
  node.update({{"op", "conv"}, {"channels", shape[0]}});
  if (groups > 1) node["groups"] = groups;
  if (bias) node["bias"] = true;
  const std::string name = net.name_of(reader.node(), weight->tensor);
  const bool is_signal = shape.size() == 3;
  net.guess_filter(name + ".weight", *weight);
  net.add_weight(name + ".weight", *weight, weight->view.ids(),
                 is_signal ? std::vector<int64_t>{shape[0], shape[1], 1, shape[2]} : shape);
  if (bias) net.add_weight(name + ".bias", *bias);
  net.set_tensor(reader, net.append(node, name, {source}, layout));
}

void read_conv_transpose(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto weight = net.parameter(reader, 1);
  const auto bias = bias_of(net, reader, 2);
  const int64_t groups = reader.integer("group", 1);
  const std::vector<int64_t> more = reader.integers("output_padding", {0, 0});
  reader.integers("kernel_shape", {});
  if (reader.find("output_shape") != nullptr)
    reader.refuse("output_shape is not available; pads and output_padding are");
  reader.require_text("auto_pad", "NOTSET");
  if (!weight || !x) return;
  const std::vector<int64_t> shape = weight->view.shape();
  const auto images = net.images(reader, *x);
  if (!images || x->axes.size() != 4 || shape.size() != 4 || more.size() != 2 || groups < 1 ||
      shape[0] != images->written[3])
    return reader.refuse("its weight " + json(shape).dump() + ", group or output_padding does not suit what it reads");
  const Window window = WindowReader(reader, 2).read({shape[2], shape[3]}, {images->written[1], images->written[2]});
  if (reader.failed()) return;
  const int64_t channels = shape[1] * groups;
  std::vector<int64_t> written = images->written;
  for (size_t side = 0; side < 2; ++side) {
    written[side + 1] = (written[side + 1] - 1) * window.stride[side] +
                        window.dilation[side] * (window.kernel[side] - 1) + 1 - window.pad[side] -
                        window.pad[side + 2] + more[side];
    if (written[side + 1] < 1 || written[side + 1] > kMaxSide || more[side] < 0 || more[side] > kMaxSide)
      return reader.refuse("its window leaves images of no size, or of more than 65535");
  }
  written[3] = channels;
  json node = keys_of(window);
  node.update({{"op", "conv_transpose"},
               {"channels", channels},
               {"groups", groups},
               {"bias", bias.has_value()},
               {"more", shortened(more)}});
  const std::string name = net.name_of(reader.node(), weight->tensor);
  net.add_weight(name + ".weight", *weight);
  if (bias) net.add_weight(name + ".bias", *bias);
  net.set_tensor(reader,
                 net.append(node, name, {images->node},
                            TensorView::of("", {written[0], channels, written[1], written[2]}, {0, 2, 3, 1}, written)));
}

// Returns images, signals, or rows [N,C], in the layout of images.
std::optional<TensorView> places_of(Importer& net, NodeReader& reader, const TensorView& x) {
  if (x.axes.size() != 2) return net.images(reader, x);
  const auto rows = net.rows(reader, x);
  if (!rows) return std::nullopt;
  int64_t places = 1;
  for (size_t d = 1; d + 1 < rows->written.size(); ++d) places *= rows->written[d];
  return net.written_as(*rows, {net.batch(), places, 1, rows->written.back()});
}

// True if all numbers of the value are known and equal to `number`.
bool is_all(const Importer& net, const ImportValue& value, double number) {
  const auto known = net.known_of(value, true);
  return known && std::all_of(known->numbers.begin(), known->numbers.end(), [&](double n) { return n == number; });
}

void read_batch_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  std::optional<ImportValue> parts[4];
  for (size_t n = 0; n < 4; ++n) parts[n] = net.parameter(reader, n + 1);
  const double epsilon = reader.number("epsilon", 1e-5), kept = reader.number("momentum", 0.9);
  reader.integer("training_mode", 0);  // the attribute is read by is_in_training()
  reader.require_integer("spatial", 1);
  if (reader.find("is_test") != nullptr) reader.integer("is_test", 1);
  const auto images = x ? places_of(net, reader, *x) : std::nullopt;
  if (reader.failed() || !images) return;
  // If the module has no weight and bias, the file has ones and zeros, which are no parameters.
  const bool affine =
      parts[0]->is_parameter || parts[1]->is_parameter || !is_all(net, *parts[0], 1) || !is_all(net, *parts[1], 0);
  const std::string name = net.name_of(reader.node(), (affine ? parts[0] : parts[2])->tensor);
  const char* const kNames[] = {".weight", ".bias", ".running_mean", ".running_var"};
  for (size_t n = affine ? 0 : 2; n < 4; ++n) net.add_weight(name + kNames[n], *parts[n]);
  // PyTorch's momentum is the share of the new statistics, ONNX's that of the old ones.
  const double momentum = std::round((1 - kept) * 1e6) / 1e6;
  json node = {{"op", "batch_norm"}, {"epsilon", epsilon}, {"momentum", momentum}};
  if (!affine) node["affine"] = false;
  const bool is_trained = is_in_training(net.model(), reader.node()), is_frozen = affine && parts[0]->tensor->is_frozen,
             keeps = !is_trained && net.is_in_training();
  if (is_trained && is_frozen) node["running"] = false;
  if (keeps && !is_frozen) node["running"] = true;
  if (!is_trained && !keeps && !is_frozen) net.note(Finding::kEvaluated, name + ".weight");
  if ((momentum == 0 || momentum == 1) && (is_trained || !(keeps || is_frozen)))
    return reader.refuse("its momentum is " + json(momentum).dump() +
                         ", as a module with momentum=None is exported; give the module a number, as 0.1");
  net.set_tensor(reader, net.append(node, name, {images->node}, *images));
}

void read_pool(Importer& net, NodeReader& reader, const char* op) {
  const auto x = net.tensor(reader, 0);
  const bool is_mean = std::string(op) == "avg_pool";
  const bool rounds_up = reader.integer("ceil_mode", 0) != 0;
  bool counts_pad = is_mean && reader.integer("count_include_pad", 0) != 0;
  if (!is_mean) reader.require_integer("storage_order", 0);
  if (reader.node().outputs.size() > 1 && !reader.node().outputs[1].empty())
    reader.refuse("its second output, the places, is not available");
  const std::vector<int64_t> kernel = reader.integers("kernel_shape", {});
  if (kernel.size() != 1 && kernel.size() != 2)
    return reader.refuse("kernel_shape is " + json(kernel).dump() + "; must be two numbers, or one of a signal");
  const auto images = x ? net.images(reader, *x) : std::nullopt;
  const std::vector<int64_t> in =
      images ? std::vector<int64_t>{images->written[1], images->written[2]} : std::vector<int64_t>{1, 1};
  WindowReader windows(reader, kernel.size());
  Window window = windows.read(kernel, in);
  if (reader.failed() || !images) return;
  const bool has_pad = window.pad != std::vector<int64_t>(4, 0);
  if (rounds_up && counts_pad && has_pad)
    return reader.refuse("ceil_mode with count_include_pad and pads is not available");
  counts_pad = counts_pad && has_pad;  // padding that rounding up adds does not count
  if (rounds_up) windows.round_up(window, in);
  const TensorView layout = slid(*images, window, images->written[3], reader);
  if (reader.failed()) return;
  json node = keys_of(window);
  node["op"] = op;
  if (counts_pad) node["counts_pad"] = true;
  net.set_tensor(reader, net.append(node, net.name_of(reader.node()), {images->node}, layout));
}
void read_max_pool(Importer& net, NodeReader& reader) { read_pool(net, reader, "max_pool"); }
void read_average_pool(Importer& net, NodeReader& reader) { read_pool(net, reader, "avg_pool"); }

// Appends the maximum of all places of [N,places,1,channels] as one max pool or several in
// sequence. Each has windows of at most 256 places that do not overlap.
std::optional<TensorView> append_largest(Importer& net, NodeReader& reader, const TensorView& x, int64_t places,
                                         int64_t channels) {
  constexpr int64_t kMaxOfWindow = 256;
  TensorView y = net.written_as(x, {net.batch(), places, 1, channels});
  while (places > 1) {
    int64_t window = std::min(places, kMaxOfWindow);
    while (places % window != 0) --window;
    if (window == 1)
      return reader.refuse("takes the largest of " + std::to_string(places) +
                           " places, which no number up to 256 divides"),
             std::nullopt;
    places /= window;
    TensorView layout = y;
    layout.written = {net.batch(), places, 1, channels};
    y = net.append({{"op", "max_pool"}, {"kernel", {window, 1}}, {"stride", {window, 1}}}, net.name_of(reader.node()),
                   {y.node}, layout);
  }
  return y;
}

// Appends the maximum of [N,places,channels], with a gradient that equal maxima share: the sum of x
// times softmax(2^57 x). The softmax is 1 / n for each of n maxima and otherwise 0. Returns the
// mean over the places; the caller turns it into the sum.
TensorView append_shared_largest(Importer& net, NodeReader& reader, const TensorView& x, int64_t places,
                                 int64_t channels, const TensorView& layout) {
  constexpr double kFar = 524288;  // 2^19, applied three times; a power of 2 keeps a number's digits
  const auto append = [&](const json& node, const TensorView& of) {
    return net.append(node, net.name_of(reader.node()), {of.node}, of);
  };
  const TensorView rows = net.written_as(x, {net.batch(), places, channels});
  const json turn = {{"op", "transpose"}, {"order", {2, 1}}};
  TensorView far = append({{"op", "detach"}}, rows);
  for (int n = 0; n < 3; ++n) far = append({{"op", "scale"}, {"factor", kFar}}, far);
  TensorView transposed = append(turn, far);
  transposed.written = {net.batch(), channels, places};
  TensorView shares = append(turn, append({{"op", "softmax"}}, transposed));
  shares.written = rows.written;
  const TensorView shared =
      net.append({{"op", "multiply"}}, net.name_of(reader.node()), {rows.node, shares.node}, rows);
  return net.append({{"op", "global_pool"}}, net.name_of(reader.node()), {shared.node}, layout);
}

// Reads a global pool of images or signals, which reduces all axes except the batch and the
// channels.
void read_pool_of_all(Importer& net, NodeReader& reader, Reduction reduction) {
  const auto x = net.tensor(reader, 0);
  if (!x) return;
  std::vector<size_t> axes;
  for (size_t axis = 2; axis < x->axes.size(); ++axis) axes.push_back(axis);
  if (axes.empty()) return reader.refuse("must read images, [N,C,H,W], or signals, [N,C,L]");
  if (const auto y = append_reduction(net, reader, *x, axes, true, reduction)) net.set(reader, *y);
}
void read_global_pool(Importer& net, NodeReader& reader) { read_pool_of_all(net, reader, Reduction::kMean); }
void read_global_max_pool(Importer& net, NodeReader& reader) { read_pool_of_all(net, reader, Reduction::kMax); }

// Returns the axes of a reduction, counted from the front. Refuses the node and returns nothing if
// there are none, if one is out of range, or if they are not known.
std::optional<std::vector<size_t>> reduced_axes(Importer& net, NodeReader& reader, size_t rank) {
  std::vector<int64_t> axes = reader.integers("axes", {});
  if (reader.has_input(1)) {
    if (const auto given = net.known(reader, 1)) axes = given->integers();
  }
  reader.require_integer("noop_with_empty_axes", 0);
  std::vector<size_t> places;
  for (int64_t axis : axes) {
    axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
    if (axis < 0 || axis >= static_cast<int64_t>(rank))
      return reader.refuse("axes are " + json(axes).dump() + " of " + std::to_string(rank)), std::nullopt;
    places.push_back(static_cast<size_t>(axis));
  }
  if (places.empty()) reader.refuse("works along the batch, which is not available");
  return reader.failed() ? std::nullopt : std::optional(places);
}

void read_reduction(Importer& net, NodeReader& reader, Reduction reduction) {
  const ImportValue x = net.product_settled(reader, net.value(reader, 0)).value_or(ImportValue());
  if (x.form == ImportForm::kUnknown) return;
  const bool keeps = reader.integer("keepdims", 1) != 0;
  const size_t rank = x.view.axes.size();
  const auto axes = reduced_axes(net, reader, rank);
  if (!axes) return;
  if (reduction == Reduction::kSum && is_masked_sum(net, reader, x, {axes->begin(), axes->end()}, keeps)) return;
  const bool is_last = axes->size() == 1 && axes->front() + 1 == rank && keeps;
  if (is_last && reduction == Reduction::kMean && is_mean_of_norm(net, reader, x)) return;
  const auto whole = net.whole(reader, x);
  const auto y = whole ? append_reduction(net, reader, *whole, *axes, keeps, reduction) : std::nullopt;
  if (y) net.set(reader, *y);
}
void read_mean(Importer& net, NodeReader& reader) { read_reduction(net, reader, Reduction::kMean); }
void read_sum(Importer& net, NodeReader& reader) { read_reduction(net, reader, Reduction::kSum); }
void read_largest(Importer& net, NodeReader& reader) {
  const bool shares = reader.integer("shares_gradient", 0) != 0;  // torch's amax shares its gradient (aten_graph.cpp)
  read_reduction(net, reader, shares ? Reduction::kSharedMax : Reduction::kMax);
}

// Reads the root of a sum of squares. The nodes compute the root of the mean of the squares. The
// value's factor is the root of the number of summed elements.
void read_length(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  if (!x) return;
  const bool keeps = reader.integer("keepdims", 1) != 0;
  const auto axes = reduced_axes(net, reader, x->axes.size());
  if (!axes) return;
  const TensorView square = net.append({{"op", "multiply"}}, net.name_of(reader.node()), {x->node, x->node}, *x);
  auto length = append_reduction(net, reader, square, *axes, keeps, Reduction::kSum);
  if (!length) return;
  length->view = net.append({{"op", "sqrt"}}, net.name_of(reader.node()), {length->view.node}, length->view);
  length->factor = std::sqrt(length->factor);
  net.set(reader, *length);
}

// Reads a pad with zeros. Before a convolution it becomes the convolution's own padding
// (images_within()).
void read_pad(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto pads = net.known(reader, 1);
  const auto value = reader.has_input(2) ? net.known(reader, 2) : std::nullopt;
  const auto given = reader.has_input(3) ? net.known(reader, 3) : std::nullopt;
  reader.require_text("mode", "constant");
  if (!x || !pads || reader.failed()) return;
  const size_t rank = x->axes.size();
  std::vector<int64_t> axes = given ? given->integers() : std::vector<int64_t>(), before(rank), behind(rank);
  for (size_t axis = 0; !given && axis < rank; ++axis) axes.push_back(static_cast<int64_t>(axis));
  if (pads->numbers.size() != 2 * axes.size())
    return reader.refuse("pads are " + json(pads->integers()).dump() + " of " + std::to_string(rank) + " axes");
  for (size_t n = 0; n < axes.size(); ++n) {
    const int64_t axis = axes[n] + (axes[n] < 0 ? static_cast<int64_t>(rank) : 0);
    if (axis < 0 || axis >= static_cast<int64_t>(rank))
      return reader.refuse("axes are " + json(axes).dump() + " of " + std::to_string(rank));
    before[static_cast<size_t>(axis)] = pads->integers()[n];
    behind[static_cast<size_t>(axis)] = pads->integers()[axes.size() + n];
  }
  bool is_empty = true;
  for (size_t axis = 0; axis < rank; ++axis) {
    for (const int64_t n : {before[axis], behind[axis]}) {
      if (n < 0 || n > kMaxSide)
        return reader.refuse("pads are " + json(pads->integers()).dump() + "; available are 0 to 65535");
      is_empty = is_empty && n == 0;
    }
  }
  if (is_empty) return net.set_tensor(reader, *x);
  if (value && value->numbers != std::vector<double>{0}) return reader.refuse("pads with what is not 0");
  if (before[0] != 0 || behind[0] != 0) return reader.refuse("pads the batch, which is not available");
  if (rank != 4 && rank != 3)
    return reader.refuse("must read images, [N,C,H,W], or [N,T,C]; reads " + json(x->shape()).dump());
  // Each axis must be one dimension of the layout.
  const auto laid = rank == 4 ? net.images(reader, *x) : net.rows(reader, *x);
  if (!laid) return;
  const std::vector<size_t> order = rank == 4 ? std::vector<size_t>{2, 3, 1} : std::vector<size_t>{1, 2};
  std::vector<int64_t> at_front, at_back, shape = x->shape(), written = {shape[0]};
  for (const size_t axis : order) {
    at_front.push_back(before[axis]), at_back.push_back(behind[axis]);
    written.push_back(shape[axis] + before[axis] + behind[axis]);
  }
  std::vector<int64_t> now = {shape[0]};
  for (const size_t axis : order) now.push_back(shape[axis]);
  for (size_t axis = 1; axis < rank; ++axis) shape[axis] += before[axis] + behind[axis];
  std::vector<size_t> memory = {0};
  memory.insert(memory.end(), order.begin(), order.end());
  const TensorView whole = net.written_as(*laid, now);
  net.set_tensor(reader,
                 net.append({{"op", "pad"}, {"before", at_front}, {"behind", at_back}}, net.name_of(reader.node()),
                            {whole.node}, TensorView::of("", shape, memory, written)));
}

// Reads a norm of each channel. The weight and the bias are in the node, or in a product and a sum
// after it.
void read_instance_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto gamma = net.value(reader, 1), beta = net.value(reader, 2);
  const double epsilon = reader.number("epsilon", 1e-5);
  if (!x || x->axes.size() < 3 || reader.failed()) return;
  ImportValue normed;
  normed.form = ImportForm::kNormed;
  normed.view = *x;
  normed.epsilon = epsilon;
  normed.groups = static_cast<uint32_t>(x->axis_size(1));
  normed.group_axis = x->axes[1];
  // A scale of ones and a bias of zeros are trained if they belong to the module. Otherwise the
  // exporter has added them.
  const bool has_own = net.is_modules_own(gamma) || net.is_modules_own(beta);
  if (!has_own && is_all(net, gamma, 1) && is_all(net, beta, 0)) return net.set(reader, normed);
  const auto images = net.images(reader, *x);
  if (!images || gamma.form != ImportForm::kConstant || beta.form != ImportForm::kConstant || gamma.tensor == nullptr ||
      beta.tensor == nullptr)
    return reader.refuse("its scale and bias must be constants of the model");
  const std::string name = net.name_of(reader.node(), gamma.tensor);
  json node = {{"op", "group_norm"}, {"groups", normed.groups}, {"epsilon", epsilon}};
  net.add_norm_parts(node, name, gamma, &beta);
  net.set_tensor(reader, net.append(node, name, {images->node}, *images));
}

void read_group_norm(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const auto gamma = net.parameter(reader, 1), beta = net.parameter(reader, 2);
  const int64_t groups = reader.integer("num_groups", 0);
  const double epsilon = reader.number("epsilon", 1e-5);
  reader.integer("stash_type", 1);
  const auto images = x ? net.images(reader, *x) : std::nullopt;
  if (!images || !gamma || !beta) return;
  if (groups < 1 || images->written[3] % groups != 0 || gamma->view.shape() != std::vector<int64_t>{images->written[3]})
    return reader.refuse("num_groups is " + std::to_string(groups) + " and its scale " +
                         json(gamma->view.shape()).dump() + " of " + std::to_string(images->written[3]) + " channels");
  if (reader.failed()) return;
  const std::string name = net.name_of(reader.node(), gamma->tensor);
  json node = {{"op", "group_norm"}, {"groups", groups}, {"epsilon", epsilon}};
  net.add_norm_parts(node, name, *gamma, &*beta);
  net.set_tensor(reader, net.append(node, name, {images->node}, *images));
}

// A resize along one side: every `many` old pixels become `become` new pixels.
struct Step {
  int64_t many = 0, become = 0;
};

// Returns the old pixel that PyTorch takes for new pixel `p`, computed in f32. `ratio` is the
// number of old pixels for each new one. The exact form starts from the middle of the new pixel.
int64_t nearest_place(float ratio, bool is_exact, int64_t p, int64_t in) {
  const float place = is_exact ? (static_cast<float>(p) + 0.5f) * ratio : static_cast<float>(p) * ratio;
  return std::min(static_cast<int64_t>(std::floor(place)), in - 1);
}

// Returns the step with which each new pixel p reads the old pixel places[p]; nothing if there is
// no such step.
std::optional<Step> step_of_places(const std::vector<int64_t>& places, bool is_exact, int64_t in) {
  const int64_t out = static_cast<int64_t>(places.size());
  const auto place_of = [&](const Step& step, int64_t p) {
    return is_exact ? (2 * p + 1) * step.many / (2 * step.become) : p * step.many / step.become;
  };
  const auto suits = [&](const Step& step) {
    for (int64_t p = 0; p < out; ++p) {
      if (place_of(step, p) != places[static_cast<size_t>(p)]) return false;
    }
    return true;
  };
  if (suits({in, out})) return Step{in, out};
  Step minimum = {0, 1};  // the smallest step with which no new pixel reads an earlier old pixel than `places`
  for (int64_t p = 0; p < out; ++p) {
    const Step own = is_exact ? Step{2 * places[static_cast<size_t>(p)], 2 * p + 1}
                              : Step{places[static_cast<size_t>(p)], std::max<int64_t>(1, p)};
    if (own.many * minimum.become > minimum.many * own.become) minimum = own;
  }
  return minimum.many > 0 && suits(minimum) ? std::optional(minimum) : std::nullopt;
}

// Returns a fraction close to `ratio`, by its continued fraction. The relative error is at most
// 1e-10, unless the numbers of the fraction would exceed kMax.
Step step_of_ratio(double ratio) {
  constexpr int64_t kMax = 1 << 20;
  Step before = {1, 0}, step = {static_cast<int64_t>(ratio), 1};
  double rest = ratio - std::floor(ratio);
  while (std::abs(static_cast<double>(step.many) / static_cast<double>(step.become) - ratio) > 1e-10 * ratio) {
    const double inverse = 1 / rest;
    const auto whole = static_cast<int64_t>(inverse);
    const Step next = {whole * step.many + before.many, whole * step.become + before.become};
    if (next.become > kMax || next.many > kMax) break;
    before = std::exchange(step, next);
    rest = inverse - std::floor(inverse);
  }
  return step;
}

// Resizes images written as [N,H,W,C]. A resize node uses the ratio of its input's and output's
// sides. For another step the images are first extended, by their last row and column and then by
// zeros that no kept pixel reads. The surplus is cut off. The exact form resizes to twice as many
// pixels and takes every second.
std::optional<TensorView> append_resized(Importer& net, NodeReader& reader, const TensorView& images,
                                         const std::string& kind, const std::array<Step, 2>& steps,
                                         const std::array<int64_t, 2>& size) {
  const bool is_exact = kind == "nearest_exact";
  const std::array<int64_t, 2> in = {images.written[1], images.written[2]};
  std::array<int64_t, 2> longer = in, resized = size, maximum = size;
  for (size_t side = 0; side < 2; ++side) {
    const auto [many, become] = steps[side];
    const bool is_own = many == in[side] && become == size[side];
    // The extended side is at least one pixel longer than the side of `images`.
    const int64_t times = is_own ? 1 : std::max((in[side] + many) / many, (size[side] + become - 1) / become);
    longer[side] = many * times, resized[side] = become * times * (is_exact ? 2 : 1);
    maximum[side] = size[side] * (is_exact ? 2 : 1);
    if (std::max(longer[side], resized[side]) > kMaxSide) {
      reader.refuse("takes " + std::to_string(size[side]) + " of " + std::to_string(in[side]) +
                    " pixels by a scale that is no simple fraction");
      return std::nullopt;
    }
  }
  TensorView y = images;
  const auto append = [&](const json& node, const std::vector<std::string>& inputs, int64_t height, int64_t width) {
    TensorView layout = y;
    layout.written = {y.written[0], height, width, y.written[3]};
    y = net.append(node, net.name_of(reader.node()), inputs, layout);
  };
  for (size_t side = 0; side < 2; ++side) {
    if (longer[side] == in[side]) continue;
    const json axis = side + 1;
    const TensorView whole = y;
    std::array<int64_t, 2> now = {y.written[1], y.written[2]};
    now[side] = 1;
    append({{"op", "slice"}, {"axis", axis}, {"first", in[side] - 1}, {"count", 1}}, {whole.node}, now[0], now[1]);
    now[side] = in[side] + 1;
    append({{"op", "concat"}, {"axis", axis}}, {whole.node, y.node}, now[0], now[1]);
  }
  const std::array<int64_t, 2> pad = {longer[0] - y.written[1], longer[1] - y.written[2]};
  if (pad[0] + pad[1] > 0)
    append({{"op", "pad"}, {"before", 0}, {"behind", {pad[0], pad[1], 0}}}, {y.node}, longer[0], longer[1]);
  if (resized != longer)
    append({{"op", "resize_" + (is_exact ? "nearest" : kind)}, {"size", {resized[0], resized[1]}}}, {y.node},
           resized[0], resized[1]);
  for (size_t side = 0; side < 2; ++side) {
    if (resized[side] == maximum[side]) continue;
    std::array<int64_t, 2> now = {y.written[1], y.written[2]};
    now[side] = maximum[side];
    append({{"op", "slice"}, {"axis", side + 1}, {"first", 0}, {"count", maximum[side]}}, {y.node}, now[0], now[1]);
  }
  if (is_exact) {
    for (size_t side = 0; side < 2; ++side) {
      std::array<int64_t, 2> now = {y.written[1], y.written[2]};
      now[side] -= 1;
      append({{"op", "slice"}, {"axis", side + 1}, {"first", 1}, {"count", now[side]}}, {y.node}, now[0], now[1]);
    }
    append({{"op", "avg_pool"}, {"kernel", 1}, {"stride", 2}}, {y.node}, size[0], size[1]);
  }
  const std::vector<int64_t> written = {images.written[0], size[0], size[1], images.written[3]};
  return TensorView::of("", {written[0], written[3], size[0], size[1]}, {0, 2, 3, 1}, written).by(y.node);
}

// Reads torch's interpolate: nearest, and bilinear with or without aligned corners.
void read_resize(Importer& net, NodeReader& reader) {
  const auto x = net.tensor(reader, 0);
  const std::string mode = reader.text("mode", "nearest"),
                    places = reader.text("coordinate_transformation_mode", "half_pixel"),
                    rounding = reader.text("nearest_mode", "round_prefer_floor");
  reader.number("cubic_coeff_a", 0);
  reader.require_integer("exclude_outside", 0);
  reader.number("extrapolation_value", 0);
  reader.require_integer("antialias", 0);
  reader.require_text("keep_aspect_ratio_policy", "stretch");
  const auto images = x ? net.images(reader, *x) : std::nullopt;
  if (!images || reader.failed()) return;
  if (x->axes.size() != 4) return reader.refuse("must read images, [N,C,H,W]");
  std::vector<int64_t> shape = x->shape();
  double ratios[2] = {0, 0};  // old pixels for each new one; 0: the ratio of the sizes
  if (reader.has_input(3)) {
    const auto sizes = net.known(reader, 3);
    if (!sizes) return;
    shape = sizes->integers();
  } else {
    const auto scales = net.known(reader, 2);
    if (!scales) return;
    for (size_t n = 0; n < shape.size() && n < scales->numbers.size(); ++n) {
      if (scales->numbers[n] == 1) continue;
      if (!(scales->numbers[n] > 0))
        return reader.refuse("scales " + std::to_string(shape[n]) + " places by " + std::to_string(scales->numbers[n]));
      const double size = static_cast<double>(shape[n]) * scales->numbers[n], whole = std::floor(size * (1 + 1e-6));
      if (n >= 2 && (mode == "nearest" || std::abs(size - whole) > 1e-9 * size)) ratios[n - 2] = 1 / scales->numbers[n];
      shape[n] = static_cast<int64_t>(whole);
    }
  }
  if (shape.size() != 4 || shape[0] != x->shape()[0] || shape[1] != x->shape()[1] || shape[2] < 1 || shape[3] < 1 ||
      shape[2] > kMaxSide || shape[3] > kMaxSide)
    return reader.refuse("to " + json(shape).dump() + " from " + json(x->shape()).dump() +
                         "; available are other heights and widths");
  std::string kind;
  if (mode == "nearest" && places == "asymmetric" && rounding == "floor") kind = "nearest";
  if (mode == "nearest" && places == "half_pixel" && rounding == "round_prefer_ceil") kind = "nearest_exact";
  if (mode == "linear" && (places == "half_pixel" || places == "pytorch_half_pixel")) kind = "bilinear";
  if (mode == "linear" && places == "align_corners") kind = "bilinear_aligned";
  // For a side of one pixel PyTorch takes the middle of the old pixels, and ONNX the first.
  const bool takes_first =
      places == "pytorch_half_pixel" && ((shape[2] == 1 && x->shape()[2] > 1) || (shape[3] == 1 && x->shape()[3] > 1));
  if (takes_first)
    return reader.refuse("to a side of 1 with " + json_shown(places) + " is not available; with \"half_pixel\" it is");
  if (kind.empty())
    return reader.refuse("mode is " + json_shown(mode) + " with " + json_shown(places) + " and " +
                         json_shown(rounding) +
                         "; available are nearest with asymmetric and floor or half_pixel and round_prefer_ceil, and "
                         "linear with half_pixel or align_corners");
  // ONNX divides by (side * scale - 1), and PyTorch by the side of the output, an integer, minus 1.
  if (kind == "bilinear_aligned" && (ratios[0] != 0 || ratios[1] != 0))
    return reader.refuse("has scales that make no whole sides, with \"align_corners\", where PyTorch and ONNX differ; "
                         "export it with sizes");
  std::vector<Step> steps;
  for (size_t side = 0; side < 2; ++side) {
    const int64_t in = x->shape()[side + 2], out = shape[side + 2];
    std::optional<Step> own = Step{in, out};
    if (mode == "nearest") {
      const float ratio =
          ratios[side] == 0 ? static_cast<float>(in) / static_cast<float>(out) : static_cast<float>(ratios[side]);
      std::vector<int64_t> taken;
      for (int64_t p = 0; p < out; ++p) taken.push_back(nearest_place(ratio, kind == "nearest_exact", p, in));
      own = step_of_places(taken, kind == "nearest_exact", in);
    } else if (ratios[side] != 0 && kind == "bilinear") {
      own = step_of_ratio(ratios[side]);
    }
    if (!own)
      return reader.refuse("takes " + std::to_string(out) + " of " + std::to_string(in) +
                           " pixels by a scale that no fraction is");
    steps.push_back(*own);
  }
  const auto y = append_resized(net, reader, *images, kind, {steps[0], steps[1]}, {shape[2], shape[3]});
  if (y) net.set_tensor(reader, *y);
}

}  // namespace

// Reduces each channel by itself. The axes that are not reduced, without the batch, are the
// channels.
std::optional<ImportValue> append_reduction(Importer& net, NodeReader& reader, const TensorView& x,
                                            const std::vector<size_t>& axes, bool keeps, Reduction reduction) {
  std::vector<int> reduced, kept;
  TensorView layout = x;
  layout.axes.clear();
  for (size_t axis = 0; axis < x.axes.size(); ++axis) {
    const bool is_reduced = std::count(axes.begin(), axes.end(), axis) > 0;
    std::vector<int>& to = is_reduced ? reduced : kept;
    for (const int id : x.axes[axis]) to.push_back(id);
    if (!is_reduced) layout.axes.push_back(x.axes[axis]);
    if (is_reduced && keeps) layout.axes.emplace_back();
  }
  if (std::count(reduced.begin(), reduced.end(), TensorView::kBatch) > 0)
    return reader.refuse("works along the batch, which is not available"), std::nullopt;
  const auto by_place = [&](int a, int b) { return x.place(a) < x.place(b); };
  std::sort(reduced.begin(), reduced.end(), by_place);
  std::sort(kept.begin(), kept.end(), by_place);
  std::vector<int> ids = {TensorView::kBatch};
  ids.insert(ids.end(), reduced.begin(), reduced.end());
  ids.insert(ids.end(), kept.begin() + (kept.empty() ? 0 : 1), kept.end());  // kept[0] is the batch, which `ids` has
  auto ordered = net.in_order(reader, x, ids);
  if (!ordered) return std::nullopt;
  int64_t places = 1, channels = 1;
  for (const int id : reduced) places *= x.size(id);
  for (const int id : kept) channels *= id == TensorView::kBatch ? 1 : x.size(id);
  const auto& written = ordered->written;
  const bool is_image = written.size() == 4 && written[3] == channels && written[1] * written[2] == places;
  if (!is_image) ordered = net.written_as(*ordered, {net.batch(), places, 1, channels});
  layout.memory.clear();
  for (const int id : ids) {
    if (std::count(reduced.begin(), reduced.end(), id) == 0) layout.memory.push_back({id, x.size(id)});
  }
  layout.written = {net.batch(), channels};
  if (reduction == Reduction::kSharedMax && places > 1)
    return tensor_value(append_shared_largest(net, reader, *ordered, places, channels, layout),
                        static_cast<double>(places));
  if (reduction == Reduction::kMax || reduction == Reduction::kSharedMax) {
    const auto largest = append_largest(net, reader, *ordered, places, channels);
    if (!largest) return std::nullopt;
    layout.written = largest->written;
    return tensor_value(layout.by(largest->node));
  }
  const TensorView mean = net.append({{"op", "global_pool"}}, net.name_of(reader.node()), {ordered->node}, layout);
  return tensor_value(mean, reduction == Reduction::kSum ? static_cast<double>(places) : 1);
}

const OnnxOps& image_ops() {
  static const OnnxOps ops = {{"Conv", read_conv},
                              {"ConvTranspose", read_conv_transpose},
                              {"BatchNormalization", read_batch_norm},
                              {"MaxPool", read_max_pool},
                              {"AveragePool", read_average_pool},
                              {"GlobalAveragePool", read_global_pool},
                              {"GlobalMaxPool", read_global_max_pool},
                              {"ReduceMean", read_mean},
                              {"ReduceSum", read_sum},
                              {"ReduceMax", read_largest},
                              {"ReduceL2", read_length},
                              {"Pad", read_pad},
                              {"InstanceNormalization", read_instance_norm},
                              {"GroupNormalization", read_group_norm},
                              {"Resize", read_resize}};
  return ops;
}

}  // namespace reprise
