// The net while it is made: what the model's values have become, and how a node is added that reads them in the order that it needs.
// Here so that a reader of one op (read_*.cpp) says only what the op is.
#pragma once

#include <optional>
#include <set>
#include <unordered_map>

#include "tools/models/model.h"
#include "tools/onnx/net_of_onnx.h"
#include "tools/onnx/onnx_value.h"
#include "tools/onnx/text_probe.h"

namespace reprise {

class Importer {
 public:
  // `has_types`: a net of texts may read the types of tokens; else, as a language model's, they are 0.
  Importer(const OnnxFile& file, const ImportRequest& request, bool has_types) : file_(file), model_(file.model()), request_(request), has_types_(has_types) {}
  ImportedNet import();

  // ---- what a node reads; where it cannot be had, that is said, and the answer is kUnknown or nothing ----
  ImportValue value(NodeReader& reader, size_t n);
  std::optional<TensorView> tensor(NodeReader& reader, size_t n);                 // what a node of the net writes
  std::optional<TensorView> whole(NodeReader& reader, const ImportValue& value);  // the same of a value that is at hand
  std::optional<KnownNumbers> known(NodeReader& reader, size_t n);
  // Nothing where it is no constant, or a long one, or a parameter and `of_parameters` is false: nothing is computed from what is trained.
  std::optional<KnownNumbers> known_of(const ImportValue& value, bool of_parameters = false) const;
  std::optional<double> known_scalar(const ImportValue& value) const;
  std::optional<ImportValue> parameter(NodeReader& reader, size_t n);  // a constant that is no scalar of the arithmetic
  // Of a product or its softmax, of powers and of a norm's parts what a node writes; else as it is.
  std::optional<ImportValue> settled(NodeReader& reader, const ImportValue& value);
  std::optional<ImportValue> product_settled(NodeReader& reader,
                                             const ImportValue& value);  // the same of a product or its softmax alone
  const OnnxNode* only_reader_of(const std::string& value) const;      // of its numbers; null where several read them, or it is an output
  const OnnxNode* writer_of(const std::string& value) const;           // null for an input or a constant
  const ImportValue* find(const std::string& name) const;              // of what was read or written before; null for none

  // ---- what it writes ----
  void set(NodeReader& reader, const ImportValue& value, size_t output = 0);
  void set_tensor(NodeReader& reader, const TensorView& view, size_t output = 0);
  void pass(NodeReader& reader, const ImportValue& value, size_t output = 0);  // what it reads, read otherwise
  void note_joined(const std::string& what) { ++net_.joined[what]; }

  // ---- the net's nodes ----
  // The layer's name: what its parameter is called by PyTorch, else the node's own.
  std::string name_of(const OnnxNode& node, const OnnxTensor* parameter = nullptr);
  std::string unique_name(const std::string& name);
  // `node` without its name and inputs; `layout`: of what it writes.
  TensorView append(nlohmann::json node, const std::string& name, const std::vector<std::string>& inputs, const TensorView& layout);
  nlohmann::json* node_called(const std::string& name);
  void replace_at_end(const std::string& name, const nlohmann::json& node);  // a node that none between reads, by another of its name
  // The factors in this order in memory, the batch first. Nothing where no transposition of the net does it.
  std::optional<TensorView> in_order(NodeReader& reader, const TensorView& view, const std::vector<int>& ids);
  // "add" or "multiply" of a and what is broadcast to it.
  std::optional<ImportValue> append_two(NodeReader& reader, const char* op, const TensorView& a, const ImportValue& second, double factor = 1);
  TensorView written_as(const TensorView& view, const std::vector<int64_t>& shape);
  std::optional<TensorView> images(NodeReader& reader,
                                   const TensorView& view);  // of [N,C,H,W]: written as [N,H,W,C]; of [N,C,L]: as [N,1,L,C]
  std::optional<TensorView> rows(NodeReader& reader, const TensorView& view);  // the last axis innermost: written as [N,...,C]
  // A constant that stands where a value must: a parameter of the net's own, which may be trained, of the numbers in this order.
  std::string learned(const OnnxNode& node, const ImportValue& constant, const std::vector<int>& ids, const std::vector<int64_t>& shape);

  // The numbers of a parameter under a name of the net's: whole axes of the model in the model's order, or factors in an order of its own.
  void add_weight(const std::string& name, const ImportValue& parameter);
  void add_weight(const std::string& name, const ImportValue& parameter, const std::vector<int>& ids, const std::vector<int64_t>& shape);
  ImportValue stored(const OnnxNode& node,
                     const ImportValue& constant);  // numbers that were computed as a tensor, which nobody trains
  // A constant of a whole batch, beside such a value, of which each sample has the same: one that repeats. Any other as it is.
  ImportValue repeating(const ImportValue& constant, const TensorView& beside);
  int64_t opset() const { return model_.opsets.count("") > 0 ? model_.opsets.at("") : 0; }

  int64_t batch() const { return batch_; }
  // Whether the node has what it writes once for all samples: it is made of constants alone.
  bool has_once(const std::string& node) const { return once_.count(node) > 0; }
  const TextProbe& texts() const { return texts_; }
  bool set_pad(int64_t token);  // the token behind a text's end; false where it is another already
  // Counts work with numbers that are known before the net runs. Throws UserError where it becomes more than half a minute's.
  void spend(uint64_t numbers) const;

 private:
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
  void append_rows(const ImportValue& constant, const std::string& name, const std::vector<int>& ids, const std::vector<int64_t>& shape);
  bool is_output(const std::string& value) const;
  void refuse(const std::string& reason) { net_.refused.push_back(reason); }
  void index_nodes();
  bool has_single_writers();
  void leave_read_inputs(size_t node);
  void read_constants();
  void check_model();
  void read_input();
  void read_images(const OnnxValue& input);
  void read_texts(const std::vector<const OnnxValue*>& inputs);
  ImportValue text_input(const char* name) const;
  std::vector<int64_t> shape_of(const OnnxValue& input) const;  // as the model has it, or --input; open sizes are 0 or less
  std::vector<int64_t> axes_of(const OnnxNode& reduction) const;
  std::string divided_by_length(const OnnxNode& node) const;
  bool compares_pairs() const;  // what --loss asks for
  void find_output();
  std::vector<bool> wanted_nodes() const;
  void read_node(const OnnxNode& node);
  bool compute(NodeReader& reader);
  void become_head(const TensorView& logits);
  void become_language_model(const ImportValue& logits);
  std::vector<ImportedTensor>::iterator weight_called(const std::string& name);
  bool is_tied(const ImportedTensor& head, const ImportedTensor& table) const;
  void turn_output_major(nlohmann::json& node);
  void lay_alike();
  void append_loss(const std::string& loss);
  void find_last_layer(std::string node);
  void renew_last_layer();
  void leave_out_unread();
  bool is_shared(const ImportedTensor& weight) const;
  void tie_shared();
  void finish();

  // Says of a value of the model who writes it, who reads it, and how often.
  struct Uses {
    const OnnxNode* writer = nullptr;
    const OnnxNode* reader = nullptr;  // of its numbers, the last of them
    size_t times = 0;                  // how often its numbers are read
    size_t last = 0;                   // the last node that names it, as its place among the model's
  };

  const OnnxFile& file_;
  const OnnxModel& model_;
  const ImportRequest& request_;
  const bool has_types_;
  ImportedNet net_;
  std::vector<nlohmann::json> nodes_;
  std::map<std::string, size_t> places_;  // of nodes_, by name
  std::map<std::string, ImportValue> values_;  // those that a node yet to be read needs, and the constants
  std::unordered_map<std::string, Uses> uses_;
  mutable uint64_t computed_ = 0;  // numbers of the model's arithmetic so far (spend)
  std::unordered_map<std::string, int> endings_;  // the last number that unique_name has put behind a name
  std::set<std::string> names_ = {kNetImages, kNetTokens, kNetTypes};
  std::map<std::string, std::string> made_;  // nodes that only move numbers or hold them, by what they were made of
  std::map<std::string, ImportValue> settled_;  // what nobody took for a part of a layer, by what it was made of
  std::set<std::string> once_;            // nodes (has_once)
  std::map<const KnownNumbers*, ImportValue> stored_;
  std::map<const OnnxTensor*, ImportValue> samples_;  // of tensors that hold each sample's
  std::map<const OnnxTensor*, Learned> learned_;
  int64_t batch_ = 1;
  TextProbe texts_;
  std::optional<int64_t> pad_;
  std::string output_;                  // of the model's values: what the loss reads
  std::optional<int64_t> softmax_axis_;  // of one that the model ends in and the loss has itself
};

// Of all places along some axes, none of them the batch: one number (read_images.cpp).
enum class Reduction { kMean, kSum, kMax };
std::optional<ImportValue> append_reduction(Importer& net, NodeReader& reader, const TensorView& x,
                                            const std::vector<size_t>& axes, bool keeps, Reduction reduction);

// What the node of a form kScores or kWeights writes (read_rows.cpp).
std::optional<ImportValue> append_scores(Importer& net, NodeReader& reader, const ImportValue& scores);

// One op of ONNX, and who reads it.
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
