// See predictions.h.
#include "tools/inference/predictions.h"

#include <zlib.h>

#include <cstdio>

#include "tools/formats/error.h"
#include "tools/formats/output_file.h"

namespace reprise {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

void append_big_endian(std::string& to, uint32_t number) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(number >> shift & 0xff);
}

void append_chunk(std::string& png, const std::string& type, const std::string& data) {
  append_big_endian(png, static_cast<uint32_t>(data.size()));
  const std::string checked = type + data;
  png += checked;
  append_big_endian(png, static_cast<uint32_t>(crc32(0, reinterpret_cast<const unsigned char*>(checked.data()), static_cast<unsigned>(checked.size()))));
}

}  // namespace

void write_numbers(const std::string& path, const std::vector<std::string>& files, const std::vector<std::string>& names, const std::vector<float>& numbers) {
  if (path.ends_with(".npy")) return write_npy(path, {files.size(), names.size()}, numbers.data());
  std::string text = "image";
  for (const std::string& name : names) text += "," + csv_field(name);
  text += "\n";
  for (size_t row = 0; row < files.size(); ++row) {
    text += csv_field(files[row]);
    for (size_t column = 0; column < names.size(); ++column) {
      char number[32];
      std::snprintf(number, sizeof number, ",%.9g", static_cast<double>(numbers[row * names.size() + column]));
      text += number;
    }
    text += "\n";
  }
  replace_file(path, text);
}

void write_npy(const std::string& path, const std::vector<uint64_t>& shape, const float* numbers) {
  std::string sides;
  uint64_t count = 1;
  for (const uint64_t side : shape) sides += (sides.empty() ? "" : ", ") + std::to_string(side), count *= side;
  if (shape.size() == 1) sides += ",";
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sides + "), }";
  constexpr size_t kStart = 10, kAligned = 64;  // the header ends, with a line's end, where the numbers are aligned
  header += std::string(kAligned - (kStart + header.size() + 1) % kAligned, ' ') + "\n";
  std::string file = std::string("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(numbers), count * sizeof(float));
  replace_file(path, file);
}

void write_grey_png(const std::string& path, uint32_t height, uint32_t width, const uint8_t* bytes) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(bytes) + uint64_t{y} * width, width);
  }
  uLongf size = compressBound(rows.size());
  std::string packed(size, '\0');
  if (compress(reinterpret_cast<unsigned char*>(packed.data()), &size, reinterpret_cast<const unsigned char*>(rows.data()), rows.size()) != Z_OK) {
    throw UserError(path + ": cannot be written: the memory does not suffice");
  }
  packed.resize(size);
  std::string header, png = "\x89PNG\r\n\x1a\n";
  append_big_endian(header, width);
  append_big_endian(header, height);
  header += std::string("\x08\x00\x00\x00\x00", 5);  // 8 bits, grey; how it is packed, filtered and interlaced: as everybody does
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", "");
  replace_file(path, png);
}

}  // namespace reprise
