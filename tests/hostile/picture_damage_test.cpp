// Tests damaged, truncated and huge pictures. Each must be refused in one line or decoded to the
// same pixels, with little memory. A mask that changes unnoticed would teach a net wrong classes.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "tests/interfaces/expect_user_error.h"
#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::string chunk(const std::string& name, const std::string& data) {
  const std::string named = name + data;
  const auto sum = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(named.data()), named.size()));
  return big_endian(static_cast<uint32_t>(data.size())) + named + big_endian(sum);
}

std::string packed(const std::string& data) {
  uLongf bytes = compressBound(data.size());
  std::string packed(bytes, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &bytes, reinterpret_cast<const Bytef*>(data.data()), data.size());
  packed.resize(bytes);
  return packed;
}

struct Png {
  uint32_t height = 2, width = 3;
  int depth = 8, colour = 0, interlaced = 0;
  std::string rows;          // each row begins with its filter byte
  std::string palette = {};  // the complete PLTE chunk; "" if there is none
  std::string header() const {
    std::string data = big_endian(width) + big_endian(height);
    for (const int each : {depth, colour, 0, 0, interlaced}) data += static_cast<char>(each);
    return std::string("\x89PNG\r\n\x1a\n", 8) + chunk("IHDR", data) + palette;
  }
  std::string file() const { return header() + chunk("IDAT", packed(rows)) + chunk("IEND", ""); }
};

std::string numbers(std::initializer_list<int> bytes) {
  std::string text;
  for (const int each : bytes) text += static_cast<char>(each);
  return text;
}

const Png kMask = {.rows = numbers({0, 1, 2, 3, 0, 4, 5, 6})};

class Pictures : public testing::Test {
 protected:
  std::vector<uint8_t> decoded(const std::string& bytes, const ImageShape& shape) {
    std::ofstream(path_, std::ios::binary) << bytes;
    std::vector<uint8_t> pixels(shape.values());
    decode_picture(path_, shape, pixels.data());
    return pixels;
  }
  std::vector<uint8_t> mask(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    std::vector<uint16_t> pixels(6);
    decode_mask(path_, 2, 3, pixels.data());
    return {pixels.begin(), pixels.end()};
  }
  void refused(const std::string& bytes, std::initializer_list<std::string> fragments) {
    SCOPED_TRACE(bytes.size());
    expect_user_error([&] { decoded(bytes, {2, 3, 3}); }, fragments);
    expect_user_error([&] { decoded(bytes, {2, 3, 3}); }, {path_, "cannot be decoded"});
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("p.png");
};

TEST_F(Pictures, EveryChangedByteAndEveryCutOfAPngIsRefused) {
  const std::string good = kMask.file();
  ASSERT_EQ(mask(good), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      SCOPED_TRACE(std::to_string(i) + " " + std::to_string(bit));
      expect_user_error([&] { mask(bad); }, {path_});
      if (bit == static_cast<int>(i % 8))
        expect_user_error([&] { decoded(bad, {2, 3, 3}); }, {path_, "cannot be decoded"});
    }
    expect_user_error([&] { mask(good.substr(0, i)); }, {path_});
    expect_user_error([&] { decoded(good.substr(0, i), {2, 3, 3}); }, {path_, "cannot be decoded"});
  }
}

TEST_F(Pictures, DataWithAnotherAdler32AreRefused) {
  std::string data = packed(kMask.rows);
  data.back() = static_cast<char>(data.back() ^ 1);
  refused(kMask.header() + chunk("IDAT", data) + chunk("IEND", ""), {"damaged", "data"});
  refused(kMask.header() + chunk("IDAT", packed(kMask.rows).substr(0, 9)) + chunk("IEND", ""),
          {"end before the picture"});
  refused(kMask.header() + chunk("IDAT", packed(kMask.rows + std::string(100, '\0'))) + chunk("IEND", ""),
          {"hold more than the picture"});
  refused(kMask.header() + chunk("IEND", ""), {"end before the picture"});
  refused(kMask.header() + chunk("IDAT", packed(kMask.rows)), {"ends before the picture does"});
}

// stb_image refuses a file without a reason if a chunk precedes the chunks that it needs. The
// message must then state that the file is damaged.
TEST_F(Pictures, APngWithoutAReasonIsRefused) {
  Png png = kMask;
  png.colour = 3;
  refused(png.file(), {"damaged"});
  refused(kMask.header() + chunk("PLTE", "ab") + chunk("IDAT", packed(kMask.rows)) + chunk("IEND", ""), {"damaged"});
  refused(kMask.header() + chunk("IDAT", packed(numbers({9, 1, 2, 3, 0, 4, 5, 6}))) + chunk("IEND", ""), {"damaged"});
}

TEST_F(Pictures, HugePicturesAreRefusedBeforeTheyAreDecoded) {
  Png png = {.height = 60000, .width = 60000, .rows = std::string(1 << 20, '\0')};
  refused(png.file(), {"60000 x 60000", "67108864"});
  png.height = 0xffffffff;
  refused(png.file(), {"60000 x 4294967295"});
  png = {.height = 8000, .width = 8000, .rows = std::string(1 << 24, '\0')};
  refused(png.file(), {"end before the picture"});
  refused("P6 100000 100000 255\n", {"100000 x 100000"});
  refused("P5 99999999999999999999 2 255\n", {"cannot be decoded"});
  std::string bmp = "BM" + std::string(52, '\0');
  bmp[10] = 54, bmp[14] = 40, bmp[20] = 1, bmp[24] = 1, bmp[26] = 1, bmp[28] = 24;
  refused(bmp, {"65536 x 65536"});
  bmp[20] = bmp[24] = 0, bmp[18] = 5, bmp[22] = 4;  // no file length is stated, and the pixels are missing
  refused(bmp, {"ends before"});
}

TEST_F(Pictures, EveryKindOfPngIsDecodedToItsColours) {
  const Png words = {.depth = 16, .colour = 0, .rows = numbers({0, 1, 255, 2, 255, 3, 255, 0, 4, 0, 5, 0, 6, 0})};
  EXPECT_EQ(decoded(words.file(), {2, 3, 1}), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  const Png with_alpha = {.colour = 4, .rows = numbers({0, 1, 99, 2, 98, 3, 97, 0, 4, 0, 5, 0, 6, 255})};
  EXPECT_EQ(decoded(with_alpha.file(), {2, 3, 1}), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  const Png bits = {.depth = 1, .rows = numbers({0, 0b10100000, 0, 0b01000000})};
  EXPECT_EQ(decoded(bits.file(), {2, 3, 1}), (std::vector<uint8_t>{255, 0, 255, 0, 255, 0}));
  // The passes of Adam7 for 3 x 2 pixels: the first has (0,0), the fourth (2,0), the sixth (1,0),
  // and the seventh the second row.
  const Png interlaced = {.interlaced = 1, .rows = numbers({0, 1, 0, 3, 0, 2, 0, 4, 5, 6})};
  EXPECT_EQ(decoded(interlaced.file(), {2, 3, 1}), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  const Png palette = {.colour = 3,
                       .rows = numbers({0, 0, 1, 200, 0, 1, 1, 0}),
                       .palette = chunk("PLTE", numbers({10, 20, 30, 40, 50, 60}))};
  EXPECT_EQ(decoded(palette.file(), {2, 3, 3}),
            (std::vector<uint8_t>{10, 20, 30, 40, 50, 60, 0, 0, 0, 40, 50, 60, 40, 50, 60, 10, 20, 30}));
  EXPECT_EQ(mask(palette.file()), (std::vector<uint8_t>{0, 1, 200, 1, 1, 0}));
}

// The width of a picture with one column and many rows must not be enlarged to the net's width
// before its height is reduced.
TEST_F(Pictures, ATallPictureIsResizedInLittleMemory) {
  const std::string column(65000, '\x40');
  const std::vector<uint8_t> pixels = decoded("P5 1 65000 255\n" + column, {4, 1000, 1});
  EXPECT_EQ(pixels, std::vector<uint8_t>(pixels.size(), 0x40));
}

struct JpegKind {
  J_COLOR_SPACE input = JCS_RGB, stored = JCS_YCbCr;
  bool is_progressive = false;
};

// Returns a JPEG of 16 x 24 in which the values of each channel rise from left to right. A fourth
// channel is 255 everywhere.
std::string jpeg_of(const JpegKind& kind) {
  const int channels = kind.input == JCS_CMYK ? 4 : kind.input == JCS_GRAYSCALE ? 1 : 3;
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = 16, info.image_width = 24, info.input_components = channels, info.in_color_space = kind.input;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, kind.stored);
  jpeg_set_quality(&info, 95, TRUE);
  if (kind.is_progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> row;
  for (int x = 0; x < 24; ++x) {
    for (int c = 0; c < channels; ++c) row.push_back(static_cast<uint8_t>(c == 3 ? 255 : 20 + 8 * x + 5 * c));
  }
  for (int y = 0; y < 16; ++y) {
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  std::free(bytes);
  return file;
}

const JpegKind kJpegs[] = {{},
                           {.is_progressive = true},
                           {JCS_GRAYSCALE, JCS_GRAYSCALE},
                           {JCS_RGB, JCS_RGB},
                           {JCS_CMYK, JCS_CMYK},
                           {JCS_CMYK, JCS_YCCK}};

TEST_F(Pictures, EveryKindOfJpegIsDecodedToItsColours) {
  for (const JpegKind& kind : kJpegs) {
    SCOPED_TRACE(static_cast<int>(kind.stored));
    const std::string file = jpeg_of(kind);
    const std::vector<uint8_t> grey = decoded(file, {16, 24, 1}), colours = decoded(file, {16, 24, 3});
    for (int x = 0; x < 24; ++x) {
      for (int c = 0; c < 3; ++c)
        EXPECT_NEAR(colours[static_cast<size_t>(3 * (5 * 24 + x) + c)],
                    20 + 8 * x + (kind.input == JCS_GRAYSCALE ? 0 : 5 * c), 6);
      EXPECT_NEAR(grey[static_cast<size_t>(5 * 24 + x)], 25 + 8 * x, 9);
    }
  }
}

TEST_F(Pictures, EveryCutOfAJpegIsRefused) {
  for (const JpegKind& kind : kJpegs) {
    const std::string good = jpeg_of(kind);
    for (size_t bytes = 0; bytes < good.size(); bytes += bytes + 30 < good.size() ? 7 : 1) {
      SCOPED_TRACE(bytes);
      expect_user_error([&] { decoded(good.substr(0, bytes), {2, 3, 3}); }, {path_, "cannot be decoded"});
    }
    refused(good.substr(0, good.size() - 2), {"ends before the picture does"});
    // The picture has an end marker, but its data is truncated.
    refused(good.substr(0, good.size() - 20) + good.substr(good.size() - 2), {"cannot be decoded"});
    // The end is zeros, as in a file that is still being downloaded.
    refused(good.substr(0, good.size() - 20) + std::string(20, '\0'), {"cannot be decoded"});
  }
}

// A changed byte must give a picture or a refusal. Most of a JPEG has no checksum.
TEST_F(Pictures, AChangedByteOfAJpegIsRefusedOrDecoded) {
  for (const JpegKind& kind : kJpegs) {
    const std::string good = jpeg_of(kind);
    for (size_t i = 0; i < good.size(); i += 3) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
      try {
        decoded(bad, {2, 3, 3});
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("cannot be decoded"), std::string::npos) << error.what();
      }
    }
  }
}

TEST_F(Pictures, AHugeJpegIsRefused) {
  std::string file = jpeg_of({});
  const size_t frame = file.find("\xff\xc0");
  file[frame + 5] = file[frame + 6] = file[frame + 7] = file[frame + 8] = '\x70';
  refused(file, {"28784 x 28784", "67108864"});
}

// Formats that the documentation does not list must be refused.
TEST_F(Pictures, OtherFormatsAreNamed) {
  refused("GIF89a" + std::string(100, '\0'), {"no picture of a kind that is read"});
  refused("8BPS" + std::string(100, '\0'), {"no picture of a kind that is read"});
  refused(std::string(100, '\0'), {"no picture of a kind that is read"});
}

}  // namespace
}  // namespace reprise
