// What a low-rank adapter is asked to be (LoRA, Hu et al. 2021).
// Here because recipes, PEFT's folders and llama.cpp's files all say it, and what it means must be one thing.
#pragma once

#include <cmath>
#include <string>
#include <vector>

namespace reprise {

struct LoraSettings {
  int r = 8;
  double alpha = 8;
  double dropout = 0;                // of what an adapter reads
  std::vector<std::string> targets;  // ends of layers' names; empty: every linear layer but the head
  bool rslora = false;
  // alpha / r, or alpha / sqrt(r) of rsLoRA (Kalajdzievski 2023).
  double scale() const { return alpha / (rslora ? std::sqrt(r) : r); }
  bool operator==(const LoraSettings&) const = default;
};

}  // namespace reprise
