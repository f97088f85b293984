// Tests spilling to a disk, end to end. Spilled values must return however late the disk works.
// Every fault of a disk must stop the step with a Status, without a changed weight or a pending
// transfer. Schedule, layout, rows, trainer and port must always agree on the content of the disk.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/judges/plan_edit.h"
#include "tests/runtime/fake_disk.h"
#include "tests/runtime/training_harness.h"

namespace reprise {
namespace {

// A plan that spills, with its trainer. A test binds it to a disk.
class SpillingNet {
 public:
  SpillingNet(const std::string& recipe, const char* strategy)
      : recipe_(recipe_from(recipe)),
        run_(plan_run(recipe_, strategy, 0)),
        plan_(run_.planned.plan.view()),
        arena_(plan_.arena_bytes),
        data_(open_dataset(recipe_, Split::kTraining)) {
    EXPECT_GT(plan_.spill_bytes, 0u);
  }

  const Plan& plan() const { return plan_; }
  Status bind_with(const Disk& disk) {
    return bind_plan(plan_, test::test_backend(), alone_, arena_.get(), trainer, disk);
  }
  Status step() {
    StepReport report;
    return train_step(trainer, source_of(*data_), report);
  }
  // Returns the bytes of parameters and momenta.
  std::string weights() const {
    std::string bytes;
    for (uint32_t i = 0; i < plan_.state.count; ++i) {
      if (plan_.state[i].kind != StateKind::kParameter && plan_.state[i].kind != StateKind::kOptimizer) continue;
      const std::vector<unsigned char> tensor = bytes_at(trainer, trainer.state_tensor(i), plan_.state[i].tensor.bytes);
      bytes.append(tensor.begin(), tensor.end());
    }
    return bytes;
  }

  Trainer trainer;

 private:
  const Recipe recipe_;
  const PlannedRun run_;
  const Plan plan_;
  const TestArena arena_;
  const Workers alone_ = {.stack_bytes = 1 << 20};
  std::unique_ptr<Dataset> data_;
};

TEST(Disk, LateAndEarlyDisksGiveTheSameBits) {
  for (const std::string& recipe : {resnet_recipe(), gpt_recipe(R"(, "accumulate": 2)")}) {
    for (const char* strategy : {"h-revolve", "multistage"}) {
      std::string weights[2];
      for (const bool late : {false, true}) {
        SpillingNet net(recipe, strategy);
        FakeDisk disk(net.plan().spill_bytes, late);
        ASSERT_TRUE(net.bind_with(disk.table()).ok());
        for (int step = 0; step < 3; ++step) ASSERT_TRUE(net.step().ok());
        EXPECT_EQ(disk.under_way(), 0u);
        weights[late] = net.weights();
      }
      EXPECT_TRUE(weights[0] == weights[1]) << strategy;
    }
  }
}

TEST(Disk, BindWantsADiskThatHoldsThePlan) {
  SpillingNet net(resnet_recipe(), "h-revolve");
  EXPECT_EQ(net.bind_with({}).code, Code::kUnsupported);
  FakeDisk small(net.plan().spill_bytes - 1, false);
  EXPECT_EQ(net.bind_with(small.table()).code, Code::kUnsupported);
  EXPECT_EQ(net.bind_with(small.table()).detail, net.plan().spill_bytes);
}

TEST(Disk, AFailureAtAnyCallChangesNoWeightAndLeavesNothingUnderWay) {
  for (const char* strategy : {"h-revolve", "multistage"}) {
    SpillingNet net(resnet_recipe(R"(, "accumulate": 2)"), strategy);
    FakeDisk disk(net.plan().spill_bytes, true);
    ASSERT_TRUE(net.bind_with(disk.table()).ok());
    ASSERT_TRUE(net.step().ok());
    const int calls = disk.calls;
    ASSERT_GT(calls, 4);
    for (int n = 0; n < calls; ++n) {
      const std::string before = net.weights();
      disk.calls = 0;
      disk.fails_at = n;
      const Status status = net.step();
      EXPECT_EQ(status.code, Code::kInputOutput) << "call " << n;
      EXPECT_EQ(status.detail, static_cast<uint64_t>(ENOSPC));
      EXPECT_EQ(disk.under_way(), 0u) << "call " << n;
      EXPECT_EQ(net.trainer.step, 1u);
      EXPECT_TRUE(net.weights() == before) << "call " << n;
    }
    disk.fails_at = -1;
    EXPECT_TRUE(net.step().ok());
  }
}

// A row may read a weight of State, or the f32 sum for an update, from a slot to which it was
// transferred before. The transfer goes to disk and back, or directly from memory to memory, which
// needs no disk. The results must have the same bits as without the transfer.
TEST(Disk, WeightsAndSumsAreTransferredToo) {
  const Recipe recipe = recipe_from(gpt_recipe(R"(, "gradient_release": true)"));
  const OwnedPlan plain = plan_run(recipe, "none").planned.plan;
  const std::vector<Row>& rows = plain.program(ProgramId::kMicroFirst).rows;
  const auto steps = [&recipe](const OwnedPlan& owned) {
    const Plan plan = owned.view();
    const TestArena arena(plan.arena_bytes);
    const Workers alone = {.stack_bytes = 1 << 20};
    const std::unique_ptr<Dataset> data = open_dataset(recipe, Split::kTraining);
    FakeDisk disk(plan.spill_bytes, true);
    Trainer trainer;
    EXPECT_TRUE(bind_plan(plan, test::test_backend(), alone, arena.get(), trainer, disk.table()).ok());
    StepReport report;
    for (int step = 0; step < 3; ++step) EXPECT_TRUE(train_step(trainer, source_of(*data), report).ok());
    EXPECT_EQ(disk.calls > 0, plan.spill_bytes > 0);
    return bytes_at(trainer, trainer.region(Region::kState), plan.state_bytes);
  };
  const std::vector<unsigned char> expected = steps(plain);
  for (uint32_t r = 0; r < rows.size(); ++r) {
    const bool reads_weight = rows[r].op == Op::kLinear && rows[r].pass == Pass::kBackwardData;
    const bool reads_sum = rows[r].op == Op::kGradNorm && rows[r].pass == Pass::kReduce;
    if (!reads_weight && !reads_sum) continue;
    const uint32_t argument = reads_weight ? uint32_t{LinearBackwardData::kW} : uint32_t{GradNormReduce::kGradients};
    for (const testing::Way way : {testing::Way::kDisk, testing::Way::kMemory}) {
      OwnedPlan carried = plain;
      testing::carry_argument(carried, ProgramId::kMicroFirst, r, argument, way);
      EXPECT_TRUE(steps(carried) == expected) << "row " << r;
    }
  }
}

// ---- the Linux port ----

class LinuxDisk : public ::testing::Test {
 protected:
  void TearDown() override { linux_port().close_disk(&disk_); }
  Status open_disk(uint64_t bytes) { return linux_port().open_disk(folder_.file("spill").c_str(), bytes, &disk_); }
  Status write(uint64_t offset, const std::vector<unsigned char>& from) {
    return disk_.start_write(disk_.state, offset, from.data(), from.size());
  }
  Status read(uint64_t offset, std::vector<unsigned char>& to) {
    return disk_.start_read(disk_.state, offset, to.data(), to.size());
  }
  Status wait(uint64_t offset) { return disk_.wait(disk_.state, offset); }

  // Returns the descriptor of the spill file. The file has no name, so the open files are searched.
  int file() const {
    for (int fd = 3; fd < 256; ++fd) {
      char link[512] = {};
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      if (::readlink(path.c_str(), link, sizeof link - 1) > 0 && std::string(link).find(folder_.file("spill")) == 0)
        return fd;
    }
    return -1;
  }

  TemporaryFolder folder_;
  Disk disk_;
};

TEST_F(LinuxDisk, BringsBackWhatWasWrittenInOrder) {
  constexpr uint64_t kBlock = 100000, kBlocks = 200;  // more blocks than the queue can contain
  ASSERT_TRUE(open_disk(kBlock * kBlocks).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path())) << "nothing must be left behind, however the process ends";
  std::vector<std::vector<unsigned char>> out(kBlocks), in(kBlocks, std::vector<unsigned char>(kBlock));
  for (uint64_t b = 0; b < kBlocks; ++b) {
    out[b].assign(kBlock, static_cast<unsigned char>(b * 7 + 1));
    ASSERT_TRUE(write(b * kBlock, out[b]).ok());
  }
  // Each read is started while the write of its block may still be queued.
  for (uint64_t b = 0; b < kBlocks; ++b) ASSERT_TRUE(read(b * kBlock, in[b]).ok());
  for (uint64_t b = kBlocks; b-- > 0;) {
    ASSERT_TRUE(wait(b * kBlock).ok());
    ASSERT_TRUE(in[b] == out[b]) << "block " << b;
  }
  EXPECT_TRUE(wait(Disk::kEverything).ok());
}

TEST_F(LinuxDisk, ATruncatedFileIsAnError) {
  std::vector<unsigned char> block(1 << 16, 3), back(1 << 16);
  ASSERT_TRUE(open_disk(1 << 20).ok());
  ASSERT_TRUE(write(1 << 18, block).ok());
  ASSERT_TRUE(wait(1 << 18).ok());
  ASSERT_EQ(::ftruncate(file(), (1 << 18) + 100), 0);
  ASSERT_TRUE(read(1 << 18, back).ok());
  const Status status = wait(1 << 18);
  EXPECT_EQ(status.code, Code::kInputOutput);
  EXPECT_EQ(status.detail, static_cast<uint64_t>(EIO));
  EXPECT_FALSE(wait(0).ok()) << "until everything has been waited for";
  EXPECT_FALSE(wait(Disk::kEverything).ok());
  EXPECT_TRUE(wait(Disk::kEverything).ok());
}

struct FileLimit {
  rlimit old = {};
  explicit FileLimit(uint64_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old);
    const rlimit less = {bytes, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &old); }
};

TEST_F(LinuxDisk, AWriteThatFailsIsAnErrorOfItsWait) {
  const std::vector<unsigned char> block(1 << 16, 3);
  ASSERT_TRUE(open_disk(1 << 20).ok());
  const FileLimit limit(1 << 17);
  ASSERT_TRUE(write(0, block).ok());
  EXPECT_TRUE(wait(0).ok());
  ASSERT_TRUE(write(1 << 19, block).ok());
  EXPECT_EQ(wait(1 << 19).detail, static_cast<uint64_t>(EFBIG));
}

TEST_F(LinuxDisk, RefusesWhatItCannotReserve) {
  EXPECT_EQ(open_disk(uint64_t{1} << 60).code, Code::kInputOutput);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  {
    const FileLimit limit(1 << 16);
    EXPECT_EQ(open_disk(1 << 20).detail, static_cast<uint64_t>(EFBIG));
  }
  EXPECT_EQ(linux_port().open_disk("/no/such/folder/spill", 4096, &disk_).detail, static_cast<uint64_t>(ENOENT));
  const std::string precious = folder_.file("precious");
  ::close(::open(precious.c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_EQ(linux_port().open_disk(precious.c_str(), 4096, &disk_).detail, static_cast<uint64_t>(EEXIST));
  EXPECT_TRUE(std::filesystem::exists(precious));
  ASSERT_TRUE(open_disk(4096).ok());
  Disk second;
  EXPECT_EQ(linux_port().open_disk(folder_.file("second").c_str(), 4096, &second).code, Code::kUnsupported);
}

// The spill file cannot be written during a complete step. The step must report the file's error,
// and no weight may change.
TEST_F(LinuxDisk, AStepOnAFailingFileChangesNoWeight) {
  SpillingNet net(gpt_recipe(), "h-revolve");
  ASSERT_TRUE(open_disk(net.plan().spill_bytes).ok());
  ASSERT_TRUE(net.bind_with(disk_).ok());
  ASSERT_TRUE(net.step().ok());
  const std::string before = net.weights();
  const FileLimit limit(1);
  const Status status = net.step();
  EXPECT_EQ(status.code, Code::kInputOutput);
  EXPECT_EQ(status.detail, static_cast<uint64_t>(EFBIG));
  EXPECT_TRUE(net.weights() == before);
}

}  // namespace
}  // namespace reprise
