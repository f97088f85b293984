// Tests nets whose labels are maps, numbers or several labels per sample, and nets of texts, as a
// user runs them: the log, resumed runs, written predictions, and refusals.
// tests/interfaces/data/labelled_data_test.cpp and judged_training_test.cpp test the parts; this
// test runs the whole program.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "tests/runtime/programs/train_program.h"
#include "tools/run/inference/predictions.h"
#include "tools/run/pictures/picture.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint32_t kSide = 8, kPlaces = kSide * kSide, kPictures = 10, kClasses = 3;

std::string in_programs(const std::string& name) { return build_folder() + "/test-programs/" + name; }

// Returns the class of a pixel. All pixels of a square of 2 x 2 have one class; class 0 is dark,
// class 1 grey, class 2 bright.
uint8_t class_of(uint32_t picture, uint32_t place) {
  const uint32_t y = place / kSide, x = place % kSide;
  return static_cast<uint8_t>((y / 2 * 5 + x / 2 * 3 + picture * (1 + y / 4)) % kClasses);
}
void write_picture(const std::string& path, uint32_t picture) {
  std::string pixels;
  for (uint32_t place = 0; place < kPlaces; ++place) pixels += static_cast<char>(class_of(picture, place) * 120);
  write_text(path, "P5 8 8 255\n" + pixels);
}

json conv(const std::string& name, int channels, int kernel) {
  return {{"op", "conv"},     {"name", name},      {"channels", channels},
          {"kernel", kernel}, {"pad", kernel / 2}, {"bias", true}};
}
json recipe(const std::vector<json>& last, const json& data) {
  std::vector<json> nodes = {conv("stem", 8, 3),
                             {{"op", "relu"}, {"name", "relu0"}},
                             conv("conv1", 8, 3),
                             {{"op", "relu"}, {"name", "relu1"}}};
  nodes.insert(nodes.end(), last.begin(), last.end());
  return {{"model", {{"family", "net"}, {"image", {kSide, kSide, 1}}, {"nodes", nodes}}},
          {"data", data},
          {"batch", 2},
          {"accumulate", 2},
          {"steps", 150},
          {"evaluate_every", 1},
          {"seed", 3},
          {"optimizer", {{"name", "adamw"}, {"lr", 0.02}}}};
}

// ---- maps ----

// Writes pictures and masks. Later pictures have fewer labelled pixels, so the micro-batches of a
// step have different weights.
std::string mask_folder() {
  const std::string folder = in_programs("labelled-masks");
  fs::create_directories(folder + "/images");
  fs::create_directories(folder + "/masks");
  for (uint32_t n = 0; n < kPictures; ++n) {
    write_picture(folder + "/images/" + std::to_string(n) + ".pgm", n);
    std::array<uint8_t, kPlaces> mask;
    for (uint32_t place = 0; place < kPlaces; ++place)
      mask[place] = static_cast<uint8_t>(place < kPlaces - 5 * n ? class_of(n, place) : 255);
    write_grey_png(folder + "/masks/" + std::to_string(n) + ".png", kSide, kSide, mask.data());
  }
  return folder;
}
json map_recipe() {
  const json data = {{"kind", "mask_folder"},
                     {"path", mask_folder()},
                     {"eval_path", mask_folder()},
                     {"augment", {{"flip", true}}}};
  return recipe(
      {conv("last", kClasses, 1),
       {{"op", "class_loss"}, {"name", "loss"}, {"weights", {1, 0.5, 2}}, {"label_smoothing", 0.05}, {"dice", 0.25}}},
      data);
}
std::string map_stored() { return train_program("maps-stored", with(map_recipe(), {{"schedule", "none"}})); }
std::string map_tight() {
  return train_program("maps-tight", with(map_recipe(), {{"budget", smallest_budget(map_recipe())}}));
}

using LabelledProgram = TrainProgram;

std::set<std::string> keys_of(const json& line) {
  std::set<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.insert(key);
  return keys;
}

TEST_F(LabelledProgram, ResumesBitForBitUnderAnyPlan) {
  quietly(map_stored(), {"--steps", "8", "--log", at("whole.jsonl"), "--save", at("whole")});
  const Log whole = read_log(at("whole.jsonl"));
  EXPECT_EQ(keys_of(whole.lines.back()), (std::set<std::string>{"step", "eval_loss", "accuracy", "miou", "ious"}));
  for (const auto& [first, second] : {std::pair{map_tight(), map_stored()}, {map_stored(), map_tight()}}) {
    fs::remove(at("log.jsonl"));
    quietly(first, {"--steps", "3", "--log", at("log.jsonl"), "--save", at("s"), "--overwrite"});
    quietly(first, {"--resume", at("s"), "--steps", "5", "--log", at("log.jsonl")});  // these two steps are not saved
    quietly(second,
            {"--resume", at("s"), "--steps", "8", "--log", at("log.jsonl"), "--save", at("s"), "--threads", "2"});
    EXPECT_EQ(read_log(at("log.jsonl")).results(), whole.results()) << first << " then " << second;
    EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole"))) << first << " then " << second;
  }
}

TEST_F(LabelledProgram, WritesMasks) {
  const std::string program = map_tight(), pictures = mask_folder() + "/images";
  quietly(program, {"--save", at("s"), "--log", at("log.jsonl")});
  const json logged = read_log(at("log.jsonl")).lines.back();
  for (const json& line : read_log(at("log.jsonl")).lines) {
    if (!line.contains("loss")) continue;
    EXPECT_EQ(line["planned_bytes"], line["measured_bytes"]);
  }
  EXPECT_GT(logged["miou"], 0.9);
  EXPECT_EQ(logged["ious"].size(), kClasses);
  const json judged =
      json::parse(train(program, {"--resume", at("s"), "--evaluate", "--per-class", "--json", "--quiet"}).out);
  EXPECT_NEAR(judged["miou"].get<double>(), logged["miou"].get<double>(), 1e-8);
  uint64_t labelled = 0, correct = 0;
  for (const json& entry : judged["classes"])
    labelled += entry["labelled"].get<uint64_t>(), correct += entry["correct"].get<uint64_t>();
  EXPECT_EQ(labelled, judged["labelled"]);
  EXPECT_EQ(correct, judged["correct"]) << "the classes' own count and the loss's";

  write_text(at("broken.jpg"), "no picture");
  const ProcessResult result = train(program, {"--resume", at("s"), "--predict", pictures, at("broken.jpg"),
                                               "--predict-to", at("masks"), "--json", "--quiet"});
  EXPECT_EQ(result.status, 1);
  const json said = json::parse(result.out);
  ASSERT_EQ(said.size(), kPictures + 1);
  EXPECT_TRUE(said[kPictures].contains("error")) << result.out;
  uint32_t right = 0;
  for (uint32_t n = 0; n < kPictures; ++n) {
    EXPECT_EQ(said[n]["written"], at("masks/" + std::to_string(n) + ".png"));
    std::array<uint16_t, kPlaces> mask;
    decode_mask(at("masks/" + std::to_string(n) + ".png"), kSide, kSide, mask.data());
    for (uint32_t place = 0; place < kPlaces; ++place) right += mask[place] == class_of(n, place);
  }
  EXPECT_GT(right, kPictures * kPlaces * 9 / 10);
  EXPECT_EQ(std::distance(fs::directory_iterator(at("masks")), fs::directory_iterator()), kPictures)
      << "of a broken picture there is no mask";
}

TEST_F(LabelledProgram, MasksThatCannotBeWrittenAreRefused) {
  const std::string program = map_stored();
  quietly(program, {"--steps", "1", "--save", at("s")});
  write_picture(at("0.pgm"), 0);
  expect_refusal(program, {"--resume", at("s"), "--predict", at("0.pgm")},
                 {"--predict: the net writes maps", "--predict-to DIR"}, 2);
  expect_refusal(program,
                 {"--resume", at("s"), "--predict", at("0.pgm"), mask_folder() + "/images/0.pgm", "--predict-to",
                  at("m")},
                 {"--predict-to: has the name of", "0.pgm"}, 2);
  expect_refusal(program, {"--resume", at("s"), "--predict", at("0.pgm"), "--predict-to", at("0.pgm/m")},
                 {"0.pgm/m", "--predict-to: cannot be made"});
  expect_refusal(program, {"--steps", "1", "--predict-to", at("m")}, {"--predict-to: needs --predict"}, 2);
  EXPECT_FALSE(fs::exists(at("m")));
}

// A mask with a number that is not a class must end the training before its first step.
// --check-data must name every such mask.
TEST_F(LabelledProgram, MasksWithoutAClassAreNamed) {
  const std::string folder = at("damaged");
  fs::copy(mask_folder(), folder, fs::copy_options::recursive);
  for (const char* name : {"2", "7"}) {
    std::array<uint8_t, kPlaces> mask = {};
    mask[9] = 3;
    write_grey_png(folder + "/masks/" + name + ".png", kSide, kSide, mask.data());
  }
  json damaged = map_recipe();
  damaged["data"]["path"] = damaged["data"]["eval_path"] = folder;
  const std::string program = train_program("maps-damaged", damaged);
  expect_refusal(program, {"--steps", "1", "--save", at("s")}, {"masks/2.png", "holds 3", "from 0 to 2"});
  const ProcessResult checked = train(program, {"--check-data"});
  EXPECT_EQ(checked.status, 1);
  for (const char* name : {"masks/2.png", "masks/7.png"})
    EXPECT_NE(checked.out.find(name), std::string::npos) << checked.out;
  EXPECT_EQ(checked.err.find("skip"), std::string::npos) << checked.err << "which only an image_folder may";
}

// ---- numbers and labels ----

// Writes a table of labels: the brightness of each picture and of its left half. One value is
// missing.
std::string table(const std::string& name, bool is_binary) {
  const std::string folder = in_programs(name);
  fs::create_directories(folder);
  std::string text = "image,all,\"left, half\"\n";
  for (uint32_t n = 0; n < kPictures; ++n) {
    write_picture(folder + "/" + std::to_string(n) + ".pgm", n);
    double sums[2] = {};
    for (uint32_t place = 0; place < kPlaces; ++place)
      sums[0] += class_of(n, place) / 64.0, sums[1] += place % kSide < kSide / 2 ? class_of(n, place) / 32.0 : 0;
    text += std::to_string(n) + ".pgm";
    for (size_t i = 0; i < 2; ++i)
      text += "," + (n == 3 && i == 0 ? "" : is_binary ? std::to_string(sums[i] > 1) : std::to_string(sums[i]));
    text += "\n";
  }
  write_text(folder + "/t.csv", text);
  return folder + "/t.csv";
}
json table_recipe(const std::string& name, const json& loss, bool is_binary) {
  const std::string path = table(name, is_binary);
  return recipe({{{"op", "reshape"}, {"name", "flat"}, {"shape", json::array({8 * kPlaces})}},
                 {{"op", "linear"}, {"name", "fc"}, {"features", 2}},
                 loss},
                {{"kind", "csv"}, {"path", path}, {"eval_path", path}});
}

TEST_F(LabelledProgram, WritesNumbers) {
  const std::string program =
      train_program("numbers",
                    table_recipe("labelled-numbers", {{"op", "huber_loss"}, {"name", "loss"}, {"delta", 0.5}}, false));
  const std::string pictures = in_programs("labelled-numbers");
  quietly(program, {"--save", at("s"), "--log", at("log.jsonl")});
  const json logged = read_log(at("log.jsonl")).lines.back();
  EXPECT_EQ(keys_of(logged), (std::set<std::string>{"step", "eval_loss", "accuracy", "mae", "rmse"}));
  EXPECT_EQ(logged["accuracy"], nullptr);
  EXPECT_LT(logged["mae"], 0.2);
  EXPECT_GE(logged["rmse"], logged["mae"]);
  const json judged = json::parse(train(program, {"--resume", at("s"), "--evaluate", "--json", "--quiet"}).out);
  EXPECT_EQ(judged["labelled"], 2 * kPictures - 1);
  EXPECT_NEAR(judged["mae"].get<double>(), logged["mae"].get<double>(), 1e-8);
  const ProcessResult text = train(program, {"--resume", at("s"), "--evaluate"});
  EXPECT_NE(text.out.find(", mae "), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("accuracy"), std::string::npos) << text.out;

  const ProcessResult result =
      train(program, {"--resume", at("s"), "--predict", pictures, "--predict-to", at("p.csv"), "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json said = json::parse(result.out);
  ASSERT_EQ(said.size(), kPictures);
  EXPECT_EQ(said[0]["values"][1]["name"], "left, half") << "the table's own name, from the snapshot";
  const std::string written = file_text(at("p.csv"));
  EXPECT_EQ(written.substr(0, written.find('\n')), "image,all,\"left, half\"");
  char first[64];
  std::snprintf(first, sizeof first, "%.9g,%.9g\n", said[0]["values"][0]["value"].get<double>(),
                said[0]["values"][1]["value"].get<double>());
  EXPECT_NE(written.find(pictures + "/0.pgm," + first), std::string::npos) << written;
  EXPECT_EQ(train(program, {"--resume", at("s"), "--predict", pictures, "--predict-to", at("p.npy"), "--quiet"}).status,
            0);
  const std::string numbers = file_text(at("p.npy"));
  ASSERT_GT(numbers.size(), kPictures * 2 * sizeof(float));
  float last;
  std::memcpy(&last, numbers.data() + numbers.size() - sizeof last, sizeof last);
  EXPECT_EQ(static_cast<double>(last), said.back()["values"][1]["value"].get<double>());

  expect_refusal(program, {"--resume", at("s"), "--predict", pictures, "--predict-to", at("p.txt")},
                 {"p.txt", "must end in .csv or .npy"}, 2);
  expect_refusal(program, {"--resume", at("s"), "--evaluate", "--per-class"}, {"--per-class", "classes"}, 2);
}

TEST_F(LabelledProgram, WritesTheProbabilitiesOfLabels) {
  const std::string program =
      train_program("labels",
                    table_recipe("labelled-labels",
                                 {{"op", "binary_loss"}, {"name", "loss"}, {"positive_weights", {1, 2}}}, true));
  const std::string pictures = in_programs("labelled-labels");
  quietly(program, {"--save", at("s"), "--log", at("log.jsonl")});
  const json logged = read_log(at("log.jsonl")).lines.back();
  EXPECT_EQ(keys_of(logged), (std::set<std::string>{"step", "eval_loss", "accuracy", "f1", "label_accuracies"}));
  EXPECT_EQ(logged["label_accuracies"].size(), 2u);
  EXPECT_GT(logged["f1"], 0.9);
  const ProcessResult result = train(program, {"--resume", at("s"), "--predict", pictures, "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const json& picture : json::parse(result.out)) {
    for (const json& value : picture["values"])
      EXPECT_TRUE(value["probability"] >= 0 && value["probability"] <= 1) << value;
  }
}

// ---- texts ----

// One word of a sentence decides its class. BERT's vocab.txt contains the word itself, or only
// pieces of it.
const char* const kClues[] = {"sparrow", "Herring", "OAK"};
const char* const kNames[] = {"bird", "fish", "tree"};
std::string sentence(uint32_t n) {
  return std::string(n % 2 == 0 ? "Look, a" : "There is the") + " " + kClues[n % kClasses] +
         (n % 5 < 3 ? "!" : " by the sea.");
}

std::string text_folder() {
  const std::string folder = in_programs("labelled-texts");
  fs::create_directories(folder);
  write_text(folder + "/vocab.txt",
             "[PAD]\n[UNK]\n[CLS]\n[SEP]\nlook\n,\na\nthere\nis\nthe\nspar\n##row\nherring\no\n##ak\n!\nby\nsea\n.\n");
  std::string table = "what,text\n";
  for (uint32_t n = 0; n < 60; ++n) table += std::string(kNames[n % kClasses]) + ",\"" + sentence(n) + "\"\n";
  write_text(folder + "/texts.csv", table);
  return folder;
}

TEST_F(LabelledProgram, TellsTextsApart) {
  const std::string folder = text_folder();
  const json texts = {{"model",
                       {{"family", "net"},
                        {"text", {{"length", 12}, {"pad", 0}}},
                        {"nodes",
                         {{{"op", "embedding"}, {"name", "words"}, {"rows", 19}, {"features", 8}},
                          {{"op", "global_pool"}, {"name", "mean"}, {"masked", true}},
                          {{"op", "loss_head"}, {"name", "head"}, {"classes", kClasses}}}}}},
                      {"data",
                       {{"kind", "texts"}, {"path", folder + "/texts.csv"}, {"tokenizer", folder}, {"held_out", 0.2}}},
                      {"batch", 4},
                      {"steps", 150},
                      {"evaluate_every", 150},
                      {"seed", 3},
                      {"optimizer", {{"name", "adamw"}, {"lr", 0.05}}}};
  const std::string program = train_program("texts", texts);
  quietly(program, {"--save", at("s"), "--log", at("log.jsonl")});
  EXPECT_EQ(read_log(at("log.jsonl")).lines.back()["accuracy"], 1.0);
  const json judged =
      json::parse(train(program, {"--resume", at("s"), "--evaluate", "--per-class", "--json", "--quiet"}).out);
  EXPECT_EQ(judged["labelled"], 12);
  EXPECT_EQ(judged["classes"][2]["name"], "tree");

  write_text(at("new.txt"), "A HERRING, look!\n\n\xff\nby the sea is a spärrow\n");
  const ProcessResult result = train(program, {"--resume", at("s"), "--predict", at("new.txt"), folder + "/texts.csv",
                                               "--predict-to", at("p.csv"), "--json", "--quiet"});
  EXPECT_EQ(result.status, 1) << "a line is no UTF-8";
  const json said = json::parse(result.out);
  ASSERT_EQ(said.size(), 63u);
  EXPECT_EQ(said[0]["file"], at("new.txt"));
  EXPECT_EQ(said[0]["text"], "A HERRING, look!");
  EXPECT_EQ(said[0]["top"][0]["name"], "fish");
  EXPECT_EQ(said[1]["line"], 3);
  EXPECT_TRUE(said[1].contains("error") && !said[1].contains("text")) << said[1];
  EXPECT_EQ(said[2]["top"][0]["name"], "bird");
  for (uint32_t n = 0; n < 60; ++n) EXPECT_EQ(said[3 + n]["top"][0]["name"], kNames[n % kClasses]) << n;
  const std::string written = file_text(at("p.csv"));
  EXPECT_EQ(written.substr(0, written.find('\n')), "text,bird,fish,tree");
  EXPECT_NE(written.find("\n\"A HERRING, look!\",0."), std::string::npos) << written.substr(0, 200);
  const ProcessResult lines = train(program, {"--resume", at("s"), "--predict", folder + "/texts.csv"});
  EXPECT_EQ(lines.out.find(folder + "/texts.csv, line 2: bird "), 0u) << lines.out.substr(0, 200);
  expect_refusal(program, {"--resume", at("s"), "--predict", at("none.txt")},
                 {"none.txt", "cannot be opened", "No such file"});

  write_text(folder + "/vocab.txt", file_text(folder + "/vocab.txt") + "ship\n");
  expect_refusal(program, {"--resume", at("s"), "--predict", at("new.txt")},
                 {"training.json", "tokenizer of " + folder, "not the one that it was trained with"});
}

// ---- two texts in one row ----

// A row has two texts with one word each, and its label is whether the two words are equal. Each
// pair of words occurs with several other words around it.
constexpr uint32_t kWords = 6, kRows = 360;
std::string word(uint32_t n) { return std::string(1, static_cast<char>('a' + n)); }
struct WordPair {
  uint32_t first, second;
  bool match() const { return first == second; }
  std::string text(uint32_t n) const {
    return std::string(n % 3 == 0 ? "the " : "") + word(first) + (n % 2 == 0 ? " ." : "");
  }
  std::string text_pair(uint32_t n) const { return std::string(n % 5 < 2 ? "is the " : "is ") + word(second); }
};
WordPair pair_of(uint32_t n) {
  return {n % kWords, n / kWords % 2 == 0 ? n % kWords : (n % kWords + 1 + n / 12 % (kWords - 1)) % kWords};
}

std::string row_folder() {
  const std::string folder = in_programs("labelled-rows");
  fs::create_directories(folder);
  std::string vocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\nis\n.\n", table = "sentence1,sentence2,label\n";
  for (uint32_t n = 0; n < kWords; ++n) vocabulary += word(n) + "\n";
  for (uint32_t n = 0; n < kRows; ++n) {
    const WordPair pair = pair_of(n);
    table += pair.text(n) + "," + pair.text_pair(n) + "," + (pair.match() ? "same" : "other") + "\n";
  }
  write_text(folder + "/vocab.txt", vocabulary);
  write_text(folder + "/rows.csv", table);
  return folder;
}

// Returns a recipe of a BERT with one block: tables of tokens, types and positions, then attention,
// then two layers.
json row_recipe(const std::string& folder) {
  const auto named = [](const char* op, const char* name, json more) {
    return more.update({{"op", op}, {"name", name}}), more;
  };
  const json nodes = {named("learned", "positions", {{"shape", {12, 24}}}),
                      named("embedding", "words",
                            {{"rows", 13}, {"features", 24}, {"inputs", {"tokens", "positions"}}}),
                      named("embedding", "kinds", {{"rows", 2}, {"features", 24}, {"inputs", {"types"}}}),
                      named("add", "sum", {{"inputs", {"words", "kinds"}}}),
                      named("layer_norm", "norm0", {{"inputs", {"sum"}}}),
                      named("linear", "qkv", {{"features", 72}}),
                      named("attention", "attention", {{"heads", 2}, {"causal", false}, {"masked", true}}),
                      named("linear", "out", {{"features", 24}}),
                      named("add", "half", {{"inputs", {"norm0", "out"}}}),
                      named("layer_norm", "norm1", json::object()),
                      named("linear", "fc1", {{"features", 48}}),
                      named("gelu", "gelu", json::object()),
                      named("linear", "fc2", {{"features", 24}}),
                      named("add", "block", {{"inputs", {"norm1", "fc2"}}}),
                      named("layer_norm", "norm2", json::object()),
                      named("global_pool", "mean", {{"masked", true}}),
                      named("loss_head", "head", {{"classes", 2}})};
  return {{"model", {{"family", "net"}, {"text", {{"length", 12}, {"pad", 0}}}, {"nodes", nodes}}},
          {"data",
           {{"kind", "texts"},
            {"path", folder + "/rows.csv"},
            {"tokenizer", folder},
            {"columns", {"sentence1", "sentence2", "label"}},
            {"held_out", 0.2}}},
          {"batch", 16},
          {"steps", 300},
          {"evaluate_every", 300},
          {"seed", 3},
          {"optimizer", {{"name", "adamw"}, {"lr", 0.005}}}};
}

TEST_F(LabelledProgram, TellsWhetherTwoTextsMatch) {
  const std::string folder = row_folder();
  const json recipe = row_recipe(folder);
  const std::string stored = train_program("rows-stored", with(recipe, {{"schedule", "none"}})),
                    tight = train_program("rows-tight", with(recipe, {{"budget", smallest_budget(recipe)}}));
  quietly(stored, {"--save", at("s"), "--log", at("log.jsonl")});
  EXPECT_GE(read_log(at("log.jsonl")).lines.back()["accuracy"], 0.95) << "half of them match";
  quietly(tight, {"--save", at("t"), "--log", at("tight.jsonl")});
  EXPECT_EQ(read_log(at("tight.jsonl")).results(), read_log(at("log.jsonl")).results());
  EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("t")));

  write_text(at("new.csv"), "sentence1,sentence2\nthe b,is b\n\"c .\",is the f\n");
  const ProcessResult result = train(stored, {"--resume", at("s"), "--predict", at("new.csv"), "--predict-to",
                                              at("p.csv"), "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json said = json::parse(result.out);
  EXPECT_EQ(said[0]["text"], "the b");
  EXPECT_EQ(said[0]["text_pair"], "is b");
  EXPECT_EQ(said[0]["top"][0]["name"], "same");
  EXPECT_EQ(said[1]["top"][0]["name"], "other");
  EXPECT_EQ(file_text(at("p.csv")).find("text,text_pair,other,same\nthe b,is b,"), 0u) << file_text(at("p.csv"));
}

}  // namespace
}  // namespace reprise::test
