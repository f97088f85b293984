// The settings of a low-rank adapter (LoRA, Hu et al. 2021; DoRA, Liu et al. 2024). Recipes, PEFT's
// folders and llama.cpp's files are all read into this form.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace reprise {

// The settings of an adapter. A pattern matches the end of a layer's name, in whole parts
// (matches_end). If several patterns of a map match a layer, the longest applies; of equally long
// patterns the first in alphabetical order.
struct LoraSettings {
  int r = 8;
  double alpha = 8;
  double dropout = 0;                // probability with which an element of the adapter's input is dropped
  std::vector<std::string> targets;  // patterns of layers; empty: every linear layer except the head
  // True: the scale is alpha / sqrt(r) in place of alpha / r (rsLoRA).
  bool rslora = false;
  // B's learning rate divided by A's (LoRA+, Hayou et al. 2024). It is a setting of the training,
  // not of the adapter.
  double lr_ratio = 1;
  // True for DoRA: the length of each row of the adapted weight is trained, too. Recipes then
  // require dropout 0.
  bool dora = false;
  std::map<std::string, int> rank_pattern = {};      // pattern of layers -> their rank, in place of `r`
  std::map<std::string, double> alpha_pattern = {};  // pattern of layers -> their alpha, in place of `alpha`
  // Patterns of modules that are trained directly, without an adapter.
  std::vector<std::string> modules_to_save = {};

  bool targets_layer(const std::string& layer) const;
  // True if the module, or a module that contains it, is trained directly.
  bool saves_module(const std::string& module) const;
  int rank_of(const std::string& layer) const;
  double alpha_of(const std::string& layer) const;
  // Returns the layer's alpha / r, or alpha / sqrt(r) for rsLoRA (Kalajdzievski 2023).
  double scale_of(const std::string& layer) const;
  bool operator==(const LoraSettings&) const = default;
};

// The rank and alpha of one layer.
struct LayerNumbers {
  std::string layer;
  int rank = 0;
  double alpha = 0;
};
// Replaces rank_pattern and alpha_pattern, so that rank_of() and alpha_of() return the numbers of
// `layers`. A layer gets an entry only if r (or alpha) and the entries of shorter names would give
// it another number.
void set_patterns(LoraSettings& settings, std::vector<LayerNumbers> layers);

}  // namespace reprise
