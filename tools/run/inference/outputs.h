// Reads the outputs of a model and their labels before the loss runs, for models whose loss
// contains no linear layer. Metrics and predictions need them, and a plan has no program for them.
#pragma once

#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

// The outputs and labels of one micro-batch.
struct NetOutputs {
  // [rows, columns]. A row is a sample, an input of a pair, or a pixel of a map.
  std::vector<float> numbers;
  uint64_t rows = 0;
  uint32_t columns = 0;
  // `stored` is the type of `labels`. Classes: one label per row. Numbers: f32, one for each
  // element of `numbers`. Pairs: one f32 for each pair.
  DType stored = DType::kI32;
  std::vector<unsigned char> labels;

  // Returns the class of a row; -1 if it has none. The labels must not be numbers.
  int32_t label(uint64_t row) const;
  const float* targets() const { return reinterpret_cast<const float*>(labels.data()); }
  // Returns the column of the row's largest number; the first one if several are equal.
  uint32_t likeliest(uint64_t row) const;
};

// While the object exists, each evaluation of the trainer calls `visit` for each micro-batch,
// before the loss runs.
class OutputReader {
 public:
  using Visit = std::function<void(const NetOutputs& outputs)>;

  OutputReader(Trainer& trainer, Visit visit);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  Status status() const { return read_; }  // returns the first error of a read from the arena

 private:
  void before_row(ProgramId id, uint32_t row);

  Trainer& trainer_;
  const Visit visit_;
  const RowObserver before_;
  NetOutputs outputs_;
  Status read_;
};

}  // namespace reprise
