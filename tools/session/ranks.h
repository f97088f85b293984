// The processes that train together: they are reached through the port, are seen to train the same, and end together.
// Here so that a training need not know whether it is alone.
#pragma once

#include <string>
#include <vector>

#include "tools/data/fingerprint.h"
#include "tools/recipes/recipe.h"
#include "tools/session/compiled_plan.h"

namespace reprise {

// What must be the same in all ranks, or had better be.
struct RankFacts {
  uint64_t library = 0;  // the version of Reprise, as far as plans depend on it
  uint64_t state = 0;    // which tensors State has
  uint64_t recipe = 0;   // what is trained, whatever memory it is given
  uint64_t data = 0;
  uint64_t shared = 0;   // what the plan's ranks share, in which order
  uint64_t kernels = 0;  // the kernel set: another gives other bits, and the training goes on
};
RankFacts facts_of(const Plan& plan, const Recipe& recipe, const DataFingerprint& data, const char* kernel_set);

struct RankMemory {
  uint64_t planned_bytes = 0, measured_bytes = 0;  // of the arena
};

class Ranks {
 public:
  // Of a recipe for one rank nothing is opened. Throws UserError where the others cannot be reached.
  Ranks(const Port& port, const Recipe& recipe);
  // Where this process ends by an exception it leaves the others as they are: that it ends ends them too.
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const Peers& peers() const { return timed_; }
  // In all, that this process has waited for the others.
  double waited_seconds() const { return waited_seconds_; }
  bool are_several() const { return peers_.count > 1; }
  // Rank 0 writes what a training leaves, and speaks.
  bool is_first() const { return peers_.rank == 0; }

  // Throws UserError, which names the rank and what differs. Answers what had better not differ, in words for a person.
  std::vector<std::string> compare(const RankFacts& facts) const;
  // Whether some rank says so. Each rank must ask.
  bool any(bool own) const;
  // Of every rank, in their order. Each must ask.
  std::vector<RankMemory> memory(const RankMemory& own) const;

 private:
  template <typename T>
  std::vector<T> gather(const T& own) const;
  static Status timed_wait(void* ranks, const void* data);

  const Port& port_;
  const std::string name_;
  Peers peers_;  // the port's
  Peers timed_;  // the same, whose waits are counted
  double waited_seconds_ = 0;
};

// What a plan for several ranks runs on in one process alone, where it evaluates or answers and no rank shares anything: it can do nothing else.
Peers lone_peers(const Plan& plan);

}  // namespace reprise
