// The State of a training: parameters, buffers, optimizer moments, scalars, in the order of the arena; and the update calls.
// Here because state depends on model and optimizer alone, never on schedule or budget (DESIGN 3).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tools/graph/link.h"

namespace reprise {

struct OptimizerChoice {
  Op update = Op::kSgd;
  float weight_decay = 0, momentum = 0, epsilon = 1e-8f;
  double beta1 = 0.9, beta2 = 0.999;
  bool nesterov = false;
  bool offload = false;           // moments of kLeastOffloadedBytes at least lie in memory of the host
  DType moments = DType::kF32;    // or kBf16; kDynamic8 for tensors of kLeastCodedElements at least
  double decay_power = 0.8;       // adafactor, as the next three
  float least_scale = 1e-3f, update_clip = 1;
  bool adalomo = false;
  uint32_t rank = 1, period = 200;  // apollo, as the next two
  float scale = 1;
  bool by_tensor = false;
  bool matches_adam = false;      // muon: steps have the size of AdamW's
  float plain_rate = 1;           // muon: of the learning rate, for what AdamW updates
  float clip_norm = 0;            // 0: none
  bool gradient_release = false;  // update each weight right after its gradient's last write
  uint32_t keepers = 1;           // ranks that keep moments among them, and update what these belong to
};

// Smaller tensors keep their moments in f32, as bitsandbytes has it.
constexpr uint64_t kLeastCodedElements = 4096;
// A copy of less costs a card more in waiting than in bytes.
constexpr uint64_t kLeastOffloadedBytes = uint64_t{64} << 10;

struct TrainingState {
  std::vector<ValueId> state;      // in arena order; state[0] is the scalars
  std::vector<ValueId> carried;    // weight gradients that live across micro-batches, in the order of their parameters
  std::vector<Call> update;        // the update program
  std::map<ValueId, uint32_t> state_index, carried_index;
  std::map<ValueId, uint32_t> keepers;  // of moments that one rank alone has
};

// Adds norms and moments to the graph, appends the updates of released gradients to the links' backward (before
// solve_links), and answers what is left for the update program.
TrainingState build_training_state(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer);

}  // namespace reprise
