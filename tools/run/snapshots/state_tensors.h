// Reads and writes State: parameters, buffers and moments by name, in the layouts of other
// frameworks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/trainer.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/weights/weight_source.h"
#include "tools/run/snapshots/tensor_files.h"

namespace reprise {

// The part of State that is in a file. kModel: parameters and buffers. kOptimizer: moments. kSaved:
// the part of kModel that a snapshot stores. If adapters are trained, a snapshot stores only the
// adapters and the modules that are trained as a whole; all other weights are in the model's own
// files.
enum class StatePart { kModel, kSaved, kOptimizer };

// True if this tensor of the plan's State belongs to `part`.
bool belongs(const Plan& plan, const StateTensor& state, StatePart part);

// Returns what a file's tensor must satisfy to be read into this tensor of State.
WantedTensor wanted(const Plan& plan, const StateTensor& state);

// Returns a sink that writes the bytes of State tensor `index`, which must not be streamed.
TensorSink sink_of(const Trainer& trainer, uint32_t index);

// Reads a part of State. Each of its tensors must be in the source with the same shape, and stored
// as in State. Every type of floats may be read as f32, which is exact. GPT-2's names are also
// found without "transformer.". Other tensors of the source are ignored. Throws UserError and
// changes nothing if a tensor is missing, a value is not finite, or a variance is negative. If a
// file has become shorter since it was opened, some tensors may be changed, and State must not be
// used.
void read_state(const Trainer& trainer, const WeightSource& source, StatePart part);

// Writes a part of State, each tensor stored as in State, in the layout that `forms` gives for its
// name. `metadata` is written to the header. Throws UserError. If moments are distributed over
// ranks, one rank calls this function while all other ranks call give_moments().
FileSum write_state(const Trainer& trainer, const std::string& path, StatePart part,
                    const std::vector<std::pair<std::string, std::string>>& metadata, const StoredForms& forms = {});

// Sends this rank's moments to the rank that writes the part kOptimizer.
void give_moments(const Trainer& trainer);

}  // namespace reprise
