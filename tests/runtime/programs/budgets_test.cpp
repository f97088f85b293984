// Tests a program with several budgets, as a user runs it. A signal, a control file or memory
// pressure makes it continue in another plan. It then returns memory to the system or allocates it,
// and must train with the same bits. This test runs programs and must not link the trainer.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "tests/runtime/programs/train_program.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json gpt() {
  return json::parse(
      R"({"name": "budgets-gpt", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 64, "n_embd": 32, "n_layer": 4, "n_head": 2},
    "data": {"kind": "synthetic"}, "batch": 16, "accumulate": 2, "steps": 40, "clip_norm": 1.0, "seed": 9, "optimizer": {"name": "adamw", "lr": 0.003}})");
}

constexpr uint64_t kLarge = uint64_t{1} << 30;
uint64_t small_budget() {
  static const uint64_t bytes = smallest_budget(gpt());
  return bytes;
}
std::string program() { return train_program("budgets-gpt", with(gpt(), {{"budgets", {kLarge, small_budget()}}})); }
std::string single_program() {
  return train_program("budgets-single", with(gpt(), {{"name", "budgets-gpt"}, {"budget", small_budget()}}));
}

json manifest() { return json::parse(file_text(fs::path(program()).parent_path() / "manifest.json")); }

// Returns the bytes in a field, such as "Rss:   40804 kB", of a file in the /proc folder of the
// process.
uint64_t process_field(pid_t process, const char* name, const std::string& field) {
  std::ifstream file("/proc/" + std::to_string(process) + "/" + name);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(field, 0) == 0) return std::stoull(line.substr(field.size())) * 1024;
  }
  return 0;
}
uint64_t resident_bytes(pid_t process) { return process_field(process, "smaps_rollup", "Rss:"); }
uint64_t data_bytes(pid_t process) { return process_field(process, "status", "VmData:"); }

// Returns the budgets in which the steps ran, in order. Steps in a row with the same budget count
// once.
std::vector<uint64_t> turns_of(const Log& log) {
  std::vector<uint64_t> turns;
  for (const json& line : log.lines) {
    if (line.contains("loss") && (turns.empty() || turns.back() != line["budget_bytes"]))
      turns.push_back(line["budget_bytes"]);
  }
  return turns;
}

class Budgets : public TrainProgram {
 protected:
  // Once, trains all steps in one plan; the tests compare with this run.
  void SetUp() override {
    if (expected_.empty()) {
      quietly(single_program(), {"--log", at("alone.jsonl"), "--save", at("alone")});
      expected_ = read_log(at("alone.jsonl")).results();
      expected_tensors_ = snapshot_tensors(at("alone"));
    }
  }

  Arguments arguments(const Arguments& more = {}) const {
    Arguments all = {program(), "--log", at("log.jsonl"), "--save", at("s")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Waits until `wanted` is true for the last complete line of the log. Returns false after a time
  // limit.
  bool await(const std::function<bool(const json&)>& wanted) const {
    return test::await([&] {
      const std::string text = file_text(at("log.jsonl"));
      const size_t end = text.rfind('\n');
      if (end == std::string::npos) return false;
      const size_t begin = text.rfind('\n', end - 1) + 1;  // npos + 1 is 0
      return wanted(json::parse(text.substr(begin, end - begin)));
    });
  }
  bool await_step(uint64_t step) const {
    return await([&](const json& line) { return line["step"] >= step; });
  }
  bool await_budget(uint64_t bytes) const {
    return await([&](const json& line) { return line.value("budget_bytes", uint64_t{0}) == bytes; });
  }

  // Requires that the log has the results of a training in one plan, and in every step the planned
  // bytes of its plan.
  void expect_the_same_training() const {
    Log log = read_log(at("log.jsonl"));
    std::vector<std::string> results;
    for (json& line : log.lines) {
      EXPECT_EQ(line["planned_bytes"], line["measured_bytes"]) << line;
      const bool is_large = line["budget_bytes"] == kLarge;
      EXPECT_TRUE(is_large || line["budget_bytes"] == small_budget()) << line;
      EXPECT_EQ(line["planned_bytes"], (is_large ? manifest() : manifest()["other_budgets"][0])["planned_bytes"])
          << line;
      line.erase("budget_bytes");
    }
    EXPECT_EQ(log.results(), expected_);
    EXPECT_TRUE(snapshot_tensors(at("s")) == expected_tensors_) << "weights and moments differ";
  }

  static std::vector<std::string> expected_;
  static std::string expected_tensors_;
};
std::vector<std::string> Budgets::expected_;
std::string Budgets::expected_tensors_;

TEST_F(Budgets, ASignalChangesThePlanAndTheMemory) {
  const uint64_t gap =
      manifest()["planned_bytes"].get<uint64_t>() - manifest()["other_budgets"][0]["planned_bytes"].get<uint64_t>();
  ASSERT_GT(gap, uint64_t{6} << 20) << "too little to be seen in a process";
  Process running(arguments());
  ASSERT_TRUE(await_step(3));
  [[maybe_unused]] const uint64_t before = resident_bytes(running.id());
  running.signal(SIGUSR1);
  ASSERT_TRUE(await_budget(small_budget()));
  [[maybe_unused]] const uint64_t small = resident_bytes(running.id());
  running.signal(SIGUSR1);  // the smallest plan is already in use
  ASSERT_TRUE(await_step(read_log(at("log.jsonl")).lines.size() + 2)) << "two signals at once come in any order";
  running.signal(SIGUSR2);
  ASSERT_TRUE(await_budget(kLarge));
  [[maybe_unused]] const uint64_t after = resident_bytes(running.id());
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(small + gap * 9 / 10, before) << "the system has not got the memory back";
  EXPECT_GT(after, small + gap * 9 / 10);
#endif
  for (const char* words : {"budgets: SIGUSR1 asks for the plan of ", "budgets: SIGUSR2 asks for the plan of 1.00 GiB",
                            "; it goes on in the plan of ", " given back", " more"}) {
    EXPECT_NE(result.err.find(words), std::string::npos) << words << " in " << result.err;
  }
  size_t equal = 0;
  for (size_t found = result.err.find("(equal)"); found != std::string::npos;
       found = result.err.find("(equal)", found + 1))
    ++equal;
  EXPECT_EQ(equal, 2u) << "a line for each plan: " << result.err;
  const std::vector<uint64_t> turns = turns_of(read_log(at("log.jsonl")));
  EXPECT_EQ(turns, (std::vector<uint64_t>{kLarge, small_budget(), kLarge}));
  expect_the_same_training();
}

// A plan must change only after a snapshot that is being written is complete, whenever the signal
// comes. With --start-budget 1, a killed run must resume in the smaller plan.
TEST_F(Budgets, AChangeWaitsForASnapshotAndAKilledRunGoesOnInTheSmallerPlan) {
  {
    Process running(arguments({"--save-every", "1", "--quiet"}));
    ASSERT_TRUE(await_step(1));
    for (int n = 0; n < 12; ++n) {
      running.signal(n % 2 == 0 ? SIGUSR1 : SIGUSR2);
      ASSERT_TRUE(await_budget(n % 2 == 0 ? small_budget() : kLarge)) << n;
    }
    running.signal(SIGUSR1);
    running.signal(SIGKILL);
    running.wait();
  }
  EXPECT_GE(turns_of(read_log(at("log.jsonl"))).size(), 12u);
  const uint64_t saved = saved_step(at("s"));
  EXPECT_GE(saved, 12u);
  EXPECT_LT(saved, 40u);
  quietly(program(), {"--log", at("log.jsonl"), "--save", at("s"), "--resume", at("s"), "--start-budget", "1"});
  const Log log = read_log(at("log.jsonl"));
  EXPECT_EQ(log.lines.back()["budget_bytes"], small_budget());
  EXPECT_EQ(log.lines[saved]["budget_bytes"], small_budget()) << "the first step of the run that goes on";
  expect_the_same_training();
}

TEST_F(Budgets, AControlFileSaysWhichPlan) {
  const std::string control = at("control");
  write_text(control, "budget 1\n");
  Process running(arguments({"--control", control}));
  ASSERT_TRUE(await_budget(small_budget())) << "what the file says when the run begins holds";
  write_text(control, "budget 1\n\n  budget 1 GiB  \n \n");
  ASSERT_TRUE(await_budget(kLarge));
  const uint64_t between = (manifest()["planned_bytes"].get<uint64_t>() + small_budget()) / 2;
  write_text(control, "budget " + std::to_string(between) + "\n");
  ASSERT_TRUE(await_budget(small_budget())) << "the largest that so many bytes hold";
  const auto say = [&](const std::string& text) {
    write_text(control, text);
    const size_t lines = read_log(at("log.jsonl")).lines.size();
    return await([&](const json& line) { return line["step"] >= lines + 2; });
  };
  EXPECT_TRUE(say("budget 1KiB\n"));
  EXPECT_TRUE(say("budget\n"));
  EXPECT_TRUE(say("budget 3 parsecs"));
  EXPECT_TRUE(say(std::string(100000, '\xff') + "\x1b[2J\n"));
  EXPECT_TRUE(say(""));
  fs::remove(control);
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  std::vector<std::string> warnings;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("warning: ", 0) == 0) warnings.push_back(line);
  }
  ASSERT_EQ(warnings.size(), 4u) << result.err;
  const Arguments fragments[] = {{"budget 1.00 KiB holds no plan", "the smallest takes"},
                                 {"\"budget\" is no command"},
                                 {"3 parsecs"},
                                 {"is no command"}};
  for (size_t w = 0; w < warnings.size(); ++w) {
    for (const std::string& fragment : fragments[w])
      EXPECT_NE(warnings[w].find(fragment), std::string::npos) << fragment << " in " << warnings[w];
    EXPECT_NE(warnings[w].find("it goes on in the plan of "), std::string::npos) << warnings[w];
    EXPECT_NE(warnings[w].find(control), std::string::npos) << warnings[w];
    EXPECT_EQ(warnings[w].find('\x1b'), std::string::npos) << warnings[w];
    EXPECT_LT(warnings[w].size(), 400u);
  }
  expect_the_same_training();
}

TEST_F(Budgets, AFifoControls) {
  const std::string fifo = at("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  Process running(arguments({"--control", fifo, "--quiet"}));
  ASSERT_TRUE(await_step(2));
  std::ofstream(fifo) << "budget 0\nbudget 1\n";
  ASSERT_TRUE(await_budget(small_budget()));
  std::ofstream(fifo) << "budget 0\n";
  ASSERT_TRUE(await_budget(kLarge));
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  expect_the_same_training();
}

TEST_F(Budgets, MemoryPressureAsksForTheSmallerPlan) {
  const std::string pressure = at("pressure");
  write_text(pressure,
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n");
  Process running(arguments({"--pressure", "12.5", "--pressure-file", pressure, "--steps", "1000000"}));
  ASSERT_TRUE(await_step(2));
  write_text(pressure,
             "some avg10=12.50 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
  ASSERT_TRUE(await_budget(small_budget()));
  fs::remove(pressure);
  ASSERT_TRUE(test::await([&] { return running.err_so_far().find("warning: ") != std::string::npos; }))
      << running.err_so_far();
  running.signal(SIGINT);
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("budgets: the memory pressure, 12.5% of the last 10 seconds, asks for the plan of"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("warning: budgets: --pressure: " + pressure + ": this kernel does not tell"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(turns_of(read_log(at("log.jsonl"))), (std::vector<uint64_t>{kLarge, small_budget()}));
}

// Memory suffices only for the smaller plan. The program must print one line that says so, and
// continue in it.
TEST_F(Budgets, WhatCannotBeTakenIsSaid) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer takes more than any limit";
#endif
  const uint64_t small = manifest()["other_budgets"][0]["planned_bytes"], large = manifest()["planned_bytes"];
  Process running(arguments({"--start-budget", std::to_string(small)}));
  ASSERT_TRUE(await_step(2)) << running.err_so_far();
  const rlim_t maximum = data_bytes(running.id()) + (large - small) / 2;
  const struct rlimit limit = {maximum, maximum};
  ASSERT_EQ(::prlimit(running.id(), RLIMIT_DATA, &limit, nullptr), 0);
  running.signal(SIGUSR2);
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("warning: budgets: SIGUSR2 asks for the plan of 1.00 GiB: mmap refused the arena"),
            std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("; it goes on in the plan of "), std::string::npos) << result.err;
  EXPECT_EQ(turns_of(read_log(at("log.jsonl"))), (std::vector<uint64_t>{small_budget()}));
  expect_the_same_training();
}

TEST_F(Budgets, BothPlansAreMeasured) {
  Process running(arguments(
      {"--manifest", at("m.json"), "--trace", at("t.json"), "--trace-steps", "5:6", "--threads", "2", "--quiet"}));
  ASSERT_TRUE(await_step(1));
  running.signal(SIGUSR1);
  ASSERT_TRUE(await_budget(small_budget()));
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.status, 0) << result.err;
  const json all = json::parse(file_text(at("m.json")));
  uint64_t steps = 0;
  for (const json* plan : {&all, &all["other_budgets"][0]}) {
    const json& measured = (*plan)["measured"];
    steps += measured["steps"].get<uint64_t>();
    std::set<std::string> names;
    for (const json& region : measured["regions"]) {
      names.insert(region["name"]);
      for (const json& planned : (*plan)["regions"]) {
        if (planned["name"] != region["name"]) continue;
        EXPECT_EQ(region["high_water_bytes"], planned["planned_bytes"]) << region;
      }
    }
    EXPECT_EQ(names, (std::set<std::string>{"state", "carried", "micro_first", "micro_add", "update"}));
#ifndef __SANITIZE_ADDRESS__
    EXPECT_EQ(measured["heap_calls_in_steps"], 0);
#endif
  }
  EXPECT_EQ(steps, 40u);
  const ProcessResult shown = reprise_command({"audit", at("m.json")});
  EXPECT_EQ(shown.status, 0) << shown.err;
  for (const char* words : {"1.00 GiB", "measured in a run of "})
    EXPECT_NE(shown.out.find(words), std::string::npos) << shown.out.substr(0, 2000);
  EXPECT_EQ(shown.out.find("MORE THAN PLANNED"), std::string::npos);
  expect_the_same_training();
}

// State must have the same layout in all plans of a program. So the larger plan streams the same
// weights as the smallest plan, although alone it would stream fewer.
TEST_F(Budgets, StreamedWeightsAreThoseOfTheSmallestBudget) {
  const json llama = json::parse(
      R"({"model": {"family": "llama", "vocab_size": 96, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0},
    "init": "random", "data": {"kind": "synthetic"}, "batch": 2, "sequence": 48, "steps": 6, "seed": 7, "lora": {"r": 2, "alpha": 4},
    "optimizer": {"name": "adamw", "lr": 0.01}})");
  quietly(train_program("budgets-resident", with(llama, {{"name", "budgets-resident"}, {"schedule", "none"}})),
          {"--log", at("r.jsonl")});
  const std::vector<std::string> expected = read_log(at("r.jsonl")).results();
  for (const json& stream : {json(true), json("auto")}) {
    const std::string name = stream == true ? "budgets-streamed" : "budgets-auto";
    json recipe = with(llama, {{"name", name}, {"weights", {{"stream", stream}}}});
    const uint64_t smallest = smallest_budget(recipe);
    recipe["budgets"] = {smallest, kLarge};
    const std::string streaming = train_program(name, recipe);
    const json both = json::parse(file_text(fs::path(streaming).parent_path() / "manifest.json")),
               &large = both["other_budgets"][0];
    EXPECT_EQ(both["state"], large["state"]) << name;
    EXPECT_GT(std::count_if(large["state"].begin(), large["state"].end(),
                            [](const json& tensor) { return tensor["kind"] == "streamed"; }),
              0)
        << name;
    write_text(at("r.json"), recipe.dump());
    const json fit = json::parse(reprise_command({"fit", at("r.json"), "--json"}).out);
    EXPECT_EQ(fit["resident_bytes"], large["planned_bytes"]);
    EXPECT_EQ(fit["budgets"][0]["planned_bytes"], both["planned_bytes"]);
    for (const auto& [start, control] : {std::pair{"0", "budget 1"}, {"1", "budget 0"}}) {
      write_text(at("control"), control);
      fs::remove(at("log.jsonl"));
      quietly(streaming, {"--log", at("log.jsonl"), "--start-budget", start, "--control", at("control")});
      Log log = read_log(at("log.jsonl"));
      EXPECT_EQ(turns_of(log), (std::vector<uint64_t>{control == std::string("budget 1") ? kLarge : smallest})) << name;
      for (json& line : log.lines) {
        EXPECT_EQ(line["planned_bytes"], line["measured_bytes"]) << name << line;
        line.erase("budget_bytes");
      }
      EXPECT_EQ(log.results(), expected) << name << " " << control;
    }
  }
}

TEST_F(Budgets, RefusesWhatHasNoMeaning) {
  for (const Arguments& option : {Arguments{"--control", at("c")}, {"--pressure", "10"}, {"--start-budget", "1"}}) {
    if (option[0] != "--control") expect_refusal(single_program(), option, {option[0], "one plan", "\"budgets\""}, 2);
    Arguments with_evaluation = {"--evaluate"};
    with_evaluation.insert(with_evaluation.end(), option.begin(), option.end());
    if (option[0] != "--start-budget") expect_refusal(program(), with_evaluation, {option[0], "--evaluate"}, 2);
  }
  expect_refusal(program(), {"--start-budget", "1KiB"}, {"--start-budget", "1.00 KiB", "the smallest takes"});
  expect_refusal(program(), {"--start-budget", "3 parsecs"}, {"--start-budget", "parsecs"});
  expect_refusal(program(), {"--pressure", "0"}, {"--pressure"}, 2);
  expect_refusal(program(), {"--pressure", "101"}, {"--pressure"}, 2);
  expect_refusal(program(), {"--pressure-file", at("p")}, {"--pressure"}, 2);
  expect_refusal(program(), {"--control", at(".")}, {"--control", "neither a file nor a FIFO"});
}

// A budget that is too small must be refused, as for a recipe with a single budget. The other parts
// of the test check what each command shows for a recipe with two budgets.
TEST_F(Budgets, CommandsShowBothPlans) {
  const std::string recipe = at("r.json");
  write_text(recipe, with(gpt(), {{"budgets", {small_budget(), small_budget() - 1}}}).dump());
  for (const char* command : {"plan", "fit", "audit", "rows"}) {
    Arguments words = {command, recipe};
    if (std::string(command) == "plan") words.insert(words.end(), {"-o", at("plan")});
    const ProcessResult refused = reprise_command(words);
    EXPECT_EQ(refused.status, 3) << command << refused.err;
    EXPECT_TRUE(refused.is_one_line_with(
        {"does not fit", "the smallest budget that does is " + std::to_string(small_budget())}))
        << command << refused.err;
  }
  EXPECT_FALSE(fs::exists(at("plan/plan.h")));

  write_text(recipe, with(gpt(), {{"budgets", {kLarge, small_budget()}}}).dump());
  const json both = json::parse(reprise_command({"audit", recipe, "--json"}).out);
  ASSERT_EQ(both["other_budgets"].size(), 1u);
  EXPECT_EQ(both["budget_bytes"], kLarge);
  EXPECT_EQ(both["other_budgets"][0]["budget_bytes"], small_budget());
  EXPECT_EQ(both["state"], both["other_budgets"][0]["state"]) << "State lies where it lay";
  EXPECT_EQ(both["carried"], both["other_budgets"][0]["carried"]);
  const json alone =
      json::parse(reprise_command({"audit", recipe, "--json", "--budget", std::to_string(small_budget())}).out);
  EXPECT_EQ(alone, both["other_budgets"][0]) << "--budget takes one plan";
  const std::string text = reprise_command({"audit", recipe}).out;
  EXPECT_NE(text.find(both["plan_hash"].get<std::string>()), std::string::npos);
  EXPECT_NE(text.find(alone["plan_hash"].get<std::string>()), std::string::npos);
  write_text(at("m.json"), both.dump());
  EXPECT_EQ(reprise_command({"audit", at("m.json")}).out, text) << "a manifest tells the same";
  json broken = both;
  broken["other_budgets"][0]["planned_bytes"] = 1;
  write_text(at("m.json"), broken.dump());
  EXPECT_TRUE(reprise_command({"audit", at("m.json")}).is_one_line_with({at("m.json"), "other_budgets[0]"}));

  const json fit = json::parse(reprise_command({"fit", recipe, "--json"}).out);
  EXPECT_EQ(fit["fits"], true);
  ASSERT_EQ(fit["budgets"].size(), 2u);
  EXPECT_EQ(fit["budgets"][0]["budget"], kLarge);
  EXPECT_EQ(fit["budgets"][0]["planned_bytes"], both["planned_bytes"]);
  EXPECT_EQ(fit["budgets"][1]["planned_bytes"], alone["planned_bytes"]);
  EXPECT_EQ(fit["planned_bytes"], both["planned_bytes"]) << "the larger of them";
  for (const Arguments& page : {Arguments{at("both.html")}, {at("alone.html"), "--budget", "1GiB"}}) {
    Arguments words = {"audit", recipe, "--html"};
    words.insert(words.end(), page.begin(), page.end());
    EXPECT_EQ(reprise_command(words).status, 0);
  }
  EXPECT_GT(fs::file_size(at("both.html")), fs::file_size(at("alone.html")) + 1000) << "a page has every plan";
  write_text(at("m.json"), both.dump());
  const ProcessResult gate = reprise_command({"audit", recipe, "--gate", at("m.json")});
  EXPECT_EQ(gate.status, 0) << gate.err;
  json smaller = both;
  smaller["other_budgets"][0]["planned_bytes"] = 256;
  write_text(at("m.json"), smaller.dump());
  EXPECT_TRUE(reprise_command({"audit", recipe, "--gate", at("m.json")})
                  .is_one_line_with({"other_budgets[0]", "planned_bytes"}))
      << "it is checked as every manifest";
  write_text(at("m.json"), alone.dump());
  EXPECT_TRUE(reprise_command({"audit", recipe, "--gate", at("m.json")})
                  .is_one_line_with({at("m.json"), "other_budgets", "has 0 plans"}));
}

}  // namespace
}  // namespace reprise::test
