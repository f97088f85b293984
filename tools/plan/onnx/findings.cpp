// See findings.h.
#include "tools/plan/onnx/findings.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

struct FindingRow {
  const char* kind;     // "kind" in the JSON form, for programs
  const char* outcome;  // "trained", "frozen", "tied", "dropped" or "data"
  bool is_guess;        // true if the importer guesses; false if the file states the finding
  const char* says;     // text for people that follows the number of names
  const char* option;   // how a user can override or avoid the finding; "" for none
};

constexpr const char *kTrain = "--train PATTERN trains them", *kFreeze = "--freeze PATTERN freezes them";

constexpr FindingRow kFindingRows[] = {
    {"equal", "trained", false,
     "are parameters of their own, which the file holds together with others of the same numbers", ""},
    {"restored", "trained", false, "are biases of zeros, which the exporter left out", ""},
    {"alike", "trained", true,
     "share a tensor whose numbers are all the same, so that each is taken for one of its own", ""},
    {"own", "trained", true,
     "are no layer's weight or bias and taken for parameters; a buffer of the module would be frozen", kFreeze},
    {"computed", "trained", true,
     "are what the exporter computed from parameters (batch-norms folded in, weights standardised), and trained as "
     "that",
     "a .pt2, or an export with training=TrainingMode.TRAINING and do_constant_folding=False, or optimize=False, has "
     "the parameters"},
    {"evaluated", "trained", true,
     "are of batch-norms that the file has in evaluation, and that take each batch's statistics here, as in training",
     "--freeze PATTERN keeps the running ones of a norm whose weight it names"},
    {"no_gradient", "trained", true,
     "a parameter of the module with requires_grad=False looks like any other in an ONNX file", kFreeze},
    {"every_row", "trained", true,
     "are embeddings whose rows are all trained alike: an ONNX file states no padding_idx and no scale_grad_by_freq",
     "if the module sets one of them, a .pt2 of it states it"},
    {"buffer", "frozen", false, "are buffers of the module, which it does not train", kTrain},
    {"fixed", "frozen", false, "are not trained in the module (requires_grad=False, or detached)", kTrain},
    {"constant", "frozen", false, "are numbers that the model has within its nodes, or computes from such", kTrain},
    {"absent", "frozen", false, "stand for a weight or bias that the layer does not have", kTrain},
    {"input", "frozen", true, "meet the input before any weight, as a mean and a deviation do", kTrain},
    {"whole", "frozen", true, "hold whole numbers alone, as masks do", kTrain},
    {"waves", "frozen", true, "have rows that follow from each other, as waves do", kTrain},
    {"filter", "frozen", true, "are filters that no training makes, as of a blur", kTrain},
    {"frozen_norm", "frozen", true, "are a product and a sum that the exporter computed, as of a frozen batch-norm",
     kTrain},
    {"number", "frozen", true, "are single numbers, taken for arithmetic", kTrain},
    {"tied", "tied", true, "share a tensor of the file with others, and are trained as one",
     "--untie gives each its own"},
    {"lost", "dropped", false,
     "parameters of the module are not in the file: they were computed into others, or change nothing as they are",
     "a .pt2, or an export with optimize=False, has them"},
    {"idle_dropout", "dropped", false, "dropouts do nothing, because the file was exported in evaluation",
     "export the module in training, and they stay"},
    {"no_dropout", "dropped", true, "there is no dropout in the file: an export for evaluation leaves it out",
     "if the module has some, export it with training=TrainingMode.TRAINING, or a .pt2 of the module in training"},
    {"no_mean", "data", true, "no mean and deviation: pictures reach the first layer as numbers from 0 to 1",
     "if the net was trained on normalised pictures, set them in the recipe's data, as ImageNet's: \"mean\": [0.485, "
     "0.456, 0.406], \"std\": [0.229, 0.224, 0.225]"},
};
static_assert(std::size(kFindingRows) == static_cast<size_t>(Finding::kCount));

const FindingRow& finding_row(Finding kind) { return kFindingRows[static_cast<size_t>(kind)]; }

}  // namespace

void Findings::add(Finding kind, const std::string& name) {
  if (known_.emplace(kind, name).second) names_[kind].push_back(name);
}

void Findings::add(Finding kind) { names_[kind]; }

void Findings::rename(const std::map<std::string, std::string>& renamed) {
  for (auto& [kind, names] : names_) {
    for (std::string& name : names) {
      if (const auto found = renamed.find(name); is_of_parameters(kind) && found != renamed.end()) name = found->second;
    }
  }
}

// True if names of this kind are parameters of the net.
bool Findings::is_of_parameters(Finding kind) {
  const std::string_view outcome = finding_row(kind).outcome;
  return (outcome == "trained" || outcome == "frozen") && kind != Finding::kNumber && kind != Finding::kNoGradient;
}

nlohmann::json Findings::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [kind, names] : names_) {
    const FindingRow& row = finding_row(kind);
    list.push_back({{"kind", row.kind},
                    {"outcome", row.outcome},
                    {"guessed", row.is_guess},
                    {"says", row.says},
                    {"option", row.option},
                    {"names", names}});
  }
  return list;
}

std::string Findings::text(const char* outcome) const {
  constexpr size_t kMaxNames = 6;
  std::string text;
  for (const auto& [kind, names] : names_) {
    const FindingRow& row = finding_row(kind);
    if (std::string_view(row.outcome) != outcome) continue;
    const std::vector<std::string> first(names.begin(),
                                         names.begin() + static_cast<long>(std::min(names.size(), kMaxNames)));
    const bool is_of_data = std::string_view(row.outcome) == "data";
    text += std::string(is_of_data     ? "  data            "
                        : row.is_guess ? "    guessed       "
                                       : "    the file says ") +
            (names.empty() ? "" : std::to_string(names.size()) + " ") + row.says +
            (names.empty() ? "" : ": " + quoted_list(first)) +
            (names.size() > kMaxNames ? " and " + std::to_string(names.size() - kMaxNames) + " more" : "") +
            (*row.option == '\0' ? "" : std::string("; ") + row.option) + "\n";
  }
  return text;
}

size_t Findings::count(const char* outcome) const {
  size_t count = 0;
  for (const auto& [kind, names] : names_)
    count += std::string_view(finding_row(kind).outcome) == outcome ? names.size() : 0;
  return count;
}

nlohmann::json findings_of(const std::string& recipe) {
  const nlohmann::json read = parse_json(read_file(recipe), recipe, JsonComments::kAllowed);
  const nlohmann::json model = read.value("model", nlohmann::json::object());
  if (!model.is_object() || !model.contains("graph")) return nlohmann::json::array();
  const std::filesystem::path graph =
      std::filesystem::path(recipe).parent_path() / model.at("graph").get<std::string>();
  return parse_json(read_file(graph.string()), graph.string(), JsonComments::kAllowed)
      .value("findings", nlohmann::json::array());
}

}  // namespace reprise
