// Tests that a plan read from a plan file equals the written plan and has the same verdict of
// check(). A changed file must be refused. A program that reads its plan at run time relies only on
// the plan file and on check().
#include "tools/plan/writing/plan_file.h"

#include <gtest/gtest.h>

#include <random>

#include "lib/check.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/judges/directed_mutants.h"
#include "tests/judges/mutants.h"
#include "tests/judges/sample_plans.h"
#include "tools/files/formats/checksum.h"

namespace reprise::testing {
namespace {

std::vector<OwnedPlan> good_plans() {
  return {SampleConvNet().make(), SampleTransformer().make(), SampleReleased().make()};
}

std::string file_of(const OwnedPlan& plan) {
  const char recipe[] = "{\"name\": \"of nothing\"}\n";
  FiledPlan filed{plan, recipe, "a summary\nof two lines", "0123456789abcdef"};
  filed.plan.recipe_hash = text_hash(recipe);
  return plan_file({filed});
}
OwnedPlan again(const OwnedPlan& plan) { return parse_plan_file(file_of(plan), "plan.bin").front().plan; }

Verdict verdict_of(const OwnedPlan& owned) {
  const Plan plan = owned.view();
  std::vector<CheckMark> marks(check_marks(plan));
  return check(plan, marks.data(), kSampleRules);
}

// Returns the offset of the tables of plans, which follow four lines of text.
size_t begin_of_plans(const std::string& file) {
  size_t at = 0;
  for (int line = 0; line < 4; ++line) at = file.find('\n', at) + 1;
  return at;
}

// Returns the file with other tables of plans, and with the size and checksum of these.
std::string with_plans(const std::string& file, const std::string& plans) {
  const size_t contract_end = file.find('\n', file.find('\n') + 1) + 1;
  return file.substr(0, contract_end) + std::to_string(plans.size()) + "\n" + checksum_of(plans) + "\n" + plans;
}

TEST(PlanFile, GivesBackWhatWentIn) {
  for (const OwnedPlan& plan : good_plans()) {
    const std::string file = file_of(plan);
    const std::vector<FiledPlan> read = parse_plan_file(file, "plan.bin");
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(plan_file(read), file);
    EXPECT_EQ(read[0].summary, "a summary\nof two lines");
    EXPECT_EQ(read[0].hash, "0123456789abcdef");
    EXPECT_EQ(read[0].plan.view().program(ProgramId::kMicroFirst).rows.count,
              plan.view().program(ProgramId::kMicroFirst).rows.count);
    EXPECT_STREQ(read[0].plan.view().state[kFirstTrained].name, plan.view().state[kFirstTrained].name);
    EXPECT_TRUE(verdict_of(read[0].plan).ok());
  }
}

// check() must report the same fault, program, row and slot for a faulty plan and for the plan that
// is read back from its file.
TEST(PlanFile, AFaultyPlanIsProvedFaulty) {
  size_t faulty = 0;
  for (const OwnedPlan& plan : good_plans()) {
    std::vector<PlanMutant> mutants = make_directed_mutants(plan);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      for (PlanMutant& mutant : make_mutants(plan, seed)) mutants.push_back(std::move(mutant));
    }
    for (const PlanMutant& mutant : mutants) {
      const Verdict before = verdict_of(mutant.plan), after = verdict_of(again(mutant.plan));
      EXPECT_TRUE(before.fault == after.fault && before.program == after.program && before.row == after.row &&
                  before.slot == after.slot)
          << mutant.name;
      faulty += !after.ok();
    }
  }
  EXPECT_GT(faulty, 300u);
}

TEST(PlanFile, EveryFlippedBitIsRefused) {
  const std::string file = file_of(SampleConvNet().make());
  std::mt19937_64 random(1);
  for (size_t at = 0; at < file.size(); ++at) {
    std::string flipped = file;
    flipped[at] = static_cast<char>(flipped[at] ^ 1 << random() % 8);
    EXPECT_THROW(parse_plan_file(flipped, "plan.bin"), UserError) << "byte " << at;
  }
  for (size_t size = 0; size < file.size(); size += 1 + size / 7)
    EXPECT_THROW(parse_plan_file(file.substr(0, size), "plan.bin"), UserError) << size << " bytes";
  EXPECT_THROW(parse_plan_file(file + "\n", "plan.bin"), UserError);
}

// Reads forged plans with a correct checksum. The reader may accept or refuse each. check() may
// accept or refuse each plan that was read. Neither may crash.
TEST(PlanFile, ForgedPlansAreReadOrRefusedAndJudged) {
  const std::string file = file_of(SampleTransformer().make()), plans = file.substr(begin_of_plans(file));
  std::mt19937_64 random(2);
  size_t read = 0, safe = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string forged = plans;
    for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      char& byte = forged[random() % forged.size()];
      const char values[] = {0, -1, 1, 127, static_cast<char>(random()), static_cast<char>(byte + 1)};
      byte = values[random() % std::size(values)];
    }
    try {
      const std::vector<FiledPlan> filed = parse_plan_file(with_plans(file, forged), "plan.bin");
      ++read;
      for (const FiledPlan& each : filed) safe += verdict_of(each.plan).ok();
    } catch (const UserError&) {
    }
  }
  EXPECT_GT(read, 1000u);
  EXPECT_GT(read - safe, 500u);
}

// A file can contain numbers that are no value of an enum, which the compiler would refuse in
// plan.h.
TEST(PlanFile, KindsThatNobodyKnowsAreFaults) {
  OwnedPlan plan = SampleConvNet().make();
  plan.state.back().kind = static_cast<StateKind>(255);
  EXPECT_EQ(verdict_of(again(plan)).fault, Fault::kFormat);
  plan = SampleConvNet().make();
  plan.state.back().init = static_cast<InitKind>(4);
  EXPECT_EQ(verdict_of(again(plan)).fault, Fault::kFormat);
  plan = SampleConvNet().make();
  plan.spill_level = static_cast<SpillLevel>(2);
  EXPECT_EQ(verdict_of(again(plan)).fault, Fault::kFormat);
}

TEST(PlanFile, RefusalsNameWhatIsWrong) {
  const std::string file = file_of(SampleConvNet().make());
  const auto refuses = [](const std::string& bytes, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { parse_plan_file(bytes, "plan.bin"); }, fragments);
  };
  refuses("", {"plan.bin", "is no plan file"});
  refuses("{\"model\": 1}\n", {"plan.bin", "is no plan file"});
  std::string other = file;
  other[13] = '1';
  refuses(other, {"plan.bin: version", "\"1\"", "\"3\""});
  other = file;
  const size_t contract = file.find('\n') + 1;
  other[contract] = other[contract] == '0' ? '1' : '0';
  refuses(other, {"plan.bin: kernels", "another version of Reprise"});
  refuses(file.substr(0, file.size() - 1), {"plan.bin: bytes", "should be"});
  other = file;
  other.back() = static_cast<char>(other.back() ^ 1);
  refuses(other, {"plan.bin: checksum"});
  refuses(with_plans(file, file.substr(begin_of_plans(file), 100)), {"ends in the middle"});
  refuses(with_plans(file, file.substr(begin_of_plans(file)) + "x"), {"bytes lie behind"});
  refuses(with_plans(file, std::string(4, '\0')), {"holds no plan"});
  FiledPlan wrong{SampleConvNet().make(), "a recipe", "", ""};
  wrong.plan.recipe_hash = 1;
  refuses(plan_file({wrong}), {"recipe", "not the one that the plan was made from"});
}

}  // namespace
}  // namespace reprise::testing
