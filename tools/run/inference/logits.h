// Recomputes the logits on the host, because the loss head of an evaluation does not store them.
// Sampling, predictions and accuracies by class need them, and a plan has no program for them.
#pragma once

#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

// While the object exists, each evaluation of the trainer calls `visit` for each row of a
// micro-batch, before the loss head runs. A row is a sample, or a position of a sequence. `label`
// is kIgnoredLabel if the row has none; `logits` has one number for each class.
class LogitsReader {
 public:
  using Visit = std::function<void(uint64_t row, int32_t label, std::vector<double>& logits)>;

  LogitsReader(Trainer& trainer, Visit visit);
  ~LogitsReader();
  LogitsReader(const LogitsReader&) = delete;
  LogitsReader& operator=(const LogitsReader&) = delete;

  // Limits `visit` to this row of every micro-batch from now on
  void visit_only(uint64_t row) { first_ = row, end_ = row + 1; }
  Status status() const { return read_; }  // returns the first error of a read from the arena

 private:
  void before_row(uint32_t row);
  // Reads `count` numbers: activations, or weights in whole blocks. Returns them as f32.
  std::vector<float> numbers_at(ArenaAddress from, DType dtype, uint64_t count);

  Trainer& trainer_;
  const Visit visit_;
  const RowObserver before_;
  uint64_t first_ = 0, end_ = ~uint64_t{0};
  Status read_;
};

}  // namespace reprise
