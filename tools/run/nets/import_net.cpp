// See import_net.h. Everything is checked before the first file is written.
#include "tools/run/nets/import_net.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "tools/files/formats/checksum.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/tokenizer/tokenizer_file.h"
#include "tools/plan/models/models.h"
#include "tools/plan/onnx/onnx_writer.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/run/nets/export_net.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr int kBatch = 8;

// Returns the path without its extension: "my/net" for "my/net.json".
std::string stem_of(const std::string& recipe) {
  const std::filesystem::path path(recipe);
  return (path.parent_path() / path.stem()).string();
}

// ---- files that an import may replace ----

constexpr OutputKind kRecipeMark = {"import"}, kNetFile = {"net graph"},
                     kWeightsFile = {"imported weights", is_imported};

// A recipe with a mark, which is "reprise import" and the checksum of the recipe without the mark.
// A recipe that somebody changed does not match its mark, and is not overwritten.
constexpr OutputKind kRecipeFile = {"recipe", [](const std::string& path) {
  try {
    json recipe = json_or_discarded(read_file(path), JsonComments::kAllowed);
    if (!recipe.is_object() || !recipe.contains(kWriterKey)) return false;
    const json mark = recipe[kWriterKey];
    recipe.erase(kWriterKey);
    return mark == mark_of(kRecipeMark) + " " + checksum_of(recipe.dump());
  } catch (const UserError&) {
    return false;
  }
}};
std::string marked_recipe(json recipe) {
  recipe[kWriterKey] = mark_of(kRecipeMark) + " " + checksum_of(recipe.dump());
  return recipe.dump(2) + "\n";
}

// Returns the files that the import reads: the model with its external data, the recipe's data, the
// tokenizer, and stored outputs.
std::vector<std::string> inputs_of(const ImportOrder& order, const OnnxFile& file) {
  std::vector<std::string> inputs = {order.file, order.data_path, order.tokenizer, order.check};
  const std::set<std::string> external = external_files(file);
  inputs.insert(inputs.end(), external.begin(), external.end());
  return inputs;
}

// Returns the folder of the model's file if it has a tokenizer, as published models do; ""
// otherwise.
std::string tokenizer_beside(const std::string& file) {
  const std::string folder = std::filesystem::absolute(file).parent_path().string();
  return tokenizer_in(folder).empty() ? "" : folder;
}

json data_of(const ImportOrder& order, const ImportedNet& net) {
  json data = {{"kind", order.data_kind.empty() ? "synthetic" : order.data_kind}};
  const std::string folder = std::filesystem::absolute(order.recipe).parent_path().string();
  if (!order.data_path.empty()) data["path"] = relative_path(order.data_path, folder);
  const bool has_texts = net.graph.contains("text") && (order.data_kind == "texts" || order.data_kind == "csv");
  const std::string tokenizer = !order.tokenizer.empty() ? order.tokenizer
                                : has_texts              ? tokenizer_beside(order.file)
                                                         : "";
  if (has_texts && tokenizer.empty())
    throw UserError(
        order.file +
        ": --tokenizer: no tokenizer.json and no vocab.txt lies beside it; give the folder or file of the model's own");
  if (!tokenizer.empty()) data["tokenizer"] = relative_path(tokenizer, folder);
  return data;
}

json recipe_json(const ImportOrder& order, const ImportReport& report, const ImportedNet& net) {
  const auto name_of = [](const std::string& file) { return std::filesystem::path(file).filename().string(); };
  json recipe = {{"model", {{"graph", name_of(report.graph)}}},
                 {"init", {{"from", name_of(report.weights)}}},
                 {"data", data_of(order, net)},
                 {"batch", kBatch},
                 {"steps", 100},
                 {"optimizer", {{"name", "sgd"}, {"lr", 0.01}, {"momentum", 0.9}}}};
  for (const ImportedTensor& drawn : net.drawn) recipe["init"]["skip"].push_back(drawn.name);
  std::vector<std::string> frozen = order.freeze;
  frozen.insert(frozen.end(), net.frozen.begin(), net.frozen.end());
  if (!frozen.empty()) recipe["freeze"] = frozen;
  return recipe;
}

// Parses the recipe. A fault in the recipe is reported as one of the model: there is no recipe file
// yet that a message could name.
Recipe parsed(const ImportOrder& order, const json& recipe) {
  try {
    return parse_recipe(recipe.dump(), order.recipe, std::filesystem::path(order.recipe).parent_path().string());
  } catch (const UserError& error) {
    std::string text = error.what();
    if (text.starts_with(order.recipe + ": ")) text.erase(0, order.recipe.size() + 2);
    if (const size_t place = text.rfind(" (line "); place != std::string::npos) text.erase(place);
    throw UserError(order.file + ": the net that it becomes: " + text, error.status);
  }
}

// Throws UserError unless the import has a tensor of the same shape for each stored tensor of the
// net, except those of a new head.
void require_weights(const ImportOrder& order, const ImportedNet& net, const Graph& graph) {
  std::map<std::string_view, const ImportedTensor*> weights;
  for (const ImportedTensor& weight : net.weights) weights.try_emplace(weight.name, &weight);
  for (const Value& value : graph.values) {
    const bool is_stored =
        value.kind == ValueKind::kParameter || (value.kind == ValueKind::kBuffer && value.tensor.dtype == DType::kF32);
    const auto is_it = [&](const ImportedTensor& drawn) { return drawn.name == value.name; };
    const bool is_new = std::any_of(net.drawn.begin(), net.drawn.end(), is_it);
    if (!is_stored || is_new) continue;
    const auto found = weights.find(value.name);
    if (found == weights.end()) throw UserError(order.file + ": tensor " + json_shown(value.name) + ": missing");
    const auto want = stored_shape(value.tensor);
    const ImportedTensor& weight = *found->second;
    if (std::vector<uint64_t>(want.begin(), want.end()) != weight.shape) {
      throw UserError(order.file + ": tensor " + json_shown(weight.tensor->name) + ": is of " +
                      json(weight.shape).dump() + "; the net needs " + json(want).dump());
    }
  }
}

void write_weights(const OnnxFile& file, const ImportRequest& request, const ImportedNet& net,
                   const std::string& folder, const std::string& path) {
  SafetensorsWriter writer(path);
  note_source(writer, file, request, folder);
  writer.add_metadata(kFormsKey, "1");
  for (const ImportedTensor& weight : net.weights) writer.declare(weight.name, StoredType::kF32, weight.form.shape);
  for (const ImportedTensor& weight : net.weights) {
    const std::vector<float> numbers = stored_numbers_of(file, weight);
    writer.write(numbers.data(), numbers.size() * sizeof(float));
  }
  writer.finish();
}

// Files that are moved to their final paths together, once all are complete.
class StagedFiles {
 public:
  ~StagedFiles() {
    std::error_code ignored;
    for (const auto& [output, staged] : files_) {
      if (!is_placed_) std::filesystem::remove(staged, ignored);
    }
  }
  // Writes a file, and returns its path until place() moves it.
  template <typename Write>
  const std::string& write(const Output& output, const Write& write) {
    files_.emplace_back(&output, output.stage(write));
    return files_.back().second;
  }
  // Checks all files before the first is moved to its final path.
  void place() {
    for (const auto& [output, staged] : files_) output->check();
    for (const auto& [output, staged] : files_) output->place(staged);
    is_placed_ = true;
  }

 private:
  std::vector<std::pair<const Output*, std::string>> files_;
  bool is_placed_ = false;
};

void count_ops(const json& graph, ImportReport& report) {
  for (const json& node : graph.at("nodes")) {
    const std::string op = node.at("op");
    const auto found =
        std::find_if(report.ops.begin(), report.ops.end(), [&](const auto& entry) { return entry.first == op; });
    found == report.ops.end() ? report.ops.emplace_back(op, 1) : std::pair(op, ++found->second);
  }
  report.nodes = graph.at("nodes").size();
}

void count_memory(const Recipe& recipe, ImportReport& report) {
  const SolvedModel model = solve_model(recipe);
  report.links = model.chain.links.size();
  report.smallest_budget_bytes = smallest_budget(model, request_of(model));
  report.batch = recipe.batch;
  for (const Value& value : model.network.values) {
    if (value.kind != ValueKind::kParameter) continue;
    ++report.tensors;
    report.elements += value.tensor.elements();
    report.trained_elements += value.trainable ? value.tensor.elements() : 0;
    report.trained_tensors += value.trainable ? 1 : 0;
  }
}

// Counts the tensors whose numbers are those of another tensor, and their elements.
void count_tied(const ImportedNet& net, ImportReport& report) {
  for (const auto& [name, other] : net.graph.value("tied", std::map<std::string, std::string>())) {
    ++report.tied_tensors;
    for (const ImportedTensor& weight : net.weights) {
      if (weight.name == other) report.tied_elements += weight.tensor->elements();
    }
  }
}

}  // namespace

ImportReport import_net(const ImportOrder& order) {
  if (!order.recipe.ends_with(".json")) throw UserError(order.recipe + ": must end in .json, as the name of a recipe");
  const LongWork work("importing " + order.file);
  const OnnxFile file(order.file);
  const std::string stem = stem_of(order.recipe);
  const std::vector<std::string> inputs = inputs_of(order, file);
  const Output to_recipe(order.recipe, kRecipeFile, inputs), to_graph(stem + ".graph.json", kNetFile, inputs),
      to_weights(stem + ".safetensors", kWeightsFile, inputs);
  ImportedNet net = net_of_onnx(file, order.request);
  ImportReport report;
  report.recipe = to_recipe.path();
  report.graph = to_graph.path();
  report.weights = to_weights.path();
  report.model_nodes = file.model().nodes.size();
  report.left_out = net.left_out;
  report.joined = net.joined;
  report.tied = net.tied;
  for (const ImportedTensor& drawn : net.drawn) report.drawn.push_back(drawn.name);
  report.refused = net.refused;
  if (!report.refused.empty()) return report;
  count_ops(net.graph, report);
  if (order.data_kind == "tensors") net.findings.remove(Finding::kNoMean);  // the net reads such data as they are
  report.findings = net.findings;
  net.graph["findings"] = net.findings.to_json();
  // The recipe as it will be read, except for the net's file, which does not exist yet.
  json recipe = recipe_json(order, report, net), whole = recipe;
  whole["model"] = model_json(read_net(net.graph, {order.file}));
  const RecipeRules rules = {order.file};
  const Recipe read = parsed(order, whole);
  require_weights(order, net, build_model(read, rules));
  count_memory(read, report);
  count_tied(net, report);
  if (const std::filesystem::path folder = std::filesystem::path(order.recipe).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder);
  StagedFiles files;
  const std::string weights = files.write(to_weights, [&](const std::string& path) {
    write_weights(file, order.request, net, std::filesystem::absolute(order.recipe).parent_path().string(), path);
  });
  if (!order.check.empty()) report.check = check_net(*order.port, file, net, read, weights, order.check);
  files.write(to_graph,
              [&](const std::string& path) { write_file(path, marked_json(kNetFile, net.graph.dump(1)) + "\n"); });
  files.write(to_recipe, [&](const std::string& path) { write_file(path, marked_recipe(recipe)); });
  files.place();
  return report;
}

namespace {
// Returns lines as "  frozen          2 tensors, 6 elements", each with one line for each kind of
// finding below it.
std::string outcomes_text(const ImportReport& report) {
  const auto line = [&](const char* outcome, size_t tensors, uint64_t elements) {
    std::string label = std::string("  ") + outcome;
    label.resize(18, ' ');
    return label + std::to_string(tensors) + " tensors, " + std::to_string(elements) + " elements\n" +
           report.findings.text(outcome);
  };
  const size_t left_out = report.findings.count("dropped");
  return line("trained", report.trained_tensors, report.trained_elements) +
         line("frozen", report.tensors - report.trained_tensors, report.elements - report.trained_elements) +
         line("tied", report.tied_tensors, report.tied_elements) + "  dropped         " + std::to_string(left_out) +
         " of the module's\n" + report.findings.text("dropped") + report.findings.text("data");
}

std::string check_text(const ImportReport& report) {
  if (!report.check) return "";
  return "  checked         " + std::to_string(report.check->samples) +
         " samples, whose outputs are apart from those stored by " + json(report.check->distance).dump() +
         " of their norm\n";
}
}  // namespace

std::string import_text(const ImportReport& report) {
  const auto counted = [](const auto& counts) {
    std::string text;
    for (const auto& [what, count] : counts) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    return text;
  };
  return report.recipe + ": a recipe of the net in " + report.graph + ", its weights in " + report.weights +
         "\n  nodes           " + std::to_string(report.nodes) + " of the model's " +
         std::to_string(report.model_nodes) + ": " + counted(report.ops) + "; " + std::to_string(report.left_out) +
         " left out, which it does not need\n" +
         (report.joined.empty() ? ""
                                : "  joined          " + counted(report.joined) + ", each from a chain of nodes\n") +
         (report.tied.empty() ? "" : "  head            shares the table of " + report.tied + "\n") +
         (report.drawn.empty() ? "" : "  new             " + quoted_list(report.drawn) + ", drawn from the seed\n") +
         "  links           " + std::to_string(report.links) + "\n  parameters      " +
         std::to_string(report.elements) + " in " + std::to_string(report.tensors) + " tensors, of which " +
         std::to_string(report.trained_elements) + " are trained\n" + outcomes_text(report) + "  smallest budget " +
         bytes_text(report.smallest_budget_bytes) + ", in batches of " + std::to_string(report.batch) + "\n" +
         check_text(report);
}

namespace {
json outcomes_json(const ImportReport& report) {
  const auto counts = [](size_t tensors, uint64_t elements) {
    return json{{"tensors", tensors}, {"elements", elements}};
  };
  return {{"trained", counts(report.trained_tensors, report.trained_elements)},
          {"frozen", counts(report.tensors - report.trained_tensors, report.elements - report.trained_elements)},
          {"tied", counts(report.tied_tensors, report.tied_elements)},
          {"dropped", {{"names", report.findings.count("dropped")}}}};
}
}  // namespace

json import_json(const ImportReport& report) {
  if (!report.refused.empty()) return {{"refused", report.refused}};
  json ops = json::object();
  for (const auto& [op, count] : report.ops) ops[op] = count;
  const json check =
      report.check ? json{{"samples", report.check->samples}, {"distance", report.check->distance}} : json();
  return {{"recipe", report.recipe},
          {"graph", report.graph},
          {"weights", report.weights},
          {"model_nodes", report.model_nodes},
          {"nodes", report.nodes},
          {"left_out", report.left_out},
          {"ops", ops},
          {"joined", report.joined},
          {"tied", report.tied.empty() ? json() : json(report.tied)},
          {"new", report.drawn},
          {"links", report.links},
          {"parameters", report.elements},
          {"trained_parameters", report.trained_elements},
          {"outcomes", outcomes_json(report)},
          {"findings", report.findings.to_json()},
          {"batch", report.batch},
          {"smallest_budget", report.smallest_budget_bytes},
          {"check", check},
          {"refused", json::array()}};
}

}  // namespace reprise
