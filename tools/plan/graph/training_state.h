// The State of a training (parameters, buffers, optimizer moments, scalars, in the order of the
// arena) and the update calls. State depends on model and optimizer alone, never on schedule or
// budget (DESIGN 3).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/plan/graph/link.h"

namespace reprise {

struct OptimizerChoice {
  Op update = Op::kSgd;
  float weight_decay = 0, momentum = 0, epsilon = 1e-8f;
  double beta1 = 0.9, beta2 = 0.999;
  bool nesterov = false;
  bool offload = false;           // true: moments of at least kMinOffloadedBytes are stored in memory of the host
  // kF32, kBf16, or kDynamic8: 8-bit codes for tensors of at least kMinCodedElements, else f32
  DType moments = DType::kF32;
  // adafactor: in step t the running means keep the share 1 - t^-decay_power of their old values
  double decay_power = 0.8;
  // adafactor: minimum RMS of the parameters by which a step is scaled; maximum RMS of an update
  float min_scale = 1e-3f, update_clip = 1;
  bool adalomo = false;           // adafactor: true for AdaLomo's form of the step
  uint32_t rank = 1, period = 200;  // apollo: rank of the projection; steps between two projections
  float scale = 1;                // apollo: factor on the update
  bool by_tensor = false;         // apollo: true for one factor per tensor (APOLLO-Mini), false for one per channel
  bool matches_adam = false;      // muon: true to scale its steps to the size of AdamW's
  float plain_rate = 1;           // muon: factor on the learning rate of parameters that AdamW updates
  float clip_norm = 0;            // maximum norm of all gradients together; 0: no clipping
  bool gradient_release = false;  // true: update each weight directly after the last write of its gradient
  uint32_t owners = 1;           // ranks over which moments, and the updates of their parameters, are distributed
};

// Minimum elements of a tensor with 8-bit moments; smaller ones keep them in f32, as in
// bitsandbytes.
constexpr uint64_t kMinCodedElements = 4096;
// Minimum bytes of a moment that is offloaded. For a smaller one, the time in which a card waits
// for its copies is not worth the saved memory.
constexpr uint64_t kMinOffloadedBytes = uint64_t{64} << 10;

struct TrainingState {
  std::vector<ValueId> state;      // in arena order; state[0] is the scalars
  std::vector<ValueId> carried;    // weight gradients that live across micro-batches, in the order of their parameters
  std::vector<Call> update;        // calls of the update program
  std::map<ValueId, uint32_t> state_index, carried_index;
  std::map<ValueId, uint32_t> owners;  // the rank of each moment that only one rank stores
};

// Adds norms and moments to the graph. If the optimizer releases gradients, inserts the updates
// into the links' backward. Call it before solve_links(). Returns the State and the calls that are
// left for the update program.
TrainingState build_training_state(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer);

}  // namespace reprise
