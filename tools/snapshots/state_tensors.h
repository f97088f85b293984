// State <-> files: parameters, buffers and moments by their names, in the layouts of other frameworks.
// Here because a snapshot holds a part of the state, whole or not at all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/trainer.h"
#include "tools/formats/safetensors.h"
#include "tools/snapshots/tensor_files.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// Which tensors of the state a file holds.
// kModel: parameters and buffers. kSaved: of them what a snapshot holds, which of a training of adapters is what trains, these and modules
// that are trained whole: the rest is in the model's own files. kOptimizer: moments.
enum class StatePart { kModel, kSaved, kOptimizer };

// Whether a file of that part holds a tensor of the plan's state.
bool belongs(const Plan& plan, const StateTensor& state, StatePart part);

// What is asked of files for a tensor of the plan's state.
WantedTensor wanted(const Plan& plan, const StateTensor& state);

// Where the bytes of a tensor go that is not streamed.
TensorSink sink_of(const Trainer& trainer, uint32_t index);

// Every tensor of that part must be in the source with its shape, stored as it is in the state; whatever holds floats becomes f32, which is
// exact. GPT-2's names are also found without "transformer.". Other tensors of the source are ignored. Values that are not finite, and variances
// below zero, are refused. Throws UserError and changes nothing; but where the file has lost bytes since it was opened, some tensors have
// changed: the state is not to be used.
void read_state(const Trainer& trainer, const WeightSource& source, StatePart part);

// Writes that part, each tensor stored as it is in the state. Throws UserError. `metadata` goes into the header. Where ranks keep moments among them
// one of them writes these, and meanwhile all others must give them.
FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata);

// To the rank that writes kOptimizer.
void give_moments(const Trainer& trainer);

}  // namespace reprise
