// See reference.h.
#include "tools/run/inference/reference.h"

#include <algorithm>
#include <memory>

#include "tools/files/io/error.h"
#include "tools/files/progress/progress_bar.h"
#include "tools/run/session/status_text.h"
#include "tools/run/session/stop_signal.h"

namespace reprise {
namespace {

constexpr double kQuietSeconds = 2;

// Feeds some rows of the data to lib as micro-batches.
class RowFeed {
 public:
  RowFeed(ReferencedRows& data, const std::vector<uint64_t>& rows, uint64_t batch)
      : data_(data), rows_(rows), batch_(batch) {}

  uint64_t batches() const { return (rows_.size() + batch_ - 1) / batch_; }
  std::vector<uint64_t> rows_of(uint64_t batch) const {
    const auto at = [&](uint64_t n) {
      return rows_.begin() + static_cast<long>(std::min<uint64_t>(n * batch_, rows_.size()));
    };
    return {at(batch), at(batch + 1)};
  }
  BatchSource source() { return {this, fill, nullptr, nullptr}; }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  static Status fill(void* self, uint64_t batch, uint32_t, BatchSink& sink) {
    RowFeed& feed = *static_cast<RowFeed*>(self);
    try {
      feed.data_.fill_rows(feed.rows_of(batch), sink);
      return ok_status();
    } catch (...) {
      feed.thrown_ = std::current_exception();
      return {Code::kInputOutput, "the data cannot be read", 0};
    }
  }

  ReferencedRows& data_;
  const std::vector<uint64_t>& rows_;
  const uint64_t batch_;
  std::exception_ptr thrown_;
};

}  // namespace

void set_references(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data, uint64_t first,
                    uint64_t end, bool quiet) {
  ReferencedRows* referenced = data.referenced();
  if (referenced == nullptr) return;
  const std::vector<uint64_t> rows = referenced->rows_read(first, end);
  const auto batch = static_cast<uint64_t>(recipe.batch), space = pair_count(*trainer.plan) / batch;
  RowFeed feed(*referenced, rows, batch);
  const double start = port.seconds();
  Progress progress("reference ", 0, feed.batches(), batch * static_cast<uint64_t>(recipe.sequence), "tokens", quiet,
                    start);
  const auto answers = std::make_unique<double[][2]>(pair_count(*trainer.plan));
  for (uint64_t n = 0; n < feed.batches(); ++n) {
    if (const int signal = stop_signal(); signal != 0)
      throw UserError(recipe.name + ": stopped by a signal while the reference was asked, before the first step",
                      static_cast<UserError::Status>(128 + signal));
    const Status status = log_probabilities(trainer, feed.source(), n, answers.get());
    feed.rethrow();
    if (!status.ok()) fail(recipe.name + ": reference", status, trainer.plan);
    const std::vector<uint64_t> asked = feed.rows_of(n);
    for (uint64_t b = 0; b < asked.size(); ++b) referenced->set_reference(asked[b], &answers[b * space]);
    if (const double now = port.seconds(); now - start > kQuietSeconds) progress.show(n + 1, "", now);
  }
  progress.finish();
}

}  // namespace reprise
