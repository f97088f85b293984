// A Llama's chain from shapes and flops alone: each block cut in two at the mid-block residual, all keep-sets of a half enumerated.
// Here because the planner is measured on chains of Llama's shapes, and no recipe names a Llama yet (PLANNING 4).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/graph/cost.h"
#include "tools/schedule/chain.h"

namespace reprise::bench {

// Llama 2 7B, bf16 activations, batch 1.
struct LlamaShape {
  uint64_t sequence = 2048, hidden = 4096, inner = 11008, vocabulary = 32000, value_bytes = 2;
  int blocks = 32;
};

// Half a block: values 0 (input) .. n-1 (output), the step that makes each from others, and the backward's steps.
struct HalfBlock {
  struct Step {
    double cost;
    std::vector<int> reads;
    std::vector<uint64_t> gradients_made, gradients_freed;  // bytes, inside the half; backward only
  };
  std::string name;
  std::vector<uint64_t> bytes;
  std::vector<Step> makers;    // parallel to the values; of value 0 unused
  std::vector<Step> backward;  // in order

  int output() const { return static_cast<int>(bytes.size()) - 1; }
};

// What one order of steps costs beside what is kept: `kept` is a set of inner values.
struct HalfWalk {
  double cost = 0;
  uint64_t scratch_bytes = 0;
};

// Runs `steps` (the backward's, or one that only wants the output), making each missing value once, just before its first
// read, and freeing it after its last. Values `kept` before need no making; those `outside` are not counted as scratch.
inline HalfWalk walk(const HalfBlock& half, unsigned kept, const std::vector<HalfBlock::Step>& steps, unsigned outside) {
  std::vector<const HalfBlock::Step*> order;
  std::vector<int> made;  // by place in the order: the value made there, -1 for a step of `steps`
  std::vector<char> there(half.bytes.size(), 0);
  there[0] = 1;
  for (size_t v = 1; v < half.bytes.size(); ++v) there[v] = static_cast<char>(kept >> v & 1);
  const std::function<void(int)> make = [&](int v) {
    if (there[v]) return;
    for (const int read : half.makers[v].reads) make(read);
    there[v] = 1;
    order.push_back(&half.makers[v]);
    made.push_back(v);
  };
  for (const HalfBlock::Step& step : steps) {
    for (const int read : step.reads) make(read);
    order.push_back(&step);
    made.push_back(-1);
  }
  std::vector<size_t> last_read(half.bytes.size(), 0);
  for (size_t n = 0; n < order.size(); ++n) {
    for (const int read : order[n]->reads) last_read[read] = n;
  }
  HalfWalk result;
  uint64_t live = 0;
  const auto counts = [&](int v) { return (outside >> v & 1) == 0; };
  for (size_t n = 0; n < order.size(); ++n) {
    result.cost += order[n]->cost;
    if (made[n] >= 0 && counts(made[n])) live += half.bytes[made[n]];
    for (const uint64_t bytes : order[n]->gradients_made) live += bytes;
    result.scratch_bytes = std::max(result.scratch_bytes, live);
    for (const uint64_t bytes : order[n]->gradients_freed) live -= bytes;
    for (size_t m = 0; m <= n; ++m) {
      const int v = made[m];
      if (v >= 0 && counts(v) && last_read[v] == n) live -= half.bytes[v];
    }
  }
  return result;
}

inline uint64_t kept_bytes(const HalfBlock& half, unsigned kept) {
  uint64_t bytes = 0;
  for (int v = 1; v < half.output(); ++v) bytes += kept >> v & 1 ? half.bytes[v] : 0;
  return bytes;
}

// The forward that ends with the output and keeps `kept`; held: they were there before.
inline HalfWalk forward_walk(const HalfBlock& half, unsigned kept, bool held) {
  const std::vector<HalfBlock::Step> want = {{0, {half.output()}, {}, {}}};
  return walk(half, held ? kept : 0, want, kept | 1u << half.output());
}

// Drops tapes that another beats; the first, the largest, stays.
inline void keep_front(std::vector<Tape>& tapes) {
  std::vector<Tape> front;
  for (size_t n = 0; n < tapes.size(); ++n) {
    const auto beats = [&](const Tape& t) {
      return t.bytes <= tapes[n].bytes && t.backward_cost <= tapes[n].backward_cost && t.scratch_bytes <= tapes[n].scratch_bytes &&
             t.forward_scratch_bytes <= tapes[n].forward_scratch_bytes;
    };
    const bool later = std::any_of(tapes.begin(), tapes.begin() + static_cast<std::ptrdiff_t>(n), beats);
    const bool worse = std::any_of(tapes.begin() + static_cast<std::ptrdiff_t>(n) + 1, tapes.end(), [&](const Tape& t) {
      return beats(t) && (t.bytes < tapes[n].bytes || t.backward_cost < tapes[n].backward_cost || t.scratch_bytes < tapes[n].scratch_bytes);
    });
    if (n == 0 || (!later && !worse)) front.push_back(tapes[n]);
  }
  std::stable_sort(front.begin() + 1, front.end(), [](const Tape& a, const Tape& b) { return a.bytes > b.bytes; });
  tapes = front;
}

inline Link half_link(const HalfBlock& half, const std::vector<double>& prices) {
  const unsigned all = (1u << half.output()) - 2;
  const HalfWalk forward = forward_walk(half, 0, false);
  Link link{.name = half.name, .forward_cost = forward.cost, .boundary_bytes = half.bytes.back(), .forward_scratch_bytes = forward.scratch_bytes,
            .tapes = {}, .residues = {}};
  for (unsigned kept = all;; kept -= 2) {  // subsets, the full one first
    const HalfWalk backward = walk(half, kept, half.backward, 0);
    const Tape tape{.bytes = half.bytes.back() + kept_bytes(half, kept), .backward_cost = backward.cost, .scratch_bytes = backward.scratch_bytes,
                    .forward_scratch_bytes = forward_walk(half, kept, false).scratch_bytes};
    link.tapes.push_back(tape);
    if (kept == 0) break;
  }
  keep_front(link.tapes);
  for (const double price : prices) {
    Residue best{.bytes = 0, .forward_cost = forward.cost};
    for (unsigned kept = 0; kept <= all; kept += 2) {
      const Residue residue{.bytes = kept_bytes(half, kept), .forward_cost = forward_walk(half, kept, true).cost};
      const auto total = [&](const Residue& r) { return r.forward_cost + price * static_cast<double>(r.bytes); };
      if (total(residue) < total(best)) best = residue;
    }
    link.residues.push_back(best);
  }
  return link;
}

struct LlamaHalves {
  HalfBlock attention, mlp;
};

inline LlamaHalves llama_halves(const LlamaShape& s) {
  const double T = static_cast<double>(s.sequence), C = static_cast<double>(s.hidden), H = static_cast<double>(s.inner);
  const uint64_t x = s.sequence * s.hidden * s.value_bytes, h = s.sequence * s.inner * s.value_bytes;
  const double X = kFlopsPerByte * static_cast<double>(x), W = kFlopsPerByte * static_cast<double>(h);  // to read or write it once
  const double square = 2 * T * C * C, wide = 2 * T * C * H, core = T * T * C;  // core: one causal product
  LlamaHalves halves;
  // 0 x, 1 normed, 2 q, 3 k, 4 v (rotated where they are), 5 attention's output, 6 x + projection
  halves.attention = {"attention", {x, x, x, x, x, x, x},
      {{}, {2 * X, {0}, {}, {}}, {square + 2 * X, {1}, {}, {}}, {square + 2 * X, {1}, {}, {}}, {square + 2 * X, {1}, {}, {}},
       {2 * core + 4 * X, {2, 3, 4}, {}, {}}, {square + 3 * X, {0, 5}, {}, {}}},
      {{2 * square + 4 * X, {5}, {x}, {}}, {5 * core + 8 * X, {2, 3, 4, 5}, {x, x, x}, {x}},
       {6 * square + 8 * X, {1}, {x}, {x, x, x}}, {4 * X, {0}, {}, {x}}}};
  // 0 x, 1 normed, 2 gate, 3 up, 4 silu(gate) * up, 5 x + projection
  halves.mlp = {"mlp", {x, x, h, h, h, x},
      {{}, {2 * X, {0}, {}, {}}, {wide + X + W, {1}, {}, {}}, {wide + X + W, {1}, {}, {}}, {3 * W, {2, 3}, {}, {}}, {wide + 2 * X + W, {0, 4}, {}, {}}},
      {{2 * wide + 2 * X + 2 * W, {4}, {h}, {}}, {5 * W, {2, 3}, {h, h}, {h}}, {4 * wide + 3 * X + 2 * W, {1}, {x}, {h, h}}, {4 * X, {0}, {}, {x}}}};
  return halves;
}

// Prices between the steps of both halves' residue fronts, the dearest first.
inline std::vector<double> residue_prices(const LlamaHalves& halves) {
  std::vector<double> slopes;
  for (const HalfBlock* half : {&halves.attention, &halves.mlp}) {
    const double forward = forward_walk(*half, 0, false).cost;
    for (unsigned kept = 2; kept < 1u << half->output(); kept += 2) {
      const double saved = forward - forward_walk(*half, kept, true).cost;
      if (saved > 0) slopes.push_back(saved / static_cast<double>(kept_bytes(*half, kept)));
    }
  }
  std::sort(slopes.rbegin(), slopes.rend());
  constexpr size_t kModes = 3;
  std::vector<double> prices;
  for (size_t k = 0; k < kModes; ++k) prices.push_back(0.99 * slopes[k * (slopes.size() - 1) / (kModes - 1)]);
  return prices;
}

inline Chain llama_chain(const LlamaShape& s) {
  const LlamaHalves halves = llama_halves(s);
  const std::vector<double> prices = residue_prices(halves);
  const uint64_t x = s.sequence * s.hidden * s.value_bytes;
  const double X = kFlopsPerByte * static_cast<double>(x);
  const double head = 2 * static_cast<double>(s.sequence * s.hidden) * static_cast<double>(s.vocabulary);
  const uint64_t chunk = std::min<uint64_t>(512, s.sequence) * s.vocabulary * 4;  // logits of 512 rows, f32
  Chain chain{.input_bytes = s.sequence * 4, .links = {}};
  const auto alone = [&](const char* name, double forward, double backward, uint64_t boundary, uint64_t scratch) {
    chain.links.push_back({.name = name, .forward_cost = forward, .boundary_bytes = boundary, .forward_scratch_bytes = scratch,
                           .tapes = {{.bytes = boundary, .backward_cost = backward, .scratch_bytes = scratch, .forward_scratch_bytes = scratch}},
                           .residues = std::vector<Residue>(prices.size(), {.bytes = 0, .forward_cost = forward})});
  };
  alone("embedding", 2 * X, 2 * X, x, 0);
  for (int block = 0; block < s.blocks; ++block) {
    chain.links.push_back(half_link(halves.attention, prices));
    chain.links.push_back(half_link(halves.mlp, prices));
  }
  alone("loss", head + 2 * X, 2 * head + 4 * X, 0, chunk);
  chain.links.back().tapes[0].bytes = 0;
  return chain;
}

}  // namespace reprise::bench
