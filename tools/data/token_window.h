// One sample of a token set: a window of a long row of tokens, and the same window one token further on as its labels.
// Here because files and synthetic tokens differ only in where a token comes from.
#pragma once

#include <optional>
#include <vector>

#include "lib/batch.h"
#include "lib/plan.h"  // kIgnoredLabel

namespace reprise {

class TokenWindow {
 public:
  explicit TokenWindow(uint64_t sequence) : tokens_(sequence), labels_(sequence) {}

  // Sample n reads tokens n*T .. n*T+T, both included, where token(index) is one of the row; no sample: zeros without labels.
  template <typename Token>
  void add_to(BatchSink& sink, std::optional<uint64_t> sample, const Token& token) {
    const uint64_t T = tokens_.size();
    for (uint64_t t = 0; t < T; ++t) {
      tokens_[t] = sample ? token(*sample * T + t) : 0;
      labels_[t] = sample ? token(*sample * T + t + 1) : kIgnoredLabel;
    }
    sink.add(tokens_.data(), T * sizeof(int32_t), labels_.data(), T);
  }

 private:
  std::vector<int32_t> tokens_, labels_;
};

}  // namespace reprise
