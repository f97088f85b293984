// What a net whose loss has no linear layer writes in an evaluation, and the labels beside it, read where that loss reads them.
// Here because metrics and predictions need them, and a plan has no program of its own for that.
#pragma once

#include <functional>
#include <vector>

#include "lib/trainer.h"

namespace reprise {

// Of one micro-batch.
struct NetOutputs {
  std::vector<float> numbers;  // [rows, columns]: of samples, of the two inputs of each pair, or of all places of maps
  uint64_t rows = 0;
  uint32_t columns = 0;
  DType stored = DType::kI32;  // the labels: one for each row, or of numbers, f32, as many as these; of pairs f32, one for each
  std::vector<unsigned char> labels;

  // The class of a row; -1 for none. Not of numbers.
  int32_t label(uint64_t row) const;
  const float* targets() const { return reinterpret_cast<const float*>(labels.data()); }
  // The first of the row's largest numbers.
  uint32_t likeliest(uint64_t row) const;
};

// While it lives, every evaluation of the trainer calls `visit` for each micro-batch before the loss runs.
class OutputReader {
 public:
  using Visit = std::function<void(const NetOutputs& outputs)>;

  OutputReader(Trainer& trainer, Visit visit);
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;

  Status status() const { return read_; }  // what the arena has answered

 private:
  void before_row(ProgramId id, uint32_t row);

  Trainer& trainer_;
  const Visit visit_;
  const RowObserver before_;
  NetOutputs outputs_;
  Status read_;
};

}  // namespace reprise
