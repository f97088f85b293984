// See base_weights.h.
#include "tools/run/snapshots/base_weights.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"

namespace reprise {
namespace {

using nlohmann::json;

FileSum read_sum(const json& value) { return {value.at("bytes").get<uint64_t>(), value.at("xxh3").get<std::string>()}; }

void require_same(const std::string& path, const FileSum& is, const FileSum& was, const std::string& snapshot) {
  if (is == was) return;
  throw UserError(path + ": is not the file that the adapters of " + snapshot + " were trained beside (" +
                  std::to_string(is.bytes) + " bytes, xxh3 " + is.checksum + "; must be " + std::to_string(was.bytes) +
                  ", " + was.checksum + "); put that one there again");
}

}  // namespace

std::string find_base(const BaseWeights& base, const Recipe& recipe, const std::string& snapshot) {
  std::error_code ignored;
  if (std::filesystem::exists(base.path, ignored)) return base.path;
  const std::string other = !recipe.init.from.empty() ? recipe.init.from : published_weights(recipe);
  if (!other.empty() && std::filesystem::exists(other, ignored)) return other;
  throw UserError(base.path + ": is not there; the adapters of " + snapshot +
                  " were trained beside it: put it there again, or name its folder in the recipe");
}

BaseWeights sum_base(const WeightSource& weights) {
  BaseWeights base = {std::filesystem::absolute(weights.path()).string(), sum_of_file(weights.path()), {}};
  for (const std::string& shard : weights.shards())
    base.shards[std::filesystem::path(shard).filename().string()] = sum_of_file(shard);
  return base;
}

void require_same_base(const BaseWeights& is, const BaseWeights& was, const std::string& snapshot) {
  require_same(is.path, is.sum, was.sum, snapshot);
  for (const auto& [name, sum] : was.shards) {
    const auto found = is.shards.find(name);
    require_same((std::filesystem::path(is.path).parent_path() / name).string(),
                 found == is.shards.end() ? FileSum() : found->second, sum, snapshot);
  }
}

json base_json(const BaseWeights& base) {
  json value = {{"path", base.path}, {"bytes", base.sum.bytes}, {"xxh3", base.sum.checksum}};
  for (const auto& [name, sum] : base.shards) value["shards"][name] = {{"bytes", sum.bytes}, {"xxh3", sum.checksum}};
  return value;
}

BaseWeights read_base(const json& value) {
  BaseWeights base = {value.at("path").get<std::string>(), read_sum(value), {}};
  const json shards = value.value("shards", json::object());
  for (const auto& [name, sum] : shards.items()) base.shards[name] = read_sum(sum);
  return base;
}

}  // namespace reprise
