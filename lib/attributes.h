// The attributes of kernels: the numbers of a call that no tensor's shape tells. A plan has one pool of each type, a row an index.
// This file is the one list of the types. Each type has a name (its own without "Attribute"), visits its fields (in the order of its members, as plan.h writes
// them), and says which values make sense; check.h refuses a plan that holds others.
#pragma once

#include <cstdint>

#include "lib/tensor.h"

namespace reprise {

namespace sense {
// Comparisons that a NaN fails.
constexpr bool within(double value, double least, double most) { return value >= least && value <= most; }
constexpr bool is_probability(double value) { return value >= 0 && value < 1; }
constexpr bool is_epsilon(double value) { return value > 0 && value <= 1; }
constexpr double kMostFinite = 1.7976931348623157e308;
constexpr double kMostFactor = 1e6;  // of a decay, a momentum, a norm's limit: above, a recipe has lost a decimal point
constexpr bool is_factor(double value) { return value > 0 && value <= kMostFactor; }
}  // namespace sense

constexpr uint32_t common_divisor(uint32_t a, uint32_t b) { return b == 0 ? a : common_divisor(b, a % b); }

// A window along one dimension: output o, tap t reads element o * stride + t * dilation - pad, which is padding outside the input.
struct WindowSide {
  uint32_t kernel, stride, dilation, pad, far_pad;  // far_pad: behind the input
  constexpr bool operator==(const WindowSide&) const = default;

  constexpr uint32_t extent() const { return (kernel - 1) * dilation + 1; }  // of one window
  // Outputs over an input of so many elements: the window slides while it ends inside the padded input. 0 where it does not fit.
  constexpr uint64_t outputs(uint64_t size) const {
    const uint64_t padded = size + pad + far_pad;
    return padded < extent() ? 0 : (padded - extent()) / stride + 1;
  }
  // Whether each of the outputs has a tap inside the input.
  constexpr bool always_meets(uint64_t size, uint64_t outputs) const {
    if ((outputs - 1) * stride >= size + pad) return false;
    for (uint64_t o = 0; o < outputs && o * stride < pad; ++o) {  // those that begin before the input
      const uint64_t before = pad - o * stride, tap = (before + dilation - 1) / dilation;
      if (tap >= kernel || tap * dilation - before >= size) return false;
    }
    return true;
  }
};

// Convolution and pooling. What is not given along a row is as down a column, and the padding behind the input is that before it: {3, 3, 1, 1} is
// a window of 3 x 3 with a stride and a padding of 1 everywhere.
struct WindowAttribute {
  static constexpr const char* kName = "Window";
  static constexpr uint16_t kMost = 255;  // of each: kernels walk over stride_h x stride_w phases
  uint16_t kernel_h, kernel_w, stride_h, pad_top;
  float statistics_epsilon = 0;  // a convolution's rstd: 1 / sqrt(biased variance + this); 0 where nobody wants statistics
  uint16_t stride_w = stride_h;
  uint16_t pad_left = pad_top, pad_bottom = pad_top, pad_right = pad_left;
  uint16_t dilation_h = 1, dilation_w = dilation_h;  // from one tap to the next
  uint32_t groups = 1;  // of a convolution: outputs of a group of neighbouring channels are of that group's inputs alone
  uint32_t counts_padding = 0;  // of an average: 1: padding counts as zeros; 0: the mean is of what lies inside the input
  constexpr bool operator==(const WindowAttribute&) const = default;
  constexpr WindowSide rows() const { return {kernel_h, stride_h, dilation_h, pad_top, pad_bottom}; }
  constexpr WindowSide columns() const { return {kernel_w, stride_w, dilation_w, pad_left, pad_right}; }
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kernel_h", kernel_h), visit("kernel_w", kernel_w), visit("stride", stride_h), visit("pad", pad_top), visit("epsilon", statistics_epsilon);
    visit("stride_w", stride_w), visit("pad_left", pad_left), visit("pad_bottom", pad_bottom), visit("pad_right", pad_right);
    visit("dilation_h", dilation_h), visit("dilation_w", dilation_w), visit("groups", groups), visit("counts_padding", counts_padding);
  }
  constexpr bool makes_sense() const {
    const auto one_makes_sense = [](const WindowSide& side) {
      return side.kernel > 0 && side.stride > 0 && side.dilation > 0 && side.kernel <= kMost && side.stride <= kMost && side.dilation <= kMost &&
             side.pad <= kMost && side.far_pad <= kMost;
    };
    return one_makes_sense(rows()) && one_makes_sense(columns()) && groups > 0 && counts_padding <= 1 &&
           (statistics_epsilon == 0 || sense::is_epsilon(static_cast<double>(statistics_epsilon)));
  }
};

// Batch-norm, layer-norm, RMS-norm and group-norm.
struct NormAttribute {
  static constexpr const char* kName = "Norm";
  float epsilon;
  float momentum;  // batch-norm's running statistics: new = (1 - momentum) * old + momentum * batch
  uint64_t count;  // batch-norm: elements reduced per channel, N * H * W
  float offset = 0;  // RMS-norm: rows are multiplied by offset + gamma; 1 where files hold what is to be added to 1 (Gemma)
  constexpr bool operator==(const NormAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("epsilon", epsilon), visit("momentum", momentum), visit("count", count), visit("offset", offset);
  }
  constexpr bool makes_sense() const {
    return sense::is_epsilon(static_cast<double>(epsilon)) && sense::within(static_cast<double>(momentum), 0, 1) && (offset == 0 || offset == 1);
  }
};

struct LinearAttribute {
  static constexpr const char* kName = "Linear";
  uint32_t input_major;  // 1: weight is [in, out] (Hugging Face's Conv1D); 0: [out, in]
  float scale = 1;       // forward and backward_data multiply the product with the weight by it
  constexpr bool operator==(const LinearAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("input_major", input_major), visit("scale", scale);
  }
  constexpr bool makes_sense() const { return input_major <= 1 && sense::is_factor(static_cast<double>(scale)); }
};

struct GeluAttribute {
  static constexpr const char* kName = "Gelu";
  uint32_t tanh_form;  // 1: gelu_new; 0: the erf form
  constexpr bool operator==(const GeluAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("tanh_form", tanh_form);
  }
  constexpr bool makes_sense() const { return tanh_form <= 1; }
};

struct AttentionAttribute {
  static constexpr const char* kName = "Attention";
  uint32_t heads;
  uint32_t kv_heads;  // of keys and of values; heads / kv_heads consecutive heads share one
  float dropout;    // probability of dropping a weight; 0 for none
  uint32_t stream;  // node number: part of the random counter
  uint32_t window = 0;  // a position sees at most so many, itself the last of them; 0: all before it (Mistral, Jiang et al. 2023)
  float softcap = 0;    // scores s become softcap tanh(s / softcap) (Gemma 2, 2408.00118); 0: they stay
  float scale = 0;      // of the scores q k^T; 0: 1 / sqrt(D)
  uint32_t causal = 1;  // 1: a position sees none behind itself; 0: it sees all of its document, and has no window
  constexpr bool operator==(const AttentionAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("dropout", dropout), visit("stream", stream);
    visit("window", window), visit("softcap", softcap), visit("scale", scale), visit("causal", causal);
  }
  constexpr bool makes_sense() const {
    return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && sense::is_probability(static_cast<double>(dropout)) &&
           (softcap == 0 || sense::is_factor(static_cast<double>(softcap))) && (scale == 0 || sense::is_factor(static_cast<double>(scale))) &&
           causal <= 1 && (causal == 1 || window == 0);
  }
  // The first position that position t sees, of those from `start` on.
  constexpr uint32_t first_seen(uint32_t t, uint32_t start) const {
    return window != 0 && t - start >= window ? t - window + 1 : start;
  }
};

// Rotary positions; `rotary` 0: none, q, k and v are only put side by side.
struct RopeAttribute {
  static constexpr const char* kName = "Rope";
  static constexpr uint32_t kMostRotary = 512;  // kernels keep a row's angles on the stack
  uint32_t heads, kv_heads;
  uint32_t rotary;      // the first so many of a head's D elements are rotated; even
  uint32_t neighbours;  // 1: element 2i turns with 2i + 1; 0: element i with i + rotary / 2 (Hugging Face's llama)
  float theta;          // frequency i is theta^(-2i / rotary), unless the row has a table of them
  float scale = 1;      // sines and cosines are multiplied by it, so what turns of q and k is (YaRN's attention factor, Peng et al. 2023)
  constexpr bool operator==(const RopeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("heads", heads), visit("kv_heads", kv_heads), visit("rotary", rotary), visit("neighbours", neighbours), visit("theta", theta);
    visit("scale", scale);
  }
  constexpr bool makes_sense() const {
    return heads > 0 && kv_heads > 0 && heads % kv_heads == 0 && rotary % 2 == 0 && rotary <= kMostRotary && neighbours <= 1 &&
           sense::within(static_cast<double>(theta), 1, 1e12) && sense::is_factor(static_cast<double>(scale));
  }
};

// What an embedding's rows are multiplied with.
struct EmbeddingAttribute {
  static constexpr const char* kName = "Embedding";
  float scale = 1;
  constexpr bool operator==(const EmbeddingAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("scale", scale);
  }
  constexpr bool makes_sense() const { return sense::is_factor(static_cast<double>(scale)); }
};

// Where a box begins in a tensor: along its last dimension, the one before that, and the one before these two. Along the first dimension of
// several, which counts samples, a box holds all.
struct ColumnsAttribute {
  static constexpr const char* kName = "Columns";
  uint32_t first;
  uint32_t second_last = 0, third_last = 0;
  constexpr bool operator==(const ColumnsAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("first", first), visit("second_last", second_last), visit("third_last", third_last);
  }
  constexpr bool makes_sense() const { return true; }  // the contract compares it with the places that there are
};

// The functions of one number that lib/ops/unary.h computes. Plans hold their numbers: a new one stands last.
enum class UnaryFunction : uint32_t {
  kSilu, kHardswish, kHardsigmoid, kSigmoid, kRelu6, kLeakyRelu, kElu, kTanh, kSoftplus, kMish, kQuickGelu, kExp, kScale,
  kAtLeast, kAtMost, kSqrt, kReciprocal,
};
struct UnaryFunctionInfo {
  const char* word;
  const char* parameter;  // its word; null for a function without one, whose attribute holds 0
  float absent;           // the parameter where nobody gives one
};
// In the order of UnaryFunction.
inline constexpr UnaryFunctionInfo kUnaryFunctions[] = {
    {"silu", nullptr, 0}, {"hardswish", nullptr, 0}, {"hardsigmoid", nullptr, 0}, {"sigmoid", nullptr, 0},
    {"relu6", nullptr, 0}, {"leaky_relu", "slope", 0.01f}, {"elu", "alpha", 1}, {"tanh", nullptr, 0},
    {"softplus", nullptr, 0}, {"mish", nullptr, 0}, {"quick_gelu", nullptr, 0}, {"exp", nullptr, 0}, {"scale", "factor", 1},
    {"at_least", "bound", 0}, {"at_most", "bound", 0}, {"sqrt", nullptr, 0}, {"reciprocal", nullptr, 0},
};
constexpr uint32_t kUnaryFunctionCount = sizeof(kUnaryFunctions) / sizeof(kUnaryFunctions[0]);
static_assert(static_cast<uint32_t>(UnaryFunction::kReciprocal) + 1 == kUnaryFunctionCount);

struct UnaryAttribute {
  static constexpr const char* kName = "Unary";
  uint32_t function;    // a UnaryFunction
  float parameter = 0;
  constexpr bool operator==(const UnaryAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("function", function), visit("parameter", parameter);
  }
  constexpr bool makes_sense() const {
    if (function >= kUnaryFunctionCount) return false;
    if (kUnaryFunctions[function].parameter == nullptr) return parameter == 0;
    return sense::within(static_cast<double>(parameter), -sense::kMostFactor, sense::kMostFactor);
  }
};

// The order of a tensor's dimensions: dimension i is dimension axis_i of what is read. The first, which counts samples, stays; so does what is past
// the rank.
struct TransposeAttribute {
  static constexpr const char* kName = "Transpose";
  uint32_t axis_1, axis_2, axis_3;
  constexpr bool operator==(const TransposeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("axis_1", axis_1), visit("axis_2", axis_2), visit("axis_3", axis_3);
  }
  constexpr bool makes_sense() const {
    const bool within = axis_1 - 1 < 3 && axis_2 - 1 < 3 && axis_3 - 1 < 3;  // 0 wraps
    return within && axis_1 != axis_2 && axis_2 != axis_3 && axis_3 != axis_1;
  }
};

// Which factors of a product of matrices lie turned: what would be the columns is the rows.
struct ProductAttribute {
  static constexpr const char* kName = "Product";
  uint32_t turned_a, turned_b;
  constexpr bool operator==(const ProductAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("turned_a", turned_a), visit("turned_b", turned_b);
  }
  constexpr bool makes_sense() const { return turned_a <= 1 && turned_b <= 1; }
};

// How images get another height and width (lib/ops/resize.h). By the nearest pixel, place p of a side takes the pixel at p in / out, rounded down;
// else it lies between pixels, with pixels as squares (PyTorch's align_corners false) or as points whose corners stay (align_corners true).
enum class ResizeKind : uint32_t { kNearest, kBilinear, kBilinearCorners };
struct ResizeAttribute {
  static constexpr const char* kName = "Resize";
  uint32_t kind;  // a ResizeKind
  constexpr bool operator==(const ResizeAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind);
  }
  constexpr bool makes_sense() const { return kind <= static_cast<uint32_t>(ResizeKind::kBilinearCorners); }
};

// A cap that large numbers approach.
struct CapAttribute {
  static constexpr const char* kName = "Cap";
  float softcap = 0;  // x becomes softcap tanh(x / softcap) (Gemma 2, 2408.00118); 0: it stays
  constexpr bool operator==(const CapAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("softcap", softcap);
  }
  constexpr bool makes_sense() const { return softcap == 0 || sense::is_factor(static_cast<double>(softcap)); }
};

struct DropoutAttribute {
  static constexpr const char* kName = "Dropout";
  float probability;
  uint32_t stream;
  uint64_t shared = 1;  // so many neighbours are kept or dropped together; a sample's elements are stochastic depth (Huang et al. 2016)
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
  uint32_t tensors;     // the argument names the first one; the others follow it in the region, in order
  uint32_t first_norm;  // reduce: index of the first tensor's entry in the norms
  uint64_t elements;    // floats from the first tensor's start to the last one's last element; the padding between is always zero
  constexpr bool operator==(const GroupAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("tensors", tensors), visit("first_norm", first_norm), visit("elements", elements);
  }
  constexpr bool makes_sense() const { return true; }  // check.h compares a group with its tensors
};

struct ClipAttribute {
  static constexpr const char* kName = "Clip";
  float max_norm;  // 0: none
  constexpr bool operator==(const ClipAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("max_norm", max_norm);
  }
  constexpr bool makes_sense() const { return sense::within(static_cast<double>(max_norm), 0, 1e30); }
};

struct ShareAttribute {
  static constexpr const char* kName = "Share";
  uint32_t root;  // the rank whose bytes all ranks get
  constexpr bool operator==(const ShareAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("root", root);
  }
  constexpr bool makes_sense() const { return true; }  // check.h knows how many ranks there are
};

// A group with its optimizer's constants. `rate` multiplies the learning rate. `stream` is a number of the tensor's own, by which random bits are
// drawn where some are: a group of one.
struct UpdateAttribute {
  static constexpr const char* kName = "Update";
  GroupAttribute group;
  float weight_decay, momentum;  // momentum: sgd, muon
  uint32_t nesterov;             // sgd, muon
  double beta1, beta2;           // adamw: 1 - beta2 in f32 would be wrong in the fifth digit
  float epsilon;                 // adamw, muon
  float rate = 1;
  uint32_t stream = 0;
  constexpr bool operator==(const UpdateAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("momentum", momentum), visit("nesterov", nesterov);
    visit("beta1", beta1), visit("beta2", beta2), visit("epsilon", epsilon), visit("rate", rate), visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMostFactor) &&
           sense::within(static_cast<double>(momentum), 0, sense::kMostFactor) && nesterov <= 1 && sense::is_probability(beta1) &&
           sense::is_probability(beta2) && sense::is_epsilon(static_cast<double>(epsilon)) && sense::is_factor(static_cast<double>(rate));
  }
};

// Of Adafactor and AdaLomo, which keep means of squares by row and column (matrix_update.h has the formulas).
struct FactoredAttribute {
  static constexpr const char* kName = "Factored";
  GroupAttribute group;  // of one tensor
  float weight_decay;
  double decay_power;    // step t, from 1, keeps 1 - t^-decay_power of the means
  float epsilon;         // added to each mean of squares
  float least_scale;     // the least root mean square of the parameters that a step is scaled by
  float clip;            // the largest root mean square of an update
  uint32_t adalomo;      // 1: AdaLomo's form of the step, 0: Adafactor's
  float rate = 1;
  uint32_t stream = 0;
  constexpr bool operator==(const FactoredAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("decay_power", decay_power), visit("epsilon", epsilon);
    visit("least_scale", least_scale), visit("clip", clip), visit("adalomo", adalomo), visit("rate", rate), visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMostFactor) && sense::is_factor(decay_power) &&
           sense::is_epsilon(static_cast<double>(epsilon)) && sense::within(static_cast<double>(least_scale), 0, 1) &&
           sense::is_factor(static_cast<double>(clip)) && adalomo <= 1 && sense::is_factor(static_cast<double>(rate));
  }
};

// Of APOLLO, which keeps Adam's moments of a projection (matrix_update.h has the formulas).
struct ProjectedAttribute {
  static constexpr const char* kName = "Projected";
  GroupAttribute group;  // of one tensor
  float weight_decay;
  double beta1, beta2;
  float epsilon;
  float scale;        // the update's factor
  uint32_t by_tensor; // 1: one factor for the tensor (APOLLO-Mini); 0: one for each channel
  uint32_t period;    // steps after which another projection is drawn
  float rate = 1;
  uint32_t stream = 0;
  constexpr bool operator==(const ProjectedAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("group", group), visit("weight_decay", weight_decay), visit("beta1", beta1), visit("beta2", beta2), visit("epsilon", epsilon);
    visit("scale", scale), visit("by_tensor", by_tensor), visit("period", period), visit("rate", rate), visit("stream", stream);
  }
  constexpr bool makes_sense() const {
    return sense::within(static_cast<double>(weight_decay), 0, sense::kMostFactor) && sense::is_probability(beta1) &&
           sense::is_probability(beta2) && sense::is_epsilon(static_cast<double>(epsilon)) && sense::is_factor(static_cast<double>(scale)) &&
           by_tensor <= 1 && period > 0 && sense::is_factor(static_cast<double>(rate));
  }
};

// How answers are judged (lib/ops/preference.h has the formulas).
enum class PreferenceKind : uint32_t { kDpo, kOrpo, kKto };
struct PreferenceAttribute {
  static constexpr const char* kName = "Preference";
  uint32_t kind;  // a PreferenceKind
  double beta;
  double label_smoothing = 0;                        // dpo: the probability that a pair stands the wrong way round
  double desirable_weight = 1, undesirable_weight = 1;  // kto
  constexpr bool operator==(const PreferenceAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("beta", beta), visit("label_smoothing", label_smoothing), visit("desirable_weight", desirable_weight);
    visit("undesirable_weight", undesirable_weight);
  }
  constexpr bool makes_sense() const {
    return kind <= static_cast<uint32_t>(PreferenceKind::kKto) && sense::is_factor(beta) && sense::within(label_smoothing, 0, 0.5) &&
           sense::within(desirable_weight, 0, sense::kMostFactor) && sense::within(undesirable_weight, 0, sense::kMostFactor);
  }
};

// What a number is judged by beside the one that is wanted (lib/ops/target_loss.h has the formulas).
enum class TargetLossKind : uint32_t { kMse, kL1, kHuber, kBinary };
struct TargetLossAttribute {
  static constexpr const char* kName = "TargetLoss";
  uint32_t kind;    // a TargetLossKind
  float delta = 0;  // huber: up to this distance the loss is a square; 0 of the others
  constexpr bool operator==(const TargetLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("delta", delta);
  }
  constexpr bool makes_sense() const {
    if (kind != static_cast<uint32_t>(TargetLossKind::kHuber)) return kind <= static_cast<uint32_t>(TargetLossKind::kBinary) && delta == 0;
    return sense::is_factor(static_cast<double>(delta));
  }
};

struct ClassLossAttribute {
  static constexpr const char* kName = "ClassLoss";
  float label_smoothing = 0;  // the share of each label that all classes have alike (Szegedy et al. 2016)
  float dice = 0;             // the share of the loss that is one minus Dice's coefficient (Milletari et al. 2016); the rest is cross-entropy
  constexpr bool operator==(const ClassLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("label_smoothing", label_smoothing), visit("dice", dice);
  }
  constexpr bool makes_sense() const {
    return sense::is_probability(static_cast<double>(label_smoothing)) && sense::within(static_cast<double>(dice), 0, 1);
  }
};

// How the two vectors of a pair are compared (lib/ops/pair_loss.h has the formulas).
enum class PairLossKind : uint32_t { kContrast, kCosine, kSimilarity };
struct PairLossAttribute {
  static constexpr const char* kName = "PairLoss";
  uint32_t kind;           // a PairLossKind
  float temperature = 0;   // contrast: what cosines are divided by; 0 of the others
  uint32_t symmetric = 0;  // contrast: 1: the second is told from other firsts, too
  float margin = 0;        // cosine: up to this cosine a pair is apart; 0 of the others
  constexpr bool operator==(const PairLossAttribute&) const = default;
  template <typename Visit>
  constexpr void fields(const Visit& visit) const {
    visit("kind", kind), visit("temperature", temperature), visit("symmetric", symmetric), visit("margin", margin);
  }
  constexpr bool makes_sense() const {
    if (kind == static_cast<uint32_t>(PairLossKind::kContrast)) return sense::within(static_cast<double>(temperature), 1e-4, sense::kMostFactor) && symmetric <= 1 && margin == 0;
    const bool has_margin = kind == static_cast<uint32_t>(PairLossKind::kCosine);
    return kind <= static_cast<uint32_t>(PairLossKind::kSimilarity) && temperature == 0 && symmetric == 0 &&
           (has_margin ? margin >= -1 && margin < 1 : margin == 0);
  }
};

template <typename... T>
struct TypeList {
  static constexpr uint32_t kCount = sizeof...(T);
};

// Every pool of a plan, in the order in which plan.h holds them.
using AttributeTypes = TypeList<WindowAttribute, NormAttribute, LinearAttribute, GeluAttribute, AttentionAttribute, DropoutAttribute,
                                GroupAttribute, ClipAttribute, UpdateAttribute, RopeAttribute, FactoredAttribute, ProjectedAttribute, PreferenceAttribute,
                                EmbeddingAttribute, ColumnsAttribute, CapAttribute, UnaryAttribute, TransposeAttribute, ResizeAttribute,
                                TargetLossAttribute, ClassLossAttribute, ProductAttribute, PairLossAttribute, ShareAttribute>;

// Names an attribute's type by its place in the list.
using AttributeKind = uint8_t;
constexpr AttributeKind kNoAttribute = 0xff;

namespace attribute_list {
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

template <typename T>
struct Pool {
  Span<T> entries = {};
};
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

template <typename A>
inline constexpr AttributeKind kAttributeKind = attribute_list::place<A>(AttributeTypes{});
template <>
inline constexpr AttributeKind kAttributeKind<void> = kNoAttribute;

using AttributePools = attribute_list::PoolsOf<AttributeTypes>;

template <typename Pools, typename Visit>
constexpr void for_each_pool(const Pools& pools, const Visit& visit) {
  attribute_list::each(pools, visit, AttributeTypes{});
}

// The group of entry `index` of that kind; null for a kind without groups. The entry must exist.
constexpr const GroupAttribute* group_of(const AttributePools& pools, AttributeKind kind, uint32_t index) {
  if (kind == kAttributeKind<GroupAttribute>) return &pools.of<GroupAttribute>()[index];
  if (kind == kAttributeKind<UpdateAttribute>) return &pools.of<UpdateAttribute>()[index].group;
  if (kind == kAttributeKind<FactoredAttribute>) return &pools.of<FactoredAttribute>()[index].group;
  if (kind == kAttributeKind<ProjectedAttribute>) return &pools.of<ProjectedAttribute>()[index].group;
  return nullptr;
}

// Entries of the pool of that kind; every index is good for a kernel without attributes.
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
