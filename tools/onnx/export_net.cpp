// See export_net.h.
#include "tools/onnx/export_net.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/formats/checksum.h"
#include "tools/formats/error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output.h"
#include "tools/onnx/onnx_writer.h"
#include "tools/onnx/pt2_file.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char *kFromKey = "imported_from", *kSumKey = "imported_sum", *kInputsKey = "imported_inputs",
                     *kLossKey = "imported_loss", *kOutputKey = "imported_output";

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
    throw UserError(
        imported +
        ": does not say what it was imported from; --onnx is for a net that `reprise import` made, and init.from must name its weights");
  }
  Source source;
  const fs::path folder = fs::absolute(imported).parent_path(), was = (folder / notes.at(kFromKey)).lexically_normal(), beside = folder / was.filename();
  source.path = fs::exists(was) ? was.string() : beside.string();
  if (!fs::exists(source.path))
    throw UserError(was.string() + ": is gone, and not beside " + imported +
                    " either; --onnx writes the weights into the file that the net was imported from");
  if (sum_text(source.path) != notes.at(kSumKey))
    throw UserError(source.path + ": has changed since " + imported + " was imported from it; it must be the same file");
  const json inputs = parse_json(notes.at(kInputsKey), imported);
  for (const auto& [name, shape] : inputs.items()) source.request.inputs[name] = shape.get<std::vector<uint64_t>>();
  if (notes.count(kLossKey) > 0) source.request.loss = notes.at(kLossKey);
  if (notes.count(kOutputKey) > 0) source.request.output = notes.at(kOutputKey);
  return source;
}

// Where a number of the net's tensor lies in the file's: so many numbers further for each step along each axis.
using Strides = std::vector<uint64_t>;
Strides strides_in_rows(const std::vector<uint64_t>& shape) {
  Strides strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}
// One of the file's tensors, and what fills it.
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

// A new head is of another size along its first axis, which is one of the file's tensor.
void resize(const OnnxFile& file, Target& target, const std::vector<uint64_t>& shape) {
  Target::Filling& filling = target.fillings.back();
  const Strides old = strides_in_rows(target.tensor->shape);
  std::vector<size_t> axes;  // of the file's tensor, for each of the net's
  for (size_t d = 0; d < shape.size(); ++d) {
    size_t axis = 0;
    while (axis < old.size() && !(old[axis] == filling.strides[d] && target.tensor->shape[axis] == filling.shape[d])) ++axis;
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

// A Dropout's training_mode, which is a constant or a node of one.
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
  if (node.op == "BatchNormalization") {
    const auto is_training = [](const OnnxAttribute& each) { return each.name == "training_mode" && each.integer != 0; };
    return std::any_of(node.attributes.begin(), node.attributes.end(), is_training);
  }
  if (node.op == "Dropout") return node.inputs.size() > 2 && is_true(file, node.inputs[2]);
  return node.op == "RandomUniformLike";  // of stochastic depth
}

}  // namespace

bool is_imported(const std::string& path) {
  try {
    return is_written_here(path) && SafetensorsFile(path).metadata().count(kSumKey) > 0;
  } catch (const UserError&) {
    return false;
  }
}

void note_source(SafetensorsWriter& writer, const OnnxFile& file, const ImportRequest& request, const std::string& folder) {
  writer.add_metadata(kFromKey, relative_path(file.path(), folder));
  writer.add_metadata(kSumKey, sum_text(file.path()));
  writer.add_metadata(kInputsKey, json(request.inputs).dump());
  if (!request.loss.empty()) writer.add_metadata(kLossKey, request.loss);
  if (!request.output.empty()) writer.add_metadata(kOutputKey, request.output);
}

OnnxExport export_onnx(const WeightSource& weights, const std::string& imported, const std::string& to, std::vector<std::string> inputs) {
  const Source source = find_source(imported);
  const OnnxFile file(source.path);
  if (is_pt2(file.file()))
    throw UserError(source.path + ": is a file of torch.export; --onnx is for a net that was imported from an ONNX file");
  const ImportedNet net = net_of_onnx(file, source.request);
  if (!net.refused.empty()) throw UserError(source.path + ": " + net.refused[0]);
  OnnxExport report;
  std::map<const OnnxTensor*, Target> targets;
  std::vector<ImportedTensor> all = net.weights;
  all.insert(all.end(), net.copies.begin(), net.copies.end());
  for (const ImportedTensor& weight : all) {
    if (weight.tensor->is_made()) continue;
    const StoredWeight* stored = weights.find(weight.name);
    if (stored == nullptr)
      throw UserError(weights.path() + ": tensor " + json_shown(weight.name) + ": missing; the net in " + source.path + " has it");
    Target& target = targets.try_emplace(weight.tensor, Target{weight.tensor, weight.tensor->shape, {}}).first->second;
    if (!target.fillings.empty()) {
      throw UserError(source.path + ": tensor " + json_shown(weight.tensor->name) + ": is that of " + target.fillings[0].name + " and of " + weight.name +
                      ", which were trained apart; export to safetensors holds both");
    }
    Target::Filling filling = {weight.name, {}, {}};
    for (const ImportedTensor::Axis& axis : weight.walk) {
      filling.shape.push_back(static_cast<uint64_t>(axis.size));
      filling.strides.push_back(static_cast<uint64_t>(axis.stride));
    }
    target.fillings.push_back(std::move(filling));
    ++report.tensors;
    const bool is_head = weight.name == net.head + ".weight" || weight.name == net.head + ".bias";
    if (stored->shape == weight.shape) continue;
    if (!is_head || stored->shape.size() != target.fillings.back().shape.size()) {
      throw UserError(weights.path() + ": tensor " + json_shown(weight.name) + ": is of " + json(stored->shape).dump() + "; the net in " +
                      source.path + " has " + json(weight.shape).dump());
    }
    resize(file, target, stored->shape);
    ++report.resized;
  }
  std::vector<OnnxChange> changes;
  for (const auto& [tensor, target] : targets) {
    changes.push_back({tensor, target.shape, [&file, &weights, &target = target] { return numbers_of(file, target, weights); }});
  }
  inputs.insert(inputs.end(), {imported, weights.path()});
  write_onnx(file, changes, to, inputs);
  for (const OnnxNode& node : file.model().nodes) {
    if (computes_as_in_training(file, node)) ++report.in_training[node.op];
  }
  return report;
}

}  // namespace reprise
