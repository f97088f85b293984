// See outputs.h.
#include "tools/run/inference/outputs.h"

#include <algorithm>
#include <cstring>

#include "lib/op.h"

namespace reprise {

int32_t NetOutputs::label(uint64_t row) const {
  if (!is_labelled(stored, labels.data(), row)) return -1;
  if (stored == DType::kU8) return labels[row];
  int32_t label;
  std::memcpy(&label, labels.data() + row * sizeof label, sizeof label);
  return label;
}

uint32_t NetOutputs::likeliest(uint64_t row) const {
  const float* first = numbers.data() + row * columns;
  return static_cast<uint32_t>(std::max_element(first, first + columns) - first);
}

OutputReader::OutputReader(Trainer& trainer, Visit visit)
    : trainer_(trainer), visit_(std::move(visit)), before_(trainer.observer), read_(ok_status()) {
  trainer.observer = {this,
                      [](void* self, ProgramId id, uint32_t row) {
                        static_cast<OutputReader*>(self)->before_row(id, row);
                      },
                      [](void* self, ProgramId id, uint32_t row) {
                        const RowObserver& other = static_cast<OutputReader*>(self)->before_;
                        if (other.after != nullptr) other.after(other.state, id, row);
                      }};
}

OutputReader::~OutputReader() { trainer_.observer = before_; }

void OutputReader::before_row(ProgramId id, uint32_t r) {
  if (before_.before != nullptr) before_.before(before_.state, id, r);
  using A = ClassLossEvaluate;  // the other losses have these arguments at the same positions
  static_assert(uint32_t{A::kX} == TargetLossEvaluate::kX && uint32_t{A::kLabels} == TargetLossEvaluate::kLabels);
  static_assert(uint32_t{A::kX} == PairLossEvaluate::kX && uint32_t{A::kLabels} == PairLossEvaluate::kLabels);
  const Program& program = trainer_.plan->program(id);
  const Row& row = program.rows[r];
  if (row.pass != Pass::kEvaluate ||
      (row.op != Op::kClassLoss && row.op != Op::kTargetLoss && row.op != Op::kPairLoss) || !read_.ok())
    return;
  const Ref* arguments = &program.arguments[row.first_argument];
  const Tensor &x = program.slots[ref_index(arguments[A::kX])].tensor,
               &labels = program.slots[ref_index(arguments[A::kLabels])].tensor;
  const ArenaAddress base = trainer_.region(Region::kProgram);
  std::vector<unsigned char> stored(x.used_bytes());
  outputs_.labels.resize(labels.used_bytes());
  read_ = trainer_.read(stored.data(), base + x.offset, stored.size());
  if (read_.ok()) read_ = trainer_.read(outputs_.labels.data(), base + labels.offset, outputs_.labels.size());
  if (!read_.ok()) return;
  outputs_.rows = x.leading_elements();
  outputs_.columns = static_cast<uint32_t>(x.last_dimension());
  outputs_.stored = labels.dtype;
  outputs_.numbers.resize(x.elements());
  const auto* narrow = reinterpret_cast<const Bf16*>(stored.data());
  if (x.dtype == DType::kBf16) std::copy(narrow, narrow + x.elements(), outputs_.numbers.begin());
  if (x.dtype == DType::kF32) std::memcpy(outputs_.numbers.data(), stored.data(), stored.size());
  visit_(outputs_);
}

}  // namespace reprise
