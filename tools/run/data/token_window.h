// One sample of a token set: a window of a long sequence of tokens. Its labels are the window one
// token later. Files and synthetic tokens use it; they differ only in the source of a token.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "lib/batch.h"
#include "lib/plan.h"  // kIgnoredLabel

namespace reprise {

class TokenWindow {
 public:
  explicit TokenWindow(uint64_t sequence) : tokens_(sequence + 1), no_labels_(sequence, kIgnoredLabel) {}

  // Adds sample n to `sink`: tokens n*T .. n*T+T, both included. Calls read(first, count, to),
  // which reads `count` tokens from token `first` on. If there is no sample, adds zeros without
  // labels.
  template <typename Read>
  void add_to(BatchSink& sink, std::optional<uint64_t> sample, const Read& read) {
    const uint64_t T = no_labels_.size();
    if (sample) {
      read(*sample * T, T + 1, tokens_.data());
    } else {
      std::fill(tokens_.begin(), tokens_.end(), 0);
    }
    sink.add(tokens_.data(), T * sizeof(int32_t), sample ? tokens_.data() + 1 : no_labels_.data(), T);
  }

 private:
  std::vector<int32_t> tokens_;  // [T + 1]: a window and the next token
  std::vector<int32_t> no_labels_;
};

}  // namespace reprise
