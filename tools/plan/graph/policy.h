// Selective policies: rules that select, by op or by name, the inner values that each link keeps.
// They are separate from schedules because a schedule over a chain has no ops and names (PLANNING
// 4). A policy keeps the values that it names regardless of the cost, and must not depend on
// budgets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/plan/graph/graph.h"

namespace reprise {

// A function that returns true if a link must keep the value. `op`: the op of the call that writes
// the value.
using KeepRule = std::function<bool(const Graph& graph, Op op, ValueId value)>;

// Returns the rule of a policy. Presets, by the names that others use:
//   dots            outputs of convolutions and linear layers (JAX's dots_saveable)
//   linear          outputs of linear layers alone (LLaMA: Touvron et al. 2023)
//   attention-core  all but the attention core's output (Korthikanti et al. 2022; its T x T
//                   matrices are never stored here)
//   drop-bn-relu    all but the outputs of batch-norm, ReLU, max and global pooling (Chen et al.
//                   2016's mirror)
// or a list: "ops:conv,linear", "names:layer1.*,*.conv2" (save_only_these_names; * and ? as in
// freeze). A value that is folded into its reader (fold.h) is never stored, so no rule can keep it.
// A value that the backward does not read is not kept either. Throws UserError for any other
// policy.
KeepRule keep_rule(const std::string& policy);

// Throws UserError, prefixed with `where`, if a pattern of "names:" matches no value of the net: a
// misspelt pattern would keep nothing.
void require_names(const std::string& policy, const Graph& graph, const std::string& where);

const std::vector<std::string>& policy_names();

}  // namespace reprise
