// Checks that a NaN in an input of a kernel reaches the same outputs on a card as on the CPU. Also
// checks that the first fault in data is kept, and that random draws depend on the number of the
// micro-batch. The cases of the table do not detect a kernel that loses a NaN or reports a later
// fault.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "cuda/cuda_backend.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/training_harness.h"

namespace reprise::test {
namespace {

const CudaMachine kMachine = [] {
  CudaMachine machine;
  choose_cuda_machine(machine);
  return machine;
}();
const Backend kBackend = cuda_backend(kMachine);

uint64_t numbers_of(const KernelCase& c) {
  uint64_t numbers = 0;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) numbers += c.has(i) ? c.tensor(i).elements() : 0;
  return numbers;
}

bool is_plain(const KernelCase& c) { return c.data == CaseValues::kPlain && c.accumulate == 0 && c.group.empty(); }

// Returns the two smallest cases for each combination of a kernel, a storage type (f32 or bf16),
// and a set of present optional arguments.
std::vector<Judged> smallest_cases() {
  std::map<std::string, std::vector<KernelCase>> by_kind;
  const auto add = [&](const KernelCase& c) {
    if (!is_plain(c) || kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] == nullptr) return;
    std::string kind = std::string(c.info().name) + (stores_bf16(c) ? "/bf16/" : "/f32/");
    for (uint32_t i = 0; i < c.arguments.size(); ++i) kind += c.has(i) ? '1' : '0';
    by_kind[kind].push_back(c);
  };
  for (const KernelCase& c : kernel_cases()) {
    add(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) add(*stored);
  }
  std::vector<Judged> kept;
  for (auto& [kind, cases] : by_kind) {
    std::stable_sort(cases.begin(), cases.end(),
                     [](const KernelCase& a, const KernelCase& b) { return numbers_of(a) < numbers_of(b); });
    for (size_t i = 0; i < std::min<size_t>(2, cases.size()); ++i) kept.push_back({&kBackend, cases[i]});
  }
  return kept;
}

bool holds_floats(const KernelCase& c, uint32_t i) {
  const Element element = element_of(c, i);
  return element == Element::kF32 || element == Element::kBf16 || element == Element::kF64;
}

class CudaNotFinite : public ::testing::TestWithParam<Judged> {
 protected:
  CudaNotFinite() { fibre::set_order(1); }
  ~CudaNotFinite() override { EXPECT_EQ(fibre::take_report().text, ""); }
};

// Returns one text for each output element that is NaN. Adds "skip" if the scalars' skip flag is
// set, and the text of the run's fault, if any.
std::set<std::string> nans_of(const KernelCase& c, const CaseRunResult& result) {
  std::set<std::string> nans;
  if (!result.fault.empty()) nans.insert(result.fault);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (!c.has(i) || result.outputs[i].empty()) continue;
    if (element_of(c, i) == Element::kScalars && result.scalars.skip != 0) nans.insert("skip");
    if (!holds_floats(c, i)) continue;
    const std::vector<double> values = read_values(element_of(c, i), result.outputs[i]);
    for (size_t k = 0; k < values.size(); ++k) {
      if (std::isnan(values[k])) nans.insert(std::string(c.info().arguments[i].name) + " " + std::to_string(k));
    }
  }
  return nans;
}

// True if a card multiplies masked positions or unlabelled rows by zero, where the CPU skips them.
// A NaN may then reach more outputs on the card than on the CPU, but not fewer.
bool multiplies_what_is_masked(const KernelCase& c) {
  const bool has_documents = c.id.find("documents") != std::string::npos;
  return (c.op == Op::kLossHead && c.pass == Pass::kBackward) ||
         (has_documents && (c.op == Op::kAttention || c.op == Op::kGlobalPool));
}

// True if a NaN in argument i need not reach the outputs of this case. On tensor cores, attention's
// backward computes weights from scores and lse by WeightExponent, which loses a NaN
// (attention_tiles.h). In a training the NaN is not lost: the forward has also written it to y,
// from where it reaches all outputs that must show it.
bool shows_in_another(const KernelCase& c, uint32_t i) {
  using A = AttentionBackward;
  return c.op == Op::kAttention && c.pass == Pass::kBackward && stores_bf16(c) && (i == A::kQkv || i == A::kLse);
}

TEST_P(CudaNotFinite, ANanReachesWhatItReachesOnTheCpu) {
  const KernelCase& c = GetParam().c;
  const TestWorkers one(1);
  const CaseData good = make_data(c);
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    const Role role = c.info().arguments[i].role;
    if (!c.has(i) || !holds_floats(c, i) || good.values[i].size() == 0 ||
        (role != Role::kInput && role != Role::kUpdated))
      continue;
    if (shows_in_another(c, i)) continue;
    for (const size_t at : {size_t{0}, good.values[i].size() / 2, good.values[i].size() - 1}) {
      CaseData data = good;
      data.values[i].flat(at) = std::numeric_limits<double>::quiet_NaN();
      std::set<std::string> here = nans_of(c, run_case(kBackend, c, data, {.workers = &one.workers()}));
      const std::set<std::string> there = nans_of(c, run_case(test_backend(), c, data, {.workers = &one.workers()}));
      if (multiplies_what_is_masked(c))
        std::erase_if(here, [&there](const std::string& nan) { return !there.contains(nan); });
      EXPECT_EQ(here, there) << "of a NaN in " << c.info().arguments[i].name << "[" << at << "]";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Fibres, CudaNotFinite, ::testing::ValuesIn(smallest_cases()), id_of);

// ---- the first fault in data is kept ----

TEST(CudaDataFault, TheFirstOfAStepStays) {
  const TestWorkers one(1);
  size_t cases = 0;
  for (const KernelCase& c : kernel_cases()) {
    if (!c.expects_bad_index() || kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] == nullptr)
      continue;
    ++cases;
    for (const Backend* backend : {&kBackend, &test_backend()}) {
      for (const DataFault first : {DataFault::kToken, DataFault::kLabel}) {
        const CaseRunResult result =
            run_case(*backend, c, make_data(c), {.workers = &one.workers(), .fault_before = first});
        const StepFault want = fault_elsewhere(first);
        EXPECT_EQ(result.data_fault.code, want.code) << c.id << " on " << backend->kernel_set;
        EXPECT_EQ(result.data_fault.row, want.row) << c.id << " on " << backend->kernel_set;
        EXPECT_EQ(result.data_fault.position, want.position) << c.id << " on " << backend->kernel_set;
      }
    }
  }
  EXPECT_GT(cases, 3u);
  EXPECT_EQ(fibre::take_report().text, "");
}

// ---- kernels read the number of each micro-batch ----

TEST(CudaMicroBatch, EachHasItsNumberWhenItsRowsRun) {
  const Recipe recipe = recipe_from(
      R"({"name": "numbers", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 5,
    "image": [8, 8, 3]}, "data": {"kind": "synthetic"}, "batch": 2, "accumulate": 3, "steps": 10, "seed": 3, "backend": "cuda",
    "optimizer": {"name": "sgd", "lr": 0.05}})");
  const OwnedPlan owned = plan_run(recipe, "none").planned.plan;
  const Plan plan = owned.view();
  const TestArena arena(plan.arena_bytes + 4096);
  struct Seen {
    Trainer trainer;
    std::vector<uint32_t> numbers;
  } seen;
  const Status bound = bind_plan(plan, kBackend, lasting_workers(), arena.get(), seen.trainer);
  ASSERT_TRUE(bound.ok()) << bound.message << " " << bound.detail;
  seen.trainer.observer = {&seen, [](void* state, ProgramId id, uint32_t row) {
                             Seen& own = *static_cast<Seen*>(state);
                             if (row != 0 || id == ProgramId::kUpdate) return;
                             StepScalars scalars;
                             EXPECT_TRUE(
                                 own.trainer.read(&scalars, own.trainer.state_tensor(kScalarsIndex), sizeof scalars)
                                     .ok());
                             own.numbers.push_back(100 * scalars.step + scalars.micro_batch);
                           }, nullptr};
  const auto data = open_dataset(recipe, Split::kTraining);
  for (int step = 0; step < 2; ++step) {
    StepReport report;
    ASSERT_TRUE(train_step(seen.trainer, source_of(*data), report).ok());
  }
  EXPECT_EQ(seen.numbers, (std::vector<uint32_t>{0, 1, 2, 100, 101, 102}));
  EXPECT_EQ(fibre::take_report().text, "");
}

}  // namespace
}  // namespace reprise::test
