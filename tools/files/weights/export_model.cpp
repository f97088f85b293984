// See export_model.h.
#include "tools/files/weights/export_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/tokenizer/new_tokens.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/tied_head.h"

namespace reprise {
namespace {

constexpr uint64_t kPieceElements = uint64_t{1} << 16;

[[noreturn]] void refuse(const WeightSource& weights, const std::string& name, const std::string& reason) {
  throw UserError(weights.path() + ": tensor " + json_shown(name) + ": " + reason);
}

uint64_t elements_of(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) elements *= dimension;
  return elements;
}

// Measures by how much the written numbers differ from the given numbers.
class Differences {
 public:
  void add(const float* given, const float* written, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const double number = given[i], difference = std::fabs(written[i] - number);
      largest_ = std::max(largest_, std::fabs(number));
      largest_difference_ = std::max(largest_difference_, difference);
      squares_ += number * number;
      squares_of_differences_ += difference * difference;
    }
  }
  WrittenTensor of(const std::string& name, BlockType type) const {
    return {name, type, largest_ > 0 ? largest_difference_ / largest_ : 0,
            squares_ > 0 ? std::sqrt(squares_of_differences_ / squares_) : 0};
  }

 private:
  double largest_ = 0, largest_difference_ = 0, squares_ = 0, squares_of_differences_ = 0;
};

// Encodes numbers as blocks of the written type. Refuses NaN, and numbers outside the type's range.
class Encoder {
 public:
  Encoder(const WeightSource& weights, const std::string& name, BlockType type, Differences& differences)
      : weights_(weights), name_(name), type_(type), largest_(largest_of(type)), differences_(differences) {}

  const std::vector<unsigned char>& encode(const float* numbers, uint64_t count) {
    const auto fits = [&](float number) { return std::fabs(number) <= largest_; };  // false for NaN
    const float* wrong = std::find_if_not(numbers, numbers + count, fits);
    if (wrong != numbers + count) {
      refuse(weights_, name_,
             "a number is " + std::to_string(*wrong) +
                 (std::isfinite(*wrong) ? std::string(", beyond the range of ") + block_layout(type_).name
                                        : ", must be finite: these weights are damaged"));
    }
    const BlockLayout& layout = block_layout(type_);
    blocks_.resize(count / layout.values * layout.bytes);
    quantise_blocks(type_, numbers, count / layout.values, blocks_.data());
    if (type_ == BlockType::kF32) return blocks_;  // F32 is exact: there is no difference to measure
    written_.resize(count);
    dequantise_blocks(type_, blocks_.data(), count / layout.values, written_.data());
    differences_.add(numbers, written_.data(), count);
    return blocks_;
  }

 private:
  static float largest_of(BlockType type) {
    constexpr float kLargestHalf = 65504;
    if (type == BlockType::kF16) return kLargestHalf;
    if (type == BlockType::kQ8_0) return kLargestHalf * 127;
    if (type == BlockType::kQ4_0) return kLargestHalf * 8;
    if (type == BlockType::kQ5_0) return kLargestHalf * 16;
    // Up to this limit, d = range / (15 * 63) and dmin = |minimum| / 63 are in the range of f16.
    if (type == BlockType::kQ4_K) return kLargestHalf * 32;
    return type == BlockType::kBf16 ? 0x1.fep127f : std::numeric_limits<float>::max();
  }
  const WeightSource& weights_;
  const std::string& name_;
  BlockType type_;
  float largest_;
  Differences& differences_;
  std::vector<unsigned char> blocks_;
  std::vector<float> written_;
};

// Reads one of Hugging Face's tensors in the row order that a GGUF has for it.
class GgufRows {
 public:
  GgufRows(const WeightSource& weights, const std::string& name, GgufOrder order, uint64_t head)
      : weights_(weights), name_(name), order_(order), head_(head), shape_(weights.find(name)->shape) {
    if (order_ == GgufOrder::kTransposed) std::swap(shape_[0], shape_[1]);
    columns_ = shape_.size() < 2 ? 1 : shape_[1];
  }
  uint64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  uint64_t columns() const { return columns_; }

  // Reads rows [first, first + count) in the GGUF's order.
  void read(uint64_t first, uint64_t count, float* to) {
    if (order_ == GgufOrder::kSame || order_ == GgufOrder::kPlusOne) {
      weights_.read(name_, first * columns_, count * columns_, to);
      for (uint64_t i = 0; order_ == GgufOrder::kPlusOne && i < count * columns_; ++i) to[i] += 1.0f;
      return;
    }
    if (order_ == GgufOrder::kPairs) {
      for (uint64_t row = first; row < first + count; ++row, to += columns_)
        weights_.read(name_, published_row(row) * columns_, columns_, to);
      return;
    }
    std::vector<float> across(count);  // a row of the GGUF is a column of Hugging Face's tensor
    for (uint64_t c = 0; c < columns_; ++c) {
      weights_.read(name_, c * rows() + first, count, across.data());
      for (uint64_t r = 0; r < count; ++r) to[r * columns_ + c] = across[r];
    }
  }

  // Reads rows [first, first + count) as the blocks that the source stores, `row_bytes` bytes for
  // each row. The GGUF's order must not be kTransposed.
  void read_stored(uint64_t first, uint64_t count, uint64_t row_bytes, unsigned char* to) {
    for (uint64_t row = first; row < first + count; ++row, to += row_bytes) {
      weights_.read_stored(name_, (order_ == GgufOrder::kPairs ? published_row(row) : row) * columns_, columns_, to);
    }
  }

 private:
  // Returns Hugging Face's row for a row in the order kPairs: the inverse of paired_row().
  uint64_t published_row(uint64_t row) const {
    const uint64_t in_head = row % head_;
    return row - in_head + in_head % 2 * (head_ / 2) + in_head / 2;
  }
  const WeightSource& weights_;
  const std::string name_;
  GgufOrder order_;
  uint64_t head_;
  std::vector<uint64_t> shape_;
  uint64_t columns_ = 1;
};

// ---- GGUF ----

// One tensor of the file to write. `parts` are the source's tensors that fill its rows, in
// ascending order of their first row. If `parts` is empty, the tensor `like` is copied.
struct Planned {
  const GgufTensor* like;
  std::vector<uint64_t> shape;
  BlockType type;
  std::vector<std::pair<std::string, GgufPlace>> parts;
};

// Returns the value of general.file_type: llama.cpp's code for a file in which most tensors have
// the type `type`.
uint32_t file_type_of(BlockType type) {
  switch (type) {
    case BlockType::kF16: return 1;
    case BlockType::kQ4_0: return 2;
    case BlockType::kQ8_0: return 7;
    case BlockType::kQ4_K: return 14;
    case BlockType::kBf16: return 32;
    default: return 0;
  }
}

// Returns the type of a tensor in the written file if the user requested `type` for matrices.
BlockType type_of(const GgufTensor& tensor, BlockType type) {
  if (tensor.shape.size() != 2) return BlockType::kF32;
  for (const BlockType tried : {type, type == BlockType::kQ4_K ? BlockType::kQ5_0 : type}) {
    if (tensor.shape[1] % block_layout(tried).values == 0) return tried;
  }
  return BlockType::kF32;
}

bool is_table(const std::string& name) {
  return name == kHead || name == "model.embed_tokens.weight" || name == "transformer.wte.weight";
}

std::vector<Planned> plan_tensors(const WeightSource& weights, const GgufFile& like, uint64_t table_rows,
                                  BlockType type) {
  std::map<const GgufTensor*, Planned> planned;
  for (const auto& [name, place] : gguf_places(like)) {
    std::string stored = stored_name(weights, name);
    const bool is_tied = name == kHead && weights.find(stored) == nullptr && !find_embeddings(weights).empty();
    // A GGUF of GPT-2 may store its one table twice, as embeddings and as head. A source without a
    // head fills both from its embeddings.
    if (is_tied) stored = find_embeddings(weights);
    const StoredWeight* weight = weights.find(stored);
    if (weight == nullptr) refuse(weights, stored, "missing; " + like.path() + " has it");
    const bool grows = table_rows > 0 && is_table(name);
    std::vector<uint64_t> shape = place.shape();
    if (grows) shape[0] = table_rows;
    if (weight->shape != shape) {
      refuse(weights, stored,
             "is " + nlohmann::json(weight->shape).dump() + ", but " + nlohmann::json(shape).dump() + " in " +
                 like.path());
    }
    planned[place.tensor].parts.emplace_back(stored, place);
    planned[place.tensor].shape = grows ? shape : place.tensor->shape;
  }
  std::vector<Planned> tensors;
  for (const GgufTensor& tensor : like.tensors()) {
    Planned& entry = planned[&tensor];
    entry.like = &tensor;
    if (entry.parts.empty()) entry.shape = tensor.shape;
    std::sort(entry.parts.begin(), entry.parts.end(),
              [](const auto& a, const auto& b) { return a.second.first_row < b.second.first_row; });
    entry.type = entry.parts.empty() ? tensor.type : type_of(tensor, type);
    tensors.push_back(entry);
  }
  return tensors;
}

void copy_stored(const GgufFile& file, const GgufTensor& tensor, GgufWriter& writer) {
  std::vector<unsigned char> piece(std::min<uint64_t>(kPieceElements, tensor.bytes));
  for (uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    const uint64_t size = std::min<uint64_t>(piece.size(), tensor.bytes - at);
    file.read_stored(tensor, at, piece.data(), size);
    writer.write(piece.data(), size);
  }
}

// True if the source stores the tensor in blocks of the written type, with the numbers of the
// written tensor in whole rows. The caller then copies these blocks, because quantising their
// numbers again may give other blocks.
bool has_blocks(const StoredWeight& weight, const Planned& tensor, GgufOrder order) {
  return block_layout(tensor.type).values > 1 && order != GgufOrder::kTransposed && order != GgufOrder::kPlusOne &&
         weight.format == weight_format_of(tensor.type);
}

void copy_rows(GgufRows& rows, BlockType type, GgufWriter& writer) {
  const BlockLayout& layout = block_layout(type);
  const uint64_t row_bytes = rows.columns() / layout.values * layout.bytes,
                 at_once = std::max<uint64_t>(1, kPieceElements / rows.columns());
  std::vector<unsigned char> blocks(std::min(at_once, rows.rows()) * row_bytes);
  for (uint64_t row = 0; row < rows.rows(); row += at_once) {
    const uint64_t count = std::min(at_once, rows.rows() - row);
    rows.read_stored(row, count, row_bytes, blocks.data());
    writer.write(blocks.data(), count * row_bytes);
  }
}

WrittenTensor write_rows(const WeightSource& weights, const Planned& tensor, uint64_t head, GgufWriter& writer) {
  Differences differences;
  for (const auto& [name, place] : tensor.parts) {
    GgufRows rows(weights, name, place.order, head);
    if (has_blocks(*weights.find(name), tensor, place.order)) {
      copy_rows(rows, tensor.type, writer);
      continue;
    }
    Encoder encoder(weights, name, tensor.type, differences);
    // A transposed tensor is read completely for every piece, so its pieces are larger.
    const uint64_t piece = place.order == GgufOrder::kTransposed ? 16 * kPieceElements : kPieceElements;
    const uint64_t at_once = std::max<uint64_t>(1, piece / rows.columns());
    std::vector<float> numbers(std::min(at_once, rows.rows()) * rows.columns());
    for (uint64_t row = 0; row < rows.rows(); row += at_once) {
      const uint64_t count = std::min(at_once, rows.rows() - row);
      rows.read(row, count, numbers.data());
      const std::vector<unsigned char>& blocks = encoder.encode(numbers.data(), count * rows.columns());
      writer.write(blocks.data(), blocks.size());
    }
  }
  return differences.of(tensor.like->name, tensor.type);
}

void copy_metadata(const GgufFile& like, const std::map<std::string, GgufValue>& others, BlockType type,
                   GgufWriter& writer) {
  const GgufValue file_type = {GgufType::kU32, {}, file_type_of(type)};
  for (const auto& [key, value] : like.metadata()) {
    const auto other = others.find(key);
    writer.add(key, key == "general.file_type" ? file_type : other != others.end() ? other->second : value);
  }
  for (const auto& [key, value] : others) {
    if (like.find_value(key) == nullptr) writer.add(key, value);
  }
  if (like.find_value("general.file_type") == nullptr) writer.add("general.file_type", file_type);
  if (block_layout(type).values > 1 && like.find_value("general.quantization_version") == nullptr) {
    writer.add("general.quantization_version", {GgufType::kU32, {}, 2u});
  }
}

}  // namespace

std::vector<WrittenTensor> write_safetensors_model(const WeightSource& weights, BlockType type,
                                                   const std::string& path) {
  const StoredType stored = type == BlockType::kF16    ? StoredType::kF16
                            : type == BlockType::kBf16 ? StoredType::kBf16
                                                       : StoredType::kF32;
  const LongWork work("writing " + path);
  SafetensorsWriter writer(path);
  writer.add_metadata("format", "pt");
  std::vector<std::string> names;
  for (const std::string& name : weights.names()) {
    const auto exact = weights.find(name)->exact;
    if (exact == DType::kF32 || exact == DType::kBf16) names.push_back(name);
  }
  for (const std::string& name : names) writer.declare(name, stored, weights.find(name)->shape);
  std::vector<float> numbers(kPieceElements);
  std::vector<WrittenTensor> written;
  for (size_t n = 0; n < names.size(); ++n) {
    Differences differences;
    Encoder encoder(weights, names[n], type, differences);
    const uint64_t elements = elements_of(weights.find(names[n])->shape);
    for (uint64_t at = 0; at < elements; at += numbers.size()) {
      const uint64_t count = std::min<uint64_t>(numbers.size(), elements - at);
      weights.read(names[n], at, count, numbers.data());
      const std::vector<unsigned char>& blocks = encoder.encode(numbers.data(), count);
      writer.write(blocks.data(), blocks.size());
    }
    written.push_back(differences.of(names[n], type));
  }
  writer.finish();
  return written;
}

GgufVocabulary gguf_vocabulary(const GgufFile& like, const TokenizerFile& tokenizer, uint64_t rows) {
  constexpr int kNormal = 1, kUserDefined = 4, kUnused = 5;
  const char *const kTokens = "tokenizer.ggml.tokens", *const kTypes = "tokenizer.ggml.token_type",
                    *const kScores = "tokenizer.ggml.scores";
  GgufVocabulary vocabulary = {.metadata = {}, .rows = rows};
  const auto taken = [&](const std::string& key) -> nlohmann::json* {
    const GgufValue* value = like.find_value(key);
    return value == nullptr ? nullptr : &(vocabulary.metadata[key] = *value).value;
  };
  nlohmann::json &tokens = *taken(kTokens), &types = *taken(kTypes), *const scores = taken(kScores);
  for (const AddedToken& added : tokenizer.added) {
    const auto id = static_cast<size_t>(added.id);
    const std::string& name = tokenizer.tokens[id].name;
    if (id < tokens.size() && tokens[id] == name && types[id] != kNormal && types[id] != kUnused) continue;
    tokens[id] = name;
    types[id] = kUserDefined;
    if (scores != nullptr) (*scores)[id] = kAddedScore;
  }
  const std::string key = gguf_architecture(like) + ".vocab_size";
  if (nlohmann::json* count = taken(key)) *count = rows;
  return vocabulary;
}

std::vector<WrittenTensor> write_gguf_model(const WeightSource& weights, const GgufFile& like, BlockType type,
                                            const std::string& path, const GgufVocabulary& vocabulary) {
  const LongWork work("writing " + path);
  const std::vector<Planned> tensors = plan_tensors(weights, like, vocabulary.rows, type);
  const uint64_t head = gguf_heads(like).head;
  GgufWriter writer(path);
  copy_metadata(like, vocabulary.metadata, type, writer);
  for (const Planned& tensor : tensors) writer.declare(tensor.like->name, tensor.type, tensor.shape);
  std::vector<WrittenTensor> written;
  for (const Planned& tensor : tensors) {
    if (tensor.parts.empty()) {
      copy_stored(like, *tensor.like, writer);
    } else {
      written.push_back(write_rows(weights, tensor, head, writer));
    }
  }
  writer.finish();
  return written;
}

namespace {

// Returns a layer's alpha for llama.cpp, which computes the scale as alpha / rank.
double gguf_alpha(const Adapter& adapter, const AdapterLayer& layer) {
  return adapter.settings.alpha_of(layer.name) *
         (adapter.settings.rslora ? std::sqrt(static_cast<double>(layer.rank)) : 1);
}

// Returns the alpha that most layers have; the largest if several are equally common.
double max_common_alpha(const Adapter& adapter) {
  std::map<double, size_t> layers;
  for (const AdapterLayer& layer : adapter.layers) ++layers[gguf_alpha(adapter, layer)];
  return std::max_element(layers.begin(), layers.end(),
                          [](const auto& a, const auto& b) {
                            return a.second < b.second || (a.second == b.second && a.first < b.first);
                          })
      ->first;
}

// Returns the layers' names in the written GGUF file. Throws if the file cannot contain one of the
// layers.
std::vector<GgufName> adapter_names(const Adapter& adapter, const std::string& architecture, uint64_t head) {
  std::vector<GgufName> names;
  if (!adapter.saved.empty()) {
    refuse(*adapter.weights, adapter.saved[0],
           "was trained whole (lora.modules_to_save), which a GGUF adapter has no place for: llama.cpp refuses the "
           "file, and leaves norms out; " +
               std::string("export --adapter, or a merged model"));
  }
  for (const AdapterLayer& layer : adapter.layers) {
    const auto name = gguf_name(architecture, layer.name + ".weight");
    if (!name)
      throw UserError(adapter.weights->path() + ": the adapter of " + json_shown(layer.name) +
                      " is of no layer of the architecture " + json_shown(architecture));
    if (name->order == GgufOrder::kPairs && (head == 0 || head % 2 != 0 || layer.out % head != 0)) {
      throw UserError(adapter.weights->path() + ": the adapter of " + json_shown(layer.name) + ": its " +
                      std::to_string(layer.out) + " rows are no whole heads of " + std::to_string(head));
    }
    names.push_back(*name);
  }
  return names;
}

void write_adapter_layer(const Adapter& adapter, const AdapterLayer& layer, GgufOrder order, uint64_t head,
                         double factor, GgufWriter& writer) {
  const std::vector<float> down = read_matrix(*adapter.weights, layer.down());
  writer.write(down.data(), down.size() * sizeof(float));
  std::vector<float> up(layer.out * layer.rank);
  const GgufOrder rows = order == GgufOrder::kPairs ? GgufOrder::kPairs : GgufOrder::kSame;  // B is never transposed
  GgufRows(*adapter.weights, layer.up(), rows, head).read(0, layer.out, up.data());
  if (factor != 1) {
    for (float& number : up) number = static_cast<float>(number * factor);
  }
  writer.write(up.data(), up.size() * sizeof(float));
}

}  // namespace

FoldedScales write_gguf_adapter(const Adapter& adapter, const std::string& architecture, uint64_t head,
                                const std::string& path) {
  if (adapter.settings.dora)
    throw UserError(adapter.weights->path() +
                    ": is of a DoRA, which a GGUF adapter cannot hold: export --adapter, --merged or --merged-gguf");
  const std::vector<GgufName> names = adapter_names(adapter, architecture, head);
  const double alpha = max_common_alpha(adapter);
  GgufWriter writer(path);
  const auto add_text = [&](const char* key, const std::string& text) {
    writer.add(key, {GgufType::kString, {}, text});
  };
  add_text("general.type", "adapter");
  add_text("general.architecture", architecture);
  add_text("adapter.type", "lora");
  writer.add("adapter.lora.alpha", {GgufType::kF32, {}, alpha});
  for (size_t n = 0; n < names.size(); ++n) {
    const AdapterLayer& layer = adapter.layers[n];
    writer.declare(names[n].name + ".lora_a", BlockType::kF32, {layer.rank, layer.in});
    writer.declare(names[n].name + ".lora_b", BlockType::kF32, {layer.out, layer.rank});
  }
  FoldedScales folded;
  for (size_t n = 0; n < names.size(); ++n) {
    const double factor = gguf_alpha(adapter, adapter.layers[n]) / alpha;
    int exponent = 0;
    folded.layers += factor != 1 ? 1 : 0;
    folded.rounded += std::frexp(factor, &exponent) != 0.5 ? 1 : 0;
    write_adapter_layer(adapter, adapter.layers[n], names[n].order, head, factor, writer);
  }
  writer.finish();
  return folded;
}

}  // namespace reprise
