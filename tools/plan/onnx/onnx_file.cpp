// See onnx_file.h.
#include "tools/plan/onnx/onnx_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string_view>

#include "lib/f16.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/shown_text.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/plan/onnx/wire.h"
#include "tools/plan/pt2/module_names.h"
#include "tools/plan/pt2/pt2_file.h"

namespace reprise {
namespace {

constexpr uint64_t kMaxText = 1 << 16, kMaxNumbers = uint64_t{1} << 32, kMaxInLists = uint64_t{1} << 22,
                   kMaxTensorRank = 16;
constexpr uint64_t kMaxMemory = uint64_t{256} << 20;  // limit for all data except the tensors' numbers, in bytes

using wire::Bytes, wire::Message, wire::Wire;
using Field = Message::Field;

// Refuses a file with holes, which read as zeros. Such a file is probably a download that has not
// ended.
void require_whole(const InputFile& file) {
  // kMin: bytes from which on a file is checked. kMinShare: at least 1 / kMinShare of the file must
  // be on the disk; less than all is accepted because a file system may compress.
  constexpr uint64_t kMin = uint64_t{64} << 20, kMinShare = 16;
  struct stat status;
  if (file.bytes() < kMin || ::stat(file.path().c_str(), &status) != 0) return;
  const uint64_t stored = static_cast<uint64_t>(status.st_blocks) * 512;
  if (stored >= file.bytes() / kMinShare) return;
  throw UserError(file.path() + ": has " + std::to_string(file.bytes()) + " bytes, of which " + std::to_string(stored) +
                  " are on the disk, and the others are zeros; must be whole: is it a download that has not ended?");
}

class Reader {
 public:
  explicit Reader(const InputFile& file) : bytes_(file) {}

  OnnxModel read() {
    OnnxModel model;
    bool has_graph = false;
    each(whole(), [&](const Field& f) {
      if (f.number == 2) model.producer = text(f);
      if (f.number == 7) {
        if (has_graph) bytes_.refuse(f.begin, "a second graph");
        has_graph = true;
        read_graph(f, model);
      }
      if (f.number == 8) read_opset(f, model);
      if (f.number == 25) model.has_functions = true;
    });
    if (!has_graph) bytes_.refuse(0, "no graph");
    return model;
  }
  OnnxTensor read_alone() { return read_tensor(whole()); }

 private:
  Field whole() const { return {0, Wire::kBytes, 0, 0, bytes_.file().bytes(), 0}; }
  void each(const Field& message, const std::function<void(const Field&)>& take) {
    if (message.wire != Wire::kBytes) bytes_.refuse(message.begin, "a number stands where a message must");
    Message fields(bytes_, message.begin, message.end);
    while (const std::optional<Field> field = fields.next()) take(*field);
  }
  std::string text(const Field& f) {
    if (f.wire != Wire::kBytes || f.end - f.begin > kMaxText) bytes_.refuse(f.begin, "a text is missing or too long");
    std::string value(f.end - f.begin, '\0');
    take_memory(f, value.size());
    for (uint64_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>(bytes_.at(f.begin + i));
    return value;
  }
  // Returns the name of a node or a value. Written files hold it as JSON, so it must be UTF-8.
  std::string name(const Field& f) {
    const std::string value = text(f);
    if (first_byte_not_utf8(value) != std::string::npos)
      bytes_.refuse(f.begin, "the name \"" + shown_text(value) + "\" is not UTF-8");
    return value;
  }
  void take_memory(const Field& f, uint64_t bytes) {
    memory_ += bytes;
    if (memory_ > kMaxMemory)
      bytes_.refuse(f.begin, "its nodes, names and lists take more than " + std::to_string(kMaxMemory >> 20) + " MiB");
  }
  uint64_t number(const Field& f) {
    if (f.wire != Wire::kVarint) bytes_.refuse(f.begin, "an integer is missing");
    return f.value;
  }
  float real(const Field& f) {
    if (f.wire != Wire::kFour) bytes_.refuse(f.begin, "a number of four bytes is missing");
    return std::bit_cast<float>(static_cast<uint32_t>(f.value));
  }
  // Adds a list of integers, which may be packed or not.
  void add_integers(const Field& f, std::vector<int64_t>& to) {
    if (f.wire == Wire::kVarint) return add(f, to, static_cast<int64_t>(f.value));
    if (f.wire != Wire::kBytes) bytes_.refuse(f.begin, "integers are missing");
    Message list(bytes_, f.begin, f.end);
    while (!list.at_end()) add(f, to, static_cast<int64_t>(list.varint()));
  }
  void add_reals(const Field& f, std::vector<float>& to) {
    if (f.wire == Wire::kFour) return add(f, to, real(f));
    if (f.wire != Wire::kBytes || (f.end - f.begin) % 4 != 0)
      bytes_.refuse(f.begin, "numbers of four bytes are missing");
    for (uint64_t at = f.begin; at < f.end; at += 4) {
      uint32_t bits = 0;
      for (uint32_t i = 0; i < 4; ++i) bits |= uint32_t{bytes_.at(at + i)} << (8 * i);
      add(f, to, std::bit_cast<float>(bits));
    }
  }
  template <typename T>
  void add(const Field& f, std::vector<T>& to, T value) {
    if (to.size() == kMaxInLists) bytes_.refuse(f.begin, "a list is too long");
    take_memory(f, sizeof(T));
    to.push_back(value);
  }

  void read_opset(const Field& message, OnnxModel& model) {
    std::string domain;
    int64_t version = 0;
    each(message, [&](const Field& f) {
      if (f.number == 1) domain = name(f);
      if (f.number == 2) version = static_cast<int64_t>(number(f));
    });
    model.opsets[domain == "ai.onnx" ? "" : domain] = version;
  }

  void read_graph(const Field& message, OnnxModel& model) {
    each(message, [&](const Field& f) {
      if (f.number == 1) {
        if (model.nodes.size() == kMaxOnnxNodes)
          bytes_.refuse(f.begin, "has more than " + std::to_string(kMaxOnnxNodes) +
                                     " nodes, which is the most that is available");
        model.nodes.push_back(read_node(f));
      }
      if (f.number == 5) model.constants.push_back(read_tensor(f));
      if (f.number == 11) model.inputs.push_back(read_value(f));
      if (f.number == 12) model.outputs.push_back(read_value(f));
      if (f.number == 13) read_folded(f, model);
      if (f.number == 15) model.has_sparse = true;
      if (f.number == 16) read_note(f, "pkg.torch.export.ExportedProgram.graph_signature", model.signature);
    });
  }

  OnnxNode read_node(const Field& message) {
    OnnxNode node;
    take_memory(message, sizeof(OnnxNode));
    each(message, [&](const Field& f) {
      if (f.number == 1 || f.number == 2) take_memory(f, sizeof(std::string));
      if (f.number == 1) node.inputs.push_back(name(f));
      if (f.number == 2) node.outputs.push_back(name(f));
      if (f.number == 3) node.name = name(f);
      if (f.number == 4) node.op = name(f);
      if (f.number == 5) node.attributes.push_back(read_attribute(f));
      if (f.number == 7) node.domain = name(f);
      if (f.number == 9) {
        std::string scopes;
        read_note(f, "pkg.torch.onnx.fx_node", node.origin);
        read_note(f, "pkg.torch.onnx.name_scopes", scopes);
        if (!scopes.empty()) node.module = module_of(scopes);
      }
    });
    if (node.domain == "ai.onnx") node.domain.clear();
    return node;
  }

  // Reads an entry of metadata with this key. Other keys are ignored, and so is a value that is too
  // long.
  void read_note(const Field& entry, std::string_view key, std::string& value) {
    constexpr uint64_t kMaxNote = uint64_t{16} << 20;
    bool is_it = false;
    each(entry, [&](const Field& f) {
      const uint64_t size = f.end - f.begin;
      if (f.wire != Wire::kBytes || size > kMaxNote) return;
      if (f.number == 1) is_it = size == key.size() && text(f) == key;
      if (f.number != 2 || !is_it) return;
      take_memory(f, size);
      value.resize(size);
      for (uint64_t i = 0; i < size; ++i) value[i] = static_cast<char>(bytes_.at(f.begin + i));
    });
  }
  void read_folded(const Field& value_info, OnnxModel& model) {
    std::string value, from;
    each(value_info, [&](const Field& f) {
      if (f.number == 1) value = text(f);
      if (f.number == 4) read_note(f, "pkg.onnxscript.optimizer.folded_from", from);
    });
    if (!from.empty()) model.folded_from[value] = from;
  }

  // Returns the innermost module of "['', 'encoder', 'encoder.norm', 'layer_norm_1']": the one
  // before the op.
  static std::string module_of(const std::string& scopes) {
    std::vector<std::string> names;
    for (size_t at = scopes.find('\''); at != std::string::npos; at = scopes.find('\'', at + 1)) {
      const size_t end = scopes.find('\'', at + 1);
      if (end == std::string::npos) return "";
      names.push_back(scopes.substr(at + 1, end - at - 1));
      at = end;
    }
    return names.size() < 2 ? "" : names[names.size() - 2];
  }

  OnnxAttribute read_attribute(const Field& message) {
    OnnxAttribute attribute;
    take_memory(message, sizeof(OnnxAttribute));
    each(message, [&](const Field& f) {
      if (f.number == 1) attribute.name = name(f);
      if (f.number == 2) attribute.number = real(f);
      if (f.number == 3) attribute.integer = static_cast<int64_t>(number(f));
      if (f.number == 4) attribute.text = text(f);
      if (f.number == 5) attribute.tensor = read_tensor(f);
      if (f.number == 7) add_reals(f, attribute.numbers);
      if (f.number == 8) add_integers(f, attribute.integers);
      if (f.number == 20) attribute.type = static_cast<uint32_t>(number(f));
    });
    return attribute;
  }

  OnnxTensor read_tensor(const Field& message) {
    OnnxTensor tensor;
    std::vector<int64_t> shape;
    std::map<std::string, std::string> external;
    bool is_external = false;
    take_memory(message, sizeof(OnnxTensor));
    each(message, [&](const Field& f) {
      if (f.number == 1) add_integers(f, shape);
      if (f.number == 2) tensor.type = static_cast<uint32_t>(number(f));
      if (f.number == 4 || f.number == 9 || f.number == 10) take_numbers(f, tensor);
      if (f.number == 5 || f.number == 7) add_integers(f, tensor.integers);
      if (f.number == 8) tensor.name = name(f);
      if (f.number == 13) external.insert(read_entry(f));
      if (f.number == 14) is_external = number(f) == 1;
    });
    if (shape.size() > kMaxTensorRank)
      bytes_.refuse(message.begin,
                    "tensor " + json_shown(tensor.name) + " has " + std::to_string(shape.size()) + " dimensions");
    double elements = 1;
    for (const int64_t d : shape) {
      if (d < 0)
        bytes_.refuse(message.begin, "tensor " + json_shown(tensor.name) + " has a dimension of " + std::to_string(d));
      elements *= static_cast<double>(d);
      tensor.shape.push_back(static_cast<uint64_t>(d));
    }
    if (elements > static_cast<double>(kMaxNumbers))
      bytes_.refuse(message.begin, "tensor " + json_shown(tensor.name) + " has more than 2^32 numbers");
    if (is_external) place_externally(message, external, tensor);
    return tensor;
  }
  // Notes where the numbers are, which are contiguous in raw_data and in packed lists of four or
  // eight bytes.
  void take_numbers(const Field& f, OnnxTensor& tensor) {
    if (f.wire != Wire::kBytes || tensor.bytes != 0)
      bytes_.refuse(f.begin, "the numbers of a tensor do not lie in one piece");
    tensor.at = f.begin;
    tensor.bytes = f.end - f.begin;
  }
  std::pair<std::string, std::string> read_entry(const Field& message) {
    std::pair<std::string, std::string> entry;
    each(message, [&](const Field& f) {
      if (f.number == 1) entry.first = text(f);
      if (f.number == 2) entry.second = text(f);
    });
    return entry;
  }
  // Notes where external data are. Only files in the model's folder or below are opened.
  void place_externally(const Field& message, std::map<std::string, std::string>& entries, OnnxTensor& tensor) {
    const auto refuse = [&](const std::string& reason) {
      bytes_.refuse(message.begin, "tensor " + json_shown(tensor.name) + ": external data: " + reason);
    };
    const auto integer_of = [&](const char* key, uint64_t absent) {
      const std::string& given = entries[key];
      if (given.empty()) return absent;
      if (given.size() > 18 || !std::all_of(given.begin(), given.end(), [](char c) { return c >= '0' && c <= '9'; }))
        refuse(std::string(key) + " is " + json_shown(given));
      return static_cast<uint64_t>(std::stoull(given));
    };
    const std::filesystem::path location = entries["location"];
    const bool leaves = location.is_absolute() ||
                        std::any_of(location.begin(), location.end(), [](const auto& part) { return part == ".."; });
    const bool has_zero = entries["location"].find('\0') != std::string::npos;
    if (location.empty() || leaves || has_zero)
      refuse("location is " + json_shown(location.string()) + "; must be a file beside the model's");
    std::filesystem::path path = std::filesystem::path(bytes_.file().path()).parent_path();
    for (const auto& part : location) {
      path /= part;
      std::error_code ignored;
      if (std::filesystem::is_symlink(path, ignored))
        refuse("location is " + json_shown(location.string()) +
               ", which a symbolic link leads to; must be a file beside the model's, as a copy is");
    }
    tensor.file = path.string();
    tensor.at = integer_of("offset", 0);
    uint64_t bytes = 0;
    try {
      const InputFile file(tensor.file);
      require_whole(file);
      bytes = file.bytes();
    } catch (const UserError& error) {
      refuse(error.what());
    }
    if (tensor.at > bytes) refuse("offset is behind the end of " + tensor.file);
    tensor.bytes = integer_of("length", bytes - tensor.at);
    if (tensor.bytes > bytes - tensor.at) refuse(tensor.file + " ends before the numbers do");
  }

  OnnxValue read_value(const Field& message) {
    OnnxValue value;
    take_memory(message, sizeof(OnnxValue));
    each(message, [&](const Field& f) {
      if (f.number == 1) value.name = name(f);
      if (f.number == 2) each(f, [&](const Field& type) {
          if (type.number == 1) each(type, [&](const Field& tensor) {
              if (tensor.number == 1) value.type = static_cast<uint32_t>(number(tensor));
              if (tensor.number == 2)
                each(tensor, [&](const Field& d) {
                  if (d.number == 1) value.shape.push_back(read_dimension(d));
                });
            });
        });
    });
    if (value.shape.size() > kMaxTensorRank)
      bytes_.refuse(message.begin,
                    json_shown(value.name) + " has " + std::to_string(value.shape.size()) + " dimensions");
    return value;
  }
  OnnxDimension read_dimension(const Field& message) {
    OnnxDimension dimension;
    take_memory(message, sizeof(OnnxDimension));
    each(message, [&](const Field& f) {
      if (f.number == 1) dimension.size = static_cast<int64_t>(number(f));
      if (f.number == 2) dimension.name = name(f);
    });
    return dimension;
  }

  Bytes bytes_;
  uint64_t memory_ = 0;  // bytes of memory for the model's data so far; at most kMaxMemory
};

}  // namespace

namespace {

// Returns the tensor's numbers, of `of_number` bytes each, one after another. In `bytes` they are
// at the tensor's strides.
std::vector<unsigned char> gathered(const std::vector<unsigned char>& bytes, const OnnxTensor& tensor,
                                    uint64_t of_number) {
  std::vector<unsigned char> all(tensor.elements() * of_number);
  std::vector<uint64_t> place(tensor.shape.size());
  uint64_t from = 0;
  for (uint64_t to = 0; to < all.size(); to += of_number) {
    std::copy_n(bytes.begin() + static_cast<int64_t>(from * of_number), of_number,
                all.begin() + static_cast<int64_t>(to));
    for (size_t d = place.size(); d-- > 0;) {
      from += tensor.strides[d];
      if (++place[d] < tensor.shape[d]) break;
      from -= tensor.shape[d] * tensor.strides[d];
      place[d] = 0;
    }
  }
  return all;
}

}  // namespace

uint64_t OnnxTensor::elements() const {
  constexpr uint64_t kTooMany = uint64_t{1} << 48;  // more than any file contains
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (d != 0 && n > kTooMany / d) return kTooMany;
    n *= d;
  }
  return n;
}

OnnxFile::OnnxFile(const std::string& path)
    : OnnxFile(path, [](const InputFile& file) {
        refuse_other_kinds(file, "an ONNX model or a .pt2 of torch.export", {FileKind::kZip});
        require_whole(file);
        if (is_pt2(file)) return read_pt2(file);
        OnnxModel model = Reader(file).read();
        name_by_module(model);
        return model;
      }) {}

OnnxFile OnnxFile::of_tensor(const std::string& path) {
  return OnnxFile(path, [](const InputFile& file) {
    refuse_other_kinds(file, "a tensor of ONNX");
    OnnxModel model;
    model.constants.push_back(Reader(file).read_alone());
    return model;
  });
}

// Reads all bytes of a tensor as they are stored.
void OnnxFile::read_stored(const OnnxTensor& tensor, void* to) const {
  if (tensor.file.empty()) return file_.read(tensor.at, to, tensor.bytes);
  const InputFile external(tensor.file);
  if (tensor.at > external.bytes() || tensor.bytes > external.bytes() - tensor.at)
    throw UserError(path() + ": tensor " + json_shown(tensor.name) + ": " + tensor.file +
                    " has become shorter while it was in use");
  external.read(tensor.at, to, tensor.bytes);
}

std::vector<unsigned char> OnnxFile::bytes_of(const OnnxTensor& tensor, uint64_t of_number) const {
  const bool is_strided = !tensor.strides.empty();
  const uint64_t wanted = is_strided ? tensor.bytes : tensor.elements() * of_number;
  if (tensor.bytes != wanted) {
    throw UserError(path() + ": tensor " + json_shown(tensor.name) + ": has " + std::to_string(tensor.bytes) +
                    " bytes; its shape takes " + std::to_string(wanted));
  }
  std::vector<unsigned char> bytes(wanted);
  if (wanted == 0 || tensor.elements() == 0) return {};
  read_stored(tensor, bytes.data());
  return is_strided ? gathered(bytes, tensor, of_number) : bytes;
}

std::vector<float> OnnxFile::floats(const OnnxTensor& tensor) const {
  if (!tensor.numbers.empty()) return tensor.numbers;
  const auto type = static_cast<OnnxType>(tensor.type);
  const bool is_double = type == OnnxType::kDouble, is_float = type == OnnxType::kFloat;
  if (!is_double && !is_float && type != OnnxType::kHalf && type != OnnxType::kBfloat16) {
    throw UserError(path() + ": tensor " + json_shown(tensor.name) +
                    ": must be of FLOAT, FLOAT16, BFLOAT16 or DOUBLE, not of type " + std::to_string(tensor.type));
  }
  std::vector<float> numbers;
  if (is_float && tensor.strides.empty() && tensor.bytes == tensor.elements() * sizeof(float)) {  // without a copy
    numbers.resize(tensor.elements());
    read_stored(tensor, numbers.data());
    return numbers;
  }
  const std::vector<unsigned char> bytes = bytes_of(tensor, is_double ? 8 : is_float ? 4 : 2);
  numbers.resize(tensor.elements());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (is_float) {
      std::memcpy(&numbers[i], &bytes[4 * i], 4);
    } else if (is_double) {
      double number = 0;
      std::memcpy(&number, &bytes[8 * i], 8);
      numbers[i] = static_cast<float>(number);
    } else {
      uint16_t half = 0;
      std::memcpy(&half, &bytes[2 * i], 2);
      numbers[i] = type == OnnxType::kHalf ? f16_to_f32(half) : std::bit_cast<float>(uint32_t{half} << 16);
    }
  }
  return numbers;
}

std::vector<int64_t> OnnxFile::integers(const OnnxTensor& tensor) const {
  if (!tensor.integers.empty()) {
    if (tensor.integers.size() == tensor.elements()) return tensor.integers;
    throw UserError(path() + ": tensor " + json_shown(tensor.name) + ": has " + std::to_string(tensor.integers.size()) +
                    " numbers; its shape takes " + std::to_string(tensor.elements()));
  }
  const auto type = static_cast<OnnxType>(tensor.type);
  const uint64_t width = type == OnnxType::kInt64 ? 8 : type == OnnxType::kInt32 ? 4 : type == OnnxType::kBool ? 1 : 0;
  if (width == 0) throw UserError(path() + ": tensor " + json_shown(tensor.name) + ": must be of INT64, INT32 or BOOL");
  const std::vector<unsigned char> bytes = bytes_of(tensor, width);
  std::vector<int64_t> numbers(tensor.elements());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (width == 1) {
      numbers[i] = bytes[i] != 0;
    } else if (width == 8) {
      std::memcpy(&numbers[i], &bytes[8 * i], 8);
    } else {
      int32_t number = 0;
      std::memcpy(&number, &bytes[4 * i], 4);
      numbers[i] = number;
    }
  }
  return numbers;
}

bool is_in_training(const OnnxModel& model, const OnnxNode& batch_norm) {
  constexpr int64_t kHasMode = 14;
  const auto mode = std::find_if(batch_norm.attributes.begin(), batch_norm.attributes.end(),
                                 [](const OnnxAttribute& each) { return each.name == "training_mode"; });
  if (mode != batch_norm.attributes.end()) return mode->integer != 0;
  const auto opset = model.opsets.find("");
  return (opset == model.opsets.end() || opset->second < kHasMode) && batch_norm.outputs.size() > 1;
}

}  // namespace reprise
