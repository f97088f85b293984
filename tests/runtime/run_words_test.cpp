// Tests the texts that a run prints: epochs, seconds, and commands, which a shell must parse to the
// intended arguments.
#include "tools/run/training/run_words.h"

#include <gtest/gtest.h>

#include "tests/interfaces/expect_user_error.h"
#include "tools/run/training/epoch_plans.h"

namespace reprise::test {
namespace {

TEST(RunWords, Passes) {
  const std::pair<double, const char*> cases[] = {{200.0 / 7, "29 passes"}, {1, "1 pass"},        {1.02, "1 pass"},
                                                  {0.5, "0.5 passes"},      {2.0053, "2 passes"}, {9.96, "10 passes"},
                                                  {3.33, "3.3 passes"}};
  for (const auto& [passes, words] : cases) EXPECT_EQ(passes_text(passes), words);
}

TEST(RunWords, Durations) {
  const std::pair<double, const char*> cases[] = {{0.04, "0.0 s"},      {59.94, "59.9 s"},       {59.96, "1 min 0 s"},
                                                  {99.4, "1 min 39 s"}, {3599.4, "59 min 59 s"}, {3599.6, "1 h 0 min"},
                                                  {7530, "2 h 5 min"}};
  for (const auto& [seconds, words] : cases) EXPECT_EQ(duration_text(seconds), words);
}

TEST(RunWords, ACommandGoesOnWithItsOwnOptions) {
  ProgramOptions options;
  options.command = "my/net/train";
  options.save = "my weights";
  options.arguments = {"--save", "my weights", "--steps", "9", "--resume", "old", "--overwrite"};
  EXPECT_EQ(continuing_command(options), "my/net/train --save 'my weights' --steps 9 --continue");
  options.arguments = {"--continue", "--save=my weights"};
  EXPECT_EQ(continuing_command(options), "my/net/train --continue '--save=my weights'");
  options.command = "my/net/train --plan 96MiB";
  options.arguments = {"--plan", "96MiB", "--save", "my weights"};
  EXPECT_EQ(continuing_command(options), "my/net/train --plan 96MiB --save 'my weights' --continue");
  options.arguments = {"--plan=96MiB", "--save", "my weights"};
  EXPECT_EQ(continuing_command(options), "my/net/train --plan 96MiB --save 'my weights' --continue");
  options.save = "";
  EXPECT_EQ(continuing_command(options), "");
}

class CountedSet : public Dataset {
 public:
  explicit CountedSet(uint64_t size) { size_ = size; }
  uint64_t fill(uint64_t, uint64_t, BatchSink&) override { return 0; }
};

// A step consists of the micro-batches of all ranks, so more ranks mean fewer steps in an epoch.
TEST(Epochs, AreStepsOfAllRanks) {
  Recipe recipe;
  recipe.batch = 4;
  EXPECT_EQ(steps_of_epochs(1, recipe, CountedSet(60)), 15u);
  EXPECT_EQ(steps_of_epochs(1, recipe, CountedSet(61)), 16u);
  EXPECT_EQ(steps_of_epochs(0.1, recipe, CountedSet(120)), 3u)
      << "0.1 x 120 / 4, whose product is a little more than 3";
  EXPECT_EQ(steps_of_epochs(0.001, recipe, CountedSet(60)), 1u);
  recipe.accumulate = 2;
  recipe.parallel = ParallelRecipe{};
  recipe.parallel->ranks = 3;
  EXPECT_EQ(steps_of_epochs(2, recipe, CountedSet(60)), 5u) << "120 samples, 24 in a step";
  EXPECT_THROW((void)steps_of_epochs(1e9, recipe, CountedSet(1000000)), UserError);
}

}  // namespace
}  // namespace reprise::test
