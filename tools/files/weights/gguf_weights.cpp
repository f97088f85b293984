// See gguf_weights.h.
#include "tools/files/weights/gguf_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "tools/files/io/error.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/listed_weights.h"

namespace reprise {
namespace {

// Caches consecutive columns of a tensor, each stored as a row. It serves to read transposed
// tensors: the file stores rows in blocks, so a single column cannot be read alone.
class Columns {
 public:
  void hold(const GgufFile& file, const GgufTensor& tensor, uint64_t column) {
    if (&tensor == tensor_ && column >= first_ && column < first_ + count_) return;
    const uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const uint64_t block = block_layout(tensor.type).values, fitting = kBytes / sizeof(float) / rows;
    tensor_ = &tensor;
    first_ = column / block * block;
    count_ = std::min(std::max(fitting / block, uint64_t{1}) * block, columns - first_);
    values_.resize(count_ * rows);
    std::vector<float> row(count_);
    for (uint64_t r = 0; r < rows; ++r) {
      file.read(tensor, r * columns + first_, count_, row.data());
      for (uint64_t c = 0; c < count_; ++c) values_[c * rows + r] = row[c];
    }
  }
  const float* column(uint64_t column) const { return values_.data() + (column - first_) * tensor_->shape[0]; }

 private:
  static constexpr uint64_t kBytes = uint64_t{1} << 20;
  const GgufTensor* tensor_ = nullptr;
  uint64_t first_ = 0, count_ = 0;
  std::vector<float> values_;  // [count, rows of the tensor]
};

struct GgufEntry {
  GgufPlace place;
  StoredWeight weight;
};

class GgufWeights : public ListedWeights<GgufEntry> {
 public:
  explicit GgufWeights(const std::string& path) : file_(path), head_(gguf_heads(file_).head) {
    for (const auto& [name, place] : gguf_places(file_)) {
      const BlockLayout& layout = block_layout(place.tensor->type);
      // For kPlusOne the reader subtracts 1 from each number, and the result may need more digits
      // than the file's type has.
      const bool is_plain = place.order != GgufOrder::kPlusOne;
      const DType exact = layout.type == BlockType::kBf16 && is_plain ? DType::kBf16 : DType::kF32;
      const std::vector<uint64_t> shape = place.shape();
      const uint64_t elements = std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
      // A transposed tensor has no format of blocks, because the file's blocks are along the file's
      // rows, which are columns here.
      const std::optional<DType> format =
          place.order == GgufOrder::kTransposed || !is_plain ? exact : weight_format_of(layout.type);
      entries_[name] = {place, {shape, layout.name, exact, elements / layout.values * layout.bytes, format}};
    }
  }

  const std::string& path() const override { return file_.path(); }

 private:
  void read_exact(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const GgufEntry& entry = find_entry(name, first, count);
    if (entry.place.order == GgufOrder::kPlusOne)
      return read_one_less(entry.place, first, count, static_cast<float*>(to));
    if (*entry.weight.exact == DType::kBf16) return read_rows(entry, first, count, static_cast<Bf16*>(to));
    read_rows(entry, first, count, static_cast<float*>(to));
  }

  void read_stored(const std::string& name, uint64_t first, uint64_t count, void* to) const override {
    const GgufEntry& entry = find_entry(name, first, count);
    const GgufTensor& tensor = *entry.place.tensor;
    if (entry.place.order == GgufOrder::kTransposed || entry.place.order == GgufOrder::kPlusOne) {
      throw std::logic_error("WeightSource: " + name + " of " + path() + " stands otherwise");
    }
    const BlockLayout& layout = block_layout(tensor.type);
    const uint64_t columns = entry.weight.shape.back();
    for (unsigned char* at = static_cast<unsigned char*>(to); count > 0;) {
      const uint64_t row = first / columns,
                     there =
                         entry.place.first_row + (entry.place.order == GgufOrder::kSame ? row : paired_row(row, head_));
      const uint64_t size = std::min(count, columns - first % columns), bytes = size / layout.values * layout.bytes;
      file_.read_stored(tensor, (there * columns + first % columns) / layout.values * layout.bytes, at, bytes);
      first += size, count -= size, at += bytes;
    }
  }

  const GgufEntry& find_entry(const std::string& name, uint64_t first, uint64_t count) const {
    const GgufEntry& entry = entries_.at(name);
    uint64_t elements = 1;
    for (const uint64_t dimension : entry.weight.shape) elements *= dimension;
    if (first > elements || count > elements - first)
      throw std::logic_error("WeightSource: a read past the end of " + name + " of " + path());
    return entry;
  }

  // Reads numbers [first, first + count) of a tensor of the file. They must be in one row.
  void read_part(const GgufTensor& tensor, uint64_t first, uint64_t count, float* to) const {
    file_.read(tensor, first, count, to);
  }
  void read_part(const GgufTensor& tensor, uint64_t first, uint64_t count, Bf16* to) const {
    file_.read_stored(tensor, first * sizeof(Bf16), to, count * sizeof(Bf16));
  }

  void read_one_less(const GgufPlace& place, uint64_t first, uint64_t count, float* to) const {
    file_.read(*place.tensor, first, count, to);
    for (uint64_t i = 0; i < count; ++i) to[i] -= 1.0f;
  }

  template <typename Number>
  void read_rows(const GgufEntry& entry, uint64_t first, uint64_t count, Number* to) const {
    const GgufPlace& place = entry.place;
    const std::vector<uint64_t>& shape = entry.weight.shape;
    const uint64_t columns = shape.size() < 2 ? 1 : shape[1];
    if (place.order == GgufOrder::kSame) return read_part(*place.tensor, place.first_row * columns + first, count, to);
    while (count > 0) {
      const uint64_t row = first / columns, at = first % columns, size = std::min(count, columns - at);
      if (place.order == GgufOrder::kTransposed) {
        columns_.hold(file_, *place.tensor, row);
        std::copy_n(columns_.column(row) + at, size, to);
      } else {
        read_part(*place.tensor, (place.first_row + paired_row(row, head_)) * columns + at, size, to);
      }
      first += size;
      count -= size;
      to += size;
    }
  }

  GgufFile file_;
  uint64_t head_;
  mutable Columns columns_;
};

}  // namespace

bool is_gguf(const std::string& path) {
  try {
    const InputFile file(path);
    char magic[4] = {};
    if (file.bytes() < sizeof magic) return false;
    file.read(0, magic, sizeof magic);
    return std::memcmp(magic, "GGUF", sizeof magic) == 0;
  } catch (const UserError&) {
    return false;
  }
}

std::unique_ptr<WeightSource> open_gguf_weights(const std::string& path) { return std::make_unique<GgufWeights>(path); }

}  // namespace reprise
