// Pictures by stb_image (Sean Barrett and others), which reads the formats that cameras and data sets use.
#include "tools/data/picture.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#include <stb/stb_image.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string_view>

#include "tools/data/resize.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

struct FreePicture {
  void operator()(uint8_t* bytes) const { stbi_image_free(bytes); }
};
using PictureBytes = std::unique_ptr<uint8_t, FreePicture>;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

// For the missing end of an uncompressed picture stb_image gives whatever the memory held, or black: its length is checked here. It has
// been decoded, so that the header is right. A BMP says how long its file is; 0 says nothing.
bool is_cut_short(const std::string& path, uint64_t values) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  const uint64_t bytes = fs::file_size(path, ignored);
  const int first = file.get(), second = file.get();
  if (first == 'B' && second == 'M') {
    uint64_t stated = 0;
    for (int shift = 0; shift < 32; shift += 8) stated |= static_cast<uint64_t>(file.get() & 0xff) << shift;
    return bytes < stated;
  }
  if (first != 'P' || (second != '5' && second != '6')) return false;
  uint64_t largest = 0;  // the last of three numbers: width, height, the largest value
  for (int number = 0; number < 3; ++number) {
    while (file >> std::ws && file.peek() == '#') file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    file >> largest;
  }
  const auto header = static_cast<uint64_t>(file.tellg()) + 1;
  return !file || bytes < header + values * (largest > 255 ? 2 : 1);
}

// stb_image gives catchwords for its developers; here is what they mean to the owner of the file.
std::string why_not(const std::string& path) {
  const std::string_view reason = stbi_failure_reason();
  std::error_code error;
  if (fs::file_size(path, error) == 0 && !error) return "it is empty";
  if (reason == "unknown image type") return "it is no picture of a kind that is read (JPEG, PNG, BMP, PPM, PGM)";
  if (reason == "outofmem") return "the memory does not suffice for it";
  if (reason == "too large") return "it is too large; give a smaller picture";
  return "it is damaged, or of a variant that is not read; save it anew as JPEG, PNG, BMP, PPM or PGM";
}

// `file`: the picture's own size, in `channels` channels.
PictureBytes load(const std::string& path, int channels, ImageShape& file) {
  int channels_in_file = 0;
  const FileHandle opened(std::fopen(path.c_str(), "rb"));
  if (opened == nullptr) throw UserError(path + ": cannot be opened: " + std::strerror(errno));
  PictureBytes bytes(stbi_load_from_file(opened.get(), &file.width, &file.height, &channels_in_file, channels));
  if (bytes == nullptr) throw UserError(path + ": cannot be decoded: " + why_not(path));
  file.channels = channels;
  const ImageShape stored = {file.height, file.width, channels_in_file};
  if (is_cut_short(path, stored.values())) throw UserError(path + ": cannot be decoded: the file ends before the picture does");
  return bytes;
}

// A PNG's header: where its colours' kind stands, and what that may be (RFC 2083, section 4.1.1).
constexpr size_t kPngDepth = 24, kPngColours = 25, kPngHeader = 26;
constexpr char kGrey = 0, kPalette = 3;

}  // namespace

// stb_image turns a palette's numbers into its colours, which are no classes: told that they are grey, it leaves them as they are.
void decode_mask(const std::string& path, int height, int width, uint8_t* target) {
  std::string file = read_file(path);
  const bool is_png = file.size() >= kPngHeader && file.compare(0, 4, "\x89PNG") == 0;
  if (!is_png || file[kPngDepth] != 8 || (file[kPngColours] != kGrey && file[kPngColours] != kPalette)) {
    throw UserError(path + ": is no mask; must be a PNG of 8 bits, grey or with a palette, whose numbers are the classes");
  }
  file[kPngColours] = kGrey;
  int file_width = 0, file_height = 0, channels = 0;
  const PictureBytes bytes(stbi_load_from_memory(reinterpret_cast<const uint8_t*>(file.data()), static_cast<int>(file.size()), &file_width, &file_height, &channels, 1));
  if (bytes == nullptr) throw UserError(path + ": cannot be decoded: it is damaged; save it anew as PNG");
  const auto middle = [](int at, int from, int to) { return static_cast<int>((int64_t{2} * at + 1) * from / (int64_t{2} * to)); };
  for (int y = 0; y < height; ++y) {
    const uint8_t* row = bytes.get() + static_cast<ptrdiff_t>(middle(y, file_height, height)) * file_width;
    for (int x = 0; x < width; ++x) *target++ = row[middle(x, file_width, width)];
  }
}

void decode_picture(const std::string& path, const ImageShape& shape, uint8_t* target) {
  ImageShape file;
  const PictureBytes bytes = load(path, shape.channels, file);
  if (file.height == shape.height && file.width == shape.width) {
    std::copy(bytes.get(), bytes.get() + shape.values(), target);
  } else {
    resize_image(file, bytes.get(), shape, target);
  }
}

void check_picture(const std::string& path, const ImageShape& shape) {
  ImageShape file;
  load(path, shape.channels, file);
}

}  // namespace reprise
