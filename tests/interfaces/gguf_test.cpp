// Tests GGUF files and their blocks: against files and numbers from llama.cpp's own Python package,
// by round trips, and with every kind of damage. Such files come from the internet, and one wrong
// bit of a scale makes a model useless.
#include "lib/f16.h"
#include "tools/files/formats/gguf.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#include "tests/interfaces/expect_user_error.h"
#include "tests/fuzz/fuzz.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

// Writes a file but does not flush it to disk, which would take milliseconds each time.
void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

const std::string kGoldens = "tests/golden/formats/";  // made by tests/parity/make_block_goldens.py

std::string bytes_of(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::vector<float> floats_of(const std::string& hex) {
  const std::string bytes = bytes_of(hex);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

std::vector<uint32_t> bits_of(const std::vector<float>& floats) {
  std::vector<uint32_t> bits;
  for (const float value : floats) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

BlockType type_named(const std::string& name) {
  if (name == "NF4") return BlockType::kNF4;
  if (name == "NF4_DOUBLE") return BlockType::kNF4Double;
  for (uint32_t type = 0; type < 64; ++type) {
    if (find_block_layout(type) != nullptr && find_block_layout(type)->name == name)
      return static_cast<BlockType>(type);
  }
  ADD_FAILURE() << "no type " << name;
  return BlockType::kF32;
}

TEST(F16, EveryHalfComesBackAndEveryMiddleGoesToTheEvenOne) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    if ((half & 0x7fff) > 0x7c00) {
      EXPECT_TRUE(std::isnan(value) && std::isnan(f16_to_f32(f32_to_f16(value)))) << half;
      continue;
    }
    EXPECT_EQ(f32_to_f16(value), half);
    const bool last = (half & 0x7fff) >= 0x7bff;  // the largest finite number, and infinity
    if (last) continue;
    // The midpoint between `value` and the next f16 away from zero is exact in f32.
    const float next = f16_to_f32(static_cast<uint16_t>(half + 1)), middle = (value + next) / 2;
    EXPECT_EQ(f32_to_f16(middle), half % 2 == 0 ? half : half + 1) << half;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, value)), half) << half;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, next)), half + 1) << half;
  }
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(GgmlBlocks, EqualGgufsPython) {
  std::istringstream lines(read_file(kGoldens + "blocks.txt"));
  std::string what, type_name, from, to;
  std::map<std::string, int> seen;
  while (lines >> what >> type_name >> from >> to) {
    const BlockType type = type_named(type_name);
    const BlockLayout& layout = block_layout(type);
    ++seen[what + " " + type_name];
    if (what == "decode") {
      const std::string block = bytes_of(from);
      ASSERT_EQ(block.size(), layout.bytes);
      std::vector<float> values(layout.values);
      dequantise_blocks(type, block.data(), 1, values.data());
      EXPECT_EQ(bits_of(values), bits_of(floats_of(to))) << type_name << " " << from;
    } else {
      const std::vector<float> values = floats_of(from);
      ASSERT_EQ(values.size(), layout.values);
      std::string block(layout.bytes, '\0');
      quantise_blocks(type, values.data(), 1, block.data());
      EXPECT_EQ(block, bytes_of(to)) << type_name << " " << from;
    }
  }
  EXPECT_EQ(seen.size(), 22u) << "fourteen are decoded and eight encoded";
}

// Each quantile must map to its own code. A number just below or above the midpoint of two
// quantiles must map to the nearer quantile.
TEST(GgmlBlocks, NF4TakesTheNearestQuantile) {
  unsigned char block[36] = {0, 0, 0x80, 0x3f};  // maximum magnitude 1 as f32; the codes follow
  for (int place = 0; place < 16; ++place)
    block[4 + place / 2] = static_cast<unsigned char>(block[4 + place / 2] | place << (place % 2 == 0 ? 4 : 0));
  float quantiles[64], values[64] = {};
  dequantise_blocks(BlockType::kNF4, block, 1, quantiles);
  const float largest = 3.5f;
  for (int place = 0; place < 16; ++place) values[place] = quantiles[place] * largest;
  for (int place = 1; place < 16; ++place) {
    const float middle =
        static_cast<float>((static_cast<double>(quantiles[place - 1]) + static_cast<double>(quantiles[place])) / 2) *
        largest;
    values[16 + place] = middle - 1e-5f, values[32 + place] = middle + 1e-5f;
  }
  unsigned char made[36];
  quantise_blocks(BlockType::kNF4, values, 1, made);
  float scale = 0;
  std::memcpy(&scale, made, sizeof scale);
  EXPECT_EQ(scale, largest);
  const auto place_of = [&made](int i) { return made[4 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 0xf; };
  for (int place = 0; place < 16; ++place) EXPECT_EQ(place_of(place), place);
  for (int place = 1; place < 16; ++place) {
    EXPECT_EQ(place_of(16 + place), place - 1);
    EXPECT_EQ(place_of(32 + place), place);
  }
}

// A block with quantised magnitudes (kNF4Double) must have the same codes as in kNF4. A group's
// magnitude may differ by at most half of the map's coarsest step, which is 0.0141 of the scale. A
// group of zeros must remain zeros.
TEST(GgmlBlocks, NF4DoubleQuantisesTheMagnitudes) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(512), single(512), twice(512);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i / 64 == 3 ? 0 : normal(random) * static_cast<float>(1 + i / 64);
  unsigned char plain[8 * 36], made[272];
  quantise_blocks(BlockType::kNF4, values.data(), 8, plain);
  quantise_blocks(BlockType::kNF4Double, values.data(), 1, made);
  dequantise_blocks(BlockType::kNF4, plain, 8, single.data());
  dequantise_blocks(BlockType::kNF4Double, made, 1, twice.data());
  float scale = 0;
  std::memcpy(&scale, made, sizeof scale);
  double furthest = 0;
  for (size_t g = 0; g < 8; ++g) {
    if (g == 3) {
      for (size_t i = 64 * g; i < 64 * g + 64; ++i) EXPECT_EQ(twice[i], 0);
      continue;
    }
    EXPECT_EQ(std::memcmp(made + 16 + 32 * g, plain + 36 * g + 4, 32), 0) << g;
    for (size_t i = 64 * g; i < 64 * g + 64; ++i)
      furthest = std::max(furthest, std::fabs(static_cast<double>(twice[i]) - static_cast<double>(single[i])));
  }
  EXPECT_LE(furthest, 0.00706 * static_cast<double>(scale));
  EXPECT_GT(furthest, 0);
  // If all eight groups have the same magnitude, it must be stored exactly.
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 64 == 9 ? -2.5f : 0.5f;
  quantise_blocks(BlockType::kNF4Double, values.data(), 1, made);
  dequantise_blocks(BlockType::kNF4Double, made, 1, twice.data());
  EXPECT_EQ(twice[9], -2.5f);
}

TEST(GgmlBlocks, WhatIsWrittenIsKnown) {
  for (const BlockType type :
       {BlockType::kF32, BlockType::kF16, BlockType::kBf16, BlockType::kQ8_0, BlockType::kQ4_0, BlockType::kQ4_1,
        BlockType::kQ5_0, BlockType::kQ5_1, BlockType::kQ4_K, BlockType::kNF4, BlockType::kNF4Double}) {
    EXPECT_TRUE(is_written(type));
  }
  EXPECT_FALSE(is_written(BlockType::kQ6_K));
  float values[256] = {};
  unsigned char block[210];
  EXPECT_THROW(quantise_blocks(BlockType::kQ6_K, values, 1, block), std::logic_error);
}

TEST(Gguf, ReadsWhatGgufsPythonWrote) {
  const GgufFile file(kGoldens + "small.gguf");
  EXPECT_EQ(file.alignment(), 64u);
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.unsigned_integer("llama.block_count"), 1u);
  EXPECT_EQ(file.unsigned_integer("test.uint8"), 200u);
  EXPECT_EQ(file.find_value("test.int8")->value, -100);
  EXPECT_EQ(file.unsigned_integer("test.uint16"), 60000u);
  EXPECT_EQ(file.find_value("test.int16")->value, -30000);
  EXPECT_EQ(file.unsigned_integer("test.uint32"), 4000000000u);
  EXPECT_EQ(file.number("test.int32"), -2e9);
  EXPECT_EQ(file.unsigned_integer("test.uint64"), (uint64_t{1} << 63) + 1);
  EXPECT_EQ(file.find_value("test.int64")->value, -(int64_t{1} << 62));
  EXPECT_EQ(file.number("test.float32"), 0.1f);
  EXPECT_EQ(file.number("test.float64"), 0.1);
  EXPECT_EQ(file.boolean("test.bool"), true);
  EXPECT_EQ(*file.strings("test.strings"), (std::vector<std::string>{"", "a", "\u0120b", "two\nlines"}));
  EXPECT_EQ(*file.integers("test.integers"), (std::vector<int>{3, -1, 6}));
  EXPECT_EQ(*file.numbers("test.floats"), (std::vector<double>{0.5, -1.5}));
  EXPECT_FALSE(file.text("none").has_value());
  EXPECT_EQ(file.strings("none"), nullptr);

  std::istringstream lines(read_file(kGoldens + "small.txt"));
  std::string name, type, shape, hex;
  size_t n = 0;
  while (lines >> name >> type >> shape >> hex) {
    ASSERT_LT(n, file.tensors().size());
    const GgufTensor& tensor = file.tensors()[n++];
    EXPECT_EQ(tensor.name, name);
    EXPECT_EQ(file.find_tensor(name), &tensor);
    EXPECT_EQ(block_layout(tensor.type).name, type);
    std::string shown;
    for (const uint64_t dimension : tensor.shape) shown += (shown.empty() ? "" : ",") + std::to_string(dimension);
    EXPECT_EQ(shown, shape);
    const std::vector<float> expected = floats_of(hex);
    ASSERT_EQ(tensor.elements(), expected.size());
    for (uint64_t first = 0; first < expected.size(); ++first) {  // every part of the tensor, wherever it cuts blocks
      for (uint64_t count = 0; first + count <= expected.size(); ++count) {
        std::vector<float> values(count);
        file.read(tensor, first, count, values.data());
        ASSERT_EQ(bits_of(values), bits_of({expected.begin() + static_cast<int64_t>(first),
                                            expected.begin() + static_cast<int64_t>(first + count)}))
            << name << " " << first << " " << count;
      }
    }
    float value;
    EXPECT_THROW(file.read(tensor, expected.size(), 1, &value), std::logic_error);
    EXPECT_THROW(file.read(tensor, 1, ~uint64_t{0}, &value), std::logic_error);
  }
  EXPECT_EQ(n, file.tensors().size());
}

// Copies a file, one value and one tensor at a time. Tensors are copied in pieces of `piece` bytes.
void copy(const GgufFile& from, const std::string& path, uint64_t piece) {
  GgufWriter writer(path);
  for (const auto& [key, value] : from.metadata()) writer.add(key, value);
  for (const GgufTensor& tensor : from.tensors()) writer.declare(tensor.name, tensor.type, tensor.shape);
  std::string bytes;
  for (const GgufTensor& tensor : from.tensors()) {
    std::string stored(tensor.bytes, '\0');
    from.read_stored(tensor, 0, stored.data(), stored.size());
    bytes += stored;
  }
  for (size_t at = 0; at < bytes.size(); at += piece)
    writer.write(bytes.data() + at, std::min<uint64_t>(piece, bytes.size() - at));
  writer.finish();
}

// Values and tensors of the copy must be equal. The copy begins with a key that names this program.
TEST(Gguf, ACopyHasTheSameContent) {
  TemporaryFolder folder;
  const GgufFile file(kGoldens + "small.gguf");
  copy(file, folder.file("first.gguf"), 100000);
  const GgufFile first(folder.file("first.gguf"));
  ASSERT_EQ(first.metadata().size(), file.metadata().size() + 1);
  EXPECT_EQ(first.metadata()[0].first, "reprise.written_by");
  for (size_t n = 0; n < file.metadata().size(); ++n) {
    EXPECT_EQ(first.metadata()[n + 1].first, file.metadata()[n].first);
    EXPECT_EQ(first.metadata()[n + 1].second.type, file.metadata()[n].second.type);
    EXPECT_EQ(first.metadata()[n + 1].second.value, file.metadata()[n].second.value);
  }
  ASSERT_EQ(first.tensors().size(), file.tensors().size());
  for (size_t n = 0; n < file.tensors().size(); ++n) {
    const GgufTensor &ours = first.tensors()[n], &theirs = file.tensors()[n];
    EXPECT_EQ(ours.name, theirs.name);
    EXPECT_EQ(ours.type, theirs.type);
    EXPECT_EQ(ours.shape, theirs.shape);
    ASSERT_EQ(ours.bytes, theirs.bytes);
    std::string our_bytes(ours.bytes, '\0'), their_bytes(theirs.bytes, '\0');
    first.read_stored(ours, 0, our_bytes.data(), our_bytes.size());
    file.read_stored(theirs, 0, their_bytes.data(), their_bytes.size());
    EXPECT_EQ(our_bytes, their_bytes);
  }
  for (const uint64_t piece : {1, 7, 100, 100000}) {  // pieces need not end where tensors do; a second copy adds no key
    copy(first, folder.file("copy.gguf"), piece);
    EXPECT_EQ(read_file(folder.file("copy.gguf")), read_file(folder.file("first.gguf"))) << piece;
  }
}

TEST(Gguf, WriterHoldsItsCallerToTheDeclaration) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.gguf");
  {
    GgufWriter writer(path);
    EXPECT_THROW(writer.declare("q", BlockType::kQ8_0, {2, 48}), std::logic_error);
    writer.declare("a", BlockType::kF32, {2});
    EXPECT_THROW(writer.finish(), std::logic_error);
    const float values[3] = {};
    EXPECT_THROW(writer.write(values, 12), std::logic_error);
    EXPECT_THROW(writer.declare("b", BlockType::kF32, {1}), std::logic_error);
    EXPECT_THROW(writer.add("k", {GgufType::kU8, {}, 1}), std::logic_error);
  }
  EXPECT_FALSE(fs::exists(path)) << "an unfinished file must not stay";
  GgufWriter(path).finish();
  EXPECT_TRUE(GgufFile(path).tensors().empty());
}

TEST(Gguf, AValueOfAnotherKindIsRefused) {
  const GgufFile file(kGoldens + "small.gguf");
  const std::string path = kGoldens + "small.gguf";
  expect_user_error([&] { file.text("test.uint8"); },
                    {path, "metadata \"test.uint8\"", "is u8 200", "must be a string"});
  expect_user_error([&] { file.unsigned_integer("test.int8"); }, {"\"test.int8\"", "i8 -100", "integer of at least 0"});
  expect_user_error([&] { file.unsigned_integer("test.float32"); }, {"\"test.float32\"", "integer"});
  expect_user_error([&] { file.number("test.bool"); }, {"\"test.bool\"", "bool true", "a number"});
  expect_user_error([&] { file.boolean("general.architecture"); }, {"a string \"llama\"", "a bool"});
  expect_user_error([&] { file.strings("test.integers"); }, {"a list of i32", "a list of strings"});
  expect_user_error([&] { file.integers("test.strings"); }, {"a list of strings", "a list of integers"});
  expect_user_error([&] { file.numbers("test.float32"); }, {"f32 0.1", "a list of floats"});
}

// A file that is built as bytes, so that a test can make any part of it wrong.
struct RawGguf {
  std::string text = "GGUF";
  template <typename T>
  RawGguf& add(T number) {
    text.append(reinterpret_cast<const char*>(&number), sizeof number);
    return *this;
  }
  RawGguf& add_string(const std::string& string) {
    add(uint64_t{string.size()});
    text += string;
    return *this;
  }
  RawGguf& add_tensor(const std::string& name, std::vector<uint64_t> dimensions, uint32_t type, uint64_t offset) {
    add_string(name).add(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t dimension : dimensions) add(dimension);
    return add(type).add(offset);
  }
  RawGguf& add_data(size_t bytes) {
    text.resize((text.size() + 31) / 32 * 32 + bytes, 'd');
    return *this;
  }
};
RawGguf head(uint64_t tensors, uint64_t values, uint32_t version = 3) {
  return RawGguf().add(version).add(tensors).add(values);
}

TEST(Gguf, DamageIsRefusedInOneLine) {
  constexpr uint32_t kF32 = 0, kU8Value = 0, kBoolValue = 7, kStringValue = 8, kListValue = 9;
  const uint64_t huge = ~uint64_t{0};
  struct Bad {
    const char* id;
    RawGguf file;
    std::initializer_list<std::string> fragments;
  };
  const Bad bads[] = {
      {"short", {"GGUF"}, {"no GGUF file", "too few"}},
      {"magic", {"GGML" + head(0, 0).text.substr(4) + "    "}, {"must begin with \"GGUF\""}},
      {"version 1", head(0, 0, 1), {"version 1", "2 and 3"}},
      {"big-endian", head(0, 0, 3u << 24), {"big-endian"}},
      {"tensors", head(huge, 0), {std::to_string(huge) + " tensors", "truncated"}},
      {"keys", head(0, 5).add_data(8), {"5 keys of metadata", "truncated"}},
      {"key's length", head(0, 1).add(huge).add_data(64), {"metadata 0", "a key of", "truncated"}},
      {"key too long",
       head(0, 1).add_string(std::string(70000, 'k')).add_data(64),
       {"metadata 0", "70000 bytes is too long"}},
      {"type", head(0, 1).add_string("k").add(uint32_t{13}).add_data(32), {"metadata \"k\"", "type 13"}},
      {"bool", head(0, 1).add_string("k").add(kBoolValue).add(uint8_t{2}), {"metadata \"k\"", "bool of 2"}},
      {"string",
       head(0, 1).add_string("k").add(kStringValue).add(uint64_t{100}).add_data(8),
       {"metadata \"k\"", "a string of 100 bytes", "truncated"}},
      {"list of lists",
       head(0, 1).add_string("k").add(kListValue).add(kListValue).add(uint64_t{0}),
       {"metadata \"k\"", "list of lists"}},
      {"list",
       head(0, 1).add_string("k").add(kListValue).add(kU8Value).add(huge / 2),
       {"metadata \"k\"", "list elements", "truncated"}},
      {"list too long",
       head(0, 1).add_string("k").add(kListValue).add(kU8Value).add(uint64_t{9} << 20).add_data(9 << 20),
       {"metadata \"k\"", "too many"}},
      {"value's end",
       head(0, 1).add_string("k").add(uint32_t{10}).add(uint32_t{0}),
       {"metadata \"k\"", "ends at byte", "truncated"}},
      {"twice",
       head(0, 2).add_string("k").add(kU8Value).add('a').add_string("k").add(kU8Value).add('a'),
       {"metadata \"k\"", "twice"}},
      {"alignment 0",
       head(0, 1).add_string("general.alignment").add(uint32_t{4}).add(uint32_t{0}),
       {"\"general.alignment\"", "power of two"}},
      {"alignment 24",
       head(0, 1).add_string("general.alignment").add(uint32_t{4}).add(uint32_t{24}),
       {"\"general.alignment\"", "24"}},
      {"alignment text",
       head(0, 1).add_string("general.alignment").add(kStringValue).add_string("32"),
       {"\"general.alignment\"", "power"}},
      {"tensor twice",
       head(2, 0).add_tensor("t", {1}, kF32, 0).add_tensor("t", {1}, kF32, 32).add_data(64),
       {"tensor \"t\"", "twice"}},
      {"dimensions",
       head(1, 0).add_tensor("t", {1, 1, 1, 1, 1}, kF32, 0).add_data(32),
       {"tensor \"t\"", "5 dimensions"}},
      {"no elements", head(1, 0).add_tensor("t", {3, 0}, kF32, 0).add_data(32), {"tensor \"t\"", "dimension is 0"}},
      {"overflow", head(1, 0).add_tensor("t", {huge, 2}, kF32, 0).add_data(32), {"tensor \"t\"", "too large"}},
      {"bytes overflow",
       head(1, 0).add_tensor("t", {uint64_t{1} << 62}, kF32, 0).add_data(32),
       {"tensor \"t\"", "too large"}},
      {"IQ2_XXS", head(1, 0).add_tensor("t", {256}, 16, 0).add_data(66), {"tensor \"t\"", "IQ2_XXS", "Q4_K"}},
      {"type 77", head(1, 0).add_tensor("t", {256}, 77, 0).add_data(84), {"tensor \"t\"", "type 77"}},
      {"half a block", head(1, 0).add_tensor("t", {48, 2}, 8, 0).add_data(102), {"tensor \"t\"", "rows of 48", "Q8_0"}},
      {"unaligned", head(1, 0).add_tensor("t", {1}, kF32, 4).add_data(64), {"tensor \"t\"", "byte 4", "alignment 32"}},
      {"truncated",
       head(1, 0).add_tensor("t", {3}, kF32, 0).add_data(11),
       {"tensor \"t\"", "12 bytes", "11 bytes", "truncated"}},
      {"outside", head(1, 0).add_tensor("t", {1}, kF32, uint64_t{1} << 63).add_data(32), {"tensor \"t\"", "truncated"}},
      {"no data", head(1, 0).add_tensor("t", {1}, kF32, 0), {"tensor \"t\"", "truncated"}},
      {"overlap",
       head(2, 0).add_tensor("t", {9}, kF32, 0).add_tensor("u", {1}, kF32, 32).add_data(64),
       {"tensor \"u\"", "overlaps tensor \"t\""}},
      {"same place",
       head(2, 0).add_tensor("t", {9}, kF32, 0).add_tensor("u", {9}, kF32, 0).add_data(64),
       {"overlaps tensor"}},
  };
  TemporaryFolder folder;
  const std::string path = folder.file("bad.gguf");
  for (const Bad& bad : bads) {
    SCOPED_TRACE(bad.id);
    put(path, bad.file.text);
    expect_user_error([&] { GgufFile file(path); }, bad.fragments);
    expect_user_error([&] { GgufFile file(path); }, {path});
  }
  expect_user_error([&] { GgufFile file(folder.file("none")); }, {folder.file("none"), "No such file"});
  put(path, head(1, 0).add_tensor("scalar", {}, kF32, 32).add_data(36).text);
  EXPECT_EQ(GgufFile(path).tensors().at(0).elements(), 1u);
}

// After any cut, or any change of one byte, a file must give a UserError, or tensors that are
// inside the file.
TEST(Gguf, EveryCutAndEveryChangedByteIsHandled) {
  const fuzz::MemoryFile memory;
  const std::string path = memory.path(), good = read_file(kGoldens + "small.gguf");
  const auto hold = [&](const std::string& text) {
    memory.hold(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  };
  const GgufFile whole(kGoldens + "small.gguf");
  const GgufTensor& last = whole.tensors().back();
  for (size_t length = 0; length < last.offset + last.bytes; ++length) {
    hold(good.substr(0, length));
    expect_user_error([&] { GgufFile file(path); }, {path});
  }
  size_t accepted = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char c : {'\0', '\x01', '\x7f', '\xff'}) {
      std::string changed = good;
      changed[i] = c;
      hold(changed);
      try {
        const GgufFile file(path);
        ++accepted;
        for (const GgufTensor& tensor : file.tensors()) {
          std::vector<float> values(tensor.elements());
          file.read(tensor, 0, values.size(), values.data());  // bytes outside the file would be refused
        }
      } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
    }
  }
  EXPECT_GT(accepted, good.size()) << "the tensors' bytes may be any";
}

TEST(Gguf, ATensorThatIsGoneIsRefusedInOneLine) {
  TemporaryFolder folder;
  const std::string path = folder.file("w.gguf");
  put(path, head(1, 0).add_tensor("t", {16}, 0, 0).add_data(64).text);
  const GgufFile file(path);
  fs::resize_file(path, fs::file_size(path) - 1);
  float values[16];
  file.read(file.tensors()[0], 0, 15, values);
  expect_user_error([&] { file.read(file.tensors()[0], 0, 16, values); },
                    {path, "has become shorter while it was in use"});
}

}  // namespace
}  // namespace reprise
