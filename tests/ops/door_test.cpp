// Violates each assertion at the entry of a kernel once. Each time the process must abort and print
// the violated condition.
#include <gtest/gtest.h>

#include "lib/trainer.h"
#include "tests/ports/test_machine.h"

namespace reprise::test {
namespace {

// Calls a row that sums dy[4,64] to db[64]. The rule of the row's kernel requires 4096 bytes of
// scratch.
class Door : public ::testing::Test {
 protected:
  Status call() {
    plan_.programs[0] = {.rows = {&row_, 1}, .arguments = {refs_, 3}, .slots = {slots_, 3}};
    Trainer trainer;
    trainer.plan = &plan_;
    trainer.backend = &test_backend();
    trainer.context.workers = &alone_;
    trainer.context.machine = trainer.backend->machine;
    trainer.arena = {{memory_ + shift_}, sizeof memory_ - shift_};
    return dispatch(trainer, plan_.programs[0], row_, false);
  }

  uint64_t shift_ = 0;
  Slot slots_[3] = {{.tensor = {0, 256, DType::kF32, 1, {64, 1, 1, 1}}},
                    {.tensor = {256, 1024, DType::kF32, 2, {4, 64, 1, 1}}},
                    {.tensor = {1280, 4096, DType::kU8, 1, {4096, 1, 1, 1}}}};

 private:
  alignas(kAlignment) unsigned char memory_[2 * kAlignment + 1280 + 4096] = {};
  Row row_ = {.op = Op::kLinear, .pass = Pass::kBackwardBias, .first_argument = 0};
  Ref refs_[3] = {0, 1, 2};
  Plan plan_;
  const Workers alone_ = {.stack_bytes = 1 << 20};
};

TEST_F(Door, LetsThroughWhatHolds) { EXPECT_TRUE(call().ok()); }

TEST_F(Door, StopsAMisalignedArgument) {
  shift_ = 64;
  EXPECT_DEATH((void)call(), "dispatch.cpp:[0-9]+: assertion failed: a kernel's arguments are aligned to 256 bytes");
}

TEST_F(Door, StopsAnArgumentOfNothing) {
  slots_[1].tensor.shape[0] = 0;
  EXPECT_DEATH((void)call(), "a kernel's arguments have elements");
}

TEST_F(Door, StopsTooLittleScratch) {
  slots_[2].tensor.bytes = 4096 - 256;
  EXPECT_DEATH((void)call(), "a kernel's scratch has the bytes of its rule");
}

}  // namespace
}  // namespace reprise::test
