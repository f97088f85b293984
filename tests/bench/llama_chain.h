// The chain of a Llama, from shapes and flops alone. Each block is cut in two after the attention's
// residual addition. For each half all sets of kept values are enumerated. The planner is measured
// on this chain (PLANNING 4).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/plan/graph/cost.h"
#include "tools/plan/schedule/chain.h"

namespace reprise::bench {

// The shape of Llama 2 7B, with bf16 activations and batch 1.
struct LlamaShape {
  uint64_t sequence = 2048, hidden = 4096, inner = 11008, vocabulary = 32000, value_bytes = 2;
  int blocks = 32;
};

// Half of a block: values 0 (the input) to n-1 (the output), the step that computes each value from
// others, and the steps of the backward.
struct HalfBlock {
  struct Step {
    double cost;
    std::vector<int> reads;
    std::vector<uint64_t> gradients_made, gradients_freed;  // bytes of gradients inside the half; only in the backward
  };
  std::string name;
  std::vector<uint64_t> bytes;
  std::vector<Step> makers;    // indexed by value; value 0 has no maker
  std::vector<Step> backward;  // in the order in which they run

  int output() const { return static_cast<int>(bytes.size()) - 1; }
};

// The cost and the scratch of one order of steps. The kept inner values are not part of the
// scratch.
struct HalfWalk {
  double cost = 0;
  uint64_t scratch_bytes = 0;
};

// Returns the cost and the scratch of `steps`. They are the steps of the backward, or one step that
// only reads the output. A missing value is computed once, directly before its first read, and
// freed after its last read. Values in `kept` exist already. Values in `outside` do not count as
// scratch.
inline HalfWalk walk(const HalfBlock& half, unsigned kept, const std::vector<HalfBlock::Step>& steps,
                     unsigned outside) {
  std::vector<const HalfBlock::Step*> order;
  std::vector<int> made;  // for each element of `order`, the value that it computes; -1 for a step of `steps`
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

// Returns the cost and the scratch of the forward that computes the output and keeps `kept`. If
// `held`, the kept values exist already.
inline HalfWalk forward_walk(const HalfBlock& half, unsigned kept, bool held) {
  const std::vector<HalfBlock::Step> want = {{0, {half.output()}, {}, {}}};
  return walk(half, held ? kept : 0, want, kept | 1u << half.output());
}

// Drops each tape for which another tape is better or equal in every respect. The first tape, which
// is the largest, stays.
inline void keep_front(std::vector<Tape>& tapes) {
  std::vector<Tape> front;
  for (size_t n = 0; n < tapes.size(); ++n) {
    const auto beats = [&](const Tape& t) {
      return t.bytes <= tapes[n].bytes && t.backward_cost <= tapes[n].backward_cost &&
             t.scratch_bytes <= tapes[n].scratch_bytes && t.forward_scratch_bytes <= tapes[n].forward_scratch_bytes;
    };
    const bool later = std::any_of(tapes.begin(), tapes.begin() + static_cast<std::ptrdiff_t>(n), beats);
    const bool worse = std::any_of(tapes.begin() + static_cast<std::ptrdiff_t>(n) + 1, tapes.end(), [&](const Tape& t) {
      return beats(t) && (t.bytes < tapes[n].bytes || t.backward_cost < tapes[n].backward_cost ||
                          t.scratch_bytes < tapes[n].scratch_bytes);
    });
    if (n == 0 || (!later && !worse)) front.push_back(tapes[n]);
  }
  std::stable_sort(front.begin() + 1, front.end(), [](const Tape& a, const Tape& b) { return a.bytes > b.bytes; });
  tapes = front;
}

inline Link half_link(const HalfBlock& half, const std::vector<double>& prices) {
  const unsigned all = (1u << half.output()) - 2;
  const HalfWalk forward = forward_walk(half, 0, false);
  Link link{.name = half.name,
            .forward_cost = forward.cost,
            .boundary_bytes = half.bytes.back(),
            .forward_scratch_bytes = forward.scratch_bytes,
            .tapes = {},
            .residues = {}};
  for (unsigned kept = all;; kept -= 2) {  // all subsets, the full one first
    const HalfWalk backward = walk(half, kept, half.backward, 0);
    const Tape tape{.bytes = half.bytes.back() + kept_bytes(half, kept),
                    .backward_cost = backward.cost,
                    .scratch_bytes = backward.scratch_bytes,
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
  // Costs in flops of reading or writing a value once: X for a value of x bytes, and W for a value
  // of h bytes.
  const double X = kFlopsPerByte * static_cast<double>(x), W = kFlopsPerByte * static_cast<double>(h);
  const double square = 2 * T * C * C, wide = 2 * T * C * H, core = T * T * C;  // core: flops of one causal product
  LlamaHalves halves;
  // The values: 0 x, 1 normed, 2 q, 3 k, 4 v (q and k are rotated in place), 5 attention's output,
  // 6 x + projection.
  halves.attention = {"attention",
                      {x, x, x, x, x, x, x},
                      {{},
                       {2 * X, {0}, {}, {}},
                       {square + 2 * X, {1}, {}, {}},
                       {square + 2 * X, {1}, {}, {}},
                       {square + 2 * X, {1}, {}, {}},
                       {2 * core + 4 * X, {2, 3, 4}, {}, {}},
                       {square + 3 * X, {0, 5}, {}, {}}},
                      {{2 * square + 4 * X, {5}, {x}, {}},
                       {5 * core + 8 * X, {2, 3, 4, 5}, {x, x, x}, {x}},
                       {6 * square + 8 * X, {1}, {x}, {x, x, x}},
                       {4 * X, {0}, {}, {x}}}};
  // The values: 0 x, 1 normed, 2 gate, 3 up, 4 silu(gate) * up, 5 x + projection.
  halves.mlp = {"mlp",
                {x, x, h, h, h, x},
                {{},
                 {2 * X, {0}, {}, {}},
                 {wide + X + W, {1}, {}, {}},
                 {wide + X + W, {1}, {}, {}},
                 {3 * W, {2, 3}, {}, {}},
                 {wide + 2 * X + W, {0, 4}, {}, {}}},
                {{2 * wide + 2 * X + 2 * W, {4}, {h}, {}},
                 {5 * W, {2, 3}, {h, h}, {h}},
                 {4 * wide + 3 * X + 2 * W, {1}, {x}, {h, h}},
                 {4 * X, {0}, {}, {x}}}};
  return halves;
}

// Returns three prices of a kept byte, the highest first. Keeping a set of values saves a cost per
// byte. Each price is slightly below this saving for one set; the first and the last belong to the
// sets with the largest and the smallest saving.
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
  const uint64_t chunk = std::min<uint64_t>(512, s.sequence) * s.vocabulary * 4;  // logits of 512 rows in f32
  Chain chain{.input_bytes = s.sequence * 4, .links = {}};
  const auto alone = [&](const char* name, double forward, double backward, uint64_t boundary, uint64_t scratch) {
    chain.links.push_back({.name = name,
                           .forward_cost = forward,
                           .boundary_bytes = boundary,
                           .forward_scratch_bytes = scratch,
                           .tapes = {{.bytes = boundary,
                                      .backward_cost = backward,
                                      .scratch_bytes = scratch,
                                      .forward_scratch_bytes = scratch}},
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
