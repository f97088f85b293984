// The graph of a network: values and nodes, with shapes, before anything is scheduled.
// Models build it; backward rules, chain and lowering read it. A Call is one kernel call over values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lib/op.h"

namespace reprise {

using ValueId = uint32_t;
constexpr ValueId kNoValue = ~0u;

enum class ValueKind : uint8_t {
  kInput, kLabels, kScalars, kNorms, kParameter, kBuffer, kTable, kOptimizer, kOffloaded, kWeightGradient,  // live outside the links
  kActivation, kSmall,  // small: pooled statistics (mean, rstd, lse), kept from the forward to the backward
  kGradient,
  kHeld, kHeldGradient,  // an activation that crosses a cut beside the boundary, and its gradient (held.h)
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kActivation;
  Tensor tensor;  // dtype, shape and bytes; no offset here
  bool trainable = false;      // parameters, and the ones that stand for the weight of a batch-norm which has none
  bool decays = true;          // parameters: weight decay applies
  float rate = 1;              // parameters: of the learning rate
  InitKind init = InitKind::kConstant;
  float init_scale = 0;
  std::vector<float> numbers;  // tables: what they hold
};

// Whether a step changes it, so that it has a gradient.
inline bool trains(const Value& value) { return value.kind == ValueKind::kParameter && value.trainable; }

constexpr size_t kNoNode = ~size_t{0};

// Whether the op is a loss, the last node of a graph, which no other node is.
constexpr bool is_loss(Op op) { return op == Op::kLossHead || op == Op::kTargetLoss || op == Op::kClassLoss || op == Op::kPairLoss; }

// One operation of the network. Its kernel calls come from rules.h.
struct Node {
  Op op;
  std::string name;            // the layer's name in the model
  uint32_t attribute = 0;      // into the attribute pool of the op's forward kernel
  std::vector<ValueId> inputs;      // activations (for the embedding the tokens; for attention, rope and global_pool then the starts of documents, if any)
  std::vector<ValueId> outputs;     // first the main one
  std::vector<ValueId> parameters;  // absent optional ones are kNoValue; of a linear layer with an adapter the third is the adapter's
  size_t low_rank = kNoNode;        // of a linear layer with an adapter: the node of its second input
  std::vector<ValueId> buffers;
};

// One kernel call over values: a row before it has slots. Scratch is the last argument where the kernel has it.
struct Call {
  Op op;
  Pass pass;
  uint32_t attribute = 0;
  std::vector<ValueId> arguments;  // as kOps orders them, without scratch; kNoValue where an optional one is absent
  uint16_t accumulate = 0;         // bit n: output n is added to
  uint16_t once = 0;               // bit n: output n only in the first forward of its link: statistics are never recomputed
  bool operator==(const Call&) const = default;
};

// A call of the graph or a row of a plan with its tensors: all that tells what it costs.
struct KernelCall {
  Op op;
  Pass pass;
  uint32_t attribute = 0;
  uint16_t accumulate = 0;
  std::vector<const Tensor*> tensors;  // as kOps orders them, without scratch; null where an optional one is absent
};

// The same as a backend's rules want it; the tensors and pools must outlive it.
class ShapedKernelCall {
 public:
  ShapedKernelCall(const KernelCall& call, const AttributePools& pools) : call_{call.op, call.pass, tensors_, 0, &pools, call.attribute} {
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

// Owning attribute pools; equal attributes share an entry.
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
  // What a plan holds of them, for as long as nothing is added.
  AttributePools pools() const {
    AttributePools view;
    ((static_cast<attribute_list::Pool<T>&>(view).entries = {of<T>().data(), static_cast<uint32_t>(of<T>().size())}), ...);
    return view;
  }
};
using AttributeTables = AttributeTablesOf<AttributeTypes>;

using Shape = std::vector<uint32_t>;
inline Shape shape_of(const Tensor& t) { return Shape(t.shape, t.shape + t.rank); }
inline bool same_dimensions(const Tensor& a, const Tensor& b) { return a.rank == b.rank && same_shape(a, b); }

// A tensor of more elements is refused: up to there every product of bytes stays below 2^64.
constexpr double kMostElements = 1099511627776.0;  // 2^40

// A low-rank adapter (Hu et al. 2021) of a linear layer or a convolution.
struct AdapterForm {
  uint32_t rank = 0;             // 0: the layer has none
  float scale = 1, dropout = 0;  // dropout: of what the adapter reads
  bool dora = false;             // the length of each row of the adapted weight is trained, too (lib/ops/dora.h); then without dropout
  bool is_named = false;         // the layer was named; else all layers are asked for, of convolutions those whose kernel has one place
};
// Of a layer's name: its adapter.
using AdapterChoice = std::function<AdapterForm(const std::string& layer)>;

// Whether a parameter is an adapter's, by its name.
constexpr const char* kMagnitude = ".lora_magnitude_vector";  // behind a layer's name: DoRA's parameter
inline bool is_adapter(const std::string& parameter) {
  return parameter.ends_with(".lora_A.weight") || parameter.ends_with(".lora_B.weight") || parameter.ends_with(kMagnitude);
}

class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;          // in forward order; the last is the loss
  std::vector<ValueId> boundaries;  // where the model may be cut: outputs of links, in order; not the loss
  AttributeTables attributes;
  ValueId input = kNoValue, labels = kNoValue, scalars = kNoValue;
  AdapterChoice adapters;  // of the linear layers and convolutions that are made from now on; none: they get none
  ValueId document_start = kNoValue;  // where sequences hold several documents: a value of kind kInput, [B,T] i32, that the host fills

  ValueId token_types = kNoValue;  // where an embedding reads to which text of its row a token belongs: [B,T] i32, that the host fills
  ValueId pairs = kNoValue;    // where pairs of answers are judged and not each label: [P,8] f64, that the host fills
  uint32_t preference = 0;     // how: into the pool of PreferenceAttribute

  explicit Graph(DType stored = DType::kF32);  // activations, their gradients and the images are stored so

  ValueId add_value(const std::string& name, ValueKind kind, const Shape& shape);  // f32, or as `stored` says
  ValueId add_value(const std::string& name, ValueKind kind, const Shape& shape, DType dtype);
  ValueId parameter(const std::string& name, const Shape& shape, InitKind init, float scale);
  // The parameter or buffer `name` of a node that is made from now on is the one called `other`, of the same shape, of a node before it. Layers that
  // share a weight get no adapter: one could not be merged without changing the others.
  void tie(const std::string& name, const std::string& other) { tied_[name] = other; }
  void require_tied() const;  // throws UserError where no node has made one of these
  ValueId named(const std::string& name, ValueKind kind) const;  // the first of that name; kNoValue for none
  ValueId table(const std::string& name, std::vector<float> numbers);  // a vector of the plan's own
  const Tensor& tensor(ValueId v) const { return values[v].tensor; }

  // Each appends a node and answers its main output. What the op's kernels could not take (a wrong shape, rank or type, an attribute
  // without sense, a value that is not there, a second parameter of one name) throws a UserError whose line names the node, its op and
  // what would be right, so that a graph may come from elsewhere than our models.
  // With `bias` the parameters are drawn as PyTorch draws a Conv2d's, uniform up to 1/sqrt(fan in); without one the weight as torchvision's ResNet
  // draws it, normal by the fan out. Where `adapters` gives it a rank, and it has one group, its adapter is added: the convolutions
  // "NAME.lora_A.weight" [rank,R,S,channels], with the same window, and "NAME.lora_B.weight" [out_channels,1,1,rank], as Hugging Face's PEFT has it.
  ValueId conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias = false);
  // Transposed: x is what a convolution with `window` of the output would write, and the weight is that convolution's, [channels of x,R,S,
  // out_channels / groups]. `more_h`, `more_w`: rows and columns of the output beyond the smallest that has so many places, of which a stride
  // leaves several (PyTorch's output_padding). Drawn as PyTorch draws a ConvTranspose2d's.
  ValueId conv_transpose(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, uint32_t more_h = 0, uint32_t more_w = 0,
                         bool bias = false);
  // Without `affine` it has neither weight nor bias: tables of ones and zeros under their names.
  ValueId batch_norm(ValueId x, const std::string& name, float epsilon = 1e-5f, float momentum = 0.1f, bool affine = true);
  // `groups`: of neighbouring channels, which must divide into them; 1 normalises a whole image, as many as there are channels each by itself.
  ValueId group_norm(ValueId x, const std::string& name, uint32_t groups, float epsilon = 1e-5f);
  ValueId relu(ValueId x, const std::string& name);
  // Of equal shapes, or of one that is broadcast to the other: each of its dimensions, from the last one on, is the other's or 1.
  ValueId add(ValueId a, ValueId b, const std::string& name);
  ValueId multiply(ValueId a, ValueId b, const std::string& name);
  // Over the last dimension.
  ValueId softmax(ValueId x, const std::string& name);
  // Matrix by matrix, of as many leading dimensions, equal in both: a [...,M,K] and b [...,K,N]; where one is turned, its last two are exchanged.
  ValueId product(ValueId a, ValueId b, const std::string& name, ProductAttribute how = {});
  // A parameter of that very name as an activation: learned positions, a class token, a layer's scale. Its node stands directly before the node that
  // reads it, and each reader has one of its own, so that it crosses no cut wherever it is made.
  ValueId learned(const std::string& name, const Shape& shape, InitKind init, float scale);
  // [rows,C]: the rows of a parameter [V,C] of that name, in this order and as often as they are named. A leaf as learned() is.
  ValueId learned_rows(const std::string& name, const Shape& shape, std::vector<float> rows, InitKind init, float scale);
  ValueId max_pool(ValueId x, const std::string& name, WindowAttribute window);
  ValueId avg_pool(ValueId x, const std::string& name, WindowAttribute window);
  // The mean of each image [N,H,W,C], or of each sequence [N,T,C]: [N,C]. document_start: the graph's, of which it is the first document's mean,
  // a padded text's without its padding; or kNoValue for all of the sequence.
  ValueId global_pool(ValueId x, const std::string& name, ValueId document_start = kNoValue);
  // Where `adapters` gives the layer a rank, its adapter is added: parameters "NAME.lora_A.weight" [rank,in] and "NAME.lora_B.weight" [out,rank].
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias, float init_std);
  // With `hidden` of low_rank(), read by this layer alone, and `up` [out,rank]: the adapter that is added; kNoValue for none.
  ValueId linear(ValueId x, const std::string& name, uint32_t out_features, bool input_major, bool bias, float init_std, ValueId hidden, ValueId up);
  // The first half of an adapter (Hu et al. 2021) for the linear layer `name`: scale * x A^T with the parameter A = "NAME.lora_A.weight"
  // [rank,in], drawn as PyTorch draws a linear layer's: uniform up to 1/sqrt(in).
  ValueId low_rank(ValueId x, const std::string& name, uint32_t rank, float scale);
  // DoRA (lib/ops/dora.h) of the adapted layer `name` without a bias, which wrote z: each channel times magnitude / norm of its row of the
  // adapted weight, with the parameter "NAME.lora_magnitude_vector" [out]. It starts as the norms of the weight's rows, which are known when
  // the weight is: whoever gives that its numbers sets it (tools/snapshots/magnitudes.h). The bias is added here.
  ValueId dora(ValueId z, const std::string& name, bool bias);
  ValueId layer_norm(ValueId x, const std::string& name, float epsilon);
  // `columns`: of each row that is normalised, which divide the last dimension; 0 for all of it.
  // `offset`: what is added to the parameter before rows are multiplied with it, 0 or 1; the parameter starts as 1 - offset.
  ValueId rms_norm(ValueId x, const std::string& name, float epsilon, uint32_t columns = 0, float offset = 0);
  ValueId gelu(ValueId x, const std::string& name, bool tanh_form);
  ValueId unary(ValueId x, const std::string& name, UnaryAttribute unary);  // kUnaryFunctions (lib/attributes.h) has the functions' words
  ValueId swiglu(ValueId gate, ValueId up, const std::string& name);
  ValueId geglu(ValueId gate, ValueId up, const std::string& name);  // in the tanh form
  // `count` columns of each row, from the first on.
  ValueId columns(ValueId x, const std::string& name, uint32_t first, uint32_t count);
  // The box of x that begins at `first` and has `counts` places, of each dimension one; of the first dimension, which counts samples, all.
  ValueId slice(ValueId x, const std::string& name, const Shape& first, const Shape& counts);
  // `count` places along one dimension, which is not that of the samples, from the first on.
  ValueId slice(ValueId x, const std::string& name, uint32_t axis, uint32_t first, uint32_t count);
  // Zeros around x: so many places before it and behind it along each dimension; none along the first.
  ValueId pad(ValueId x, const std::string& name, const Shape& before, const Shape& behind);
  // Two values or more side by side along a dimension, which is not that of the samples. More than one row of concat.forward takes are joined by
  // several nodes, and a value that stands there again is copied; the names of these nodes begin with NAME and a point.
  ValueId concat(const std::vector<ValueId>& parts, const std::string& name, uint32_t axis);
  // The elements of x in their order, by other dimensions: all of them, the samples' too.
  ValueId reshape(ValueId x, const std::string& name, const Shape& shape);
  // Dimension i of y is dimension axes[i] of x: an order of all of them, of which the first, that of the samples, stays.
  ValueId transpose(ValueId x, const std::string& name, const std::vector<uint32_t>& axes);
  // Images of another height and width.
  ValueId resize(ValueId x, const std::string& name, uint32_t height, uint32_t width, ResizeKind kind);
  // `scale`: what the table's rows are multiplied with.
  ValueId embedding(ValueId tokens, const std::string& name, ValueId table, ValueId positions, float scale = 1);
  // document_start: the graph's, or kNoValue where a sequence is one document. Attention that is not causal sees no other document, so that
  // texts of a batch that are padded to one length have their padding as a document of its own (lib/ops/attention.h).
  // Its stream is set here.
  ValueId attention(ValueId qkv, const std::string& name, AttentionAttribute attention, ValueId document_start = kNoValue);
  // q, k and v [B,T,...], side by side and turned. document_start: as attention's. `frequencies`: a table in place of theta's, computed by
  // the model; kNoValue for none.
  ValueId rope(ValueId q, ValueId k, ValueId v, const std::string& name, const RopeAttribute& rope, ValueId document_start = kNoValue,
               ValueId frequencies = kNoValue);
  ValueId dropout(ValueId x, const std::string& name, float probability);
  // Stochastic depth (Huang et al. 2016): of x [N,...] whole samples are dropped; those kept are divided by 1 - probability, as dropout's elements are.
  ValueId drop_path(ValueId x, const std::string& name, float probability);
  void judge_pairs(const PreferenceAttribute& how, uint32_t count);  // before the loss head
  // `softcap`: logits become softcap tanh(logit / softcap); 0: they stay.
  void loss_head(ValueId x, const std::string& name, ValueId weight, ValueId bias, float softcap = 0);
  // Of whatever the last node writes (lib/ops/target_loss.h, class_loss.h). `weights`: a table of one number for each of x's channels, of
  // TargetLossKind::kBinary what a true label counts, else the classes'; kNoValue for none. The labels must be set before: of numbers f32, as many as
  // x has; of classes one for each row of x, i32 or u8.
  void target_loss(ValueId x, const std::string& name, const TargetLossAttribute& loss, ValueId weights = kNoValue);
  void class_loss(ValueId x, const std::string& name, const ClassLossAttribute& loss, ValueId weights = kNoValue);
  // Of vectors x [2B,D], a pair in each two rows (lib/ops/pair_loss.h); the labels, f32, one for each pair, must be set before.
  void pair_loss(ValueId x, const std::string& name, const PairLossAttribute& loss);
  void cut(ValueId v);  // an output of a link; must be the main output of a node

  DType stored() const { return stored_; }

 private:
  size_t writer_of(ValueId v) const;  // the node whose main output v is; kNoNode for none
  ValueId buffer(const std::string& name, const Shape& shape, float constant);
  ValueId tied(const std::string& name, ValueKind kind, const Shape& shape);  // kNoValue where it is one of its own
  AdapterForm adapter_of(const std::string& layer) const;  // of rank 0 where it gets none
  Node& node(Op op, const std::string& name, std::vector<ValueId> inputs);
  ValueId read(ValueId v);
  ValueId broadcast(Op op, ValueId a, ValueId b, const std::string& name);
  ValueId again(ValueId v, const std::string& name);  // a copy: a row names no value twice
  template <typename Attribute>
  void judge(Op op, ValueId x, const std::string& name, const Attribute& loss, ValueId weights, uint64_t labels, const std::vector<DType>& stored);
  ValueId drop(ValueId x, const std::string& name, float probability, bool whole_samples);
  struct Draw {
    InitKind kind;
    float scale;
  };
  ValueId plain_conv(ValueId x, const std::string& name, uint32_t out_channels, WindowAttribute window, bool bias, Draw weight);
  ValueId adapted_conv(ValueId x, ValueId y, const std::string& name, WindowAttribute window, const AdapterForm& form);
  ValueId gated(Op op, ValueId gate, ValueId up, const std::string& name);
  DType stored_;
  uint32_t next_stream_ = 1;
  std::set<std::string> state_names_;  // of parameters, buffers and tables
  std::map<std::string, std::string> tied_;
  std::set<std::string> used_ties_;
  std::map<ValueId, Node> leaves_;     // what learned() answered, and its node as the latest reader has it; before the first one without an output
};

// Whether a batch-norm normalises by its running statistics in training, too, and leaves them as they are: where gamma, its "NAME.weight", is
// frozen; of one without a weight, where its table of that name is. So its backward reads State alone; beta may be trained all the same. Known
// when the graph's parameters are marked.
bool uses_running_statistics(const Graph& graph, const Node& batch_norm);

// "conv" of "conv.forward".
std::string op_name(Op op);

KernelCall kernel_call(const Graph& graph, const Call& call);

std::array<uint32_t, kMaxRank> padded_shape(const Shape& shape);

}  // namespace reprise
