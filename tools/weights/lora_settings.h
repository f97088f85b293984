// What a low-rank adapter is asked to be (LoRA, Hu et al. 2021; DoRA, Liu et al. 2024).
// Here because recipes, PEFT's folders and llama.cpp's files all say it, and what it means must be one thing.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace reprise {

// Patterns are of the ends of names, in whole parts (matches_end). Of several in a map that match a layer the longest counts, of these the
// first in alphabetical order.
struct LoraSettings {
  int r = 8;
  double alpha = 8;
  double dropout = 0;                // of what an adapter reads
  std::vector<std::string> targets;  // patterns of layers; empty: every linear layer but the head
  bool rslora = false;
  double lr_ratio = 1;               // of B's learning rate over A's (LoRA+, Hayou et al. 2024); of a training, not of its adapter
  bool dora = false;                 // beside A and B the length of each row of the adapted weight is trained; not with dropout
  std::map<std::string, int> rank_pattern = {};      // in place of r, by patterns of layers
  std::map<std::string, double> alpha_pattern = {};  // in place of alpha
  std::vector<std::string> modules_to_save = {};     // patterns of modules that are trained whole, in place of an adapter beside them

  bool targets_layer(const std::string& layer) const;
  bool saves_module(const std::string& module) const;  // or one that it lies in
  int rank_of(const std::string& layer) const;
  double alpha_of(const std::string& layer) const;
  // alpha / r, or alpha / sqrt(r) of rsLoRA (Kalajdzievski 2023), of the layer's own.
  double scale_of(const std::string& layer) const;
  bool operator==(const LoraSettings&) const = default;
};

// Makes the patterns the whole names of those layers that have another rank or alpha than r and alpha.
struct LayerNumbers {
  std::string layer;
  int rank = 0;
  double alpha = 0;
};
void set_patterns(LoraSettings& settings, std::vector<LayerNumbers> layers);

}  // namespace reprise
