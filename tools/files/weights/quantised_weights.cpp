// See quantised_weights.h.
#include "tools/files/weights/quantised_weights.h"

#include <algorithm>
#include <map>

#include "tools/files/formats/ggml_blocks.h"

namespace reprise {
namespace {

constexpr uint64_t kPiece = 4096;  // numbers that are converted at once: whole blocks of every format

class QuantisedWeights : public WeightSource {
 public:
  QuantisedWeights(std::unique_ptr<WeightSource> source, DType wanted) : source_(std::move(source)) {
    for (const std::string& name : source_->names()) {
      const StoredWeight& weight = *source_->find(name);
      const bool is_number = weight.exact == DType::kF32 || weight.exact == DType::kBf16,
                 is_matrix = weight.shape.size() == 2;
      const std::optional<DType> format = is_matrix ? quantised_format(wanted, weight.shape[1]) : std::nullopt;
      if (!is_number || (!format && wanted != DType::kF32)) continue;
      quantised_[name] = weight;
      quantised_[name].format = format.value_or(wanted);
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override { return source_->names(); }
  const StoredWeight* find(const std::string& name) const override {
    const auto quantised = quantised_.find(name);
    return quantised != quantised_.end() ? &quantised->second : source_->find(name);
  }
  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    source_->read_exact(name, first, count, to);
  }

  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto quantised = quantised_.find(name);
    if (quantised == quantised_.end()) return source_->read_stored(name, first, count, to);
    const DType format = *quantised->second.format;
    std::vector<float> numbers(std::min(count, kPiece));
    for (unsigned char* at = static_cast<unsigned char*>(to); count > 0;) {
      const uint64_t part = std::min(count, kPiece);
      source_->read(name, first, part, numbers.data());
      quantise_blocks(*block_type_of(format), numbers.data(), part / dtype_info(format).block_elements, at);
      first += part, count -= part, at += stored_bytes(format, part);
    }
  }

 private:
  const std::unique_ptr<WeightSource> source_;
  std::map<std::string, StoredWeight> quantised_;
};

class NumbersOfBlocks : public WeightSource {
 public:
  NumbersOfBlocks(std::unique_ptr<WeightSource> source, const std::set<std::string>& names)
      : source_(std::move(source)) {
    for (const std::string& name : source_->names()) {
      StoredWeight weight = *source_->find(name);
      const std::string type = weight.format && block_type_of(*weight.format)
                                   ? block_layout(*block_type_of(*weight.format)).name
                                   : weight.type;
      if (names.count(name) > 0) {
        weight.type = type;
        weight.exact = DType::kF32;
        replaced_[name] = {weight, true};
      } else if (type != weight.type) {  // the blocks represent other numbers than the tensor's exact numbers
        weight.format = std::nullopt;
        replaced_[name] = {weight, false};
      }
    }
  }

  const std::string& path() const override { return source_->path(); }
  std::vector<std::string> shards() const override { return source_->shards(); }
  std::vector<std::string> names() const override { return source_->names(); }
  const StoredWeight* find(const std::string& name) const override {
    const auto replaced = replaced_.find(name);
    return replaced != replaced_.end() ? &replaced->second.weight : source_->find(name);
  }
  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    source_->read_stored(name, first, count, to);
  }

  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const auto replaced = replaced_.find(name);
    if (replaced == replaced_.end() || !replaced->second.from_blocks)
      return source_->read_exact(name, first, count, to);
    const DType format = *replaced->second.weight.format;
    const uint64_t values = dtype_info(format).block_elements;
    std::vector<unsigned char> blocks(stored_bytes(format, kPiece));
    std::vector<float> numbers(kPiece);
    // Whole blocks are read, so that the first and the last block may extend beyond the range.
    for (float* at = static_cast<float*>(to); count > 0;) {
      const uint64_t begin = first / values * values,
                     end = std::min(begin + kPiece, (first + count + values - 1) / values * values);
      source_->read_stored(name, begin, end - begin, blocks.data());
      dequantise_blocks(*block_type_of(format), blocks.data(), (end - begin) / values, numbers.data());
      const uint64_t part = std::min(count, end - first);
      std::copy_n(numbers.data() + (first - begin), part, at);
      first += part, count -= part, at += part;
    }
  }

 private:
  struct Entry {
    StoredWeight weight;
    bool from_blocks;
  };
  const std::unique_ptr<WeightSource> source_;
  std::map<std::string, Entry> replaced_;
};

}  // namespace

std::optional<DType> quantised_format(DType format, uint64_t columns) {
  if (format == DType::kNF4Double && !are_whole_blocks(format, columns)) format = DType::kNF4;
  return are_whole_blocks(format, columns) ? std::optional(format) : std::nullopt;
}

std::unique_ptr<WeightSource> numbers_of_blocks(std::unique_ptr<WeightSource> source,
                                                const std::set<std::string>& names) {
  return std::make_unique<NumbersOfBlocks>(std::move(source), names);
}

std::unique_ptr<WeightSource> quantise_weights(std::unique_ptr<WeightSource> source, DType format) {
  return std::make_unique<QuantisedWeights>(std::move(source), format);
}

}  // namespace reprise
