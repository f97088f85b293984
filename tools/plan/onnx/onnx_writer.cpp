// See onnx_writer.h. A file is copied in parts: ranges of the old file, in which new numbers
// replace old ones of the same length, and new messages. A message is new if its length, or that of
// a message in it, changes.
#include "tools/plan/onnx/onnx_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "lib/bf16.h"
#include "lib/f16.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/onnx/wire.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr OutputKind kOnnxFile = {"onnx"}, kOnnxData = {"onnx data"};

using wire::Bytes, wire::Message, wire::Wire;

[[noreturn]] void refuse_tensor(const OnnxFile& file, const OnnxTensor& tensor, const std::string& reason) {
  throw UserError(file.path() + ": tensor " + json_shown(tensor.name) + ": " + reason);
}

// ---- numbers ----

uint64_t width_of(const OnnxFile& file, const OnnxTensor& tensor) {
  switch (static_cast<OnnxType>(tensor.type)) {
    case OnnxType::kFloat: return 4;
    case OnnxType::kDouble: return 8;
    case OnnxType::kHalf:
    case OnnxType::kBfloat16: return 2;
    default: refuse_tensor(file, tensor, "is of no type that weights have");
  }
}

template <typename T>
void put_bits(std::vector<unsigned char>& bytes, size_t n, const T& number) {
  std::memcpy(&bytes[n * sizeof number], &number, sizeof number);
}

// Writes the numbers into `bytes`, except those that are equal to the numbers in `before`.
void encode(const OnnxFile& file, const OnnxTensor& tensor, const std::vector<float>& numbers,
            const std::vector<float>* before, std::vector<unsigned char>& bytes) {
  for (size_t n = 0; n < numbers.size(); ++n) {
    const float number = numbers[n];
    if (before != nullptr && std::bit_cast<uint32_t>(number) == std::bit_cast<uint32_t>((*before)[n])) continue;
    switch (static_cast<OnnxType>(tensor.type)) {
      case OnnxType::kFloat: put_bits(bytes, n, number); break;
      case OnnxType::kDouble: put_bits(bytes, n, static_cast<double>(number)); break;
      case OnnxType::kBfloat16: put_bits(bytes, n, Bf16(number).bits); break;
      default: put_bits(bytes, n, f32_to_f16(number));
    }
    const auto type = static_cast<OnnxType>(tensor.type);
    const bool is_beyond = (type == OnnxType::kHalf && std::abs(number) >= 65520) ||
                           (type == OnnxType::kBfloat16 && !std::isfinite(static_cast<float>(Bf16(number))));
    if (!std::isfinite(number) || is_beyond)
      refuse_tensor(file, tensor, std::to_string(number) + " is beyond what its type holds");
  }
}

// ---- messages ----

std::string varint(uint64_t n) {
  std::string bytes;
  for (; n >= 0x80; n >>= 7) bytes += static_cast<char>(n | 0x80);
  return bytes + static_cast<char>(n);
}
std::string number_field(uint64_t field, uint64_t value) { return varint(field << 3) + varint(value); }
std::string header_of(uint64_t field, uint64_t bytes) {
  return varint(field << 3 | static_cast<uint64_t>(Wire::kBytes)) + varint(bytes);
}
std::string bytes_field(uint64_t field, const std::string& content) {
  return header_of(field, content.size()) + content;
}

// A tensor with external data, and the offset of its numbers in the new file of data.
struct External {
  const OnnxTensor* tensor;
  uint64_t at;
};
// kDataBegin: offset of the first tensor in the file of data, after our mark. kDataAligned:
// alignment of each tensor's offset. Both are in bytes.
constexpr uint64_t kDataBegin = 4096, kDataAligned = 64;

// A part of the new file: a range of the old file, followed by the new bytes `own`.
struct Part {
  uint64_t begin = 0, end = 0;
  std::string own = {};
  uint64_t bytes() const { return end - begin + own.size(); }
};

// Traverses the structure of the old file, and makes the changes that alter its length: our mark,
// tensors of another shape, new offsets of external data.
class Rewriter {
 public:
  Rewriter(const OnnxFile& file, const std::vector<OnnxChange>& resized, const std::vector<const OnnxChange*>& added,
           const std::string& data_name)
      : file_(file), bytes_(file.file()), data_name_(data_name) {
    for (const OnnxChange* change : added) added_[change->tensor->name] = change;
    for (const OnnxChange& change : resized) add(change);
    follow();
  }

  std::vector<Part> parts() {
    const uint64_t bytes = bytes_.file().bytes();
    // An entry of ModelProto.metadata_props.
    const std::string mark = bytes_field(14, bytes_field(1, kWriterKey) + bytes_field(2, mark_of(kOnnxFile)));
    std::vector<Part> parts = message(0, bytes, [&](const Message::Field& f) {
      return f.number == 7 ? std::optional(graph(f)) : std::nullopt;
    });
    Message fields(bytes_, 0, bytes);
    (void)fields.next();
    const uint64_t second = fields.at();  // the mark follows the first field, by which files are recognised
    Part& first = parts.front();
    if (!first.own.empty() || first.end < second) return parts.insert(parts.begin(), {0, 0, mark}), parts;
    const Part rest = {second, first.end};
    first.end = second;
    const Part own = {0, 0, mark};
    parts.insert(parts.begin() + 1, {own, rest});
    return parts;
  }

  // Returns the external data that parts() has found.
  const std::vector<External>& external() const { return external_; }

 private:
  using Field = Message::Field;
  struct Size {
    size_t axis;
    uint64_t old_size, new_size;
  };

  void add(const OnnxChange& change) {
    const std::vector<OnnxTensor>& constants = file_.model().constants;
    const bool is_listed = std::any_of(constants.begin(), constants.end(),
                                       [&](const OnnxTensor& tensor) { return &tensor == change.tensor; });
    if (!is_listed) refuse_tensor(file_, *change.tensor, "cannot get another shape where it stands in a node");
    changes_[change.tensor->name] = &change;
    for (size_t axis = 0; axis < change.shape.size(); ++axis) {
      if (change.shape[axis] != change.tensor->shape[axis])
        sizes_[change.tensor->name] = {axis, change.tensor->shape[axis], change.shape[axis]};
    }
  }
  // Finds the values that are computed from a resized tensor: their last axis gets the new size if
  // it has the old one.
  void follow() {
    for (const OnnxNode& node : file_.model().nodes) {
      for (const std::string& input : node.inputs) {
        const auto found = sizes_.find(input);
        if (found == sizes_.end()) continue;
        for (const std::string& output : node.outputs)
          sizes_[output] = {SIZE_MAX, found->second.old_size, found->second.new_size};
        break;
      }
    }
  }

  std::string text(uint64_t begin, uint64_t end) {
    std::string copy(end - begin, '\0');
    bytes_.file().read(begin, copy.data(), copy.size());
    return copy;
  }
  // Returns the parts of a message, bytes [begin, end) of the old file. `change` returns a field's
  // new content (an empty list removes the field), or nothing to keep the field.
  template <typename Change>
  std::vector<Part> message(uint64_t begin, uint64_t end, const Change& change) {
    std::vector<Part> parts;
    Message fields(bytes_, begin, end);
    while (const std::optional<Field> field = fields.next()) {
      std::optional<std::vector<Part>> anew = change(*field);
      if (anew && anew->empty()) continue;
      if (anew) {
        uint64_t bytes = 0;
        for (const Part& part : *anew) bytes += part.bytes();
        parts.push_back({0, 0, header_of(field->number, bytes)});
        std::move(anew->begin(), anew->end(), std::back_inserter(parts));
        if (!behind_.empty()) parts.push_back({0, 0, std::exchange(behind_, "")});
      } else if (!parts.empty() && parts.back().own.empty() && parts.back().end == field->start) {
        parts.back().end = fields.at();
      } else {
        parts.push_back({field->start, fields.at()});
      }
    }
    return parts;
  }
  // Returns the content of message `of` as one string; use it for small messages only. `change`
  // returns the new encoding of a field ("" removes the field), or nothing to keep the field.
  template <typename Change>
  std::string rewritten(const Field& of, const Change& change) {
    std::string result;
    Message fields(bytes_, of.begin, of.end);
    while (const std::optional<Field> field = fields.next()) {
      const std::optional<std::string> anew = change(*field);
      result += anew ? *anew : text(field->start, fields.at());
    }
    return result;
  }

  std::vector<Part> graph(const Field& of) {
    size_t nodes = 0, constants = 0;
    std::vector<Part> parts = message(of.begin, of.end, [&](const Field& f) -> std::optional<std::vector<Part>> {
      const bool is_value = f.number >= 11 && f.number <= 13;  // inputs, outputs, and values between nodes
      if (f.number == 1) return node(f, file_.model().nodes.at(nodes++));
      const OnnxTensor* const constant = f.number == 5 ? &file_.model().constants.at(constants++) : nullptr;
      if (f.number != 5 && !is_value) return std::nullopt;
      const std::string name = name_in(f, is_value ? 1 : 8);
      if (f.number == 5 && changes_.count(name) > 0) return std::vector<Part>{{0, 0, tensor(f, *changes_.at(name))}};
      if (constant != nullptr && !constant->file.empty()) return std::vector<Part>{{0, 0, moved(f, *constant)}};
      if (is_value && sizes_.count(name) > 0) return std::vector<Part>{{0, 0, value(f, sizes_.at(name))}};
      return std::nullopt;
    });
    for (const auto& [name, change] : added_) parts.push_back({0, 0, bytes_field(5, tensor_of(*change))});
    return parts;
  }
  // Returns the message of a tensor that the file does not have.
  std::string tensor_of(const OnnxChange& change) {
    const std::vector<float> numbers = change.numbers();
    std::vector<unsigned char> raw(numbers.size() * width_of(file_, *change.tensor));
    encode(file_, *change.tensor, numbers, nullptr, raw);
    std::string result;
    for (const uint64_t d : change.shape) result += number_field(1, d);
    return result + number_field(2, change.tensor->type) + bytes_field(8, change.tensor->name) +
           bytes_field(9, std::string(raw.begin(), raw.end()));
  }
  // Returns the parts of a node that reads an added tensor, or whose attributes have external data;
  // nothing for other nodes.
  std::optional<std::vector<Part>> node(const Field& of, const OnnxNode& node) {
    // The Identity is left out, because the added tensor has the name that it wrote.
    if (node.op == "Identity" && node.outputs.empty() && added_.count(name_in(of, 2)) > 0) return std::vector<Part>();
    const bool reads_added = added_.count(node.bias) > 0 ||
                             std::any_of(node.inputs.begin(), node.inputs.end(),
                                         [this](const std::string& input) { return added_.count(input) > 0; });
    if (reads_added) return std::vector<Part>{{0, 0, reading_added(of, node)}};
    const auto is_external = [](const OnnxAttribute& attribute) {
      return attribute.tensor && !attribute.tensor->file.empty();
    };
    if (std::none_of(node.attributes.begin(), node.attributes.end(), is_external)) return std::nullopt;
    size_t attributes = 0;
    const std::string anew = rewritten(of, [&](const Field& f) -> std::optional<std::string> {
      if (f.number != 5) return std::nullopt;
      const OnnxAttribute& attribute = node.attributes.at(attributes++);
      if (!is_external(attribute)) return std::nullopt;
      return bytes_field(5, inner(f, 5, [&](const Field& tensor) { return moved(tensor, *attribute.tensor); }));
    });
    return std::vector<Part>{{0, 0, anew}};
  }
  std::string reading_added(const Field& of, const OnnxNode& node) {
    size_t slot = 0;
    std::string anew = rewritten(of, [&](const Field& f) -> std::optional<std::string> {
      if (f.number != 1) return std::nullopt;
      const size_t n = slot++;
      if (n == 2 && added_.count(node.bias) > 0) return bytes_field(1, node.bias);
      return n < node.inputs.size() && added_.count(node.inputs[n]) > 0 ? std::optional(bytes_field(1, node.inputs[n]))
                                                                        : std::nullopt;
    });
    if (added_.count(node.bias) == 0) return anew;
    if (node.op != "MatMul") return slot == 2 ? anew + bytes_field(1, node.bias) : anew;
    // A product has no bias: a sum after it writes the product's output.
    const std::string product = node.outputs.at(0) + "_without_bias", origin = rewritten(of, [](const Field& f) {
      return f.number == 9 ? std::nullopt : std::optional(std::string());
    });
    behind_ = bytes_field(1, bytes_field(1, product) + bytes_field(1, node.bias) + bytes_field(2, node.outputs.at(0)) +
                                 bytes_field(3, node.name + "_bias") + bytes_field(4, "Add") + origin);
    return rewritten(of, [&](const Field& f) -> std::optional<std::string> {
      if (f.number == 2) return bytes_field(2, product);
      if (f.number != 1) return std::nullopt;
      const std::string input = text(f.begin, f.end), other = node.inputs.at(1);
      return input != node.inputs.at(0) && added_.count(other) > 0 ? std::optional(bytes_field(1, other))
                                                                   : std::nullopt;
    });
  }
  // Returns the tensor's message with the offset of its numbers in the new file of data. Each
  // tensor gets bytes of its own there; in the old files two tensors may share bytes.
  std::string moved(const Field& of, const OnnxTensor& tensor) {
    const std::string kept = rewritten(of, [](const Field& f) -> std::optional<std::string> {
      constexpr uint64_t kKept[] = {1, 2, 8, 12, 14};
      return std::find(std::begin(kKept), std::end(kKept), f.number) == std::end(kKept) ? std::optional(std::string())
                                                                                        : std::nullopt;
    });
    const uint64_t at = (data_end_ + kDataAligned - 1) / kDataAligned * kDataAligned;
    external_.push_back({&tensor, at});
    data_end_ = at + tensor.bytes;
    const auto entry = [](const char* key, const std::string& value) {
      return bytes_field(13, bytes_field(1, key) + bytes_field(2, value));
    };
    return kept + entry("location", data_name_) + entry("offset", std::to_string(at)) +
           entry("length", std::to_string(tensor.bytes));
  }
  std::string name_in(const Field& of, uint64_t number) {
    std::string name;
    Message fields(bytes_, of.begin, of.end);
    while (const std::optional<Field> field = fields.next()) {
      if (field->number == number && field->wire == Wire::kBytes) name = text(field->begin, field->end);
    }
    return name;
  }

  // Returns the tensor's message with its type, name and doc_string, followed by the new dims and
  // the new numbers as raw_data.
  std::string tensor(const Field& of, const OnnxChange& change) {
    std::string result = rewritten(of, [](const Field& f) -> std::optional<std::string> {
      constexpr uint64_t kKept[] = {2, 8, 12};
      return std::find(std::begin(kKept), std::end(kKept), f.number) == std::end(kKept) ? std::optional(std::string())
                                                                                        : std::nullopt;
    });
    const std::vector<float> numbers = change.numbers();
    std::vector<unsigned char> raw(numbers.size() * width_of(file_, *change.tensor));
    encode(file_, *change.tensor, numbers, nullptr, raw);
    for (const uint64_t d : change.shape) result += number_field(1, d);
    return result + bytes_field(9, std::string(raw.begin(), raw.end()));
  }

  // Returns the message of a value (ValueInfoProto) with the new size in
  // type.tensor_type.shape.dim.
  std::string value(const Field& of, const Size& size) {
    return inner(of, 2, [&](const Field& type) {
      return inner(type, 1, [&](const Field& tensor) {
        return inner(tensor, 2, [&](const Field& shape) { return dimensions(shape, size); });
      });
    });
  }
  template <typename Change>
  std::string inner(const Field& of, uint64_t number, const Change& change) {
    return rewritten(of, [&](const Field& f) {
      return f.number == number && f.wire == Wire::kBytes ? std::optional(bytes_field(number, change(f)))
                                                          : std::nullopt;
    });
  }
  std::string dimensions(const Field& shape, const Size& size) {
    size_t rank = 0, axis = 0;
    rewritten(shape, [&](const Field& f) { return rank += f.number == 1, std::optional(std::string()); });
    return inner(shape, 1, [&](const Field& dimension) {
      const bool is_it = axis++ == std::min(size.axis, rank - 1);
      return rewritten(dimension, [&](const Field& f) {
        return is_it && f.number == 1 && f.value == size.old_size ? std::optional(number_field(1, size.new_size))
                                                                  : std::nullopt;
      });
    });
  }

  const OnnxFile& file_;
  Bytes bytes_;
  std::map<std::string, const OnnxChange*> changes_;
  std::string behind_;  // encoded field to insert after the field that is being rewritten; "" for none
  std::map<std::string, const OnnxChange*> added_;  // changes of tensors that the file does not have, by name
  std::map<std::string, Size> sizes_;               // key: name of a value; entry: its change of size
  const std::string data_name_;
  std::vector<External> external_;
  uint64_t data_end_ = kDataBegin;
};

// ---- copies ----

// Copies ranges of a file. Numbers of changed tensors in a range are replaced.
class Copier {
 public:
  Copier(const OnnxFile& file, const InputFile& from, const std::vector<const OnnxChange*>& changes, OutputFile& to)
      : file_(file), from_(from), changes_(changes), to_(to) {
    std::sort(changes_.begin(), changes_.end(),
              [](const OnnxChange* a, const OnnxChange* b) { return a->tensor->at < b->tensor->at; });
  }

  void copy(uint64_t begin, uint64_t end) {
    for (const OnnxChange* change : changes_) {
      const OnnxTensor& tensor = *change->tensor;
      if (tensor.at < begin || tensor.at >= end) continue;
      copy_as_it_is(begin, tensor.at);
      std::vector<unsigned char> bytes(tensor.bytes);
      from_.read(tensor.at, bytes.data(), bytes.size());
      const std::vector<float> before = file_.floats(tensor);
      encode(file_, tensor, change->numbers(), &before, bytes);
      to_.write(bytes.data(), bytes.size());
      begin = tensor.at + tensor.bytes;
    }
    copy_as_it_is(begin, end);
  }

 private:
  void copy_as_it_is(uint64_t begin, uint64_t end) {
    constexpr uint64_t kPiece = 1 << 20;
    std::vector<unsigned char> bytes;
    for (; begin < end; begin += bytes.size()) {
      bytes.resize(std::min(kPiece, end - begin));
      from_.read(begin, bytes.data(), bytes.size());
      to_.write(bytes.data(), bytes.size());
    }
  }

  const OnnxFile& file_;
  const InputFile& from_;
  std::vector<const OnnxChange*> changes_;
  OutputFile& to_;
};

void write_model(const OnnxFile& file, const std::vector<Part>& parts, const std::vector<const OnnxChange*>& changes,
                 const std::string& path) {
  OutputFile output(path);
  Copier copier(file, file.file(), changes, output);
  for (const Part& part : parts) {
    if (part.end > part.begin) copier.copy(part.begin, part.end);
    output.write(part.own.data(), part.own.size());
  }
  output.finish();
}

// Writes the external data, one tensor after another.
void write_data(const OnnxFile& file, const std::vector<External>& external, const std::vector<OnnxChange>& changes,
                const std::string& path) {
  OutputFile output(path);
  uint64_t written = 0;
  const auto pad_to = [&](uint64_t at, std::string text) {
    text.resize(at - written, '\0');
    output.write(text.data(), text.size());
    written = at;
  };
  pad_to(kDataBegin, std::string(kWriterKey) + ": " + mark_of(kOnnxData) + "\n");
  for (const External& each : external) {
    pad_to(each.at, "");
    const OnnxTensor& tensor = *each.tensor;
    std::vector<const OnnxChange*> its;
    for (const OnnxChange& change : changes) {
      if (change.tensor == &tensor && change.shape == tensor.shape) its.push_back(&change);
    }
    const InputFile from(tensor.file);
    Copier(file, from, its, output).copy(tensor.at, tensor.at + tensor.bytes);
    written += tensor.bytes;
  }
  output.finish();
}

}  // namespace

std::set<std::string> external_files(const OnnxFile& file) {
  std::set<std::string> files;
  const auto add = [&](const OnnxTensor& tensor) {
    if (!tensor.file.empty()) files.insert(tensor.file);
  };
  for (const OnnxTensor& tensor : file.model().constants) add(tensor);
  for (const OnnxNode& node : file.model().nodes) {
    for (const OnnxAttribute& attribute : node.attributes) {
      if (attribute.tensor) add(*attribute.tensor);
    }
  }
  return files;
}

void write_onnx(const OnnxFile& file, const std::vector<OnnxChange>& changes, const std::string& to,
                std::vector<std::string> inputs) {
  inputs.push_back(file.path());
  const std::set<std::string> beside = external_files(file);
  inputs.insert(inputs.end(), beside.begin(), beside.end());
  const Output output(to, kOnnxFile, inputs);
  std::optional<Output> data;
  if (!beside.empty()) data.emplace(to + ".data", kOnnxData, inputs);
  std::vector<OnnxChange> resized;
  std::vector<const OnnxChange*> own, added;
  for (const OnnxChange& change : changes) {
    width_of(file, *change.tensor);
    if (change.tensor->is_copy) {
      added.push_back(&change);
    } else if (change.shape != change.tensor->shape) {
      resized.push_back(change);
    } else if (change.tensor->file.empty()) {
      own.push_back(&change);
    }
  }
  Rewriter rewriter(file, resized, added, fs::path(to).filename().string() + ".data");
  const std::vector<Part> parts = rewriter.parts();
  if (!data) return output.write([&](const std::string& path) { write_model(file, parts, own, path); });
  const std::string staged = output.stage([&](const std::string& path) { write_model(file, parts, own, path); });
  try {
    data->write([&](const std::string& path) { write_data(file, rewriter.external(), changes, path); });
  } catch (...) {
    std::error_code ignored;
    if (staged != to) fs::remove(staged, ignored);
    throw;
  }
  output.place(staged);
}

}  // namespace reprise
