// Micro-batches for lib, which knows no exceptions: what a data set throws waits here until the step has returned.
#pragma once

#include <exception>

#include "lib/batch.h"
#include "tools/data/dataset.h"

namespace reprise {

class DataFeed {
 public:
  explicit DataFeed(Dataset& data) : data_(data) {}
  virtual ~DataFeed() = default;

  BatchSource source() {
    return {this, [](void* self, uint64_t step, uint32_t micro, BatchSink& sink) { return static_cast<DataFeed*>(self)->fill(step, micro, sink); },
            [](void* self, uint64_t step) { return static_cast<DataFeed*>(self)->count(&Dataset::labelled_in_step, step); },
            [](void* self, uint64_t step) { return static_cast<DataFeed*>(self)->count(&Dataset::weight_in_step, step); }};
  }
  // The micro-batch that an evaluation gets as its first.
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
  // No label where the data set throws: the step is then refused.
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
