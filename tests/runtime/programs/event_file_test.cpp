// Tests the files that a training writes for TensorBoard. Their numbers must equal those of the
// log. The decoder of records, checksums and protobuf's wire format in this file must not share
// code with the writer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>

#include "tests/runtime/programs/train_program.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const json kRecipe = json::parse(
    R"({"model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 4,
    "image": [8, 8, 1]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 6, "evaluate_every": 3, "seed": 5, "schedule": "none"})");

// Returns the masked CRC-32C of TensorFlow's records, computed bit by bit.
uint32_t masked_sum(const std::string& data) {
  uint32_t crc = 0xffffffffu;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  crc ^= 0xffffffffu;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// Returns the fields of a protobuf message: for each its number, and its value as bytes or text.
std::vector<std::pair<uint64_t, std::string>> message_fields(const std::string& message) {
  std::vector<std::pair<uint64_t, std::string>> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      number |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return number;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    uint64_t bytes = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
    if ((key & 7) == 0) {
      fields.emplace_back(key >> 3, std::to_string(varint()));
      continue;
    }
    if ((key & 7) == 2) bytes = varint();
    fields.emplace_back(key >> 3, message.substr(at, bytes));
    at += bytes;
  }
  EXPECT_EQ(at, message.size());
  return fields;
}

struct Scalars {
  std::map<std::string, std::map<uint64_t, float>> by_tag;
  std::string version;
  uint64_t started_at = 0;  // step of the record with which the session begins; 0 if the run is not resumed
};

Scalars scalars_of(const std::string& path) {
  const std::string text = file_text(path);
  Scalars scalars;
  const auto number = [&](size_t from, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<unsigned char>(text.at(from + i))} << (8 * i);
    return value;
  };
  for (size_t at = 0; at < text.size();) {
    const uint64_t bytes = number(at, 8);
    EXPECT_EQ(number(at + 8, 4), masked_sum(text.substr(at, 8)));
    const std::string event = text.substr(at + 12, bytes);
    EXPECT_EQ(number(at + 12 + bytes, 4), masked_sum(event));
    at += bytes + 16;
    uint64_t step = 0;
    for (const auto& [field, value] : message_fields(event)) {
      if (field == 2) step = std::stoull(value);
      if (field == 3) scalars.version = value;
      if (field == 7) {
        scalars.started_at = step;
        EXPECT_EQ(message_fields(value), (std::vector<std::pair<uint64_t, std::string>>{{1, "1"}}))
            << "a session that starts";
      }
      if (field == 1) {
        double seconds = 0;
        std::memcpy(&seconds, value.data(), 8);
        EXPECT_NEAR(seconds, static_cast<double>(std::time(nullptr)), 600);
      }
      if (field != 5) continue;
      for (const auto& [one, summary] : message_fields(value)) {
        const auto parts = message_fields(summary);
        EXPECT_EQ(parts.at(0).first * 10 + parts.at(1).first, 12u);
        std::memcpy(&scalars.by_tag[parts[0].second][step], parts[1].second.data(), 4);
      }
    }
  }
  return scalars;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST_F(TrainProgram, EventFilesSayWhatTheLogSays) {
  const std::string program = train_program("resnet-events", kRecipe);
  quietly(program, {"--steps", "4", "--tensorboard", at("runs/a"), "--log", at("log.jsonl"), "--save", at("s")});
  quietly(program, {"--resume", at("s"), "--steps", "6", "--tensorboard", at("runs/a"), "--log", at("log.jsonl")});
  const std::vector<std::string> files = files_in(at("runs/a"));
  ASSERT_EQ(files.size(), 2u) << "each run has a file of its own";
  Scalars both;
  for (const std::string& file : files) {
    EXPECT_NE(file.find("/events.out.tfevents."), std::string::npos) << file;
    const Scalars scalars = scalars_of(file);
    EXPECT_EQ(scalars.version, "brain.Event:2");
    EXPECT_EQ(scalars.started_at, file == files[0] ? 0u : 5u);
    for (const auto& [tag, steps] : scalars.by_tag) both.by_tag[tag].insert(steps.begin(), steps.end());
  }
  const std::pair<const char*, const char*> tags[] = {{"train/loss", "loss"},
                                                      {"train/grad_norm", "grad_norm"},
                                                      {"train/learning_rate", "lr"},
                                                      {"train/step_seconds", "seconds"},
                                                      {"evaluation/loss", "eval_loss"},
                                                      {"evaluation/accuracy", "accuracy"}};
  for (const auto& [tag, key] : tags) {
    std::map<uint64_t, float> logged;
    for (const json& line : read_log(at("log.jsonl")).lines) {
      if (line.contains(key)) logged[line["step"]] = line[key].get<float>();
    }
    ASSERT_FALSE(logged.empty()) << tag;
    ASSERT_EQ(both.by_tag[tag].size(), logged.size()) << tag;
    for (const auto& [step, value] : logged)
      EXPECT_NEAR(both.by_tag[tag][step], value, std::abs(value) * 1e-6 + 1e-6) << tag << " " << step;
  }
  EXPECT_EQ(both.by_tag.size(), std::size(tags));
  write_text(at("file"), "");
  expect_refusal(program, {"--tensorboard", at("file")}, {at("file"), "--tensorboard", "cannot be made"});
  expect_refusal(program, {"--save", at("s"), "--tensorboard", at("s")}, {"--tensorboard", "beside"}, 2);
  expect_refusal(program, {"--resume", at("s"), "--evaluate", "--tensorboard", at("t")}, {"--tensorboard", "no effect"},
                 2);
}

}  // namespace
}  // namespace reprise::test
