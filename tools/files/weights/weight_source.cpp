// See weight_source.h.
#include "tools/files/weights/weight_source.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "tools/files/io/input_file.h"
#include "tools/files/weights/bitsandbytes_weights.h"
#include "tools/files/weights/gguf_weights.h"
#include "tools/files/weights/safetensors_weights.h"

namespace reprise {
namespace {

DType exact_type(const WeightSource& source, const std::string& name) {
  const StoredWeight* weight = source.find(name);
  if (weight == nullptr || !weight->exact)
    throw std::logic_error("WeightSource: no weight " + name + " in " + source.path());
  return *weight->exact;
}

void require_type(const WeightSource& source, const std::string& name, DType type) {
  if (exact_type(source, name) != type)
    throw std::logic_error("WeightSource: " + name + " of " + source.path() + " is of another type");
}

}  // namespace

void WeightSource::read(const std::string& name, uint64_t first, uint64_t count, float* to) const {
  if (exact_type(*this, name) == DType::kF32) return read_exact(name, first, count, to);
  require_type(*this, name, DType::kBf16);
  // Reads bf16 numbers into the upper half of `to`, and then widens them in place, from the first
  // number to the last.
  Bf16* narrow = reinterpret_cast<Bf16*>(to) + count;
  read_exact(name, first, count, narrow);
  for (uint64_t i = 0; i < count; ++i) {
    Bf16 value;
    std::memcpy(&value, narrow + i, sizeof value);
    const float wide = value;
    std::memcpy(to + i, &wide, sizeof wide);
  }
}

void WeightSource::read(const std::string& name, uint64_t first, uint64_t count, Bf16* to) const {
  if (exact_type(*this, name) == DType::kBf16) return read_exact(name, first, count, to);
  std::vector<float> wide(count);
  read(name, first, count, wide.data());
  std::copy(wide.begin(), wide.end(), to);
}

void WeightSource::read(const std::string& name, uint64_t first, uint64_t count, int64_t* to) const {
  require_type(*this, name, DType::kI64);
  read_exact(name, first, count, to);
}

void WeightSource::read(const std::string& name, uint64_t first, uint64_t count, uint8_t* to) const {
  require_type(*this, name, DType::kU8);
  read_exact(name, first, count, to);
}

void WeightSource::read_stored(const std::string& name, uint64_t, uint64_t, void*) const {
  throw std::logic_error("WeightSource: " + name + " of " + path() + " is not read as it is stored");
}

namespace {

std::unique_ptr<WeightSource> open_files(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    const std::string whole = path + "/model.safetensors", index = whole + ".index.json";
    const bool is_sharded = !std::filesystem::exists(whole, ignored) && std::filesystem::exists(index, ignored);
    return is_sharded ? open_sharded_weights(index) : open_safetensors_weights(whole);
  }
  if (path.ends_with(".index.json")) return open_sharded_weights(path);
  return is_gguf(path) ? open_gguf_weights(path) : open_safetensors_weights(path);
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::string& path) {
  std::unique_ptr<WeightSource> files = open_files(path);
  return has_bitsandbytes_weights(*files) ? open_bitsandbytes_weights(std::move(files)) : std::move(files);
}

std::string stored_name(const WeightSource& source, const std::string& name) {
  static const std::string kPrefix = "transformer.";
  const size_t prefix = name.find(kPrefix);
  if (source.find(name) != nullptr || prefix == std::string::npos) return name;
  const std::string bare = name.substr(0, prefix) + name.substr(prefix + kPrefix.size());
  return source.find(bare) != nullptr ? bare : name;
}

}  // namespace reprise
