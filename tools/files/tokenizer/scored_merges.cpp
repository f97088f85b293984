// See scored_merges.h.
#include "tools/files/tokenizer/scored_merges.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/tokenizer/characters.h"

namespace reprise {

std::vector<ScoredMerge> merges_by_score(const TokenizerFile& file) {
  std::unordered_map<std::string_view, int32_t> id_of_name;
  for (size_t id = 0; id < file.tokens.size(); ++id) {
    if (is_joined(file.tokens[id].kind)) id_of_name.emplace(file.tokens[id].name, static_cast<int32_t>(id));
  }
  // Each token is cut at each of its characters, and both parts are looked up. This takes quadratic
  // time in the token's length, so the lengths are limited.
  constexpr uint64_t kMaxWork = uint64_t{1} << 32;
  uint64_t work = 0;
  for (const auto& [name, id] : id_of_name) {
    work += name.size() * name.size();
    if (work > kMaxWork || name.size() > (size_t{1} << 16))
      throw UserError(file.path + ": its tokens are too long: the token " + std::to_string(id) + ", " +
                      json_shown(std::string(name)) + ", has " + std::to_string(name.size()) +
                      " bytes; all bytes squared must be at most 2^32 together");
  }
  std::vector<float> scores = file.scores;
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<ScoredMerge> merges;
  for (const auto& [name, id] : id_of_name) {
    const float score = file.scores[static_cast<size_t>(id)];
    const auto rank =
        static_cast<uint32_t>(std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin());
    for (size_t at = name.empty() ? 0 : character_at(name, 0).bytes; at < name.size();
         at += character_at(name, at).bytes) {
      const auto left = id_of_name.find(name.substr(0, at)), right = id_of_name.find(name.substr(at));
      if (left != id_of_name.end() && right != id_of_name.end())
        merges.push_back({left->second, right->second, id, rank});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  return merges;
}

}  // namespace reprise
