// See evaluation.h.
#include "tools/run/inference/evaluation.h"

#include <algorithm>
#include <optional>

#include "tools/files/progress/progress_bar.h"
#include "tools/run/data/data_feed.h"
#include "tools/run/session/stop_signal.h"

namespace reprise {
namespace {

constexpr double kSilentSeconds = 2;

// Feeds the micro-batches of a set, until a signal requests the end.
class EvaluationFeed : public DataFeed {
 public:
  EvaluationFeed(const Port& port, const Recipe& recipe, Dataset& data, uint64_t batches,
                 const EvaluationLimits& limits)
      : DataFeed(data),
        port_(port),
        start_(port.seconds()),
        stops_(limits.stops),
        progress_("evaluating ", 0, batches,
                  static_cast<uint64_t>(recipe.batch) * static_cast<uint64_t>(std::max(1, recipe.sequence)),
                  counted_in(recipe), limits.quiet, start_) {}

  void finish() { progress_.finish(); }
  bool stopped() const { return stopped_; }

 protected:
  Status fill(uint64_t step, uint32_t micro, BatchSink& sink) override {
    stopped_ = stops_ ? stops_() : stop_signal() != 0;
    if (stopped_) return {Code::kInputOutput, "a signal asked the program to end", 0};
    const double now = port_.seconds();
    if (now - start_ > kSilentSeconds) progress_.show(step, "", now);
    return DataFeed::fill(step, micro, sink);
  }

 private:
  const Port& port_;
  const double start_;
  const std::function<bool()> stops_;
  Progress progress_;
  bool stopped_ = false;
};

}  // namespace

const char* counted_in(const Recipe& recipe) {
  switch (describe_model(recipe.model).input) {
    case ModelDescription::Input::kTokens: return "tokens";
    case ModelDescription::Input::kTexts: return "texts";
    case ModelDescription::Input::kImages: break;
  }
  return "images";
}

EvaluationResult evaluate_set(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data,
                              const EvaluationLimits& limits) {
  const uint64_t all = data.micro_batches(),
                 batches = limits.max_batches == 0 ? all : std::min(all, limits.max_batches);
  EvaluationFeed feed(port, recipe, data, batches, limits);
  EvaluationResult result;
  const ModelDescription model = describe_model(recipe.model);
  Metrics metrics(model);
  std::optional<OutputReader> reader;
  if (!model.output.empty()) reader.emplace(trainer, [&metrics](const NetOutputs& outputs) { metrics.add(outputs); });
  result.status = evaluate(trainer, feed.source(), batches, result.report);
  feed.finish();
  feed.rethrow();
  if (reader && result.status.ok()) result.status = reader->status();
  if (reader) result.metrics = metrics.values();
  result.has_accuracy =
      model.target != ModelDescription::Target::kNumbers && model.target != ModelDescription::Target::kSimilarity;
  result.stopped = feed.stopped();
  return result;
}

}  // namespace reprise
