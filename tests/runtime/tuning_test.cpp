// Tests that measured tuning changes no bit, and that its file is used only on the machine for
// which it was measured.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "lib/cpu/tuning.h"
#include "tests/runtime/expect_same.h"

namespace reprise {
namespace {

CpuBlocking random_blocking(std::mt19937& random) {
  CpuBlocking blocking = test::port_machine()->blocking;
  for (const BlockingField& field : kBlockingFields) {
    const uint32_t maximum = field.maximum == ~0u ? 2048 : field.maximum;  // 2048 is larger than any block
    blocking.*field.value = std::uniform_int_distribution<uint32_t>(field.minimum, maximum)(random);
  }
  return blocking;
}

// Returns recipes so wide that products have several blocks of columns and of depths, and that a
// convolution uses Winograd.
std::vector<std::string> wide_recipes() {
  return {
      R"({"name": "wide-gpt", "model": {"family": "gpt2", "vocab_size": 1100, "n_positions": 40, "n_embd": 320, "n_layer": 1, "n_head": 4},
             "data": {"kind": "synthetic"}, "batch": 2, "sequence": 40, "steps": 3, "seed": 4, "optimizer": {"name": "adamw", "lr": 0.003}})",
      R"({"name": "wide-resnet", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 64, "stem": "cifar", "classes": 5,
             "image": [13, 11, 3]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 3, "seed": 3, "optimizer": {"name": "sgd", "lr": 0.05}})"};
}

TEST(Tuning, ChangesNoBitOfATraining) {
  std::mt19937 random(1);
  for (const std::string& text : wide_recipes()) {
    const Recipe recipe = recipe_from(text);
    const PlannedRun run = plan_run(recipe, "optimal", 0.3);
    const RunResult expected = train_plan(run.planned.plan, recipe, {.steps = 3});
    for (uint32_t table = 0; table < 20; ++table) {
      CpuMachine machine = *test::port_machine();
      machine.blocking = random_blocking(random);
      const Backend backend = cpu_backend(machine);
      expect_same(expected,
                  train_plan(run.planned.plan, recipe, {.steps = 3, .workers = 1 + table % 3, .backend = &backend}),
                  recipe.name + ", table " + std::to_string(table));
    }
  }
}

void expect_in_range(const CpuBlocking& blocking) {
  for (const BlockingField& field : kBlockingFields) {
    EXPECT_GE(blocking.*field.value, field.minimum) << field.name;
    EXPECT_LE(blocking.*field.value, field.maximum) << field.name;
  }
}

bool same(const CpuBlocking& a, const CpuBlocking& b) {
  for (const BlockingField& field : kBlockingFields) {
    if (a.*field.value != b.*field.value) return false;
  }
  return true;
}

struct Space {
  std::vector<unsigned char> memory = std::vector<unsigned char>(kTuningBytes + kAlignment);
  void* get() {
    return memory.data() + (kAlignment - reinterpret_cast<uintptr_t>(memory.data()) % kAlignment) % kAlignment;
  }
};

TEST(Tuning, MeasuresWithinWhatKernelsTake) {
  Space space;
  expect_in_range(measure_blocking(*test::port_machine(), lasting_workers(),
                                   {.seconds = linux_port().seconds, .at_most = 0.1}, space.get()));
}

// This clock advances a second at each call. So there is no time for any measurement, and the
// derived values must remain.
TEST(Tuning, LeavesOutWhatItHasNoTimeFor) {
  Space space;
  const auto slow = [] {
    static double now = 0;
    return now += 1;
  };
  const CpuMachine& machine = *test::port_machine();
  EXPECT_TRUE(same(measure_blocking(machine, lasting_workers(), {.seconds = slow, .at_most = 0.3}, space.get()),
                   machine.blocking));
}

// This clock advances a millisecond at each reading, as if each measured call took so long. The
// number of readings depends on the processor's caches: 97 on a Xeon at 2.5 GHz, and 28 if nothing
// can be measured.
TEST(Tuning, EndsInTime) {
  Space space;
  static double now = 0;
  const auto steady = [] { return now += 1e-3; };
  (void)measure_blocking(*test::port_machine(), lasting_workers(), {.seconds = steady}, space.get());
  EXPECT_LE(now, 0.3);
  EXPECT_GT(now, 0.05) << "nothing was measured";
}

// ---- the file ----

class TuningFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / "reprise-tuning-test";
    std::filesystem::remove_all(folder_);
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    ASSERT_NE(test::port_machine(), nullptr);
  }
  void TearDown() override {
    before_ ? ::setenv("XDG_CACHE_HOME", before_->c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }

  static Tuning tune(TuningMode mode, uint32_t workers = 0) {
    (void)test::port_machine();  // opens the machine again, with derived values
    Workers some = lasting_workers();
    if (workers != 0) some = {.count = workers};
    return linux_port().tune_backend(some, mode);
  }
  // Returns the current values of the port's machine.
  static CpuBlocking now() {
    return static_cast<const CpuMachine*>(machine_)->blocking;
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
  std::optional<std::string> before_;  // value of XDG_CACHE_HOME before the test; none if it was not set
  static inline const void* machine_ = test::port_machine();
};

TEST_F(TuningFile, IsMadeOnceAndReadThen) {
  EXPECT_FALSE(tune(TuningMode::kLook).taken);
  EXPECT_FALSE(std::filesystem::exists(folder_));
  const Tuning made = tune(TuningMode::kUse);
  EXPECT_TRUE(made.taken);
  EXPECT_STREQ(made.problem, "");
  const CpuBlocking measured = now();
  const std::string text = text_of(made.file);
  EXPECT_NE(text.find(test::port_machine()->kernel_set), std::string::npos);
  const Tuning read = tune(TuningMode::kUse);
  EXPECT_TRUE(read.taken);
  EXPECT_TRUE(same(now(), measured));
  EXPECT_EQ(text_of(made.file), text);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "reprise"), {}), 1)
      << "one file, nothing half-written beside it";
  EXPECT_STRNE(tune(TuningMode::kLook, 1).file, made.file) << "of another number of workers";
}

TEST_F(TuningFile, IsPassedOverWhereItIsNotWhatWasWritten) {
  const std::string path = tune(TuningMode::kUse).file, text = text_of(path);
  const size_t columns = text.find("columns ");
  const std::string head = text.substr(0, columns), fields = text.substr(columns);
  const std::string wrong[] = {"",
                               "\n",
                               head,
                               fields,
                               text.substr(0, text.size() - 1),
                               text + "more 1\n",
                               head + "columns 63\n" + fields.substr(fields.find('\n') + 1),
                               head + "columns -1\n" + fields.substr(fields.find('\n') + 1),
                               head + "columns 99999999999999999999999\n" + fields.substr(fields.find('\n') + 1),
                               "x" + text,
                               std::string(100000, 'c'),
                               std::string(text).replace(text.find("workers"), 9, "workers 9")};
  for (const std::string& content : wrong) {
    std::ofstream(path) << content;
    const CpuBlocking derived = test::port_machine()->blocking;
    const Tuning tuning = tune(TuningMode::kLook);
    EXPECT_FALSE(tuning.taken) << content.substr(0, 300);
    EXPECT_STRNE(tuning.problem, "") << content.substr(0, 300);
    EXPECT_TRUE(same(now(), derived));
  }
  const Tuning mended = tune(TuningMode::kUse);
  EXPECT_TRUE(mended.taken);
  EXPECT_STRNE(mended.problem, "") << "that it was passed over is said";
  EXPECT_STREQ(tune(TuningMode::kLook).problem, "");
}

TEST_F(TuningFile, IsDoneWithoutWhereItCannotBeWritten) {
  std::ofstream(folder_) << "a file in the folder's place";
  const Tuning tuning = tune(TuningMode::kUse);
  EXPECT_TRUE(tuning.taken);
  EXPECT_NE(std::strstr(tuning.problem, "cannot be"), nullptr) << tuning.problem;
}

}  // namespace
}  // namespace reprise
