// Combines several observers into one, because a trainer accepts only one.
#pragma once

#include "lib/trainer.h"

namespace reprise {

class RowObservers {
 public:
  void add(const RowObserver& observer) { list_[count_++] = observer; }

  // Returns an observer that calls all added observers, or an empty one if none was added. It
  // refers to this object.
  RowObserver all() {
    if (count_ == 0) return {};
    const auto before = [](void* self, ProgramId id, uint32_t row) {
      for (const RowObserver& each : static_cast<RowObservers*>(self)->list_) {
        if (each.before != nullptr) each.before(each.state, id, row);
      }
    };
    const auto after = [](void* self, ProgramId id, uint32_t row) {
      for (const RowObserver& each : static_cast<RowObservers*>(self)->list_) {
        if (each.after != nullptr) each.after(each.state, id, row);
      }
    };
    return {this, before, after};
  }

 private:
  RowObserver list_[4] = {};
  uint32_t count_ = 0;
};

}  // namespace reprise
