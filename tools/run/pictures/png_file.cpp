// See png_file.h.
#include "tools/run/pictures/png_file.h"

#include <zlib.h>

#include <array>
#include <string_view>
#include <vector>

#include "tools/files/io/error.h"
#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
// kFrameBytes: the length, the name and the CRC-32 of a chunk.
constexpr uint64_t kHeaderAt = 8, kHeaderBytes = 13, kFrameBytes = 12;

[[noreturn]] void refuse_as_damaged(const std::string& path, const std::string& what) {
  refuse_picture(path, "it is damaged: " + what);
}

uint32_t number_at(const std::string& bytes, uint64_t at) {
  uint32_t value = 0;
  for (uint64_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

const Bytef* bytes_at(std::string_view text) { return reinterpret_cast<const Bytef*>(text.data()); }

struct Chunk {
  std::string_view name, data;
};

// Returns the chunk at `at` and moves `at` to the byte after the chunk. Throws if the chunk is cut
// off or its CRC-32 is wrong.
Chunk next_chunk(const std::string& bytes, const std::string& path, uint64_t& at) {
  if (bytes.size() - at < kFrameBytes || number_at(bytes, at) > bytes.size() - at - kFrameBytes)
    refuse_picture(path, "the file ends before the picture does");
  const uint64_t length = number_at(bytes, at);
  const std::string_view named = std::string_view(bytes).substr(at + 4, 4 + length);
  if (crc32_z(crc32_z(0, nullptr, 0), bytes_at(named), named.size()) != number_at(bytes, at + 8 + length))
    refuse_as_damaged(path, "the CRC-32 of the chunk at byte " + std::to_string(at) + " is not that of its bytes");
  at += kFrameBytes + length;
  return {named.substr(0, 4), named.substr(4)};
}

// Returns the size of the decompressed picture data. A byte with the number of its filter precedes
// each row, and an interlaced picture is stored as seven smaller ones.
uint64_t unpacked_bytes(const PngHeader& header, bool is_interlaced) {
  struct Pass {
    uint32_t x, y, x_step, y_step;
  };
  constexpr Pass kWhole = {0, 0, 1, 1};
  constexpr Pass kPasses[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                              {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  constexpr uint32_t kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  const uint64_t bits = uint64_t{kChannels[header.colour]} * static_cast<uint32_t>(header.depth);
  const auto bytes_of = [&](const Pass& pass) {
    const uint64_t columns = (uint64_t{header.width} + pass.x_step - 1 - pass.x) / pass.x_step;
    const uint64_t rows = (uint64_t{header.height} + pass.y_step - 1 - pass.y) / pass.y_step;
    return columns == 0 ? 0 : rows * (1 + (columns * bits + 7) / 8);
  };
  if (!is_interlaced) return bytes_of(kWhole);
  uint64_t bytes = 0;
  for (const Pass& pass : kPasses) bytes += bytes_of(pass);
  return bytes;
}

// Decompresses a zlib stream piece by piece, counts the bytes and discards them.
class Unpacker {
 public:
  Unpacker(uint64_t expected, const std::string& path) : expected_(expected), path_(path) {
    if (inflateInit(&stream_) != Z_OK) refuse_picture(path, "the memory does not suffice for it");
  }
  ~Unpacker() { inflateEnd(&stream_); }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  void take(std::string_view piece) {
    stream_.next_in = const_cast<Bytef*>(bytes_at(piece));  // zlib does not write through this pointer
    stream_.avail_in = static_cast<uInt>(piece.size());     // a chunk has fewer than 4 GiB
    while (!has_ended_ && stream_.avail_in > 0) {
      stream_.next_out = space_.data();
      stream_.avail_out = static_cast<uInt>(space_.size());
      const int result = inflate(&stream_, Z_NO_FLUSH);
      unpacked_ += space_.size() - stream_.avail_out;
      has_ended_ = result == Z_STREAM_END;
      if (result != Z_OK && !has_ended_)
        refuse_as_damaged(path_, stream_.msg != nullptr ? std::string("its data: ") + stream_.msg
                                                        : "its data cannot be unpacked");
      if (unpacked_ > expected_) refuse_as_damaged(path_, "its data hold more than the picture");
    }
  }
  void finish() const {
    if (!has_ended_ || unpacked_ != expected_) refuse_as_damaged(path_, "its data end before the picture does");
  }

 private:
  const uint64_t expected_;
  const std::string& path_;
  z_stream stream_ = {};
  std::vector<Bytef> space_ = std::vector<Bytef>(size_t{1} << 16);
  uint64_t unpacked_ = 0;
  bool has_ended_ = false;
};

bool is_allowed(int colour, int depth) {
  const auto is_one_of = [depth](std::initializer_list<int> depths) {
    for (const int each : depths) {
      if (each == depth) return true;
    }
    return false;
  };
  if (colour == 0) return is_one_of({1, 2, 4, 8, 16});
  if (colour == 3) return is_one_of({1, 2, 4, 8});
  return (colour == 2 || colour == 4 || colour == 6) && is_one_of({8, 16});
}

}  // namespace

bool is_png(const std::string& bytes) { return bytes.starts_with(kSignature); }

PngHeader read_png_header(const std::string& bytes, const std::string& path) {
  uint64_t at = kHeaderAt;
  if (bytes.size() < kHeaderAt + kFrameBytes + kHeaderBytes)
    refuse_picture(path, "the file ends before the picture does");
  if (bytes.compare(kHeaderAt + 4, 4, "IHDR") != 0 || number_at(bytes, kHeaderAt) != kHeaderBytes)
    refuse_picture(path, kDamagedPicture);
  const std::string_view data = next_chunk(bytes, path, at).data;
  const PngHeader header = {.width = number_at(bytes, kHeaderAt + 8),
                            .height = number_at(bytes, kHeaderAt + 12),
                            .depth = data[8],
                            .colour = data[9]};
  const bool is_known =
      is_allowed(header.colour, header.depth) && data[10] == 0 && data[11] == 0 && (data[12] == 0 || data[12] == 1);
  if (!is_known || header.width == 0 || header.height == 0) refuse_picture(path, kDamagedPicture);
  return header;
}

void check_png(const std::string& bytes, const PngHeader& header, const std::string& path) {
  constexpr uint64_t kInterlacedAt = kHeaderAt + 8 + 12;
  Unpacker unpacker(unpacked_bytes(header, bytes[kInterlacedAt] != 0), path);
  uint64_t at = kHeaderAt;
  for (Chunk chunk = next_chunk(bytes, path, at); chunk.name != "IEND"; chunk = next_chunk(bytes, path, at)) {
    if (chunk.name == "IDAT") unpacker.take(chunk.data);
  }
  unpacker.finish();
}

void fill_palette(std::string& bytes) {
  constexpr uint32_t kWhole = 3 * 256;
  for (uint64_t at = kHeaderAt; bytes.compare(at + 4, 4, "IEND") != 0; at += kFrameBytes + number_at(bytes, at)) {
    const uint32_t length = number_at(bytes, at);
    if (bytes.compare(at + 4, 4, "PLTE") != 0 || length >= kWhole) continue;
    bytes.insert(at + 8 + length, kWhole - length, '\0');  // the chunk's CRC-32 is now wrong, but it is not read again
    for (uint32_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(kWhole >> (24 - 8 * i) & 0xff);
    return;
  }
}

// The new chunks have 0 as CRC-32, because the code that decodes them does not compare it.
std::string png_of_numbers(const std::string& bytes) {
  constexpr uint64_t kDepthAt = kHeaderAt + 8 + 8, kColourAt = kDepthAt + 1,
                     kHeaderEnd = kHeaderAt + kFrameBytes + kHeaderBytes;
  constexpr char kPalette = 3;
  std::string plain = bytes.substr(0, kHeaderEnd);
  if (bytes[kDepthAt] < 16) {
    plain[kColourAt] = kPalette;
    const int colours = 1 << bytes[kDepthAt];
    for (int shift = 24; shift >= 0; shift -= 8) plain += static_cast<char>(3 * colours >> shift & 0xff);
    plain += "PLTE";
    for (int n = 0; n < colours; ++n) plain += std::string(3, static_cast<char>(n));
    plain += std::string(4, '\0');
  }
  for (uint64_t at = kHeaderEnd; at < bytes.size();) {
    const uint64_t whole = kFrameBytes + number_at(bytes, at);
    const std::string_view name = std::string_view(bytes).substr(at + 4, 4);
    if (name == "IDAT" || name == "IEND") plain.append(bytes, at, whole);
    if (name == "IEND") break;
    at += whole;
  }
  return plain;
}

}  // namespace reprise
