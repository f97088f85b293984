// Tests moments in host memory, end to end. The bits must be those of a training with moments in
// the arena: for every optimizer, schedule and number of workers, however late a device copies.
// Each kind of training must resume from snapshots of the other. State is in two memories here, so
// every access by name must find the right one.
#include <gtest/gtest.h>

#include <map>

#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/process.h"
#include "tests/runtime/guarded_device.h"
#include "tests/runtime/training_harness.h"
#include "tools/run/snapshots/state_tensors.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {
namespace {

// A schedule with host memory for boundaries, after the moments. It is so cheap that schedules use
// it.
const std::string kHost =
    R"(, "schedule": {"strategy": "optimal", "host": "1GiB", "write_cost": 0.5, "read_cost": 0.25})";

std::string gpt(const std::string& optimizer, const std::string& rest, bool offload) {
  return R"({"name": "gpt", "model": {"family": "gpt2", "vocab_size": 1200, "n_positions": 8, "n_embd": 64, "n_layer": 2, "n_head": 2},
         "data": {"kind": "synthetic"}, "batch": 2, "sequence": 7, "steps": 10, "seed": 4,
         "optimizer": {"lr": 0.003, )" +
         optimizer + (offload ? R"(, "offload": true}, "accumulate": 2)" : R"(}, "accumulate": 2)") + rest + "}";
}

std::string resnet(const std::string& optimizer, const std::string& rest, bool offload) {
  return R"({"name": "resnet", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 2], "width": 16, "stem": "cifar", "classes": 5, "image": [9, 11, 3]},
         "data": {"kind": "synthetic"}, "batch": 3, "steps": 10, "seed": 3,
         "optimizer": {"lr": 0.05, )" +
         optimizer + (offload ? R"(, "offload": true})" : "}") + rest + "}";
}

struct Case {
  const char* name;
  std::string (*recipe)(const std::string& optimizer, const std::string& rest, bool offload);
  std::string optimizer, rest;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
const Case kCases[] = {
    {"sgd", resnet, R"("name": "sgd", "momentum": 0.9, "nesterov": true, "weight_decay": 0.001)", ""},
    {"lion_bf16", resnet, R"("name": "lion")", R"(, "dtype": "bf16", "clip_norm": 1.0)"},
    {"adamw", gpt, R"("name": "adamw", "weight_decay": 0.1, "no_decay": ["*.bias", "*ln_*"])", R"(, "clip_norm": 1.0)"},
    {"adamw_codes", gpt, R"("name": "adamw", "states": "8bit")", R"(, "trained": {"storage": "bf16"})"},
    {"apollo", gpt, R"("name": "apollo", "rank": 16)", ""},
    {"muon", gpt, R"("name": "muon")", ""}};

// A plan bound to its own memory or to that of a device. Tests read State by name.
class Training {
 public:
  Training(const std::string& text, const std::string& strategy, double share, uint32_t workers = 1)
      : recipe_(recipe_from(text)),
        planned_(plan_run(recipe_, strategy, share)),
        plan_(planned_.planned.plan.view()),
        arena_(plan_.arena_bytes + 4096),
        data_(open_dataset(recipe_, Split::kTraining)),
        workers_(workers == 2 ? lasting_workers() : Workers{.stack_bytes = 1 << 20}) {
    if (plan_.spill_bytes > 0 && !linux_port().acquire_host(plan_.spill_bytes, &memory_).ok())
      throw std::runtime_error("no memory of the host");
  }
  ~Training() { linux_port().release_host(&memory_); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  const Plan& plan() const { return plan_; }
  Status bind_to(const Backend& backend, Arena arena) {
    return bind_plan(plan_, backend, workers_, arena, trainer, {}, {}, memory_);
  }
  void bind_here() { ASSERT_TRUE(bind_to(test::test_backend(), arena_.get()).ok()); }
  void train(int steps) {
    for (int s = 0; s < steps; ++s) {
      StepReport report;
      const Status status = train_step(trainer, source_of(*data_), report);
      ASSERT_TRUE(status.ok()) << status.message;
      losses.push_back(report.loss);
    }
  }
  std::map<std::string, std::vector<unsigned char>> state() const {
    std::map<std::string, std::vector<unsigned char>> all;
    for (uint32_t i = kFirstTrained; i < plan_.state.count; ++i) {
      std::vector<unsigned char>& bytes = all[plan_.state[i].name];
      bytes.resize(plan_.state[i].tensor.used_bytes());
      EXPECT_TRUE(trainer.read_state(i, 0, bytes.data(), bytes.size()).ok());
    }
    return all;
  }
  void expect_planned_bytes() const {
    EXPECT_EQ(measure(trainer), plan_.arena_bytes);
    uint64_t spilled = 0;
    EXPECT_TRUE(measured_bytes(trainer, Region::kSpill, spilled).ok());
    EXPECT_EQ(spilled, plan_.spill_bytes);
  }

  Trainer trainer;
  std::vector<double> losses;

 private:
  const Recipe recipe_;
  const PlannedRun planned_;
  const Plan plan_;
  const TestArena arena_;
  const std::unique_ptr<Dataset> data_;
  const Workers workers_;
  HostMemory memory_;
};

void expect_same_state(const Training& a, const Training& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  const auto of_a = a.state(), of_b = b.state();
  ASSERT_EQ(of_a.size(), of_b.size()) << what;
  for (const auto& [name, bytes] : of_a) EXPECT_TRUE(bytes == of_b.at(name)) << what << ": " << name;
}

class OffloadedMoments : public ::testing::TestWithParam<Case> {
 protected:
  std::string text(bool offload, const std::string& more = "") const {
    return GetParam().recipe(GetParam().optimizer, GetParam().rest + more, offload);
  }
};

TEST_P(OffloadedMoments, HaveTheBitsOfTheArenas) {
  Training inside(text(false), "none", -1);
  inside.bind_here();
  inside.train(4);
  for (const auto& [strategy, share] :
       {std::pair<const char*, double>{"none", -1}, {"sqrt", -1}, {"optimal", 0.3}, {"h-revolve", 0.0}}) {
    const bool spills = takes_disk(strategy);
    for (const uint32_t workers : {1u, 2u}) {
      const std::string what = std::string(strategy) + ", workers " + std::to_string(workers);
      Training outside(text(true, spills ? kHost : ""), strategy, share, workers);
      outside.bind_here();
      outside.train(4);
      expect_same_state(inside, outside, what);
      outside.expect_planned_bytes();
      EXPECT_GT(offloaded_bytes(outside.plan()), 0u) << what;
      EXPECT_EQ(inside.plan().state_bytes, outside.plan().state_bytes + offloaded_bytes(outside.plan())) << what;
      EXPECT_TRUE(std::string(strategy) != "sqrt" || outside.plan().spill_bytes > offloaded_bytes(outside.plan()))
          << what << ": no boundaries behind them";
    }
  }
}

// Runs on a device that completes each copy as late as possible. Until then the target contains a
// fill pattern.
TEST_P(OffloadedMoments, LateCopiesGiveTheSameBits) {
  Training inside(text(false), "none", -1);
  inside.bind_here();
  inside.train(3);
  Training outside(text(true, kHost), "sqrt", -1);
  const GuardedDevice device(outside.plan().arena_bytes, test::test_backend());
  ASSERT_TRUE(outside.bind_to(device.backend(), device.arena()).ok());
  outside.train(3);
  expect_same_state(inside, outside, "late copies");
}

TEST_P(OffloadedMoments, ALostWaitWouldShow) {
  Training inside(text(false), "none", -1);
  inside.bind_here();
  inside.train(2);
  Training outside(text(true), "none", -1);
  const GuardedDevice device(outside.plan().arena_bytes, test::test_backend());
  Backend hasty = device.backend();
  hasty.host.await = [](const KernelContext&, uint32_t) { return ok_status(); };
  ASSERT_TRUE(outside.bind_to(hasty, device.arena()).ok());
  StepReport report;
  const auto data = open_dataset(recipe_from(text(true)), Split::kTraining);
  for (int s = 0; s < 2; ++s) (void)train_step(outside.trainer, source_of(*data), report);
  EXPECT_FALSE(inside.state() == outside.state());
}

// Trainings with moments on the host and with moments in the arena must resume from each other's
// files.
TEST_P(OffloadedMoments, SnapshotsServeBoth) {
  TemporaryFolder folder;
  const auto save = [&](const Training& run, const std::string& name) {
    write_state(run.trainer, folder.file(name + "-model"), StatePart::kModel, {});
    write_state(run.trainer, folder.file(name + "-moments"), StatePart::kOptimizer, {});
  };
  const auto load = [&](Training& run, const std::string& name) {
    read_state(run.trainer, *open_weights(folder.file(name + "-model")), StatePart::kModel);
    read_state(run.trainer, *open_weights(folder.file(name + "-moments")), StatePart::kOptimizer);
    run.trainer.step = 2;
  };
  Training whole(text(false), "none", -1), inside(text(false), "none", -1), outside(text(true), "none", -1);
  Training from_inside(text(true), "optimal", 0.2), from_outside(text(false), "none", -1);
  for (Training* run : {&whole, &inside, &outside, &from_inside, &from_outside}) run->bind_here();
  whole.train(4);
  inside.train(2);
  outside.train(2);
  save(inside, "inside");
  save(outside, "outside");
  EXPECT_TRUE(test::file_text(folder.file("inside-moments")) == test::file_text(folder.file("outside-moments")));
  load(from_inside, "inside");
  load(from_outside, "outside");
  for (Training* run : {&from_inside, &from_outside}) {
    run->train(2);
    EXPECT_TRUE(run->state() == whole.state());
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OffloadedMoments, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

const char* const kAdamW = R"("name": "adamw")";

// Another plan takes over between steps. The moments must keep their addresses on the host, and the
// blocks of each plan, which follow the moments, must be measured.
TEST(OffloadedMoment, StaysWhenAnotherPlanTakesOver) {
  const std::string text = gpt(kAdamW, "", true);
  Training alone(text, "none", -1), changes(text, "none", -1), small(gpt(kAdamW, kHost, true), "sqrt", -1);
  alone.bind_here();
  alone.train(5);
  HostMemory memory;
  ASSERT_TRUE(linux_port().acquire_host(small.plan().spill_bytes, &memory).ok());
  const TestArena arena(std::max(changes.plan().arena_bytes, small.plan().arena_bytes) + 4096);
  const Workers here = {.stack_bytes = 1 << 20};
  const auto resources = [&](const Plan& plan) -> Resources {
    return {.arena = {arena.get().base, plan.arena_bytes + 4096}, .workers = &here, .host_memory = memory};
  };
  ASSERT_TRUE(bind_plan(changes.plan(), test::test_backend(), here, resources(changes.plan()).arena, changes.trainer,
                        {}, {}, memory)
                  .ok());
  changes.train(2);
  HostMemory elsewhere;
  ASSERT_TRUE(linux_port().acquire_host(small.plan().spill_bytes, &elsewhere).ok());
  Resources wrong = resources(small.plan());
  wrong.host_memory = elsewhere;
  EXPECT_EQ(rebind(small.plan(), wrong, changes.trainer).code, Code::kUnsupported);
  linux_port().release_host(&elsewhere);
  for (const Plan* plan : {&small.plan(), &changes.plan(), &small.plan()}) {
    ASSERT_TRUE(rebind(*plan, resources(*plan), changes.trainer).ok());
    changes.train(1);
    uint64_t spilled = 0;
    EXPECT_TRUE(measured_bytes(changes.trainer, Region::kSpill, spilled).ok());
    EXPECT_EQ(spilled, plan->spill_bytes);
  }
  expect_same_state(alone, changes, "three changes");
  unbind(changes.trainer);
  linux_port().release_host(&memory);
}

TEST(OffloadedMoment, IsRefusedWhereItCannotBe) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { (void)plan_run(recipe_from(text), "none"); }, fragments);
  };
  refused(gpt(R"("name": "adamw", "offload": true)", R"(, "schedule": {"strategy": "h-revolve", "disk": "1GiB"})",
              false),
          {"optimizer.offload", "schedule.disk"});
  refused(resnet(R"("name": "sgd", "momentum": 0.9)", R"(, "gradient_release": true)", true),
          {"optimizer.offload", "gradient_release"});
  refused(resnet(R"("name": "adafactor")", "", true), {"optimizer", "offload"});
}

}  // namespace
}  // namespace reprise
