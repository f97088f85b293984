// Builds the net. The importer stores the current form of each of the model's values, and has
// functions that append nodes. A function also brings a node's inputs into the order of axes that
// the node needs. A reader of one op (read_*.cpp) therefore describes only the op.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>

#include "tools/plan/models/model.h"
#include "tools/plan/onnx/net_of_onnx.h"
#include "tools/plan/onnx/onnx_value.h"
#include "tools/plan/onnx/text_probe.h"

namespace reprise {

class Importer {
 public:
  // Starts an import; borrows the file and the request. `has_types`: a net of texts may read the
  // types of tokens; otherwise they are 0, as in a language model.
  Importer(const OnnxFile& file, const ImportRequest& request, bool has_types)
      : file_(file), model_(file.model()), request_(request), has_types_(has_types) {}
  ImportedNet import();

  // ---- a node's inputs; a failure refuses the node and gives kUnknown or nothing ----

  ImportValue value(NodeReader& reader, size_t n);
  // Returns input `n` as a tensor that a node of the net writes.
  std::optional<TensorView> tensor(NodeReader& reader, size_t n);
  // Returns a value as a tensor that a node of the net writes.
  std::optional<TensorView> whole(NodeReader& reader, const ImportValue& value);
  std::optional<KnownNumbers> known(NodeReader& reader, size_t n);
  // Returns the numbers of a constant. Returns nothing if:
  //   - the value is no constant, or a constant that repeats along the batch
  //   - it has more than kMaxKnown numbers, or only its shape or first row is known
  //   - its axes were moved
  //   - its type is an integer type other than i32, i64 and bool
  //   - it is a parameter and `of_parameters` is false: nothing is computed from trained numbers
  std::optional<KnownNumbers> known_of(const ImportValue& value, bool of_parameters = false) const;
  std::optional<double> known_scalar(const ImportValue& value) const;
  // Returns input `n`, which must be a constant whose numbers are in a tensor; computed numbers are
  // refused.
  std::optional<ImportValue> parameter(NodeReader& reader, size_t n);
  // Returns a product, its softmax, powers or a part of a norm as a tensor, and appends the nodes
  // that write it. Returns any other value unchanged.
  std::optional<ImportValue> settled(NodeReader& reader, const ImportValue& value);
  // Converts as settled() does, but only a product or its softmax.
  std::optional<ImportValue> product_settled(NodeReader& reader, const ImportValue& value);
  // Returns the layer's bias: input `n`, or the constant that the exporter left out. Returns
  // nothing if the layer has no bias.
  std::optional<ImportValue> bias(NodeReader& reader, size_t n);
  // Returns the only node that reads the value's numbers; null if no node or several nodes read
  // them, or if the value is an output.
  const OnnxNode* only_reader_of(const std::string& value) const;
  // Returns the node that writes the value; null for an input or an initializer of the model.
  const OnnxNode* writer_of(const std::string& value) const;
  // Returns a value that was read or written before; null for none.
  const ImportValue* find(const std::string& name) const;

  // ---- a node's outputs ----

  void set(NodeReader& reader, const ImportValue& value, size_t output = 0);
  void set_tensor(NodeReader& reader, const TensorView& view, size_t output = 0);
  // Sets an output to the numbers of an input, with another form or layout. The net gets no node.
  void pass(NodeReader& reader, const ImportValue& value);
  void note_joined(const std::string& what) { ++net_.joined[what]; }
  void note(Finding kind, const std::string& name) { net_.findings.add(kind, name); }

  // ---- the net's nodes ----

  // Returns a new name for a layer: the name of its parameter in PyTorch, of its module or, if
  // neither is known, of the node.
  std::string name_of(const OnnxNode& node, const OnnxTensor* parameter = nullptr);
  std::string unique_name(const std::string& name);
  // Appends a node and returns its output. `node` has no name and inputs yet; `layout` is the
  // layout of the output.
  TensorView append(nlohmann::json node, const std::string& name, const std::vector<std::string>& inputs,
                    const TensorView& layout);
  nlohmann::json* node_called(const std::string& name);
  // Removes the node `name`, and appends `node`, which has the same name. No node in between may
  // read it.
  void replace_at_end(const std::string& name, const nlohmann::json& node);
  // Returns a tensor with the view's numbers, in which the factors `ids` have this order in memory,
  // after the batch. Returns nothing if no transposition of the net makes this order.
  std::optional<TensorView> in_order(NodeReader& reader, const TensorView& view, const std::vector<int>& ids);
  // Appends "add" or "multiply" of `a` and a second value, which is broadcast to `a`.
  std::optional<ImportValue> append_two(NodeReader& reader, const char* op, const TensorView& a,
                                        const ImportValue& second);
  TensorView written_as(const TensorView& view, const std::vector<int64_t>& shape);
  // Returns images [N,C,H,W] in the layout [N,H,W,C], and signals [N,C,L] in the layout [N,1,L,C].
  std::optional<TensorView> images(NodeReader& reader, const TensorView& view);
  // Returns the numbers with the last axis innermost, written as [N,...,C].
  std::optional<TensorView> rows(NodeReader& reader, const TensorView& view);
  // Returns the name of a node that writes the constant, for an input that must be a value of the
  // net. The node has a parameter of its own, which may be trained, with the numbers in the order
  // of `ids`.
  std::string learned(const OnnxNode& node, const ImportValue& constant, const std::vector<int>& ids,
                      const std::vector<int64_t>& shape);

  // Adds a parameter's numbers to the net's weights under this name, with the model's axes in the
  // model's order. With `ids`, the numbers have these factors in this order, and the weight has the
  // shape `shape`.
  void add_weight(const std::string& name, const ImportValue& parameter);
  void add_weight(const std::string& name, const ImportValue& parameter, const std::vector<int>& ids,
                  const std::vector<int64_t>& shape);
  // Adds a norm's weight and its bias (null for none), one number for each channel; an rms_norm
  // gets no bias. `node` records which of them the module does not have.
  void add_norm_parts(nlohmann::json& node, const std::string& name, const ImportValue& weight,
                      const ImportValue* bias);
  // True if the part represents a norm's weight or bias that the module does not have: its numbers
  // are in no file, and all are equal to `number`.
  static bool is_absent(const ImportValue& part, float number);
  // Converts computed numbers to a tensor, which is not trained. Returns any other constant
  // unchanged.
  ImportValue stored(const OnnxNode& node, const ImportValue& constant);
  // Returns a constant that has numbers for a whole batch as one that repeats, if each sample has
  // the same numbers. Returns any other constant unchanged. `beside`: the other operand of the node
  // that reads the constant.
  ImportValue repeating(const ImportValue& constant, const TensorView& beside);
  const OnnxModel& model() const { return model_; }
  int64_t opset() const { return model_.opsets.count("") > 0 ? model_.opsets.at("") : 0; }

  int64_t batch() const { return batch_; }
  // True if the node computes its output once for all samples, because it reads constants only.
  bool has_once(const std::string& node) const { return once_.count(node) > 0; }
  const TextProbe& texts() const { return texts_; }
  // True if a constant is one of the module's tensors, by its name or by what the file states.
  bool is_modules_own(const ImportValue& constant) const;
  // True if the node's output is computed from the input without any weight.
  bool is_before_weights(const std::string& node) const;
  // Marks a convolution's weight as frozen if it looks like a fixed filter of the module's code.
  void guess_filter(const std::string& name, const ImportValue& weight);
  // Sets the token that pads texts. Returns false if another token was set before.
  bool set_pad(int64_t token);
  // True if the file has a batch-norm or a dropout in training. Batch-norms that are not in
  // training are then kept in evaluation.
  bool is_in_training() const { return in_training_; }
  // Counts work with numbers that are known before the net runs. Throws UserError if the sum
  // exceeds half a minute's work.
  void spend(uint64_t numbers) const;

 private:
  // The layers that make the classes, and the nodes after them that keep the classes apart.
  struct Head {
    int64_t channels = 0;  // the number of the model's classes
    // (node, key): a node whose size depends on the number of classes, and the key of that number,
    // which is alone or last in a list. A norm has a null key.
    std::vector<std::pair<std::string, const char*>> sizes;
    std::vector<std::string> layers;  // names of the layers that make the classes
    std::set<std::string> seen;       // names of nodes that were visited
    std::string stop;                 // name of the node whose channels come from no layer; "" for none
  };
  struct Learned {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<ImportedTensor::Axis> walk;
  };
  std::string again(const ImportValue& constant, const Learned& before, const Learned& now);
  ImportValue stored(const std::string& name, const ImportValue& constant);
  std::optional<TensorView> held(NodeReader& reader, const ImportValue& value);
  static std::string text_of(const TensorView& view);
  static std::string text_of(const ImportValue& value);
  std::optional<ImportValue> append_settled(NodeReader& reader, const ImportValue& value);
  void append_rows(const ImportValue& constant, const std::string& name, const std::vector<int>& ids,
                   const std::vector<int64_t>& shape);
  void freeze(const std::string& parameter, Finding why);
  bool is_asked_to_train(const std::string& parameter) const;
  Finding why_frozen(const ImportValue& constant) const;
  std::optional<Finding> guess_of(const OnnxNode& node, const ImportValue& constant) const;
  bool is_made_up(const std::string& value) const;
  bool is_of_frozen_norm(const OnnxNode& node) const;
  bool is_of_torch() const { return model_.producer == "pytorch"; }
  void note_trained(const std::string& name, const ImportValue& constant);
  void note_whole_file();
  bool normalises_input() const;
  void take_orders();
  bool is_output(const std::string& value) const;
  void refuse(const std::string& reason) { net_.refused.push_back(reason); }
  void index_nodes();
  bool has_single_writers();
  void leave_read_inputs(size_t node);
  void read_constants();
  void find_mode();
  void check_model();
  void read_input();
  void read_images(const OnnxValue& input);
  void read_texts(const std::vector<const OnnxValue*>& inputs);
  ImportValue text_input(const char* name) const;
  // Returns the shape in the model, or that of --input; open sizes are 0 or less.
  std::vector<int64_t> shape_of(const OnnxValue& input) const;
  // Returns the numbers of a constant before any node is read.
  std::optional<KnownNumbers> known_early(const std::string& value) const;
  std::vector<int64_t> axes_of(const OnnxNode& reduction) const;
  std::string divided_by_length(const OnnxNode& node) const;
  bool compares_pairs() const;  // True if --loss asks for a loss of pairs.
  std::string outputs_text() const;
  void find_output();
  std::vector<bool> wanted_nodes() const;
  void read_node(const OnnxNode& node);
  bool compute(NodeReader& reader);
  std::optional<TensorView> as_vectors(const TensorView& logits);
  void become_head(const TensorView& logits);
  void become_language_model(const ImportValue& logits);
  std::vector<ImportedTensor>::iterator weight_called(const std::string& name);
  bool is_tied(const ImportedTensor& head, const ImportedTensor& table) const;
  void turn_output_major(nlohmann::json& node);
  void lay_alike();
  void append_loss(const std::string& loss);
  bool find_head(const std::string& name);
  bool find_head_of_two(const std::string& name);
  void renew_head();
  bool is_of_head(const ImportedTensor& weight) const;
  void draw_head();
  void leave_out_unread();
  bool is_shared(const ImportedTensor& weight) const;
  void tie_shared();
  void name_as_stored();
  std::vector<std::string> stored_names(const std::vector<ImportedTensor*>& weights) const;
  StoredForm form_of(const ImportedTensor& weight, const std::string& name) const;
  void finish();

  // The writer and the readers of a value of the model.
  struct Uses {
    const OnnxNode* writer = nullptr;
    const OnnxNode* reader = nullptr;  // the last node that reads the value's numbers
    size_t times = 0;                  // number of times that nodes read the value's numbers
    size_t last = 0;                   // index in the model of the last node that names the value
  };

  const OnnxFile& file_;
  const OnnxModel& model_;
  const ImportRequest& request_;
  const bool has_types_;
  ImportedNet net_;
  std::vector<nlohmann::json> nodes_;     // nodes of the net so far, in the order of the forward
  std::map<std::string, size_t> places_;  // index in nodes_, by name
  // Names that older versions of the import gave to nodes, if they differ; index: the node's name.
  std::map<std::string, std::string> older_names_;
  // The shape that a node writes, if known; index: the node's name.
  std::map<std::string, std::vector<int64_t>> written_;
  Head head_;
  std::map<std::string, ImportValue> values_;   // constants, and values that a later node reads
  std::unordered_map<std::string, Uses> uses_;  // writer and readers of a value of the model, by the value's name
  mutable uint64_t computed_ = 0;               // work that spend() has counted so far
  // The last number that unique_name() appended to a name; index: the name.
  std::unordered_map<std::string, int> endings_;
  std::set<std::string> names_ = {kNetImages, kNetTokens, kNetTypes};  // names in use in the net
  std::map<std::string, std::string> made_;     // nodes that only move or store numbers, by a description of their work
  std::map<std::string, ImportValue> settled_;  // results of settled(); key: a description of the value
  std::set<std::string> once_;                  // nodes for which has_once() is true
  std::map<const KnownNumbers*, ImportValue> stored_;  // constants with a tensor for computed numbers, by the numbers
  // Constants with the numbers of one sample; index: the tensor with the numbers of a whole batch.
  std::map<const OnnxTensor*, ImportValue> samples_;
  std::map<const OnnxTensor*, Learned> learned_;  // node of the net that reads a parameter, by the parameter's tensor
  bool in_training_ = false;
  int64_t batch_ = 1;
  TextProbe texts_;
  std::optional<int64_t> pad_;
  std::string output_;                   // the value of the model that the loss reads
  std::optional<int64_t> softmax_axis_;  // set if the model ends in a softmax that the loss contains
};

// A reduction over some axes to one number (read_images.cpp). The batch is not among these axes. If
// several maxima are equal, the first one gets the gradient (kMax), or each gets an equal part of
// it (kSharedMax).
enum class Reduction { kMean, kSum, kMax, kSharedMax };
std::optional<ImportValue> append_reduction(Importer& net, NodeReader& reader, const TensorView& x,
                                            const std::vector<size_t>& axes, bool keeps, Reduction reduction);

// Appends the nodes of a value of form kScores or kWeights, and returns the tensor that they write
// (read_rows.cpp).
std::optional<ImportValue> append_scores(Importer& net, NodeReader& reader, const ImportValue& scores);

// One op of ONNX, and the function that reads it.
struct OnnxOp {
  const char* op;
  void (*read)(Importer& net, NodeReader& reader);
};
using OnnxOps = std::vector<OnnxOp>;
const OnnxOps& image_ops();      // read_images.cpp
const OnnxOps& row_ops();        // read_rows.cpp
const OnnxOps& pointwise_ops();  // read_pointwise.cpp
const OnnxOps& layout_ops();     // read_layout.cpp
const OnnxOps& text_ops();       // read_texts.cpp

}  // namespace reprise
