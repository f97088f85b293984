// Tests data of pairs of pictures or texts: tables, tensors and synthetic data, and the metrics of
// a net's outputs. A pair whose sides come from two samples still trains, but teaches nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/ops/pair_loss.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/host_sink.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/run/data/images.h"
#include "tools/run/data/unlabelled.h"
#include "tools/run/inference/metrics.h"
#include "tools/run/inference/predictions.h"

namespace reprise::test {
namespace {

using nlohmann::json;

constexpr uint32_t kH = 2, kW = 3, kPixels = kH * kW;
const float kNone = std::nanf("");
const json kContrast = {{"op", "infonce_loss"}}, kCosine = {{"op", "cosine_loss"}},
           kSimilarity = {{"op", "similarity_loss"}};

// Returns a net that writes vectors of two numbers, from pictures of 2 x 3 x 1, or from texts of 4
// tokens if `of_texts`.
json net_of(json loss, bool of_texts) {
  loss["name"] = "loss";
  json nodes = {{{"op", "global_pool"}, {"name", "pool"}}, {{"op", "linear"}, {"name", "fc"}, {"features", 2}}, loss};
  if (of_texts) nodes.insert(nodes.begin(), json({{"op", "embedding"}, {"name", "e"}, {"rows", 9}, {"features", 3}}));
  if (of_texts) nodes[1]["masked"] = true;
  json model = {{"family", "net"}, {"nodes", nodes}};
  of_texts ? model["text"] = {{"length", 4}, {"pad", 1}} : model["image"] = {kH, kW, 1};
  return model;
}
Recipe recipe_of(const json& loss, const json& data, int batch = 2, bool of_texts = false,
                 const json& more = json::object()) {
  json recipe = {{"model", net_of(loss, of_texts)}, {"data", data}, {"batch", batch}, {"seed", 7}};
  recipe.update(more);
  return parse_recipe(recipe.dump(), "pairs.json", "/");
}

struct Batch {
  std::vector<float> images, labels;
};
Batch fill(Dataset& data, const Recipe& recipe, uint64_t step) {
  Batch filled{std::vector<float>(static_cast<size_t>(recipe.batch) * 2 * kPixels),
               std::vector<float>(static_cast<size_t>(recipe.batch))};
  BatchSink sink = host_sink(filled.images.data(), filled.images.size() * sizeof(float), filled.labels.data(),
                             filled.labels.size(), nullptr, nullptr, 0, 1, DType::kF32);
  data.fill(step, 0, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
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
    for (uint8_t n = 0; n < 6; ++n) {
      const std::vector<uint8_t> bytes(kPixels, static_cast<uint8_t>(51 * n));
      write_grey_png(file(std::to_string(n) + ".png"), kH, kW, bytes.data());
    }
  }
  json table(const std::string& text) const {
    write_file(file("t.csv"), text);
    return {{"kind", "csv"}, {"path", file("t.csv")}, {"eval_path", file("t.csv")}, {"shuffle", false}};
  }
};

// Returns for each row of the net's input the number of its picture, which its grey value shows.
std::vector<float> greys(const Batch& batch) {
  std::vector<float> greys;
  for (size_t i = 0; i < batch.images.size(); i += kPixels) greys.push_back(std::round(batch.images[i] * 5));
  return greys;
}

TEST(PairTable, BothPicturesStandTogether) {
  TableFolder folder;
  const Recipe recipe = recipe_of(kContrast, folder.table("a,b\n0.png,3.png\n5.png,1.png\n4.png,2.png\n"));
  const auto training = open_dataset(recipe, Split::kTraining), evaluation = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(training->size(), 3u);
  EXPECT_EQ(training->unread_files(), 6u);
  EXPECT_EQ(training->labelled_in_step(0), 2u);
  const Batch first = fill(*training, recipe, 0), second = fill(*training, recipe, 1),
              last = fill(*evaluation, recipe, 1);
  expect_same_numbers(greys(first), {0, 3, 5, 1});
  expect_same_numbers(first.labels, {1, 1});
  expect_same_numbers(greys(second), {4, 2, 0, 3});
  expect_same_numbers(greys(last), {4, 2, 0, 0});
  expect_same_numbers(last.labels, {1, kNone});
}

// Pairs 0 and 2 have the same first picture, and pairs 1 and 2 the same second picture. The second
// picture of pair 0 is the first of pair 3. Such pairs must not be negatives of each other.
TEST(PairTable, EqualPicturesOfABatchAreNoNegatives) {
  TableFolder folder;
  const Recipe recipe =
      recipe_of(kContrast, folder.table("a,b\n0.png,3.png\n5.png,1.png\n0.png,1.png\n3.png,2.png\n4.png,4.png\n"), 5);
  const auto training = open_dataset(recipe, Split::kTraining);
  ASSERT_EQ(training->notes().size(), 1u);
  EXPECT_NE(training->notes()[0].find("4 of 5 pairs have an input that another pair has"), std::string::npos)
      << training->notes()[0];
  const std::vector<float> targets = fill(*training, recipe, 0).labels;
  const auto left_out = [&](size_t i, size_t j) { return is_no_negative(targets[i], targets[j]); };
  const std::set<std::pair<size_t, size_t>> wanted = {{0, 2}, {2, 0}, {1, 2}, {2, 1}, {3, 0}};
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 5; ++j)
      EXPECT_TRUE(i == j || left_out(i, j) == (wanted.count({i, j}) == 1)) << i << " " << j;
  }
  EXPECT_EQ(training->labelled_in_step(0), 5u);
  const Recipe small = recipe_of(kContrast, folder.table("a,b\n0.png,3.png\n5.png,1.png\n0.png,1.png\n3.png,2.png\n"));
  const auto apart = open_dataset(small, Split::kTraining);
  expect_same_numbers(fill(*apart, small, 0).labels, {1, 1});
  const std::vector<float> met = fill(*apart, small, 1).labels, again = fill(*apart, small, 3).labels;
  EXPECT_FALSE(is_no_negative(met[0], met[1]));
  expect_same_numbers(again, met);
}

TEST(PairTable, ANumberSaysHowAlikeTheyAre) {
  TableFolder folder;
  const Recipe recipe = recipe_of(kCosine, folder.table("a,b,alike\n0.png,3.png,1\n5.png,1.png,-1\n4.png,2.png,\n"), 3);
  const auto training = open_dataset(recipe, Split::kTraining);
  expect_same_numbers(fill(*training, recipe, 0).labels, {1, -1, kNone});
  EXPECT_EQ(training->labelled_in_step(0), 2u);
  EXPECT_TRUE(training->class_names().empty()) << "names are of what a net writes";
}

TEST(PairTable, DamageIsRefusedInOneLine) {
  TableFolder folder;
  const auto refused = [&](const std::string& text, const json& loss, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_dataset(recipe_of(loss, folder.table(text)), Split::kTraining); }, fragments);
  };
  refused("a,b,c\n0.png,1.png,1\n", kContrast,
          {"t.csv, line 2", "3 columns", "a picture's path and a picture's path of the other"});
  refused("a,b\n0.png,1.png\n", kCosine, {"t.csv, line 2", "2 columns", "how alike they are"});
  refused("a,b,c\n0.png,1.png,2\n", kSimilarity, {"line 2", "\"c\" is \"2\"", "from -1 to 1"});
  refused("a,b\n0.png,9.png\n", kContrast, {"line 2", "9.png is no file"});
  refused("a,b\n0.png,1.png\n0.png,\n", kContrast, {"line 3", "\"b\" is empty"});
}

// The sides are flipped independently: over several draws they neither always nor never agree.
TEST(PairTable, SidesAreAugmentedApart) {
  TableFolder folder;
  std::vector<uint8_t> ramp(kPixels);
  for (uint8_t i = 0; i < kPixels; ++i) ramp[i] = static_cast<uint8_t>(40 * (i % kW));
  write_grey_png(folder.file("r.png"), kH, kW, ramp.data());
  json data = folder.table("a,b\nr.png,r.png\n");
  data["augment"] = {{"flip", true}};
  const Recipe recipe = recipe_of(kContrast, data, 16);
  const Batch batch = fill(*open_dataset(recipe, Split::kTraining), recipe, 0);
  size_t alike = 0;
  for (size_t pair = 0; pair < 16; ++pair)
    alike += batch.images[pair * 2 * kPixels] == batch.images[(pair * 2 + 1) * kPixels];
  EXPECT_GT(alike, 2u);
  EXPECT_LT(alike, 14u);
}

// ---- tensors ----

void write_tensors(const std::string& path, StoredType type, const std::vector<uint64_t>& shape, const void* first,
                   const void* second, uint64_t bytes, const std::vector<float>& targets = {}) {
  SafetensorsWriter writer(path);
  writer.declare("first", type, shape);
  writer.declare("second", type, shape);
  if (!targets.empty()) writer.declare("targets", StoredType::kF32, {targets.size()});
  writer.write(first, bytes);
  writer.write(second, bytes);
  if (!targets.empty()) writer.write(targets.data(), targets.size() * sizeof(float));
  writer.finish();
}

TEST(PairTensors, AreFirstSecondAndTargets) {
  TemporaryFolder folder;
  const std::string path = folder.file("t.safetensors");
  std::vector<float> first(3 * kPixels), second(3 * kPixels);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i), second[i] = 100 + static_cast<float>(i);
  write_tensors(path, StoredType::kF32, {3, 1, kH, kW}, first.data(), second.data(), first.size() * sizeof(float),
                {0.5f, kNone, -1});
  const json data = {{"kind", "tensors"}, {"path", path}, {"shuffle", false}};
  const Recipe recipe = recipe_of(kSimilarity, data, 3);
  const auto set = open_dataset(recipe, Split::kTraining);
  const Batch batch = fill(*set, recipe, 0);
  expect_same_numbers(batch.labels, {0.5f, kNone, -1});
  for (size_t pair = 0; pair < 3; ++pair) {
    for (size_t i = 0; i < kPixels; ++i) {
      EXPECT_EQ(batch.images[pair * 2 * kPixels + i], first[pair * kPixels + i]);
      EXPECT_EQ(batch.images[(pair * 2 + 1) * kPixels + i], second[pair * kPixels + i]);
    }
  }
  EXPECT_EQ(set->labelled_in_step(0), 2u);
  const Recipe others = recipe_of(kContrast, data, 3);
  expect_same_numbers(fill(*open_dataset(others, Split::kTraining), others, 0).labels, {1, 1, 1});
  write_tensors(path, StoredType::kF32, {3, 1, kH, kW}, first.data(), second.data(), first.size() * sizeof(float),
                {0.5f, 0, -1.5f});
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, {"\"targets\"", "sample 2", "from -1 to 1"});
  SafetensorsWriter alone(path);
  alone.declare("images", StoredType::kF32, {3, 1, kH, kW});
  alone.write(first.data(), first.size() * sizeof(float));
  alone.finish();
  expect_user_error([&] { open_dataset(recipe, Split::kTraining); }, {"tensor \"first\"", "missing"});
}

// ---- texts ----

struct TextBatch {
  std::vector<int32_t> tokens = std::vector<int32_t>(16), starts = tokens;
  std::vector<float> labels = std::vector<float>(2);
};
TextBatch fill_texts(Dataset& data, uint64_t step) {
  TextBatch filled;
  BatchSink sink =
      host_sink(filled.tokens.data(), 64, filled.labels.data(), 2, filled.starts.data(), nullptr, 0, 8, DType::kF32);
  data.fill(step, 0, sink);
  EXPECT_TRUE(sink.status().ok()) << sink.status().message;
  return filled;
}

TEST(PairTexts, EachHasPaddingOfItsOwn) {
  TemporaryFolder folder;
  const std::string path = folder.file("t.safetensors");
  const std::vector<int64_t> first = {3, 1, 1, 1, 2, 5, 6, 7, 8, 8, 1, 1},
                             second = {4, 4, 4, 1, 1, 1, 1, 1, 2, 3, 1, 1};
  write_tensors(path, StoredType::kI64, {3, 4}, first.data(), second.data(), first.size() * sizeof(int64_t));
  const json data = {{"kind", "tensors"}, {"path", path}, {"eval_path", path}};
  const Recipe recipe = recipe_of(kContrast, data, 2, true);
  const auto set = open_dataset(recipe, Split::kEvaluation);
  EXPECT_EQ(set->size(), 3u);
  const TextBatch batch = fill_texts(*set, 0), last = fill_texts(*set, 1);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{3, 1, 1, 1, 4, 4, 4, 1, 2, 5, 6, 7, 1, 1, 1, 1}));
  EXPECT_EQ(batch.starts, (std::vector<int32_t>{0, 1, 1, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 1, 1, 1}));
  expect_same_numbers(batch.labels, {1, 1});
  EXPECT_EQ(last.tokens, (std::vector<int32_t>{8, 8, 1, 1, 2, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  expect_same_numbers(last.labels, {1, kNone});
}

// Both texts of a record get the tokenizer's special tokens.
TEST(PairTexts, StandInTwoColumnsOfRecords) {
  const TemporaryFolder folder;
  const auto put = [&folder](const std::string& name, const std::string& text) {
    write_file(folder.file(name), text);
    return folder.file(name);
  };
  put("vocab.txt", "[UNK]\n[PAD]\n[CLS]\n[SEP]\na\nb\n##b\nc\nd\n");
  const std::vector<int32_t> tokens = {2, 4, 5, 3, 2, 7, 3, 1, 2, 8, 3, 1, 2, 4, 7, 3};
  const std::string csv = put("pairs.csv", "premise,other\na b,c\nd,a c\n");
  const std::string lines = put("pairs.jsonl", R"({"other": "c", "note": "", "premise": "a b"})"
                                               "\n"
                                               R"({"premise": "d", "other": "a c", "note": ""})"
                                               "\n");
  for (const auto& [path, columns] : {std::pair(csv, json::array()), {lines, json({"premise", "other"})}}) {
    json data = {{"kind", "texts"}, {"path", path}, {"tokenizer", folder.path()}, {"shuffle", false}};
    if (!columns.empty()) data["columns"] = columns;
    const Recipe recipe = recipe_of(kContrast, data, 2, true);
    const TextBatch batch = fill_texts(*open_dataset(recipe, Split::kTraining), 0);
    EXPECT_EQ(batch.tokens, tokens) << path;
    expect_same_numbers(batch.labels, {1, 1});
  }
  const json named = {{"kind", "texts"}, {"path", lines}, {"tokenizer", folder.path()}};
  expect_user_error([&] { open_dataset(recipe_of(kContrast, named, 2, true), Split::kTraining); },
                    {"pairs.jsonl", "has 3 columns", "a text and a text of the other of the pair", "data.columns"});
  json scored = named;
  scored["columns"] = {"premise", "other"};
  expect_user_error([&] { open_dataset(recipe_of(kSimilarity, scored, 2, true), Split::kTraining); },
                    {"has 2 columns", "a text, a text of the other of the pair, and how alike they are"});
  const auto given = open_unlabelled(recipe_of(kContrast, named, 2, true), {put("new.txt", "a b\nc\nd\n")});
  EXPECT_EQ(given->micro_batches(), 1u);
  EXPECT_EQ(fill_texts(*given, 0).tokens, (std::vector<int32_t>{2, 4, 5, 3, 2, 7, 3, 1, 2, 8, 3, 1, 1, 1, 1, 1}));
}

// ---- synthetic data ----

TEST(PairSynthetic, SidesThatAreAlikeShareTheirPattern) {
  for (const json& loss : {kContrast, kCosine, kSimilarity}) {
    const Recipe recipe = recipe_of(loss, {{"kind", "synthetic"}}, 64);
    const Batch batch = fill(*open_dataset(recipe, Split::kTraining), recipe, 0);
    double near = 0, far = 0, nears = 0, fars = 0;
    for (size_t pair = 0; pair < 64; ++pair) {
      double distance = 0;
      for (size_t i = 0; i < kPixels; ++i)
        distance += std::abs(
            static_cast<double>(batch.images[pair * 2 * kPixels + i] - batch.images[(pair * 2 + 1) * kPixels + i]));
      batch.labels[pair] > 0 ? (near += distance, ++nears) : (far += distance, ++fars);
    }
    EXPECT_EQ(fars == 0, loss == kContrast);
    if (fars > 0) {
      EXPECT_LT(near / nears, 0.9 * far / fars) << loss;
    }
  }
  const Recipe recipe = recipe_of(kCosine, {{"kind", "synthetic"}}, 2, true);
  const TextBatch texts = fill_texts(*open_dataset(recipe, Split::kTraining), 0);
  for (const int32_t token : texts.tokens) EXPECT_TRUE(token >= 0 && token < 9) << token;
}

TEST(PairData, WhatPairsCannotHaveIsRefused) {
  const auto refused = [](const json& loss, const json& data, int batch, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { recipe_of(loss, data, batch); }, fragments);
  };
  const json synthetic = {{"kind", "synthetic"}};
  refused(kContrast, {{"kind", "idx"}, {"path", "/x"}}, 2,
          {"data.kind", "wants pairs", "\"tensors\" or \"csv\" or \"synthetic\""});
  refused(kContrast, synthetic, 1, {"batch", "must be 2 at least", "infonce_loss"});
  refused({{"op", "infonce_loss"}, {"temperature", 0}}, synthetic, 2, {"temperature", "0.001"});
  refused({{"op", "cosine_loss"}, {"margin", 1}}, synthetic, 2, {"margin"});
  refused({{"op", "similarity_loss"}, {"margin", 0.5}}, synthetic, 2, {"margin"});
  recipe_of(kCosine, synthetic, 1);
  json map = net_of(kContrast, false);
  map["nodes"].erase(0);  // removes the mean, so the loss reads a map
  expect_user_error(
      [&] {
        parse_recipe(json({{"model", map}, {"data", synthetic}, {"batch", 2}}).dump(), "pairs.json", "/");
      },
      {"loss", "[2B,D]"});
}

// ---- pictures without a pair ----

TEST(PairPictures, EachHasARow) {
  TableFolder folder;
  const Recipe recipe = recipe_of(kContrast, {{"kind", "synthetic"}});
  const std::vector<std::string> files = {folder.file("3.png"), folder.file("1.png"), folder.file("5.png"),
                                          folder.file("2.png"), folder.file("4.png")};
  const auto pictures = open_unlabelled(recipe, files);
  EXPECT_EQ(pictures->micro_batches(), 2u);
  expect_same_numbers(greys(fill(*pictures, recipe, 0)), {3, 1, 5, 2});
  const Batch last = fill(*pictures, recipe, 1);
  expect_same_numbers(greys(last), {4, 0, 0, 0});
  expect_same_numbers(last.labels, {kNone, kNone});
}

// ---- metrics ----

double value_of(const std::vector<Metric>& metrics, const std::string& name) {
  for (const Metric& metric : metrics) {
    if (metric.name == name) return metric.value;
  }
  return -1;
}
NetOutputs outputs_of(std::vector<float> numbers, uint32_t columns, const std::vector<float>& targets) {
  NetOutputs outputs{std::move(numbers), 2 * targets.size(), columns, DType::kF32,
                     std::vector<unsigned char>(targets.size() * sizeof(float))};
  std::memcpy(outputs.labels.data(), targets.data(), outputs.labels.size());
  return outputs;
}
Metrics metrics_of(ModelDescription::Target target) {
  ModelDescription model;
  model.target = target, model.output = {2};
  return Metrics(model);
}

// Returns one pair of vectors on a circle for each target. Pair i begins i sevenths of a full turn
// around the circle. The second vector is `turns` sevenths of a full turn after the first.
NetOutputs circle(double turns, const std::vector<float>& targets) {
  std::vector<float> numbers;
  for (size_t pair = 0; pair < targets.size(); ++pair) {
    for (const double turn : {0.0, turns}) {
      const double angle = 2 * 3.14159265358979 * (static_cast<double>(pair) + turn) / 7;
      numbers.push_back(static_cast<float>(3 * std::cos(angle)));
      numbers.push_back(static_cast<float>(3 * std::sin(angle)));
    }
  }
  return outputs_of(numbers, 2, targets);
}

TEST(PairMetrics, RecallIsOfTheWholeSet) {
  const std::vector<float> all(7, 1.0f);
  Metrics near = metrics_of(ModelDescription::Target::kPair), next = near, far = near;
  near.add(circle(0.2, all));
  next.add(circle(0.7, all));  // the second of one other pair is nearer than a pair's own second
  far.add(circle(3, all));     // the seconds of five other pairs are nearer
  EXPECT_DOUBLE_EQ(value_of(near.values(), "recall1"), 1);
  EXPECT_DOUBLE_EQ(value_of(next.values(), "recall1"), 0);
  EXPECT_DOUBLE_EQ(value_of(next.values(), "recall5"), 1);
  EXPECT_DOUBLE_EQ(value_of(far.values(), "recall5"), 0);
  EXPECT_EQ(value_of(near.values(), "recall10"), -1) << "of seven pairs the second is always among ten";
  // Adds the pairs of `next` again, but in two micro-batches; the second has a row without a pair.
  Metrics split = metrics_of(ModelDescription::Target::kPair);
  const NetOutputs whole = circle(0.7, all);
  split.add(outputs_of({whole.numbers.begin(), whole.numbers.begin() + 16}, 2, std::vector<float>(4, 1.0f)));
  std::vector<float> rest(whole.numbers.begin() + 16, whole.numbers.end());
  rest.insert(rest.end(), {1, 0, 1, 0});
  split.add(outputs_of(rest, 2, {1, 1, 1, kNone}));
  EXPECT_DOUBLE_EQ(value_of(split.values(), "recall1"), 0);
  EXPECT_DOUBLE_EQ(value_of(split.values(), "recall5"), 1);
}

// A net that writes equal vectors for all inputs must not find more pairs than chance.
TEST(PairMetrics, EqualVectorsFindNothing) {
  Metrics collapsed = metrics_of(ModelDescription::Target::kPair);
  std::vector<float> numbers(2 * 2 * 20, 0.5f);
  collapsed.add(outputs_of(numbers, 2, std::vector<float>(20, 1.0f)));
  EXPECT_DOUBLE_EQ(value_of(collapsed.values(), "recall1"), 1.0 / 20);
  EXPECT_DOUBLE_EQ(value_of(collapsed.values(), "recall5"), 5.0 / 20);
  EXPECT_DOUBLE_EQ(value_of(collapsed.values(), "recall10"), 10.0 / 20);
}

TEST(PairMetrics, PairsThatAreApartAreNotAsked) {
  Metrics metrics = metrics_of(ModelDescription::Target::kAlike);
  metrics.add(circle(0.2, {1, -1, 1, -1, 1, -1, 1}));
  EXPECT_DOUBLE_EQ(value_of(metrics.values(), "recall1"), 1);
}

TEST(PairMetrics, OfCosinesBesideTargets) {
  Metrics metrics = metrics_of(ModelDescription::Target::kSimilarity);
  // The cosines of the first three pairs are 1, 0 and -1.
  metrics.add(outputs_of({1, 0, 5, 0, 0, 1, 3, 0, 0, 2, 0, -2, 1, 1, 1, 1}, 2, {0.5f, 0, -1, kNone}));
  EXPECT_NEAR(value_of(metrics.values(), "mae"), 0.5 / 3, 1e-7);
  EXPECT_NEAR(value_of(metrics.values(), "rmse"), std::sqrt(0.25 / 3), 1e-7);
  EXPECT_NEAR(value_of(metrics.values(), "correlation"), 1.5 / std::sqrt(2 * (0.5 * 0.5 + 1 - 0.25 / 3)), 1e-7);
  EXPECT_TRUE(std::isnan(value_of(metrics_of(ModelDescription::Target::kSimilarity).values(), "correlation")));
}

}  // namespace
}  // namespace reprise::test
