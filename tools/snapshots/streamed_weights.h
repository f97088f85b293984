// The file of a plan's streamed weights: frozen matrices packed one after another as the plan lays them out, so that each is read at once and past
// the page cache. Here because the model's own files hold them in other orders, rows and formats, and at places that no device reads directly.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "lib/port.h"
#include "tools/snapshots/base_weights.h"
#include "tools/snapshots/initial_weights.h"

namespace reprise {

// Where streamed weights come from. Without a source: from the plan's seed.
struct StreamedOrigin {
  const WeightSource* source = nullptr;
  const BaseWeights* base = nullptr;  // what that source's files hold
  const InitialRules& rules;
};

// Makes the file, or takes one that is there if `PATH.json` beside it says that it holds these weights in this layout and its bytes have that
// checksum. A file is made under another name first: what lies under the path is always whole. Making it may take minutes: `before_piece` is called
// before each piece of it, and what it throws ends the work and leaves nothing behind. Of several processes that want the same file one makes it, and
// the others wait. A file that is not this program's, by its note and its size, is refused, as one of `inputs` is. Answers whether the file was
// there. Throws UserError.
bool prepare_streamed_weights(const Plan& plan, const Workers& workers, const StreamedOrigin& origin, const std::string& path,
                              const std::function<void()>& before_piece = nullptr, const std::vector<std::string>& inputs = {});

}  // namespace reprise
