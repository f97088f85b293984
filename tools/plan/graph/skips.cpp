// Finds skips, when they are computed, and their offsets. Links, planner and lowering share
// the result.
#include "tools/plan/graph/skips.h"

#include <algorithm>
#include <set>

#include "lib/assert.h"
#include "tools/plan/graph/call.h"
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

namespace {

// Returns the first link after `writer` whose calls name v; 0 if none does.
size_t first_reader(const std::vector<LinkBody>& links, size_t writer, ValueId v) {
  for (size_t i = writer + 1; i < links.size(); ++i) {
    for (const auto* calls : {&links[i].forward, &links[i].backward}) {
      for (const Call& call : *calls) {
        if (std::find(call.arguments.begin(), call.arguments.end(), v) != call.arguments.end()) return i;
      }
    }
  }
  return 0;
}

}  // namespace

void copy_skips(Graph& graph, std::vector<LinkBody>& links) {
  for (size_t w = 0; w < links.size(); ++w) {
    const std::vector<Call> forward = links[w].forward;
    for (const Call& writer : forward) {
      // The skips that the call writes, and the first links that read them. A call runs once if it
      // writes a skip, so either all of them are copied or none.
      std::map<ValueId, size_t> skips;
      for (size_t a = 0; a < writer.arguments.size(); ++a) {
        const ValueId v = writer.arguments[a];
        if (v != kNoValue && graph.values[v].kind == ValueKind::kSkip &&
            kernel_info(writer.op, writer.pass).arguments[a].role == Role::kOutput)
          skips[v] = first_reader(links, w, v);
      }
      const bool is_worth = std::all_of(skips.begin(), skips.end(), [&](const auto& skip) {
        const DType type = graph.tensor(skip.first).dtype;
        const bool can_copy = skip.second == 0 || type == DType::kF32 || type == DType::kBf16;
        return skip.first != links[w].output && skip.second != w + 1 && can_copy;
      });
      if (!is_worth) continue;
      for (const auto& [v, reader] : skips) {
        graph.values[v].kind = ValueKind::kActivation;
        if (reader == 0) continue;
        const Tensor tensor = graph.tensor(v);
        const ValueId copy = graph.add_value(graph.values[v].name + ".kept", ValueKind::kSkip,
                                             Shape(tensor.shape, tensor.shape + tensor.rank), tensor.dtype);
        links[w].forward.push_back(call<CopyForward>({{CopyForward::kY, copy}, {CopyForward::kX, v}}));
        for (size_t i = reader; i < links.size(); ++i) {
          for (auto* calls : {&links[i].forward, &links[i].backward}) {
            for (Call& each : *calls) std::replace(each.arguments.begin(), each.arguments.end(), v, copy);
          }
        }
      }
    }
  }
}

bool reads_skips_first(const Graph& graph, const std::vector<Call>& backward) {
  bool has_begun = false;
  for (const Call& call : backward) {
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    bool reads = false;
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      const ValueId v = call.arguments[a];
      if (v == kNoValue) continue;
      reads = reads || graph.values[v].kind == ValueKind::kSkip;
      has_begun = has_begun || (graph.values[v].kind == ValueKind::kSkipGradient &&
                                kernel.arguments[a].role == Role::kOutput && (call.accumulate >> a & 1u) == 0);
    }
    if (reads && has_begun) return false;
  }
  return true;
}

// Two units of time are one link: forwards 0..n-1, then backwards n..2n-1. A link may run forward
// again until its backward, so a skip is live until the backward of the first link that reads it. A
// gradient is live in the backwards that use it. If a backward reads skips first, these are live in
// its first unit, and the gradients that it begins only in its second.
SkipBlock pack_skips(const Graph& graph, const std::vector<LinkBody>& links) {
  std::map<ValueId, PackBuffer> lives;
  const auto name = [&](const std::vector<Call>& calls, uint64_t lower, uint64_t upper, uint64_t skips_upper) {
    for (const Call& call : calls) {
      for (size_t a = 0; a < call.arguments.size(); ++a) {
        const ValueId v = call.arguments[a];
        if (v == kNoValue || !is_skip(graph.values[v])) continue;
        const bool writes = kernel_info(call.op, call.pass).arguments[a].role == Role::kOutput;
        const auto [life, is_new] = lives.try_emplace(v, PackBuffer{lower, lower + 1, graph.tensor(v).bytes});
        REPRISE_ASSERT(!is_new || writes, "a skip or its gradient is written before it is read");
        const bool is_value = graph.values[v].kind == ValueKind::kSkip;
        if (!writes || !is_value) life->second.upper = std::max(life->second.upper, is_value ? skips_upper : upper);
      }
    }
  };
  const size_t n = links.size();
  for (size_t i = 0; i < n; ++i) name(links[i].forward, 2 * i, 2 * i + 2, 2 * i + 2);
  for (size_t i = n; i-- > 0;) {
    const uint64_t begin = 2 * (2 * n - 1 - i), end = begin + 2;
    const std::vector<TapeChoice>& tapes = links[i].tapes;
    const bool in_turn = !tapes.empty() && std::all_of(tapes.begin(), tapes.end(), [&graph](const TapeChoice& tape) {
      return reads_skips_first(graph, tape.backward.calls);
    });
    const uint64_t skips_end = in_turn ? begin + 1 : end;
    name(links[i].forward, begin, begin, skips_end);  // may run again until now
    name(links[i].backward, in_turn ? begin + 1 : begin, end, skips_end);
  }
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
