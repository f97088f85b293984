// See safetensors_weights.h.
#include "tools/files/weights/safetensors_weights.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lib/f16.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/listed_weights.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxFiles = 1000;  // maximum number of files; each file stays open

std::optional<DType> exact_type(StoredType type) {
  switch (type) {
    case StoredType::kF32:
    case StoredType::kF16: return DType::kF32;
    case StoredType::kBf16: return DType::kBf16;
    case StoredType::kI64: return DType::kI64;
    case StoredType::kU8: return DType::kU8;
    default: return std::nullopt;
  }
}

// Returns lib's type whose layout is that of the stored bytes, so that they can be read directly;
// nothing if there is none.
std::optional<DType> format_of(StoredType type) {
  switch (type) {
    case StoredType::kF32: return DType::kF32;
    case StoredType::kBf16: return DType::kBf16;
    case StoredType::kF16: return DType::kF16;
    default: return std::nullopt;
  }
}

struct SafetensorsEntry {
  const SafetensorsFile* file;
  const StoredTensor* tensor;
  StoredWeight weight;
};

class SafetensorsWeights : public ListedWeights<SafetensorsEntry> {
 public:
  explicit SafetensorsWeights(std::string path) : path_(std::move(path)) {}

  SafetensorsFile& open(const std::string& path) {
    return *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  }
  void add(const SafetensorsFile& file, const std::string& name, const StoredTensor& tensor) {
    entries_[name] = {&file,
                      &tensor,
                      {tensor.shape, stored_type_name(tensor.type), exact_type(tensor.type), tensor.bytes,
                       format_of(tensor.type)}};
  }

  const std::string& path() const override { return path_; }
  std::vector<std::string> shards() const override {
    std::vector<std::string> paths;
    for (const auto& file : files_) {
      if (file->path() != path_) paths.push_back(file->path());
    }
    return paths;
  }

 private:
  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const SafetensorsEntry& entry = entries_.at(name);
    const uint64_t size = stored_type_bytes(entry.tensor->type);
    if (first > entry.tensor->bytes / size || count > entry.tensor->bytes / size - first) {
      throw std::logic_error("WeightSource: a read past the end of " + name + " of " + path_);
    }
    entry.file->read(*entry.tensor, first * size, to, count * size);
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    if (entries_.at(name).tensor->type != StoredType::kF16) return read_stored(name, first, count, to);
    float* wide = static_cast<float*>(to);
    uint16_t halves[4096];
    for (uint64_t at = 0; at < count; at += std::size(halves)) {
      const uint64_t part = std::min<uint64_t>(std::size(halves), count - at);
      read_stored(name, first + at, part, halves);
      for (uint64_t i = 0; i < part; ++i) wide[at + i] = f16_to_f32(halves[i]);
    }
  }

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
};

json read_index(const std::string& path) {
  const uint64_t bytes = InputFile(path).bytes();
  if (bytes > kMaxIndexBytes)
    throw UserError(path + ": " + std::to_string(bytes) + " bytes are too many for an index of tensors");
  const json index = parse_json(read_file(path), path);
  const auto is_string = [](const json& value) { return value.is_string(); };
  const bool has_map = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  if (!has_map || !std::all_of(index["weight_map"].begin(), index["weight_map"].end(), is_string)) {
    throw UserError(path + ": weight_map: must be an object that gives each tensor the name of its file");
  }
  return index["weight_map"];
}

}  // namespace

std::unique_ptr<WeightSource> open_safetensors_weights(const std::string& path) {
  auto weights = std::make_unique<SafetensorsWeights>(path);
  const SafetensorsFile& file = weights->open(path);
  for (const auto& [name, tensor] : file.tensors()) weights->add(file, name, tensor);
  return weights;
}

std::unique_ptr<WeightSource> open_sharded_weights(const std::string& index) {
  auto weights = std::make_unique<SafetensorsWeights>(index);
  const std::string folder = std::filesystem::path(index).parent_path().string();
  std::map<std::string, const SafetensorsFile*> files;
  const json map = read_index(index);
  for (const auto& [name, file] : map.items()) {
    const std::string& base = file.get_ref<const std::string&>();
    const auto refuse = [&, shown = json_shown(name)](const std::string& reason) {
      throw UserError(index + ": weight_map: " + shown + ": " + reason);
    };
    if (base.empty() || base.find_first_of(std::string("/\\\0", 3)) != std::string::npos || base == "." ||
        base == "..") {
      refuse(json_shown(file) + " must be the name of a file beside the index");
    }
    if (files.count(base) == 0) {
      if (files.size() == kMaxFiles) refuse("more than " + std::to_string(kMaxFiles) + " files");
      files[base] = &weights->open((folder.empty() ? "" : folder + "/") + base);
    }
    const SafetensorsFile& shard = *files[base];
    const auto tensor = shard.tensors().find(name);
    if (tensor == shard.tensors().end()) refuse("is not in " + shard.path() + ", where the index has it");
    weights->add(shard, name, tensor->second);
  }
  return weights;
}

}  // namespace reprise
