// Gives micro-batches to lib, which does not use exceptions. An exception of the data set is stored
// here until the step has returned.
#pragma once

#include <exception>

#include "lib/batch.h"
#include "tools/run/data/dataset.h"

namespace reprise {

// Adapts a Dataset to lib's BatchSource.
class DataFeed {
 public:
  explicit DataFeed(Dataset& data) : data_(data) {}
  virtual ~DataFeed() = default;

  BatchSource source() {
    return {this,
            [](void* self, uint64_t step, uint32_t micro, BatchSink& sink) {
              return static_cast<DataFeed*>(self)->fill(step, micro, sink);
            },
            [](void* self, uint64_t step) {
              return static_cast<DataFeed*>(self)->count(&Dataset::labelled_in_step, step);
            },
            [](void* self, uint64_t step) {
              return static_cast<DataFeed*>(self)->count(&Dataset::weight_in_step, step);
            }};
  }
  // Sets the micro-batch with which an evaluation starts; source() adds it to the number of every
  // step.
  void begin_at(uint64_t step) { first_ = step; }
  bool has_thrown() const { return thrown_ != nullptr; }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 protected:
  virtual Status fill(uint64_t step, uint32_t micro, BatchSink& sink) {
    try {
      data_.fill(first_ + step, micro, sink);
      return ok_status();
    } catch (...) {
      thrown_ = std::current_exception();
      return {Code::kInputOutput, "the data cannot be read", 0};
    }
  }

 private:
  // Calls `counts`, a function of the data set, for a step and returns the count. Returns 0 if the
  // function throws; lib then refuses the step.
  template <typename Number>
  Number count(Number (Dataset::*counts)(uint64_t step), uint64_t step) {
    try {
      return (data_.*counts)(first_ + step);
    } catch (...) {
      thrown_ = std::current_exception();
      return 0;
    }
  }

  Dataset& data_;
  uint64_t first_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace reprise
