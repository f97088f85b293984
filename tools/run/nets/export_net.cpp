// See export_net.h.
#include "tools/run/nets/export_net.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/files/formats/checksum.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/plan/onnx/onnx_writer.h"
#include "tools/plan/pt2/pt2_file.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char *kFromKey = "imported_from", *kSumKey = "imported_sum", *kInputsKey = "imported_inputs",
                     *kLossKey = "imported_loss", *kOutputKey = "imported_output", *kTrainKey = "imported_train",
                     *kUntieKey = "imported_untie";

std::string sum_text(const std::string& path) {
  const FileSum sum = sum_of_file(path);
  return std::to_string(sum.bytes) + " " + sum.checksum;
}

struct Source {
  std::string path;
  ImportRequest request;
};

Source find_source(const std::string& imported) {
  const std::map<std::string, std::string> notes = SafetensorsFile(imported).metadata();
  if (notes.count(kFromKey) == 0 || notes.count(kSumKey) == 0 || notes.count(kInputsKey) == 0) {
    throw UserError(imported +
                    ": does not say what it was imported from; --onnx is for a net that `reprise import` made, and "
                    "init.from must name its weights");
  }
  Source source;
  const fs::path folder = fs::absolute(imported).parent_path(), was = (folder / notes.at(kFromKey)).lexically_normal(),
                 beside = folder / was.filename();
  source.path = fs::exists(was) ? was.string() : beside.string();
  if (!fs::exists(source.path))
    throw UserError(was.string() + ": is gone, and not beside " + imported +
                    " either; --onnx writes the weights into the file that the net was imported from");
  if (sum_text(source.path) != notes.at(kSumKey))
    throw UserError(source.path + ": has changed since " + imported +
                    " was imported from it; it must be the same file");
  const json inputs = parse_json(notes.at(kInputsKey), imported);
  for (const auto& [name, shape] : inputs.items()) source.request.inputs[name] = shape.get<std::vector<uint64_t>>();
  if (notes.count(kLossKey) > 0) source.request.loss = notes.at(kLossKey);
  if (notes.count(kOutputKey) > 0) source.request.output = notes.at(kOutputKey);
  if (notes.count(kTrainKey) > 0)
    source.request.train = parse_json(notes.at(kTrainKey), imported).get<std::vector<std::string>>();
  source.request.untie = notes.count(kUntieKey) > 0;
  return source;
}

// For each axis of the net's tensor: the distance, in numbers of the file's tensor, between
// neighbours along this axis.
using Strides = std::vector<uint64_t>;
Strides strides_in_rows(const std::vector<uint64_t>& shape) {
  Strides strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}
// One of the file's tensors, and the tensors of the net that fill it.
struct Target {
  const OnnxTensor* tensor = nullptr;
  std::vector<uint64_t> shape;
  struct Filling {
    std::string name;
    std::vector<uint64_t> shape;
    Strides strides;
  };
  std::vector<Filling> fillings;
};

// Gives a tensor of the file the shape of a new head. Each axis of the head must be an axis of this
// tensor.
void resize(const OnnxFile& file, Target& target, const std::vector<uint64_t>& shape) {
  Target::Filling& filling = target.fillings.back();
  const Strides old = strides_in_rows(target.tensor->shape);
  std::vector<size_t> axes;  // entry d: axis of the file's tensor for axis d of the net's tensor
  for (size_t d = 0; d < shape.size(); ++d) {
    size_t axis = 0;
    while (axis < old.size() && !(old[axis] == filling.strides[d] && target.tensor->shape[axis] == filling.shape[d]))
      ++axis;
    if (axis == old.size())
      throw UserError(file.path() + ": tensor " + json_shown(target.tensor->name) +
                      ": is not laid out so that its classes could be others");
    axes.push_back(axis);
    target.shape[axis] = shape[d];
  }
  const Strides now = strides_in_rows(target.shape);
  for (size_t d = 0; d < shape.size(); ++d) filling.strides[d] = now[axes[d]];
  filling.shape = shape;
}

// Returns the form of a new head, whose trained tensor has another number of classes along one
// side.
StoredForm of_new_head(StoredForm form, const std::vector<uint64_t>& stored) {
  const auto many = [](uint64_t side) { return side > 1; };
  const auto differs = std::mismatch(form.shape.begin(), form.shape.end(), stored.begin(), stored.end()).first;
  if (form.shape.size() != stored.size() || differs == form.shape.end()) return form;
  // Index of the side among the sides above 1.
  const size_t side = static_cast<size_t>(std::count_if(form.shape.begin(), differs, many));
  const uint64_t classes = stored[static_cast<size_t>(differs - form.shape.begin())];
  *differs = classes;
  if (form.shape != stored) return form;  // not a tensor of the head: other sides differ, too
  size_t place = form.sides.empty()
                     ? side
                     : static_cast<size_t>(std::find(form.order.begin(), form.order.end(), side) - form.order.begin());
  if (!form.sides.empty()) form.sides.at(side) = classes;
  for (uint64_t& own : form.own) {
    if (many(own) && place-- == 0) own = classes;
  }
  return form;
}

std::vector<float> numbers_of(const OnnxFile& file, const Target& target, const WeightSource& weights) {
  std::vector<float> all;
  if (target.shape == target.tensor->shape) all = file.floats(*target.tensor);
  uint64_t elements = 1;
  for (const uint64_t d : target.shape) elements *= d;
  all.resize(elements);
  for (const Target::Filling& filling : target.fillings) {
    uint64_t count = 1, place = 0;
    for (const uint64_t d : filling.shape) count *= d;
    std::vector<float> values(count);
    weights.read(filling.name, 0, count, values.data());
    std::vector<uint64_t> at(filling.shape.size());
    for (const float value : values) {
      all.at(place) = value;
      for (size_t d = at.size(); d-- > 0;) {
        place += filling.strides[d];
        if (++at[d] < filling.shape[d]) break;
        place -= filling.shape[d] * filling.strides[d];
        at[d] = 0;
      }
    }
  }
  return all;
}

// True if the training_mode of a Dropout, the tensor `name`, is true. The tensor is a constant of
// the model, or the output of a Constant node.
bool is_true(const OnnxFile& file, const std::string& name) {
  const auto holds = [&](const OnnxTensor& tensor) {
    return tensor.type == static_cast<uint32_t>(OnnxType::kBool) && file.integers(tensor) == std::vector<int64_t>{1};
  };
  for (const OnnxTensor& tensor : file.model().constants) {
    if (tensor.name == name) return holds(tensor);
  }
  for (const OnnxNode& node : file.model().nodes) {
    if (node.op != "Constant" || node.outputs != std::vector<std::string>{name}) continue;
    return !node.attributes.empty() && node.attributes[0].tensor && holds(*node.attributes[0].tensor);
  }
  return false;
}

bool computes_as_in_training(const OnnxFile& file, const OnnxNode& node) {
  if (node.op == "BatchNormalization") return is_in_training(file.model(), node);
  if (node.op == "Dropout") return node.inputs.size() > 2 && is_true(file, node.inputs[2]);
  return node.op == "RandomUniformLike";  // random numbers are used for stochastic depth
}

}  // namespace

bool is_imported(const std::string& path) {
  try {
    return is_written_here(path) && SafetensorsFile(path).metadata().count(kSumKey) > 0;
  } catch (const UserError&) {
    return false;
  }
}

void note_source(SafetensorsWriter& writer, const OnnxFile& file, const ImportRequest& request,
                 const std::string& folder) {
  writer.add_metadata(kFromKey, relative_path(file.path(), folder));
  writer.add_metadata(kSumKey, sum_text(file.path()));
  writer.add_metadata(kInputsKey, json(request.inputs).dump());
  if (!request.loss.empty()) writer.add_metadata(kLossKey, request.loss);
  if (!request.output.empty()) writer.add_metadata(kOutputKey, request.output);
  if (!request.train.empty()) writer.add_metadata(kTrainKey, json(request.train).dump());
  if (request.untie) writer.add_metadata(kUntieKey, "true");
}

OnnxExport export_onnx(std::shared_ptr<const WeightSource> trained, const std::string& imported, const std::string& to,
                       std::vector<std::string> inputs) {
  const Source source = find_source(imported);
  const OnnxFile file(source.path);
  if (is_pt2(file.file()))
    throw UserError(source.path +
                    ": is a file of torch.export; --onnx is for a net that was imported from an ONNX file");
  const ImportedNet net = net_of_onnx(file, source.request);
  if (!net.refused.empty()) throw UserError(source.path + ": " + net.refused[0]);
  OnnxExport report;
  std::map<const OnnxTensor*, Target> targets;
  std::vector<ImportedTensor> all = net.weights;
  all.insert(all.end(), net.copies.begin(), net.copies.end());
  StoredForms forms;
  for (const ImportedTensor& weight : net.weights) {
    const StoredWeight* stored = trained->find(weight.name);
    forms[weight.name] = weight.is_of_head && stored != nullptr ? of_new_head(weight.form, stored->shape) : weight.form;
  }
  const std::shared_ptr<const WeightSource> own = as_graph_has(std::move(trained), forms);
  const WeightSource& weights = *own;
  for (const ImportedTensor& weight : all) {
    if (weight.tensor->is_made() && !weight.tensor->is_copy) continue;
    const StoredWeight* stored = weights.find(weight.name);
    if (stored == nullptr)
      throw UserError(weights.path() + ": tensor " + json_shown(weight.name) + ": missing; the net in " + source.path +
                      " has it");
    Target& target = targets.try_emplace(weight.tensor, Target{weight.tensor, weight.tensor->shape, {}}).first->second;
    if (!target.fillings.empty()) {
      throw UserError(source.path + ": tensor " + json_shown(weight.tensor->name) + ": is that of " +
                      target.fillings[0].name + " and of " + weight.name +
                      ", which were trained apart; export to safetensors holds both");
    }
    Target::Filling filling = {weight.name, {}, {}};
    for (const ImportedTensor::Axis& axis : weight.walk) {
      filling.shape.push_back(static_cast<uint64_t>(axis.size));
      filling.strides.push_back(static_cast<uint64_t>(axis.stride));
    }
    target.fillings.push_back(std::move(filling));
    ++report.tensors;
    if (stored->shape == weight.shape) continue;
    std::vector<uint64_t> sides;  // for each element of the walk, the trained tensor's side; sides of 1 are left out
    for (size_t d = 0; d < weight.shape.size() && stored->shape.size() == weight.shape.size(); ++d) {
      if (weight.shape[d] > 1) sides.push_back(stored->shape[d]);
    }
    if (!weight.is_of_head || sides.size() != target.fillings.back().shape.size()) {
      throw UserError(weights.path() + ": tensor " + json_shown(weight.name) + ": is of " + json(stored->shape).dump() +
                      "; the net in " + source.path + " has " + json(weight.shape).dump());
    }
    resize(file, target, sides);
    ++report.resized;
  }
  std::vector<OnnxChange> changes;
  for (const auto& [tensor, target] : targets) {
    changes.push_back(
        {tensor, target.shape, [&file, &weights, &target = target] { return numbers_of(file, target, weights); }});
  }
  inputs.insert(inputs.end(), {imported, weights.path()});
  write_onnx(file, changes, to, inputs);
  for (const OnnxNode& node : file.model().nodes) {
    if (computes_as_in_training(file, node)) ++report.in_training[node.op];
  }
  return report;
}

}  // namespace reprise
