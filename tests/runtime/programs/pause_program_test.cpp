// Tests a training that shares its machine with other work, as a user runs it. A control file or
// Ctrl-Z pauses it between two rows. It saves at intervals of time, and resumes after a power cut.
// The bits must not change. This test runs programs and must not link the trainer.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/runtime/programs/train_program.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Returns a program whose step takes most of a second on one thread and has many rows. So the tests
// notice if a pause waits for the end of the step.
std::string program() {
  return train_program(
      "pause-gpt",
      json::parse(
          R"({"name": "pause-gpt", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 128, "n_embd": 128, "n_layer": 8, "n_head": 2},
    "data": {"kind": "synthetic"}, "batch": 8, "accumulate": 2, "steps": 4, "seed": 9, "schedule": "sqrt", "optimizer": {"name": "adamw", "lr": 0.003}})"));
}

// Returns a field of /proc/PID/stat ("state", "utime", ...). `number` counts from 1 as in proc(5).
std::string field_of(pid_t process, int number) {
  const std::string text = file_text("/proc/" + std::to_string(process) + "/stat");
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string field;
  for (int n = 2; n < number && fields >> field; ++n) {
  }
  return field;
}
char state_of(pid_t process) {
  const std::string state = field_of(process, 3);
  return state.empty() ? '?' : state[0];
}
uint64_t ticks_of(pid_t process) { return std::stoull(field_of(process, 14)) + std::stoull(field_of(process, 15)); }

class Pause : public TrainProgram {
 protected:
  void SetUp() override {
    if (!expected_.empty()) return;
    quietly(program(), {"--log", at("alone.jsonl"), "--save", at("alone")});
    expected_ = read_log(at("alone.jsonl")).results();
    expected_tensors_ = snapshot_tensors(at("alone"));
  }
  void expect_the_same_training() const {
    EXPECT_EQ(read_log(at("log.jsonl")).results(), expected_);
    EXPECT_TRUE(snapshot_tensors(at("s")) == expected_tensors_) << "weights and moments differ";
  }
  Arguments arguments(const Arguments& more = {}) const {
    Arguments all = {program(), "--log", at("log.jsonl"), "--save", at("s")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  size_t steps_done() const { return fs::exists(at("log.jsonl")) ? read_log(at("log.jsonl")).lines.size() : 0; }
  // Requires that the process computes nothing and finishes no step for 0.4 s.
  void expect_idle(pid_t process) const {
    const uint64_t before = ticks_of(process), steps = steps_done();
    sleep_seconds(0.4);
    EXPECT_LE(ticks_of(process) - before, 4u) << "of 1/100 s";
    EXPECT_EQ(steps_done(), steps);
  }

  static std::vector<std::string> expected_;
  static std::string expected_tensors_;
};
std::vector<std::string> Pause::expected_;
std::string Pause::expected_tensors_;

TEST_F(Pause, AControlFilePausesBetweenRows) {
  const std::string control = at("control");
  Process running(arguments({"--control", control}));
  for (const char* then : {"go\n", "", "removed"}) {
    const size_t steps = steps_done();
    ASSERT_TRUE(await([&] { return steps_done() > steps; })) << running.err_so_far();
    const std::string said = running.err_so_far();
    write_text(control, "pause\n");
    ASSERT_TRUE(await([&] {
      return running.err_so_far().rfind("pause: " + control + " says \"pause\"; step ") + 1 > said.size();
    })) << running.err_so_far();
    EXPECT_EQ(steps_done(), steps + 1) << "within the step, not at its end";
    expect_idle(running.id());
    then == std::string("removed") ? (void)fs::remove(control) : write_text(control, then);
    ASSERT_TRUE(await([&] { return running.err_so_far().rfind("pause: over after ") + 1 > said.size(); }))
        << running.err_so_far();
  }
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err.find("warning: "), std::string::npos) << result.err;
  expect_the_same_training();
}

TEST_F(Pause, WhatTheFileSaysWhenTheRunBeginsHolds) {
  write_text(at("control"), "pause\n");
  Process running(arguments({"--control", at("control")}));
  ASSERT_TRUE(await([&] { return running.err_so_far().find("; step 1 waits") != std::string::npos; }))
      << running.err_so_far();
  expect_idle(running.id());
  write_text(at("control"), "budget 1GiB\n");
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("it goes on in the plan of "), std::string::npos)
      << "of a program with one plan there is no other: " << result.err;
  expect_the_same_training();
}

// Returns the resident bytes of the arena: the maximum over all mappings of at least `bytes` bytes.
// No other mapping is so large.
uint64_t resident_of_arena(pid_t process, uint64_t bytes) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/smaps");
  uint64_t size = 0, resident = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind("Size:", 0) == 0) size = std::stoull(line.substr(5)) << 10;
    if (line.rfind("Rss:", 0) == 0 && size >= bytes)
      resident = std::max<uint64_t>(resident, std::stoull(line.substr(4)) << 10);
  }
  return resident;
}

// If there is too little memory, this must be reported before the first step, not hours later. So
// all memory must be allocated by then.
TEST_F(Pause, AllMemoryIsTakenBeforeTheFirstStep) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers have larger mappings than the arena";
#endif
  const uint64_t arena = json::parse(file_text(fs::path(program()).parent_path() / "manifest.json"))["planned_bytes"];
  ASSERT_GT(arena, uint64_t{10} << 20);
  write_text(at("control"), "pause\n");
  Process running(arguments({"--control", at("control")}));
  ASSERT_TRUE(await([&] { return running.err_so_far().find("; step 1 waits") != std::string::npos; }))
      << running.err_so_far();
  EXPECT_GE(resident_of_arena(running.id(), arena), arena);
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().status, 0);
}

// The seconds of a step in the log must not include a pause.
TEST_F(Pause, APauseIsNoPartOfAStepsTime) {
  Process running(arguments({"--control", at("control"), "--quiet"}));
  ASSERT_TRUE(await([&] { return steps_done() >= 1; }));
  write_text(at("control"), "pause\n");
  // Pauses for longer than a step may take, by the comparison below.
  sleep_seconds(2 + 4 * read_log(at("log.jsonl")).lines[0]["seconds"].get<double>());
  write_text(at("control"), "go\n");
  EXPECT_EQ(running.wait().status, 0);
  const std::vector<json> lines = read_log(at("log.jsonl")).lines;
  for (const json& line : lines) {
    EXPECT_LT(line["seconds"].get<double>(), 1.5 + 4 * lines[0]["seconds"].get<double>()) << line;
  }
}

TEST_F(Pause, CtrlZStopsBetweenRowsAndFgGoesOn) {
  Process running(arguments());
  ASSERT_TRUE(await([&] { return steps_done() >= 1; }));
  for (int n = 0; n < 2; ++n) {
    running.signal(SIGTSTP);
    ASSERT_TRUE(await([&] { return state_of(running.id()) == 'T'; })) << running.err_so_far();
    expect_idle(running.id());
    running.signal(SIGCONT);
    ASSERT_TRUE(await([&] { return state_of(running.id()) != 'T'; }));
    sleep_seconds(0.1);
  }
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("pause: SIGTSTP; step "), std::string::npos) << result.err;
  expect_the_same_training();
}

TEST_F(Pause, WhoeverEndsAPausedTrainingFindsItSaved) {
  const std::string control = at("control");
  Process running(arguments({"--control", control}));
  ASSERT_TRUE(await([&] { return steps_done() >= 1; }));
  write_text(control, "pause\n");
  ASSERT_TRUE(await([&] { return running.err_so_far().find("pause: ") != std::string::npos; }));
  running.signal(SIGTERM);
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(saved_step(at("s")), steps_done()) << "the running step was ended";
  fs::remove(control);
  quietly(program(), {"--log", at("log.jsonl"), "--save", at("s"), "--continue"});
  expect_the_same_training();
}

// Starts the same command again after each kill, as a board does when its power returns. Each run
// must resume from the last snapshot, which is saved once a second.
TEST_F(Pause, ATrainingWhosePowerIsCutGoesOnByItself) {
  const auto again = [&](uint64_t steps) {
    return arguments({"--continue", "--save-every", "1s", "--steps", std::to_string(steps), "--quiet"});
  };
  uint64_t saved = 0;
  for (int cut = 0; cut < 2; ++cut) {
    Process running(again(1000000));
    ASSERT_TRUE(await([&] { return fs::exists(at("s/training.json")) && saved_step(at("s")) > saved; }))
        << running.err_so_far();
    running.signal(SIGKILL);
    EXPECT_EQ(running.wait().status, 128 + SIGKILL);
    saved = saved_step(at("s"));
  }
  EXPECT_EQ(Process(again(saved + 1)).wait().status, 0);
  quietly(program(), {"--steps", std::to_string(saved + 1), "--log", at("whole.jsonl"), "--save", at("whole")});
  EXPECT_EQ(read_log(at("log.jsonl")).results(), read_log(at("whole.jsonl")).results());
  EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole"))) << "weights and moments differ";
}

TEST_F(Pause, WrongOptionsAreRefused) {
  const std::pair<Arguments, Arguments> cases[] = {
      {{"--save", at("s"), "--save-every", "0"}, {"--save-every", "10min"}},
      {{"--save", at("s"), "--save-every", "3 parsecs"}, {"--save-every", "3 parsecs"}},
      {{"--save", at("s"), "--save-every", "-1min"}, {"--save-every"}},
      {{"--save", at("s"), "--save-every", "12345678901234567890s"}, {"--save-every"}},
      {{"--continue"}, {"--continue", "--save"}},
      {{"--continue", "--save", at("s"), "--resume", at("s")}, {"--continue"}},
      {{"--check-data", "--continue"}, {"--continue", "no effect"}}};
  for (const auto& [wrong, fragments] : cases) expect_refusal(program(), wrong, fragments, 2);
}

}  // namespace
}  // namespace reprise::test
