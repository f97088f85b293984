// The GGUF format: "GGUF", a version, two counts, the metadata, the table of tensors, padding, then
// the tensors' blocks. Source: docs/gguf.md in github.com/ggml-org/ggml; its rules are enforced
// here.
#include "tools/files/formats/gguf.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <tuple>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

using nlohmann::json;

// Limits that are far above the files of real models. An element of a list takes 16 bytes of
// memory, whatever its type.
constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxListElements = uint64_t{8} << 20;  // maximum elements of all lists together
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

struct TypeRow {
  const char* name;
  uint64_t bytes;  // bytes in the file; for strings and lists, the bytes before their contents
};
constexpr TypeRow kTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},      {"u32", 4},
                              {"i32", 4}, {"f32", 4}, {"bool", 1}, {"a string", 8}, {"a list", 12},
                              {"u64", 8}, {"i64", 8}, {"f64", 8}};

const TypeRow& row_of(GgufType type) { return kTypes[static_cast<size_t>(type)]; }

bool is_integer(GgufType type) {
  return type != GgufType::kF32 && type != GgufType::kF64 && type != GgufType::kBool && type != GgufType::kString &&
         type != GgufType::kArray;
}
bool is_float(GgufType type) { return type == GgufType::kF32 || type == GgufType::kF64; }
bool is_string(GgufType type) { return type == GgufType::kString; }

// Reads the head of the file (all bytes before the tensors' data) sequentially, a piece at a time.
class HeadReader {
 public:
  explicit HeadReader(const InputFile& file) : file_(file), piece_(std::min(kPieceBytes, file.bytes())) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return std::min(file_.bytes(), kMaxHeaderBytes) - at_; }
  [[noreturn]] void refuse(const std::string& reason) const { throw UserError(file_.path() + ": " + field_ + reason); }

  // Sets the name of the field that is being read; it begins error messages.
  void enter(const std::string& field) { field_ = field.empty() ? "" : field + ": "; }

  void read(void* to, uint64_t bytes) {
    if (bytes > left()) refuse_end();
    char* next = static_cast<char*>(to);
    while (bytes > 0) {
      if (at_ < begin_ || at_ >= begin_ + held_) fill();
      const uint64_t size = std::min(bytes, begin_ + held_ - at_);
      std::memcpy(next, piece_.data() + (at_ - begin_), size);
      next += size;
      at_ += size;
      bytes -= size;
    }
  }

  template <typename T>
  T number() {
    T value;
    read(&value, sizeof value);
    return value;
  }

  std::string string(uint64_t maximum, const char* what) {
    const uint64_t bytes = number<uint64_t>();
    if (bytes > left())
      refuse(std::string(what) + " of " + std::to_string(bytes) +
             " bytes reaches past the end; the file is truncated or damaged");
    if (bytes > maximum)
      refuse(std::string(what) + " of " + std::to_string(bytes) + " bytes is too long: at most " +
             std::to_string(maximum));
    std::string text(bytes, '\0');
    read(text.data(), bytes);
    return text;
  }

  // Reads the number of items that follow, each of at least `min_bytes` bytes. Refuses a number
  // that is too large for the file, before memory is allocated for the items.
  uint64_t count(uint64_t min_bytes, uint64_t maximum, const char* what) {
    const uint64_t count = number<uint64_t>();
    if (count > left() / min_bytes) {
      refuse(std::to_string(count) + " " + what + " do not fit in the rest of the file; it is truncated or damaged");
    }
    if (count > maximum)
      refuse(std::to_string(count) + " " + what + " are too many: at most " + std::to_string(maximum));
    return count;
  }

 private:
  void fill() {
    begin_ = at_;
    held_ = std::min<uint64_t>(piece_.size(), file_.bytes() - at_);
    file_.read(begin_, piece_.data(), held_);
  }
  [[noreturn]] void refuse_end() const {
    if (file_.bytes() > kMaxHeaderBytes)
      refuse("the metadata are larger than " + std::to_string(kMaxHeaderBytes) + " bytes");
    refuse("the file ends at byte " + std::to_string(file_.bytes()) + ", in the middle of it; it is truncated");
  }

  const InputFile& file_;
  std::string field_;
  uint64_t at_ = 0, begin_ = 0, held_ = 0;
  std::vector<char> piece_;
};

json read_scalar(HeadReader& head, GgufType type) {
  switch (type) {
    case GgufType::kU8: return head.number<uint8_t>();
    case GgufType::kI8: return head.number<int8_t>();
    case GgufType::kU16: return head.number<uint16_t>();
    case GgufType::kI16: return head.number<int16_t>();
    case GgufType::kU32: return head.number<uint32_t>();
    case GgufType::kI32: return head.number<int32_t>();
    case GgufType::kU64: return head.number<uint64_t>();
    case GgufType::kI64: return head.number<int64_t>();
    case GgufType::kF32: return head.number<float>();
    case GgufType::kF64: return head.number<double>();
    case GgufType::kBool: {
      const uint8_t byte = head.number<uint8_t>();
      if (byte > 1) head.refuse("a bool of " + std::to_string(byte) + " must be 0 or 1");
      return byte == 1;
    }
    case GgufType::kString: return head.string(kMaxHeaderBytes, "a string");
    case GgufType::kArray: break;
  }
  throw std::logic_error("GgufFile: a list is no scalar");
}

GgufType read_type(HeadReader& head) {
  const uint32_t type = head.number<uint32_t>();
  if (type >= std::size(kTypes)) head.refuse("its type " + std::to_string(type) + " is none of the format's 0 to 12");
  return static_cast<GgufType>(type);
}

GgufValue read_value(HeadReader& head, uint64_t& list_elements) {
  GgufValue read;
  read.type = read_type(head);
  if (read.type != GgufType::kArray) {
    read.value = read_scalar(head, read.type);
    return read;
  }
  read.element = read_type(head);
  if (read.element == GgufType::kArray) head.refuse("a list of lists is not read here");
  const uint64_t count = head.count(row_of(read.element).bytes, kMaxListElements - list_elements, "list elements");
  list_elements += count;
  json::array_t list;
  list.reserve(count);
  for (uint64_t n = 0; n < count; ++n) list.push_back(read_scalar(head, read.element));
  read.value = std::move(list);
  return read;
}

std::string tensor_field(const std::string& name) { return "tensor " + json_shown(name); }

// Computes the bytes of the tensor. Throws if a row (the innermost dimension) is not a whole number
// of blocks.
void measure(HeadReader& head, GgufTensor& tensor) {
  const BlockLayout& layout = block_layout(tensor.type);
  const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row % layout.values != 0) {
    head.refuse("its rows of " + std::to_string(row) + " values are no whole blocks of " + layout.name +
                ", which hold " + std::to_string(layout.values));
  }
  uint64_t elements = 1;
  bool fits = true;
  for (const uint64_t dimension : tensor.shape) fits = fits && !__builtin_mul_overflow(elements, dimension, &elements);
  fits = fits && !__builtin_mul_overflow(elements / layout.values, uint64_t{layout.bytes}, &tensor.bytes) &&
         elements <= uint64_t{1} << 62;
  if (!fits) head.refuse("its shape " + json(tensor.shape).dump() + " is too large");
}

GgufTensor read_tensor(HeadReader& head, uint64_t n) {
  head.enter("tensor " + std::to_string(n));
  GgufTensor tensor;
  tensor.name = head.string(kMaxNameBytes, "a name");
  head.enter(tensor_field(tensor.name));
  const uint32_t dimensions = head.number<uint32_t>();
  if (dimensions > kMaxDimensions)
    head.refuse(std::to_string(dimensions) + " dimensions are too many: at most " + std::to_string(kMaxDimensions));
  for (uint32_t d = 0; d < dimensions; ++d) {
    tensor.shape.insert(tensor.shape.begin(), head.number<uint64_t>());
    if (tensor.shape.front() == 0) head.refuse("a dimension is 0; it must be at least 1");
  }
  const uint32_t type = head.number<uint32_t>();
  if (find_block_layout(type) == nullptr) {
    const char* name = ggml_type_name(type);
    head.refuse("is stored as " + (name == nullptr ? "type " + std::to_string(type) : std::string(name)) +
                ", which is not read here; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K, Q3_K, Q4_K, "
                "Q5_K and Q6_K are");
  }
  tensor.type = static_cast<BlockType>(type);
  measure(head, tensor);
  tensor.offset = head.number<uint64_t>();  // relative to the data; place_tensors() makes it relative to the file
  return tensor;
}

// Converts offsets in the data to offsets in the file. Throws if a tensor is not aligned, is not
// within the file, or shares bytes with another tensor.
void place_tensors(std::vector<GgufTensor>& tensors, uint64_t data_begin, uint64_t alignment, const InputFile& file) {
  const auto refuse = [&](const GgufTensor& tensor, const std::string& reason) {
    throw UserError(file.path() + ": " + tensor_field(tensor.name) + ": " + reason);
  };
  const uint64_t data_bytes = data_begin > file.bytes() ? 0 : file.bytes() - data_begin;
  for (GgufTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      refuse(tensor, "begins at byte " + std::to_string(tensor.offset) + " of the data, no multiple of the alignment " +
                         std::to_string(alignment));
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      refuse(tensor, "its " + std::to_string(tensor.bytes) + " bytes from byte " + std::to_string(tensor.offset) +
                         " of the data on reach past the file's " + std::to_string(data_bytes) +
                         " bytes of data; the file is truncated");
    }
    tensor.offset += data_begin;
  }
  std::vector<const GgufTensor*> in_order;
  for (const GgufTensor& tensor : tensors) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::tie(a->offset, a->bytes) < std::tie(b->offset, b->bytes);
  });
  for (size_t n = 1; n < in_order.size(); ++n) {
    if (in_order[n - 1]->offset + in_order[n - 1]->bytes > in_order[n]->offset)
      refuse(*in_order[n], "overlaps " + tensor_field(in_order[n - 1]->name));
  }
}

// Returns the alignment of the tensors: the metadata's value, or 32 if there is none.
uint64_t alignment_of(const GgufFile& file) {
  const GgufValue* value = file.find_value("general.alignment");
  if (value == nullptr) return 32;
  const bool fits = is_integer(value->type) && value->value.is_number_unsigned();
  const uint64_t alignment = fits ? value->value.get<uint64_t>() : 0;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kMaxAlignment) {
    throw UserError(file.path() + ": metadata \"general.alignment\": " + json_shown(value->value) +
                    " must be a power of two up to " + std::to_string(kMaxAlignment));
  }
  return alignment;
}

void read_version(HeadReader& head) {
  char magic[4] = {};
  if (head.left() < 24) head.refuse("no GGUF file: " + std::to_string(head.left()) + " bytes are too few for its head");
  head.read(magic, sizeof magic);
  if (std::memcmp(magic, "GGUF", sizeof magic) != 0) head.refuse("no GGUF file: it must begin with \"GGUF\"");
  const uint32_t version = head.number<uint32_t>();
  if (version == 2 || version == 3) return;
  const bool swapped = version == 2u << 24 || version == 3u << 24;
  head.refuse(swapped ? "is a big-endian GGUF file; only little-endian ones are read here"
                      : "is of version " + std::to_string(version) + " of GGUF; versions 2 and 3 are read here");
}

}  // namespace

uint64_t GgufTensor::elements() const {
  uint64_t elements = 1;
  for (const uint64_t dimension : shape) elements *= dimension;
  return elements;
}

GgufFile::GgufFile(const std::string& path) : file_(path) {
  const LongWork work("reading " + path);
  constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8, kMinValueBytes = 8 + 4 + 1;
  refuse_other_kinds(file_, "a GGUF file", {FileKind::kGguf});
  HeadReader head(file_);
  read_version(head);
  const uint64_t tensors = head.count(kMinTensorBytes, kMaxTensors, "tensors");
  const uint64_t values = head.count(kMinValueBytes, kMaxTensors, "keys of metadata");
  uint64_t list_elements = 0;
  for (uint64_t n = 0; n < values; ++n) {
    head.enter("metadata " + std::to_string(n));
    const std::string key = head.string(kMaxNameBytes, "a key");
    head.enter("metadata " + json_shown(key));
    if (!value_by_key_.emplace(key, metadata_.size()).second) head.refuse("is given twice");
    metadata_.emplace_back(key, read_value(head, list_elements));
  }
  for (uint64_t n = 0; n < tensors; ++n) {
    GgufTensor tensor = read_tensor(head, n);
    if (!tensor_by_name_.emplace(tensor.name, tensors_.size()).second) head.refuse("is given twice");
    tensors_.push_back(std::move(tensor));
  }
  alignment_ = alignment_of(*this);
  place_tensors(tensors_, (head.at() + alignment_ - 1) / alignment_ * alignment_, alignment_, file_);
}

const GgufValue* GgufFile::find_value(const std::string& key) const {
  const auto found = value_by_key_.find(key);
  return found == value_by_key_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufTensor* GgufFile::find_tensor(const std::string& name) const {
  const auto found = tensor_by_name_.find(name);
  return found == tensor_by_name_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::refuse_kind(const std::string& key, const GgufValue& value, const char* right) const {
  const std::string is =
      value.type == GgufType::kArray
          ? std::string("a list of ") + (is_string(value.element) ? "strings" : row_of(value.element).name)
          : std::string(row_of(value.type).name) + " " + json_shown(value.value);
  throw UserError(path() + ": metadata " + json_shown(key) + ": is " + is + ", must be " + right);
}

std::optional<std::string> GgufFile::text(const std::string& key) const {
  const GgufValue* found = find_value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufType::kString) refuse_kind(key, *found, "a string");
  return found->value.get<std::string>();
}

std::optional<uint64_t> GgufFile::unsigned_integer(const std::string& key) const {
  const GgufValue* found = find_value(key);
  if (found == nullptr) return std::nullopt;
  const bool fits = is_integer(found->type) && (found->value.is_number_unsigned() || found->value.get<int64_t>() >= 0);
  if (!fits) refuse_kind(key, *found, "an integer of at least 0");
  return found->value.get<uint64_t>();
}

std::optional<double> GgufFile::number(const std::string& key) const {
  const GgufValue* found = find_value(key);
  if (found == nullptr) return std::nullopt;
  if (!is_integer(found->type) && !is_float(found->type)) refuse_kind(key, *found, "a number");
  return found->value.get<double>();
}

std::optional<bool> GgufFile::boolean(const std::string& key) const {
  const GgufValue* found = find_value(key);
  if (found == nullptr) return std::nullopt;
  if (found->type != GgufType::kBool) refuse_kind(key, *found, "a bool");
  return found->value.get<bool>();
}

const json* GgufFile::array(const std::string& key, bool (*fits)(GgufType), const char* right) const {
  const GgufValue* found = find_value(key);
  if (found == nullptr) return nullptr;
  if (found->type != GgufType::kArray || !fits(found->element)) refuse_kind(key, *found, right);
  return &found->value;
}

const json* GgufFile::strings(const std::string& key) const { return array(key, is_string, "a list of strings"); }
const json* GgufFile::integers(const std::string& key) const { return array(key, is_integer, "a list of integers"); }
const json* GgufFile::numbers(const std::string& key) const { return array(key, is_float, "a list of floats"); }

void GgufFile::read_stored(const GgufTensor& tensor, uint64_t at, void* to, uint64_t bytes) const {
  if (at > tensor.bytes || bytes > tensor.bytes - at)
    throw std::logic_error("GgufFile: a read past the end of a tensor of " + path());
  file_.read(tensor.offset + at, to, bytes);
}

void GgufFile::read(const GgufTensor& tensor, uint64_t first, uint64_t count, float* to) const {
  const uint64_t elements = tensor.elements();
  if (first > elements || count > elements - first)
    throw std::logic_error("GgufFile: a read past the end of a tensor of " + path());
  const BlockLayout& layout = block_layout(tensor.type);
  if (tensor.type == BlockType::kF32) return read_stored(tensor, first * sizeof(float), to, count * sizeof(float));
  constexpr uint64_t kStackBytes = 16 << 10;
  unsigned char blocks[kStackBytes];
  float values[kMaxBlockValues];
  const uint64_t max_blocks = kStackBytes / layout.bytes;
  while (count > 0) {
    const uint64_t skip = first % layout.values;
    const bool part = skip != 0 || count < layout.values;  // true: a part of one block is read
    const uint64_t taken = part ? 1 : std::min(count / layout.values, max_blocks);
    read_stored(tensor, first / layout.values * layout.bytes, blocks, taken * layout.bytes);
    const uint64_t size = part ? std::min(layout.values - skip, count) : taken * layout.values;
    dequantise_blocks(tensor.type, blocks, taken, part ? values : to);
    if (part) std::copy_n(values + skip, size, to);
    to += size;
    first += size;
    count -= size;
  }
}

namespace {

template <typename T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void append_string(std::string& text, const std::string& value) {
  append(text, uint64_t{value.size()});
  text += value;
}

void append_scalar(std::string& text, GgufType type, const json& value) {
  switch (type) {
    case GgufType::kU8: return append(text, value.get<uint8_t>());
    case GgufType::kI8: return append(text, value.get<int8_t>());
    case GgufType::kU16: return append(text, value.get<uint16_t>());
    case GgufType::kI16: return append(text, value.get<int16_t>());
    case GgufType::kU32: return append(text, value.get<uint32_t>());
    case GgufType::kI32: return append(text, value.get<int32_t>());
    case GgufType::kU64: return append(text, value.get<uint64_t>());
    case GgufType::kI64: return append(text, value.get<int64_t>());
    case GgufType::kF32: return append(text, value.get<float>());
    case GgufType::kF64: return append(text, value.get<double>());
    case GgufType::kBool: return append(text, uint8_t{value.get<bool>()});
    case GgufType::kString: return append_string(text, value.get_ref<const std::string&>());
    case GgufType::kArray: break;
  }
  throw std::logic_error("GgufWriter: a list is no scalar");
}

const std::string kMarkKey = std::string("reprise.") + kWriterKey;

}  // namespace

GgufWriter::GgufWriter(const std::string& path) : file_(path) {
  append_string(metadata_, kMarkKey);
  append(metadata_, static_cast<uint32_t>(GgufType::kString));
  append_string(metadata_, mark_of(kGgufFile));
  ++values_;
}

void GgufWriter::add(const std::string& key, const GgufValue& value) {
  if (head_written_) throw std::logic_error("GgufWriter: metadata after data");
  if (key == kMarkKey) return;
  if (key == "general.alignment") alignment_ = value.value.get<uint64_t>();
  append_string(metadata_, key);
  append(metadata_, static_cast<uint32_t>(value.type));
  if (value.type == GgufType::kArray) {
    append(metadata_, static_cast<uint32_t>(value.element));
    append(metadata_, uint64_t{value.value.size()});
    for (const json& element : value.value) append_scalar(metadata_, value.element, element);
  } else {
    append_scalar(metadata_, value.type, value.value);
  }
  ++values_;
}

void GgufWriter::declare(const std::string& name, BlockType type, const std::vector<uint64_t>& shape) {
  if (head_written_) throw std::logic_error("GgufWriter: declaration after data");
  GgufTensor tensor{name, type, shape};
  const BlockLayout& layout = block_layout(type);
  if (!shape.empty() && shape.back() % layout.values != 0)
    throw std::logic_error("GgufWriter: rows of " + name + " are no whole blocks");
  tensor.bytes = tensor.elements() / layout.values * layout.bytes;
  tensors_.push_back(std::move(tensor));
}

void GgufWriter::write_head() {
  std::string head = "GGUF";
  append(head, uint32_t{3});
  append(head, uint64_t{tensors_.size()});
  append(head, values_);
  head += metadata_;
  uint64_t offset = 0;
  for (GgufTensor& tensor : tensors_) {
    tensor.offset = offset;
    offset += (tensor.bytes + alignment_ - 1) / alignment_ * alignment_;
    append_string(head, tensor.name);
    append(head, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d > 0; --d) append(head, tensor.shape[d - 1]);
    append(head, static_cast<uint32_t>(tensor.type));
    append(head, tensor.offset);
  }
  file_.write(head.data(), head.size());
  pad();
  head_written_ = true;
}

void GgufWriter::pad() {
  const std::string zeros((alignment_ - file_.sum().bytes % alignment_) % alignment_, '\0');
  file_.write(zeros.data(), zeros.size());
}

void GgufWriter::write(const void* data, uint64_t bytes) {
  if (!head_written_) write_head();
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    if (tensor_ == tensors_.size()) throw std::logic_error("GgufWriter: more data than declared");
    const uint64_t size = std::min(bytes, tensors_[tensor_].bytes - tensor_written_);
    file_.write(next, size);
    next += size;
    bytes -= size;
    tensor_written_ += size;
    if (tensor_written_ < tensors_[tensor_].bytes) continue;
    pad();
    ++tensor_;
    tensor_written_ = 0;
  }
}

FileSum GgufWriter::finish() {
  if (!head_written_) write_head();
  if (tensor_ != tensors_.size()) throw std::logic_error("GgufWriter: less data than declared");
  file_.finish();
  return file_.sum();
}

}  // namespace reprise
