// See orientation.h.
#include "tools/run/pictures/orientation.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "tools/files/io/error.h"
#include "tools/files/io/input_file.h"

namespace reprise {
namespace {

constexpr int kUpright = 1;
constexpr uint32_t kMaxParts = 1u << 20;  // maximum number of segments, chunks or padding bytes that are read of a file
constexpr std::string_view kPngBegin("\x89PNG\r\n\x1a\n", 8);

uint64_t number(std::string_view bytes, size_t at, size_t count, bool big) {
  uint64_t value = 0;
  for (size_t i = 0; i < count && at + i < bytes.size(); ++i) {
    const uint64_t byte = static_cast<uint8_t>(bytes[at + i]);
    value |= byte << 8 * (big ? count - 1 - i : i);
  }
  return value;
}

// The orientation tags of a file: the first tag in Exif and the first in XMP.
struct Words {
  std::optional<int> exif, xmp;
  int orientation() const {
    const int value = exif.value_or(xmp.value_or(kUpright));
    return value >= 1 && value <= 8 ? value : kUpright;
  }
};

// Returns the value of tag 0x0112 in the first directory of a TIFF header.
std::optional<int> exif_orientation(std::string_view tiff) {
  constexpr size_t kHeader = 8, kEntry = 12, kTag = 0x0112, kByte = 1, kShort = 3, kLong = 4;
  const bool big = tiff.starts_with("MM");
  if (tiff.size() < kHeader || (!big && !tiff.starts_with("II"))) return std::nullopt;
  const uint64_t directory = number(tiff, 4, 4, big);
  if (directory + 2 > tiff.size()) return std::nullopt;
  const uint64_t entries = number(tiff, directory, 2, big);
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t at = directory + 2 + i * kEntry;
    if (at + kEntry > tiff.size()) return std::nullopt;
    if (number(tiff, at, 2, big) != kTag) continue;
    const uint64_t type = number(tiff, at + 2, 2, big);
    const size_t bytes = type == kShort ? 2 : type == kLong ? 4 : type == kByte ? 1 : 0;
    return bytes == 0 ? std::nullopt : std::optional<int>(static_cast<int>(number(tiff, at + 8, bytes, big)));
  }
  return std::nullopt;
}

std::optional<int> xmp_orientation(std::string_view xmp) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = xmp.find(kName); at != std::string_view::npos; at = xmp.find(kName, at + 1)) {
    const std::string_view rest = xmp.substr(at + kName.size());
    const size_t digit = rest.starts_with("=\"") ? 2 : rest.starts_with(">") ? 1 : 0;
    if (digit > 0 && digit < rest.size() && rest[digit] >= '0' && rest[digit] <= '9') return rest[digit] - '0';
  }
  return std::nullopt;
}

struct StoredPicture {
  uint64_t width = 0, height = 0;
  Words words = {};
};

// Reads the segments of a JPEG that precede its image data.
StoredPicture read_jpeg(const ByteReader& file) {
  constexpr std::string_view kExif("Exif\0\0", 6), kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
  StoredPicture picture;
  uint64_t at = 2;
  for (uint32_t part = 0; part < kMaxParts; ++part) {
    const std::string begin = file(at, 4);
    if (begin.size() < 4 || begin[0] != '\xff') return picture;
    const auto marker = static_cast<uint8_t>(begin[1]);
    if (marker == 0xff) {  // a padding byte
      ++at;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {  // markers without a length
      at += 2;
      continue;
    }
    if (marker == 0xd9 || marker == 0xda) return picture;
    const uint64_t length = number(begin, 2, 2, true);
    if (length < 2) return picture;
    if (marker == 0xe1 && !picture.words.exif) {
      const std::string data = file(at + 4, length - 2);
      if (data.starts_with(kExif)) picture.words.exif = exif_orientation(std::string_view(data).substr(kExif.size()));
      if (data.starts_with(kXmp) && !picture.words.xmp)
        picture.words.xmp = xmp_orientation(std::string_view(data).substr(kXmp.size()));
    }
    const bool is_frame = marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (is_frame) {
      const std::string data = file(at + 4, 5);
      picture.height = number(data, 1, 2, true), picture.width = number(data, 3, 2, true);
    }
    at += 2 + length;
  }
  return picture;
}

// Reads the chunks of a PNG. An Exif chunk may follow the image data.
StoredPicture read_png(const ByteReader& file) {
  constexpr uint64_t kFrame = 12, kMaxRead = uint64_t{1} << 24;
  constexpr std::string_view kXmp("XML:com.adobe.xmp\0", 18);
  StoredPicture picture;
  uint64_t at = kPngBegin.size();
  for (uint32_t part = 0; part < kMaxParts; ++part) {
    const std::string begin = file(at, 8);
    if (begin.size() < 8) return picture;
    const uint64_t length = number(begin, 0, 4, true);
    const std::string_view name = std::string_view(begin).substr(4);
    if (name == "IEND") return picture;
    if (name == "IHDR") {
      const std::string data = file(at + 8, 8);
      picture.width = number(data, 0, 4, true), picture.height = number(data, 4, 4, true);
    }
    if (name == "eXIf" && length <= kMaxRead && !picture.words.exif) {
      picture.words.exif = exif_orientation(file(at + 8, length));
    }
    if (name == "iTXt" && length <= kMaxRead && !picture.words.xmp) {
      const std::string data = file(at + 8, length);
      if (data.starts_with(kXmp)) picture.words.xmp = xmp_orientation(std::string_view(data).substr(kXmp.size()));
    }
    at += length + kFrame;
  }
  return picture;
}

StoredPicture read_bmp(const ByteReader& file) {
  const std::string header = file(0, 26);
  const bool is_old = number(header, 14, 4, false) == 12;
  const auto side = [&](size_t at) {
    return is_old ? static_cast<int64_t>(number(header, at, 2, false))
                  : int64_t{static_cast<int32_t>(number(header, at, 4, false))};
  };
  const int64_t width = side(18), height = side(is_old ? 20 : 22);
  return {.width = static_cast<uint64_t>(std::max<int64_t>(width, 0)),
          .height = static_cast<uint64_t>(height < 0 ? -height : height)};
}

StoredPicture read_pnm(const ByteReader& file) {
  const std::string header = file(0, uint64_t{1} << 12);
  StoredPicture picture;
  size_t at = 2;
  for (uint64_t* const side : {&picture.width, &picture.height}) {
    while (at < header.size() && (std::strchr(" \t\n\v\f\r", header[at]) != nullptr || header[at] == '#'))
      at = header[at] == '#' ? std::min(header.find('\n', at), header.size()) : at + 1;
    for (size_t digits = 0; at < header.size() && header[at] >= '0' && header[at] <= '9' && digits < 9; ++at, ++digits)
      *side = *side * 10 + static_cast<uint64_t>(header[at] - '0');
  }
  return picture;
}

StoredPicture read_beginning(const ByteReader& file) {
  const std::string begin = file(0, kPngBegin.size());
  if (begin.starts_with("\xff\xd8")) return read_jpeg(file);
  if (begin == kPngBegin) return read_png(file);
  if (begin.starts_with("BM")) return read_bmp(file);
  return begin.starts_with("P5") || begin.starts_with("P6") ? read_pnm(file) : StoredPicture{};
}

bool is_on_its_side(int orientation) { return orientation >= 5; }

}  // namespace

int orientation_of(const ByteReader& file) { return read_beginning(file).words.orientation(); }

ImageShape shown_size(const std::string& path) {
  const InputFile file(path);
  const StoredPicture picture = read_beginning([&file](uint64_t at, uint64_t count) {
    std::string bytes(at >= file.bytes() ? 0 : std::min(count, file.bytes() - at), '\0');
    file.read(std::min(at, file.bytes()), bytes.data(), bytes.size());
    return bytes;
  });
  const auto side = [](uint64_t length) { return static_cast<int>(std::min<uint64_t>(length, INT32_MAX)); };
  return oriented_shape({side(picture.height), side(picture.width), 1}, picture.words.orientation());
}

ImageShape oriented_shape(const ImageShape& stored, int orientation) {
  return is_on_its_side(orientation) ? ImageShape{stored.width, stored.height, stored.channels} : stored;
}

// Orientations from 5 on exchange rows and columns. from_right and from_below state at which corner
// of the stored picture the shown picture begins.
void orient_picture(const ImageShape& stored, const uint8_t* from, int orientation, uint8_t* to) {
  const ImageShape shown = oriented_shape(stored, orientation);
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const auto channels = static_cast<size_t>(stored.channels);
  for (int y = 0; y < shown.height; ++y) {
    for (int x = 0; x < shown.width; ++x) {
      const int along = is_on_its_side(orientation) ? x : y, across = is_on_its_side(orientation) ? y : x;
      const int row = from_below ? stored.height - 1 - along : along,
                column = from_right ? stored.width - 1 - across : across;
      std::memcpy(to,
                  from + (static_cast<size_t>(row) * static_cast<size_t>(stored.width) + static_cast<size_t>(column)) *
                             channels,
                  channels);
      to += channels;
    }
  }
}

}  // namespace reprise
