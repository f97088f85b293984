// See quantised_weights.h.
#include "tools/weights/quantised_weights.h"

#include <algorithm>
#include <map>

#include "tools/formats/ggml_blocks.h"

namespace reprise {
namespace {

constexpr uint64_t kPiece = 4096;  // numbers, whole blocks of every format

class QuantisedWeights : public WeightSource {
 public:
  QuantisedWeights(std::unique_ptr<WeightSource> source, DType format) : source_(std::move(source)), format_(format) {
    for (const std::string& name : source_->names()) {
      const StoredWeight& weight = *source_->find(name);
      const bool is_number = weight.exact == DType::kF32 || weight.exact == DType::kBf16, is_matrix = weight.shape.size() == 2;
      if (!is_number || (format != DType::kF32 && (!is_matrix || !are_whole_blocks(format, weight.shape[1])))) continue;
      quantised_[name] = weight;
      quantised_[name].format = format;
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override { return source_->names(); }
  const StoredWeight* find(const std::string& name) const override {
    const auto quantised = quantised_.find(name);
    return quantised != quantised_.end() ? &quantised->second : source_->find(name);
  }
  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override { source_->read_exact(name, first, count, to); }

  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    if (quantised_.count(name) == 0) return source_->read_stored(name, first, count, to);
    std::vector<float> numbers(std::min(count, kPiece));
    for (unsigned char* at = static_cast<unsigned char*>(to); count > 0;) {
      const uint64_t part = std::min(count, kPiece);
      source_->read(name, first, part, numbers.data());
      quantise_blocks(*block_type_of(format_), numbers.data(), part / dtype_info(format_).block_elements, at);
      first += part, count -= part, at += stored_bytes(format_, part);
    }
  }

 private:
  const std::unique_ptr<WeightSource> source_;
  const DType format_;
  std::map<std::string, StoredWeight> quantised_;
};

}  // namespace

std::unique_ptr<WeightSource> quantise_weights(std::unique_ptr<WeightSource> source, DType format) {
  return std::make_unique<QuantisedWeights>(std::move(source), format);
}

}  // namespace reprise
