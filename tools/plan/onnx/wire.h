// The wire format of protobuf, which ONNX files have. The reader and the writer of such files share
// it. A message is a run of fields: a varint (number << 3 | wire type), then a varint, eight bytes,
// a length and that many bytes, or four bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/io/error.h"
#include "tools/files/io/input_file.h"

namespace reprise::wire {

enum class Wire : uint32_t { kVarint = 0, kEight = 1, kBytes = 2, kFour = 5 };

// The bytes of a file, read forward in pieces.
class Bytes {
 public:
  explicit Bytes(const InputFile& file) : file_(file) {}

  unsigned char at(uint64_t place) {
    if (place < begin_ || place >= begin_ + piece_.size()) {
      begin_ = place;
      piece_.resize(std::min<uint64_t>(kPiece, file_.bytes() - place));
      file_.read(begin_, piece_.data(), piece_.size());
    }
    return piece_[place - begin_];
  }
  const InputFile& file() const { return file_; }
  [[noreturn]] void refuse(uint64_t place, const std::string& reason) const {
    throw UserError(file_.path() + ": byte " + std::to_string(place) + ": " + reason + "; an ONNX model is wanted");
  }

 private:
  static constexpr uint64_t kPiece = 1 << 16;
  const InputFile& file_;
  uint64_t begin_ = 0;
  std::vector<unsigned char> piece_;
};

// A message: bytes [at, end) of the file.
class Message {
 public:
  Message(Bytes& bytes, uint64_t begin, uint64_t end) : bytes_(bytes), at_(begin), end_(end) {}

  // One field: its number, its wire type, and its value or the range [begin, end) of its bytes.
  // `start` is the offset of the field itself; Message::at() is that of the next field.
  struct Field {
    uint64_t number;
    Wire wire;
    uint64_t value = 0, begin = 0, end = 0, start = 0;
  };
  std::optional<Field> next() {
    if (at_ == end_) return std::nullopt;
    const uint64_t start = at_, key = varint();
    Field field{key >> 3, static_cast<Wire>(key & 7), 0, 0, 0, start};
    if (field.number == 0) bytes_.refuse(start, "a field of number 0");  // as in a file of zeros
    switch (field.wire) {
      case Wire::kVarint: field.value = varint(); return field;
      case Wire::kEight: field.value = fixed(8); return field;
      case Wire::kFour: field.value = fixed(4); return field;
      case Wire::kBytes: {
        const uint64_t length = varint();
        if (length > end_ - at_)
          bytes_.refuse(start, "a field of " + std::to_string(length) + " bytes ends behind what it stands in");
        field.begin = at_;
        field.end = at_ += length;
        return field;
      }
    }
    bytes_.refuse(start, "a field of wire type " + std::to_string(key & 7));
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) bytes_.refuse(at_, "ends within a number");
      const unsigned char byte = bytes_.at(at_++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    bytes_.refuse(at_, "a number of more than ten bytes");
  }
  bool at_end() const { return at_ == end_; }
  uint64_t at() const { return at_; }

 private:
  uint64_t fixed(uint32_t count) {
    if (end_ - at_ < count) bytes_.refuse(at_, "ends within a number");
    uint64_t value = 0;
    for (uint32_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(bytes_.at(at_++)) << (8 * i);
    return value;
  }

  Bytes& bytes_;
  uint64_t at_, end_;
};

}  // namespace reprise::wire
