// The part of the proof that concerns a whole step: every trained parameter is updated once, by its whole gradient, after the norm.
//
//   gradient written ... written ── reduce: entry e of the norms ── finish: clip factor ── update: parameter e
//                                   once, from the whole gradient   once, after every e    once, by that gradient
//
// With gradient release a parameter is updated inside the only micro-batch, before the norm is known: then nothing may clip.
// The order of State (plan.h) says which parameters are trained: entry e of the norms belongs to state[kFirstTrained + e].
#pragma once

#include "lib/fault.h"
#include "lib/plan.h"

namespace reprise::proof {

// Notes on one tensor, a part of CheckMark.
struct UpdateMark {
  uint32_t norm = 0;          // of a gradient: the entry of the norms that its value stands in, + 1
  bool applied = false;       // of a gradient: it has updated its parameter
  bool is_copied = false;     // of a gradient, in micro_last: the rank's own sum has been read
  bool begins_again = false;  // of a gradient, in micro_last: the sum of all ranks has begun in its place
  bool reduced = false;       // of a parameter: its entry of the norms has been written in this step
  bool updated = false;       // of a parameter: in this step
  uint32_t owed_by = 0;       // of a parameter: the rank that alone has updated it and has yet to spread it, + 1
};

class UpdateProof {
 public:
  constexpr explicit UpdateProof(const Plan& plan) : trained_(count_trained(plan)), plan_(plan) {}

  // Parameters that the plan trains; none where it has no norms.
  constexpr uint32_t trained() const { return trained_; }
  // Whether State begins as plan.h says.
  constexpr bool state_is_in_order() const {
    const Span<StateTensor> state = plan_.state;
    if (trained_ > state.count - smaller_of(state.count, kFirstTrained)) return false;
    for (uint32_t i = 0; i < state.count; ++i) {
      const StateKind kind = state.data[i].kind;
      if ((kind == StateKind::kScalars) != (i == kScalarsIndex)) return false;
      if (kind == StateKind::kNorms && i != kNormsIndex) return false;
      if (i >= kFirstTrained && i < kFirstTrained + trained_ && kind != StateKind::kParameter) return false;
    }
    return true;
  }

  // micro_add runs several times, or another program follows micro_first: neither may then update.
  constexpr bool may_update(ProgramId program) const {
    return program == ProgramId::kUpdate || (program == ProgramId::kMicroFirst && plan_.accumulate == 1);
  }

  // grad_norm.reduce takes the norm of `gradient` into `entry`.
  constexpr bool reduce(UpdateMark& gradient, UpdateMark& parameter, uint32_t entry) {
    if (finished_ || parameter.reduced || gradient.applied) return false;
    parameter.reduced = true;
    gradient.norm = entry + 1;
    ++reduced_;
    return true;
  }
  constexpr bool finish(float max_norm) {
    if (finished_ || reduced_ != trained_ || (updated_before_norm_ != 0 && max_norm != 0)) return false;
    return finished_ = true;
  }
  // `gradient` updates trained parameter number `entry`.
  constexpr bool update(UpdateMark& gradient, UpdateMark& parameter, uint32_t entry, ProgramId program) {
    if (parameter.updated || gradient.applied || gradient.norm != entry + 1) return false;
    if (program == ProgramId::kUpdate && !finished_) return false;
    parameter.updated = gradient.applied = true;
    ++updated_;
    if (!finished_) ++updated_before_norm_;
    return true;
  }
  // A gradient that is written again is another value; one that has been applied was not whole.
  static constexpr bool write(UpdateMark& gradient) {
    gradient.norm = 0;
    return !gradient.applied;
  }
  // `parameter` has been updated on rank `keeper` alone.
  constexpr void owe(UpdateMark& parameter, uint32_t keeper) {
    parameter.owed_by = keeper + 1;
    ++owed_;
  }
  // It goes from that rank to all.
  constexpr bool spread(UpdateMark& parameter, uint32_t root) {
    if (parameter.owed_by != root + 1) return false;
    parameter.owed_by = 0;
    --owed_;
    return true;
  }
  constexpr bool step_is_whole() const { return (finished_ || trained_ == 0) && updated_ == trained_ && owed_ == 0; }

 private:
  static constexpr uint32_t count_trained(const Plan& plan) {
    const bool has_norms = plan.state.count > kNormsIndex && plan.state[kNormsIndex].kind == StateKind::kNorms;
    return has_norms ? static_cast<uint32_t>(plan.state[kNormsIndex].tensor.elements()) : 0;
  }
  static constexpr uint32_t smaller_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

  uint32_t trained_;
  const Plan& plan_;
  uint32_t reduced_ = 0, updated_ = 0, updated_before_norm_ = 0, owed_ = 0;
  bool finished_ = false;
};

}  // namespace reprise::proof
