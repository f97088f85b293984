// See scored_merges.h.
#include "tools/tokenizer/scored_merges.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "tools/tokenizer/characters.h"

namespace reprise {

std::vector<ScoredMerge> merges_by_score(const TokenizerFile& file) {
  std::unordered_map<std::string_view, int32_t> id_of_name;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (is_joined(file.tokens[id].kind)) id_of_name.emplace(file.tokens[id].name, static_cast<int32_t>(id));
  }
  std::vector<float> scores = file.scores;
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<ScoredMerge> merges;
  for (const auto& [name, id] : id_of_name) {
    const float score = file.scores[static_cast<size_t>(id)];
    const auto rank = static_cast<uint32_t>(std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin());
    for (size_t at = name.empty() ? 0 : character_at(name, 0).bytes; at < name.size(); at += character_at(name, at).bytes) {
      const auto left = id_of_name.find(name.substr(0, at)), right = id_of_name.find(name.substr(at));
      if (left != id_of_name.end() && right != id_of_name.end()) merges.push_back({left->second, right->second, id, rank});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  return merges;
}

}  // namespace reprise
