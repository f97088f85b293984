// Writes the summary of summary.h.
#include "tools/plan/writing/summary.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "tools/files/io/text.h"
#include "tools/plan/costs/step_cost.h"
#include "tools/plan/lowering/sharing.h"
#include "tools/plan/planning/weight_storage.h"

namespace reprise {

namespace {

std::string budget_text(const Recipe& recipe) {
  if (recipe.budget_bytes) return bytes_text(*recipe.budget_bytes);
  if (recipe.feature_map_budget_bytes)
    return bytes_text(*recipe.feature_map_budget_bytes) + " of feature maps and scratch";
  return "none: as much as the schedule wants";
}

std::string streamed_text(const PlannedModel& planned) {
  char share[64];
  std::snprintf(share, sizeof share, "%.1f%%", 100.0 * planned.stall_share);
  const std::string from = planned.plan.shard_bytes > 0
                               ? ", of which each rank holds " + bytes_text(planned.plan.shard_bytes)
                               : " from a file";
  return bytes_text(planned.plan.streamed_bytes) + " of weights" + from + ", through a window of " +
         bytes_text(planned.window_bytes) + "; rows wait for them " + share + " of a step";
}

std::string spilled_parts(const OwnedPlan& plan) {
  const uint64_t moments = offloaded_bytes(plan.view());
  const std::string boundaries = bytes_text(plan.spill_bytes - moments) + " of boundaries at most";
  if (moments == 0) return boundaries;
  return bytes_text(moments) + " of moments" + (plan.spill_bytes > moments ? " and " + boundaries : "");
}

std::string spilled_text(const OwnedPlan& plan) {
  const bool in_host = plan.spill_level == SpillLevel::kHost;
  std::string text = (in_host ? "  on the host     " : "  on disk         ") + spilled_parts(plan) + ", ";
  if (!in_host) return text + "in a spill file";
  return text + (plan.backend.starts_with("cpu")
                     ? "in memory beside the arena: to a CPU both are the same memory, and nothing is saved"
                     : "in pinned memory beside the card's");
}

// Bytes of moments that only one rank stores: the sum over all ranks, and the maximum of one rank.
struct KeptBytes {
  uint64_t all = 0, maximum = 0;
};
KeptBytes kept_bytes(const OwnedPlan& plan) {
  KeptBytes kept;
  uint64_t bytes[kMaxRanks] = {};
  for (const StateTensor& state : plan.state) {
    if (state.owner == kEveryRank) continue;
    kept.all += state.tensor.bytes;
    kept.maximum = std::max(kept.maximum, bytes[state.owner] += state.tensor.bytes);
  }
  return kept;
}

}  // namespace

std::string summary_of(const SolvedModel& model, const PlannedModel& planned) {
  const OwnedPlan& plan = planned.plan;
  std::ostringstream text;
  char share[64];
  std::snprintf(share, sizeof share, "%.1f%%",
                100.0 * static_cast<double>(plan.arena_bytes) / static_cast<double>(model.store_all_bytes));
  text << "plan " << model.recipe.name << " (" << model.recipe.schedule.strategy << ", " << plan.programs[0].rows.size()
       << " rows a micro-batch)\n";
  text << "  budget          " << budget_text(model.recipe) << "\n";
  text << "  planned peak    " << bytes_text(plan.arena_bytes) << " = " << bytes_text(plan.state_bytes) << " state + "
       << bytes_text(plan.carried_bytes) << " gradients + "
       << bytes_text(plan.arena_bytes - plan.state_bytes - plan.carried_bytes) << " activations and scratch\n";
  if (const WidenedWeights widened = widened_weights(model.recipe, model.network); widened.tensors > 0)
    text << "  widened         " << widened_text(widened) << "\n";
  if (plan.streamed_bytes > 0) text << "  streamed        " << streamed_text(planned) << "\n";
  if (plan.spill_bytes > 0) text << spilled_text(plan) << "\n";
  if (const std::string rope = rope_factors_text(model.recipe.model, model.recipe.sequence); !rope.empty())
    text << "  longrope        " << rope << "\n";
  text << "  storing all     " << bytes_text(model.store_all_bytes) << " (this plan takes " << share << " of it)\n";
  if (const size_t truncated = truncated_links(model.bodies.links); truncated > 0) {
    text << "  truncated       " << truncated << " of " << model.bodies.links.size()
         << " links may keep more values than the " << kMaxCandidates
         << " that are tried in every combination; of those the smallest are always kept\n";
  }
  if (const KeptBytes kept = kept_bytes(plan); kept.all > 0) {
    text << "  moments         " << bytes_text(kept.all) << " in all, of which a rank keeps at most "
         << bytes_text(kept.maximum) << "\n";
  }
  if (plan.ranks > 1)
    text << "  ranks           " << plan.ranks << ", of which each sends " << bytes_text(sent_bytes(plan.view()))
         << " a step to every other\n";
  const CallCost cost = step_cost(plan);
  std::snprintf(share, sizeof share, "%.4g GFLOP", cost.flops / 1e9);
  text << "  a whole step    " << share << " in convolutions and products, at least "
       << bytes_text(static_cast<uint64_t>(cost.bytes)) << " read or written\n";
  std::snprintf(share, sizeof share, "%.1f%%", 100.0 * planned.extra_forward_cost);
  text << "  extra work      " << share << " of a step's forward and backward, predicted from "
       << (planned.predicted_seconds ? "the profile" : "flops and bytes");
  if (planned.predicted_seconds) {
    std::snprintf(share, sizeof share, "%.4g s", *planned.predicted_seconds);
    text << "\n  predicted step  " << share;
  }
  return text.str();
}

}  // namespace reprise
