// The attributes of kernels: the numbers of a call that do not follow from the shapes of its
// tensors. A plan has one pool (array) for each attribute type. A row holds an index into the pool
// of its kernel's type.
//
// This file lists every type. Each type has
//   kName           its name, without "Attribute"
//   fields(visit)   calls visit(name, member) for each member; plan.h has the members in this order
//   makes_sense()   returns true if the values are valid on their own; check() refuses other values
#pragma once

#include <cstdint>

#include "lib/tensor.h"

namespace reprise {

// Range checks that return false for a NaN.
namespace sense {
// True if minimum <= value <= maximum.
constexpr bool within(double value, double minimum, double maximum) { return value >= minimum && value <= maximum; }
// True if `value` is in [0, 1).
constexpr bool is_probability(double value) { return value >= 0 && value < 1; }
// True if `value` is in (0, 1].
constexpr bool is_epsilon(double value) { return value > 0 && value <= 1; }
// The largest finite f64.
constexpr double kMaxFinite = 1.7976931348623157e308;
// The largest factor of an attribute, for example a weight decay, a momentum or a scale. A larger
// value suggests a missing decimal point in the recipe.
constexpr double kMaxFactor = 1e6;
// True if `value` is in (0, kMaxFactor].
constexpr bool is_factor(double value) { return value > 0 && value <= kMaxFactor; }
}  // namespace sense

// Returns the greatest common divisor of `a` and `b`; if one of them is 0, returns the other.
constexpr uint32_t common_divisor(uint32_t a, uint32_t b) { return b == 0 ? a : common_divisor(b, a % b); }

// A window along one dimension. Tap t of output o reads input element o * stride + t * dilation -
// pad; an element outside the input is padding.
struct WindowSide {
  // `kernel`: taps of the window. `stride`: input elements from one output's window to the next.
  // `dilation`: input elements from one tap to the next. `pad`, `far_pad`: padding elements before
  // and after the input.
  uint32_t kernel, stride, dilation, pad, far_pad;
  constexpr bool operator==(const WindowSide&) const = default;

  // Returns the number of input elements from a window's first tap to its last, both included.
  constexpr uint32_t extent() const { return (kernel - 1) * dilation + 1; }
  // Returns the number of outputs for an input of `size` elements, or 0 if no window fits. Every
  // window is inside the padded input.
  constexpr uint64_t outputs(uint64_t size) const {
    const uint64_t padded = size + pad + far_pad;
    return padded < extent() ? 0 : (padded - extent()) / stride + 1;
  }
  // True if each of the first `outputs` windows has at least one tap inside the input of `size`
  // elements.
  constexpr bool always_meets(uint64_t size, uint64_t outputs) const {
    if ((outputs - 1) * stride >= size + pad) return false;
    for (uint64_t o = 0; o < outputs && o * stride < pad; ++o) {  // windows that begin before the input
      const uint64_t before = pad - o * stride, tap = (before + dilation - 1) / dilation;
      if (tap >= kernel || tap * dilation - before >= size) return false;
    }
    return true;
  }
};

// The window of a convolution or a pool. A horizontal value that is not given equals the vertical
// value, and padding after the input equals padding before it. For example, {3, 3, 1, 1} is a 3 x 3
// window with stride 1 and padding 1.
struct WindowAttribute {
  static constexpr const char* kName = "Window";
  // The maximum of each kernel size, stride, dilation and padding. It limits the time of kernels
  // that loop over stride_h x stride_w phases.
  static constexpr uint16_t kMax = 255;
  // `kernel_h`, `kernel_w`: taps vertically and horizontally. `stride_h`: vertical stride in
  // pixels. `pad_top`: rows of padding above the input.
  uint16_t kernel_h, kernel_w, stride_h, pad_top;
  // The epsilon in a convolution's rstd, 1 / sqrt(biased variance + epsilon); 0 if the row computes
  // no statistics.
  float statistics_epsilon = 0;
  uint16_t stride_w = stride_h;                                             // Horizontal stride in pixels.
  uint16_t pad_left = pad_top, pad_bottom = pad_top, pad_right = pad_left;  // Rows or columns of padding.
  uint16_t dilation_h = 1, dilation_w = dilation_h;                         // Pixels from one tap to the next.
  // Number of groups of a convolution. A group is a range of neighbouring channels; its outputs
  // read only its own inputs.
  uint32_t groups = 1;
  // For an average pool. 1: padding counts as zeros. 0: the mean is over the pixels inside the
  // input.
  uint32_t counts_padding = 0;
  constexpr bool operator==(const WindowAttribute&) const = default;
  // Returns the vertical part of the window; columns() returns the horizontal part.
  constexpr WindowSide rows() const { return {kernel_h, stride_h, dilation_h, pad_top, pad_bottom}; }
  constexpr WindowSide columns() const { return {kernel_w, stride_w, dilation_w, pad_left, pad_right}; }
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kernel_h", kernel_h), visit("kernel_w", kernel_w), visit("stride", stride_h), visit("pad", pad_top),
        visit("epsilon", statistics_epsilon);
    visit("stride_w", stride_w), visit("pad_left", pad_left), visit("pad_bottom", pad_bottom),
        visit("pad_right", pad_right);
    visit("dilation_h", dilation_h), visit("dilation_w", dilation_w), visit("groups", groups),
        visit("counts_padding", counts_padding);
  }
  constexpr bool makes_sense() const {
    const auto one_makes_sense = [](const WindowSide& side) {
      return side.kernel > 0 && side.stride > 0 && side.dilation > 0 && side.kernel <= kMax && side.stride <= kMax &&
             side.dilation <= kMax && side.pad <= kMax && side.far_pad <= kMax;
    };
    return one_makes_sense(rows()) && one_makes_sense(columns()) && groups > 0 && counts_padding <= 1 &&
           (statistics_epsilon == 0 || sense::is_epsilon(static_cast<double>(statistics_epsilon)));
  }
};

// The constants of batch-norm, layer-norm, RMS-norm and group-norm.
struct NormAttribute {
  static constexpr const char* kName = "Norm";
  float epsilon;   // Added to the variance or to the mean square.
  float momentum;  // batch-norm's running statistics: new = (1 - momentum) * old + momentum * batch
  uint64_t count;  // batch-norm: elements that are reduced for each channel, N * H * W
  // RMS-norm multiplies rows by offset + gamma. `offset` is 1 if the model's files store gamma - 1
  // (Gemma), else 0.
  float offset = 0;
  constexpr bool operator==(const NormAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("epsilon", epsilon), visit("momentum", momentum), visit("count", count), visit("offset", offset);
  }
  constexpr bool makes_sense() const {
    return sense::is_epsilon(static_cast<double>(epsilon)) && sense::within(static_cast<double>(momentum), 0, 1) &&
           (offset == 0 || offset == 1);
  }
};

// The layout of a linear layer's weight, and a factor.
struct LinearAttribute {
  static constexpr const char* kName = "Linear";
  uint32_t input_major;  // 1: the weight is [in, out] (Hugging Face's Conv1D); 0: [out, in].
  float scale = 1;       // Factor of the product with the weight, in forward and backward_data.
  constexpr bool operator==(const LinearAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("input_major", input_major), visit("scale", scale);
  }
  constexpr bool makes_sense() const { return input_major <= 1 && sense::is_factor(static_cast<double>(scale)); }
};

// The form of GELU.
struct GeluAttribute {
  static constexpr const char* kName = "Gelu";
  uint32_t tanh_form;  // 1: the tanh approximation (Hugging Face's gelu_new); 0: the exact form with erf.
  constexpr bool operator==(const GeluAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("tanh_form", tanh_form);
  }
  constexpr bool makes_sense() const { return tanh_form <= 1; }
};

// The shape and the mask of attention.
struct AttentionAttribute {
  static constexpr const char* kName = "Attention";
  uint32_t heads;     // Query heads.
  uint32_t kv_heads;  // Heads of keys and of values. heads / kv_heads consecutive query heads share each of them.
  float dropout;      // Probability of dropping an attention weight; 0 for none.
  uint32_t stream;    // Number of the row's node in the graph; random bits depend on it (rng.h).
  // Size of a sliding window (Mistral, Jiang et al. 2023): the number of positions that a position
  // attends to, itself included as the last. 0: no window.
  uint32_t window = 0;
  float softcap = 0;  // Scores s become softcap tanh(s / softcap) (Gemma 2, arXiv 2408.00118); 0: no cap.
  float scale = 0;    // Factor of the scores q k^T; 0: 1 / sqrt(D).
  // 1: a position attends to itself and to earlier positions. 0: it attends to its whole document;
  // `window` must be 0.
  uint32_t causal = 1;
  constexpr bool operator==(const AttentionAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("dropout", dropout), visit("stream", stream);
    visit("window", window), visit("softcap", softcap), visit("scale", scale), visit("causal", causal);
  }
  constexpr bool makes_sense() const {
    return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && sense::is_probability(static_cast<double>(dropout)) &&
           (softcap == 0 || sense::is_factor(static_cast<double>(softcap))) &&
           (scale == 0 || sense::is_factor(static_cast<double>(scale))) && causal <= 1 && (causal == 1 || window == 0);
  }
  // Returns the first position that position `t` attends to, in a document that starts at position
  // `start`.
  constexpr uint32_t first_seen(uint32_t t, uint32_t start) const {
    return window != 0 && t - start >= window ? t - window + 1 : start;
  }
};

// Rotary positions. If `rotary` is 0, the kernel only concatenates q, k and v.
struct RopeAttribute {
  static constexpr const char* kName = "Rope";
  // The largest `rotary`. It is limited because kernels keep the angles of one row on the stack.
  static constexpr uint32_t kMaxRotary = 512;
  // `heads`: heads of queries. `kv_heads`: heads of keys and of values.
  uint32_t heads, kv_heads;
  uint32_t rotary;  // Number of leading elements of each head that are rotated; even.
  // How elements are paired for the rotation. 1: elements 2i and 2i + 1; 0: elements i and i +
  // rotary / 2 (Hugging Face's llama).
  uint32_t neighbours;
  float theta;  // Frequency i is theta^(-2i / rotary), unless the row has a table of frequencies.
  // Factor of the sines and cosines, and so of the rotated elements of q and k (YaRN's attention
  // factor, Peng et al. 2023).
  float scale = 1;
  constexpr bool operator==(const RopeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("rotary", rotary), visit("neighbours", neighbours),
        visit("theta", theta);
    visit("scale", scale);
  }
  constexpr bool makes_sense() const {
    return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && rotary % 2 == 0 && rotary <= kMaxRotary &&
           neighbours <= 1 && sense::within(static_cast<double>(theta), 1, 1e12) &&
           sense::is_factor(static_cast<double>(scale));
  }
};

// The scale of an embedding.
struct EmbeddingAttribute {
  static constexpr const char* kName = "Embedding";
  float scale = 1;  // Factor of every row that is read from the table.
  constexpr bool operator==(const EmbeddingAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("scale", scale);
  }
  constexpr bool makes_sense() const { return sense::is_factor(static_cast<double>(scale)); }
};

// The first element of a box (a part of a tensor): its index along each dimension that the box may
// narrow. In a tensor with several dimensions, the first one counts samples, and the box has all
// samples.
struct ColumnsAttribute {
  static constexpr const char* kName = "Columns";
  uint32_t first;                            // Index along the last dimension.
  uint32_t second_last = 0, third_last = 0;  // Indices along the second-last and the third-last dimension.
  constexpr bool operator==(const ColumnsAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("first", first), visit("second_last", second_last), visit("third_last", third_last);
  }
  constexpr bool makes_sense() const { return true; }  // the kernel's shape contract checks the box
};

// The functions of one number that lib/ops/unary.h computes. Plans store the enumerators' values:
// add a new function at the end.
enum class UnaryFunction : uint32_t {
  kSilu,
  kHardswish,
  kHardsigmoid,
  kSigmoid,
  kRelu6,
  kLeakyRelu,
  kElu,
  kTanh,
  kSoftplus,
  kMish,
  kQuickGelu,
  kExp,
  kScale,
  kAtLeast,
  kAtMost,
  kSqrt,
  kReciprocal,
};
// One entry of kUnaryFunctions: how recipes name a function and its parameter.
struct UnaryFunctionInfo {
  const char* word;  // Name of the function.
  // Name of the function's parameter. Null if the function has none: UnaryAttribute::parameter is
  // then 0.
  const char* parameter;
  float absent;  // The parameter's value if the recipe gives none.
};
// How recipes name the functions, indexed by UnaryFunction.
inline constexpr UnaryFunctionInfo kUnaryFunctions[] = {
    {"silu", nullptr, 0},       {"hardswish", nullptr, 0},      {"hardsigmoid", nullptr, 0}, {"sigmoid", nullptr, 0},
    {"relu6", nullptr, 0},      {"leaky_relu", "slope", 0.01f}, {"elu", "alpha", 1},         {"tanh", nullptr, 0},
    {"softplus", nullptr, 0},   {"mish", nullptr, 0},           {"quick_gelu", nullptr, 0},  {"exp", nullptr, 0},
    {"scale", "factor", 1},     {"at_least", "bound", 0},       {"at_most", "bound", 0},     {"sqrt", nullptr, 0},
    {"reciprocal", nullptr, 0},
};
constexpr uint32_t kUnaryFunctionCount = sizeof(kUnaryFunctions) / sizeof(kUnaryFunctions[0]);
static_assert(static_cast<uint32_t>(UnaryFunction::kReciprocal) + 1 == kUnaryFunctionCount);

// A function of one number.
struct UnaryAttribute {
  static constexpr const char* kName = "Unary";
  uint32_t function;    // A UnaryFunction.
  float parameter = 0;  // The function's parameter, 0 if it has none.
  constexpr bool operator==(const UnaryAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("function", function), visit("parameter", parameter);
  }
  constexpr bool makes_sense() const {
    if (function >= kUnaryFunctionCount) return false;
    if (kUnaryFunctions[function].parameter == nullptr) return parameter == 0;
    return sense::within(static_cast<double>(parameter), -sense::kMaxFactor, sense::kMaxFactor);
  }
};

// An order of dimensions: dimension i of the result is dimension axis_i of the input. The first
// dimension, which counts samples, stays in place. If the tensor has no dimension i, axis_i is i.
struct TransposeAttribute {
  static constexpr const char* kName = "Transpose";
  // The axes are a permutation of 1, 2 and 3.
  uint32_t axis_1, axis_2, axis_3;
  constexpr bool operator==(const TransposeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("axis_1", axis_1), visit("axis_2", axis_2), visit("axis_3", axis_3);
  }
  constexpr bool makes_sense() const {
    const bool within = axis_1 - 1 < 3 && axis_2 - 1 < 3 && axis_3 - 1 < 3;  // axis 0 wraps to a large number
    return within && axis_1 != axis_2 && axis_2 != axis_3 && axis_3 != axis_1;
  }
};

// States which factors of a matrix product are stored transposed, so that a column of the factor is
// a row in memory.
struct ProductAttribute {
  static constexpr const char* kName = "Product";
  uint32_t transposed_a, transposed_b;  // 1: the factor is stored transposed.
  constexpr bool operator==(const ProductAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("turned_a", transposed_a), visit("turned_b", transposed_b);
  }
  constexpr bool makes_sense() const { return transposed_a <= 1 && transposed_b <= 1; }
};

// How images are resized (lib/ops/resize.h). kNearest: along a side with `in` input and `out`
// output pixels, output pixel p reads input pixel p * in / out, rounded down. kBilinear
// interpolates and treats pixels as squares (PyTorch's align_corners false). kBilinearCorners
// interpolates, treats pixels as points and keeps the corners (align_corners true).
enum class ResizeKind : uint32_t { kNearest, kBilinear, kBilinearCorners };
// How an image is resized.
struct ResizeAttribute {
  static constexpr const char* kName = "Resize";
  uint32_t kind;  // A ResizeKind.
  constexpr bool operator==(const ResizeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind);
  }
  constexpr bool makes_sense() const { return kind <= static_cast<uint32_t>(ResizeKind::kBilinearCorners); }
};

// A soft cap: large numbers approach the cap and never exceed it.
struct CapAttribute {
  static constexpr const char* kName = "Cap";
  float softcap = 0;  // x becomes softcap tanh(x / softcap) (Gemma 2, arXiv 2408.00118); 0: no cap.
  constexpr bool operator==(const CapAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("softcap", softcap);
  }
  constexpr bool makes_sense() const { return softcap == 0 || sense::is_factor(static_cast<double>(softcap)); }
};

// The parameters of a dropout.
struct DropoutAttribute {
  static constexpr const char* kName = "Dropout";
  float probability;  // Probability of dropping an element.
  uint32_t stream;    // Number of the row's node in the graph; random bits depend on it (rng.h).
  // Number of neighbouring elements that are dropped together. If it is the size of a sample, the
  // dropout is stochastic depth (Huang et al. 2016).
  uint64_t shared = 1;
  constexpr bool operator==(const DropoutAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("probability", probability), visit("stream", stream), visit("shared", shared);
  }
  constexpr bool makes_sense() const { return sense::is_probability(static_cast<double>(probability)) && shared > 0; }
};

// A contiguous group of tensors that one row reduces or updates.
struct GroupAttribute {
  static constexpr const char* kName = "Group";
  // Number of tensors in the group. The argument names the first; the others follow it in the
  // region, in order.
  uint32_t tensors;
  uint32_t first_norm;  // For grad_norm.reduce: index of the first tensor's entry in the norms.
  // Number of f32 elements from the first tensor's start to the last tensor's end. The padding
  // between tensors counts; it is always zero.
  uint64_t elements;
  constexpr bool operator==(const GroupAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("tensors", tensors), visit("first_norm", first_norm), visit("elements", elements);
  }
  constexpr bool makes_sense() const { return true; }  // check.h compares a group with its tensors
};

// The limit of the gradient's norm.
struct ClipAttribute {
  static constexpr const char* kName = "Clip";
  float max_norm;  // Norm above which gradients are scaled down; 0: no limit.
  constexpr bool operator==(const ClipAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("max_norm", max_norm);
  }
  constexpr bool makes_sense() const { return sense::within(static_cast<double>(max_norm), 0, 1e30); }
};

// The source of a value that the ranks share.
struct ShareAttribute {
  static constexpr const char* kName = "Share";
  uint32_t root;  // Rank whose bytes all ranks receive.
  constexpr bool operator==(const ShareAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("root", root);
  }
  constexpr bool makes_sense() const { return true; }  // check.h compares the root with the number of ranks
};

// A group of tensors and the constants of its optimizer.
struct UpdateAttribute {
  static constexpr const char* kName = "Update";
  GroupAttribute group;          // Tensors that the row updates.
  float weight_decay, momentum;  // `momentum` is used by sgd and muon only.
  uint32_t nesterov;             // 1: Nesterov momentum (sgd, muon); else 0.
  double beta1, beta2;  // Decay rates of adamw and lion. f64: in f32, 1 - beta2 would be wrong in the fifth digit.
  float epsilon;                 // Epsilon of adamw and muon.
  float rate = 1;                // Factor of the learning rate.
  // Number of the tensor; it selects the random bits with which the stored numbers are rounded. A
  // row that draws random bits updates a group of one tensor.
  uint32_t stream = 0;
  constexpr bool operator==(const UpdateAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("momentum", momentum),
        visit("nesterov", nesterov);
    visit("beta1", beta1), visit("beta2", beta2), visit("epsilon", epsilon), visit("rate", rate),
        visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMaxFactor) &&
           sense::within(static_cast<double>(momentum), 0, sense::kMaxFactor) && nesterov <= 1 &&
           sense::is_probability(beta1) && sense::is_probability(beta2) &&
           sense::is_epsilon(static_cast<double>(epsilon)) && sense::is_factor(static_cast<double>(rate));
  }
};

// The constants of Adafactor and AdaLomo, which keep means of squares by row and column (formulas:
// matrix_update.h).
struct FactoredAttribute {
  static constexpr const char* kName = "Factored";
  GroupAttribute group;  // A group of one tensor.
  // Weight decay; 0: none.
  float weight_decay;
  double decay_power;  // Step t, counted from 1, keeps the share 1 - t^-decay_power of the old means.
  float epsilon;       // Added to each mean of squares.
  // Lower bound of the parameters' root mean square (rms). The step is multiplied by the rms, or by
  // this bound if the rms is smaller.
  float min_scale;
  float clip;           // Maximum root mean square of an update.
  uint32_t adalomo;     // 1: AdaLomo's form of the step; 0: Adafactor's.
  float rate = 1;       // Factor of the learning rate.
  uint32_t stream = 0;  // Number of the tensor; it selects random bits.
  constexpr bool operator==(const FactoredAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("decay_power", decay_power),
        visit("epsilon", epsilon);
    visit("least_scale", min_scale), visit("clip", clip), visit("adalomo", adalomo), visit("rate", rate),
        visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMaxFactor) && sense::is_factor(decay_power) &&
           sense::is_epsilon(static_cast<double>(epsilon)) && sense::within(static_cast<double>(min_scale), 0, 1) &&
           sense::is_factor(static_cast<double>(clip)) && adalomo <= 1 && sense::is_factor(static_cast<double>(rate));
  }
};

// The constants of APOLLO, which keeps Adam's moments of a projection (formulas: matrix_update.h).
struct ProjectedAttribute {
  static constexpr const char* kName = "Projected";
  GroupAttribute group;  // A group of one tensor.
  // `weight_decay`: 0 for none. `beta1`, `beta2`: decay rates of the two moments. `epsilon`: added
  // to the root of the second moment in Adam's quotient.
  float weight_decay;
  double beta1, beta2;
  float epsilon;
  float scale;        // The square root of this number is a factor of the update.
  uint32_t by_tensor; // 1: one factor for the whole tensor (APOLLO-Mini); 0: one for each channel.
  uint32_t period;    // Number of steps after which another projection is drawn.
  float rate = 1;     // Factor of the learning rate.
  uint32_t stream = 0;  // Number of the tensor; it selects random bits.
  constexpr bool operator==(const ProjectedAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("beta1", beta1), visit("beta2", beta2),
        visit("epsilon", epsilon);
    visit("scale", scale), visit("by_tensor", by_tensor), visit("period", period), visit("rate", rate),
        visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMaxFactor) && sense::is_probability(beta1) &&
           sense::is_probability(beta2) && sense::is_epsilon(static_cast<double>(epsilon)) &&
           sense::is_factor(static_cast<double>(scale)) && by_tensor <= 1 && period > 0 &&
           sense::is_factor(static_cast<double>(rate));
  }
};

// The loss by which answers are compared: DPO, ORPO or KTO (formulas: lib/ops/preference.h).
enum class PreferenceKind : uint32_t { kDpo, kOrpo, kKto };
// The constants of a preference loss.
struct PreferenceAttribute {
  static constexpr const char* kName = "Preference";
  uint32_t kind;  // A PreferenceKind.
  double beta;    // Factor of the log-probabilities (dpo, kto) or of the odds ratio's loss (orpo).
  double label_smoothing = 0;                           // dpo: probability that a pair is in the wrong order
  double desirable_weight = 1, undesirable_weight = 1;  // kto: weights of desirable and of undesirable answers
  constexpr bool operator==(const PreferenceAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("beta", beta), visit("label_smoothing", label_smoothing),
        visit("desirable_weight", desirable_weight);
    visit("undesirable_weight", undesirable_weight);
  }
  constexpr bool makes_sense() const {
    return kind <= static_cast<uint32_t>(PreferenceKind::kKto) && sense::is_factor(beta) &&
           sense::within(label_smoothing, 0, 0.5) && sense::within(desirable_weight, 0, sense::kMaxFactor) &&
           sense::within(undesirable_weight, 0, sense::kMaxFactor);
  }
};

// How a prediction is compared with its target (formulas: lib/ops/target_loss.h).
enum class TargetLossKind : uint32_t { kMse, kL1, kHuber, kBinary };
// A loss on numbers.
struct TargetLossAttribute {
  static constexpr const char* kName = "TargetLoss";
  uint32_t kind;    // A TargetLossKind.
  float delta = 0;  // huber: absolute error up to which the loss is quadratic; 0 for the other kinds
  constexpr bool operator==(const TargetLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("delta", delta);
  }
  constexpr bool makes_sense() const {
    if (kind != static_cast<uint32_t>(TargetLossKind::kHuber))
      return kind <= static_cast<uint32_t>(TargetLossKind::kBinary) && delta == 0;
    return sense::is_factor(static_cast<double>(delta));
  }
};

// The form of a loss on classes.
struct ClassLossAttribute {
  static constexpr const char* kName = "ClassLoss";
  float label_smoothing = 0;  // Share of each label that is divided equally among all classes (Szegedy et al. 2016).
  // Share of the loss that is 1 - Dice's coefficient (Milletari et al. 2016); the rest is
  // cross-entropy.
  float dice = 0;
  constexpr bool operator==(const ClassLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("label_smoothing", label_smoothing), visit("dice", dice);
  }
  constexpr bool makes_sense() const {
    return sense::is_probability(static_cast<double>(label_smoothing)) &&
           sense::within(static_cast<double>(dice), 0, 1);
  }
};

// How the two vectors of a pair are compared (formulas: lib/ops/pair_loss.h).
enum class PairLossKind : uint32_t { kContrast, kCosine, kSimilarity };
// A loss on pairs of vectors.
struct PairLossAttribute {
  static constexpr const char* kName = "PairLoss";
  uint32_t kind;           // A PairLossKind.
  float temperature = 0;   // contrast: divisor of the cosines; 0 for the other kinds
  uint32_t symmetric = 0;  // contrast only: 1 if the loss is the mean of first-to-second and second-to-first; else 0
  float margin = 0;        // cosine: dissimilar pairs have no loss up to this cosine; 0 for the other kinds
  constexpr bool operator==(const PairLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("temperature", temperature), visit("symmetric", symmetric), visit("margin", margin);
  }
  constexpr bool makes_sense() const {
    if (kind == static_cast<uint32_t>(PairLossKind::kContrast))
      return sense::within(static_cast<double>(temperature), 1e-4, sense::kMaxFactor) && symmetric <= 1 && margin == 0;
    const bool has_margin = kind == static_cast<uint32_t>(PairLossKind::kCosine);
    return kind <= static_cast<uint32_t>(PairLossKind::kSimilarity) && temperature == 0 && symmetric == 0 &&
           (has_margin ? margin >= -1 && margin < 1 : margin == 0);
  }
};

// A list of types; `kCount` is their number.
template <typename... T>
struct TypeList {
  static constexpr uint32_t kCount = sizeof...(T);
};

// The types of all pools, in the order in which plan.h writes them.
using AttributeTypes =
    TypeList<WindowAttribute, NormAttribute, LinearAttribute, GeluAttribute, AttentionAttribute, DropoutAttribute,
             GroupAttribute, ClipAttribute, UpdateAttribute, RopeAttribute, FactoredAttribute, ProjectedAttribute,
             PreferenceAttribute, EmbeddingAttribute, ColumnsAttribute, CapAttribute, UnaryAttribute,
             TransposeAttribute, ResizeAttribute, TargetLossAttribute, ClassLossAttribute, ProductAttribute,
             PairLossAttribute, ShareAttribute>;

// An attribute's type, as its index in AttributeTypes.
using AttributeKind = uint8_t;
// The kind of a kernel without attributes.
constexpr AttributeKind kNoAttribute = 0xff;

namespace attribute_list {
// Returns the index of A in a list of types; kNoAttribute if A is not in the list.
template <typename A, typename... T>
constexpr AttributeKind place(TypeList<T...>) {
  AttributeKind found = kNoAttribute, at = 0;
  ((found = __is_same(A, T) ? at : found, ++at), ...);
  return found;
}
// Calls visit(pool) for the pool of every type, in the order of the list.
template <typename Pools, typename Visit, typename... T>
constexpr void each(const Pools& pools, const Visit& visit, TypeList<T...>) {
  (visit(pools.template of<T>()), ...);
}

// The attributes of one type.
template <typename T>
struct Pool {
  Span<T> entries = {};
};
// The pools of all types of a list. of<A>() returns the pool of type A.
template <typename List>
struct PoolsOf;
template <typename... T>
struct PoolsOf<TypeList<T...>> : Pool<T>... {
  template <typename A>
  constexpr const Span<A>& of() const {
    return Pool<A>::entries;
  }
};
}  // namespace attribute_list

// The index of attribute type A in AttributeTypes; kNoAttribute for void.
template <typename A>
inline constexpr AttributeKind kAttributeKind = attribute_list::place<A>(AttributeTypes{});
template <>
inline constexpr AttributeKind kAttributeKind<void> = kNoAttribute;

// All attribute pools of a plan.
using AttributePools = attribute_list::PoolsOf<AttributeTypes>;

// Calls visit(pool) for every pool of `pools`, in the order of AttributeTypes.
template <typename Pools, typename Visit>
constexpr void for_each_pool(const Pools& pools, const Visit& visit) {
  attribute_list::each(pools, visit, AttributeTypes{});
}

// Returns the group of entry `index` in the pool of `kind`; null if attributes of this kind have no
// group. The pool must have the entry.
constexpr const GroupAttribute* group_of(const AttributePools& pools, AttributeKind kind, uint32_t index) {
  if (kind == kAttributeKind<GroupAttribute>) return &pools.of<GroupAttribute>()[index];
  if (kind == kAttributeKind<UpdateAttribute>) return &pools.of<UpdateAttribute>()[index].group;
  if (kind == kAttributeKind<FactoredAttribute>) return &pools.of<FactoredAttribute>()[index].group;
  if (kind == kAttributeKind<ProjectedAttribute>) return &pools.of<ProjectedAttribute>()[index].group;
  return nullptr;
}

// Returns the number of entries in the pool of `kind`. Returns ~0u for kNoAttribute, so that every
// index is valid.
constexpr uint32_t attribute_count(const AttributePools& pools, AttributeKind kind) {
  if (kind == kNoAttribute) return ~0u;
  uint32_t count = 0;
  AttributeKind at = 0;
  for_each_pool(pools, [&](const auto& pool) {
    if (at++ == kind) count = pool.count;
  });
  return count;
}

}  // namespace reprise
