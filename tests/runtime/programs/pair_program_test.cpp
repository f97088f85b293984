// Tests nets that compare pairs, as a user runs them: the log, recall above chance on unseen pairs,
// the written vectors, and the bits of a resumed run.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "tests/runtime/programs/train_program.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr uint32_t kSide = 8, kThings = 72, kSeen = 60;  // things from kSeen on are only evaluated, not trained

// Writes a picture of a thing: a pattern of dark and bright squares of 2 x 2 pixels. The second
// picture of each thing is the negative of the first, so that the net cannot just compare pixels.
void write_picture(const std::string& path, uint32_t thing, bool negative) {
  std::string pixels;
  for (uint32_t place = 0; place < kSide * kSide; ++place) {
    const uint32_t block = place / kSide / 2 * 4 + place % kSide / 2;
    const bool is_bright = ((thing * 2654435761u ^ thing << 7) >> (block + 8) & 1) != 0;
    pixels += static_cast<char>(is_bright != negative ? 230 : 25);
  }
  write_text(path, "P5 8 8 255\n" + pixels);
}
std::string pictures() {
  const std::string folder = build_folder() + "/test-programs/pairs";
  fs::create_directories(folder);
  std::string seen = "first,second\n", unseen = seen;
  for (uint32_t thing = 0; thing < kThings; ++thing) {
    const std::string name = std::to_string(thing);
    write_picture(folder + "/" + name + "a.pgm", thing, false);
    write_picture(folder + "/" + name + "b.pgm", thing, true);
    (thing < kSeen ? seen : unseen) += name + "a.pgm," + name + "b.pgm\n";
  }
  write_text(folder + "/seen.csv", seen);
  write_text(folder + "/unseen.csv", unseen);
  return folder;
}
json recipe() {
  const std::string folder = pictures();
  const json nodes = {
      {{"op", "conv"}, {"name", "conv1"}, {"channels", 16}, {"kernel", 3}, {"pad", 1}, {"bias", true}},
      {{"op", "relu"}, {"name", "relu1"}},
      {{"op", "conv"}, {"name", "conv2"}, {"channels", 8}, {"kernel", 2}, {"stride", 2}, {"bias", true}},
      {{"op", "relu"}, {"name", "relu2"}},
      {{"op", "reshape"}, {"name", "flat"}, {"shape", json::array({128})}},
      {{"op", "linear"}, {"name", "fc"}, {"features", 24}},
      {{"op", "infonce_loss"}, {"name", "loss"}, {"temperature", 0.125}}};
  return {{"model", {{"family", "net"}, {"image", {kSide, kSide, 1}}, {"nodes", nodes}}},
          {"data",
           {{"kind", "csv"},
            {"path", folder + "/seen.csv"},
            {"eval_path", folder + "/unseen.csv"},
            {"mean", 0.5},
            {"std", 0.4}}},
          {"batch", 20},
          {"steps", 300},
          {"evaluate_every", 50},
          {"seed", 3},
          {"optimizer", {{"name", "adamw"}, {"lr", 0.003}}}};
}

using PairProgram = TrainProgram;

TEST_F(PairProgram, FindsPairsItHasNotSeen) {
  const std::string program = train_program("pairs", recipe()), folder = pictures();
  quietly(program, {"--save", at("s"), "--log", at("log.jsonl")});
  std::vector<json> judged;
  for (const json& line : read_log(at("log.jsonl")).lines) {
    if (line.contains("loss")) {
      EXPECT_EQ(line["planned_bytes"], line["measured_bytes"]);
    }
    if (line.contains("recall1")) judged.push_back(line);
  }
  ASSERT_GE(judged.size(), 2u);
  const json last = judged.back();
  std::set<std::string> keys;
  for (const auto& [key, value] : last.items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"step", "eval_loss", "accuracy", "recall1", "recall5", "recall10"}));
  constexpr double kChance = 1.0 / (kThings - kSeen);
  EXPECT_GT(last["recall1"].get<double>(), 6 * kChance) << last;
  EXPECT_LE(last["recall1"], last["recall5"]);
  EXPECT_LE(last["recall5"], last["recall10"]);
  EXPECT_EQ(last["recall1"], last["accuracy"])
      << "all of the twelve are one micro-batch, in which the loss counts the same";
  const json evaluated = json::parse(train(program, {"--resume", at("s"), "--evaluate", "--json", "--quiet"}).out);
  EXPECT_EQ(evaluated["labelled"], kThings - kSeen);
  EXPECT_NEAR(evaluated["recall5"].get<double>(), last["recall5"].get<double>(), 1e-8);

  // The printed vectors must have 24 numbers, and the first vector must not be zero. The last
  // number of the npy file must be the last printed number.
  const ProcessResult result =
      train(program, {"--resume", at("s"), "--predict", folder + "/60a.pgm", folder + "/60b.pgm", folder + "/61a.pgm",
                      "--predict-to", at("v.npy"), "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json said = json::parse(result.out);
  ASSERT_EQ(said.size(), 3u);
  EXPECT_EQ(said[1]["file"], folder + "/60b.pgm");
  ASSERT_EQ(said[2]["vector"].size(), 24u);
  const std::string written = file_text(at("v.npy"));
  float number;
  std::memcpy(&number, written.data() + written.size() - sizeof number, sizeof number);
  EXPECT_EQ(static_cast<double>(number), said[2]["vector"][23].get<double>());
  double squares = 0;
  for (const json& value : said[0]["vector"]) squares += value.get<double>() * value.get<double>();
  EXPECT_GT(squares, 0);
}

TEST_F(PairProgram, ResumesBitForBitUnderAnyPlan) {
  const std::string stored =
                        train_program("pairs-stored", with(recipe(), {{"schedule", "none"}, {"evaluate_every", 1}})),
                    tight =
                        train_program("pairs-tight",
                                      with(recipe(), {{"budget", smallest_budget(recipe())}, {"evaluate_every", 1}}));
  quietly(stored, {"--steps", "6", "--log", at("whole.jsonl"), "--save", at("whole")});
  quietly(tight, {"--steps", "3", "--log", at("log.jsonl"), "--save", at("s")});
  quietly(stored, {"--resume", at("s"), "--steps", "6", "--log", at("log.jsonl"), "--save", at("s"), "--threads", "2"});
  EXPECT_EQ(read_log(at("log.jsonl")).results(), read_log(at("whole.jsonl")).results());
  EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole")));
}

}  // namespace
}  // namespace reprise::test
