// The weights with which a training begins: read from a file, which may fit only in part, or drawn
// from the seed. They are written to the arena, or to the file of streamed weights.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lib/trainer.h"
#include "tools/files/io/input_file.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/graph/graph.h"

namespace reprise {

// States which weights are not read from the file.
struct InitialRules {
  std::vector<std::string> skip;  // patterns of State's names; tensors that match keep their initial values
  bool allow_missing = false;     // true: tensors that the file lacks keep their initial values, too
};
// The result of reading initial weights.
struct InitialReport {
  uint64_t loaded = 0;                          // number of State's tensors that were read
  std::vector<std::string> unused;              // names of the source's tensors that State does not need
  std::vector<std::string> skipped, left_over;  // skipped: excluded by a pattern; left_over: missing in the file
  // True if an unused tensor is a head that differs from the embeddings, although the model ties
  // the two.
  bool drops_head = false;
};

// Reads parameters and buffers into the arena, like read_state; streamed weights are only checked
// and counted. A count of batches (`num_batches_tracked`) may be missing. A skip pattern that
// matches no name is an error. One error counts all tensors that do not fit, names some of them,
// and names the option and the recipe's key that would skip them. DoRA's magnitudes are computed
// from these weights (magnitudes.h). `streamed` is the file of streamed weights, if the plan has
// any.
InitialReport read_initial_weights(const Trainer& trainer, const WeightSource& source, const InitialRules& rules,
                                   const InputFile* streamed = nullptr);

// Draws the initial values of frozen weights whose stored format is neither f32 nor bf16; bind
// cannot draw these. Then sets DoRA's magnitudes.
void draw_stored_weights(const Trainer& trainer, const InputFile* streamed = nullptr);

// Writes the file of streamed weights in the plan's layout. The weights are read from `source`, or
// drawn from the seed if it is null. `before_piece` is called before each piece of at most 1 MiB,
// and may throw.
void write_streamed_weights(const Plan& plan, const Workers& workers, const WeightSource* source,
                            const InitialRules& rules, OutputFile& file,
                            const std::function<void()>& before_piece = nullptr);

// Throws UserError if read_initial_weights() would throw because of the names, shapes or types of a
// graph's parameters. Needs no plan.
void require_weights_fit(const Graph& graph, const WeightSource& source, const InitialRules& rules);

}  // namespace reprise
