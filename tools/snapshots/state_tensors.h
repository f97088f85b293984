// State <-> files: parameters and buffers by their names, in the layouts of other frameworks.
// Here because only here a convolution weight's [K,R,S,C] meets the file's [K,C,R,S].
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/trainer.h"
#include "tools/graph/graph.h"
#include "tools/formats/safetensors.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// The shape that files give to a tensor: a convolution's weight is [K,C,R,S] there.
std::vector<uint64_t> stored_shape(const Tensor& tensor);

// Which tensors of the state a file holds.
// kModel: parameters and buffers. kSaved: of them what a snapshot holds, which of a training of adapters is what trains, these and modules
// that are trained whole: the rest is in the model's own files. kOptimizer: moments.
enum class StatePart { kModel, kSaved, kOptimizer };

// Whether a file of that part holds a tensor of the plan's state.
bool belongs(const Plan& plan, const StateTensor& state, StatePart part);

// Every tensor of that part must be in the source with its shape, stored as it is in the state; whatever holds floats becomes f32, which is
// exact. GPT-2's names are also found without "transformer.". Other tensors of the source are ignored. Values that are not finite, and variances
// below zero, are refused. Throws UserError and changes nothing; but where the file has lost bytes since it was opened, some tensors have
// changed: the state is not to be used.
void read_state(const Trainer& trainer, const WeightSource& source, StatePart part);

// Which weights a training takes from a file that is another net's in part.
struct InitialRules {
  std::vector<std::string> skip;  // patterns of names in the state: they keep their initial values
  bool allow_missing = false;     // so do those that the file has not
};
struct InitialReport {
  uint64_t loaded = 0;                          // tensors of the state
  std::vector<std::string> unused;              // tensors of the source that nobody asked for
  std::vector<std::string> skipped, left_over;  // by a pattern; not in the file
  bool drops_head = false;                      // of the unused is a head that the model, being tied, has no place for, and it is another one
};
// As read_state, of parameters and buffers. A count of batches (`num_batches_tracked`) may be missing in any case. A skip pattern that
// matches no name is refused. Tensors that do not fit are named together, with the option and the recipe's key that would skip them.
// Magnitudes of DoRA start as these weights' (magnitudes.h).
InitialReport read_initial_weights(const Trainer& trainer, const WeightSource& source, const InitialRules& rules);

// Gives frozen weights that bind cannot draw, because they are stored in fewer bits than bf16, their initial values; then magnitudes of DoRA
// theirs.
void draw_stored_weights(const Trainer& trainer);

// Before there is a plan: refuses what read_initial_weights would refuse of a graph's parameters by names, shapes and types.
void require_weights_fit(const Graph& graph, const WeightSource& source, const InitialRules& rules);

// Writes that part, each tensor stored as it is in the state. Throws UserError. `metadata` goes into the header.
FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata);

}  // namespace reprise
