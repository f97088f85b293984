// Implements policy.h: a table of presets, and lists of ops.
// Each preset is one line; lists are split at commas.
#include "tools/plan/graph/policy.h"

#include <algorithm>
#include <sstream>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace {

bool is_one_of(Op op, std::initializer_list<Op> ops) { return std::find(ops.begin(), ops.end(), op) != ops.end(); }

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

const std::string kNames = "names:";

// Returns the op whose name a policy uses for outputs of `op`: the op before folding.
Op plain_op(Op op) {
  if (op == Op::kNormConv) return Op::kConv;
  return op == Op::kNormAddRelu ? Op::kRelu : op;
}

[[noreturn]] void refuse(const std::string& policy) {
  std::string known;
  for (const std::string& name : policy_names()) known += (known.empty() ? "" : ", ") + name;
  throw UserError("schedule.policy: must be one of " + known +
                  ", or ops:OP,... or names:PATTERN,... or offload:PATTERN,..., not \"" + policy + "\"");
}

KeepRule keep_ops(const std::string& policy, const std::vector<std::string>& ops) {
  for (const std::string& name : ops) {
    const bool known = std::any_of(std::begin(kOps), std::end(kOps),
                                   [&name](const KernelInfo& kernel) { return op_name(kernel.op) == name; });
    if (!known) refuse(policy);
  }
  return [ops](const Graph&, Op op, ValueId) { return std::find(ops.begin(), ops.end(), op_name(op)) != ops.end(); };
}

KeepRule rule_over_plain_ops(const std::string& policy) {
  if (policy == "dots")
    return [](const Graph&, Op op, ValueId) { return is_one_of(op, {Op::kConv, Op::kConvTranspose, Op::kLinear}); };
  if (policy == "linear") return [](const Graph&, Op op, ValueId) { return op == Op::kLinear; };
  if (policy == "attention-core") return [](const Graph&, Op op, ValueId) { return op != Op::kAttention; };
  if (policy == "drop-bn-relu") {
    return [](const Graph&, Op op, ValueId) {
      return !is_one_of(op, {Op::kBatchNorm, Op::kRelu, Op::kMaxPool, Op::kGlobalPool});
    };
  }
  if (policy.rfind("ops:", 0) == 0) return keep_ops(policy, split(policy.substr(4)));
  if (policy.rfind(kNames, 0) == 0) {
    return [patterns = split(policy.substr(kNames.size()))](const Graph& graph, Op, ValueId value) {
      return std::any_of(patterns.begin(), patterns.end(),
                         [&](const std::string& p) { return matches_pattern(p, graph.values[value].name); });
    };
  }
  refuse(policy);
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> names = {"dots", "linear", "attention-core", "drop-bn-relu"};
  return names;
}

KeepRule keep_rule(const std::string& policy) {
  return [rule = rule_over_plain_ops(policy)](const Graph& graph, Op op, ValueId value) {
    return rule(graph, plain_op(op), value);
  };
}

void require_names(const std::string& policy, const Graph& graph, const std::string& where) {
  if (policy.rfind(kNames, 0) != 0) return;
  for (const std::string& pattern : split(policy.substr(kNames.size()))) {
    const bool known = std::any_of(graph.values.begin(), graph.values.end(), [&pattern](const Value& value) {
      return (value.kind == ValueKind::kActivation || value.kind == ValueKind::kSkip) &&
             matches_pattern(pattern, value.name);
    });
    if (!known)
      throw UserError(where + ": \"" + pattern +
                      "\" matches no value of the net; name layers, as layer1.0.conv1, or use * and ?");
  }
}

}  // namespace reprise
