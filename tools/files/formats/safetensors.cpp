// The safetensors format: a little-endian u64 header length, a JSON header, the tensors' bytes.
// Source: the format description in github.com/huggingface/safetensors; all of its rules are
// enforced.
#include "tools/files/formats/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"

namespace reprise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxSafetensorsHeader = 100000000;  // the reference implementation's limit

struct SafetensorsType {
  const char* name;
  uint64_t bytes;
};
constexpr SafetensorsType kSafetensorsTypes[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                 {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},
                                                 {"U16", 2}, {"U8", 1},  {"BOOL", 1}};

std::string shown_shape(const std::vector<uint64_t>& shape) { return json(shape).dump(); }

// Computes the bytes of a tensor. Returns false if the result overflows 64 bits.
bool tensor_bytes(StoredType type, const std::vector<uint64_t>& shape, uint64_t& bytes) {
  bytes = stored_type_bytes(type);
  for (const uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return false;
  }
  return true;
}

// Reads and checks one entry of the header without regard to other entries. `refuse` throws. Sets
// `begin` and `end` to the entry's offsets in the data.
template <typename Refuse>
StoredTensor read_entry(const json& entry, const Refuse& refuse, uint64_t& begin, uint64_t& end) {
  if (!entry.is_object()) refuse("must be an object with dtype, shape and data_offsets");
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) refuse(std::string("has no ") + key);
  }
  if (entry.size() != 3) refuse("must have dtype, shape and data_offsets and nothing else");
  StoredTensor tensor;
  const auto row = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                [&](const SafetensorsType& t) { return entry["dtype"] == t.name; });
  if (row == std::end(kSafetensorsTypes))
    refuse("dtype " + json_shown(entry["dtype"]) + " is none that is read here (F32, BF16, I64 ...)");
  tensor.type = static_cast<StoredType>(row - kSafetensorsTypes);
  const auto is_integer_list = [](const json& list) {
    return list.is_array() &&
           std::all_of(list.begin(), list.end(), [](const json& x) { return x.is_number_unsigned(); });
  };
  if (!is_integer_list(entry["shape"])) refuse("shape must be a list of integers, not " + json_shown(entry["shape"]));
  tensor.shape = entry["shape"].get<std::vector<uint64_t>>();
  const json& offsets = entry["data_offsets"];
  if (!is_integer_list(offsets) || offsets.size() != 2 || offsets[0] > offsets[1]) {
    refuse("data_offsets must be two rising integers, not " + json_shown(offsets));
  }
  begin = offsets[0].get<uint64_t>();
  end = offsets[1].get<uint64_t>();
  if (!tensor_bytes(tensor.type, tensor.shape, tensor.bytes))
    refuse("shape " + shown_shape(tensor.shape) + " is too large");
  if (end - begin != tensor.bytes) {
    refuse("data_offsets span " + std::to_string(end - begin) + " bytes, but " + row->name + " " +
           shown_shape(tensor.shape) + " needs " + std::to_string(tensor.bytes));
  }
  return tensor;
}

// The bytes that one tensor occupies.
struct Extent {
  uint64_t begin, end;  // offsets in the data, half-open
  std::string name;
};

// Throws if there are gaps or overlaps between tensors, or bytes after the last one, because the
// format forbids them.
void require_cover(std::vector<Extent> extents, uint64_t data_bytes, const std::string& path) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
  uint64_t covered = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != covered) {
      throw UserError(path + ": tensor " + json_shown(extent.name) + ": begins at byte " +
                      std::to_string(extent.begin) + " of the data, but the tensor before it ends at " +
                      std::to_string(covered) + ": they must touch");
    }
    covered = extent.end;
  }
  if (covered != data_bytes) {
    throw UserError(path + ": the tensors cover " + std::to_string(covered) + " bytes, but the file has " +
                    std::to_string(data_bytes) + " bytes of data");
  }
}

std::map<std::string, std::string> read_metadata(const json& entry, const std::string& path) {
  std::map<std::string, std::string> metadata;
  const auto is_string = [](const json& value) { return value.is_string(); };
  if (!entry.is_object() || !std::all_of(entry.begin(), entry.end(), is_string)) {
    throw UserError(path + ": __metadata__ must be an object of strings");
  }
  for (const auto& [key, value] : entry.items()) metadata[key] = value.get<std::string>();
  return metadata;
}

}  // namespace

const char* stored_type_name(StoredType type) { return kSafetensorsTypes[static_cast<size_t>(type)].name; }
uint64_t stored_type_bytes(StoredType type) { return kSafetensorsTypes[static_cast<size_t>(type)].bytes; }

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  refuse_other_kinds(file_, "a safetensors file", {FileKind::kSafetensors});
  if (file_.bytes() < kLengthBytes) {
    throw UserError(path + ": no safetensors file: " + std::to_string(file_.bytes()) +
                    " bytes are too few for a header length");
  }
  uint64_t header_bytes = 0;
  file_.read(0, &header_bytes, kLengthBytes);
  if (header_bytes > kMaxSafetensorsHeader || header_bytes > file_.bytes() - kLengthBytes) {
    throw UserError(path + ": no safetensors file, or truncated: the header would have " +
                    std::to_string(header_bytes) + " bytes, the file has " + std::to_string(file_.bytes()));
  }
  std::string header(header_bytes, '\0');
  file_.read(kLengthBytes, header.data(), header_bytes);
  if (header.empty() || header[0] != '{')
    throw UserError(path + ": no safetensors file: the header must begin with '{'");
  read_tensors(header, kLengthBytes + header_bytes);
}

void SafetensorsFile::read_tensors(const std::string& header_text, uint64_t data_begin) {
  const uint64_t data_bytes = file_.bytes() - data_begin;
  std::vector<Extent> extents;
  visit_json_members(header_text, path() + ": header", [&](const std::string& name, json&& entry) {
    if (name == "__metadata__") {
      metadata_ = read_metadata(entry, path());
      return;
    }
    const auto refuse = [&, shown = json_shown(name)](const std::string& reason) {
      throw UserError(path() + ": tensor " + shown + ": " + reason);
    };
    Extent extent{0, 0, name};
    StoredTensor tensor = read_entry(entry, refuse, extent.begin, extent.end);
    if (extent.end > data_bytes) {
      refuse("ends at byte " + std::to_string(extent.end) + " of the data, but the file has " +
             std::to_string(data_bytes) + "; the file is truncated");
    }
    tensor.offset = data_begin + extent.begin;
    tensors_.emplace(name, std::move(tensor));
    extents.push_back(std::move(extent));
  });
  require_cover(std::move(extents), data_bytes, path());
}

const StoredTensor& SafetensorsFile::find(const std::string& name, const std::vector<StoredType>& types,
                                          const std::vector<uint64_t>& shape) const {
  std::string wanted;
  for (const StoredType type : types) wanted += (wanted.empty() ? "" : " or ") + std::string(stored_type_name(type));
  wanted += " " + shown_shape(shape);
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    std::vector<std::string> names;
    names.reserve(tensors_.size());
    for (const auto& [other, tensor] : tensors_) names.push_back(other);
    const std::string near = closest_match(name, names);
    throw UserError(path() + ": tensor " + json_shown(name) + ": missing; it must be there as " + wanted +
                    (near.empty() ? "" : " (there is " + json_shown(near) + ")"));
  }
  const StoredTensor& tensor = found->second;
  if (std::find(types.begin(), types.end(), tensor.type) == types.end() || tensor.shape != shape) {
    throw UserError(path() + ": tensor " + json_shown(name) + ": is " + stored_type_name(tensor.type) + " " +
                    shown_shape(tensor.shape) + ", must be " + wanted);
  }
  return tensor;
}

void SafetensorsFile::read(const StoredTensor& tensor, uint64_t at, void* to, uint64_t bytes) const {
  if (at > tensor.bytes || bytes > tensor.bytes - at)
    throw std::logic_error("SafetensorsFile: a read past the end of a tensor of " + path());
  file_.read(tensor.offset + at, to, bytes);
}

constexpr char kWriter[] = "reprise";

SafetensorsWriter::SafetensorsWriter(const std::string& path) : file_(path) { add_metadata(kWriterKey, kWriter); }

bool is_written_here(const std::string& path) {
  try {
    const SafetensorsFile file(path);
    const auto mark = file.metadata().find(kWriterKey);
    return mark != file.metadata().end() && mark->second == kWriter;
  } catch (const UserError&) {
    return false;
  }
}

void SafetensorsWriter::add_metadata(const std::string& key, const std::string& value) {
  if (header_written_) throw std::logic_error("SafetensorsWriter: metadata after data");
  metadata_.emplace_back(key, value);
}

void SafetensorsWriter::declare(const std::string& name, StoredType type, const std::vector<uint64_t>& shape) {
  if (header_written_) throw std::logic_error("SafetensorsWriter: declaration after data");
  uint64_t bytes = 0;
  if (!tensor_bytes(type, shape, bytes)) throw std::logic_error("SafetensorsWriter: tensor too large");
  if (!names_.insert(name).second) throw std::logic_error("SafetensorsWriter: " + name + " declared twice");
  declared_.push_back({name, type, shape, bytes});
  declared_bytes_ += bytes;
}

void SafetensorsWriter::write_header() {
  std::string text = "{";
  const auto append = [&](const std::string& key, const ordered_json& value) {
    text += (text.size() == 1 ? "" : ",") + json(key).dump() + ":" + value.dump();
  };
  ordered_json metadata;
  for (const auto& [key, value] : metadata_) metadata[key] = value;
  if (!metadata.is_null()) append("__metadata__", metadata);
  uint64_t offset = 0;
  for (const Declared& tensor : declared_) {
    append(tensor.name, {{"dtype", stored_type_name(tensor.type)},
                         {"shape", tensor.shape},
                         {"data_offsets", {offset, offset + tensor.bytes}}});
    offset += tensor.bytes;
  }
  text += "}";
  while ((kLengthBytes + text.size()) % 8 != 0) text += ' ';  // the data begin at a multiple of 8
  const uint64_t header_bytes = text.size();
  file_.write(&header_bytes, sizeof header_bytes);
  file_.write(text.data(), text.size());
  header_written_ = true;
}

void SafetensorsWriter::write(const void* data, uint64_t bytes) {
  if (!header_written_) write_header();
  if (bytes > declared_bytes_ - written_bytes_) throw std::logic_error("SafetensorsWriter: more data than declared");
  file_.write(data, bytes);
  written_bytes_ += bytes;
}

FileSum SafetensorsWriter::finish() {
  if (!header_written_) write_header();
  if (written_bytes_ != declared_bytes_) throw std::logic_error("SafetensorsWriter: less data than declared");
  file_.finish();
  return file_.sum();
}

}  // namespace reprise
