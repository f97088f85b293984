// See predict.h. Predictions use the logits of the evaluation's loss head (logits.h), or the inputs
// of another loss (outputs.h).
#include "tools/run/inference/predict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/shown_text.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/data/data_feed.h"
#include "tools/run/data/unlabelled.h"
#include "tools/run/inference/evaluation.h"
#include "tools/run/inference/logits.h"
#include "tools/run/inference/outputs.h"
#include "tools/run/inference/predictions.h"
#include "tools/run/inference/reference.h"
#include "tools/run/session/session.h"
#include "tools/run/session/stop_signal.h"
#include "tools/run/snapshots/snapshot.h"

namespace reprise {
namespace {

using nlohmann::ordered_json;

struct ClassTally {
  uint64_t labelled = 0, correct = 0;
  // Returns NaN if the class has no sample.
  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(labelled); }
};

// Returns the class with the largest logit; the first one if several are equal, as in the loss
// head.
uint32_t likeliest(const std::vector<double>& logits) {
  return static_cast<uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Returns the names of the outputs (classes or numbers) in the snapshot; their indices if it has no
// names.
std::vector<std::string> names_of_outputs(const Recipe& recipe, const ProgramOptions& options) {
  std::vector<std::string> names;
  if (!options.resume.empty()) names = read_facts(options.resume).class_names;
  const ModelDescription model = describe_model(recipe.model);
  const size_t count = model.output.empty() ? static_cast<size_t>(model.classes) : model.output.back();
  for (size_t n = names.size(); n < count; ++n) names.push_back(std::to_string(n));
  return names;
}

void require_samples(const Recipe& recipe, const char* option) {
  if (recipe.sequence == 0) return;
  throw UserError(recipe.name + ": " + option + ": is for nets of images or texts", UserError::kUsage);
}

// Throws UserError if the model does not predict classes, of samples or of pixels.
void require_classes(const Recipe& recipe, const char* option) {
  require_samples(recipe, option);
  if (describe_model(recipe.model).classes > 0) return;
  throw UserError(recipe.name + ": " + option + ": is for nets that tell classes apart", UserError::kUsage);
}

// Returns the name of the evaluated weights, for messages.
std::string weights_of(const Session& session, const ProgramOptions& options) {
  return !options.resume.empty()      ? options.resume
         : !session.weights().empty() ? session.weights()
                                      : session.recipe().name;
}

ordered_json evaluation_json(const EvaluationResult& result, uint64_t step, const std::vector<std::string>& names,
                             const std::vector<ClassTally>& tallies) {
  ordered_json json = {{"step", step}, {"loss", result.report.loss}, {"accuracy", result.accuracy()},
                       {"labelled", result.report.labelled}, {"correct", result.report.correct}};
  for (const Metric& metric : result.metrics) {
    json[metric.name] = metric.value;
    if (!metric.each.empty()) json[metric.each_name] = metric.each;
  }
  for (size_t c = 0; c < tallies.size(); ++c) {
    json["classes"].push_back({{"name", names[c]},
                               {"labelled", tallies[c].labelled},
                               {"correct", tallies[c].correct},
                               {"accuracy", tallies[c].accuracy()}});
  }
  return json;
}

void print_evaluation(const EvaluationResult& result, uint64_t step, const std::vector<std::string>& names,
                      const std::vector<ClassTally>& tallies, bool json) {
  if (json) {
    std::cout
        << evaluation_json(result, step, names, tallies).dump(-1, ' ', false, ordered_json::error_handler_t::replace)
        << "\n";
    return;
  }
  char accuracy[96] = "";
  if (result.has_accuracy) {
    std::snprintf(accuracy, sizeof accuracy, ", accuracy %.2f%% (%llu of %llu)", 100 * result.accuracy(),
                  static_cast<unsigned long long>(result.report.correct),
                  static_cast<unsigned long long>(result.report.labelled));
  }
  char loss[32];
  std::snprintf(loss, sizeof loss, "%.6g", result.report.loss);
  std::cout << "step " << step << ": loss " << loss << accuracy << metrics_text(result.metrics) << "\n";
  for (size_t c = 0; c < tallies.size(); ++c) {
    char share[96] = "      - (no sample)";
    if (tallies[c].labelled > 0) {
      std::snprintf(share, sizeof share, "%6.2f%% (%llu of %llu)", 100 * tallies[c].accuracy(),
                    static_cast<unsigned long long>(tallies[c].correct),
                    static_cast<unsigned long long>(tallies[c].labelled));
    }
    std::cout << std::left << std::setw(24) << shown_text(names[c]) << " " << share << "\n";
  }
}

void count_classes(const NetOutputs& outputs, std::vector<ClassTally>& tallies) {
  for (uint64_t row = 0; row < outputs.rows; ++row) {
    const int32_t label = outputs.label(row);
    if (label < 0) continue;
    ++tallies[static_cast<size_t>(label)].labelled;
    tallies[static_cast<size_t>(label)].correct += outputs.likeliest(row) == static_cast<uint32_t>(label);
  }
}

struct Guess {
  uint32_t number;
  double probability;
};

std::vector<double> probabilities_of(const std::vector<double>& logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  const double sum = std::accumulate(logits.begin(), logits.end(), 0.0,
                                     [maximum](double s, double logit) { return s + std::exp(logit - maximum); });
  std::vector<double> probabilities;
  for (const double logit : logits) probabilities.push_back(std::exp(logit - maximum) / sum);
  return probabilities;
}

// Returns the five most probable classes, or all classes if there are fewer.
std::vector<Guess> top_guesses(const std::vector<double>& logits) {
  constexpr size_t kShown = 5;
  const std::vector<double> probabilities = probabilities_of(logits);
  std::vector<Guess> guesses(logits.size());
  for (uint32_t c = 0; c < logits.size(); ++c) guesses[c] = {c, probabilities[c]};
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& a, const Guess& b) { return a.probability > b.probability; });
  guesses.resize(std::min(guesses.size(), kShown));
  return guesses;
}

}  // namespace

int evaluate_weights(const CompiledPlan& compiled, const ProgramOptions& options) {
  std::unique_ptr<Dataset> data;
  Session session(compiled, options, nullptr, [&](Session& begun) {
    data = open_dataset(begun.recipe(), Split::kEvaluation);
    if (data == nullptr) return;
    const uint64_t batches =
        options.batches == 0 ? data->micro_batches() : std::min(options.batches, data->micro_batches());
    set_references(begun.trainer(), begun.port(), begun.recipe(), *data, 0, batches, options.quiet);
  });
  const Recipe& recipe = session.recipe();
  if (options.per_class) require_classes(recipe, "--per-class");
  show_untrained(session);
  if (data == nullptr) data = open_dataset(recipe, Split::kEvaluation);
  if (data == nullptr)
    throw UserError(recipe.name +
                    ": --evaluate: the recipe names no data to evaluate on; give data.eval_path, or data.held_out");
  if (session.is_resumed()) require_same_classes(options.resume, data->class_names());
  std::vector<ClassTally> tallies(options.per_class ? static_cast<size_t>(describe_model(recipe.model).classes) : 0);
  std::optional<LogitsReader> reader;
  std::optional<OutputReader> outputs;
  const bool is_head = describe_model(recipe.model).output.empty();
  if (options.per_class && !is_head)
    outputs.emplace(session.trainer(), [&tallies](const NetOutputs& of_batch) { count_classes(of_batch, tallies); });
  if (options.per_class && is_head) {
    reader.emplace(session.trainer(), [&tallies](uint64_t, int32_t label, const std::vector<double>& logits) {
      if (label == kIgnoredLabel) return;
      ClassTally& tally = tallies[static_cast<size_t>(label)];
      ++tally.labelled;
      tally.correct += likeliest(logits) == static_cast<uint32_t>(label);
    });
  }
  const Doing doing(Activity::kEvaluating);
  const EvaluationResult result = evaluate_set(session.trainer(), session.port(), recipe, *data,
                                               {.max_batches = options.batches, .quiet = options.quiet});
  if (result.stopped) {
    std::cerr << recipe.name << ": the evaluation was stopped by a signal\n";
    return 128 + stop_signal();
  }
  session.require(result.status);
  if (reader) session.require(reader->status());
  if (outputs) session.require(outputs->status());
  print_evaluation(result, session.trainer().step,
                   options.per_class ? names_of_outputs(recipe, options) : std::vector<std::string>(), tallies,
                   options.json);
  if (std::isfinite(result.report.loss)) return 0;
  std::cerr << weights_of(session, options) << ": --evaluate: the loss is not finite: these weights have diverged\n";
  return UserError::kBadInput;
}

namespace {

// Evaluates the samples in micro-batches and prints the results that say() receives. Reports each
// sample that cannot be read.
class PredictionWalk {
 public:
  PredictionWalk(Session& session, const ProgramOptions& options)
      : session_(session),
        json_(options.json),
        data_(open_unlabelled(session.recipe(), options.predict)),
        at_once_(
            static_cast<uint64_t>(session.recipe().batch * describe_model(session.recipe().model).inputs_of_sample())) {
  }

  const std::vector<UnlabelledSample>& samples() const { return data_->samples(); }

  // Returns the index of the sample in row `n` of the micro-batch; kNoSample if the row has none.
  // If the sample cannot be read, reports the fault and returns kNoSample, too.
  static constexpr uint64_t kNoSample = ~uint64_t{0};
  uint64_t sample(uint64_t n) {
    const uint64_t sample = first_ + n;
    if (sample >= samples().size()) return kNoSample;
    const std::string& fault = samples()[sample].fault;
    if (fault.empty()) return sample;
    std::cerr << fault << "\n";
    if (json_) say(sample, {{"error", fault}}, "");
    status_at_end_ = UserError::kBadInput;
    return kNoSample;
  }
  // Prints the result for a sample. `value` is the result as JSON; `line` is the text after the
  // sample's name.
  void say(uint64_t n, const ordered_json& value, const std::string& line) {
    const UnlabelledSample& sample = samples()[n];
    if (!json_) {
      std::cout << sample.place << ":" << line << "\n";
      return;
    }
    ordered_json entry = {{"file", sample.file}};
    if (sample.line > 0) entry["line"] = sample.line;
    if (sample.line > 0 && sample.fault.empty()) entry["text"] = sample.text;
    if (sample.text_pair && sample.fault.empty()) entry["text_pair"] = *sample.text_pair;
    entry.update(value);
    all_.push_back(std::move(entry));
  }

  // Evaluates all samples and returns the exit status.
  template <typename Reader>
  int run(const Reader& reader) {
    const Doing doing(Activity::kPredicting);
    std::optional<LongWork> work;
    // Without --json, the printed results already show the progress.
    if (json_) work.emplace("predicting " + std::to_string(samples().size()) + " samples");
    DataFeed feed(*data_);
    for (uint64_t n = 0; n < data_->micro_batches(); ++n, first_ += at_once_) {
      if (stop_signal() != 0)
        throw UserError(session_.recipe().name + ": the prediction was stopped by a signal",
                        static_cast<UserError::Status>(128 + stop_signal()));
      EvaluationReport unused;
      feed.begin_at(n);
      const Status status = evaluate(session_.trainer(), feed.source(), 1, unused);
      feed.rethrow();
      session_.require(status);
      session_.require(reader.status());
      if (work) work->done(static_cast<double>(n + 1) / static_cast<double>(data_->micro_batches()));
    }
    work.reset();
    if (json_) std::cout << all_.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
    return status_at_end_;
  }

 private:
  Session& session_;
  const bool json_;
  const std::unique_ptr<UnlabelledSet> data_;
  const uint64_t at_once_;  // samples in a micro-batch; the two inputs of a pair count as two
  ordered_json all_ = ordered_json::array();
  uint64_t first_ = 0;  // index of the micro-batch's first sample
  int status_at_end_ = 0;
};

void say_classes(PredictionWalk& walk, uint64_t sample, const std::vector<std::string>& names,
                 const std::vector<double>& logits) {
  ordered_json guesses = ordered_json::array();
  std::string line;
  for (const Guess& guess : top_guesses(logits)) {
    guesses.push_back({{"class", guess.number}, {"name", names[guess.number]}, {"probability", guess.probability}});
    char number[32];
    std::snprintf(number, sizeof number, " %.4f", guess.probability);
    line += (line.empty() ? " " : ", ") + names[guess.number] + number;
  }
  walk.say(sample, {{"top", guesses}}, line);
}

double probability_of(double logit) { return 1 / (1 + std::exp(-logit)); }

// Predictions that are numbers: the probability of each class or label, the numbers that the net
// predicts, or one vector for each input if the model compares pairs.
class NumberPredictions {
 public:
  NumberPredictions(PredictionWalk& walk, const Recipe& recipe, std::vector<std::string> names,
                    const ProgramOptions& options)
      : walk_(walk), model_(describe_model(recipe.model)), names_(std::move(names)) {
    const std::string& to = options.predict_to;
    if (to.empty()) return;
    if (!to.ends_with(".csv") && !to.ends_with(".npy"))
      throw UserError(to + ": --predict-to: must end in .csv or .npy", UserError::kUsage);
    std::vector<std::string> inputs = options.inputs(), others = inputs_of(recipe);
    inputs.insert(inputs.end(), others.begin(), others.end());
    to_.emplace(to, kPredictions, inputs);
    to_->require_writable();
  }

  // Receives the numbers that the loss reads in row `n` of the micro-batch.
  void take(uint64_t n, std::vector<double> numbers) {
    const uint64_t sample = walk_.sample(n);
    if (sample == PredictionWalk::kNoSample) return;
    if (model_.target == ModelDescription::Target::kClass) {
      say_classes(walk_, sample, names_, numbers);
      numbers = probabilities_of(numbers);
    } else {
      if (model_.target == ModelDescription::Target::kLabels)
        std::transform(numbers.begin(), numbers.end(), numbers.begin(), probability_of);
      model_.has_pairs() ? say_vector(sample, numbers) : say_values(sample, numbers);
    }
    const UnlabelledSample& given = walk_.samples()[sample];
    are_texts_ = given.line > 0;
    taken_.push_back({are_texts_ ? given.text : given.file});
    if (given.text_pair) taken_.back().push_back(*given.text_pair);
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
  }

  void write() const {
    if (to_) write_numbers(*to_, {are_texts_ ? "text" : "image", "text_pair"}, taken_, names_, numbers_);
  }

 private:
  void say_vector(uint64_t sample, const std::vector<double>& numbers) {
    std::string line;
    for (const double value : numbers) {
      char number[32];
      std::snprintf(number, sizeof number, " %.6g", value);
      line += number;
    }
    walk_.say(sample, {{"vector", numbers}}, line);
  }
  void say_values(uint64_t sample, const std::vector<double>& numbers) {
    ordered_json values = ordered_json::array();
    std::string line;
    for (size_t i = 0; i < numbers.size(); ++i) {
      values.push_back({{"name", names_[i]},
                        {model_.target == ModelDescription::Target::kLabels ? "probability" : "value", numbers[i]}});
      char number[32];
      std::snprintf(number, sizeof number, " %.6g", numbers[i]);
      line += (i == 0 ? " " : ", ") + names_[i] + number;
    }
    walk_.say(sample, {{"values", values}}, line);
  }

  PredictionWalk& walk_;
  const ModelDescription model_;
  const std::vector<std::string> names_;
  std::optional<Output> to_;
  bool are_texts_ = false;
  std::vector<std::vector<std::string>> taken_;  // for each row: the path of its picture, or its one or two texts
  std::vector<float> numbers_;                   // the predictions of these rows
};

// Predictions that are maps: one file for each picture.
class MapPredictions {
 public:
  MapPredictions(PredictionWalk& walk, const Recipe& recipe, const std::string& to)
      : walk_(walk), model_(describe_model(recipe.model)), to_(to) {
    if (to.empty())
      throw UserError(recipe.name + ": --predict: the net writes maps; say with --predict-to DIR where",
                      UserError::kUsage);
    require_different_stems();
    require_no_loss();
    std::error_code error;
    std::filesystem::create_directories(to, error);
    if (error) throw UserError(to + ": --predict-to: cannot be made: " + error.message());
  }

  void take(const NetOutputs& outputs) {
    uint64_t places = 1;
    for (size_t side = 0; side + 1 < model_.output.size(); ++side) places *= model_.output[side];
    for (uint64_t n = 0; n < outputs.rows / places; ++n) {
      const uint64_t sample = walk_.sample(n);
      if (sample != PredictionWalk::kNoSample) take_map(outputs, n * places, places, sample);
    }
  }

 private:
  // Throws UserError if two pictures have the same stem, because their maps would have the same
  // name.
  void require_different_stems() const {
    std::map<std::string, std::string> file_of;
    for (const UnlabelledSample& sample : walk_.samples()) {
      const auto [found, is_new] = file_of.emplace(std::filesystem::path(sample.file).stem().string(), sample.file);
      if (!is_new)
        throw UserError(sample.file + ": --predict-to: has the name of " + found->second +
                            ", and their maps would be one file; predict them apart",
                        UserError::kUsage);
    }
  }

  // Throws UserError if `to_` is the folder of the pictures, or contains files that would be
  // replaced and are not maps. Called before a file is written.
  void require_no_loss() const {
    std::set<std::string> folders;
    for (const UnlabelledSample& sample : walk_.samples())
      folders.insert(std::filesystem::absolute(sample.file).parent_path().string());
    for (const std::string& folder : folders) {
      if (is_same_file(folder, to_))
        throw UserError(to_ + ": --predict-to: is the folder of " + walk_.samples()[0].file +
                        ", which is read; give another folder");
    }
    for (const UnlabelledSample& sample : walk_.samples()) (void)output_for(sample.file);
  }

  bool writes_classes() const { return model_.target == ModelDescription::Target::kClassMap; }
  Output output_for(const std::string& file) const {
    return {to_ + "/" + std::filesystem::path(file).stem().string() + (writes_classes() ? ".png" : ".npy"),
            kMap,
            {file}};
  }

  // Writes a map at the size of the model's output: classes as bytes, numbers as f32 [H,W,K].
  void take_map(const NetOutputs& outputs, uint64_t first, uint64_t places, uint64_t sample) {
    const Output output = output_for(walk_.samples()[sample].file);
    if (writes_classes()) {
      std::vector<uint8_t> classes(places);
      for (uint64_t place = 0; place < places; ++place)
        classes[place] = static_cast<uint8_t>(outputs.likeliest(first + place));
      const uint32_t width = model_.output[model_.output.size() - 2];
      output.write([&](const std::string& path) {
        write_grey_png(path, static_cast<uint32_t>(places / width), width, classes.data());
      });
    } else {
      output.write([&](const std::string& path) {
        write_npy(path, {model_.output.begin(), model_.output.end()}, outputs.numbers.data() + first * outputs.columns);
      });
    }
    walk_.say(sample, {{"written", output.path()}}, " " + output.path());
  }

  PredictionWalk& walk_;
  const ModelDescription model_;
  const std::string to_;
};

int predict_maps(Session& session, PredictionWalk& walk, const std::string& to) {
  MapPredictions predictions(walk, session.recipe(), to);
  const OutputReader reader(session.trainer(), [&](const NetOutputs& outputs) { predictions.take(outputs); });
  return walk.run(reader);
}

int predict_numbers(Session& session, PredictionWalk& walk, NumberPredictions& predictions) {
  if (describe_model(session.recipe().model).output.empty()) {
    const LogitsReader reader(session.trainer(), [&](uint64_t row, int32_t, const std::vector<double>& logits) {
      predictions.take(row, logits);
    });
    return walk.run(reader);
  }
  const OutputReader reader(session.trainer(), [&](const NetOutputs& outputs) {
    for (uint64_t row = 0; row < outputs.rows; ++row) {
      const float* numbers = outputs.numbers.data() + row * outputs.columns;
      predictions.take(row, {numbers, numbers + outputs.columns});
    }
  });
  return walk.run(reader);
}

}  // namespace

int predict_samples(const CompiledPlan& compiled, const ProgramOptions& options) {
  Session session(compiled, options);
  const Recipe& recipe = session.recipe();
  require_samples(recipe, "--predict");
  show_untrained(session);
  PredictionWalk walk(session, options);
  const ModelDescription model = describe_model(recipe.model);
  if (model.output.size() > 1) return predict_maps(session, walk, options.predict_to);
  NumberPredictions predictions(walk, recipe, names_of_outputs(recipe, options), options);
  const int status = predict_numbers(session, walk, predictions);
  predictions.write();
  return status;
}

}  // namespace reprise
