// Tests the training program as a user runs it: log, snapshots, signals, kills, full disks, bad
// weights, bad data. The nets are small. They are compiled here from their recipes, under different
// schedules and budgets. This test runs programs and must not link the trainer.
#include "tests/runtime/programs/train_program.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <random>
#include <regex>
#include <set>

#include "tests/interfaces/soak.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json resnet() {
  return json::parse(
      R"({"model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 4,
    "image": [8, 8, 1]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 6, "evaluate_every": 3, "seed": 5,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}})");
}

json gpt() {
  const std::string text = build_folder() + "/test-programs/text.txt";
  fs::create_directories(build_folder() + "/test-programs");
  std::string words;
  for (int i = 0; i < 300; ++i) words += "In the beginning there was number " + std::to_string(i * i) + ".\n";
  write_text(text, words);
  return {
      {"model",
       {{"family", "gpt2"}, {"vocab_size", 256}, {"n_positions", 16}, {"n_embd", 16}, {"n_layer", 3}, {"n_head", 2}}},
      {"data", {{"kind", "text"}, {"path", text}}},
      {"batch", 2},
      {"sequence", 16},
      {"accumulate", 2},
      {"steps", 6},
      {"clip_norm", 1.0},
      {"seed", 9},
      {"optimizer", {{"name", "adamw"}, {"lr", 0.003}}},
      {"lr_schedule", {{"kind", "cosine"}, {"warmup_steps", 2}}}};
}

// These functions return compiled programs of the ResNet and of the GPT. `stored`: the plan stores
// everything. `tight`: the plan has the smallest budget.
std::string resnet_stored() { return train_program("resnet-stored", with(resnet(), {{"schedule", "none"}})); }
std::string resnet_tight() {
  return train_program("resnet-tight", with(resnet(), {{"budget", smallest_budget(resnet())}}));
}
std::string gpt_stored() { return train_program("gpt-stored", with(gpt(), {{"schedule", "none"}})); }
std::string gpt_tight() { return train_program("gpt-tight", with(gpt(), {{"budget", smallest_budget(gpt())}})); }

std::string idx_folder() { return build_folder() + "/test-programs/idx-data"; }
std::string idx_program() {
  write_idx_data(idx_folder(), 24);
  return train_program("resnet-idx",
                       with(resnet(), {{"data", {{"kind", "idx"}, {"path", idx_folder()}}}, {"evaluate_every", 0}}));
}

TEST_F(TrainProgram, LogLines) {
  for (const std::string& program : {resnet_stored(), resnet_tight(), gpt_tight()}) {
    fs::remove(at("log.jsonl"));
    quietly(program, {"--log", at("log.jsonl")});
    const json manifest = json::parse(file_text(fs::path(program).parent_path() / "manifest.json"));
    uint64_t step = 0;
    std::vector<uint64_t> evaluated;
    for (const json& line : read_log(at("log.jsonl")).lines) {
      std::set<std::string> keys;
      for (const auto& [key, value] : line.items()) keys.insert(key);
      if (line.contains("eval_loss")) {
        EXPECT_EQ(keys, (std::set<std::string>{"step", "eval_loss", "accuracy"}));
        EXPECT_EQ(line["step"], step);
        evaluated.push_back(step);
        continue;
      }
      EXPECT_EQ(keys, (std::set<std::string>{"step", "loss", "grad_norm", "lr", "seconds", "planned_bytes",
                                             "measured_bytes"}));
      EXPECT_EQ(line["step"], ++step);
      EXPECT_EQ(line["planned_bytes"], line["measured_bytes"]) << program;
      EXPECT_EQ(line["planned_bytes"], manifest["planned_bytes"]) << program;
      EXPECT_GT(line["loss"], 0);
      EXPECT_GT(line["seconds"], 0);
    }
    EXPECT_EQ(step, 6u);
    EXPECT_EQ(evaluated, program == gpt_tight() ? std::vector<uint64_t>{} : (std::vector<uint64_t>{3, 6})) << program;
  }
}

TEST_F(TrainProgram, StepsAndEpochs) {
  quietly(idx_program(), {"--steps", "2", "--log", at("log.jsonl"), "--save", at("s")});
  EXPECT_EQ(saved_step(at("s")), 2u);
  quietly(idx_program(), {"--epochs", "2", "--save", at("s"), "--overwrite"});
  EXPECT_EQ(saved_step(at("s")), 12u) << "24 samples in batches of 4, twice";
  const ProcessResult done = train(idx_program(), {"--resume", at("s"), "--steps", "3"});
  EXPECT_EQ(done.status, 0);
  EXPECT_NE(done.err.find("nothing left to do"), std::string::npos) << done.err;
}

// A step takes two micro-batches of four samples. So three epochs of 26 samples are 9.75 steps,
// which are rounded up to 10, and the cosine must end with step 10. With several budgets, this also
// holds for each plan, even if it takes over during the run.
TEST_F(TrainProgram, EpochsOfARecipeAreTheStepsThatTheDataMake) {
  const std::string folder = at("data");
  write_idx_data(folder, 26);
  const json base = with(resnet(), {{"steps", nullptr},
                                    {"evaluate_every", 0},
                                    {"accumulate", 2},
                                    {"data", {{"kind", "idx"}, {"path", folder}}},
                                    {"lr_schedule", {{"kind", "cosine"}, {"warmup_steps", 2}}}});
  const auto plan_file = [this](const std::string& name, const json& recipe) {
    write_text(at(name + ".json"), recipe.dump());
    const ProcessResult planned = reprise_command({"plan", at(name + ".json"), "--binary", "-o", at(name)});
    EXPECT_EQ(planned.status, 0) << planned.err;
    return at(name + "/plan.bin");
  };
  const auto results = [this](const std::string& file, const std::string& log, const Arguments& more) {
    Arguments arguments = {"train", file, "--log", at(log)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProcessResult done = reprise_command(arguments);
    EXPECT_EQ(done.status, 0) << done.err;
    return std::pair(read_log(at(log)), done.err);
  };
  const std::string by_steps = plan_file("s", with(base, {{"steps", 10}})),
                    by_epochs = plan_file("e", with(base, {{"epochs", 3}}));
  const auto [steps, words_of_steps] = results(by_steps, "s.jsonl", {});
  const auto [epochs, words] = results(by_epochs, "e.jsonl", {});
  ASSERT_EQ(steps.lines.size(), 10u);
  EXPECT_EQ(epochs.results(), steps.results());
  EXPECT_NE(words.find("steps 1 to 10, 26 samples, 3.1 passes, "), std::string::npos) << words;
  const uint64_t minimum = smallest_budget(with(base, {{"steps", 10}}));
  // With several budgets, each line names the budget of its plan.
  const auto without_budget = [](const std::vector<std::string>& lines) {
    std::vector<std::string> rest;
    for (const std::string& line : lines) {
      json one = json::parse(line);
      EXPECT_EQ(one.erase("budget_bytes"), 1u) << line;
      rest.push_back(one.dump());
    }
    return rest;
  };
  const std::string several = plan_file("b", with(base, {{"epochs", 3}, {"budgets", {minimum * 2, minimum}}}));
  EXPECT_EQ(without_budget(results(several, "b.jsonl", {"--start-budget", "1"}).first.results()), steps.results());
  write_text(at("control"), "budget 1\n");
  const auto [changed, words_of_change] = results(several, "c.jsonl", {"--control", at("control")});
  EXPECT_EQ(without_budget(changed.results()), steps.results());
  EXPECT_NE(words_of_change.find("budgets: "), std::string::npos) << words_of_change;

  // --steps ends the run earlier or later without changing the cosine. A run that continues after
  // the end of the cosine must print a warning.
  const std::vector<std::string> all = steps.results();
  EXPECT_EQ(results(by_epochs, "f.jsonl", {"--steps", "4"}).first.results(),
            std::vector<std::string>(all.begin(), all.begin() + 4));
  EXPECT_NE(results(by_epochs, "g.jsonl", {"--steps", "11"})
                .second.find("lr_schedule.epochs: the cosine ends at step 10; steps 11 to 11 train with a rate of 0"),
            std::string::npos);
  const std::string half =
      plan_file("h", with(base, {{"epochs", 0.5}, {"lr_schedule", {{"kind", "cosine"}, {"warmup_steps", 2}}}}));
  const ProcessResult short_one = reprise_command({"train", half});
  EXPECT_EQ(short_one.status, 1);
  EXPECT_TRUE(short_one.is_one_line_with({"lr_schedule.warmup_steps", "2 steps"})) << short_one.err;
}

// The last lines must say what was done, where the result is, and which command uses it.
TEST_F(TrainProgram, TheEndNamesWhatIsThereAndTheNextCommand) {
  const auto last_lines = [](const std::string& err) {
    const size_t last = err.rfind('\n', err.size() - 2);
    return err.substr(err.rfind('\n', last - 1) + 1);
  };
  const ProcessResult saved = train(idx_program(), {"--steps", "2", "--save", at("my weights")});
  EXPECT_EQ(saved.status, 0);
  EXPECT_TRUE(
      std::regex_match(last_lines(saved.err), std::regex("trained 2 steps in [0-9.]+ s; saved to .*/my weights\nnext: "
                                                         ".*/train --resume '.*/my weights' --predict PICTURE\n")))
      << saved.err;
  const ProcessResult lost = train(idx_program(), {"--steps", "2"});
  EXPECT_NE(last_lines(lost.err).find("; nothing was saved (--save DIR would)\n"), std::string::npos) << lost.err;
  EXPECT_EQ(lost.err.find("next: "), std::string::npos) << lost.err;
  EXPECT_EQ(train(idx_program(), {"--steps", "2", "--quiet"}).err, "");
  const ProcessResult text = train(gpt_stored(), {"--steps", "1", "--save", at("text")});
  EXPECT_NE(text.err.find("; saved to " + at("text") + "\n"), std::string::npos) << text.err;
  EXPECT_EQ(text.err.find("next: "), std::string::npos) << "it reads no prompt: " << text.err;
  const ProcessResult version = train(idx_program(), {"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_EQ(version.out.find("train of recipe: reprise "), 0u) << version.out;
}

TEST_F(TrainProgram, UsageErrorsAndHelp) {
  const std::string program = resnet_stored();
  const ProcessResult help = train(program, {"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.err, "");
  for (const char* option :
       {"--steps", "--epochs", "--log", "--init", "--save", "--save-every", "--resume", "--threads", "--quiet"}) {
    EXPECT_NE(help.out.find(option), std::string::npos) << option;
  }
  const std::vector<std::pair<Arguments, std::string>> cases = {{{"--steps", "0"}, "--steps"},
                                                                {{"--steps", "-3"}, "--steps"},
                                                                {{"--steps", "x"}, "--steps"},
                                                                {{"--steps", "2", "--epochs", "1"}, "--epochs"},
                                                                {{"--epochs", "99999999999"}, "--epochs"},
                                                                {{"--threads", "-1"}, "--threads"},
                                                                {{"--threads", "65"}, "--threads"},
                                                                {{"--nope"}, "--nope"},
                                                                {{"extra"}, "extra"},
                                                                {{"--save-every", "2"}, "--save"},
                                                                {{"--resume", "a", "--init", "b"}, "--resume"}};
  for (const auto& [arguments, fragment] : cases) expect_refusal(program, arguments, {fragment}, 2);
  expect_refusal(program, {"--nope"}, {"see " + program + " --help"}, 2);
  expect_refusal(program, {"--resmue", "a"}, {"--resmue a", "did you mean --resume?"}, 2);
}

// A compiled program must accept a plan for another budget from a file. It must prove the plan
// before it allocates the plan's memory.
TEST_F(TrainProgram, APlanOfAFileTrainsTheSameBits) {
  quietly(resnet_stored(), {"--log", at("stored.jsonl"), "--save", at("stored")});
  quietly(resnet_tight(), {"--log", at("tight.jsonl")});
  const std::string recipe = at("tight.json"), file = at("tight/plan.bin");
  write_text(recipe, with(resnet(), {{"name", "resnet-stored"}, {"budget", smallest_budget(resnet())}}).dump());
  ASSERT_EQ(reprise_command({"plan", recipe, "--binary", "-o", at("tight")}).status, 0);
  EXPECT_FALSE(fs::exists(at("tight/plan.h")));
  quietly(resnet_stored(),
          {"--plan", file, "--log", at("file.jsonl"), "--save", at("file"), "--manifest", at("manifest.json")});
  EXPECT_EQ(read_log(at("file.jsonl")).results(), read_log(at("stored.jsonl")).results());
  EXPECT_TRUE(snapshot_tensors(at("file")) == snapshot_tensors(at("stored")));
  const json of_file = read_log(at("file.jsonl")).lines[0], of_tight = read_log(at("tight.jsonl")).lines[0];
  EXPECT_EQ(of_file["planned_bytes"], of_tight["planned_bytes"]);
  EXPECT_EQ(of_file["measured_bytes"], of_tight["planned_bytes"]);
  const json manifest = json::parse(file_text(at("manifest.json")));
  EXPECT_EQ(manifest["planned_bytes"], of_tight["planned_bytes"]);
  EXPECT_EQ(manifest["measured"]["proved_by"], "program");
  EXPECT_NE(
      train(gpt_stored(), {"--plan=" + file, "--steps", "1"}).err.find("plan of " + file + ", proved by this program"),
      std::string::npos)
      << "whatever was compiled in";

  // Runs reprise without a compiler, and without other files of this project in its folder.
  fs::create_directories(at("board"));
  fs::copy_file(build_folder() + "/reprise", at("board/reprise"));
  const ProcessOptions bare = {.environment = {"PATH=/nowhere", "CXX=/nowhere/g++", "XDG_CACHE_HOME=" + at("cache")}};
  for (const std::string& what : {file, recipe}) {
    fs::remove(at("board.jsonl"));
    const ProcessResult alone =
        run({at("board/reprise"), "train", what, "--log", at("board.jsonl"), "--save", at("board/s"), "--overwrite"},
            bare);
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(read_log(at("board.jsonl")).results(), read_log(at("stored.jsonl")).results()) << what;
    EXPECT_TRUE(snapshot_tensors(at("board/s")) == snapshot_tensors(at("stored"))) << what;
  }
}

// While a program runs, which may take days, another run of the same recipe must be possible.
TEST_F(TrainProgram, TwoRunsOfARecipeWithoutACompiler) {
  const std::string recipe = at("r.json");
  write_text(recipe, resnet().dump());
  fs::create_directories(at("board"));
  fs::copy_file(build_folder() + "/reprise", at("board/reprise"));
  const ProcessOptions bare = {.environment = {"XDG_CACHE_HOME=" + at("cache")}};
  Process goes_on({at("board/reprise"), "train", recipe, "--steps", "1000000000", "--log", at("long.jsonl"), "--quiet"},
                  bare);
  ASSERT_TRUE(await([&] { return !file_text(at("long.jsonl")).empty(); }));
  ASSERT_NE(file_text(at("long.jsonl")), "") << goes_on.err_so_far();
  const ProcessResult second = run({at("board/reprise"), "train", recipe, "--steps", "1", "--quiet"}, bare);
  EXPECT_EQ(second.status, 0) << second.err;
  goes_on.signal(SIGKILL);
  EXPECT_EQ(goes_on.wait().status, 128 + SIGKILL);
}

TEST_F(TrainProgram, PlanFilesThatCannotRun) {
  const std::string program = resnet_stored(), recipe = at("r.json");
  write_text(recipe, resnet().dump());
  ASSERT_EQ(reprise_command({"plan", recipe, "--binary", "-o", at("plan")}).status, 0);
  const std::string file = at("plan/plan.bin"), bytes = file_text(file);
  expect_refusal(program, {"--plan", at("none.bin")}, {at("none.bin"), "cannot be opened"});
  expect_refusal(program, {"--plan", recipe}, {recipe, "is no plan file"});
  expect_refusal(program, {"--plan"}, {"--plan"}, 2);
  std::string flipped = bytes;
  flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 4);
  write_text(at("flipped.bin"), flipped);
  expect_refusal(program, {"--plan", at("flipped.bin")}, {at("flipped.bin"), "checksum"});
  write_text(recipe, with(resnet(), {{"backend", "cuda"}}).dump());
  ASSERT_EQ(reprise_command({"plan", recipe, "--binary", "-o", at("card")}).status, 0);
  expect_refusal(program, {"--plan", at("card/plan.bin")}, {at("card/plan.bin"), "backend: \"cuda\"", "cannot run it"});
  const ProcessResult overridden = reprise_command({"train", file, "--budget", "1MiB"});
  EXPECT_EQ(overridden.status, 2);
  EXPECT_TRUE(overridden.is_one_line_with({"--budget", "plan file"})) << overridden.err;
}

TEST_F(TrainProgram, ResumesBitForBitUnderAnyPlan) {
  const std::pair<std::string, std::string> pairs[] = {{resnet_stored(), resnet_tight()}, {gpt_stored(), gpt_tight()}};
  for (const auto& [stored, tight] : pairs) {
    fs::remove(at("whole.jsonl"));
    quietly(stored, {"--steps", "8", "--log", at("whole.jsonl"), "--save", at("whole"), "--overwrite"});
    const std::vector<std::string> expected = read_log(at("whole.jsonl")).results();
    for (const auto& [first, second] : {std::pair{stored, stored}, {tight, stored}, {stored, tight}}) {
      fs::remove(at("log.jsonl"));
      quietly(first, {"--steps", "3", "--log", at("log.jsonl"), "--save", at("s"), "--overwrite"});
      quietly(first, {"--resume", at("s"), "--steps", "5", "--log", at("log.jsonl")});  // these two steps are not saved
      quietly(second,
              {"--resume", at("s"), "--steps", "8", "--log", at("log.jsonl"), "--save", at("s"), "--threads", "2"});
      EXPECT_EQ(read_log(at("log.jsonl")).results(), expected) << first << " then " << second;
      EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole"))) << first << " then " << second;
    }
  }
}

TEST_F(TrainProgram, SameBitsForAnyThreads) {
  for (const std::string& program : {resnet_tight(), gpt_tight()}) {
    fs::remove(at("1.jsonl"));
    quietly(program, {"--threads", "1", "--log", at("1.jsonl"), "--save", at("1"), "--overwrite"});
    for (const char* threads : {"2", "7", "64"}) {
      fs::remove(at("n.jsonl"));
      quietly(program, {"--threads", threads, "--log", at("n.jsonl"), "--save", at("n"), "--overwrite"});
      EXPECT_EQ(read_log(at("1.jsonl")).results(), read_log(at("n.jsonl")).results()) << threads;
      EXPECT_TRUE(snapshot_tensors(at("1")) == snapshot_tensors(at("n"))) << threads;
    }
  }
}

TEST_F(TrainProgram, SameBitsOnOneCore) {
  cpu_set_t usable;
  ASSERT_EQ(::sched_getaffinity(0, sizeof usable, &usable), 0);
  int core = 0;
  while (CPU_ISSET(core, &usable) == 0) ++core;
  const std::string program = gpt_tight();
  quietly(program, {"--threads", "2", "--log", at("2.jsonl"), "--save", at("2")});
  for (const Arguments& threads : {Arguments{}, {"--threads", "2"}, {"--threads", "64"}}) {
    fs::remove(at("n.jsonl"));
    Arguments arguments = {"taskset", "-c",    std::to_string(core), program,  "--log", at("n.jsonl"),
                           "--save",  at("n"), "--overwrite",        "--quiet"};
    arguments.insert(arguments.end(), threads.begin(), threads.end());
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << json(arguments);
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(read_log(at("2.jsonl")).results(), read_log(at("n.jsonl")).results()) << json(arguments);
    EXPECT_TRUE(snapshot_tensors(at("2")) == snapshot_tensors(at("n"))) << json(arguments);
  }
}

TEST_F(TrainProgram, ArenaThatTheSystemRefuses) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers take the address space";
#endif
  const std::string program =
      train_program("resnet-large",
                    with(resnet(), {{"model", {{"image", {64, 64, 1}}}}, {"batch", 256}, {"schedule", "none"}}));
  ASSERT_GT(json::parse(file_text(fs::path(program).parent_path() / "manifest.json"))["planned_bytes"],
            uint64_t{256} << 20);
  ProcessOptions limited;
  limited.max_address_bytes = uint64_t{256} << 20;
  const ProcessResult result =
      train(program, {"--steps", "1", "--threads", "2", "--log", at("log.jsonl"), "--save", at("s"), "--quiet"},
            limited);
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(result.is_one_line_with({"arena", "smaller budget", "MiB"})) << result.err;
  for (const char* left : {"log.jsonl", "s", "s.tmp"}) EXPECT_FALSE(fs::exists(at(left))) << left;
}

// Returns the bytes of writable memory of a process, which RLIMIT_DATA limits. Code and files that
// are only read do not count.
uint64_t data_bytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmData:", 0) == 0) return std::stoull(line.substr(7)) << 10;
  }
  return 0;
}

// If the arena cannot be allocated, the message must name a smaller budget that fits, with which
// the user can plan again.
TEST_F(TrainProgram, ARefusedArenaNamesTheSmallerOneThatFits) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers take the address space";
#endif
  const json recipe = with(resnet(), {{"name", "resnet-refused"},
                                      {"model", {{"image", {64, 64, 1}}}},
                                      {"batch", 256},
                                      {"schedule", "optimal"},
                                      {"budget", "1GiB"}});
  const std::string program = train_program("resnet-refused", recipe);
  write_text(at("recipe.json"), recipe.dump());
  const json smaller = json::parse(reprise_command({"fit", at("recipe.json"), "--json"}).out)["smaller_budgets"];
  ASSERT_EQ(smaller.size(), 3u);
  write_text(at("control"), "pause\n");
  Process paused({program, "--steps", "1", "--threads", "2", "--control", at("control")});
  ASSERT_TRUE(await([&] { return paused.err_so_far().find("pause: ") != std::string::npos; })) << paused.err_so_far();
  const uint64_t arena = json::parse(file_text(fs::path(program).parent_path() / "manifest.json"))["planned_bytes"];
  const uint64_t process = data_bytes(paused.id()) - arena, guard = 1 << 20;  // bytes besides the arena
  for (size_t n = 0; n < 4; ++n) {
    ProcessOptions limited;
    limited.max_data_bytes = process + (n < 3 ? smaller[n]["budget"].get<uint64_t>() + guard : 0);
    const ProcessResult result = train(program, {"--steps", "1", "--threads", "2", "--quiet"}, limited);
    EXPECT_EQ(result.status, 1);
    const std::string words = n < 3 ? "; a plan for the budget " : "; nor would a plan for the budget ";
    EXPECT_TRUE(result.is_one_line_with({"arena", "MiB", words})) << n << result.err;
    if (n == 3) continue;
    const uint64_t budget = smaller[n]["budget"];
    char text[32];
    std::snprintf(text, sizeof text, "%.1f MiB would fit", static_cast<double>(budget) / (1 << 20));
    EXPECT_TRUE(result.is_one_line_with({text})) << n << " " << text << ": " << result.err;
  }
}

TEST_F(TrainProgram, ThreadsThatTheSystemRefuses) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers take the address space";
#endif
  ProcessOptions limited;
  limited.max_address_bytes = uint64_t{80} << 20;  // the program maps 49 MiB; 63 more stacks need 63 MiB
  const ProcessResult result = train(resnet_stored(), {"--threads", "64", "--save", at("s"), "--quiet"}, limited);
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.is_one_line_with({"worker thread"})) << result.err;
  EXPECT_FALSE(fs::exists(at("s")));
}

TEST_F(TrainProgram, KilledAtAnyMomentLeavesTheLastSnapshot) {
  const std::string program = resnet_tight();
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  for (int trial = 0; trial < soaked(8); ++trial) {
    fs::remove(at("log.jsonl"));
    Process process({program, "--steps", "1000000", "--log", at("log.jsonl"), "--save", at("s"), "--overwrite",
                     "--save-every", "1", "--quiet"});
    // After two steps there is a snapshot, and the run continues to save. The kill comes at a
    // random moment.
    ASSERT_TRUE(await([&] { return file_text(at("log.jsonl")).find("\"step\": 2,") != std::string::npos; }));
    sleep_seconds(std::uniform_real_distribution<double>(0, 0.05)(random));
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait().status, 128 + SIGKILL) << "seed " << seed;
    ASSERT_TRUE(fs::exists(at("s"))) << "seed " << seed;
    const uint64_t step = saved_step(at("s"));
    quietly(program, {"--resume", at("s"), "--steps", std::to_string(step + 1), "--save", at("s")});
    EXPECT_FALSE(fs::exists(at("s.saving"))) << "seed " << seed;
    EXPECT_EQ(saved_step(at("s")), step + 1) << "seed " << seed;
    if (trial % 4 != 3) continue;
    quietly(program, {"--steps", std::to_string(step + 1), "--save", at("whole"), "--overwrite"});
    EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole"))) << "seed " << seed << " step " << step;
  }
}

TEST_F(TrainProgram, SignalsSaveAndEnd) {
  const std::string program = resnet_stored();
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    for (const bool saves : {true, false}) {
      Arguments arguments = {program, "--steps", "100000000", "--log", at("log.jsonl")};
      if (saves) arguments.insert(arguments.end(), {"--save", at("s"), "--overwrite"});
      fs::remove(at("log.jsonl"));
      Process process(arguments);
      ASSERT_TRUE(await([&] { return !file_text(at("log.jsonl")).empty(); }));
      process.signal(number);
      const ProcessResult result = process.wait();
      EXPECT_EQ(result.status, saves ? 0 : 128 + number) << result.err;
      EXPECT_NE(result.err.find("stopped by a signal"), std::string::npos) << result.err;
      const json last = read_log(at("log.jsonl")).lines.back();
      EXPECT_TRUE(!saves || saved_step(at("s")) == last["step"]) << last;
    }
  }
}

TEST_F(TrainProgram, UnderNohupItGoesOn) {
  Process process({"sh", "-c", "trap '' HUP; exec \"$0\" \"$@\"", resnet_stored(), "--steps", "100000000", "--log",
                   at("log.jsonl"), "--quiet"});
  ASSERT_TRUE(await([&] { return !file_text(at("log.jsonl")).empty(); }));
  process.signal(SIGHUP);
  sleep_seconds(0.2);
  const size_t before = file_text(at("log.jsonl")).size();
  ASSERT_TRUE(await([&] { return file_text(at("log.jsonl")).size() > before; }));
  EXPECT_GT(file_text(at("log.jsonl")).size(), before);
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().status, 128 + SIGTERM);
}

// Returns a program whose evaluation takes several seconds.
std::string gpt_long_evaluation() {
  const std::string text = build_folder() + "/test-programs/long-text.txt";
  std::string words;
  for (int i = 0; i < 40000; ++i) words += "And there was a line number " + std::to_string(i) + ".\n";
  write_text(text, words);
  return train_program("gpt-long-evaluation", with(gpt(), {{"data", {{"eval_path", text}}}, {"evaluate_every", 1}}));
}

TEST_F(TrainProgram, SignalsAreHeardDuringAnEvaluation) {
  const std::string program = gpt_long_evaluation();
  for (const char* steps : {"3", "1"}) {  // the evaluation after step 1 is interrupted: of 3 steps, or of 1
    fs::remove(at("log.jsonl"));
    fs::remove_all(at("s"));
    Process process({program, "--steps", steps, "--save", at("s"), "--log", at("log.jsonl")});
    ASSERT_TRUE(await([&] { return !file_text(at("log.jsonl")).empty(); }));
    const auto start = std::chrono::steady_clock::now();
    process.signal(SIGTERM);
    const ProcessResult result = process.wait();
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0 * busy_factor());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find("evaluation after step 1 was stopped by a signal"), std::string::npos) << result.err;
    EXPECT_EQ(saved_step(at("s")), 1u);
    EXPECT_EQ(read_log(at("log.jsonl")).lines.size(), 1u) << "half an evaluation says nothing";
  }
}

TEST_F(TrainProgram, EvaluationsAreThoseThatWereAskedFor) {
  const auto evaluations = [&](const std::string& program, const Arguments& more = {}) {
    Arguments arguments = {"--steps", "4", "--log", at("log.jsonl")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    fs::remove(at("log.jsonl"));
    quietly(program, arguments);
    std::vector<json> found;
    for (const json& line : read_log(at("log.jsonl")).lines) {
      if (line.contains("eval_loss")) found.push_back(line);
    }
    return found;
  };
  json synthetic = resnet();
  synthetic.erase("evaluate_every");
  EXPECT_EQ(evaluations(train_program("resnet-unasked", synthetic)).size(), 0u)
      << "made-up data are not evaluated unasked";
  write_idx_data(idx_folder(), 24);
  json idx = with(synthetic, {{"data", {{"kind", "idx"}, {"path", idx_folder()}}}});
  const std::vector<json> whole = evaluations(train_program("resnet-end", idx));
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0]["step"], 4);
  EXPECT_EQ(evaluations(train_program("resnet-never", with(idx, {{"evaluate_every", 0}}))).size(), 0u);
  const std::vector<json> often =
      evaluations(train_program("resnet-often", with(idx, {{"evaluate_every", 3}, {"evaluate_batches", 2}})));
  ASSERT_EQ(often.size(), 2u);
  EXPECT_EQ(often[1]["step"], 4);
  EXPECT_NE(often[1]["eval_loss"], whole[0]["eval_loss"]) << "two micro-batches of six";
}

// Returns the safetensors file with its header changed by `change`; the data stay.
std::string with_header(const std::string& file, const std::function<void(json&)>& change) {
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  json header = json::parse(file.substr(8, length));
  change(header);
  const std::string text = header.dump();
  const uint64_t new_length = text.size();
  return std::string(reinterpret_cast<const char*>(&new_length), 8) + text + file.substr(8 + length);
}

TEST_F(TrainProgram, InitialWeights) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--save", at("s")});
  const std::string good = file_text(at("s/model.safetensors")), file = at("w.safetensors");
  const auto refuses = [&](const std::string& content, const Arguments& fragments) {
    write_text(file, content);
    Arguments all = {"w.safetensors"};
    all.insert(all.end(), fragments.begin(), fragments.end());
    expect_refusal(program, {"--init", file, "--log", at("log.jsonl"), "--save", at("none")}, all);
    EXPECT_FALSE(fs::exists(at("none"))) << "nothing is saved";
  };
  write_text(file, good);
  quietly(program, {"--init", file, "--steps", "1"});
  refuses("", {"bytes"});
  refuses("garbage that is no header at all", {"header"});
  refuses(good.substr(0, good.size() - 100), {"truncated"});
  refuses(good + "tail", {"bytes"});
  refuses(good.substr(0, 4), {"bytes"});
  refuses(with_header(good, [](json& h) { h["conv1.weight"]["shape"] = {8, 1, 9}; }), {"conv1.weight", "[8,1,3,3]"});
  refuses(with_header(good, [](json& h) { h["conv1.weight"]["dtype"] = "I32"; }), {"conv1.weight", "F32"});
  refuses(with_header(good, [](json& h) { h["conv1.weight"]["dtype"] = "X9"; }), {"conv1.weight", "dtype"});
  refuses(with_header(good,
                      [](json& h) {
                        h["fc.other"] = h["fc.weight"];
                        h.erase("fc.weight");
                      }),
          {"fc.weight", "missing"});
  refuses(with_header(good, [](json& h) { h["fc.weight"]["data_offsets"][1] = 1; }), {"fc.weight", "data_offsets"});
  expect_refusal(program, {"--init", at("absent.safetensors")}, {"absent.safetensors"});
  expect_refusal(gpt_stored(), {"--init", at("s/model.safetensors")}, {"model.safetensors", "transformer."});
}

TEST_F(TrainProgram, SnapshotsThatCannotBeResumed) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--save", at("s")});
  json good = json::parse(file_text(at("s/training.json")));
  // The test edits this file, so its checksums are removed. Older snapshots have none.
  for (const char* sum : {"xxh3", "files"}) good.erase(sum);
  const auto write = [&](const json& changes) { write_text(at("s/training.json"), with(good, changes).dump()); };
  write({{"kernel_set", "another/set"}});
  const ProcessResult warned = train(program, {"--resume", at("s"), "--steps", "3", "--quiet"});
  EXPECT_EQ(warned.status, 0);
  EXPECT_TRUE(warned.is_one_line_with({"warning", "another/set", "bits may differ"})) << warned.err;
  const std::pair<json, std::string> cases[] = {{{{"format", 99}}, "format"},
                                                {{{"format", "1"}}, "format"},
                                                {{{"format", nullptr}}, "format"},
                                                {{{"step", -1}}, "step"},
                                                {{{"step", "2"}}, "step"},
                                                {{{"kernel_set", 7}}, "kernel_set"},
                                                {{{"recipe", 3}}, "recipe"},
                                                {{{"recipe", {{"model", 4}}}}, "recipe.model"},
                                                {{{"recipe", {{"model", {{"width", 16}}}}}}, "recipe.model"}};
  for (const auto& [changes, field] : cases) {
    write(changes);
    expect_refusal(program, {"--resume", at("s")}, {"training.json", field});
  }
  for (const char* text : {"", "[]", "{\"format\": 1"}) {
    write_text(at("s/training.json"), text);
    expect_refusal(program, {"--resume", at("s")}, {"training.json"});
  }
  write(json::object());
  fs::remove(at("s/optimizer.safetensors"));
  expect_refusal(program, {"--resume", at("s")}, {"optimizer.safetensors"});
  expect_refusal(program, {"--resume", at("absent")}, {"absent"});
}

TEST_F(TrainProgram, SaveFoldersThatCannotBeWritten) {
  const std::string program = resnet_stored();
  fs::create_directories(at("other"));
  write_text(at("other/thesis.txt"), "years of work");
  expect_refusal(program, {"--save", at("other")}, {"thesis.txt"});
  EXPECT_EQ(file_text(at("other/thesis.txt")), "years of work");
  write_text(at("file"), "");
  expect_refusal(program, {"--save", at("file")}, {"file", "folder"});
  expect_refusal(program, {"--save", "/proc/reprise"}, {"/proc/reprise"});
  expect_refusal(program, {"--log", at("no/such/log.jsonl")}, {"--log"});
  expect_refusal(program, {"--log", "/dev/full"}, {"/dev/full", "--log"});
}

TEST_F(TrainProgram, SavesBesideWhateverAPersonKeepsThere) {
  const std::string program = resnet_stored();
  write_text(at("s.tmp"), "years");
  fs::create_directories(at("s.old"));
  write_text(at("s.old/thesis"), "more years");
  for (const char* steps : {"2", "3"})
    quietly(program, {"--steps", steps, "--save", at("s"), "--overwrite", "--save-every", "1"});
  EXPECT_EQ(file_text(at("s.tmp")), "years");
  EXPECT_EQ(file_text(at("s.old/thesis")), "more years");
  EXPECT_EQ(saved_step(at("s")), 3u);
}

TEST_F(TrainProgram, OneRunSavesIntoAFolder) {
  const std::string program = resnet_stored();
  Process first({program, "--steps", "100000000", "--save", at("s"), "--save-every", "1", "--quiet"});
  ASSERT_TRUE(await([&] { return fs::exists(at("s")); }));
  expect_refusal(program, {"--steps", "2", "--save", at("s")}, {at("s"), "another run", std::to_string(first.id())});
  first.signal(SIGKILL);
  first.wait();
  const uint64_t step = saved_step(at("s"));
  quietly(program, {"--resume", at("s"), "--steps", std::to_string(step + 1), "--save", at("s")});
  EXPECT_FALSE(fs::exists(at("s.saving")));
}

// Flips single bits in every file of a snapshot, one bit for each trial. The program must refuse
// the file, unless a flip in the white space of training.json leaves its JSON equal.
TEST_F(TrainProgram, EveryFileOfASnapshotHasAChecksum) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--save", at("s")});
  quietly(program, {"--resume", at("s"), "--steps", "3"});
  std::mt19937 random(20261122);
  for (const auto& entry : fs::directory_iterator(at("s"))) {
    const std::string file = entry.path().string(), good = file_text(file);
    for (int trial = 0; trial < soaked(24); ++trial) {
      // The header is only a small part of a file, so every second trial chooses a byte near the
      // start.
      const size_t at_byte = random() % (trial % 2 == 0 ? good.size() : std::min<size_t>(good.size(), 600));
      std::string flipped = good;
      flipped[at_byte] = static_cast<char>(flipped[at_byte] ^ (1 << random() % 8));
      const bool is_json = file.ends_with("training.json");
      if (is_json && json::parse(flipped, nullptr, false) == json::parse(good)) continue;
      write_text(file, flipped);
      expect_refusal(program, {"--resume", at("s"), "--steps", "3"},
                     {is_json ? "training.json" : entry.path().filename().string()});
    }
    write_text(file, good.substr(0, good.size() - 1));
    if (!file.ends_with(".json")) expect_refusal(program, {"--resume", at("s")}, {entry.path().filename().string()});
    write_text(file, good);
  }
  quietly(program, {"--steps", "2", "--save", at("other"), "--threads", "1"});
  quietly(program, {"--steps", "4", "--save", at("other"), "--overwrite"});
  fs::copy_file(at("other/optimizer.safetensors"), at("s/optimizer.safetensors"), fs::copy_options::overwrite_existing);
  expect_refusal(program, {"--resume", at("s")}, {"optimizer.safetensors", "another snapshot"});
}

TEST_F(TrainProgram, ResumeNamesEveryDifference) {
  quietly(resnet_stored(), {"--steps", "2", "--save", at("s")});
  const std::string other =
      train_program("resnet-other",
                    with(resnet(), {{"dtype", "bf16"}, {"batch", 2}, {"seed", 6}, {"optimizer", {{"lr", 0.1}}}}));
  const ProcessResult result = train(other, {"--resume", at("s"), "--steps", "3", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* key : {"\"dtype\"", "\"batch\"", "\"seed\"", "\"optimizer\""})
    EXPECT_NE(result.err.find(key), std::string::npos) << key << " in " << result.err;
}

TEST_F(TrainProgram, StepsBehindACosineAreSaid) {
  const ProcessResult result = train(gpt_stored(), {"--steps", "8"});
  EXPECT_EQ(result.status, 0);
  for (const char* words : {"warning", "lr_schedule.steps", "step 6", "7 to 8", "rate of 0", "\"steps\": 8"}) {
    EXPECT_NE(result.err.find(words), std::string::npos) << words << " in " << result.err;
  }
  EXPECT_EQ(train(gpt_stored(), {"--steps", "6"}).err.find("warning"), std::string::npos);
}

// The new recipe has another number of classes. Only the shapes of the head then differ from the
// weights.
TEST_F(TrainProgram, ANewHeadOnOldWeights) {
  quietly(resnet_stored(), {"--steps", "2", "--save", at("s")});
  const std::string weights = at("s/model.safetensors"),
                    five = train_program("resnet-five", with(resnet(), {{"model", {{"classes", 5}}}}));
  expect_refusal(five, {"--init", weights},
                 {"model.safetensors: 2 tensors do not fit: ",
                  "\"fc.weight\": is F32 [4,32], must be [5,32]; tensor \"fc.bias\": is F32 [4]",
                  "--init-skip PATTERN, or init.skip in the recipe"});
  const std::string wide = train_program("resnet-wide", with(resnet(), {{"model", {{"width", 16}}}}));
  const ProcessResult all = train(wide, {"--init", weights});
  EXPECT_EQ(all.status, 1);
  EXPECT_TRUE(all.is_one_line_with({" tensors do not fit: tensor \"conv1.weight\"", " and ", " more; ", "--init-skip"}))
      << all.err;
  EXPECT_LT(all.err.size(), 1500u) << "not every one of them";
  expect_refusal(five, {"--init", weights, "--init-skip", "fc.*", "fc.bias"}, {"fc.bias", "not expected"}, 2);
  quietly(five, {"--init", weights, "--init-skip", "fc.weight", "--init-skip", "fc.bias", "--steps", "1"});
  expect_refusal(five, {"--init", weights, "--init-skip", "head.*"}, {"head.*", "matches no tensor"});
  const ProcessResult taken = train(five, {"--init", weights, "--init-skip", "fc.*", "--steps", "1"});
  EXPECT_EQ(taken.status, 0) << taken.err;
  for (const char* words : {"tensors loaded", "because they are skipped: 2 tensors: fc.weight, fc.bias"}) {
    EXPECT_NE(taken.err.find(words), std::string::npos) << words << " in " << taken.err;
  }
  const json init = {{"from", weights}, {"skip", {"fc.*"}}};
  const std::string in_recipe =
      train_program("resnet-head", with(resnet(), {{"model", {{"classes", 5}}}, {"init", init}}));
  // Instead of a file, the folder of a snapshot is also accepted.
  quietly(five, {"--init", at("s"), "--init-skip", "fc.*", "--steps", "2", "--save", at("a")});
  quietly(in_recipe, {"--steps", "2", "--save", at("b")});
  EXPECT_TRUE(snapshot_tensors(at("a")) == snapshot_tensors(at("b")));
  quietly(five, {"--steps", "2", "--save", at("c")});
  EXPECT_FALSE(snapshot_tensors(at("a")) == snapshot_tensors(at("c"))) << "nothing was loaded";

  // In a file of another framework, the counts of batches may be missing. Other tensors may be
  // missing only if the recipe allows it.
  std::string file = file_text(weights);
  const auto without = [&](const std::string& tensor) {
    return with_header(file, [&](json& header) {
      header["unasked." + tensor] = header.at(tensor);
      header.erase(tensor);
    });
  };
  write_text(at("w.safetensors"), without("bn1.num_batches_tracked"));
  quietly(resnet_stored(), {"--init", at("w.safetensors"), "--steps", "1"});
  write_text(at("w.safetensors"), without("bn1.bias"));
  expect_refusal(resnet_stored(), {"--init", at("w.safetensors")}, {"bn1.bias", "missing"});
  const json lenient = {{"from", at("w.safetensors")}, {"allow_missing", true}};
  const ProcessResult left =
      train(train_program("resnet-lenient", with(resnet(), {{"init", lenient}})), {"--steps", "1"});
  EXPECT_EQ(left.status, 0) << left.err;
  EXPECT_NE(left.err.find("because the file has none: 1 tensors: bn1.bias"), std::string::npos) << left.err;
}

TEST_F(TrainProgram, EvaluatesWhatWasSaved) {
  write_idx_data(idx_folder(), 24);
  const std::string program =
      train_program("resnet-scored", with(resnet(), {{"data", {{"kind", "idx"}, {"path", idx_folder()}}}}));
  quietly(program, {"--steps", "6", "--save", at("s"), "--log", at("log.jsonl")});
  const json logged = read_log(at("log.jsonl")).lines.back();
  const ProcessResult result = train(program, {"--resume", at("s"), "--evaluate", "--per-class", "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["step"], 6);
  EXPECT_NEAR(answer["loss"].get<double>(), logged["eval_loss"].get<double>(), 1e-8);
  EXPECT_NEAR(answer["accuracy"].get<double>(), logged["accuracy"].get<double>(), 1e-8);
  uint64_t labelled = 0, correct = 0;
  ASSERT_EQ(answer["classes"].size(), 4u);
  for (const json& entry : answer["classes"])
    labelled += entry["labelled"].get<uint64_t>(), correct += entry["correct"].get<uint64_t>();
  EXPECT_EQ(labelled, answer["labelled"]);
  EXPECT_EQ(correct, answer["correct"]) << "the classes' own count and the loss head's";
  EXPECT_EQ(json::parse(train(program, {"--init", at("s/model.safetensors"), "--evaluate", "--json", "--batches", "1",
                                        "--quiet"})
                            .out)["labelled"],
            4);
  const ProcessResult text = train(program, {"--resume", at("s"), "--evaluate", "--per-class"});
  EXPECT_NE(text.out.find("step 6: loss"), std::string::npos) << text.out;
  for (const Arguments& wrong :
       {Arguments{"--per-class"}, {"--json"}, {"--evaluate", "--resume", at("s"), "--predict", "x"}}) {
    expect_refusal(program, wrong, {"--"}, 2);
  }
  expect_refusal(program, {"--resume", at("s"), "--predict", "--json", "x.png"},
                 {"--predict: needs a value before --json"}, 2);
  expect_refusal(program, {"--init-skip", "--init", at("s")}, {"--init-skip: needs a value before --init"}, 2);
  expect_refusal(gpt_stored(), {"--evaluate", "--init", at("s/model.safetensors")}, {"model.safetensors"});
}

TEST_F(TrainProgram, OptionsWithoutEffectAreRefused) {
  const Arguments modes[] = {{"--evaluate", "--init", "w"}, {"--predict", "x.png", "--init", "w"}, {"--check-data"}};
  const Arguments of_training[] = {{"--save", at("t")},
                                   {"--log", at("log.jsonl")},
                                   {"--steps", "2"},
                                   {"--epochs", "2"}};
  for (const Arguments& mode : modes) {
    for (const Arguments& option : of_training) {
      Arguments arguments = mode;
      arguments.insert(arguments.end(), option.begin(), option.end());
      expect_refusal(resnet_stored(), arguments, {option[0] + ": has no effect with " + mode[0]}, 2);
    }
  }
  for (const Arguments& option :
       {Arguments{"--evaluate"}, {"--predict", "x.png"}, {"--init", "w"}, {"--init-skip", "fc.*"}, {"--resume", "s"}}) {
    Arguments arguments = {"--check-data"};
    arguments.insert(arguments.end(), option.begin(), option.end());
    expect_refusal(resnet_stored(), arguments, {option[0] + ": has no effect with --check-data"}, 2);
  }
  EXPECT_FALSE(fs::exists(at("t")) || fs::exists(at("log.jsonl")));
}

// The program must report tensors that are not trained: a head that was skipped, or all tensors if
// there are no weights.
TEST_F(TrainProgram, EvaluatesTheWeightsOfTheRecipe) {
  quietly(resnet_stored(), {"--steps", "2", "--save", at("s")});
  const auto from_recipe = [&](const std::string& name, const json& skip) {
    const json init = {{"from", at("s/model.safetensors")}, {"skip", skip}};
    return train_program(name, with(resnet(), {{"init", init}}));
  };
  const auto result_of = [&](const std::string& program, Arguments more) {
    more.insert(more.end(), {"--evaluate", "--json", "--quiet"});
    const ProcessResult result = train(program, more);
    EXPECT_EQ(result.status, 0) << result.err;
    return std::pair(json::parse(result.out), result.err);
  };
  const auto [wanted, silence] = result_of(resnet_stored(), {"--init", at("s/model.safetensors")});
  EXPECT_EQ(silence, "");
  const auto [whole, no_warning] = result_of(from_recipe("resnet-from", json::array()), {});
  EXPECT_EQ(whole["loss"], wanted["loss"]);
  EXPECT_EQ(no_warning, "");
  const auto [headless, warning] = result_of(from_recipe("resnet-headless", {"fc.*"}), {});
  EXPECT_NE(headless["loss"], wanted["loss"]);
  EXPECT_EQ(warning, "warning: " + at("s/model.safetensors") +
                         ": leaves 2 tensors untrained, at their initial values: fc.weight, fc.bias\n");
  const auto [drawn, said] = result_of(resnet_stored(), {});
  EXPECT_NE(drawn["loss"], wanted["loss"]);
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  for (const char* words : {"warning: ", "no trained weights", "--resume DIR", "--init FILE", "init.from"}) {
    EXPECT_NE(said.find(words), std::string::npos) << said;
  }
  write_text(at("one.pgm"), "P5 8 8 255\n" + std::string(64, 'x'));
  const ProcessResult named = train(from_recipe("resnet-headless", {"fc.*"}), {"--predict", at("one.pgm")});
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_NE(named.err.find("untrained"), std::string::npos) << named.err;
}

TEST_F(TrainProgram, AnEvaluationThatIsNotFinite) {
  quietly(resnet_stored(), {"--steps", "2", "--save", at("s")});
  std::string file = file_text(at("s/model.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  const json place = json::parse(file.substr(8, length))["fc.weight"]["data_offsets"];
  const float large = 3e38f;
  for (uint64_t at_byte = place[0]; at_byte < place[1]; at_byte += 4)
    std::memcpy(file.data() + 8 + length + at_byte, &large, 4);
  write_text(at("w.safetensors"), file);
  const ProcessResult result =
      train(resnet_stored(), {"--init", at("w.safetensors"), "--evaluate", "--json", "--quiet"});
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.is_one_line_with({"w.safetensors", "loss is not finite"})) << result.err;
  EXPECT_EQ(json::parse(result.out).at("loss"), nullptr) << result.out;
  const ProcessResult text = train(resnet_stored(), {"--init", at("w.safetensors"), "--evaluate", "--quiet"});
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(text.out.find("step 0: loss "), std::string::npos) << text.out;
}

TEST_F(TrainProgram, PredictsThePicturesOfAPerson) {
  const std::string folder = build_folder() + "/test-programs/predicted";
  for (const char* name : {"cat", "dog", "emu", "owl"}) {
    fs::create_directories(folder + "/" + name);
    std::string pixels;  // four classes: horizontal stripes, vertical stripes, squares, grey
    for (int i = 0; i < 64; ++i) {
      const int y = i / 8, x = i % 8,
                bright = name[0] == 'c'   ? y % 2
                         : name[0] == 'd' ? x % 2
                         : name[0] == 'e' ? (x / 4 + y / 4) % 2
                                          : -1;
      pixels += static_cast<char>(bright < 0 ? 128 : bright * 255);
    }
    for (const char* file : {"/1.pgm", "/2.pgm"}) write_text(folder + "/" + name + file, "P5 8 8 255\n" + pixels);
  }
  const json changes = {{"data", {{"kind", "image_folder"}, {"path", folder}}},
                        {"evaluate_every", 0},
                        {"steps", 150},
                        {"optimizer", {{"lr", 0.02}}}};
  const std::string program = train_program("resnet-predicting", with(resnet(), changes));
  quietly(program, {"--save", at("s")});
  const ProcessResult result =
      train(program, {"--resume", at("s"), "--predict", folder, folder + "/emu/2.pgm", "--json", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  const json answer = json::parse(result.out);
  ASSERT_EQ(answer.size(), 9u);
  int right = 0;
  for (const json& picture : answer) {
    double sum = 0;
    for (const json& guess : picture["top"]) sum += guess["probability"].get<double>();
    EXPECT_NEAR(sum, 1, 1e-9);
    EXPECT_EQ(picture["top"].size(), 4u);
    right += picture["file"].get<std::string>().find("/" + picture["top"][0]["name"].get<std::string>() + "/") !=
             std::string::npos;
  }
  EXPECT_GE(right, 7) << answer.dump(1) << "\nfour patterns, learned by heart";
  EXPECT_EQ(answer[8]["top"], answer[5]["top"]) << "the same picture in another micro-batch";
  fs::rename(folder, folder + "-gone");  // names of classes must then come from the snapshot
  write_text(at("one.pgm"), "P5 8 8 255\n" + std::string(64, 'x'));
  const ProcessResult one = train(program, {"--resume", at("s"), "--predict", at("one.pgm")});
  EXPECT_EQ(one.status, 0) << one.err;
  for (const char* name : {"cat", "dog", "emu", "owl", "one.pgm: "})
    EXPECT_NE(one.out.find(name), std::string::npos) << one.out;
  fs::rename(folder + "-gone", folder);
  expect_refusal(program, {"--resume", at("s"), "--predict", at("none.jpg")}, {"none.jpg"});
  write_text(at("broken.jpg"), "no picture");
  expect_refusal(program, {"--resume", at("s"), "--predict", at("broken.jpg")}, {"broken.jpg", "decoded"});
  const ProcessResult rest =
      train(program, {"--resume", at("s"), "--predict", at("broken.jpg"), at("one.pgm"), "--json", "--quiet"});
  EXPECT_EQ(rest.status, 1);
  const json both = json::parse(rest.out);
  EXPECT_TRUE(both[0].contains("error") && both[1].contains("top")) << rest.out;
  fs::create_directories(at("links"));
  fs::create_symlink("nowhere.png", at("links/dangling.png"));
  fs::copy(at("one.pgm"), at("links/one.pgm"));
  const ProcessResult links = train(program, {"--resume", at("s"), "--predict", at("links"), "--json", "--quiet"});
  EXPECT_EQ(links.status, 1);
  EXPECT_TRUE(json::parse(links.out)[0].contains("error")) << links.out << "a picture that is not there is no silence";
}

// If the evaluation set has no samples of a class, the class has no accuracy.
TEST_F(TrainProgram, AClassWithoutSamplesHasNoAccuracy) {
  const std::string folder = build_folder() + "/test-programs/lacking";
  for (const char* picture : {"train/a/1.pgm", "train/b/1.pgm", "train/.git/1.pgm", "eval/a/1.pgm"}) {
    fs::create_directories(fs::path(folder + "/" + picture).parent_path());
    write_text(folder + "/" + picture, "P5 8 8 255\n" + std::string(64, 'x'));
  }
  fs::create_directories(folder + "/eval/.git");
  const json data = {{"kind", "image_folder"}, {"path", folder + "/train"}, {"eval_path", folder + "/eval"}};
  const std::string program =
      train_program("resnet-lacking",
                    with(resnet(), {{"data", data}, {"evaluate_every", 0}, {"model", {{"classes", 2}}}}));
  quietly(program, {"--steps", "1", "--save", at("s")});
  const json classes = json::parse(
      train(program, {"--resume", at("s"), "--evaluate", "--per-class", "--json", "--quiet"}).out)["classes"];
  ASSERT_EQ(classes.size(), 2u) << "a hidden folder is no class";
  EXPECT_EQ(classes[1], json({{"name", "b"}, {"labelled", 0}, {"correct", 0}, {"accuracy", nullptr}}));
  const ProcessResult text = train(program, {"--resume", at("s"), "--evaluate", "--per-class"});
  EXPECT_NE(text.out.find("- (no sample)"), std::string::npos) << text.out;
}

TEST_F(TrainProgram, KeepsTheBestAndSeveral) {
  write_idx_data(idx_folder(), 24);
  const std::string program =
      train_program("resnet-kept",
                    with(resnet(), {{"data", {{"kind", "idx"}, {"path", idx_folder()}}}, {"evaluate_every", 1}}));
  quietly(program, {"--steps", "9", "--save", at("s"), "--save-every", "2", "--keep", "3", "--keep-best", "--log",
                    at("log.jsonl")});
  json best;
  for (const json& line : read_log(at("log.jsonl")).lines) {
    if (line.contains("accuracy") && (best.is_null() || line["accuracy"] > best["accuracy"])) best = line;
  }
  EXPECT_EQ(saved_step(at("s.best")), best["step"]);
  EXPECT_EQ(saved_step(at("s")), 9u);
  EXPECT_EQ(saved_step(at("s.step-8")), 8u);
  EXPECT_EQ(saved_step(at("s.step-6")), 6u);
  EXPECT_FALSE(fs::exists(at("s.step-4")));
  quietly(program, {"--steps", "6", "--save", at("whole")});
  EXPECT_TRUE(snapshot_tensors(at("s.step-6")) == snapshot_tensors(at("whole")));
  // A resumed run must compare with the best evaluation of the earlier run, and must continue the
  // numbers of its steps.
  quietly(program, {"--resume", at("s"), "--steps", "10", "--save", at("s"), "--keep", "2", "--keep-best", "--log",
                    at("log.jsonl")});
  const json last = read_log(at("log.jsonl")).lines.back();
  EXPECT_EQ(saved_step(at("s.best")), last["accuracy"] > best["accuracy"] ? json(10) : best["step"]);
  EXPECT_EQ(saved_step(at("s.step-9")), 9u);
  EXPECT_EQ(saved_step(at("s.step-8")), 8u) << "those of an earlier run stay";
  quietly(program, {"--resume", at("s.step-6"), "--steps", "8", "--save", at("s"), "--overwrite", "--save-every", "1",
                    "--keep", "2"});
  EXPECT_EQ(saved_step(at("s.step-6")), 6u) << "what was resumed from stays";
  EXPECT_EQ(saved_step(at("s.step-7")), 7u);
  EXPECT_FALSE(fs::exists(at("s.step-5")));
  // A new run must not compare with the best evaluation of an earlier run.
  quietly(program, {"--steps", "1", "--save", at("s"), "--overwrite", "--keep-best"});
  EXPECT_EQ(saved_step(at("s.best")), 1u);
  expect_refusal(program, {"--steps", "1", "--save", at("s")},
                 {at("s"), "holds a snapshot after step 1", "--overwrite"});
  expect_refusal(idx_program(), {"--save", at("t"), "--keep-best"}, {"--keep-best", "nothing is evaluated"}, 2);
  for (const char* left : {"s.saving", "s.best.saving"}) EXPECT_FALSE(fs::exists(at(left))) << left;
}

// Returns a recipe whose evaluation loss stops falling long before its 400 steps are done, so that
// early stopping ends the run.
json rising() {
  write_idx_data(idx_folder(), 24);
  return with(resnet(), {{"data", {{"kind", "idx"}, {"path", idx_folder()}}},
                         {"evaluate_every", 2},
                         {"steps", 400},
                         {"early_stopping", {{"patience", 3}}}});
}

TEST_F(TrainProgram, EndsEarlyWhereEvaluationsShowNoGain) {
  const std::string program = train_program("resnet-rising", rising());
  const ProcessResult result =
      train(program, {"--save", at("s"), "--save-every", "2", "--keep", "100", "--log", at("log.jsonl")});
  EXPECT_EQ(result.status, 0) << result.err;
  double best = std::numeric_limits<double>::infinity();
  uint64_t best_step = 0, last_step = 0, without_gain = 0, evaluations = 0;
  for (const json& line : read_log(at("log.jsonl")).lines) {
    last_step = line["step"];
    if (!line.contains("eval_loss")) continue;
    EXPECT_LT(without_gain, 3u) << "an evaluation behind the end";
    ++evaluations;
    const bool gains = line["eval_loss"] < best;
    without_gain = gains ? 0 : without_gain + 1;
    if (gains) best = line["eval_loss"], best_step = last_step;
  }
  ASSERT_LT(last_step, 400u) << "it did not end early";
  EXPECT_EQ(without_gain, 3u);
  EXPECT_EQ(evaluations, last_step / 2);
  EXPECT_EQ(best_step + 6, last_step);
  const std::string line =
      "stopped early after step " + std::to_string(last_step) + ": the test loss has not fallen below ";
  EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(", of step " + std::to_string(best_step) +
                            ", for 3 evaluations (early_stopping.patience); the best is kept in " + at("s.best")),
            std::string::npos)
      << result.err;
  EXPECT_EQ(saved_step(at("s.best")), best_step) << "without --keep-best, and by the loss";
  EXPECT_EQ(json::parse(file_text(at("s/training.json")))["early_stopping"]["without_gain"], 3);

  // A resumed run must continue the count of evaluations without gain. This must also hold for the
  // last snapshot of a run, although it was saved before the last evaluation, so that its count
  // lacks this evaluation.
  const auto ends_at = [&](const Arguments& more) {
    Arguments arguments = {"--log", at("again.jsonl"), "--quiet"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    fs::remove(at("again.jsonl"));
    EXPECT_EQ(train(program, arguments).status, 0);
    const std::vector<json> lines = read_log(at("again.jsonl")).lines;
    return lines.empty() ? 0 : lines.back()["step"].get<uint64_t>();
  };
  EXPECT_EQ(ends_at({"--resume", at("s.step-" + std::to_string(last_step - 2))}), last_step);
  EXPECT_EQ(ends_at({"--resume", at("s.step-" + std::to_string(last_step - 4))}), last_step);
  quietly(program, {"--steps", std::to_string(last_step - 2), "--save", at("t")});
  EXPECT_EQ(ends_at({"--resume", at("t")}), last_step);
  EXPECT_EQ(ends_at({"--resume", at("s")}), 0u) << "it has ended already";
  const std::string blind =
      train_program("gpt-blind", with(gpt(), {{"evaluate_every", 2}, {"early_stopping", {{"patience", 1}}}}));
  expect_refusal(blind, {}, {"early_stopping", "nothing is evaluated", "data.held_out"});
}

TEST_F(TrainProgram, WhatIsHeldOutIsEvaluated) {
  const std::string program =
      train_program("gpt-held-out", with(gpt(), {{"data", {{"held_out", 0.1}}}, {"evaluate_every", 2}}));
  const ProcessResult whole = train(program, {"--log", at("log.jsonl"), "--save", at("s")});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.err.find(" more held out for evaluation, "), std::string::npos) << whole.err;
  quietly(program, {"--steps", "3", "--save", at("t"), "--log", at("parts.jsonl")});
  quietly(program, {"--resume", at("t"), "--log", at("parts.jsonl")});
  const std::vector<std::string> parts = read_log(at("parts.jsonl")).results(),
                                 all = read_log(at("log.jsonl")).results();
  EXPECT_EQ(all.size(), 6u + 3u);
  for (const std::string& line : all)
    EXPECT_NE(std::find(parts.begin(), parts.end(), line), parts.end()) << "a resumed run holds out the same: " << line;
  const json at_the_end = json::parse(train(program, {"--resume", at("s"), "--evaluate", "--json", "--quiet"}).out);
  EXPECT_NEAR(at_the_end["loss"].get<double>(), read_log(at("log.jsonl")).lines.back()["eval_loss"].get<double>(),
              1e-5);
}

TEST_F(TrainProgram, WeightsThatMakeNoSense) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--save", at("s")});
  const std::string good = file_text(at("s/model.safetensors"));
  const auto refuses = [&](const std::string& tensor, float value) {
    uint64_t length = 0;
    std::memcpy(&length, good.data(), 8);
    const uint64_t begin = json::parse(good.substr(8, length))[tensor]["data_offsets"][0];
    std::string damaged = good;
    std::memcpy(damaged.data() + 8 + length + begin + 4, &value, 4);
    write_text(at("w.safetensors"), damaged);
    expect_refusal(program, {"--init", at("w.safetensors")}, {"w.safetensors", tensor, "element 1"});
  };
  refuses("bn1.running_var", -0.5f);
  refuses("bn1.running_var", std::numeric_limits<float>::infinity());
  refuses("conv1.weight", std::numeric_limits<float>::quiet_NaN());
  refuses("fc.bias", -std::numeric_limits<float>::infinity());
}

TEST_F(TrainProgram, LogsAreAppendedAndForeignFilesStay) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--log", at("log.jsonl"), "--save", at("s")});
  const std::string first = file_text(at("log.jsonl"));
  quietly(program, {"--steps", "1", "--log", at("log.jsonl")});
  const std::string both = file_text(at("log.jsonl"));
  EXPECT_EQ(both.substr(0, first.size()), first) << "the first run's lines stay";
  EXPECT_GT(both.size(), first.size());
  write_text(at("log.jsonl"), first + first + "{\"step\": 3, \"lo");
  quietly(program, {"--resume", at("s"), "--steps", "3", "--log", at("log.jsonl")});
  const std::string resumed = file_text(at("log.jsonl"));
  EXPECT_EQ(resumed.substr(0, 2 * first.size()), first + first) << "a resumed run cuts nothing of the runs before";
  EXPECT_EQ(resumed.find("\"lo{"), std::string::npos) << resumed;
  for (const char* precious : {"dear diary\n", "{\"a\": 1}\n", "no line end"}) {
    write_text(at("diary"), precious);
    expect_refusal(program, {"--log", at("diary")}, {at("diary"), "--log", "line 1"});
    EXPECT_EQ(file_text(at("diary")), precious);
  }
  write_text(at("diary"), first + "no log at all, and no line end");
  expect_refusal(program, {"--log", at("diary")}, {at("diary"), "--log"});
  EXPECT_EQ(file_text(at("diary")), first + "no log at all, and no line end");
  expect_refusal(program, {"--save", at("s"), "--log", at("s/log.jsonl")}, {"s/log.jsonl", "--log", "beside"}, 2);
  Process writer({program, "--steps", "100000000", "--log", at("two.jsonl"), "--quiet"});
  ASSERT_TRUE(await([&] { return !file_text(at("two.jsonl")).empty(); }));
  expect_refusal(program, {"--steps", "2", "--log", at("two.jsonl")}, {"two.jsonl", "another run"});
}

TEST_F(TrainProgram, FullDiskWhileSaving) {
  const std::string program = resnet_stored();
  quietly(program, {"--steps", "2", "--save", at("s")});
  const std::string before = snapshot_tensors(at("s"));
  const auto largest = fs::file_size(at("s/model.safetensors"));
  for (const uint64_t limit : {largest / 2, largest - 1, uint64_t{8192}}) {
    ProcessOptions full_disk;
    full_disk.largest_file_bytes = limit;
    full_disk.environment = {"LC_ALL=C"};
    const ProcessResult result =
        train(program, {"--resume", at("s"), "--steps", "4", "--save", at("s"), "--quiet"}, full_disk);
    EXPECT_EQ(result.status, 1) << limit;
    EXPECT_TRUE(result.is_one_line_with({"model.safetensors", "written"})) << result.err;
    EXPECT_TRUE(snapshot_tensors(at("s")) == before) << "the snapshot of before must be whole";
    EXPECT_EQ(saved_step(at("s")), 2u);
    EXPECT_FALSE(fs::exists(at("s.saving")));
  }
  quietly(program, {"--resume", at("s"), "--steps", "4", "--save", at("s")});
}

// Returns a program whose plan spills boundaries to disk, because the budget is tight and the disk
// is cheap.
std::string resnet_spilling() {
  json recipe =
      with(resnet(),
           {{"model", {{"units", {3, 3, 3}}}},
            {"schedule", {{"strategy", "h-revolve"}, {"disk", "1MiB"}, {"write_cost", 0.1}, {"read_cost", 0.1}}}});
  recipe["budget"] = smallest_budget(recipe);
  return train_program("resnet-spilling", recipe);
}

TEST_F(TrainProgram, SpillFile) {
  const std::string program = resnet_spilling();
  quietly(program, {"--steps", "2", "--save", at("beside")});
  quietly(program, {"--steps", "2", "--save", at("there"), "--disk", at("spill")});
  EXPECT_TRUE(snapshot_tensors(at("beside")) == snapshot_tensors(at("there")));
  EXPECT_FALSE(fs::exists(at("spill")));
  for (const auto& entry : fs::directory_iterator(fs::path(program).parent_path())) {
    EXPECT_EQ(entry.path().filename().string().find(".spill"), std::string::npos) << entry.path();
  }
  EXPECT_NE(train(program, {"--help"}).out.find("--disk"), std::string::npos);
  EXPECT_EQ(train(resnet_stored(), {"--help"}).out.find("--disk"), std::string::npos)
      << "a plan without a disk has no such option";
  write_text(at("precious"), "text");
  expect_refusal(program, {"--disk", at("precious")}, {at("precious"), "KiB", "File exists"});
  EXPECT_EQ(file_text(at("precious")), "text");
  ProcessOptions full_disk;
  full_disk.largest_file_bytes = 1024;
  full_disk.environment = {"LC_ALL=C"};
  const ProcessResult full = train(program, {"--disk", at("spill"), "--quiet"}, full_disk);
  EXPECT_EQ(full.status, 1);
  EXPECT_TRUE(full.is_one_line_with({at("spill"), "KiB", "File too large"})) << full.err;
}

// Truncates the spill file by one byte again and again, until a read reaches the end of the file.
// If more bytes were removed, a later write could leave a gap of zeros, which a read would return.
TEST_F(TrainProgram, SpillFileThatFailsInAStepLeavesTheLastSnapshot) {
  const std::string program = resnet_spilling();
  Process process(
      {program, "--steps", "1000000", "--save", at("s"), "--save-every", "1", "--disk", at("spill"), "--quiet"});
  ASSERT_TRUE(await([&] { return fs::exists(at("s")); }));
  const std::string files = "/proc/" + std::to_string(process.id()) + "/fd";
  std::string spill;
  for (const auto& entry : fs::directory_iterator(files)) {
    std::error_code gone;  // the file may be closed by now
    if (fs::read_symlink(entry.path(), gone).string().find(at("spill")) == 0) spill = entry.path().string();
  }
  ASSERT_NE(spill, "");
  const off_t cut = static_cast<off_t>(fs::file_size(spill)) - 1;
  // Truncates repeatedly until the process ends.
  for (int i = 0; i < 1000000 && ::truncate(spill.c_str(), cut) == 0; ++i) sleep_seconds(0.0002);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.is_one_line_with({"spill file", "Input/output error"})) << result.err;
  const uint64_t step = saved_step(at("s"));
  EXPECT_FALSE(fs::exists(at("s.saving")));
  quietly(program, {"--steps", std::to_string(step), "--save", at("whole")});
  EXPECT_TRUE(snapshot_tensors(at("s")) == snapshot_tensors(at("whole"))) << "step " << step;
}

TEST_F(TrainProgram, BadData) {
  const std::string program = idx_program(), images = idx_folder() + "/train-images-idx3-ubyte",
                    labels = idx_folder() + "/train-labels-idx1-ubyte";
  const auto refuses = [&](const std::string& path, const std::function<void(std::string&)>& change,
                           const Arguments& fragments) {
    write_idx_data(idx_folder(), 24);
    std::string content = file_text(path);
    change(content);
    write_text(path, content);
    expect_refusal(program, {"--save", at("none")}, fragments);
    EXPECT_FALSE(fs::exists(at("none")));
    write_idx_data(idx_folder(), 24);
  };
  refuses(labels, [](std::string& s) { s[8 + 17] = 9; }, {"train-labels-idx1-ubyte", "17", "9", "from 0 to 3"});
  refuses(labels, [](std::string& s) { s.pop_back(); }, {"train-labels-idx1-ubyte"});
  refuses(images, [](std::string& s) { s.resize(s.size() / 2); }, {"train-images-idx3-ubyte"});
  refuses(images, [](std::string& s) { s.clear(); }, {"train-images-idx3-ubyte"});
  refuses(images, [](std::string& s) { s[3] = 7; }, {"train-images-idx3-ubyte"});
  refuses(images, [](std::string& s) { s[11] = 9; }, {"train-images-idx3-ubyte"});
  fs::remove(images);
  expect_refusal(program, {}, {"train-images-idx3-ubyte"});
  write_idx_data(idx_folder(), 24);
  const std::string text_program = gpt_stored(), text = build_folder() + "/test-programs/text.txt",
                    words = file_text(text);
  write_text(text, "short");
  expect_refusal(text_program, {}, {"text.txt"});
  fs::remove(text);
  expect_refusal(text_program, {}, {"text.txt"});
  write_text(text, words);
}

// The error is found in the middle of the training, when the image is decoded.
TEST_F(TrainProgram, ImageThatCannotBeDecoded) {
  const std::string folder = build_folder() + "/test-programs/photographs";
  for (const char* name : {"a", "b", "c", "d"}) {
    fs::create_directories(folder + "/" + name);
    for (const char* file : {"/1.pgm", "/2.pgm", "/3.pgm", "/4.pgm"})
      write_text(folder + "/" + name + file, "P5 8 8 255\n" + std::string(64, 'x'));
  }
  const json data = {{"kind", "image_folder"}, {"path", folder}, {"shuffle", false}};
  const std::string program = train_program("resnet-folder", with(resnet(), {{"data", data}, {"evaluate_every", 0}}));
  quietly(program, {"--steps", "5", "--log", at("log.jsonl")});
  write_text(folder + "/d/2.pgm", "no image");
  expect_refusal(program, {"--steps", "5", "--save", at("s"), "--save-every", "1", "--log", at("log.jsonl")},
                 {"d/2.pgm", "decoded"});
  EXPECT_EQ(read_log(at("log.jsonl")).lines.size(), 5u + 3u) << "the steps before it are done";
  EXPECT_EQ(saved_step(at("s")), 3u);
  // Without --save-every, the trained state must also be saved before the program ends.
  expect_refusal(program, {"--steps", "5", "--save", at("last")},
                 {"d/2.pgm", "decoded", "saved to " + at("last") + " after step 3"});
  EXPECT_TRUE(snapshot_tensors(at("last")) == snapshot_tensors(at("s")));
}

// Returns a recipe for 16 pictures of four classes, and writes the pictures. One picture of class d
// cannot be decoded.
json folder_with_a_broken_picture(const std::string& folder) {
  for (const char* name : {"a", "b", "c", "d"}) {
    fs::create_directories(folder + "/" + name);
    for (const char* file : {"/1.pgm", "/2.pgm", "/3.pgm", "/4.pgm"}) {
      write_text(folder + "/" + name + file,
                 "P5 8 8 255\n" + std::string(64, static_cast<char>('a' + 16 * (name[0] - 'a') + file[1] - '0')));
    }
  }
  write_text(folder + "/d/2.pgm", "no image");
  return with(resnet(), {{"data", {{"kind", "image_folder"}, {"path", folder}}}, {"evaluate_every", 0}});
}

TEST_F(TrainProgram, DataThatIsCheckedBeforeTraining) {
  const std::string folder = build_folder() + "/test-programs/checked";
  const std::string program = train_program("resnet-checked", folder_with_a_broken_picture(folder));
  const ProcessResult broken = train(program, {"--check-data"});
  EXPECT_EQ(broken.status, 1) << broken.err;
  EXPECT_EQ(broken.out.find(folder + "/d/2.pgm: cannot be decoded"), 0u) << broken.out;
  EXPECT_EQ(std::count(broken.out.begin(), broken.out.end(), '\n'), 1) << broken.out;
  fs::remove(folder + "/d/2.pgm");
  EXPECT_EQ(train(program, {"--check-data"}).status, 0);
  write_text(folder + "/d/notes.txt", "words");
  for (const Arguments& told : {Arguments{"--check-data"}, {"--steps", "1"}, {"--steps", "1", "--quiet"}}) {
    EXPECT_NE(train(program, told).err.find("warning: " + folder + ": 1 entry of its class folders is left out"),
              std::string::npos);
  }
  const ProcessResult profile =
      reprise_command({"profile", fs::path(program).parent_path() / "recipe.json", "-o", at("p.json")});
  EXPECT_EQ(profile.status, 0) << profile.err;
  EXPECT_EQ(profile.err.find("left out"), std::string::npos) << profile.err;
  fs::remove(folder + "/d/notes.txt");
  const ProcessResult text = train(gpt_stored(), {"--check-data"});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.err.find("tokens were checked"), std::string::npos) << text.err;
}

TEST_F(TrainProgram, ASkippedPictureIsNamedAndAResumedRunSkipsItToo) {
  const std::string folder = build_folder() + "/test-programs/skipping";
  json recipe = folder_with_a_broken_picture(folder);
  recipe["data"]["broken"] = "skip";
  const std::string program = train_program("resnet-skipping", recipe);
  const ProcessResult whole = train(program, {"--steps", "9", "--save", at("whole"), "--quiet"});
  EXPECT_EQ(whole.status, 0);
  EXPECT_TRUE(whole.is_one_line_with({"warning: " + folder + "/d/2.pgm: cannot be decoded", "skipped"})) << whole.err;
  EXPECT_EQ(train(program, {"--steps", "4", "--save", at("part")}).status, 0);
  EXPECT_EQ(train(program, {"--steps", "9", "--resume", at("part"), "--save", at("part")}).status, 0);
  EXPECT_TRUE(snapshot_tensors(at("whole")) == snapshot_tensors(at("part")));
}

// Another program truncates the file during the training.
TEST_F(TrainProgram, TextThatBecomesShorterInMidRun) {
  const std::string text = build_folder() + "/test-programs/shrinking.txt";
  write_text(text, file_text(gpt()["data"]["path"]));
  const std::string program =
      train_program("gpt-shrinking", with(gpt(), {{"data", {{"path", text}}}, {"lr_schedule", nullptr}}));
  Process process({program, "--steps", "1000000", "--log", at("log.jsonl"), "--quiet"});
  ASSERT_TRUE(await([&] { return read_log(at("log.jsonl")).lines.size() >= 3; }));
  fs::resize_file(text, 20);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(result.is_one_line_with({text, "has become shorter while it was in use", "20 now"})) << result.err;
}

TEST_F(TrainProgram, LossThatIsNotFinite) {
  const std::string program =
      train_program("resnet-wild", with(resnet(), {{"optimizer", {{"lr", 1e30}}}, {"evaluate_every", 0}}));
  expect_refusal(program, {"--steps", "50", "--save", at("s"), "--save-every", "1", "--log", at("log.jsonl")},
                 {"not finite", "step", "lr"});
  const Log log = read_log(at("log.jsonl"));
  ASSERT_FALSE(log.lines.empty());
  EXPECT_EQ(saved_step(at("s")), log.lines.back()["step"]) << "the snapshot is of the last good step";
  EXPECT_FALSE(fs::exists(at("s.saving")));
}

TEST_F(TrainProgram, WeightsOfAHuggingFaceFolder) {
  quietly(gpt_stored(), {"--steps", "3", "--save", at("s")});
  const std::string folder = build_folder() + "/test-programs/hf-model";
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const char* file : {"/config.json", "/model.safetensors"}) fs::copy_file(at("s") + file, folder + file);
  json recipe = gpt();
  recipe["model"] = {{"huggingface", folder}};
  const std::string program = train_program("gpt-hf", recipe);
  quietly(gpt_stored(), {"--steps", "1", "--init", at("s/model.safetensors"), "--log", at("init.jsonl")});
  quietly(program, {"--steps", "1", "--log", at("hf.jsonl"), "--save", at("h")});
  EXPECT_EQ(read_log(at("hf.jsonl")).results(), read_log(at("init.jsonl")).results());
  EXPECT_NE(train(program, {"--steps", "1"}).err.find("weights from " + folder), std::string::npos);
  quietly(gpt_stored(), {"--steps", "2", "--resume", at("h")});  // the folder contains the same model
  fs::remove(folder + "/model.safetensors");
  expect_refusal(program, {"--steps", "1", "--save", at("none")},
                 {folder, "no weights to start from", "\"init\": \"random\""});
  expect_refusal(program, {"--evaluate"}, {folder, "no weights to start from"});
  quietly(program, {"--steps", "1", "--init", at("s/model.safetensors")});
  write_text(folder + "/model.safetensors", "garbage");
  expect_refusal(program, {"--steps", "1"}, {"model.safetensors"});
}

// If a folder contains no weights in the expected format, the program must not train from the seed.
// It must name files that may be the weights: those of an incomplete download, or of an older
// format.
TEST_F(TrainProgram, AFolderWithoutItsWeightsIsNotTrainedFromTheSeed) {
  quietly(gpt_stored(), {"--steps", "1", "--save", at("s"), "--log", at("seed.jsonl")});
  const std::string folder = build_folder() + "/test-programs/hf-empty",
                    index = folder + "/model.safetensors.index.json";
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(at("s/config.json"), folder + "/config.json");
  json recipe = gpt();
  recipe["model"] = {{"huggingface", folder}};
  const std::string program = train_program("gpt-hf-empty", recipe);
  const auto refuses = [&](const Arguments& fragments) {
    expect_refusal(program, {"--steps", "1", "--save", at("none"), "--log", at("none.jsonl")}, fragments);
    for (const char* left : {"none", "none.saving", "none.jsonl"}) EXPECT_FALSE(fs::exists(at(left))) << left;
  };
  refuses({folder, "no weights to start from"});
  write_text(folder + "/pytorch_model.bin", "a pickle");
  refuses({folder, "pytorch_model.bin is not read", "model.safetensors"});
  write_text(index, R"({"weight_map": {"transformer.wte.weight": "model-00001-of-00002.safetensors"}})");
  refuses({"model-00001-of-00002.safetensors"});
  fs::remove(index);

  recipe["init"] = "random";
  const std::string random = train_program("gpt-hf-random", recipe);
  const ProcessResult drawn = train(random, {"--steps", "1", "--log", at("drawn.jsonl")});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_NE(drawn.err.find("weights drawn from the seed 9\n"), std::string::npos) << drawn.err;
  EXPECT_EQ(read_log(at("drawn.jsonl")).results(), read_log(at("seed.jsonl")).results());
  fs::copy_file(at("s/model.safetensors"), folder + "/model.safetensors");
  quietly(random, {"--steps", "1", "--log", at("again.jsonl")});
  EXPECT_EQ(read_log(at("again.jsonl")).results(), read_log(at("seed.jsonl")).results())
      << "although the folder has weights now";
}

TEST_F(TrainProgram, TheFirstLinesSayWhereTheWeightsComeFrom) {
  const auto says = [&](const Arguments& arguments, const std::string& line) {
    const ProcessResult result = train(gpt_stored(), arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find(line), std::string::npos) << line << " in " << result.err;
  };
  says({"--steps", "1", "--save", at("s")}, "\nweights drawn from the seed 9\n");
  says({"--steps", "1", "--init", at("s/model.safetensors")}, "\nweights from " + at("s/model.safetensors") + ": ");
  says({"--steps", "2", "--resume", at("s")}, "\nweights from the snapshot " + at("s") + ", after step 1\n");
}

// An evaluation must refuse a snapshot that was trained with another mean of pixels or with another
// model. If a training resumes the snapshot, another mean is only a warning.
TEST_F(TrainProgram, ASnapshotIsUsedAsItWasTrained) {
  const std::string program = idx_program();
  quietly(program, {"--steps", "1", "--save", at("s")});
  const json data = {{"kind", "idx"}, {"path", idx_folder()}, {"mean", 0.5}, {"std", 0.25}};
  const std::string other =
      train_program("resnet-idx-other-mean", with(resnet(), {{"data", data}, {"evaluate_every", 0}}));
  expect_refusal(other, {"--resume", at("s"), "--evaluate"},
                 {"s/training.json: recipe.data.mean: trained with none", "the recipe says", "0.5"});
  const ProcessResult goes_on = train(other, {"--resume", at("s"), "--steps", "2", "--quiet"});
  EXPECT_EQ(goes_on.status, 0);
  EXPECT_NE(goes_on.err.find("another \"data\" (mean: null, now"), std::string::npos) << goes_on.err;
  const std::string deeper = train_program("resnet-deeper", with(resnet(), {{"model", {{"units", {1, 1, 2}}}}}));
  expect_refusal(deeper, {"--resume", at("s"), "--evaluate"},
                 {"s/training.json: recipe.model", "another model (units: [1,1,1], now [1,1,2])"});
}

TEST_F(TrainProgram, WhatAPersonSees) {
  const ProcessResult result = train(gpt_tight(), {"--steps", "3"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.out, "");
  for (const char* fragment : {"steps 1 to 3", "tokens/s", "left", "(equal)", "sample:\n"}) {
    EXPECT_NE(result.err.find(fragment), std::string::npos) << fragment << " in " << result.err;
  }
  const std::string sample = result.err.substr(result.err.find("sample:\n"));
  EXPECT_GE(sample.size(), 300u);
  for (const char c : sample) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
  const ProcessResult images = train(resnet_stored(), {"--steps", "3"});
  for (const char* fragment : {"images/s", "test accuracy", "(equal)"})
    EXPECT_NE(images.err.find(fragment), std::string::npos) << fragment;
  const std::string any_backend = train_program("resnet-auto", with(resnet(), {{"backend", "auto"}}));
  EXPECT_NE(train(any_backend, {"--steps", "1"}).err.find("backend auto"), std::string::npos);
}

}  // namespace
}  // namespace reprise::test
