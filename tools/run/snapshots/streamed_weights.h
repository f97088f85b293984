// Writes the file of a plan's streamed weights: frozen matrices in the plan's layout. Each of them
// can be read with one call that bypasses the page cache. The model's own files have other orders
// and formats, at offsets that are not aligned for direct reads.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "lib/port.h"
#include "tools/run/snapshots/base_weights.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {

// The source of streamed weights. If `source` is null, they are drawn from the plan's seed.
struct StreamedOrigin {
  const WeightSource* source = nullptr;
  const BaseWeights* base = nullptr;  // checksums of the source's files
  const InitialRules& rules;
};

// Creates the file, unless it already exists with this content. It is reused if `PATH.json` next to
// it describes these weights in this layout and has the file's checksum. Returns true if it was
// reused.
// The file is written under another name first, so that `path` is always complete. This may take
// minutes: `before_piece` is called before each piece; if it throws, the work ends and leaves no
// files. If several processes need the same file, one creates it and the others wait. Throws
// UserError, also if `path` is a file of another program (judged by its note and size) or is one of
// `inputs`.
bool prepare_streamed_weights(const Plan& plan, const Workers& workers, const StreamedOrigin& origin,
                              const std::string& path, const std::function<void()>& before_piece = nullptr,
                              const std::vector<std::string>& inputs = {});

}  // namespace reprise
