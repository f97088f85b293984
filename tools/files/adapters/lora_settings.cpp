// See lora_settings.h.
#include "tools/files/adapters/lora_settings.h"

#include <algorithm>
#include <cmath>

#include "tools/files/io/text.h"

namespace reprise {
namespace {

template <typename Number>
Number of_layer(const std::map<std::string, Number>& patterns, const std::string& layer, Number otherwise) {
  size_t longest = 0;
  for (const auto& [pattern, number] : patterns) {
    if (pattern.size() <= longest || !matches_end(pattern, layer)) continue;
    longest = pattern.size();
    otherwise = number;
  }
  return otherwise;
}

}  // namespace

bool LoraSettings::targets_layer(const std::string& layer) const {
  return targets.empty() || std::any_of(targets.begin(), targets.end(),
                                        [&](const std::string& target) { return matches_end(target, layer); });
}

bool LoraSettings::saves_module(const std::string& module) const {
  const auto is_saved = [&](const std::string& name) {
    return std::any_of(modules_to_save.begin(), modules_to_save.end(),
                       [&](const std::string& pattern) { return matches_end(pattern, name); });
  };
  for (size_t end = module.size(); end != std::string::npos && end > 0; end = module.rfind('.', end - 1)) {
    if (is_saved(module.substr(0, end))) return true;
  }
  return false;
}

int LoraSettings::rank_of(const std::string& layer) const { return of_layer(rank_pattern, layer, r); }

double LoraSettings::alpha_of(const std::string& layer) const { return of_layer(alpha_pattern, layer, alpha); }

double LoraSettings::scale_of(const std::string& layer) const {
  const double rank = rank_of(layer);
  return alpha_of(layer) / (rslora ? std::sqrt(rank) : rank);
}

void set_patterns(LoraSettings& settings, std::vector<LayerNumbers> layers) {
  settings.rank_pattern.clear();
  settings.alpha_pattern.clear();
  // Patterns match ends of names. If a layer's name ends in another layer's name, it already gets
  // that layer's numbers. It needs its own entry only if its numbers differ.
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerNumbers& a, const LayerNumbers& b) { return a.layer.size() < b.layer.size(); });
  for (const LayerNumbers& numbers : layers) {
    if (settings.rank_of(numbers.layer) != numbers.rank) settings.rank_pattern[numbers.layer] = numbers.rank;
    if (settings.alpha_of(numbers.layer) != numbers.alpha) settings.alpha_pattern[numbers.layer] = numbers.alpha;
  }
}

}  // namespace reprise
