// The part of the proof that concerns a whole step: each trained parameter is updated once, by its
// complete gradient and after the norm.
//
//   gradient written ─ reduce: entry e of the norms ─ finish: clip factor ─ update: parameter e
//                      once, from whole gradient      once, after every e   once, by that gradient
//
// With gradient release a parameter is updated inside the only micro-batch, before the norm is
// known. Then nothing may clip the gradient.
// The order of State (plan.h) defines which parameters are trained: entry e of the norms belongs to
// state[kFirstTrained + e].
#pragma once

#include "lib/fault.h"
#include "lib/plan.h"

namespace reprise::proof {

// The notes of this part of the proof on one tensor, a part of CheckMark.
struct UpdateMark {
  uint32_t norm = 0;          // Gradient: 1 + the index of its norm among the norms; 0: its norm is not known.
  bool applied = false;       // Gradient: true if its parameter has been updated.
  bool is_copied = false;     // Gradient, in micro_last: true if the rank's own sum has been read.
  bool begins_again = false;  // Gradient, in micro_last: true if the sum over all ranks has begun.
  bool reduced = false;       // Parameter: true if its norm has been written in this step.
  bool updated = false;       // Parameter: true if it has been updated in this step.
  uint32_t pending_root = 0;       // Parameter: 1 + the rank that has updated it and must still broadcast it; 0: none.
};

// The state of a step's updates. Functions that return bool return false on a fault.
class UpdateProof {
 public:
  // Starts the proof of `plan`, which is borrowed for the object's lifetime.
  constexpr explicit UpdateProof(const Plan& plan) : trained_(count_trained(plan)), plan_(plan) {}

  // Returns the number of trained parameters; 0 if the plan has no norms.
  constexpr uint32_t trained() const { return trained_; }
  // True if State begins with scalars, norms and trained parameters, as plan.h states.
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

  // True if a row of `program` may update parameters. The program of a micro-batch may update them
  // only if the step has no other micro-batch.
  constexpr bool may_update(ProgramId program) const {
    return program == ProgramId::kUpdate || (program == ProgramId::kMicroFirst && plan_.accumulate == 1);
  }

  // Notes that grad_norm.reduce stores the norm of `gradient` in `entry`.
  constexpr bool reduce(UpdateMark& gradient, UpdateMark& parameter, uint32_t entry) {
    if (finished_ || parameter.reduced || gradient.applied) return false;
    parameter.reduced = true;
    gradient.norm = entry + 1;
    ++reduced_;
    return true;
  }
  // Notes that grad_norm.finish computes the clip factor. `max_norm` is the norm above which the
  // row clips; 0 if it does not clip.
  constexpr bool finish(float max_norm) {
    if (finished_ || reduced_ != trained_ || (updated_before_norm_ != 0 && max_norm != 0)) return false;
    return finished_ = true;
  }
  // Notes that `gradient` updates the trained parameter with number `entry`.
  constexpr bool update(UpdateMark& gradient, UpdateMark& parameter, uint32_t entry, ProgramId program) {
    if (parameter.updated || gradient.applied || gradient.norm != entry + 1) return false;
    if (program == ProgramId::kUpdate && !finished_) return false;
    parameter.updated = gradient.applied = true;
    ++updated_;
    if (!finished_) ++updated_before_norm_;
    return true;
  }
  // Notes a write to a gradient, whose norm is then unknown. Returns false if the gradient has
  // already updated its parameter, because it was not complete then.
  static constexpr bool write(UpdateMark& gradient) {
    gradient.norm = 0;
    return !gradient.applied;
  }
  // Notes that rank `owner` alone has updated `parameter`, so that its broadcast is pending.
  constexpr void note_pending(UpdateMark& parameter, uint32_t owner) {
    parameter.pending_root = owner + 1;
    ++pending_;
  }
  // Notes the broadcast of `parameter` from rank `root` to all ranks.
  constexpr bool share(UpdateMark& parameter, uint32_t root) {
    if (parameter.pending_root != root + 1) return false;
    parameter.pending_root = 0;
    --pending_;
    return true;
  }
  // True if each trained parameter has been updated, after the norm, and no broadcast is pending.
  constexpr bool step_is_whole() const { return (finished_ || trained_ == 0) && updated_ == trained_ && pending_ == 0; }

 private:
  // Returns the number of norms, which is the number of trained parameters; 0 if the plan has none.
  static constexpr uint32_t count_trained(const Plan& plan) {
    const bool has_norms = plan.state.count > kNormsIndex && plan.state[kNormsIndex].kind == StateKind::kNorms;
    return has_norms ? static_cast<uint32_t>(plan.state[kNormsIndex].tensor.elements()) : 0;
  }
  static constexpr uint32_t smaller_of(uint32_t a, uint32_t b) { return a < b ? a : b; }

  uint32_t trained_;
  const Plan& plan_;
  uint32_t reduced_ = 0, updated_ = 0, updated_before_norm_ = 0, pending_ = 0;
  bool finished_ = false;
};

}  // namespace reprise::proof
