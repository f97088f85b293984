// Pictures by libjpeg-turbo and stb_image (Sean Barrett and others). What stb_image takes on trust is checked before it is called.
#include "tools/data/picture.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#include <stb/stb_image.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "tools/data/jpeg_file.h"
#include "tools/data/png_file.h"
#include "tools/data/resize.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"

namespace reprise {
namespace {

constexpr uint64_t kMostPictureBytes = uint64_t{512} << 20;

// A PNG's header: where its colours' kind is, and two of the kinds.
constexpr size_t kPngColours = 25;
constexpr int kGrey = 0, kPalette = 3;

void require_size(const std::string& path, uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) refuse_picture(path, kDamagedPicture);
  if (width <= kLongestSide && height <= kLongestSide && width * height <= kMostPixels) return;
  refuse_picture(path, "it has " + std::to_string(width) + " x " + std::to_string(height) + " pixels, and may have " + std::to_string(kMostPixels) + ", at most " +
                   std::to_string(kLongestSide) + " a side; give a smaller picture");
}

struct FreePicture {
  void operator()(uint8_t* bytes) const { stbi_image_free(bytes); }
};

// A picture of its own size.
struct WholePicture {
  ImageShape shape;
  std::vector<uint8_t> owned;                      // by libjpeg-turbo,
  std::unique_ptr<uint8_t, FreePicture> borrowed;  // or by stb_image
  const uint8_t* bytes() const { return borrowed != nullptr ? borrowed.get() : owned.data(); }
};

WholePicture decode_jpeg(const std::string& file, const std::string& path, int channels) {
  JpegFile jpeg(file, path);
  require_size(path, static_cast<uint64_t>(jpeg.width()), static_cast<uint64_t>(jpeg.height()));
  WholePicture decoded = {.shape = {jpeg.height(), jpeg.width(), channels}, .owned = {}, .borrowed = nullptr};
  decoded.owned.resize(decoded.shape.values());
  jpeg.decode(channels, decoded.owned.data());
  return decoded;
}

// stb_image gives catchwords for its developers, or nothing; here is what they mean to the owner of the file.
std::string reason_of_stb() {
  const char* const reason = stbi_failure_reason();
  return reason != nullptr && std::string_view(reason) == "outofmem" ? "the memory does not suffice for it" : kDamagedPicture;
}

WholePicture decode_by_stb(const std::string& file, const std::string& path, int channels) {
  WholePicture decoded;
  int channels_in_file = 0;
  decoded.borrowed.reset(stbi_load_from_memory(reinterpret_cast<const uint8_t*>(file.data()), static_cast<int>(file.size()), &decoded.shape.width,
                                               &decoded.shape.height, &channels_in_file, channels));
  if (decoded.borrowed == nullptr) refuse_picture(path, reason_of_stb());
  decoded.shape.channels = channels;
  return decoded;
}

// The numbers of the header of a PPM or PGM, and where its pixels begin.
struct PnmHeader {
  uint64_t width = 0, height = 0, largest = 0, bytes = 0;
};

PnmHeader read_pnm_header(const std::string& file, const std::string& path) {
  PnmHeader header;
  size_t at = 2;
  for (uint64_t* const number : {&header.width, &header.height, &header.largest}) {
    while (at < file.size() && (std::string_view(" \t\n\v\f\r").find(file[at]) != std::string_view::npos || file[at] == '#'))
      at = file[at] == '#' ? std::min(file.find('\n', at), file.size()) : at + 1;
    const size_t begin = at;
    for (; at < file.size() && file[at] >= '0' && file[at] <= '9' && at - begin < 10; ++at) *number = *number * 10 + static_cast<uint64_t>(file[at] - '0');
    if (at == begin) refuse_picture(path, at == file.size() ? "the file ends before the picture does" : kDamagedPicture);
  }
  header.bytes = at + 1;
  if (header.largest == 0 || header.largest > 65535) refuse_picture(path, kDamagedPicture);
  return header;
}

// For the missing end of an uncompressed picture stb_image gives whatever the memory held, or black: its length is checked before.
void check_pnm(const std::string& file, const std::string& path) {
  const PnmHeader header = read_pnm_header(file, path);
  require_size(path, header.width, header.height);
  const uint64_t values = header.width * header.height * (file[1] == '6' ? 3 : 1);
  if (file.size() < header.bytes + values * (header.largest > 255 ? 2 : 1)) refuse_picture(path, "the file ends before the picture does");
}

// A BMP says how long its file is; 0 says nothing. Rows are stored one after another, each filled up to a multiple of 4 bytes.
void check_bmp(const std::string& file, const std::string& path) {
  const auto number = [&](size_t at, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= uint64_t{static_cast<uint8_t>(file[at + static_cast<size_t>(i)])} << (8 * i);
    return value;
  };
  int width = 0, height = 0, channels = 0;
  constexpr size_t kHeaderBytes = 30;
  if (file.size() < kHeaderBytes) refuse_picture(path, "the file ends before the picture does");
  if (stbi_info_from_memory(reinterpret_cast<const uint8_t*>(file.data()), static_cast<int>(file.size()), &width, &height, &channels) == 0) refuse_picture(path, kDamagedPicture);
  const auto rows = static_cast<uint64_t>(std::abs(int64_t{height}));  // below 0: from top to bottom
  require_size(path, static_cast<uint64_t>(width), rows);
  const bool is_old = number(14, 4) == 12;
  const uint64_t row_bits = static_cast<uint64_t>(width) * number(is_old ? 24 : 28, 2), row = (row_bits + 31) / 32 * 4;
  const uint64_t needed = number(10, 4) + row * (rows - 1) + (row_bits + 7) / 8;
  if (file.size() < std::max(number(2, 4), needed)) refuse_picture(path, "the file ends before the picture does");
}

// Checks what stb_image does not.
void check_whole_png(const std::string& file, const PngHeader& header, const std::string& path) {
  require_size(path, header.width, header.height);
  check_png(file, header, path);
}

WholePicture load(const std::string& path, int channels) {
  std::string file = read_file(path, kMostPictureBytes);
  if (file.empty()) refuse_picture(path, "it is empty");
  if (JpegFile::is_jpeg(file)) return decode_jpeg(file, path, channels);
  if (is_png(file)) {
    const PngHeader header = read_png_header(file, path);
    check_whole_png(file, header, path);
    if (header.colour == kPalette) fill_palette(file);
  } else if (file.starts_with("BM")) {
    check_bmp(file, path);
  } else if (file.starts_with("P5") || file.starts_with("P6")) {
    check_pnm(file, path);
  } else {
    refuse_picture(path, "it is no picture of a kind that is read (JPEG, PNG, BMP, PPM, PGM)");
  }
  return decode_by_stb(file, path, channels);
}

}  // namespace

void refuse_picture(const std::string& path, const std::string& reason) { throw UserError(path + ": cannot be decoded: " + reason); }

// stb_image turns a palette's numbers into its colours, which are no classes: told that they are grey, it leaves them as they are.
void decode_mask(const std::string& path, int height, int width, uint8_t* target) {
  const std::string no_mask = path + ": is no mask; must be a PNG of 8 bits, grey or with a palette, whose numbers are the classes";
  std::string file = read_file(path, kMostPictureBytes);
  if (!is_png(file)) throw UserError(no_mask);
  const PngHeader header = read_png_header(file, path);
  if (header.depth != 8 || (header.colour != kGrey && header.colour != kPalette)) throw UserError(no_mask);
  check_whole_png(file, header, path);
  file[kPngColours] = static_cast<char>(kGrey);
  const WholePicture mask = decode_by_stb(file, path, 1);
  const int file_height = mask.shape.height, file_width = mask.shape.width;
  const auto middle = [](int at, int from, int to) { return static_cast<int>((int64_t{2} * at + 1) * from / (int64_t{2} * to)); };
  for (int y = 0; y < height; ++y) {
    const uint8_t* row = mask.bytes() + static_cast<ptrdiff_t>(middle(y, file_height, height)) * file_width;
    for (int x = 0; x < width; ++x) *target++ = row[middle(x, file_width, width)];
  }
}

void decode_picture(const std::string& path, const ImageShape& shape, uint8_t* target) {
  const WholePicture picture = load(path, shape.channels);
  if (picture.shape.height == shape.height && picture.shape.width == shape.width) {
    std::copy(picture.bytes(), picture.bytes() + shape.values(), target);
  } else {
    resize_image(picture.shape, picture.bytes(), shape, target);
  }
}

void check_picture(const std::string& path, const ImageShape& shape) {
  load(path, shape.channels);
}

}  // namespace reprise
