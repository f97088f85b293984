// See predict.h. Probabilities and accuracies by class come from the logits that the evaluation's loss head reads.
#include "tools/inference/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tools/data/data_feed.h"
#include "tools/data/pictures.h"
#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/inference/evaluation.h"
#include "tools/inference/reference.h"
#include "tools/inference/logits.h"
#include "tools/session/session.h"
#include "tools/session/stop_signal.h"
#include "tools/snapshots/snapshot.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

struct ClassTally {
  uint64_t labelled = 0, correct = 0;
  // Not a number where there was no sample: such a class is neither right nor wrong.
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(labelled); }
};

// The first of the largest, as the loss head counts it.
uint32_t likeliest(const std::vector<double>& logits) { return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()); }

// The snapshot's names, else the numbers of the classes.
std::vector<std::string> names_of_classes(const Recipe& recipe, const ProgramOptions& options) {
  std::vector<std::string> names;
  if (!options.resume.empty()) names = read_facts(options.resume).class_names;
  for (int c = static_cast<int>(names.size()); c < describe_model(recipe.model).classes; ++c) names.push_back(std::to_string(c));
  return names;
}

void require_images(const Recipe& recipe, const char* option) {
  if (recipe.sequence == 0) return;
  throw UserError(recipe.name + ": " + option + ": is for models of images", UserError::kUsage);
}

// What was evaluated, for messages.
std::string weights_of(const Session& session, const ProgramOptions& options) {
  return !options.resume.empty() ? options.resume : !session.weights().empty() ? session.weights() : session.recipe().name;
}

ordered_json evaluation_json(const EvaluationResult& result, uint64_t step, const std::vector<std::string>& names, const std::vector<ClassTally>& tallies) {
  ordered_json json = {{"step", step}, {"loss", result.report.loss}, {"accuracy", result.accuracy()},
                       {"labelled", result.report.labelled}, {"correct", result.report.correct}};
  for (size_t c = 0; c < tallies.size(); ++c) {
    json["classes"].push_back({{"name", names[c]}, {"labelled", tallies[c].labelled}, {"correct", tallies[c].correct}, {"accuracy", tallies[c].accuracy()}});
  }
  return json;
}

void print_evaluation(const EvaluationResult& result, uint64_t step, const std::vector<std::string>& names, const std::vector<ClassTally>& tallies, bool json) {
  if (json) {
    std::cout << evaluation_json(result, step, names, tallies).dump() << "\n";
    return;
  }
  std::printf("step %llu: loss %.6g, accuracy %.2f%% (%llu of %llu)\n", static_cast<unsigned long long>(step), result.report.loss, 100 * result.accuracy(),
              static_cast<unsigned long long>(result.report.correct), static_cast<unsigned long long>(result.report.labelled));
  for (size_t c = 0; c < tallies.size(); ++c) {
    if (tallies[c].labelled == 0) {
      std::printf("%-24s       - (no sample)\n", names[c].c_str());
      continue;
    }
    std::printf("%-24s %6.2f%% (%llu of %llu)\n", names[c].c_str(), 100 * tallies[c].accuracy(), static_cast<unsigned long long>(tallies[c].correct),
                static_cast<unsigned long long>(tallies[c].labelled));
  }
}

struct Guess {
  uint32_t number;
  double probability;
};

// The five likeliest classes, or all where there are fewer.
std::vector<Guess> top_guesses(const std::vector<double>& logits) {
  constexpr size_t kShown = 5;
  const double most = *std::max_element(logits.begin(), logits.end());
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0, [most](double s, double logit) { return s + std::exp(logit - most); });
  std::vector<Guess> guesses(logits.size());
  for (uint32_t c = 0; c < logits.size(); ++c) guesses[c] = {c, std::exp(logits[c] - most) / sum};
  std::stable_sort(guesses.begin(), guesses.end(), [](const Guess& a, const Guess& b) { return a.probability > b.probability; });
  guesses.resize(std::min(guesses.size(), kShown));
  return guesses;
}

}  // namespace

int evaluate_weights(const CompiledPlan& compiled, const ProgramOptions& options) {
  std::unique_ptr<Dataset> data;
  Session session(compiled, options, nullptr, [&](Session& begun) {
    data = open_dataset(begun.recipe(), Split::kEvaluation);
    if (data == nullptr) return;
    const uint64_t batches = options.batches == 0 ? data->micro_batches() : std::min(options.batches, data->micro_batches());
    set_references(begun.trainer(), begun.port(), begun.recipe(), *data, 0, batches, options.quiet);
  });
  const Recipe& recipe = session.recipe();
  if (options.per_class) require_images(recipe, "--per-class");
  show_untrained(session);
  if (data == nullptr) data = open_dataset(recipe, Split::kEvaluation);
  if (data == nullptr) throw UserError(recipe.name + ": --evaluate: the recipe names no data to evaluate on; give data.eval_path, or data.held_out");
  if (session.is_resumed()) require_same_classes(options.resume, data->class_names());
  std::vector<ClassTally> tallies(options.per_class ? static_cast<size_t>(describe_model(recipe.model).classes) : 0);
  std::optional<LogitsReader> reader;
  if (options.per_class) {
    reader.emplace(session.trainer(), [&tallies](uint64_t, int32_t label, const std::vector<double>& logits) {
      if (label == kIgnoredLabel) return;
      ClassTally& tally = tallies[static_cast<size_t>(label)];
      ++tally.labelled;
      tally.correct += likeliest(logits) == static_cast<uint32_t>(label);
    });
  }
  const EvaluationResult result = evaluate_set(session.trainer(), session.port(), recipe, *data, {.most_batches = options.batches, .quiet = options.quiet});
  if (result.stopped) {
    std::cerr << recipe.name << ": the evaluation was stopped by a signal\n";
    return 128 + stop_signal();
  }
  session.require(result.status);
  if (reader) session.require(reader->status());
  print_evaluation(result, session.trainer().step, options.per_class ? names_of_classes(recipe, options) : std::vector<std::string>(), tallies, options.json);
  if (std::isfinite(result.report.loss)) return 0;
  std::cerr << weights_of(session, options) << ": --evaluate: the loss is not finite: these weights have diverged\n";
  return UserError::kBadInput;
}

int predict_pictures(const CompiledPlan& compiled, const ProgramOptions& options) {
  Session session(compiled, options);
  const Recipe& recipe = session.recipe();
  require_images(recipe, "--predict");
  show_untrained(session);
  const std::vector<std::string> files = list_pictures(options.predict), names = names_of_classes(recipe, options);
  PictureFiles data(recipe, files);
  ordered_json all = ordered_json::array();
  const uint64_t batch = static_cast<uint64_t>(recipe.batch);
  uint64_t first = 0;  // picture of the micro-batch
  int status_at_end = 0;
  LogitsReader reader(session.trainer(), [&](uint64_t row, int32_t, const std::vector<double>& logits) {
    if (first + row >= files.size()) return;
    if (const std::string& fault = data.fault(first + row); !fault.empty()) {
      std::cerr << fault << "\n";
      if (options.json) all.push_back({{"file", files[first + row]}, {"error", fault}});
      status_at_end = UserError::kBadInput;
      return;
    }
    ordered_json guesses = ordered_json::array();
    std::string line = files[first + row] + ":";
    for (const Guess& guess : top_guesses(logits)) {
      guesses.push_back({{"class", guess.number}, {"name", names[guess.number]}, {"probability", guess.probability}});
      char number[32];
      std::snprintf(number, sizeof number, " %.4f", guess.probability);
      line += (line.back() == ':' ? " " : ", ") + names[guess.number] + number;
    }
    if (options.json) {
      all.push_back({{"file", files[first + row]}, {"top", guesses}});
    } else {
      std::cout << line << "\n";
    }
  });
  DataFeed feed(data);
  for (uint64_t n = 0; n < data.micro_batches(); ++n, first += batch) {
    EvaluationReport unused;
    feed.begin_at(n);
    const Status status = evaluate(session.trainer(), feed.source(), 1, unused);
    feed.rethrow();
    session.require(status);
    session.require(reader.status());
  }
  if (options.json) std::cout << all.dump() << "\n";
  return status_at_end;
}

}  // namespace reprise
