// What a training begins with: weights of a file, perhaps another net's in part, or those of the seed.
// Here because both go to the arena, or to the file of streamed weights, in the same way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/formats/input_file.h"
#include "tools/formats/output_file.h"
#include "tools/graph/graph.h"
#include "tools/weights/weight_source.h"

namespace reprise {

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

// As read_state, of parameters and buffers in the arena; streamed ones are looked at, and counted. A count of batches (`num_batches_tracked`) may
// be missing in any case. A skip pattern that matches no name is refused. Tensors that do not fit are named together, with the option and the
// recipe's key that would skip them. Magnitudes of DoRA start as these weights' (magnitudes.h); `streamed`: the file of streamed weights, where the
// plan has any.
InitialReport read_initial_weights(const Trainer& trainer, const WeightSource& source, const InitialRules& rules, const InputFile* streamed = nullptr);

// Gives frozen weights that bind cannot draw, because they are stored in fewer bits than bf16, their initial values; then magnitudes of DoRA
// theirs.
void draw_stored_weights(const Trainer& trainer, const InputFile* streamed = nullptr);

// The content of the file of streamed weights, in the plan's layout: those of the source, or without one the seed's. `before_piece` is called
// before each piece of at most a MiB, and may throw.
void write_streamed_weights(const Plan& plan, const Workers& workers, const WeightSource* source, const InitialRules& rules, OutputFile& file,
                            const std::function<void()>& before_piece = nullptr);

// Before there is a plan: refuses what read_initial_weights would refuse of a graph's parameters by names, shapes and types.
void require_weights_fit(const Graph& graph, const WeightSource& source, const InitialRules& rules);

}  // namespace reprise
