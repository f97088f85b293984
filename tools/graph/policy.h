// Selective policies: which inner values a link keeps, by op or by name.
// Here because policies speak of ops and names, which schedules over chains do not know (PLANNING 4).
// It must not know budgets: a policy keeps what it names, whatever that costs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/graph/graph.h"

namespace reprise {

// Whether to keep the value that a node of this op wrote.
using KeepRule = std::function<bool(const Graph& graph, Op op, ValueId value)>;

// Presets, as others call them:
//   dots            outputs of convolutions and linear layers (JAX's dots_saveable)
//   linear          outputs of linear layers alone (LLaMA: Touvron et al. 2023)
//   attention-core  everything but the attention core's output (Korthikanti et al. 2022; its T x T matrices are never stored here)
//   drop-bn-relu    everything but what batch-norm, ReLU and pooling wrote (Chen et al. 2016's mirror)
// or a list: "ops:conv,linear", "names:layer1.*,*.conv2" (save_only_these_names; * and ? as in freeze).
// What is folded into its reader (fold.h) is never stored, so no rule can keep it.
// Throws UserError for anything else.
KeepRule keep_rule(const std::string& policy);

// Throws UserError, with `where` before it, where a pattern of "names:" matches no value of the net: a misspelt one would keep nothing.
void require_names(const std::string& policy, const Graph& graph, const std::string& where);

const std::vector<std::string>& policy_names();

}  // namespace reprise
