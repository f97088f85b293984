// Every CUDA kernel, run twice on the same cases: by fibres, and by the PTX that nvcc makes of it. The results have the same bits.
// Here because under fibres the inline assembly, the order of its operands and the compiler's predication never run.
//
// No case runs all: a kernel instance (an .entry of the PTX) meets kTimes cases of the table, which are drawn from their ids, and every
// instance that any case reaches is met. A dry run, in which launches are noted and not run, tells which case launches which.
// Where there is no PTX, because there is no nvcc, the tests are skipped.
#include "tests/ports/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "cuda/cuda_backend.h"
#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/cuda_warp_kernels.h"
#include "tests/ports/ptx_launches.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/process.h"

namespace reprise::test {
namespace {

using fibre::Fault;
using fibre::Report;
using ptx::PtxFile;

// ---- the PTX ----

const std::vector<PtxFile>& files() {
  static const std::vector<PtxFile> kFiles = ptx::read_ptx_files(build_folder() + "/cuda");
  return kFiles;
}
ptx::Kernels& kernels() {
  static ptx::Kernels kernels(files());
  return kernels;
}

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (files().empty()) GTEST_SKIP() << "no PTX in " << build_folder() << "/cuda: there is no nvcc here, and no kernel runs by PTX";
    fibre::set_order(1);
    machine_.set_order(1);
    fibre::set_tensor_core(fibre::kTensorCores[0]);
  }
  ~Ptx() override { EXPECT_EQ(fibre::take_report().text, ""); }

  ptx::Machine machine_;
};

TEST_F(Ptx, IsUnderstoodToTheLastInstruction) { EXPECT_EQ(kernels().check(), ""); }

// ---- the cases ----

const CudaMachine kMachine = [] {
  CudaMachine machine;
  choose_cuda_machine(machine);
  return machine;
}();
const Backend kBackend = cuda_backend(kMachine);

// The kernel of the row, and then the wait that a reader of its results owes.
Status run_and_wait(const KernelContext& context, const RowCall& call) {
  const uint32_t index = kernel_index(call.op, call.pass), activation = contract::kIndex.activation[index];
  const bool bf16 = activation != kMaxArguments && call[activation].dtype == DType::kBf16;
  REPRISE_RETURN_IF_ERROR(kBackend.kernels[index][bf16 ? 1 : 0](context, call));
  (void)cudaStreamSynchronize(context.queue);
  return cudaGetLastError() == cudaSuccess ? ok_status() : Status{Code::kBackend, "a CUDA kernel must run without a fault", 0};
}
const Backend kWaitingBackend = [] {
  Backend table = kBackend;
  for (auto& storages : table.kernels) {
    for (Kernel& kernel : storages) kernel = kernel == nullptr ? nullptr : run_and_wait;
  }
  return table;
}();

std::vector<KernelCase> all_cases() {
  std::vector<KernelCase> cases;
  const auto add = [&](const KernelCase& c) {
    if (kBackend.kernels[kernel_index(c.op, c.pass)][stores_bf16(c) ? 1 : 0] != nullptr) cases.push_back(c);
  };
  for (const KernelCase& c : kernel_cases()) {
    add(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) add(*stored);
  }
  return cases;
}

CaseRunResult run_here(const KernelCase& c, const CaseData& data) {
  static const TestWorkers one(1);
  return run_case(kWaitingBackend, c, data, {.workers = &one.workers()});
}

// What a case launches: the kernels, and the threads of all launches together.
struct Launches {
  std::set<std::string> kernels;
  uint64_t threads = 0;
};
Launches dry_run(const KernelCase& c) {
  static std::map<const void*, std::string> names;
  Launches launches;
  fibre::Device::instance().set_runner([&](const fibre::Launch& launch) -> Report {
    std::string& name = names[launch.function];
    if (name.empty()) {
      for (const ptx::FunctionName& each : ptx::names_of(launch.function)) name = each.source + " " + each.name;
    }
    launches.kernels.insert(name);
    launches.threads += uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z * launch.block.x * launch.block.y * launch.block.z;
    return {};
  });
  (void)run_here(c, make_data(c));
  fibre::Device::instance().set_runner(nullptr);
  return launches;
}

constexpr uint32_t kTimes = 3;
constexpr uint64_t kMostThreads = 1u << 13;  // of a case, unless no smaller one meets its kernel

// Those whose kernels have been met less than kTimes, in an order drawn from their ids, small ones first.
std::vector<KernelCase> chosen_cases(size_t& of) {
  struct Known {
    const KernelCase* c;
    uint64_t order;
    Launches launches;
  };
  const std::vector<KernelCase> cases = all_cases();
  of = cases.size();
  std::vector<Known> known;
  for (const KernelCase& c : cases) known.push_back({&c, CaseRandom(c.id).word(), dry_run(c)});
  std::sort(known.begin(), known.end(), [](const Known& a, const Known& b) {
    const bool large_a = a.launches.threads > kMostThreads, large_b = b.launches.threads > kMostThreads;
    return large_a != large_b ? large_b : a.order < b.order;
  });
  std::map<std::string, uint32_t> met;
  std::vector<KernelCase> chosen;
  for (const Known& each : known) {
    const uint32_t wanted = each.launches.threads > kMostThreads ? 1 : kTimes;
    const auto misses = [&](const std::string& kernel) { return met[kernel] < wanted; };
    if (std::none_of(each.launches.kernels.begin(), each.launches.kernels.end(), misses)) continue;
    for (const std::string& kernel : each.launches.kernels) ++met[kernel];
    chosen.push_back(*each.c);
  }
  return chosen;
}

// ---- the same bits ----

// Which element differs first, if any. Any two NaN are alike: of a NaN an x86 processor keeps bits that a card does not.
template <typename T, typename F>
std::string first_difference(const Bytes& by_fibres, const Bytes& by_ptx, F is_nan) {
  for (size_t i = 0; i < by_fibres.size() / sizeof(T); ++i) {
    T a, b;
    std::memcpy(&a, by_fibres.data() + i * sizeof(T), sizeof(T));
    std::memcpy(&b, by_ptx.data() + i * sizeof(T), sizeof(T));
    if (a != b && !(is_nan(a) && is_nan(b))) {
      return "[" + std::to_string(i) + "] has the bits " + std::to_string(a) + " by fibres, " + std::to_string(b) + " by PTX; ";
    }
  }
  return "";
}

std::string difference_of(Element element, const Bytes& by_fibres, const Bytes& by_ptx) {
  if (by_fibres == by_ptx) return "";
  if (element == Element::kF32) return first_difference<uint32_t>(by_fibres, by_ptx, [](uint32_t bits) { return (bits & 0x7fffffffu) > 0x7f800000u; });
  if (element == Element::kBf16) return first_difference<uint16_t>(by_fibres, by_ptx, [](uint16_t bits) { return (bits & 0x7fffu) > 0x7f80u; });
  return first_difference<uint8_t>(by_fibres, by_ptx, [](uint8_t) { return false; });
}

std::string compare(ptx::Kernels& by, ptx::Machine& machine, const KernelCase& c) {
  const CaseData data = make_data(c);
  const CaseRunResult by_fibres = run_here(c, data);
  const ptx::PtxLaunches switched(by, machine);
  const CaseRunResult by_ptx = run_here(c, data);
  const std::string report = fibre::take_report().text;
  if (!report.empty()) return report;
  std::string fault = by_ptx.fault;
  if (by_fibres.status.code != by_ptx.status.code) fault += "the status is another; ";
  if (std::memcmp(&by_fibres.scalars, &by_ptx.scalars, sizeof by_ptx.scalars) != 0) fault += "the scalars are others; ";
  if (by_fibres.data_fault.code != by_ptx.data_fault.code || by_fibres.data_fault.position != by_ptx.data_fault.position) {
    fault += "the noted fault is another; ";
  }
  for (uint32_t i = 0; i < by_fibres.outputs.size(); ++i) {
    const std::string difference = difference_of(element_of(c, i), by_fibres.outputs[i], by_ptx.outputs[i]);
    if (!difference.empty()) fault += c.info().arguments[i].name + difference;
  }
  return fault;
}

TEST_F(Ptx, EveryKernelHasTheBitsThatItHasUnderFibres) {
  size_t of = 0;
  const std::vector<KernelCase> chosen = chosen_cases(of);
  for (const KernelCase& c : chosen) EXPECT_EQ(compare(kernels(), machine_, c), "") << c.id;
  RecordProperty("cases", static_cast<int>(chosen.size()));
  RecordProperty("of", static_cast<int>(of));
  std::printf("%zu of %zu cases, %zu of %zu kernels\n", chosen.size(), of, kernels().found().size(), kernels().all().size());
  for (const std::string& name : kernels().all()) {
    if (!kernels().found().contains(name)) std::printf("not met: %s\n", name.c_str());
  }
}

}  // namespace
}  // namespace reprise::test
