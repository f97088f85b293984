// The graph of a network: values and nodes, with shapes, before anything is scheduled.
// Models build it; backward rules, chain and lowering read it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/assert.h"
#include "lib/op.h"
#include "tools/files/weights/stored_form.h"

namespace reprise {

using ValueId = uint32_t;
constexpr ValueId kNoValue = ~0u;

enum class ValueKind : uint8_t {
  // The next line lists the kinds of values that do not belong to one link.
  kInput, kLabels, kScalars, kNorms, kParameter, kBuffer, kTable, kOptimizer, kOffloaded, kWeightGradient,
  kActivation, kSmall,  // kSmall: statistics (mean, rstd, lse, norms), kept from the forward to the backward
  kGradient,
  kSkip, kSkipGradient,  // an activation that crosses a cut in addition to the boundary, and its gradient (skips.h)
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kActivation;
  Tensor tensor;  // dtype, shape and bytes; the offset is not used
  // For a parameter: true if a step changes it. For a table that replaces the missing weight of a
  // batch-norm: true if the norm counts as trained.
  bool trainable = false;
  bool decays = true;          // parameters: true if weight decay applies
  float rate = 1;              // parameters: factor on the learning rate
  InitKind init = InitKind::kConstant;
  float init_scale = 0;
  std::vector<float> numbers;  // contents of a table
};

// True if a step changes the value, so that it has a gradient.
inline bool trains(const Value& value) { return value.kind == ValueKind::kParameter && value.trainable; }

constexpr size_t kNoNode = ~size_t{0};

// True if the op is a loss. The last node of a graph is a loss, and no other node is.
constexpr bool is_loss(Op op) {
  return op == Op::kLossHead || op == Op::kTargetLoss || op == Op::kClassLoss || op == Op::kPairLoss;
}

// Statistics with which a batch-norm normalises in training. kByWeight: the statistics of the batch
// if the norm's weight is trained, else the running statistics. kOfBatch: always those of the
// batch. kRunning: always the running statistics.
enum class NormStatistics : uint8_t { kByWeight, kOfBatch, kRunning };

// Parameters that a norm has. A missing weight is replaced by a table of ones, a missing bias by a
// table of zeros. The table has the parameter's name.
struct NormParts {
  bool weight = true, bias = true;
};

// One operation of the network. Its kernel calls come from rules.h.
struct Node {
  Op op;
  std::string name;            // the layer's name in the model
  uint32_t attribute = 0;      // index into the attribute pool of the op's forward kernel
  // Activations that the node reads; an embedding reads the tokens. The document starts are the
  // last input of attention, rope and global_pool, if they are given.
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;     // the main output first
  // kNoValue for an absent optional parameter. parameters[2] of a linear layer with an adapter is
  // the adapter's matrix U.
  std::vector<ValueId> parameters;
  size_t low_rank = kNoNode;        // linear layer with an adapter: index of the node that writes inputs[1]
  std::vector<ValueId> buffers;
  NormStatistics statistics = NormStatistics::kByWeight;  // batch-norms only
};

// One kernel call whose arguments are values. Lowering makes a row of it, whose arguments are
// slots.
struct Call {
  Op op;
  Pass pass;
  uint32_t attribute = 0;
  std::vector<ValueId> arguments;  // in the order of kOps, without scratch; kNoValue for an absent optional one
  uint16_t accumulate = 0;         // bit n: the call adds to output n
  // Bit n: only the first forward of the call's link writes output n. Statistics and skips are not
  // computed again.
  uint16_t once = 0;
  bool operator==(const Call&) const = default;
};

// A call of the graph or a row of a plan, with its tensors. It contains everything that determines
// the cost of the call.
struct KernelCall {
  Op op;
  Pass pass;
  uint32_t attribute = 0;
  uint16_t accumulate = 0;
  std::vector<const Tensor*> tensors;  // in the order of kOps, without scratch; null for an absent optional one
};

// A KernelCall in the form that a backend's rules read. The tensors and pools must outlive it.
class ShapedKernelCall {
 public:
  ShapedKernelCall(const KernelCall& call, const AttributePools& pools)
      : call_{call.op, call.pass, tensors_, 0, &pools, call.attribute} {
    REPRISE_ASSERT(call.tensors.size() <= kMaxArguments, "a call has at most kMaxArguments arguments");
    for (uint32_t i = 0; i < call.tensors.size(); ++i) {
      tensors_[i] = call.tensors[i];
      if (call.tensors[i] != nullptr) call_.present |= 1u << i;
    }
  }
  ShapedKernelCall(const ShapedKernelCall&) = delete;
  ShapedKernelCall& operator=(const ShapedKernelCall&) = delete;
  const ShapedCall& shaped() const { return call_; }

 private:
  const Tensor* tensors_[kMaxArguments] = {};
  ShapedCall call_;
};

// Attribute pools that own their entries; equal attributes share an entry.
template <typename T>
struct AttributeTable {
  std::vector<T> entries;
};
template <typename List>
struct AttributeTablesOf;
template <typename... T>
struct AttributeTablesOf<TypeList<T...>> : AttributeTable<T>... {
  template <typename A>
  std::vector<A>& of() {
    return AttributeTable<A>::entries;
  }
  template <typename A>
  const std::vector<A>& of() const {
    return AttributeTable<A>::entries;
  }
  template <typename A>
  uint32_t intern(const A& attribute) {
    std::vector<A>& pool = of<A>();
    for (uint32_t i = 0; i < pool.size(); ++i) {
      if (pool[i] == attribute) return i;
    }
    pool.push_back(attribute);
    return static_cast<uint32_t>(pool.size() - 1);
  }
  // Returns views of the pools, as a plan stores them; they are valid until an attribute is added.
  AttributePools pools() const {
    AttributePools view;
    ((static_cast<attribute_list::Pool<T>&>(view).entries = {of<T>().data(), static_cast<uint32_t>(of<T>().size())}),
     ...);
    return view;
  }
};
using AttributeTables = AttributeTablesOf<AttributeTypes>;

using Shape = std::vector<uint32_t>;
inline Shape shape_of(const Tensor& t) { return Shape(t.shape, t.shape + t.rank); }
inline bool same_dimensions(const Tensor& a, const Tensor& b) { return a.rank == b.rank && same_shape(a, b); }

// Maximum elements of a tensor. Larger tensors are refused, so that computations with bytes stay
// below 2^64.
constexpr double kMaxElements = 1099511627776.0;  // 2^40

// A low-rank adapter (Hu et al. 2021) of a linear layer or a convolution.
struct AdapterForm {
  uint32_t rank = 0;             // 0: the layer has no adapter
  float scale = 1, dropout = 0;  // dropout: probability, on the adapter's input
  // True if the length of each row of the adapted weight is trained, too (lib/ops/dora.h). Such an
  // adapter has no dropout.
  bool dora = false;
  // True if the recipe names this layer. If false, the recipe requests adapters for all layers; a
  // convolution then gets one only if its kernel is 1x1.
  bool is_named = false;
};
// Returns the adapter of the layer with this name.
using AdapterChoice = std::function<AdapterForm(const std::string& layer)>;

// Suffix of DoRA's parameter, after the layer's name.
constexpr const char* kMagnitude = ".lora_magnitude_vector";
// True if the parameter belongs to an adapter, by its name.
inline bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight") ||
         parameter.ends_with(kMagnitude);
}

class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;          // in forward order; the last is the loss
  std::vector<ValueId> boundaries;  // where the model may be cut: the outputs of links, in order, without the loss
  AttributeTables attributes;
  ValueId input = kNoValue, labels = kNoValue, scalars = kNoValue;
  // Called for each linear layer and convolution that is appended after this field is set. Empty:
  // no adapters.
  AdapterChoice adapters;
  // [B,T] i32 of kind kInput, filled by the host: the position at which each token's document
  // starts. kNoValue unless sequences contain several documents.
  ValueId document_start = kNoValue;

  // [B,T] i32, filled by the host: the number of the text, within its row, to which each token
  // belongs. kNoValue unless an embedding reads it.
  ValueId token_types = kNoValue;
  // [P,8] f64, filled by the host; row p describes one pair of answers (JudgedPair). kNoValue
  // unless the loss compares pairs of answers.
  ValueId pairs = kNoValue;
  uint32_t preference = 0;     // the loss on pairs: index into the pool of PreferenceAttribute

  // Creates an empty graph. `stored`: the type of activations, their gradients and the images.
  explicit Graph(DType stored = DType::kF32);

  // Adds a value: activations, gradients and inputs in the type `stored`, all others in f32.
  ValueId add_value(const std::string& name, ValueKind kind, const Shape& shape);
  ValueId add_value(const std::string& name, ValueKind kind, const Shape& shape, DType dtype);
  ValueId parameter(const std::string& name, const Shape& shape, InitKind init, float scale);
  // Makes a node that is appended later use the tensor `other` of an earlier node as its parameter
  // or buffer `name`. Both must have the same shape. Layers that share a weight get no adapter,
  // because merging an adapter into the weight would change the other layers.
  void tie(const std::string& name, const std::string& other) { tied_[name] = other; }
  // Renames the parameter or buffer `name` of a node that is appended later to `as`, and sets its
  // form in files. `as` may be equal to `name`. form.own is set when the node is appended. An empty
  // form.shape stands for the tensor's own shape.
  void store(const std::string& name, const std::string& as, const StoredForm& form) { stored_as_[name] = {as, form}; }
  const StoredForms& forms() const { return forms_; }
  void require_stored() const;  // throws UserError unless nodes have made every tensor named by store()
  void require_tied() const;  // throws UserError unless nodes have used every name given to tie()
  // Returns the first value of this name and kind; kNoValue if there is none.
  ValueId named(const std::string& name, ValueKind kind) const;
  ValueId table(const std::string& name, std::vector<float> numbers);  // adds a vector that the plan contains
  const Tensor& tensor(ValueId v) const { return values[v].tensor; }

  // Each of the following functions appends a node and returns its main output. It throws a
  // UserError that names the node, its op and a correct value if an argument is wrong. Graphs also
  // come from files, so all arguments are checked. Refused are: a wrong shape, rank or type; an
  // attribute without meaning; a value that does not exist; a second parameter of one name.

  // Appends a convolution. With `bias` the parameters are drawn as PyTorch draws a Conv2d's:
  // uniform up to 1/sqrt(fan in). Without a bias the weight is drawn as in torchvision's ResNet:
  // normal, scaled by the fan out. An adapter is added if `adapters` gives the layer a rank and the
  // convolution has one group. If the kernel is not 1x1, the recipe must also name the layer. The
  // adapter has PEFT's form: the convolutions "NAME.lora_A.weight" [rank,R,S,channels], with the
  // same window, and "NAME.lora_B.weight" [out_channels,1,1,rank].
  ValueId conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias = false);
  // Appends a transposed convolution. An ordinary convolution with `window` maps the shape of the
  // result to the shape of x. The weight has the shape of that convolution's weight, [channels of
  // x,R,S,out_channels / groups]. `more_h` and `more_w`: rows and columns of the output beyond the
  // smallest size that fits; a stride above 1 allows several sizes (PyTorch's output_padding).
  // Parameters are drawn as PyTorch draws a ConvTranspose2d's.
  ValueId conv_transpose(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window,
                         uint32_t more_h = 0, uint32_t more_w = 0, bool bias = false);
  // Appends a batch-norm. If `affine` is false, tables of ones and zeros replace the weight and the
  // bias, under their names. With kRunning and `affine`, separate nodes multiply by the weight and
  // add the bias, so that both may be trained.
  ValueId batch_norm(ValueId x, const std::string& name, float epsilon = 1e-5f, float momentum = 0.1f,
                     bool affine = true, NormStatistics statistics = NormStatistics::kByWeight);
  // Appends a group-norm. `groups`: number of groups of neighbouring channels; it must divide the
  // number of channels. One group normalises the whole image. One group per channel normalises each
  // channel alone.
  ValueId group_norm(ValueId x, const std::string& name, uint32_t groups, float epsilon = 1e-5f, NormParts parts = {});
  ValueId relu(ValueId x, const std::string& name);
  // Returns a copy of x. No gradient flows from the copy to x.
  ValueId detach(ValueId x, const std::string& name);
  // Adds two values of equal shape, or broadcasts one to the shape of the other. Counted from the
  // last dimension, each dimension of the smaller value must be equal to the other's, or 1.
  // multiply() accepts the same shapes.
  ValueId add(ValueId a, ValueId b, const std::string& name);
  ValueId multiply(ValueId a, ValueId b, const std::string& name);
  // Applies softmax over the last dimension.
  ValueId softmax(ValueId x, const std::string& name);
  // Multiplies matrix by matrix: a [...,M,K] and b [...,K,N], whose leading dimensions are equal.
  // If `how` marks a factor as transposed, its last two dimensions are exchanged.
  ValueId product(ValueId a, ValueId b, const std::string& name, ProductAttribute how = {});
  // Returns the parameter of exactly this name as an activation, for example learned positions, a
  // class token or a layer's scale. Each node that reads the parameter gets a node of its own for
  // it, directly before it, so that the activation crosses no cut.
  ValueId learned(const std::string& name, const Shape& shape, InitKind init, float scale);
  // Returns [rows,C]: the listed rows of a parameter [V,C] of this name, in this order. A row may
  // be listed more than once. Each reader gets a node of its own, as with learned().
  ValueId learned_rows(const std::string& name, const Shape& shape, std::vector<float> rows, InitKind init,
                       float scale);
  ValueId max_pool(ValueId x, const std::string& name, WindowAttribute window);
  ValueId avg_pool(ValueId x, const std::string& name, WindowAttribute window);
  // Returns the mean of each image [N,H,W,C] or sequence [N,T,C]: [N,C]. If `document_start` is the
  // graph's, the mean is taken over the first document of each sequence, without the padding after
  // it. If it is kNoValue, the mean is taken over the whole sequence.
  ValueId global_pool(ValueId x, const std::string& name, ValueId document_start = kNoValue);
  // Appends a linear layer. If `adapters` gives it a rank, the adapter is added: parameters
  // "NAME.lora_A.weight" [rank,in] and "NAME.lora_B.weight" [out,rank].
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias,
                 float init_std);
  // Appends a linear layer with an adapter. `hidden` is the result of low_rank(), which only this
  // layer may read; `up` is [out,rank]. Both are kNoValue for a layer without an adapter.
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias, float init_std,
                 ValueId hidden, ValueId up);
  // Appends the first half of an adapter (Hu et al. 2021) for the linear layer `name`: scale * x
  // A^T. The parameter A = "NAME.lora_A.weight" [rank,in] is drawn as PyTorch draws a linear
  // layer's: uniform up to 1/sqrt(in).
  ValueId low_rank(ValueId x, const std::string& name, uint32_t rank, float scale);
  // Appends DoRA (lib/ops/dora.h) for the adapted layer `name`, which has no bias and wrote z.
  // Multiplies each channel by magnitude / norm, and then adds the bias. The norm is that of the
  // channel's row of the adapted weight. The parameter "NAME.lora_magnitude_vector" [out] must
  // start as the norms of the weight's rows. A caller that sets the weight's values must also set
  // this parameter (tools/run/snapshots/magnitudes.h).
  ValueId dora(ValueId z, const std::string& name, bool bias);
  ValueId layer_norm(ValueId x, const std::string& name, float epsilon, NormParts parts = {});
  // Appends an RMS-norm. `columns`: length of each normalised part of a row, which must divide the
  // last dimension; 0: the whole row. Rows are multiplied by the parameter plus `offset` (0 or 1).
  // The parameter starts as 1 - offset.
  ValueId rms_norm(ValueId x, const std::string& name, float epsilon, uint32_t columns = 0, float offset = 0,
                   bool weight = true);
  ValueId gelu(ValueId x, const std::string& name, bool tanh_form);
  // Applies a unary function; kUnaryFunctions (lib/attributes.h) lists their names.
  ValueId unary(ValueId x, const std::string& name, UnaryAttribute unary);
  ValueId swiglu(ValueId gate, ValueId up, const std::string& name);
  ValueId geglu(ValueId gate, ValueId up, const std::string& name);  // uses the tanh form of gelu
  // Returns columns [first, first + count) of each row of x.
  ValueId columns(ValueId x, const std::string& name, uint32_t first, uint32_t count);
  // Returns the box of x that begins at `first` and has `counts` elements along each dimension.
  // Both arguments have one number for each dimension. The box must include the whole first
  // dimension, which counts samples.
  ValueId slice(ValueId x, const std::string& name, const Shape& first, const Shape& counts);
  // Returns elements [first, first + count) of x along the dimension `axis`. `axis` must not be 0,
  // the dimension of the samples.
  ValueId slice(ValueId x, const std::string& name, uint32_t axis, uint32_t first, uint32_t count);
  // Pads x with zeros. `before` and `behind` are the numbers of zeros before and after x along each
  // dimension. Both must be 0 for the first dimension, which counts samples.
  ValueId pad(ValueId x, const std::string& name, const Shape& before, const Shape& behind);
  // Joins two or more values along the dimension `axis`, which must not be 0, the dimension of the
  // samples. If there are more than kMaxConcatParts, several nodes join them. A repeated value is
  // copied first. The names of the additional nodes begin with NAME and a dot.
  ValueId concat(const std::vector<ValueId>& parts, const std::string& name, uint32_t axis);
  // Returns the elements of x in the same order with another shape. The number of samples may
  // change, too.
  ValueId reshape(ValueId x, const std::string& name, const Shape& shape);
  // Permutes dimensions: dimension i of the result is dimension axes[i] of x. axes[0] must be 0,
  // the dimension of the samples.
  ValueId transpose(ValueId x, const std::string& name, const std::vector<uint32_t>& axes);
  // Resizes images to another height and width.
  ValueId resize(ValueId x, const std::string& name, uint32_t height, uint32_t width, ResizeKind kind);
  // Looks up a row of `table` for each token and multiplies it by `scale`. Row t of `positions` is
  // added at position t; kNoValue: no positions.
  ValueId embedding(ValueId tokens, const std::string& name, ValueId table, ValueId positions, float scale = 1);
  // Appends an attention and sets its random stream. `document_start` is the graph's field, or
  // kNoValue if each sequence is one document. A position attends only to positions of its own
  // document, even if the attention is not causal. So the padding of texts in a batch can be a
  // document of its own (lib/ops/attention.h).
  ValueId attention(ValueId qkv, const std::string& name, AttentionAttribute attention,
                    ValueId document_start = kNoValue);
  // Applies rotary position embedding to q and k, and joins q, k and v [B,T,...] along the last
  // dimension. `document_start`: as in attention(). `frequencies`: a table [rotary / 2] in place of
  // the frequencies that follow from theta; kNoValue for none.
  ValueId rope(ValueId q, ValueId k, ValueId v, const std::string& name, const RopeAttribute& rope,
               ValueId document_start = kNoValue, ValueId frequencies = kNoValue);
  ValueId dropout(ValueId x, const std::string& name, float probability);
  // Applies stochastic depth (Huang et al. 2016): whole samples of x [N,...] are dropped. Samples
  // that are kept are divided by 1 - probability, as dropout does with elements.
  ValueId drop_path(ValueId x, const std::string& name, float probability);
  // Adds the input `pairs` for `count` pairs of answers, and sets their loss to `how`. Call it
  // before loss_head().
  void judge_pairs(const PreferenceAttribute& how, uint32_t count);
  // Appends the loss head. `softcap`: logits become softcap tanh(logit / softcap); 0: logits have
  // no cap.
  void loss_head(ValueId x, const std::string& name, ValueId weight, ValueId bias, float softcap = 0);
  // Appends a loss on the value x (lib/ops/target_loss.h, class_loss.h). `weights`: a table with
  // one number for each of x's channels; kNoValue for none. In target_loss only
  // TargetLossKind::kBinary may have weights: they weight the true labels. In class_loss they
  // weight the classes. The labels must be set before. target_loss needs one f32 label for each
  // element of x, class_loss one i32 or u8 label for each row of x.
  void target_loss(ValueId x, const std::string& name, const TargetLossAttribute& loss, ValueId weights = kNoValue);
  void class_loss(ValueId x, const std::string& name, const ClassLossAttribute& loss, ValueId weights = kNoValue);
  // Appends a loss on pairs of vectors (lib/ops/pair_loss.h). Rows 2i and 2i + 1 of x [2B,D] are
  // pair i. The labels, one f32 for each pair, must be set before.
  void pair_loss(ValueId x, const std::string& name, const PairLossAttribute& loss);
  void cut(ValueId v);  // marks the output of a link; v must be a node's main output

  DType stored() const { return stored_; }

 private:
  size_t writer_of(ValueId v) const;  // returns the node whose main output v is; kNoNode for none
  ValueId buffer(const std::string& name, const Shape& shape, float constant);
  // Returns the value that `name` is tied to; kNoValue for none.
  ValueId tied(const std::string& name, ValueKind kind, const Shape& shape);
  AdapterForm adapter_of(const std::string& layer) const;  // returns a form of rank 0 if the layer gets no adapter
  Node& node(Op op, const std::string& name, std::vector<ValueId> inputs);
  ValueId read(ValueId v);
  ValueId broadcast(Op op, ValueId a, ValueId b, const std::string& name);
  // Returns a copy of v for a node that reads v twice, because a row must not name a value twice.
  ValueId again(ValueId v, const std::string& name);
  template <typename Attribute>
  void judge(Op op, ValueId x, const std::string& name, const Attribute& loss, ValueId weights, uint64_t labels,
             const std::vector<DType>& stored);
  ValueId drop(ValueId x, const std::string& name, float probability, bool whole_samples);
  struct Draw {
    InitKind kind;
    float scale;
  };
  ValueId norm_vector(const std::string& name, uint32_t channels, float number, bool is_parameter);
  // Appends a batch-norm node. `layer`: the layer whose name the running statistics get.
  ValueId plain_batch_norm(ValueId x, const std::string& layer, const std::string& name, float epsilon, float momentum,
                           bool affine, NormStatistics statistics);
  ValueId running_norm(ValueId x, const std::string& name, float epsilon, float momentum);
  ValueId plain_conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias,
                     Draw weight);
  ValueId adapted_conv(ValueId x, ValueId y, const std::string& name, WindowAttribute window, const AdapterForm& form);
  ValueId gated(Op op, ValueId gate, ValueId up, const std::string& name);
  DType stored_;
  uint32_t next_stream_ = 1;
  std::set<std::string> state_names_;  // names of parameters, buffers and tables
  ValueId add_stored(const std::string& name, ValueKind kind, const Shape& shape);
  std::map<std::string, std::string> tied_;
  std::map<std::string, std::pair<std::string, StoredForm>> stored_as_;
  StoredForms forms_;
  std::set<std::string> used_ties_;
  // Key: the value that learned() or learned_rows() returned. Entry: the node of which a copy is
  // appended for each reader. Its output is that of the latest copy; empty before the first reader.
  std::map<ValueId, Node> leaves_;
};

// True if the batch-norm normalises by its running statistics also in training, and does not change
// them. This is the case if `statistics` is kRunning, or if it is kByWeight and gamma is not marked
// as trainable. Gamma is parameters[0] of the node: a parameter, or a constant (Graph::table()) if
// the norm has no weight. The backward of such a norm reads dy and State, nothing else; beta may
// still be trained. Call it after the graph's parameters are marked.
bool uses_running_statistics(const Graph& graph, const Node& batch_norm);

// Marks parameters as not trainable if no gradient reaches them, because a detach() is on every
// path from them to the loss. A batch-norm whose weight becomes frozen here uses the same
// statistics (of the batch or running) as with a trainable weight.
void leave_unreached(Graph& graph);

// Returns the op's name: "conv" for the kernel "conv.forward".
std::string op_name(Op op);

KernelCall kernel_call(const Graph& graph, const Call& call);

}  // namespace reprise
