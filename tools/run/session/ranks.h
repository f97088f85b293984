// The processes that train together. They connect through the port, are compared when a training
// begins, and end together. A training with one process uses the same interface.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/fingerprint.h"
#include "tools/run/session/compiled_plan.h"

namespace reprise {

// Checksums of one rank. All except `kernels` must be equal in all ranks.
struct RankFacts {
  uint64_t library = 0;  // the version of Reprise, restricted to the parts on which plans depend
  uint64_t state = 0;    // names, shapes and types of State's tensors
  uint64_t recipe = 0;   // the recipe without memory and schedule
  uint64_t data = 0;
  uint64_t shared = 0;   // the tensors that ranks share, in their order
  uint64_t kernels = 0;  // the kernel set; if it differs, bits differ, and the training continues with a warning
};
// Computes the checksums of this rank.
RankFacts facts_of(const Plan& plan, const Recipe& recipe, const DataFingerprint& data, const char* kernel_set);

// Planned and measured memory of one rank.
struct RankMemory {
  uint64_t planned_bytes = 0, measured_bytes = 0;  // bytes of the arena
};

// The connections of this process to the other ranks.
class Ranks {
 public:
  // Connects to the other ranks. Opens no connection if the recipe has one rank. Throws UserError
  // if the other ranks cannot be reached.
  Ranks(const Port& port, const Recipe& recipe);
  // Closes the connections. If an exception ends this process, leaves them open: the end of the
  // process then ends the other ranks.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const Peers& peers() const { return timed_; }
  // Returns the total seconds that this process has waited for other ranks.
  double waited_seconds() const { return waited_seconds_; }
  bool are_several() const { return peers_.count > 1; }
  // True if this rank prints and writes the training's files.
  bool is_first() const { return peers_.rank == 0; }

  // Throws UserError with the rank and the field if a field differs that must be equal. Returns
  // warnings about fields that should be equal.
  std::vector<std::string> compare(const RankFacts& facts) const;
  // True if `own` is true in at least one rank. Every rank must call it.
  bool any(bool own) const;
  // Returns the memory of all ranks, by rank. Every rank must call it.
  std::vector<RankMemory> memory(const RankMemory& own) const;

 private:
  template <typename T>
  std::vector<T> gather(const T& own) const;
  static Status timed_wait(void* ranks, const void* data);

  const Port& port_;
  const std::string name_;
  Peers peers_;  // the connections as the port opened them
  Peers timed_;  // peers_ with a wait function that also measures its time
  double waited_seconds_ = 0;
};

// Returns peers for one process that evaluates or answers with a plan for several ranks. They fail
// if the plan exchanges data.
Peers lone_peers(const Plan& plan);

}  // namespace reprise
