// Findings of an import: facts and guesses about a net's parameters that do not stop the import.
// One table (findings.cpp) has each kind's words and the option that overrides it.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

// Kinds of findings. The comments complete "This parameter ..." or describe the model. The table in
// findings.cpp has one row for each kind, in the same order.
enum class Finding {
  kEqual,        // has its numbers stored once in the file, together with other parameters of equal numbers
  kRestored,     // is a bias of zeros that the exporter left out
  kAlike,        // shares a tensor whose numbers are all equal, and is trained separately
  kOwn,          // is not the weight or bias of a layer
  kComputed,     // was computed from parameters by the exporter
  kEvaluated,    // belongs to a batch-norm that is in evaluation in the file
  kNoGradient,   // may have requires_grad=False, which an ONNX file does not state
  kEveryRow,     // is an embedding's table; an ONNX file states no padding_idx and no scale_grad_by_freq
  kBuffer,       // is a buffer of the module, as the file states
  kFixed,        // is not trained, as the file states: requires_grad=False, or all its readers are detached
  kConstant,     // is numbers within a node, or computed from such numbers
  kAbsent,       // was made for a weight or bias that the layer does not have
  kInput,        // is added to the input, or multiplied by it, before any weight
  kWhole,        // has only whole numbers
  kWaves,        // has rows that follow from each other, as waves have
  kFilter,       // is a filter that no training produces
  kFrozenNorm,   // belongs to a product and a sum with constants that the exporter computed, as of a frozen norm
  kNumber,       // is a single number in a file that torch did not write
  kTied,         // shares a tensor of the file
  kLost,         // is a parameter of the module that no node reads
  kIdleDropout,  // a dropout does nothing, because the file was exported in evaluation
  kNoDropout,    // the file has no dropout, and may have been exported in evaluation
  kNoMean,       // images reach the first weight without a mean and a deviation
  kCount,
};

// Lists, for each kind of finding, its names without duplicates, in the order in which they were
// found. They are names of parameters, or of the model's nodes if the outcome is "dropped".
class Findings {
 public:
  void add(Finding kind, const std::string& name);
  void add(Finding kind);  // Adds a finding that has no names.
  void remove(Finding kind) { names_.erase(kind); }
  // Removes the names of parameters for which `is_there(name)` is false, and each kind of finding
  // about parameters that has no name left.
  template <typename IsThere>
  void keep(const IsThere& is_there) {
    for (auto& [kind, names] : names_) {
      if (is_of_parameters(kind)) std::erase_if(names, [&](const std::string& name) { return !is_there(name); });
    }
    std::erase_if(names_, [](const auto& entry) { return is_of_parameters(entry.first) && entry.second.empty(); });
  }
  // Renames parameters; `renamed` maps old names to new ones.
  void rename(const std::map<std::string, std::string>& renamed);
  // Returns [{"kind", "outcome", "guessed", "says", "option", "names"}] (tools/COMMANDS.md).
  nlohmann::json to_json() const;
  // Returns one line for each finding of this outcome. A line names at most six of the finding's
  // names.
  std::string text(const char* outcome) const;
  // Returns the number of names in all findings of this outcome.
  size_t count(const char* outcome) const;

 private:
  static bool is_of_parameters(Finding kind);
  std::map<Finding, std::vector<std::string>> names_;  // names in each finding, in the order of their notes
  std::set<std::pair<Finding, std::string>> known_;    // the entries of names_, so that no name is noted twice
};

// Returns the findings in the net's file that the recipe names ("graph"); [] if it names none, or
// if the file has none.
nlohmann::json findings_of(const std::string& recipe);

}  // namespace reprise
