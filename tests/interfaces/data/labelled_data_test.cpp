// Tests data whose labels are numbers, several labels per sample, or maps: in tables, tensors and
// masks, and synthetic. Also tests the metrics of a net's outputs and the files of its predictions.
// With a label at the wrong place a net still trains, only worse.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/images.h"
#include "tools/run/inference/metrics.h"
#include "tools/run/inference/predictions.h"
#include "tools/run/pictures/picture.h"

namespace reprise::test {
namespace {

using nlohmann::json;

constexpr uint32_t kH = 4, kW = 6;
const float kNone = std::nanf("");

// Returns a recipe of a net with a 4 x 6 x 1 input. The net writes `outputs` numbers for each
// image, or for each pixel if `map`.
Recipe recipe_of(const json& loss, int outputs, bool map, const json& data, int batch = 3, int accumulate = 1) {
  json nodes = {{{"op", "conv"}, {"name", "conv"}, {"channels", outputs}, {"kernel", 3}, {"pad", 1}, {"bias", true}}};
  if (!map) nodes.push_back({{"op", "global_pool"}, {"name", "pool"}});
  nodes.push_back(loss);
  nodes.back()["name"] = "loss";
  const json recipe = {{"model", {{"family", "net"}, {"image", {kH, kW, 1}}, {"nodes", nodes}}},
                       {"data", data},
                       {"batch", batch},
                       {"accumulate", accumulate},
                       {"seed", 7}};
  return parse_recipe(recipe.dump(), "labelled.json", "/");
}

template <typename Label>
struct Batch {
  std::vector<float> images;
  std::vector<Label> labels;
};
template <typename Label>
Batch<Label> fill(Dataset& data, const Recipe& recipe, uint64_t step, uint64_t micro = 0) {
  const LabelForm form = label_form(recipe);
  const auto batch = static_cast<size_t>(recipe.batch);
  Batch<Label> filled{std::vector<float>(batch * kH * kW), std::vector<Label>(batch * form.count())};
  BatchSink sink = host_sink(filled.images.data(), filled.images.size() * sizeof(float), filled.labels.data(),
                             filled.labels.size(), nullptr, nullptr, 0, 1, form.stored);
  data.fill(step, micro, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  EXPECT_EQ(sizeof(Label), stored_bytes(form.stored, 1));
  return filled;
}

// Writes a grey picture of 4 x 6 pixels. Pixel i has the value n * 10 + i.
void write_picture(const std::string& path, uint8_t n) {
  std::vector<uint8_t> bytes(kH * kW);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(n * 10 + i);
  write_grey_png(path, kH, kW, bytes.data());
}

void expect_same_numbers(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << i << ": " << got[i] << " for " << want[i];
}

// ---- tables ----

class TableFolder : public TemporaryFolder {
 public:
  TableFolder() {
    for (uint8_t n = 0; n < 4; ++n) write_picture(file(std::to_string(n) + ".png"), n);
  }
  std::string table(const std::string& text) const {
    write_file(file("t.csv"), text);
    return file("t.csv");
  }
};

TEST(Table, NumbersStandBesideTheirPicture) {
  TableFolder folder;
  const std::string path = folder.table("image,a,\"b, c\"\n2.png,1.5,-2\n0.png,,0.25\n1.png,3e2, \n3.png,-1,7\n");
  const Recipe recipe = recipe_of({{"op", "mse_loss"}}, 2, false,
                                  {{"kind", "csv"}, {"path", path}, {"eval_path", path}, {"shuffle", false}}, 2, 2);
  const auto data = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(data->class_names(), (std::vector<std::string>{"a", "b, c"}));
  const Batch<float> first = fill<float>(*data, recipe, 0), second = fill<float>(*data, recipe, 0, 1);
  expect_same_numbers(first.labels, {1.5f, -2, kNone, 0.25f});
  expect_same_numbers(second.labels, {300, kNone, -1, 7});
  EXPECT_FLOAT_EQ(first.images[5], 25.0f / 255);
  EXPECT_EQ(data->labelled_in_step(0), 6u);
  const auto evaluation = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(evaluation->size(), 4u);
}

TEST(Table, EvaluationEndsWithoutTargets) {
  TableFolder folder;
  const std::string path = folder.table("image,a\n0.png,1\n1.png,2\n2.png,3\n3.png,4\n");
  const Recipe recipe =
      recipe_of({{"op", "l1_loss"}}, 1, false, {{"kind", "csv"}, {"path", path}, {"eval_path", path}});
  const auto data = open_dataset(recipe, Split::kEvaluation);
  expect_same_numbers(fill<float>(*data, recipe, 1).labels, {4, kNone, kNone});
}

TEST(Table, DamageIsRefusedInOneLine) {
  TableFolder folder;
  const auto refused = [&](const std::string& text, const json& loss, std::initializer_list<std::string> fragments) {
    const Recipe recipe = recipe_of(loss, 2, false, {{"kind", "csv"}, {"path", folder.table(text)}});
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  const json mse = {{"op", "mse_loss"}}, binary = {{"op", "binary_loss"}};
  refused("image,a\n0.png,1\n", mse, {"t.csv, line 2", "2 columns", "2 numbers"});
  refused("image,a,b\n0.png,1,x\n", mse, {"line 2", "\"b\" is \"x\"", "must be a number"});
  refused("image,a,b\n0.png,1,inf\n", mse, {"\"b\" is \"inf\""});
  refused("image,a,b\n0.png,0,1\n1.png,1,2\n", binary, {"line 3", "\"b\" is \"2\"", "from 0 to 1"});
  refused("image,a,b\n9.png,1,2\n", mse, {"line 2", "9.png is no file"});
  refused("image,a,b\n,1,2\n", mse, {"line 2", "\"image\" is empty"});
  refused("image;a;b\n0.png;1;2\n", mse, {"line 2", "1 columns", "no semicolons"});
  refused("0.png,1,2\n1.png,1,2\n", mse, {"line 1 must name the columns", "\"0.png\""});
}

TEST(Table, ClassesHaveTheOrderOfTheirNames) {
  TableFolder folder;
  const auto labels = [&](const std::string& text) {
    const std::string path = folder.table(text);
    const Recipe recipe =
        recipe_of({{"op", "class_loss"}}, 3, false, {{"kind", "csv"}, {"path", path}, {"shuffle", false}}, 4);
    return fill<int32_t>(*open_dataset(recipe, Split::kTraining), recipe, 0).labels;
  };
  EXPECT_EQ(labels("image,what\n0.png,tit\n1.png,auk\n2.png,\n3.png,tit\n"),
            (std::vector<int32_t>{1, 0, kIgnoredLabel, 1}));
  EXPECT_EQ(labels("image,what\n0.png,2\n1.png,0\n2.png,2\n3.png,2\n"), (std::vector<int32_t>{2, 0, 2, 2}));
  EXPECT_EQ(labels("image,what\n0.png,9\n1.png,30\n2.png,9\n3.png,9\n"), (std::vector<int32_t>{0, 1, 0, 0}));
  EXPECT_EQ(labels("image,what\n0.png,1.0\n1.png,0.0\n2.png,\n3.png,1\n"),
            (std::vector<int32_t>{1, 0, kIgnoredLabel, 1}));
  EXPECT_EQ(labels("image,what\n0.png,10.0\n1.png,9.0\n2.png,10\n3.png,\n"),
            (std::vector<int32_t>{1, 0, 1, kIgnoredLabel}));
  EXPECT_EQ(labels("\xef\xbb\xbfimage,what\r\n0.png,\"b, c\"\r\n1.png, a \r\n2.png,a\r\n3.png,\"b, c\"\r\n"),
            (std::vector<int32_t>{1, 0, 0, 1}));
}

// ---- settings that are probably mistakes ----

TEST(Table, TheOrderOfClassesIsNamedWithTheirWeights) {
  TableFolder folder;
  const std::string path = folder.table("image,what\n0.png,10\n1.png,\n2.png,2\n3.png,10\n");
  const Recipe recipe = recipe_of({{"op", "class_loss"}, {"weights", {0.5, 4}}}, 2, false,
                                  {{"kind", "csv"}, {"path", path}, {"shuffle", false}}, 4);
  const auto data = open_dataset(recipe, Split::kTraining);
  EXPECT_EQ(class_order(recipe, *data), "0 is \"2\" (weight 0.5), 1 is \"10\" (weight 4.0)");
  ASSERT_EQ(data->notes().size(), 1u);
  EXPECT_NE(data->notes()[0].find("1 of 4 samples have no label"), std::string::npos) << data->notes()[0];
  EXPECT_EQ(data->weight_in_step(0), 8.5);
}

TEST(Table, FlipsBesideNumbersAreTold) {
  TableFolder folder;
  const std::string path = folder.table("image,x,y\n0.png,1,2\n");
  const auto warnings = [&](const json& augment) {
    const Recipe recipe =
        recipe_of({{"op", "mse_loss"}}, 2, false, {{"kind", "csv"}, {"path", path}, {"augment", augment}});
    return open_dataset(recipe, Split::kTraining)->warnings();
  };
  EXPECT_TRUE(warnings(json::object()).empty());
  ASSERT_EQ(warnings({{"flip", true}}).size(), 1u);
  EXPECT_NE(warnings({{"flip", true}})[0].find(
                "mirrors pictures, and the numbers beside them (\"x\", \"y\") stay as they are"),
            std::string::npos);
  EXPECT_NE(warnings({{"crop", 1}})[0].find("shifts pictures"), std::string::npos);
}

// ---- texts ----

Recipe recipe_of_texts(const json& data) {
  const json nodes = {{{"op", "embedding"}, {"name", "words"}, {"rows", 9}, {"features", 4}},
                      {{"op", "global_pool"}, {"name", "pool"}, {"masked", true}},
                      {{"op", "loss_head"}, {"name", "head"}, {"classes", 3}}};
  const json recipe = {{"model", {{"family", "net"}, {"text", {{"length", 5}, {"pad", 1}}}, {"nodes", nodes}}},
                       {"data", data},
                       {"batch", 2},
                       {"seed", 7}};
  return parse_recipe(recipe.dump(), "texts.json", "/");
}

struct TextBatch {
  std::vector<int32_t> tokens = std::vector<int32_t>(10), starts = tokens, labels = std::vector<int32_t>(2);
};
TextBatch fill_texts(Dataset& data, uint64_t step) {
  TextBatch filled;
  BatchSink sink = host_sink(filled.tokens.data(), 40, filled.labels.data(), 2, filled.starts.data(), nullptr, 0, 5);
  data.fill(step, 0, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
}

TEST(Texts, PaddingStandsBehindThemAsADocument) {
  TemporaryFolder folder;
  const std::string path = folder.file("t.safetensors");
  const std::vector<int64_t> tokens = {3, 1, 4, 1, 1, 5, 6, 7, 8, 2, 1, 1, 1, 1, 1}, labels = {2, 0, 1};
  SafetensorsWriter writer(path);
  writer.declare("tokens", StoredType::kI64, {3, 5});
  writer.declare("labels", StoredType::kI64, {3});
  writer.write(tokens.data(), tokens.size() * sizeof(int64_t));
  writer.write(labels.data(), labels.size() * sizeof(int64_t));
  writer.finish();
  const json data = {{"kind", "tensors"}, {"path", path}, {"eval_path", path}};
  const auto set = open_dataset(recipe_of_texts(data), Split::kEvaluation);
  const TextBatch first = fill_texts(*set, 0), second = fill_texts(*set, 1);
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{3, 1, 4, 1, 1, 5, 6, 7, 8, 2}));
  EXPECT_EQ(first.starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 0, 0, 0, 0, 0}));
  EXPECT_EQ(first.labels, (std::vector<int32_t>{2, 0}));
  // An empty text becomes one padding token.
  EXPECT_EQ(second.starts, (std::vector<int32_t>{0, 1, 1, 1, 1, 0, 1, 1, 1, 1}));
  EXPECT_EQ(second.labels, (std::vector<int32_t>{1, kIgnoredLabel}));
}

TEST(Texts, SyntheticOnesAreOfItsVocabulary) {
  const auto set = open_dataset(recipe_of_texts({{"kind", "synthetic"}}), Split::kTraining);
  for (uint64_t step = 0; step < 20; ++step) {
    const TextBatch batch = fill_texts(*set, step);
    for (const int32_t token : batch.tokens) EXPECT_TRUE(token >= 0 && token < 9) << token;
    for (const int32_t label : batch.labels) EXPECT_TRUE(label >= 0 && label < 3) << label;
  }
}

TEST(Texts, WhatTheyCannotHaveIsRefused) {
  const auto refused = [](const json& data, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe_of_texts(data); }, fragments);
  };
  refused({{"kind", "csv"}, {"path", "/x"}}, {"data.tokenizer", "missing"});
  refused({{"kind", "synthetic"}, {"tokenizer", "/x"}}, {"data.tokenizer", "leave it out"});
  refused({{"kind", "idx"}, {"path", "/x"}}, {"data.kind", "texts", "\"csv\""});
  refused({{"kind", "synthetic"}, {"augment", {{"flip", true}}}}, {"data", "for images"});
}

// ---- masks ----

class MaskFolder : public TemporaryFolder {
 public:
  MaskFolder() {
    std::filesystem::create_directories(file("images"));
    std::filesystem::create_directories(file("masks"));
  }
  void add(uint8_t n, const std::vector<uint8_t>& mask, uint32_t height = kH, uint32_t width = kW) const {
    write_picture(file("images/" + std::to_string(n) + ".png"), n);
    write_grey_png(file("masks/" + std::to_string(n) + ".png"), height, width, mask.data());
  }
  json data() const { return {{"kind", "mask_folder"}, {"path", file("")}, {"shuffle", false}}; }
};

std::vector<uint8_t> mask_of(uint8_t (*at)(size_t y, size_t x)) {
  std::vector<uint8_t> mask;
  for (size_t y = 0; y < kH; ++y) {
    for (size_t x = 0; x < kW; ++x) mask.push_back(at(y, x));
  }
  return mask;
}

TEST(Masks, PlacesHaveTheirClasses) {
  MaskFolder folder;
  const std::vector<uint8_t> first = mask_of([](size_t y, size_t x) { return static_cast<uint8_t>((y + x) % 3); });
  const std::vector<uint8_t> second =
      mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y == 0 ? 255 : y % 2); });
  folder.add(0, first);
  folder.add(1, second);
  const Recipe recipe = recipe_of({{"op", "class_loss"}, {"weights", {1, 0.5, 4}}}, 3, true, folder.data(), 2);
  const auto data = open_dataset(recipe, Split::kTraining);
  const Batch<uint8_t> batch = fill<uint8_t>(*data, recipe, 0);
  EXPECT_EQ(std::vector<uint8_t>(batch.labels.begin(), batch.labels.begin() + kH * kW), first);
  EXPECT_EQ(std::vector<uint8_t>(batch.labels.begin() + kH * kW, batch.labels.end()), second);
  EXPECT_EQ(data->labelled_in_step(0), 24u + 18u);
  EXPECT_EQ(data->weight_in_step(0), 8 * 1 + 8 * 0.5 + 8 * 4 + (6 * 1 + 12 * 0.5));
}

TEST(Masks, TurnWithTheirImage) {
  MaskFolder folder;
  folder.add(0, mask_of([](size_t, size_t x) { return static_cast<uint8_t>(x < 2 ? 0 : x < 3 ? 255 : 1); }));
  json data = folder.data();
  data["augment"] = {{"flip", true}};
  const Recipe recipe = recipe_of({{"op", "class_loss"}}, 2, true, data, 1);
  const auto set = open_dataset(recipe, Split::kTraining);
  bool met[2] = {};
  for (uint64_t step = 0; step < 40; ++step) {
    const Batch<uint8_t> batch = fill<uint8_t>(*set, recipe, step);
    const bool flipped = batch.images[0] > batch.images[1];
    met[flipped] = true;
    for (size_t x = 0; x < kW; ++x) {
      const size_t at = flipped ? kW - 1 - x : x;
      EXPECT_EQ(batch.labels[kW + x], at < 2 ? 0 : at < 3 ? 255 : 1) << "step " << step << ", place " << x;
    }
  }
  EXPECT_TRUE(met[0] && met[1]);
}

TEST(Masks, AnotherSizeIsTakenAtTheMiddleOfEachPlace) {
  TemporaryFolder folder;
  std::vector<uint8_t> mask(8 * 12);
  for (size_t y = 0; y < 8; ++y) {
    for (size_t x = 0; x < 12; ++x) mask[y * 12 + x] = static_cast<uint8_t>(10 * y + x);
  }
  write_grey_png(folder.file("m.png"), 8, 12, mask.data());
  uint16_t small[kH * kW];
  decode_mask(folder.file("m.png"), kH, kW, small);
  for (size_t y = 0; y < kH; ++y) {
    for (size_t x = 0; x < kW; ++x) EXPECT_EQ(small[y * kW + x], 10 * (2 * y + 1) + 2 * x + 1);
  }
  uint16_t large[16 * 24];
  decode_mask(folder.file("m.png"), 16, 24, large);
  EXPECT_EQ(large[0], 0);
  EXPECT_EQ(large[1], 0);
  EXPECT_EQ(large[2], 1);
  EXPECT_EQ(large[16 * 24 - 1], 81);
}

// The classes are the indices into the palette, not the palette's colours.
TEST(Masks, APaletteIsReadByItsNumbers) {
  TemporaryFolder folder;
  const uint8_t numbers[6] = {0, 1, 2, 2, 1, 0};
  write_grey_png(folder.file("m.png"), 2, 3, numbers);
  std::string png = read_file(folder.file("m.png"));
  const std::string colours("\x10\x20\x30\x40\x50\x60\x70\x80\x90", 9);
  const std::string chunk = "PLTE" + colours;
  const auto sum = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const unsigned char*>(chunk.data()), static_cast<unsigned>(chunk.size())));
  std::string palette("\0\0\0\x09", 4);
  palette += chunk;
  for (int shift = 24; shift >= 0; shift -= 8) palette += static_cast<char>(sum >> shift & 0xff);
  const auto set_colours = [&](char kind) {
    png[25] = kind;
    const auto header_sum =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const unsigned char*>(png.data()) + 12, 17));
    for (size_t i = 0; i < 4; ++i) png[29 + i] = static_cast<char>(header_sum >> (24 - 8 * i) & 0xff);
  };
  set_colours(3);
  png.insert(33, palette);
  write_file(folder.file("p.png"), png);
  uint16_t read[6];
  decode_mask(folder.file("p.png"), 2, 3, read);
  EXPECT_TRUE(std::equal(read, read + 6, numbers));
  set_colours(2);
  write_file(folder.file("p.png"), png);
  expect_user_error([&] { decode_mask(folder.file("p.png"), 2, 3, read); },
                    {"p.png", "is no mask", "has colours", "grey of 1 to 16 bits"});
  write_file(folder.file("p.png"), "P5\n2 1\n255\n12");
  expect_user_error([&] { decode_mask(folder.file("p.png"), 2, 3, read); }, {"p.png", "is no mask"});
}

// Paint programs write 255 for white. A pixel with the number 255 has no label, unless the recipe
// lists 255 as the number of a class.
TEST(Masks, OfBlackAndWhiteAreRefusedWithTheirCounts) {
  MaskFolder folder;
  folder.add(0, mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y < 1 ? 255 : 0); }));
  folder.add(1, mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y < 2 ? 255 : 0); }));
  json data = folder.data();
  const json loss = {{"op", "class_loss"}, {"weights", {1, 4}}};
  const auto refused = [&](DataLook* look) {
    expect_user_error([&] { open_dataset(recipe_of(loss, 2, true, data, 2), Split::kTraining, look); },
                      {"masks", "class 0 at 30", "none (255) at 18", "one class alone", "\"mask_values\": [0, 255]"});
  };
  refused(nullptr);
  DataLook look;
  refused(&look);
  look.max_bytes = 1 << 20;  // as for a plan, for which the masks are not read
  open_dataset(recipe_of(loss, 2, true, data, 2), Split::kTraining, &look);
  data["eval_path"] = data["path"];
  EXPECT_EQ(open_dataset(recipe_of(loss, 2, true, data, 2), Split::kEvaluation)->warnings().size(), 1u);
  data["mask_values"] = {0, 255};
  const Recipe recipe = recipe_of(loss, 2, true, data, 2);
  const auto set = open_dataset(recipe, Split::kTraining);
  EXPECT_TRUE(set->warnings().empty());
  ASSERT_EQ(set->notes().size(), 1u);
  EXPECT_NE(set->notes()[0].find("class 0 at 30, class 1 at 18"), std::string::npos) << set->notes()[0];
  const Batch<uint8_t> batch = fill<uint8_t>(*set, recipe, 0);
  EXPECT_EQ(batch.labels[0], 1);
  EXPECT_EQ(batch.labels[kW], 0);
  EXPECT_EQ(set->weight_in_step(0), 30 + 4 * 18);
}

TEST(Masks, OtherNumbersAreMapped) {
  MaskFolder folder;
  folder.add(0, mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y < 1 ? 100 : y < 2 ? 255 : 7); }));
  json data = folder.data();
  expect_user_error([&] { open_dataset(recipe_of({{"op", "class_loss"}}, 2, true, data, 1), Split::kTraining); },
                    {"masks/0.png", "holds 100", "it holds 7, 100, 255", "\"mask_values\""});
  data["mask_values"] = {100, 7};
  const Recipe recipe = recipe_of({{"op", "class_loss"}}, 2, true, data, 1);
  const Batch<uint8_t> batch = fill<uint8_t>(*open_dataset(recipe, Split::kTraining), recipe, 0);
  EXPECT_EQ(batch.labels[0], 0);
  EXPECT_EQ(batch.labels[kW], 255);
  EXPECT_EQ(batch.labels[3 * kW], 1);
  const auto wrong = [&](const json& values, std::initializer_list<std::string> fragments) {
    data["mask_values"] = values;
    expect_user_error([&] { recipe_of({{"op", "class_loss"}}, 2, true, data, 1); }, fragments);
  };
  wrong({1, 1}, {"mask_values", "once"});
  wrong({1, 2, 3}, {"data.mask_values", "one number for each of the net's 2 classes"});
  wrong({1, 65536}, {"mask_values", "65535"});
}

TEST(Masks, AnotherSizeThanThePictureIsTold) {
  MaskFolder folder;
  const auto open = [&] {
    return open_dataset(recipe_of({{"op", "class_loss"}}, 2, true, folder.data(), 1), Split::kTraining);
  };
  folder.add(0, mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y % 2); }));
  EXPECT_TRUE(open()->warnings().empty());
  std::vector<uint8_t> twice(4 * kH * kW);
  for (size_t i = 0; i < twice.size(); ++i) twice[i] = i % 2;
  folder.add(1, twice, 2 * kH, 2 * kW);
  ASSERT_EQ(open()->warnings().size(), 1u);
  const std::string warning = open()->warnings()[0];
  for (const char* part : {"1 of 2 masks", "masks/1.png is 12 x 8", "images/1.png 6 x 4", "pixel at the middle"})
    EXPECT_NE(warning.find(part), std::string::npos) << warning;
  folder.add(1, std::vector<uint8_t>(kH * kW), kW, kH);
  expect_user_error(open, {"masks/1.png is 4 x 6", "images/1.png 6 x 4", "on its side"});
}

TEST(Masks, HiddenFilesAndCapitalsAreKnown) {
  MaskFolder folder;
  folder.add(0, mask_of([](size_t y, size_t) { return static_cast<uint8_t>(y % 2); }));
  std::filesystem::rename(folder.file("masks/0.png"), folder.file("masks/0.PNG"));
  write_file(folder.file("images/._0.png"), "hidden");
  EXPECT_EQ(open_dataset(recipe_of({{"op", "class_loss"}}, 2, true, folder.data(), 1), Split::kTraining)->size(), 1u);
}

TEST(Masks, DamageIsRefusedInOneLine) {
  MaskFolder folder;
  const Recipe recipe = recipe_of({{"op", "class_loss"}}, 2, true, folder.data());
  const auto refused = [&](std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, fragments);
  };
  refused({"images", "holds no picture"});
  write_picture(folder.file("images/5.png"), 5);
  refused({"images/5.png", "has no mask", "masks/5.png"});
  folder.add(5, std::vector<uint8_t>(kH * kW, 2));
  refused({"masks/5.png", "holds 2", "from 0 to 1", "255"});
  std::filesystem::remove_all(folder.file("images"));
  refused({"images", "cannot be listed", "images and masks"});
}

// ---- tensors ----

TEST(Tensors, TargetsOfMapsStandInPlanes) {
  TemporaryFolder folder;
  const std::string path = folder.file("t");
  std::vector<float> images(2 * kH * kW, 0.5f), targets(2 * 2 * kH * kW);
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<float>(i);
  targets[3] = kNone;
  {
    SafetensorsWriter writer(path);
    writer.declare("images", StoredType::kF32, {2, 1, kH, kW});
    writer.declare("targets", StoredType::kF32, {2, 2, kH, kW});
    writer.write(images.data(), images.size() * sizeof(float));
    writer.write(targets.data(), targets.size() * sizeof(float));
    writer.finish();
  }
  const Recipe recipe =
      recipe_of({{"op", "huber_loss"}}, 2, true, {{"kind", "tensors"}, {"path", path}, {"shuffle", false}}, 2);
  const auto data = open_dataset(recipe, Split::kTraining);
  const Batch<float> batch = fill<float>(*data, recipe, 0);
  for (size_t n = 0; n < 2; ++n) {
    for (size_t i = 0; i < kH * kW; ++i) {
      for (size_t k = 0; k < 2; ++k) {
        const float got = batch.labels[(n * kH * kW + i) * 2 + k], want = static_cast<float>((n * 2 + k) * kH * kW + i);
        EXPECT_TRUE(n == 0 && k == 0 && i == 3 ? std::isnan(got) : got == want) << got << " for " << want;
      }
    }
  }
  EXPECT_EQ(data->labelled_in_step(0), 95u);
  const Recipe vectors = recipe_of({{"op", "mse_loss"}}, 2, false, {{"kind", "tensors"}, {"path", path}});
  expect_user_error([&] { open_dataset(vectors, Split::kTraining); },
                    {path, "\"targets\"", "is F32 [2,2,4,6]", "must be F32 [2,2]"});
  const Recipe maps = recipe_of({{"op", "class_loss"}}, 2, true, {{"kind", "tensors"}, {"path", path}});
  expect_user_error([&] { open_dataset(maps, Split::kTraining); }, {path, "\"labels\""});
}

// ---- synthetic ----

TEST(Synthetic, HasLabelsForEveryLoss) {
  const json data = {{"kind", "synthetic"}};
  for (const char* op : {"mse_loss", "binary_loss"}) {
    const Recipe recipe = recipe_of({{"op", op}}, 5, false, data, 16);
    const auto set = open_dataset(recipe, Split::kTraining);
    std::set<float> values;
    for (const float target : fill<float>(*set, recipe, 0).labels) values.insert(target);
    EXPECT_GE(*values.begin(), 0);
    EXPECT_LE(*values.rbegin(), 1);
    EXPECT_TRUE(op[0] == 'm' ? values.size() > 5 : values == std::set<float>({0, 1}));
    EXPECT_EQ(set->labelled_in_step(0), 80u);
  }
  const Recipe recipe = recipe_of({{"op", "class_loss"}, {"weights", {2, 3, 4}}}, 3, true, data, 4);
  const auto set = open_dataset(recipe, Split::kTraining);
  double weight = 0;
  for (const uint8_t label : fill<uint8_t>(*set, recipe, 0).labels) weight += 2 + label;
  EXPECT_EQ(set->weight_in_step(0), weight);
}

// ---- combinations that are refused ----

TEST(LabelledData, WhatALossCannotHaveIsRefused) {
  const auto refused = [](const json& loss, int outputs, bool map, const json& data,
                          std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe_of(loss, outputs, map, data); }, fragments);
  };
  refused({{"op", "mse_loss"}}, 2, false, {{"kind", "idx"}, {"path", "/x"}}, {"data.kind", "wants numbers", "\"csv\""});
  refused({{"op", "class_loss"}}, 2, true, {{"kind", "image_folder"}, {"path", "/x"}},
          {"data.kind", "a class of each place", "\"mask_folder\""});
  refused({{"op", "class_loss"}}, 2, false, {{"kind", "mask_folder"}, {"path", "/x"}},
          {"data.kind", "a class of each sample", "\"image_folder\"", "\"csv\""});
  refused({{"op", "mse_loss"}}, 2, true, {{"kind", "csv"}, {"path", "/x"}}, {"data.kind", "writes maps"});
  refused({{"op", "class_loss"}}, 2, true, {{"kind", "synthetic"}, {"augment", {{"crop", 2}}}},
          {"data.augment.crop", "leave it out"});
  refused({{"op", "class_loss"}, {"weights", {1, 2}}}, 2, false,
          {{"kind", "image_folder"}, {"path", "/x"}, {"broken", "skip"}}, {"data.broken", "weights"});
  refused({{"op", "class_loss"}, {"weights", {1, 2, 3}}}, 2, false, {{"kind", "synthetic"}},
          {"loss (class_loss)", "weights", "[3]", "must be [2]"});
  refused({{"op", "class_loss"}}, 1, false, {{"kind", "synthetic"}}, {"loss (class_loss)", "1 channels", "at least 2"});
  refused({{"op", "class_loss"}}, 256, true, {{"kind", "synthetic"}},
          {"loss (class_loss)", "256 channels", "at most 255"});
  refused({{"op", "huber_loss"}, {"delta", 0}}, 2, false, {{"kind", "synthetic"}}, {"delta"});
  refused({{"op", "class_loss"}, {"dice", 1.5}}, 2, false, {{"kind", "synthetic"}}, {"dice"});
}

// ---- metrics ----

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  ADD_FAILURE() << "no metric " << name;
  return 0;
}
NetOutputs outputs_of(std::vector<float> numbers, uint32_t columns, const std::vector<float>& targets) {
  NetOutputs outputs{std::move(numbers), targets.size() / columns, columns, DType::kF32,
                     std::vector<unsigned char>(targets.size() * sizeof(float))};
  std::memcpy(outputs.labels.data(), targets.data(), outputs.labels.size());
  return outputs;
}
ModelDescription description_of(ModelDescription::Target target, std::vector<uint32_t> output, int classes = 0) {
  ModelDescription model;
  model.target = target, model.output = std::move(output), model.classes = classes;
  return model;
}

TEST(Metrics, OfNumbersAndLabels) {
  using Target = ModelDescription::Target;
  Metrics distances(description_of(Target::kNumbers, {2}));
  distances.add(outputs_of({1, 5, 2, 9}, 2, {2, 5, 5, kNone}));
  distances.add(outputs_of({0, 0}, 2, {0, -4}));
  EXPECT_DOUBLE_EQ(value_of(distances.values(), "mae"), 8.0 / 5);
  EXPECT_DOUBLE_EQ(value_of(distances.values(), "rmse"), std::sqrt(26.0 / 5));
  Metrics labels(description_of(Target::kLabels, {3}));
  // The first label has one hit, one miss and one false alarm. The second is never set and never
  // predicted. The third is right twice, and once has no label.
  labels.add(outputs_of({1, -1, 2, -1, -1, 2, 1, -1, 0.5f}, 3, {1, 0, 1, 1, 0, 1, 0, 0, kNone}));
  const std::vector<Metric> values = labels.values();
  EXPECT_DOUBLE_EQ(value_of(values, "f1"), (2.0 / 4 + 1) / 2);
  ASSERT_EQ(values[0].each.size(), 3u);
  EXPECT_DOUBLE_EQ(values[0].each[0], 1.0 / 3);
  EXPECT_DOUBLE_EQ(values[0].each[1], 1);
  EXPECT_DOUBLE_EQ(values[0].each[2], 1);
  EXPECT_TRUE(std::isnan(value_of(Metrics(description_of(Target::kNumbers, {2})).values(), "mae")));
}

TEST(Metrics, OfClasses) {
  using Target = ModelDescription::Target;
  Metrics maps(description_of(Target::kClassMap, {2, 2, 4}, 4));
  // Predicted 0 1 1 2; the labels are 0 1 0 none. Classes 0 and 1 each have one pixel in the
  // intersection and two in the union. Class 3 does not occur. Class 2 is predicted only at a pixel
  // without a label.
  maps.add({{9, 0, 0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 0, 9, 0}, 4, 4, DType::kU8, {0, 1, 0, 255}});
  const std::vector<Metric> values = maps.values();
  EXPECT_DOUBLE_EQ(value_of(values, "miou"), 0.5);
  EXPECT_DOUBLE_EQ(values[0].each[0], 0.5);
  EXPECT_DOUBLE_EQ(values[0].each[1], 0.5);
  EXPECT_TRUE(std::isnan(values[0].each[2]) && std::isnan(values[0].each[3]));
  Metrics five(description_of(Target::kClass, {7}, 7));
  NetOutputs outputs{{7, 6, 5, 4, 3, 2, 1, 7, 6, 5, 4, 3, 2, 1}, 2, 7, DType::kI32, std::vector<unsigned char>(8)};
  const int32_t classes[2] = {4, 5};
  std::memcpy(outputs.labels.data(), classes, sizeof classes);
  five.add(outputs);
  EXPECT_DOUBLE_EQ(value_of(five.values(), "top5"), 0.5);
  EXPECT_TRUE(Metrics(description_of(Target::kClass, {5}, 5)).values().empty());
}

// ---- predictions ----

TEST(Predictions, AreWrittenAsOthersReadThem) {
  TemporaryFolder folder;
  const std::vector<float> numbers = {0.5f, -2, 1e-3f, 1.0f / 3};
  write_numbers(Output(folder.file("p.csv"), kPredictions, {}), {"image"}, {{"a,b.png"}, {"c \"d\".png"}}, {"x", "y,z"},
                numbers);
  EXPECT_EQ(read_file(folder.file("p.csv")),
            "image,x,\"y,z\"\n\"a,b.png\",0.5,-2\n\"c \"\"d\"\".png\",0.00100000005,0.333333343\n");
  write_numbers(Output(folder.file("p.npy"), kPredictions, {}), {"image"}, {{"a"}, {"b"}}, {"x", "y"}, numbers);
  const std::string npy = read_file(folder.file("p.npy"));
  EXPECT_EQ(npy.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header = static_cast<unsigned char>(npy[8]) + 256u * static_cast<unsigned char>(npy[9]);
  EXPECT_EQ((10 + header) % 64, 0u);
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
  EXPECT_EQ(npy.substr(10, dictionary.size()), dictionary);
  EXPECT_EQ(npy[10 + header - 1], '\n');
  ASSERT_EQ(npy.size(), 10 + header + 16);
  EXPECT_EQ(std::memcmp(npy.data() + 10 + header, numbers.data(), 16), 0);
}

}  // namespace
}  // namespace reprise::test
