// Decodes pictures with libjpeg-turbo and stb_image (Sean Barrett and others). Properties of the
// input that stb_image does not check are checked before the call.
#include "tools/run/pictures/picture.h"

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

#include "tools/files/io/error.h"
#include "tools/files/io/file_kind.h"
#include "tools/files/io/output_file.h"
#include "tools/run/pictures/jpeg_file.h"
#include "tools/run/pictures/orientation.h"
#include "tools/run/pictures/png_file.h"
#include "tools/run/pictures/resize.h"

namespace reprise {
namespace {

constexpr uint64_t kMaxPictureBytes = uint64_t{512} << 20;

constexpr int kGrey = 0, kPalette = 3;  // colour types of a PNG

void require_size(const std::string& path, uint64_t width, uint64_t height) {
  if (width == 0 || height == 0) refuse_picture(path, kDamagedPicture);
  if (width <= kLongestSide && height <= kLongestSide && width * height <= kMaxPixels) return;
  refuse_picture(path, "it has " + std::to_string(width) + " x " + std::to_string(height) + " pixels, and may have " +
                           std::to_string(kMaxPixels) + ", at most " + std::to_string(kLongestSide) +
                           " a side; give a smaller picture");
}

struct FreePicture {
  void operator()(uint8_t* bytes) const { stbi_image_free(bytes); }
};

// A decoded picture in its own size.
struct WholePicture {
  ImageShape shape;
  std::vector<uint8_t> owned;                      // pixels if libjpeg-turbo decoded the picture
  std::unique_ptr<uint8_t, FreePicture> borrowed;  // pixels if stb_image decoded the picture
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

// Returns the reason of stb_image's failure in words for a user. stb_image itself gives keywords
// for developers, or nothing.
std::string reason_of_stb() {
  const char* const reason = stbi_failure_reason();
  return reason != nullptr && std::string_view(reason) == "outofmem" ? "the memory does not suffice for it"
                                                                     : kDamagedPicture;
}

WholePicture decode_by_stb(const std::string& file, const std::string& path, int channels) {
  WholePicture decoded;
  int channels_in_file = 0;
  decoded.borrowed.reset(stbi_load_from_memory(reinterpret_cast<const uint8_t*>(file.data()),
                                               static_cast<int>(file.size()), &decoded.shape.width,
                                               &decoded.shape.height, &channels_in_file, channels));
  if (decoded.borrowed == nullptr) refuse_picture(path, reason_of_stb());
  decoded.shape.channels = channels;
  return decoded;
}

// The header of a PPM or PGM: its numbers, and `bytes`, the offset of the first pixel.
struct PnmHeader {
  uint64_t width = 0, height = 0, largest = 0, bytes = 0;
};

PnmHeader read_pnm_header(const std::string& file, const std::string& path) {
  PnmHeader header;
  size_t at = 2;
  for (uint64_t* const number : {&header.width, &header.height, &header.largest}) {
    while (at < file.size() &&
           (std::string_view(" \t\n\v\f\r").find(file[at]) != std::string_view::npos || file[at] == '#'))
      at = file[at] == '#' ? std::min(file.find('\n', at), file.size()) : at + 1;
    const size_t begin = at;
    for (; at < file.size() && file[at] >= '0' && file[at] <= '9' && at - begin < 10; ++at)
      *number = *number * 10 + static_cast<uint64_t>(file[at] - '0');
    if (at == begin)
      refuse_picture(path, at == file.size() ? "the file ends before the picture does" : kDamagedPicture);
  }
  header.bytes = at + 1;
  if (header.largest == 0 || header.largest > 65535) refuse_picture(path, kDamagedPicture);
  return header;
}

// Checks the length of a PNM. If the end of an uncompressed picture is missing, stb_image would
// return black or whatever the memory contained.
void check_pnm(const std::string& file, const std::string& path) {
  const PnmHeader header = read_pnm_header(file, path);
  require_size(path, header.width, header.height);
  const uint64_t values = header.width * header.height * (file[1] == '6' ? 3 : 1);
  if (file.size() < header.bytes + values * (header.largest > 255 ? 2 : 1))
    refuse_picture(path, "the file ends before the picture does");
}

// Checks the length of a BMP; its header may state the file's length, or 0. Rows are stored one
// after another, each padded to a multiple of 4 bytes.
void check_bmp(const std::string& file, const std::string& path) {
  const auto number = [&](size_t at, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i)
      value |= uint64_t{static_cast<uint8_t>(file[at + static_cast<size_t>(i)])} << (8 * i);
    return value;
  };
  int width = 0, height = 0, channels = 0;
  constexpr size_t kHeaderBytes = 30;
  if (file.size() < kHeaderBytes) refuse_picture(path, "the file ends before the picture does");
  if (stbi_info_from_memory(reinterpret_cast<const uint8_t*>(file.data()), static_cast<int>(file.size()), &width,
                            &height, &channels) == 0)
    refuse_picture(path, kDamagedPicture);
  // A negative height means that rows are stored from top to bottom
  const auto rows = static_cast<uint64_t>(std::abs(int64_t{height}));
  require_size(path, static_cast<uint64_t>(width), rows);
  const bool is_old = number(14, 4) == 12;
  const uint64_t row_bits = static_cast<uint64_t>(width) * number(is_old ? 24 : 28, 2), row = (row_bits + 31) / 32 * 4;
  const uint64_t needed = number(10, 4) + row * (rows - 1) + (row_bits + 7) / 8;
  if (file.size() < std::max(number(2, 4), needed)) refuse_picture(path, "the file ends before the picture does");
}

// Checks the parts of a PNG that stb_image does not check.
void check_whole_png(const std::string& file, const PngHeader& header, const std::string& path) {
  require_size(path, header.width, header.height);
  check_png(file, header, path);
}

// Decodes a picture as it is stored; does not rotate it.
WholePicture decode_stored(std::string& file, const std::string& path, int channels) {
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
    const KindWords* const other = other_kind(file);
    refuse_picture(path, other == nullptr
                             ? std::string("it is no picture of a kind that is read (JPEG, PNG, BMP, PPM, PGM)")
                             : std::string("it is ") + other->name +
                                   ", and no picture of a kind that is read (JPEG, PNG, BMP, PPM, PGM); " +
                                   other->advice);
  }
  return decode_by_stb(file, path, channels);
}

int orientation_in(const std::string& file) {
  return orientation_of(
      [&file](uint64_t at, uint64_t count) { return at < file.size() ? file.substr(at, count) : std::string(); });
}

WholePicture transposed(WholePicture stored, int orientation) {
  if (orientation == 1) return stored;
  WholePicture shown = {.shape = oriented_shape(stored.shape, orientation),
                        .owned = std::vector<uint8_t>(stored.shape.values()),
                        .borrowed = nullptr};
  orient_picture(stored.shape, stored.bytes(), orientation, shown.owned.data());
  return shown;
}

WholePicture load(const std::string& path, int channels) {
  std::string file = read_file(path, kMaxPictureBytes);
  const int orientation = orientation_in(file);
  return transposed(decode_stored(file, path, channels), orientation);
}

struct FreeNumbers {
  void operator()(uint16_t* numbers) const { stbi_image_free(numbers); }
};

// Returns the pixels of a grey PNG of 16 bits.
std::vector<uint16_t> wide_numbers(const std::string& file, const std::string& path) {
  int width = 0, height = 0, channels = 0;
  const std::unique_ptr<uint16_t, FreeNumbers> numbers(
      stbi_load_16_from_memory(reinterpret_cast<const uint8_t*>(file.data()), static_cast<int>(file.size()), &width,
                               &height, &channels, 1));
  if (numbers == nullptr) refuse_picture(path, reason_of_stb());
  return {numbers.get(), numbers.get() + static_cast<size_t>(width) * static_cast<size_t>(height)};
}

}  // namespace

void refuse_picture(const std::string& path, const std::string& reason) {
  throw UserError(path + ": cannot be decoded: " + reason);
}

// stb_image converts a palette's indices to colours, and scales grey of fewer bits to 8 bits. If
// colour n of the palette is n (png_of_numbers), the result is the stored numbers.
ImageShape decode_mask(const std::string& path, int height, int width, uint16_t* target) {
  const std::string no_mask = path + ": is no mask: ", wanted =
                                                           "must be a PNG with one number for each place, grey of 1 to "
                                                           "16 bits or with a palette, whose numbers are the classes";
  const std::string file = read_file(path, kMaxPictureBytes);
  const KindWords* const other = other_kind(file, {FileKind::kPng});
  if (!is_png(file))
    throw UserError(no_mask + (other == nullptr ? std::string() : std::string("it is ") + other->name + "; ") + wanted);
  const PngHeader header = read_png_header(file, path);
  if (header.colour != kGrey && header.colour != kPalette)
    throw UserError(no_mask + "it has " +
                    (header.colour == 4   ? "grey and alpha"
                     : header.colour == 2 ? "colours"
                                          : "colours and alpha") +
                    "; " + wanted);
  check_whole_png(file, header, path);
  const std::string plain = png_of_numbers(file);
  std::vector<uint16_t> numbers;
  ImageShape stored = {static_cast<int>(header.height), static_cast<int>(header.width), 1};
  if (header.depth == 16) {
    numbers = wide_numbers(plain, path);
  } else {
    const WholePicture mask = decode_by_stb(plain, path, 1);
    numbers.assign(mask.bytes(), mask.bytes() + stored.values());
  }
  const int orientation = orientation_in(file);
  const ImageShape shown = oriented_shape(stored, orientation);
  if (orientation != 1) {
    const std::vector<uint16_t> upright = numbers;
    orient_picture({stored.height, stored.width, sizeof(uint16_t)}, reinterpret_cast<const uint8_t*>(upright.data()),
                 orientation, reinterpret_cast<uint8_t*>(numbers.data()));
  }
  const auto middle = [](int at, int from, int to) {
    return static_cast<int>((int64_t{2} * at + 1) * from / (int64_t{2} * to));
  };
  for (int y = 0; y < height; ++y) {
    const uint16_t* row = numbers.data() + static_cast<ptrdiff_t>(middle(y, shown.height, height)) * shown.width;
    for (int x = 0; x < width; ++x) *target++ = row[middle(x, shown.width, width)];
  }
  return shown;
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
