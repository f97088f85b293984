// The logits that an evaluation's loss head computes and does not keep: computed again on the host, from what the head reads.
// Here because sampling, predicting and accuracies by class need them, and a plan has no program of its own for that.
#pragma once

#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

// While it lives, every evaluation of the trainer calls `visit` for each row of a micro-batch before the loss head runs: a sample, or a
// position of a sequence. `label` is kIgnoredLabel where the row has none; `logits` has one number for each class.
class LogitsReader {
 public:
  using Visit = std::function<void(uint64_t row, int32_t label, std::vector<double>& logits)>;

  LogitsReader(Trainer& trainer, Visit visit);
  ~LogitsReader();
  LogitsReader(const LogitsReader&) = delete;
  LogitsReader& operator=(const LogitsReader&) = delete;

  void visit_only(uint64_t row) { first_ = row, end_ = row + 1; }  // of every micro-batch from now on
  Status status() const { return read_; }                          // what the arena has answered

 private:
  void before_row(uint32_t row);
  // Of activations, or of weights in whole blocks.
  std::vector<float> numbers_at(ArenaAddress from, DType dtype, uint64_t count);

  Trainer& trainer_;
  const Visit visit_;
  const RowObserver before_;
  uint64_t first_ = 0, end_ = ~uint64_t{0};
  Status read_;
};

}  // namespace reprise
