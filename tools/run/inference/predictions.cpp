// See predictions.h.
#include "tools/run/inference/predictions.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/files/formats/csv_file.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

constexpr size_t kMarkBlanks = 128;  // blanks in a header that mark the file as ours; headers of NumPy have fewer

void append_big_endian(std::string& to, uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) to += static_cast<char>(number >> shift & 0xff);
}

// True if the file begins with a header that write_npy() writes.
bool has_npy_mark(const std::string& path) {
  constexpr size_t kBegin = 10, kLongest = 4096;
  std::ifstream file(path, std::ios::binary);
  std::string text(kLongest, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  const size_t end = text.find('\n', kBegin);
  if (!text.starts_with("\x93NUMPY\x01") || end == std::string::npos) return false;
  return end > kMarkBlanks && text.compare(end - kMarkBlanks, kMarkBlanks, std::string(kMarkBlanks, ' ')) == 0;
}

// Formats a number for a CSV file.
std::string number_text(float number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", static_cast<double>(number));
  return text;
}

// True if a table has the columns that write_numbers() writes, and each number in its first rows
// has the digits that number_text() gives. At least one number must have eight digits or more. A
// table of another program has a number with other digits, or only short numbers.
bool is_our_table(const CsvFile& table) {
  constexpr uint64_t kLookedAt = 64;
  bool has_long = table.size() == 0;
  for (uint64_t n = 0; n < std::min(kLookedAt, table.size()); ++n) {
    const nlohmann::ordered_json record = table.read(n);
    size_t column = 0;
    for (const auto& [name, value] : record.items()) {
      const bool is_sample = column == 0 ? name == "image" || name == "text" : column == 1 && name == "text_pair";
      if (column++ == 0 && !is_sample) return false;
      if (is_sample) continue;
      const std::string text = value.get<std::string>();
      if (number_text(std::strtof(text.c_str(), nullptr)) != text) return false;
      has_long = has_long || std::count_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }) >= 8;
    }
  }
  return has_long;
}

}  // namespace

bool is_predictions(const std::string& path) {
  try {
    return has_npy_mark(path) || is_our_table(CsvFile(path));
  } catch (const UserError&) {
    return false;
  }
}

bool is_map(const std::string& path) { return has_mark(path, kMap) || has_npy_mark(path); }

void write_numbers(const Output& to, std::vector<std::string> titles,
                   const std::vector<std::vector<std::string>>& samples, const std::vector<std::string>& names,
                   const std::vector<float>& numbers) {
  if (to.path().ends_with(".npy")) {
    return to.write([&](const std::string& path) { write_npy(path, {samples.size(), names.size()}, numbers.data()); });
  }
  size_t maximum = 1;
  for (const auto& sample : samples) maximum = std::max(maximum, sample.size());
  titles.resize(maximum);
  const auto joined = [](const std::vector<std::string>& fields) {
    std::string line;
    for (size_t n = 0; n < fields.size(); ++n) line += (n == 0 ? "" : ",") + csv_cell(fields[n]);
    return line;
  };
  std::string text = joined(titles);
  for (const std::string& name : names) text += "," + csv_cell(name);
  text += "\n";
  for (size_t row = 0; row < samples.size(); ++row) {
    text += joined(samples[row]) + std::string(maximum - samples[row].size(), ',');
    for (size_t column = 0; column < names.size(); ++column) {
      text += "," + number_text(numbers[row * names.size() + column]);
    }
    text += "\n";
  }
  to.write(text);
}

void write_npy(const std::string& path, const std::vector<uint64_t>& shape, const float* numbers) {
  std::string sides;
  uint64_t count = 1;
  for (const uint64_t side : shape) sides += (sides.empty() ? "" : ", ") + std::to_string(side), count *= side;
  if (shape.size() == 1) sides += ",";
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sides + "), }";
  // The numbers must begin at a multiple of kAligned bytes; the header ends with '\n'.
  constexpr size_t kStart = 10, kAligned = 64;
  header += std::string(kMarkBlanks + kAligned - (kStart + header.size() + 1) % kAligned, ' ') + "\n";
  std::string file = std::string("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(numbers), count * sizeof(float));
  write_file(path, file);
}

void write_grey_png(const std::string& path, uint32_t height, uint32_t width, const uint8_t* bytes) {
  std::string png;
  const auto append = [](void* to, void* data, int size) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), static_cast<size_t>(size));
  };
  const int across = static_cast<int>(width);
  if (stbi_write_png_to_func(append, &png, across, static_cast<int>(height), 1, bytes, across) == 0)
    throw UserError(path + ": cannot be written: the memory does not suffice");
  // Inserts a text chunk after the signature and the header chunk: length, type, data, CRC-32.
  std::string chunk = "tEXt" + std::string(kWriterKey) + '\0' + mark_of(kMap);
  const uint32_t length = static_cast<uint32_t>(chunk.size() - 4);
  append_big_endian(chunk, static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(chunk.data()),
                                                         static_cast<uInt>(chunk.size()))));
  std::string size;
  append_big_endian(size, length);
  constexpr size_t kHeaderEnd = 8 + 25;
  png.insert(kHeaderEnd, size + chunk);
  write_file(path, png);
}

}  // namespace reprise
