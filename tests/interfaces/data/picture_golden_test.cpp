// Compares pictures and masks with PIL's results for the same files
// (tests/parity/make_picture_goldens.py). If a picture were read rotated, or the numbers of a mask
// scaled, a net would still train.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tools/run/pictures/orientation.h"
#include "tools/run/pictures/picture.h"

namespace reprise::test {
namespace {

const std::string kFolder = "tests/golden/pictures/";

struct Golden {
  std::string name, kind;
  ImageShape shape;
  std::vector<int> values;
};

std::vector<Golden> goldens() {
  std::vector<Golden> all;
  std::ifstream file(kFolder + "values.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Golden golden;
    words >> golden.name >> golden.kind >> golden.shape.height >> golden.shape.width >> golden.shape.channels;
    for (int value; words >> value;) golden.values.push_back(value);
    all.push_back(golden);
  }
  return all;
}

TEST(PictureGoldens, PicturesAreAsPilShowsThem) {
  size_t pictures = 0;
  for (const Golden& golden : goldens()) {
    if (golden.kind != "picture") continue;
    ++pictures;
    ASSERT_EQ(golden.values.size(), golden.shape.values()) << golden.name;
    const ImageShape size = shown_size(kFolder + golden.name);
    EXPECT_EQ(size.height, golden.shape.height) << golden.name;
    EXPECT_EQ(size.width, golden.shape.width) << golden.name;
    std::vector<uint8_t> got(golden.values.size());
    decode_picture(kFolder + golden.name, golden.shape, got.data());
    // The conversion of grey and CMYK pictures rounds differently than PIL's.
    const int maximum = golden.name.starts_with("cmyk") || golden.shape.channels == 1 ? 1 : 0;
    for (size_t i = 0; i < got.size(); ++i) ASSERT_LE(std::abs(got[i] - golden.values[i]), maximum) << golden.name << ", value " << i;
  }
  EXPECT_EQ(pictures, 26u);
}

TEST(PictureGoldens, MasksAreTheNumbersThatWereWritten) {
  size_t masks = 0;
  for (const Golden& golden : goldens()) {
    if (golden.kind != "mask") continue;
    ++masks;
    std::vector<uint16_t> got(golden.values.size());
    const ImageShape size = decode_mask(kFolder + golden.name, golden.shape.height, golden.shape.width, got.data());
    EXPECT_EQ(size.height, golden.shape.height) << golden.name;
    EXPECT_EQ(size.width, golden.shape.width) << golden.name;
    EXPECT_EQ(std::vector<int>(got.begin(), got.end()), golden.values) << golden.name;
  }
  EXPECT_EQ(masks, 14u);
}

}  // namespace
}  // namespace reprise::test
