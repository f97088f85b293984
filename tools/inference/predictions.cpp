// See predictions.h.
#include "tools/inference/predictions.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#include <stb/stb_image_write.h>

#include <algorithm>
#include <cstdio>

#include "tools/formats/csv_file.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"

namespace reprise {

void write_numbers(const std::string& path, std::vector<std::string> titles, const std::vector<std::vector<std::string>>& samples,
                   const std::vector<std::string>& names, const std::vector<float>& numbers) {
  if (path.ends_with(".npy")) return write_npy(path, {samples.size(), names.size()}, numbers.data());
  size_t most = 1;
  for (const auto& sample : samples) most = std::max(most, sample.size());
  titles.resize(most);
  const auto joined = [](const std::vector<std::string>& fields) {
    std::string line;
    for (size_t n = 0; n < fields.size(); ++n) line += (n == 0 ? "" : ",") + csv_cell(fields[n]);
    return line;
  };
  std::string text = joined(titles);
  for (const std::string& name : names) text += "," + csv_cell(name);
  text += "\n";
  for (size_t row = 0; row < samples.size(); ++row) {
    text += joined(samples[row]) + std::string(most - samples[row].size(), ',');
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
  std::string png;
  const auto append = [](void* to, void* data, int size) { static_cast<std::string*>(to)->append(static_cast<const char*>(data), static_cast<size_t>(size)); };
  const int across = static_cast<int>(width);
  if (stbi_write_png_to_func(append, &png, across, static_cast<int>(height), 1, bytes, across) == 0) throw UserError(path + ": cannot be written: the memory does not suffice");
  replace_file(path, png);
}

}  // namespace reprise
