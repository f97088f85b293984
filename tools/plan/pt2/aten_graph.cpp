// See aten_graph.h. A handler makes the nodes of one op; the table at the end lists all handlers.
// Ops into which torch decomposes others (aten.convolution, aten.addmm, aten.native_layer_norm)
// have handlers, too.
#include "tools/plan/pt2/aten_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/plan/pt2/aten_call.h"

namespace reprise {
namespace aten {
namespace {

constexpr int64_t kOpset = 23;  // the first opset with the op Attention
constexpr int64_t kLongestRange = 65536, kMaxStep = int64_t{1} << 40, kMaxOfWindow = int64_t{1} << 20,
                  kMaxWindows = 1000;

using Names = std::vector<std::string>;
using Integers = std::vector<int64_t>;

bool is_within(int64_t value, int64_t maximum) { return value >= -maximum && value <= maximum; }

// Returns an argument that torch accepts as one number for all axes, or as a number for each.
Integers for_each_axis(AtenCall& call, const char* name, const Integers& absent, size_t axes) {
  Integers values = call.integers(name, absent);
  if (values.empty()) values = absent;
  if (values.size() == 1) values.resize(axes, values[0]);
  if (values.size() != axes) call.give_up(std::string("whose ") + name + " is not a number for each axis");
  values.resize(axes, 1);
  for (int64_t& value : values) {
    if (is_within(value, kMaxOfWindow)) continue;
    call.give_up(std::string("whose ") + name + " is too large");
    value = 1;
  }
  return values;
}
// Returns the pads twice, as ONNX lists them: all pads before the axes, and then the equal pads
// after the axes.
Integers both_sides(Integers pads) {
  const Integers once = pads;
  pads.insert(pads.end(), once.begin(), once.end());
  return pads;
}

// ---- pointwise ----

void unary(AtenCall& call) { call.write({call.value(call.first())}); }
void identity(AtenCall& call) { call.write_identity(call.value(call.first())); }

// True for a floating-point type. All widths are read as f32, so that the width does not matter.
bool is_floating(uint32_t type) {
  const OnnxType kinds[] = {OnnxType::kFloat, OnnxType::kHalf, OnnxType::kDouble, OnnxType::kBfloat16};
  return std::find(std::begin(kinds), std::end(kinds), static_cast<OnnxType>(type)) != std::end(kinds);
}
bool is_floating(AtenCall& call, const std::string& argument) {
  return call.is_tensor(argument) ? is_floating(call.meta(call.tensor(argument)).type)
                                  : call.number(argument, 0) != std::floor(call.number(argument, 0));
}
void detach(AtenCall& call) {
  const std::string x = call.first();
  is_floating(call.meta(x).type) ? call.write({call.value(x)}) : call.write_identity(call.value(x));
}

// Returns an argument, a tensor or a number, as a value of floats or of integers.
std::string operand(AtenCall& call, const std::string& argument, bool floating) {
  if (!call.is_tensor(argument)) {
    const double number = call.number(argument, 0);
    if (!floating && !(std::abs(number) < 1e15)) call.give_up("with a number that is no integer");
    return floating ? call.number_constant({}, static_cast<float>(number))
                    : call.integer_constant(static_cast<int64_t>(number));
  }
  const std::string value = call.value(call.tensor(argument));
  const bool is_right = !floating || is_floating(call, argument);
  return is_right ? value
                  : call.add("Cast", {value}, {integer_attribute("to", static_cast<int64_t>(OnnxType::kFloat))});
}
// Returns the two arguments as operands of one op: as floats if at least one of them is
// floating-point, otherwise as integers.
Names operands(AtenCall& call, const std::string& a, const std::string& b) {
  const bool floating = is_floating(call, a) || is_floating(call, b);
  const std::string first = operand(call, a, floating);
  return {first, operand(call, b, floating)};
}
void binary(AtenCall& call) {
  call.require("alpha", 1, 1);
  call.write(operands(call, "self", "other"));
}
void binary_reversed(AtenCall& call) {
  call.require("alpha", 1, 1);
  call.write(operands(call, "other", "self"));
}
// Translates a division. Without a mode, integers are divided as floats. Mode "floor" rounds down.
// Mode "trunc" is available for integers only, which ONNX's Div rounds towards 0.
void divide(AtenCall& call) {
  const std::string mode =
      call.node().target.starts_with("aten.floor_divide") ? "floor" : call.text("rounding_mode", "");
  if (mode.empty()) return call.write({operand(call, "self", true), operand(call, "other", true)});
  const bool is_floating_result = is_floating(call.meta(call.output()).type);
  if (mode == "trunc" && !is_floating_result) return call.write(operands(call, "self", "other"));
  if (mode != "floor") return call.give_up("with rounding_mode " + json_shown(mode));
  const std::string quotient = call.add("Div", {operand(call, "self", true), operand(call, "other", true)}),
                    below = call.add("Floor", {quotient});
  const uint32_t type = call.meta(call.output()).type;
  is_floating_result ? call.write_identity(below)
                     : void(call.add("Cast", {below}, {integer_attribute("to", type)}, call.output()));
}
// Gives up unless the output is flags, for which the bitwise op is the logical one.
void require_flags(AtenCall& call) {
  if (call.meta(call.output()).type != static_cast<uint32_t>(OnnxType::kBool)) call.give_up("of integers' bits");
}
void binary_of_flags(AtenCall& call) {
  require_flags(call);
  binary(call);
}
void unary_of_flags(AtenCall& call) {
  require_flags(call);
  unary(call);
}
void power(AtenCall& call) { call.write(operands(call, "self", "exponent")); }
void square(AtenCall& call) {
  const std::string x = call.value(call.first());
  call.write({x, x});
}
void reciprocal_root(AtenCall& call) { call.write({call.add("Sqrt", {call.value(call.first())})}); }

void silu(AtenCall& call) {
  const std::string x = call.value(call.first());
  call.write({x, call.add("Sigmoid", {x})});
}
void gated(AtenCall& call) {
  const std::string x = call.first();
  const int64_t axis = call.axis(x, call.integer("dim", -1)), half = call.size(x, axis) / 2;
  const std::string a =
      call.add("Split", {call.value(x), call.integers_constant({half, half})}, {integer_attribute("axis", axis)});
  const std::string b = call.made().back().outputs.emplace_back(a + "_b");
  call.write({a, call.add("Sigmoid", {b})});
}
void gelu(AtenCall& call) {
  call.write({call.value(call.first())}, {text_attribute("approximate", call.text("approximate", "none"))});
}
void hard_sigmoid(AtenCall& call) {
  call.write({call.value(call.first())}, {number_attribute("alpha", 1.0 / 6), number_attribute("beta", 0.5)});
}
void leaky_relu(AtenCall& call) {
  call.write({call.value(call.first())}, {number_attribute("alpha", call.number("negative_slope", 0.01))});
}
void elu(AtenCall& call) {
  call.require("scale", 1, 1);
  call.require("input_scale", 1, 1);
  call.write({call.value(call.first())}, {number_attribute("alpha", call.number("alpha", 1))});
}
void softplus(AtenCall& call) {
  call.require("beta", 1, 1);
  call.require("threshold", 20, 20);  // above this threshold torch returns x, which equals softplus(x) in f32
  call.write({call.value(call.first())});
}
void clip(AtenCall& call, double minimum, double maximum) {
  const std::string x = call.value(call.first());
  const auto limit = [&](double number) {
    return std::isinf(number) ? std::string() : call.number_constant({}, static_cast<float>(number));
  };
  const std::string low = limit(minimum), high = limit(maximum);
  call.write({x, low, high});
}
void clamp(AtenCall& call) { clip(call, call.number("min", -HUGE_VAL), call.number("max", HUGE_VAL)); }
void hard_tanh(AtenCall& call) { clip(call, call.number("min_val", -1), call.number("max_val", 1)); }
void relu6(AtenCall& call) { clip(call, 0, 6); }

// Translates a PReLU with one slope, or with one for each channel.
void parametric_relu(AtenCall& call) {
  const std::string x = call.first(), weight = call.tensor("weight");
  const int64_t behind = call.rank(weight) == 1 ? call.rank(x) - 2 : 0;
  std::string slope = call.value(weight);
  Integers axes(static_cast<size_t>(std::max<int64_t>(0, behind)));
  std::iota(axes.begin(), axes.end(), 1);
  if (!axes.empty()) slope = call.add("Unsqueeze", {slope, call.integers_constant(axes)});
  call.write({call.value(x), slope});
}

void dropout(AtenCall& call) {
  const std::string x = call.value(call.first());
  const double p = call.number("p", 0.5);
  if (call.integer("train", 1) == 0 || p == 0) {
    call.write_identity(x);
    if (p != 0) call.made().back().origin = kIdleDropout;
    return;
  }
  const std::string ratio = call.number_constant({}, static_cast<float>(p)), in_training = call.integer_constant(1);
  call.write({x, ratio, in_training});
}
void other_dropout(AtenCall& call) {  // drops whole channels, or has another distribution
  call.ignore("p");
  if (call.integer("train", 1) != 0) call.give_up("in training");
  identity(call);
}

void convert(AtenCall& call) {
  const std::string x = call.first();
  for (const char* name : {"dtype", "device", "layout", "copy", "non_blocking", "memory_format", "pin_memory", "other"})
    call.ignore(name);
  const uint32_t type = call.meta(call.output()).type, before = call.meta(x).type;
  if (before == type || (is_floating(before) && is_floating(type))) return call.write_identity(call.value(x));
  call.write({call.value(x)}, {integer_attribute("to", type)});
}
void contiguous(AtenCall& call) {
  call.ignore("memory_format");
  identity(call);
}

// ---- products ----

void linear(AtenCall& call) {
  const std::string x = call.first(), weight = call.value(call.tensor("weight")),
                    bias = call.value(call.tensor("bias"));
  if (call.rank(x) == 2) {
    Names inputs = {call.value(x), weight};
    if (!bias.empty()) inputs.push_back(bias);
    return void(call.add("Gemm", inputs, {integer_attribute("transB", 1)}, call.output()));
  }
  const std::string transposed = call.add("Transpose", {weight}, {integers_attribute("perm", {1, 0})});
  if (bias.empty()) return void(call.add("MatMul", {call.value(x), transposed}, {}, call.output()));
  call.write({call.add("MatMul", {call.value(x), transposed}), bias});
}
void multiply_matrices(AtenCall& call) {
  const std::string other = call.has("mat2") ? "mat2" : "other";
  call.write({call.value(call.first()), call.value(call.tensor(other))});
}
void add_product(AtenCall& call) {
  call.require("beta", 1, 1);
  call.require("alpha", 1, 1);
  const std::string bias = call.value(call.first());
  call.write({call.value(call.tensor("mat1")), call.value(call.tensor("mat2")), bias});
}

// Returns the number of axes over which a convolution's weight [K,C,...] moves: 2 for images, 1 for
// signals.
size_t axes_of_weight(AtenCall& call) {
  const int64_t rank = call.rank(call.tensor("weight"));
  if (rank < 3) call.give_up("whose weight has too few axes");
  return rank < 3 ? 1 : static_cast<size_t>(rank - 2);
}
std::vector<OnnxAttribute> convolution_attributes(AtenCall& call, const Integers& pads) {
  const size_t axes = axes_of_weight(call);
  return {integers_attribute("strides", for_each_axis(call, "stride", {1}, axes)), integers_attribute("pads", pads),
          integers_attribute("dilations", for_each_axis(call, "dilation", {1}, axes)),
          integer_attribute("group", call.integer("groups", 1))};
}
Names convolution_inputs(AtenCall& call) {
  Names inputs = {call.value(call.first()), call.value(call.tensor("weight"))};
  if (call.has("bias")) inputs.push_back(call.value(call.tensor("bias")));
  return inputs;
}
// Returns the pads of "valid" or "same". With a kernel of even size the larger pad is at the end of
// the axis.
Integers pads_named(AtenCall& call, const std::string& name) {
  const size_t axes = axes_of_weight(call);
  const Integers dilations = for_each_axis(call, "dilation", {1}, axes);
  Integers pads(2 * axes);
  if (name == "valid") return pads;
  if (name != "same") call.give_up("with padding " + json_shown(name));
  for (size_t n = 0; n < axes; ++n) {
    const int64_t all = dilations[n] * (call.size(call.tensor("weight"), static_cast<int64_t>(n) + 2) - 1);
    pads[n] = all / 2;
    pads[axes + n] = all - all / 2;
  }
  return pads;
}
void convolve(AtenCall& call) {
  const bool is_named = call.node().target.ends_with(".padding");
  const Integers pads = is_named ? pads_named(call, call.text("padding", "valid"))
                                 : both_sides(for_each_axis(call, "padding", {0}, axes_of_weight(call)));
  call.write(convolution_inputs(call), convolution_attributes(call, pads));
}
void convolve_transposed(AtenCall& call) {
  const size_t axes = axes_of_weight(call);
  std::vector<OnnxAttribute> attributes =
      convolution_attributes(call, both_sides(for_each_axis(call, "padding", {0}, axes)));
  const Integers more = for_each_axis(call, "output_padding", {0}, axes);
  if (more != Integers(axes)) attributes.push_back(integers_attribute("output_padding", more));
  call.add("ConvTranspose", convolution_inputs(call), attributes, call.output());
}
void convolution(AtenCall& call) {
  if (call.integer("transposed", 0) != 0) return convolve_transposed(call);
  call.ignore("output_padding");
  convolve(call);
}

void attend(AtenCall& call) {
  Names inputs = {call.value(call.tensor("query")), call.value(call.tensor("key")), call.value(call.tensor("value"))};
  if (call.has("attn_mask")) inputs.push_back(call.value(call.tensor("attn_mask")));
  call.require("dropout_p", 0, 0);
  call.ignore("enable_gqa");  // follows from the numbers of heads
  std::vector<OnnxAttribute> attributes = {integer_attribute("is_causal", call.integer("is_causal", 0))};
  if (call.has("scale")) attributes.push_back(number_attribute("scale", call.number("scale", 1)));
  call.write(inputs, attributes);
}

// ---- norms ----

// Returns the weight, or ones if the module has none.
std::string weight_or_ones(AtenCall& call, const std::vector<uint64_t>& shape) {
  return call.has("weight") ? call.value(call.tensor("weight")) : call.number_constant(shape, 1);
}
std::vector<uint64_t> channels_of(AtenCall& call, const std::string& x) {
  return {static_cast<uint64_t>(call.size(x, 1))};
}
std::string bias_or_zeros(AtenCall& call, const std::string& x) {
  return call.has("bias") ? call.value(call.tensor("bias")) : call.number_constant(channels_of(call, x), 0);
}

void batch_norm(AtenCall& call) {
  const std::string x = call.first();
  call.ignore("cudnn_enabled");
  if (!call.has("running_mean") || !call.has("running_var"))
    call.give_up("without running statistics (track_running_stats=False)");
  const std::string weight = weight_or_ones(call, channels_of(call, x)), bias = bias_or_zeros(call, x);
  std::vector<OnnxAttribute> attributes = {number_attribute("epsilon", call.number("eps", 1e-5)),
                                           number_attribute("momentum", 1 - call.number("momentum", 0.1))};
  if (call.integer("training", 0) != 0) attributes.push_back(integer_attribute("training_mode", 1));
  call.write({call.value(x), weight, bias, call.value(call.tensor("running_mean")),
              call.value(call.tensor("running_var"))},
             attributes);
}
void layer_norm(AtenCall& call) {
  const std::string x = call.first();
  const Integers shape = call.integers("normalized_shape", {});
  call.ignore("cudnn_enable");
  Names inputs = {call.value(x), weight_or_ones(call, {shape.begin(), shape.end()})};
  if (call.has("bias")) inputs.push_back(call.value(call.tensor("bias")));
  call.write(inputs, {integer_attribute("axis", -static_cast<int64_t>(shape.size())),
                      number_attribute("epsilon", call.number("eps", 1e-5))});
}
void rms_norm(AtenCall& call) {
  const Integers shape = call.integers("normalized_shape", {});
  call.write({call.value(call.first()), weight_or_ones(call, {shape.begin(), shape.end()})},
             {integer_attribute("axis", -static_cast<int64_t>(shape.size())),
              number_attribute("epsilon", call.number("eps", std::numeric_limits<float>::epsilon()))});
}
void group_norm(AtenCall& call) {
  const std::string x = call.first(), weight = weight_or_ones(call, channels_of(call, x)),
                    bias = bias_or_zeros(call, x);
  for (const char* name : {"cudnn_enabled", "N", "C", "HxW"}) call.ignore(name);
  const int64_t groups = call.has("num_groups") ? call.integer("num_groups", 1) : call.integer("group", 1);
  call.write({call.value(x), weight, bias},
             {integer_attribute("num_groups", groups), number_attribute("epsilon", call.number("eps", 1e-5))});
}
void instance_norm(AtenCall& call) {
  const std::string x = call.first(), weight = weight_or_ones(call, channels_of(call, x)),
                    bias = bias_or_zeros(call, x);
  for (const char* name : {"cudnn_enabled", "momentum"}) call.ignore(name);
  if (call.has("running_mean") || call.has("running_var"))
    call.give_up("with running statistics; export the module with track_running_stats=False");
  call.require("use_input_stats", 1, 1);
  call.write({call.value(x), weight, bias}, {number_attribute("epsilon", call.number("eps", 1e-5))});
}
void softmax(AtenCall& call) {
  const std::string x = call.first();
  for (const char* name : {"dtype", "half_to_float"}) call.ignore(name);
  call.write({call.value(x)}, {integer_attribute("axis", call.axis(x, call.integer("dim", -1)))});
}

// ---- pools and sums ----

// Returns the number of axes of a pool's window, from the op's name.
size_t axes_of_pool(AtenCall& call) {
  return call.node().target.find("1d") != std::string::npos   ? 1
         : call.node().target.find("3d") != std::string::npos ? 3
                                                              : 2;
}

std::vector<OnnxAttribute> window_attributes(AtenCall& call) {
  const size_t axes = axes_of_pool(call);
  const Integers kernel = for_each_axis(call, "kernel_size", {1}, axes),
                 strides = for_each_axis(call, "stride", kernel, axes);
  return {integers_attribute("kernel_shape", kernel), integers_attribute("strides", strides),
          integers_attribute("pads", both_sides(for_each_axis(call, "padding", {0}, axes))),
          integer_attribute("ceil_mode", call.integer("ceil_mode", 0))};
}
void max_pool(AtenCall& call) {
  std::vector<OnnxAttribute> attributes = window_attributes(call);
  attributes.push_back(integers_attribute("dilations", for_each_axis(call, "dilation", {1}, axes_of_pool(call))));
  call.write({call.value(call.first())}, attributes);
}
void average_pool(AtenCall& call) {
  std::vector<OnnxAttribute> attributes = window_attributes(call);
  attributes.push_back(integer_attribute("count_include_pad", call.integer("count_include_pad", 1)));
  call.write({call.value(call.first())}, attributes);
}
// Consecutive windows of an adaptive pool that have one size, and one distance from each window to
// the next. One pool over a slice of the input computes them.
struct PoolRun {
  int64_t first, size, stride, count;
  int64_t end() const { return first + (count - 1) * stride + size; }
};
// Returns the runs of windows. Window i of the output covers the input from position floor(i in /
// out) to before position ceil((i + 1) in / out).
std::vector<PoolRun> adaptive_runs(int64_t in, int64_t out) {
  std::vector<PoolRun> runs;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t first = i * in / out, size = ((i + 1) * in + out - 1) / out - first;
    PoolRun* last = runs.empty() ? nullptr : &runs.back();
    const int64_t stride = last == nullptr ? 0 : first - (last->first + (last->count - 1) * last->stride);
    const bool goes_on = stride > 0 && last->size == size && (last->count == 1 || last->stride == stride);
    if (!goes_on) {
      runs.push_back({first, size, 1, 1});
      continue;
    }
    last->stride = stride;
    ++last->count;
  }
  return runs;
}
// Pools along axis `axis`, on which the windows may differ in size or distance. Appends one pool
// for each run, and concatenates their results.
std::string pool_parts(AtenCall& call, const std::string& op, const std::string& x, int64_t axis, size_t side,
                       size_t sides, const std::vector<PoolRun>& runs) {
  Names parts;
  const auto list = [&](int64_t value) { return call.integers_constant({value}); };
  for (const PoolRun& run : runs) {
    const std::string part =
        runs.size() == 1 ? x : call.add("Slice", {x, list(run.first), list(run.end()), list(axis)});
    Integers kernel(sides, 1), strides(sides, 1);
    kernel[side] = run.size, strides[side] = run.stride;
    const bool is_each = run.size == 1 && run.stride == 1;
    parts.push_back(
        is_each ? part
                : call.add(op, {part},
                           {integers_attribute("kernel_shape", kernel), integers_attribute("strides", strides)}));
  }
  return parts.size() == 1 ? parts[0] : call.add("Concat", parts, {integer_attribute("axis", axis)});
}
void adaptive_pool(AtenCall& call) {
  const std::string x = call.first(), input = call.value(x);
  const size_t axes = axes_of_pool(call);
  const Integers sizes = for_each_axis(call, "output_size", {1}, axes);
  const bool is_average = call.node().target.find("avg") != std::string::npos;
  if (sizes == Integers(axes, 1))
    return void(call.add(is_average ? "GlobalAveragePool" : "GlobalMaxPool", {input}, {}, call.output()));
  std::vector<std::vector<PoolRun>> runs;
  Integers kernel, strides;
  for (size_t n = 0; n < axes; ++n) {
    const int64_t size = call.size(x, call.rank(x) - static_cast<int64_t>(axes - n));
    if (sizes[n] < 1 || sizes[n] > kMaxWindows)
      return call.give_up("whose output_size is none of 1 to " + std::to_string(kMaxWindows));
    runs.push_back(adaptive_runs(size, sizes[n]));
    kernel.push_back(runs[n][0].size), strides.push_back(runs[n][0].stride);
  }
  if (std::all_of(runs.begin(), runs.end(), [](const auto& each) { return each.size() == 1; })) {
    if (kernel == Integers(axes, 1) && strides == kernel) return call.write_identity(input);
    return call.write({input}, {integers_attribute("kernel_shape", kernel), integers_attribute("strides", strides)});
  }
  std::string pooled = input;
  for (size_t n = axes; n-- > 0;) {  // last axis first: the first of equal numbers is then the maximum, as in torch
    const int64_t axis = call.rank(x) - static_cast<int64_t>(axes - n);
    if (sizes[n] != call.size(x, axis))
      pooled = pool_parts(call, is_average ? "AveragePool" : "MaxPool", pooled, axis, n, axes, runs[n]);
  }
  call.write_identity(pooled);
}

void reduce(AtenCall& call) {
  const std::string x = call.first();
  call.ignore("dtype");
  Integers axes = call.integers("dim", {});
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(call.rank(x)));
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& axis : axes) axis = call.axis(x, axis);
  call.write({call.value(x), call.integers_constant(axes)},
             {integer_attribute("keepdims", call.integer("keepdim", 0))});
}

// Translates a maximum. Elements that are equal to the maximum get equal parts of its gradient.
void reduce_shared(AtenCall& call) {
  reduce(call);
  if (!call.made().empty()) call.made().back().attributes.push_back(integer_attribute("shares_gradient", 1));
}
// Translates a maximum of two values, or a maximum along a dimension. Along a dimension, the first
// of equal numbers gets the gradient.
void largest(AtenCall& call) {
  if (call.node().target == "aten.max.dim") return reduce(call);
  if (call.node().target != "aten.max.other") return call.give_up("of all places together");
  call.add("Max", operands(call, "self", "other"), {}, call.output());
}

// Translates a norm of order 2, which torch.nn.functional.normalize computes.
void length(AtenCall& call) {
  if (call.number("ord", 2) != 2) return call.give_up("of an order that is not 2");
  reduce(call);
}

// ---- shapes ----

// Reshapes to the output's shape in torch. The batch keeps its size. One other size may be open; it
// follows from the number of elements.
void reshape(AtenCall& call) {
  const std::string x = call.first();
  for (const auto& [name, argument] : call.node().arguments) call.ignore(name);
  if (call.meta(x).type != call.meta(call.output()).type) return call.give_up("as numbers of another type");
  if (call.has_same_shape(x, call.output())) return call.write_identity(call.value(x));
  const std::vector<OnnxDimension>&from = call.meta(x).shape, &to = call.meta(call.output()).shape;
  Integers shape;
  bool has_open = false;
  for (size_t d = 0; d < to.size(); ++d) {
    const bool is_kept = d < from.size() && from[d].size == to[d].size && from[d].name == to[d].name;
    if (to[d].size >= 0 && !(d == 0 && is_kept)) {
      shape.push_back(to[d].size);
    } else if (is_kept) {
      shape.push_back(0);
    } else {
      if (has_open) call.give_up("to several sizes that are only known when it runs");
      has_open = true;
      shape.push_back(-1);
    }
  }
  call.write({call.value(x), call.integers_constant(shape)});
}
void flatten(AtenCall& call) {
  const std::string x = call.first();
  const int64_t begin = call.axis(x, call.integer("start_dim", 0)), end = call.axis(x, call.integer("end_dim", -1));
  if (begin != 1 || end + 1 != call.rank(x)) return reshape(call);
  call.add("Flatten", {call.value(x)}, {integer_attribute("axis", 1)}, call.output());
}
void permute(AtenCall& call) {
  const std::string x = call.first();
  Integers order = call.integers("dims", {});
  for (int64_t& axis : order) axis = call.axis(x, axis);
  call.write({call.value(x)}, {integers_attribute("perm", order)});
}
void transpose(AtenCall& call) {  // aten.t has no other arguments
  const std::string x = call.first();
  Integers order(static_cast<size_t>(call.rank(x)));
  std::iota(order.begin(), order.end(), 0);
  const bool is_swap = call.node().target.starts_with("aten.swap");
  const int64_t a = call.axis(x, call.integer(is_swap ? "axis0" : "dim0", 0)),
                b = call.axis(x, call.integer(is_swap ? "axis1" : "dim1", order.size() > 1 ? 1 : 0));
  if (!order.empty()) std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  call.write({call.value(x)}, {integers_attribute("perm", order)});
}
// Returns the shape of the output, as a constant if it is known.
std::string shape_of_output(AtenCall& call) {
  const std::vector<OnnxDimension>& to = call.meta(call.output()).shape;
  const bool is_known = std::all_of(to.begin(), to.end(), [](const OnnxDimension& d) { return d.size >= 0; });
  Integers shape;
  Names parts;
  for (const OnnxDimension& d : to) {
    shape.push_back(d.size);
    if (!is_known) parts.push_back(d.size < 0 ? call.open_size(d.name) : call.integers_constant({d.size}));
  }
  return is_known ? call.integers_constant(shape) : call.add("Concat", parts, {integer_attribute("axis", 0)});
}
void expand(AtenCall& call) {
  const std::string x = call.first();
  for (const char* name : {"size", "implicit", "other"}) call.ignore(name);
  if (call.has_same_shape(x, call.output())) return call.write_identity(call.value(x));
  call.write({call.value(x), shape_of_output(call)});
}
void concatenate(AtenCall& call) {
  Names inputs;
  for (const std::string& input : call.tensors("tensors")) inputs.push_back(call.value(input));
  call.write(inputs, {integer_attribute("axis", call.axis(call.output(), call.integer("dim", 0)))});
}
// Repeats x along each axis; the result may have more axes than x.
void repeat(AtenCall& call) {
  const std::string x = call.first();
  const auto &from = call.meta(x).shape, &to = call.meta(call.output()).shape;
  bool is_expanded = from.size() == to.size();  // axes of 1 become wider, possibly as wide as the batch
  for (size_t d = 0; d < from.size() && is_expanded; ++d)
    is_expanded = from[d].size == 1 || (from[d].size > 0 && from[d].size == to[d].size);
  if (is_expanded) {
    call.ignore("repeats");
    return void(call.add("Expand", {call.value(x), shape_of_output(call)}, {}, call.output()));
  }
  Integers times = call.integers("repeats", {});
  const size_t rank = static_cast<size_t>(call.rank(x));
  std::string value = call.value(x);
  if (times.size() > rank) {
    Integers axes(times.size() - rank);
    std::iota(axes.begin(), axes.end(), 0);
    value = call.add("Unsqueeze", {value, call.integers_constant(axes)});
  }
  call.write({value, call.integers_constant(times)});
}
void stack(AtenCall& call) {
  const int64_t axis = call.axis(call.output(), call.integer("dim", 0));
  Names inputs;
  for (const std::string& input : call.tensors("tensors"))
    inputs.push_back(call.add("Unsqueeze", {call.value(input), call.integers_constant({axis})}));
  call.write(inputs, {integer_attribute("axis", axis)});
}
// Splits into the outputs that torch names. The sizes come from the outputs, not from the
// arguments.
void split(AtenCall& call, bool keeps_axis) {
  const std::string x = call.first();
  const int64_t axis = call.axis(x, call.integer("dim", 0));
  Integers sizes;
  for (const std::string& output : call.node().outputs) sizes.push_back(keeps_axis ? call.size(output, axis) : 1);
  call.add("Split", {call.value(x), call.integers_constant(sizes)}, {integer_attribute("axis", axis)},
           keeps_axis ? call.output() : "");
  OnnxNode& node = call.made().back();
  if (keeps_axis) {
    node.outputs = call.node().outputs;
    return;
  }
  Names parts;
  for (size_t n = 0; n < sizes.size(); ++n) parts.push_back(node.outputs[0] + "_" + std::to_string(n));
  node.outputs = parts;
  for (size_t n = 0; n < parts.size(); ++n)
    call.add("Squeeze", {parts[n], call.integers_constant({axis})}, {}, call.output(n));
}
void split_evenly(AtenCall& call) {
  for (const char* name : {"split_size", "split_sizes", "chunks", "sections"}) call.ignore(name);
  split(call, true);
}
void unbind(AtenCall& call) { split(call, false); }
void select(AtenCall& call) {
  const std::string x = call.first();
  call.write({call.value(x), call.integer_constant(call.integer("index", 0))},
             {integer_attribute("axis", call.axis(x, call.integer("dim", 0)))});
}
void slice(AtenCall& call) {
  const std::string x = call.first();
  if (call.has_same_shape(x, call.output())) {
    for (const char* name : {"dim", "start", "end"}) call.ignore(name);
    call.require("step", 1, 1);
    return call.write_identity(call.value(x));
  }
  const int64_t axis = call.axis(x, call.integer("dim", 0));
  const auto list = [&](int64_t value) { return call.integers_constant({value}); };
  const std::string starts = list(call.integer("start", 0)), ends = list(call.integer("end", INT64_MAX)),
                    axes = list(axis), steps = list(call.integer("step", 1));
  call.write({call.value(x), starts, ends, axes, steps});
}
void select_places(AtenCall& call) {  // aten.gather is ONNX's GatherElements, aten.index_select its Gather
  const std::string x = call.first();
  call.ignore("sparse_grad");
  call.write({call.value(x), call.value(call.tensor("index"))},
             {integer_attribute("axis", call.axis(x, call.integer("dim", 0)))});
}
void sum_up(AtenCall& call) {
  const std::string x = call.first();
  call.ignore("dtype");
  call.write({call.value(x), call.integer_constant(call.axis(x, call.integer("dim", 0)))});
}
void triangle(AtenCall& call) {
  const std::string x = call.first();
  const bool is_upper = call.node().target.starts_with("aten.triu");
  call.write({call.value(x), call.integer_constant(call.integer("diagonal", 0))},
             {integer_attribute("upper", is_upper ? 1 : 0)});
}
// Translates torch.diff: each element minus the element before it, along an axis. The arguments
// prepend and append extend the axis first.
void subtract_neighbours(AtenCall& call) {
  const std::string x = call.first();
  call.require("n", 1, 1);
  const int64_t axis = call.axis(x, call.integer("dim", -1));
  Names parts;
  if (call.has("prepend")) parts.push_back(call.value(call.tensor("prepend")));
  parts.push_back(call.value(x));
  if (call.has("append")) parts.push_back(call.value(call.tensor("append")));
  const std::string all = parts.size() == 1 ? parts[0] : call.add("Concat", parts, {integer_attribute("axis", axis)});
  const auto list = [&](int64_t value) { return call.integers_constant({value}); };
  const std::string behind = call.add("Slice", {all, list(1), list(INT64_MAX), list(axis)}),
                    before = call.add("Slice", {all, list(0), list(-1), list(axis)});
  call.write({behind, before});
}
// Translates x[i, j, ...]: lists of indices into the first axes, which are broadcast to each other.
void index(AtenCall& call) {
  const std::string x = call.first();
  const Names given = call.tensors("indices");
  Names parts;
  int64_t rank = 0;
  for (const std::string& each : given) rank = std::max(rank, each.empty() ? 0 : call.rank(each));
  // True if only one axis has a list of indices; all elements of the other axes are then taken.
  const bool is_one = std::count(given.begin(), given.end(), "") + 1 == static_cast<long>(given.size());
  if (given.empty() || (!is_one && std::count(given.begin(), given.end(), "") > 0))
    return call.give_up("with an axis that is taken whole");
  for (const std::string& each : given) {
    if (!each.empty() && call.meta(each).type != static_cast<uint32_t>(OnnxType::kInt64))
      return call.give_up("of places that are no integers");
  }
  if (is_one) {
    const auto places = std::find_if(given.begin(), given.end(), [](const std::string& each) { return !each.empty(); });
    const std::string taken =
        call.add("Gather", {call.value(x), call.value(*places)}, {integer_attribute("axis", places - given.begin())});
    return call.write_identity(taken);
  }
  std::string all = call.value(given[0]);  // the sum broadcasts all lists; its values are not used
  for (size_t n = 1; n < given.size(); ++n) all = call.add("Add", {all, call.value(given[n])});
  const std::string shape = call.add("Shape", {all}), last = call.integers_constant({rank});
  for (const std::string& each : given)
    parts.push_back(call.add("Unsqueeze", {call.add("Expand", {call.value(each), shape}), last}));
  call.write({call.value(x), call.add("Concat", parts, {integer_attribute("axis", rank)})});
}
// Rolls along axes: numbers that leave at one end come back at the other.
void roll(AtenCall& call) {
  const std::string x = call.first();
  const Integers shifts = call.integers("shifts", {}), dims = call.integers("dims", {});
  if (dims.empty() || shifts.size() != dims.size()) return call.give_up("of all axes together");
  std::string rolled = call.value(x);
  for (size_t n = 0; n < dims.size(); ++n) {
    const int64_t axis = call.axis(x, dims[n]), size = call.size(x, axis);
    const int64_t first = size == 0 ? 0 : ((-shifts[n] % size) + size) % size;
    if (first == 0) continue;
    const auto part = [&](int64_t from, int64_t to) {
      return call.add("Slice", {rolled, call.integers_constant({from}), call.integers_constant({to}),
                                call.integers_constant({axis})});
    };
    const std::string behind = part(first, size), before = part(0, first);
    rolled = call.add("Concat", {behind, before}, {integer_attribute("axis", axis)});
  }
  call.write_identity(rolled);
}
void add_product_of(AtenCall& call) {  // self + tensor1 * tensor2
  call.require("value", 1, 1);
  const std::string product = call.add("Mul", {call.value(call.tensor("tensor1")), call.value(call.tensor("tensor2"))});
  call.write({call.value(call.tensor("self")), product});
}
void where(AtenCall& call) {
  const std::string mask = call.value(call.tensor("condition"));
  const Names both = operands(call, "self", "other");
  call.write({mask, both[0], both[1]});
}
void fill_where(AtenCall& call) {
  const std::string mask = call.value(call.tensor("mask"));
  const bool floating = is_floating(call, "self");
  const std::string value = operand(call, "value", floating);
  call.write({mask, value, operand(call, "self", floating)});
}
void unequal(AtenCall& call) { call.write({call.add("Equal", operands(call, "self", "other"))}); }
void multiply_by_letters(AtenCall& call) {
  Names inputs;
  for (const std::string& input : call.tensors("tensors")) inputs.push_back(call.value(input));
  call.ignore("path");
  call.write(inputs, {text_attribute("equation", call.text("equation", ""))});
}

// ---- constants ----

void range(AtenCall& call) {
  for (const char* name : {"dtype", "layout", "device", "pin_memory", "end"}) call.ignore(name);
  const int64_t start = call.integer("start", 0), step = call.integer("step", 1);
  const std::vector<OnnxDimension>& shape = call.meta(call.output()).shape;
  if (call.meta(call.output()).type != static_cast<uint32_t>(OnnxType::kInt64) || shape.size() != 1)
    return call.give_up("of no integers");
  if (shape[0].size < 0) {
    if (start != 0 || step != 1) call.give_up("from other than 0");
    const std::string none = call.integers_constant({0}),
                      size = call.add("Squeeze", {call.open_size(shape[0].name), none});
    return void(call.add("Range", {call.integer_constant(0), size, call.integer_constant(1)}, {}, call.output()));
  }
  if (shape[0].size > kLongestRange || !is_within(start, kMaxStep) || !is_within(step, kMaxStep))
    return call.give_up("of too many numbers");
  Integers values(static_cast<size_t>(shape[0].size));
  for (size_t n = 0; n < values.size(); ++n) values[n] = start + static_cast<int64_t>(n) * step;
  call.write_identity(call.integers_constant(values));
}
void fill(AtenCall& call, double value) {
  for (const char* name : {"size", "dtype", "layout", "device", "pin_memory", "memory_format"}) call.ignore(name);
  // The first argument is the size, or a tensor of that size.
  if (!call.node().arguments.empty()) call.ignore(call.node().arguments[0].first);
  const uint32_t type = call.meta(call.output()).type;
  const std::string one = is_floating(type) ? call.number_constant({}, static_cast<float>(value))
                                            : call.add("Cast", {call.integer_constant(static_cast<int64_t>(value))},
                                                       {integer_attribute("to", type)});
  call.write({one, shape_of_output(call)});
}
void zeros(AtenCall& call) { fill(call, 0); }
void ones(AtenCall& call) { fill(call, 1); }
void full(AtenCall& call) {
  const double value = call.number("fill_value", 0);
  if (!is_floating(call.meta(call.output()).type) && !(std::abs(value) < 1e15))
    return call.give_up("whose fill_value is no integer");
  fill(call, value);
}

void look_up(AtenCall& call) {
  call.ignore("sparse");  // states how the gradient is stored
  call.require("scale_grad_by_freq", 0, 0);
  std::vector<OnnxAttribute> attributes = {integer_attribute("axis", 0)};
  if (const int64_t padding = call.integer("padding_idx", -1); padding >= 0)
    attributes.push_back(integer_attribute("padding", padding));
  call.write({call.value(call.tensor("weight")), call.value(call.tensor("indices"))}, attributes);
}

// Returns a resize's factor for each axis, 1 for batch and channels. The factors are torch's if it
// was given some, otherwise the ratios of the sizes. Returns an empty list if such a ratio is not
// whole.
std::vector<float> scales_of(AtenCall& call, const std::string& x) {
  std::vector<double> given = call.numbers("scale_factors");
  const int64_t rank = call.rank(x);
  for (const char* name : {"scales", "scales_h", "scales_w"}) {
    if (call.has(name)) given.push_back(call.number(name, 1));
  }
  std::vector<float> scales(2, 1);
  if (!given.empty() && static_cast<int64_t>(given.size()) != rank - 2)
    call.give_up("with scale_factors of other than its axes");
  for (int64_t d = 2; d < rank && !(scales.empty()); ++d) {
    const float scale = given.empty()
                            ? static_cast<float>(call.size(call.output(), d)) / static_cast<float>(call.size(x, d))
                            : static_cast<float>(given[static_cast<size_t>(d - 2) % given.size()]);
    scales.push_back(scale);
    if (given.empty() && scale != std::floor(scale)) scales.clear();
  }
  return scales;
}
void resize(AtenCall& call) {
  const std::string x = call.first();
  call.ignore("output_size");
  const bool is_nearest = call.node().target.find("nearest") != std::string::npos,
             is_exact = call.node().target.find("exact") != std::string::npos,
             keeps_corners = !is_nearest && call.integer("align_corners", 0) != 0;
  const std::vector<float> scales = scales_of(call, x);
  const char* places = is_nearest && !is_exact ? "asymmetric" : keeps_corners ? "align_corners" : "half_pixel";
  std::vector<OnnxAttribute> attributes = {text_attribute("mode", is_nearest ? "nearest" : "linear"),
                                           text_attribute("coordinate_transformation_mode", places)};
  if (is_nearest) attributes.push_back(text_attribute("nearest_mode", is_exact ? "round_prefer_ceil" : "floor"));
  if (!scales.empty() && !keeps_corners)
    return call.write({call.value(x), "", call.numbers_constant(scales)}, attributes);
  call.write({call.value(x), "", "", shape_of_output(call)}, attributes);
}
// Translates a pad. torch has pairs from the last axis on, ONNX all beginnings and then all ends.
void pad(AtenCall& call) {
  const std::string x = call.first();
  const Integers pairs = call.integers("pad", {});
  const size_t rank = static_cast<size_t>(call.rank(x));
  Integers pads(2 * rank);
  if (pairs.size() % 2 != 0 || pairs.size() > pads.size()) return call.give_up("whose pad is not a pair for each axis");
  for (size_t n = 0; 2 * n < pairs.size(); ++n) {
    pads[rank - 1 - n] = pairs[2 * n];
    pads[2 * rank - 1 - n] = pairs[2 * n + 1];
  }
  const std::string mode = call.text("mode", "constant");
  const char* word = mode == "constant"    ? "constant"
                     : mode == "reflect"   ? "reflect"
                     : mode == "replicate" ? "edge"
                     : mode == "circular"  ? "wrap"
                                           : nullptr;
  if (word == nullptr) return call.give_up("with mode " + json_shown(mode));
  Names inputs = {call.value(x), call.integers_constant(pads)};
  if (const double value = call.number("value", 0); value != 0)
    inputs.push_back(call.number_constant({}, static_cast<float>(value)));
  call.write(inputs, {text_attribute("mode", word)});
}

// ---- the table ----

struct Translation {
  const char* aten;
  void (*write)(AtenCall&);
  const char* onnx;      // the op that writes the output
  bool is_view = false;  // the output may be another view of the first argument's numbers
};
constexpr Translation kTranslations[] = {
    {"relu", unary, "Relu"},
    {"sigmoid", unary, "Sigmoid"},
    {"tanh", unary, "Tanh"},
    {"exp", unary, "Exp"},
    {"log", unary, "Log"},
    {"sqrt", unary, "Sqrt"},
    {"abs", unary, "Abs"},
    {"neg", unary, "Neg"},
    {"erf", unary, "Erf"},
    {"reciprocal", unary, "Reciprocal"},
    {"hardswish", unary, "HardSwish"},
    {"mish", unary, "Mish"},
    {"sin", unary, "Sin"},
    {"cos", unary, "Cos"},
    {"log_sigmoid", unary, "LogSigmoid"},
    {"logical_not", unary, "Not"},
    {"bitwise_not", unary_of_flags, "Not"},
    {"add", binary, "Add"},
    {"sub", binary, "Sub"},
    {"mul", binary, "Mul"},
    {"div", divide, "Div"},
    {"floor_divide", divide, "Div"},
    {"floor", unary, "Floor"},
    {"ceil", unary, "Ceil"},
    {"round", unary, "Round"},
    {"maximum", binary, "Max"},
    {"minimum", binary, "Min"},
    {"rsub", binary_reversed, "Sub"},
    {"pow", power, "Pow"},
    {"square", square, "Mul"},
    {"rsqrt", reciprocal_root, "Reciprocal"},
    {"eq", binary, "Equal"},
    {"gt", binary, "Greater"},
    {"lt", binary, "Less"},
    {"ge", binary, "GreaterOrEqual"},
    {"le", binary, "LessOrEqual"},
    {"logical_and", binary, "And"},
    {"bitwise_and", binary_of_flags, "And"},
    {"logical_or", binary, "Or"},
    {"bitwise_or", binary_of_flags, "Or"},
    {"__and__", binary_of_flags, "And"},
    {"__or__", binary_of_flags, "Or"},
    {"ne", unequal, "Not"},
    {"gather", select_places, "GatherElements"},
    {"cumsum", sum_up, "CumSum"},
    {"triu", triangle, "Trilu"},
    {"tril", triangle, "Trilu"},
    {"diff", subtract_neighbours, "Sub"},
    {"index_select", select_places, "Gather"},
    {"index", index, "GatherND"},
    {"where", where, "Where"},
    {"masked_fill", fill_where, "Where"},
    {"einsum", multiply_by_letters, "Einsum"},
    {"arange", range, "Range"},
    {"zeros", zeros, "Expand"},
    {"ones", ones, "Expand"},
    {"full", full, "Expand"},
    {"new_zeros", zeros, "Expand"},
    {"new_ones", ones, "Expand"},
    {"new_full", full, "Expand"},
    {"zeros_like", zeros, "Expand"},
    {"ones_like", ones, "Expand"},
    {"full_like", full, "Expand"},
    {"silu", silu, "Mul"},
    {"glu", gated, "Mul"},
    {"gelu", gelu, "Gelu"},
    {"hardsigmoid", hard_sigmoid, "HardSigmoid"},
    {"leaky_relu", leaky_relu, "LeakyRelu"},
    {"elu", elu, "Elu"},
    {"softplus", softplus, "Softplus"},
    {"clamp", clamp, "Clip"},
    {"clamp_min", clamp, "Clip"},
    {"clamp_max", clamp, "Clip"},
    {"hardtanh", hard_tanh, "Clip"},
    {"relu6", relu6, "Clip"},
    {"prelu", parametric_relu, "PRelu"},
    {"_prelu_kernel", parametric_relu, "PRelu"},
    {"dropout", dropout, "Dropout", true},
    {"native_dropout", dropout, "Dropout"},
    {"feature_dropout", other_dropout, "Dropout", true},
    {"alpha_dropout", other_dropout, "Dropout", true},
    {"to", convert, "Cast", true},
    {"type_as", convert, "Cast", true},
    {"_to_copy", convert, "Cast"},
    {"clone", contiguous, "Identity"},
    {"contiguous", contiguous, "Identity", true},
    {"alias", identity, "Identity", true},
    {"detach", detach, "Detach", true},
    {"lift_fresh_copy", identity, "Identity"},
    {"lift_fresh", identity, "Identity", true},
    {"linear", linear, "Add"},
    {"matmul", multiply_matrices, "MatMul"},
    {"mm", multiply_matrices, "MatMul"},
    {"bmm", multiply_matrices, "MatMul"},
    {"addmm", add_product, "Gemm"},
    {"conv1d", convolve, "Conv"},
    {"conv2d", convolve, "Conv"},
    {"conv3d", convolve, "Conv"},
    {"convolution", convolution, "Conv"},
    {"conv_transpose1d", convolve_transposed, "ConvTranspose"},
    {"conv_transpose2d", convolve_transposed, "ConvTranspose"},
    {"scaled_dot_product_attention", attend, "Attention"},
    {"batch_norm", batch_norm, "BatchNormalization"},
    {"_native_batch_norm_legit", batch_norm, "BatchNormalization"},
    {"_native_batch_norm_legit_no_training", batch_norm, "BatchNormalization"},
    {"_native_batch_norm_legit_functional", batch_norm, "BatchNormalization"},
    {"layer_norm", layer_norm, "LayerNormalization"},
    {"native_layer_norm", layer_norm, "LayerNormalization"},
    {"rms_norm", rms_norm, "RMSNormalization"},
    {"group_norm", group_norm, "GroupNormalization"},
    {"native_group_norm", group_norm, "GroupNormalization"},
    {"instance_norm", instance_norm, "InstanceNormalization"},
    {"softmax", softmax, "Softmax"},
    {"_softmax", softmax, "Softmax"},
    {"log_softmax", softmax, "LogSoftmax"},
    {"_log_softmax", softmax, "LogSoftmax"},
    {"max_pool1d", max_pool, "MaxPool"},
    {"max_pool2d", max_pool, "MaxPool"},
    {"max_pool2d_with_indices", max_pool, "MaxPool"},
    {"avg_pool1d", average_pool, "AveragePool"},
    {"avg_pool2d", average_pool, "AveragePool"},
    {"adaptive_avg_pool1d", adaptive_pool, "AveragePool"},
    {"adaptive_avg_pool2d", adaptive_pool, "AveragePool"},
    {"_adaptive_avg_pool2d", adaptive_pool, "AveragePool"},
    {"adaptive_max_pool1d", adaptive_pool, "MaxPool"},
    {"adaptive_max_pool2d", adaptive_pool, "MaxPool"},
    {"linalg_vector_norm", length, "ReduceL2"},
    {"mean", reduce, "ReduceMean"},
    {"sum", reduce, "ReduceSum"},
    {"amax", reduce_shared, "ReduceMax"},
    {"max", largest, "ReduceMax"},
    {"amin", reduce, "ReduceMin"},
    {"roll", roll, "Identity"},
    {"addcmul", add_product_of, "Add"},
    {"reshape_as", reshape, "Reshape", true},
    {"view", reshape, "Reshape", true},
    {"reshape", reshape, "Reshape", true},
    {"_unsafe_view", reshape, "Reshape"},
    {"unsqueeze", reshape, "Reshape", true},
    {"squeeze", reshape, "Reshape", true},
    {"unflatten", reshape, "Reshape", true},
    {"flatten", flatten, "Reshape", true},
    {"permute", permute, "Transpose", true},
    {"transpose", transpose, "Transpose", true},
    {"t", transpose, "Transpose", true},
    {"swapaxes", transpose, "Transpose", true},
    {"swapdims", transpose, "Transpose", true},
    {"expand", expand, "Expand", true},
    {"expand_as", expand, "Expand", true},
    {"repeat", repeat, "Tile"},
    {"cat", concatenate, "Concat"},
    {"stack", stack, "Concat"},
    {"split", split_evenly, "Split", true},
    {"split_with_sizes", split_evenly, "Split", true},
    {"chunk", split_evenly, "Split", true},
    {"tensor_split", split_evenly, "Split", true},
    {"unbind", unbind, "Squeeze", true},
    {"select", select, "Gather", true},
    {"slice", slice, "Slice", true},
    {"embedding", look_up, "Gather"},
    {"upsample_nearest1d", resize, "Resize"},
    {"upsample_nearest2d", resize, "Resize"},
    {"_upsample_nearest_exact2d", resize, "Resize"},
    {"upsample_bilinear2d", resize, "Resize"},
    {"pad", pad, "Pad"},
    {"constant_pad_nd", pad, "Pad"},
};

class Translator {
 public:
  Translator(const AtenGraph& graph, OnnxModel& model) : graph_(graph), model_(model), names_(graph) {}

  void translate() {
    model_.opsets[""] = kOpset;
    for (const AtenNode& node : graph_.nodes) {
      add(node);
      if (model_.nodes.size() > kMaxOnnxNodes) return;  // the function that reads the file then refuses it
    }
    for (const std::string& output : graph_.outputs) {
      stop_gradient(output);
      const auto value = graph_.values.find(output);
      model_.outputs.push_back(value == graph_.values.end() ? OnnxValue{output, 0, {}} : value->second);
      model_.outputs.back().name = names_.name(output);
      if (names_.is_stale(output))
        add_unread({"output", "an output of which another view was changed in place", {}, {output}});
    }
    for (const auto& [value, buffer] : graph_.written) note_written(value, buffer);
  }

 private:
  // Returns "relu_" for "aten.relu_.default".
  static std::string packet_of(const std::string& target) {
    constexpr std::string_view kPrefix = "aten.";
    if (!target.starts_with(kPrefix)) return "";
    std::string name = target.substr(kPrefix.size());
    return name.substr(0, name.find('.'));
  }

  void add(const AtenNode& node) {
    std::string packet = packet_of(node.target);
    const bool is_in_place = packet.size() > 1 && packet.ends_with('_') && !packet.ends_with("__");
    if (is_in_place) packet.pop_back();
    if (node.has_gradients) {
      for (const auto& [name, argument] : node.arguments) {
        for (const std::string& tensor : argument.tensors) stop_gradient(tensor);
      }
    }
    // If the node changes a parameter or a buffer, changes_tensor() has refused the model. The
    // counter of a batch-norm is an exception, which is ignored.
    if (is_in_place && changes_tensor(node)) return follow_views(node, true, false);
    if (is_in_place && !node.has_gradients && changes_what_has_gradient(node)) {
      AtenNode unread = node;
      unread.target += " changes within torch.no_grad() what has a gradient";
      add_unread(unread);
      return follow_views(node, true, false);
    }
    const auto found = std::find_if(std::begin(kTranslations), std::end(kTranslations),
                                    [&](const Translation& each) { return packet == each.aten; });
    if (found == std::end(kTranslations)) {
      add_unread(node);
    } else {
      AtenCall call(node, found->onnx, graph_, names_);
      found->write(call);
      call.finish();
      for (const OnnxNode& made : call.made()) {
        for (const OnnxAttribute& attribute : made.attributes)
          made_numbers_ += attribute.tensor ? attribute.tensor->elements() : 0;
      }
      constexpr uint64_t kMaxMade = uint64_t{1} << 24;
      if (made_numbers_ > kMaxMade)
        call.give_up("with more than " + std::to_string(kMaxMade) +
                     " numbers that no file has, in all nodes together");
      if (call.reason().empty()) {
        std::move(call.made().begin(), call.made().end(), std::back_inserter(model_.nodes));
      } else {
        AtenNode unread = node;
        unread.target += " " + call.reason();
        add_unread(unread);
      }
    }
    follow_views(node, is_in_place, found != std::end(kTranslations) && found->is_view);
    if (!node.has_gradients) without_gradient_.insert(node.outputs.begin(), node.outputs.end());
  }

  // Detaches a value that was computed without gradients, so that it is a constant for its readers
  // with gradients.
  void stop_gradient(const std::string& value) {
    const auto found = graph_.values.find(value);
    if (without_gradient_.erase(value) == 0 || found == graph_.values.end() || !is_floating(found->second.type)) return;
    OnnxNode detached;
    detached.name = value + "/Detach";
    detached.op = "Detach";
    detached.inputs = {names_.name(value)};
    detached.outputs = {detached.name};
    names_.rename(value, detached.name);
    model_.nodes.push_back(std::move(detached));
  }

  static const std::string* first_tensor(const AtenNode& node) {
    return node.arguments.empty() || node.arguments[0].second.tensors.empty() ? nullptr
                                                                              : &node.arguments[0].second.tensors[0];
  }
  bool changes_what_has_gradient(const AtenNode& node) const {
    const std::string* x = first_tensor(node);
    const std::vector<std::string> views = x == nullptr ? std::vector<std::string>() : names_.views_of(*x);
    return std::any_of(views.begin(), views.end(),
                       [&](const std::string& view) { return without_gradient_.count(view) == 0; });
  }

  // Refuses a node that changes a parameter, a buffer or a view of one, because a training here
  // would not repeat this change. Returns true for such a node. The counter of a batch-norm
  // (num_batches_tracked) may change.
  bool changes_tensor(const AtenNode& node) {
    const std::string* x = first_tensor(node);
    if (x == nullptr) return false;
    for (const std::string& view : names_.views_of(*x)) {
      const auto tensor = graph_.tensor_names.find(view);
      if (tensor == graph_.tensor_names.end()) continue;
      refuse_to_write(tensor->second, node.target);
      OnnxNode same;  // gives the node's readers a value
      same.name = node.name;
      same.op = "Identity";
      same.inputs = {names_.name(*x)};
      same.outputs = node.outputs;
      model_.nodes.push_back(std::move(same));
      return true;
    }
    return false;
  }
  // Refuses a buffer that a decomposed program changes, unless a batch-norm in training changes its
  // statistics. Such a program lists the buffer's new value as an output.
  void note_written(const std::string& value, const std::string& buffer) {
    const auto writer = std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const AtenNode& node) {
      return std::count(node.outputs.begin(), node.outputs.end(), value) > 0;
    });
    const bool is_statistic =
        writer != graph_.nodes.end() && packet_of(writer->target) == "_native_batch_norm_legit_functional";
    if (!is_statistic) refuse_to_write(buffer, writer == graph_.nodes.end() ? "" : writer->target);
  }
  void refuse_to_write(const std::string& tensor, const std::string& target) {
    if (tensor.ends_with("num_batches_tracked")) return;
    const std::string line = "tensor " + json_shown(tensor) + ": the forward changes it (" + target +
                             "), which is not available; leave the update out of the module that is exported";
    if (std::count(model_.refused.begin(), model_.refused.end(), line) == 0) model_.refused.push_back(line);
  }

  void follow_views(const AtenNode& node, bool is_in_place, bool is_view) {
    const bool reads = !node.arguments.empty() && !node.arguments[0].second.tensors.empty();
    if (!reads) return;
    const std::string& x = node.arguments[0].second.tensors[0];
    for (const std::string& output : node.outputs) {
      if (is_in_place) {
        names_.change(x, output);
      } else if (is_view) {
        names_.share(output, x);
      }
    }
  }

  void add_unread(const AtenNode& node) {
    OnnxNode unread;
    unread.name = node.name;
    unread.op = node.target;
    unread.domain = "torch";
    for (const auto& [name, argument] : node.arguments) {
      for (const std::string& tensor : argument.tensors)
        unread.inputs.push_back(tensor.empty() ? "" : names_.name(tensor));
    }
    unread.outputs = node.outputs;
    model_.nodes.push_back(std::move(unread));
  }

  const AtenGraph& graph_;
  OnnxModel& model_;
  AtenNames names_;
  uint64_t made_numbers_ = 0;  // number of elements of all constants that were made for arguments
  // Values that were computed without gradients, and that no node has read with gradients yet.
  std::set<std::string> without_gradient_;
};

}  // namespace
}  // namespace aten

void add_aten_nodes(const AtenGraph& graph, OnnxModel& model) { aten::Translator(graph, model).translate(); }

}  // namespace reprise
