// Finds skips, when they are computed, and their offsets. Links, planner and lowering share
// the result.
#include "tools/plan/graph/skips.h"

#include <algorithm>
#include <set>

#include "lib/assert.h"
#include "tools/plan/layout/pack.h"

namespace reprise {

namespace {

bool is_skip(const Value& value) { return value.kind == ValueKind::kSkip || value.kind == ValueKind::kSkipGradient; }

}  // namespace

void mark_skips(Graph& graph, const std::vector<LinkBody>& links) {
  std::vector<const Node*> writer(graph.values.size(), nullptr);
  for (const LinkBody& link : links) {
    for (size_t n = link.first_node; n < link.end_node; ++n) {
      for (const ValueId v : graph.nodes[n].outputs) writer[v] = &graph.nodes[n];
    }
    const Node* first = graph.nodes.data() + link.first_node;
    for (size_t n = link.first_node; n < link.end_node; ++n) {
      for (const ValueId v : graph.nodes[n].inputs) {
        if (v == link.input || writer[v] == nullptr || writer[v] >= first) continue;
        for (const ValueId held : writer[v]->outputs) {
          if (graph.values[held].kind == ValueKind::kActivation) graph.values[held].kind = ValueKind::kSkip;
        }
      }
    }
  }
}

void run_skips_once(const Graph& graph, LinkBody& link) {
  std::set<ValueId> wanted = {link.output}, idle;
  for (const Call& call : link.backward) wanted.insert(call.arguments.begin(), call.arguments.end());
  for (size_t c = link.forward.size(); c-- > 0;) {
    Call& call = link.forward[c];
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    uint16_t outputs = 0;
    bool writes_skip = false, is_wanted = false, is_idle = false;
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      const ValueId v = call.arguments[a];
      if (v == kNoValue || kernel.arguments[a].role != Role::kOutput) continue;
      outputs = static_cast<uint16_t>(outputs | 1u << a);
      writes_skip = writes_skip || graph.values[v].kind == ValueKind::kSkip;
      is_wanted = is_wanted || wanted.count(v) != 0;
      is_idle = is_idle || idle.count(v) != 0;
    }
    const bool once = writes_skip || (is_idle && !is_wanted);
    if (once) call.once = static_cast<uint16_t>(call.once | outputs);
    (once ? idle : wanted).insert(call.arguments.begin(), call.arguments.end());
  }
}

// One unit of time is one link: forwards 0..n-1, then backwards n..2n-1. A skip is live from the
// forward to the backward of the link that writes it. Its gradient is live in the backwards that
// use it.
SkipBlock pack_skips(const Graph& graph, const std::vector<LinkBody>& links) {
  std::map<ValueId, PackBuffer> lives;
  const auto name = [&](const std::vector<Call>& calls, uint64_t time, uint64_t until) {
    for (const Call& call : calls) {
      for (size_t a = 0; a < call.arguments.size(); ++a) {
        const ValueId v = call.arguments[a];
        if (v == kNoValue || !is_skip(graph.values[v])) continue;
        const auto [life, is_new] = lives.try_emplace(v, PackBuffer{time, until + 1, graph.tensor(v).bytes});
        REPRISE_ASSERT(!is_new || kernel_info(call.op, call.pass).arguments[a].role == Role::kOutput,
                       "a skip or its gradient is written before it is read");
        life->second.upper = std::max(life->second.upper, time + 1);
      }
    }
  };
  const size_t n = links.size();
  for (size_t i = 0; i < n; ++i) name(links[i].forward, i, 2 * n - 1 - i);
  for (size_t i = n; i-- > 0;) name(links[i].backward, 2 * n - 1 - i, 0);
  std::vector<PackBuffer> buffers;
  for (const auto& [v, buffer] : lives) buffers.push_back(buffer);
  const Packing packing = pack_buffers(buffers, {.alignment = kAlignment});
  SkipBlock block = {{}, packing.packed_bytes};
  for (auto [life, i] = std::pair{lives.begin(), size_t{0}}; life != lives.end(); ++life, ++i)
    block.offsets[life->first] = packing.offsets[i];
  return block;
}

uint64_t boundary_bytes(const Graph& graph, ValueId boundary) {
  return boundary == kNoValue || graph.values[boundary].kind == ValueKind::kSkip ? 0 : graph.tensor(boundary).bytes;
}

bool lives_in_header(const Value& value) {
  return value.kind == ValueKind::kSmall || value.kind == ValueKind::kSkip || value.kind == ValueKind::kSkipGradient;
}

}  // namespace reprise
