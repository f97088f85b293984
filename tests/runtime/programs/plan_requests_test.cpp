// Tests each source of requests for another plan: a control file, read at any moment while it is
// written; memory pressure during simulated minutes; and signals. Also tests the order of many
// plans by size.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <random>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/process.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/io/text.h"
#include "tools/run/session/plan_signals.h"
#include "tools/run/training/heap_calls.h"
#include "tools/run/training/plan_requests.h"

namespace reprise {
namespace {

using test::write_text;

// ---- the control file ----

TEST(ControlFile, TheLastLineCounts) {
  const TemporaryFolder folder;
  const std::string path = folder.file("c");
  ControlFile file(path);
  EXPECT_FALSE(file.has_changed()) << "it may be made later";
  const std::pair<std::string, std::string> cases[] = {{"a\n", "a"},
                                                       {"a\nb", "b"},
                                                       {"a\n \t b c \r\n\n \n", "b c"},
                                                       {"", ""},
                                                       {"\n\n", ""},
                                                       {"x", "x"},
                                                       {std::string(5000, 'y') + "\nz\n", "z"},
                                                       {std::string(9000, 'y'), std::string(4096, 'y')},
                                                       {std::string("a\0b\n", 4), std::string("a\0b", 3)}};
  for (const auto& [text, line] : cases) {
    write_text(path, text);
    EXPECT_TRUE(file.has_changed()) << text.substr(0, 20);
    EXPECT_EQ(file.last_line(), line) << text.substr(0, 20);
    EXPECT_FALSE(file.has_changed()) << text.substr(0, 20);
  }
  ::remove(path.c_str());
  EXPECT_FALSE(file.has_changed());
  EXPECT_TRUE(file.says("")) << "what is no longer there says nothing";
  for (const char* other : {"/dev/null", "/tmp"})
    expect_user_error([&] { ControlFile refused(other); }, {other, "--control", "FIFO"});
}

TEST(ControlFile, OfAFifoWholeLines) {
  const TemporaryFolder folder;
  const std::string path = folder.file("fifo");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  ControlFile file(path);
  EXPECT_FALSE(file.has_changed()) << "nobody waits for a writer";
  const auto say = [&](const std::string& text) { std::ofstream(path, std::ios::app) << text << std::flush; };
  say("one\ntw");
  EXPECT_TRUE(file.has_changed());
  EXPECT_EQ(file.last_line(), "one");
  EXPECT_FALSE(file.has_changed());
  EXPECT_TRUE(file.says("one")) << "until another comes";
  say("o\n");
  EXPECT_TRUE(file.has_changed());
  EXPECT_EQ(file.last_line(), "two");
  say("two\n");
  EXPECT_TRUE(file.has_changed()) << "said again";
  say(std::string(20000, 'x') + "\nthree\n");
  EXPECT_TRUE(file.has_changed());
  EXPECT_EQ(file.last_line(), "three");
}

TEST(ControlFile, TakesNoHeap) {
  if (!heap_calls()) GTEST_SKIP() << "heap calls cannot be counted here";
  const TemporaryFolder folder;
  write_text(folder.file("c"), "budget 1\n");
  ControlFile file(folder.file("c"));
  const uint64_t before = *heap_calls();
  for (int i = 0; i < 10; ++i) (void)file.has_changed(), (void)file.says(kPauseCommand);
  EXPECT_EQ(*heap_calls(), before);
}

// ---- memory pressure ----

TEST(PressureFile, SaysTheShareOrWhyNot) {
  const TemporaryFolder folder;
  const std::string path = folder.file("p");
  std::string problem;
  EXPECT_FALSE(PressureFile(path).read(problem));
  EXPECT_NE(problem.find("this kernel does not tell"), std::string::npos) << problem;
  const auto share = [&](const std::string& text) {
    write_text(path, text);
    return PressureFile(path).read(problem);
  };
  EXPECT_EQ(
      share("some avg10=1.53 avg60=0.87 avg300=0.22 total=6647206\nfull avg10=7.00 avg60=0.00 avg300=0.00 total=1\n"),
      1.53);
  EXPECT_EQ(share("some avg10=100.00 avg60=0"), 100.0);
  for (const char* text :
       {"", "full avg10=1.00", "some avg10=", "some avg10=x", "some avg10=-1", "some avg10=nan", "some avg10=101"}) {
    EXPECT_FALSE(share(text)) << text;
    EXPECT_NE(problem.find("some avg10="), std::string::npos) << problem;
  }
  EXPECT_FALSE(PressureFile("/tmp").read(problem)) << "a folder";
}

// Simulates a machine for `seconds` seconds. share(is_large, since_change, now) is the memory
// pressure in per cent while the larger or the smaller plan runs. Returns how often the plan
// changes.
int changes_in(double seconds, double threshold,
               const std::function<double(bool is_large, double since_change, double now)>& share) {
  PressureJudge judge(threshold);
  bool is_large = true;
  double changed = -1000;
  int changes = 0;
  for (double now = 0; now < seconds; now += 0.25) {
    if (!judge.is_due(now)) continue;
    const int up = judge.judge(share(is_large, now - changed, now), now);
    if ((up > 0) == is_large || up == 0) continue;
    judge.changed(up, now);
    is_large = up > 0;
    changed = now;
    ++changes;
  }
  return changes;
}

TEST(PressureJudge, DoesNotFlap) {
  // The larger plan always causes pressure. It is tried again after 60 s, 120 s, 240 s, ..., and at
  // last every hour.
  const auto always = [](bool is_large, double, double) { return is_large ? 40.0 : 0.0; };
  const int in_an_hour = changes_in(3600, 10, always);
  EXPECT_GE(in_an_hour, 5);
  EXPECT_LE(in_an_hour, 13);
  EXPECT_LE(changes_in(86400, 10, always), 13 + 2 * 24);
  // The pressure is an average over 10 seconds, which falls slowly after its cause has ended.
  const auto lags = [](bool is_large, double since, double now) {
    return is_large && now < 100 ? 40.0 : 40.0 * std::exp(-since / 10);
  };
  EXPECT_EQ(changes_in(75, 10, lags), 1) << "what was given back shows only later";
  // Pressure between half of the threshold and the threshold must not change the plan, so that it
  // does not change back and forth near the threshold.
  EXPECT_EQ(changes_in(3600, 10, [](bool, double, double now) { return static_cast<int>(now) % 2 == 0 ? 5.0 : 9.9; }),
            0);
  EXPECT_EQ(changes_in(3600, 10, [](bool, double, double now) { return now < 1 ? 10.0 : 5.0; }), 1);
  // After short pressure, the smaller plan must take over immediately, and the larger plan a minute
  // after the end of the pressure.
  EXPECT_EQ(changes_in(65, 10, [](bool, double, double now) { return now < 10 ? 50.0 : 0.0; }), 1);
  EXPECT_EQ(changes_in(80, 10, [](bool, double, double now) { return now < 10 ? 50.0 : 0.0; }), 2);
}

// ---- signals, sizes, and priorities ----

// A program with four plans of one recipe, which are not in the order of their sizes.
struct Program {
  Program() {
    const Recipe recipe = recipe_from(gpt_recipe());
    runs.push_back(std::make_unique<PlannedRun>(plan_run(recipe, "optimal", 0.5)));
    runs.push_back(std::make_unique<PlannedRun>(plan_run(recipe, "none")));
    runs.push_back(std::make_unique<PlannedRun>(plan_run(recipe, "optimal", 0)));
    runs.push_back(std::make_unique<PlannedRun>(plan_run(recipe, "optimal", 0.25)));
    views.reserve(runs.size());
    for (const auto& run : runs) {
      views.push_back(run->planned.plan.view());
      Recipe own = recipe;
      own.budget_bytes = views.back().arena_bytes;
      texts.push_back(canonical_recipe(own));
    }
    for (size_t i = 0; i < runs.size(); ++i) written.push_back({&views[i], texts[i].c_str(), "", ""});
  }
  CompiledPlan compiled() const {
    return plan_at({views[0], "", "", test_port, "", {written.data(), static_cast<uint32_t>(written.size())}}, 0);
  }

  static inline const Port test_port = {};
  std::vector<std::unique_ptr<PlannedRun>> runs;
  std::vector<Plan> views;
  std::vector<std::string> texts;
  std::vector<WrittenPlan> written;
};

TEST(PlanSizes, OfManyPlans) {
  const Program program;
  const PlanSizes sizes(program.compiled());
  ASSERT_GT(program.views[1].arena_bytes, program.views[0].arena_bytes);
  ASSERT_GT(program.views[0].arena_bytes, program.views[3].arena_bytes);
  ASSERT_GT(program.views[3].arena_bytes, program.views[2].arena_bytes);
  EXPECT_EQ(sizes.moved(1, -1), 0u);
  EXPECT_EQ(sizes.moved(0, -1), 3u);
  EXPECT_EQ(sizes.moved(0, -7), 2u);
  EXPECT_EQ(sizes.moved(2, 2), 0u);
  EXPECT_EQ(sizes.moved(2, 100), 1u);
  EXPECT_TRUE(sizes.is_smaller(2, 3));
  EXPECT_FALSE(sizes.is_smaller(1, 3));
  std::string problem;
  for (uint32_t plan = 0; plan < 4; ++plan) {
    EXPECT_EQ(sizes.find(std::to_string(plan), problem), plan);
    EXPECT_EQ(sizes.find(std::to_string(program.views[plan].arena_bytes), problem), plan);
  }
  EXPECT_EQ(sizes.find(std::to_string(program.views[1].arena_bytes - 1), problem), 0u);
  EXPECT_EQ(sizes.find("1TiB", problem), 1u);
  for (const char* wrong : {"4", "-1", "", "x", "1KiB", "1 2", "00"}) EXPECT_FALSE(sizes.find(wrong, problem)) << wrong;
}

TEST(PlanRequests, WhatAPersonSaysBoundsWhatPressureTakesAgain) {
  const Program program;
  const PlanSizes sizes(program.compiled());
  const TemporaryFolder folder;
  ProgramOptions options;
  options.pressure = 10;
  options.pressure_file = folder.file("p");
  const auto pressure = [&](double share) {
    write_text(options.pressure_file, "some avg10=" + std::to_string(share) + " ");
  };
  set_up_plan_signals(4);
  pressure(0);
  ControlFile control(folder.file("c"));
  PlanRequests requests(sizes, options, &control, 1);
  uint32_t now = 1;
  double seconds = 0;
  // Simulates `duration` seconds of training, and returns the plan that is in use afterwards.
  const auto live = [&](double duration) {
    for (const double end = seconds + duration; seconds < end; seconds += 0.5) {
      if (const std::optional<PlanRequest> request = requests.take(now, seconds)) now = request->plan;
    }
    return now;
  };
  EXPECT_EQ(live(200), 1u);
  ::raise(SIGUSR1);
  ::raise(SIGUSR1);
  EXPECT_EQ(live(1), 3u) << "two smaller";
  for (int n = 0; n < 5; ++n) ::raise(SIGUSR1);
  ::raise(SIGUSR2);
  ::raise(SIGUSR2);
  EXPECT_EQ(live(200), 0u) << "the smallest, and two larger again; no pressure, but nobody has asked for the largest";
  pressure(50);
  EXPECT_EQ(live(5), 3u);
  EXPECT_EQ(live(20), 2u) << "one was not enough";
  pressure(0);
  EXPECT_EQ(live(59), 2u);
  EXPECT_EQ(live(5), 3u);
  EXPECT_EQ(live(70), 0u);
  EXPECT_EQ(live(1000), 0u) << "what was said";
  write_text(control.path(), "budget 2\n");
  EXPECT_EQ(live(300), 2u) << "what was said last";
  for (const char* other : {"pause\n", "go\n"}) {
    write_text(control.path(), other);
    EXPECT_FALSE(requests.take(now, seconds)) << other << "asks for no plan";
  }
  write_text(control.path(), "budget 1\n");
  control.look();
  EXPECT_EQ(live(1), 1u) << "what somebody else has looked at is not lost";
  write_text(control.path(), "budget 2\n");
  EXPECT_EQ(live(1), 2u);
  write_text(control.path(), "nonsense\n");
  const std::optional<PlanRequest> warning = requests.take(now, seconds);
  ASSERT_TRUE(warning);
  EXPECT_TRUE(warning->is_warning);
  EXPECT_EQ(warning->plan, 2u);
  ::signal(SIGUSR1, SIG_DFL);
  ::signal(SIGUSR2, SIG_DFL);
}

}  // namespace
}  // namespace reprise
