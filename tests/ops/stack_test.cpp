// Measures how much of a worker's stack each kernel uses, on a stack filled with a known pattern.
// The use must not exceed the bytes that the CPU's rules state, because ports provide only the
// stated bytes. If a rule states many bytes, the kernel must also use about half of them.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lib/cpu/cpu_rules.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/emulated_amx.h"
#include "tests/ops/judged_kernel.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Runs functions in a thread whose stack was filled with a known pattern. The lowest address
// without the pattern shows how much of the stack was used.
class PaintedThread {
 public:
  PaintedThread() : stack_(kBytes, kPaint) {}
  // Runs `work` in the thread. Returns the bytes of stack that were used below address `door`,
  // which `work` sets.
  uint64_t used(const std::function<void()>& work, const uintptr_t& door) {
    std::fill(stack_.begin() + static_cast<int64_t>(lowest_), stack_.end(), kPaint);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    EXPECT_EQ(pthread_attr_setstack(&attributes, aligned(), kBytes - kPage), 0);
    pthread_t thread;
    const auto run = [](void* argument) -> void* {
      (*static_cast<const std::function<void()>*>(argument))();
      return nullptr;
    };
    EXPECT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    lowest_ = 0;
    while (lowest_ + kPage <= stack_.size() && is_painted(stack_.data() + lowest_)) lowest_ += kPage;
    while (lowest_ < stack_.size() && stack_[lowest_] == kPaint) ++lowest_;
    const uintptr_t deepest = reinterpret_cast<uintptr_t>(stack_.data()) + lowest_;
    return door > deepest ? door - deepest : 0;
  }

 private:
  static constexpr uint64_t kBytes = 2 << 20;
  static constexpr unsigned char kPaint = 0xa5;

  static bool is_painted(const unsigned char* page) {
    return page[0] == kPaint && std::memcmp(page, page + 1, kPage - 1) == 0;
  }
  void* aligned() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(stack_.data()) + kPage - 1) / kPage * kPage);
  }

  static constexpr uintptr_t kPage = 4096;
  std::vector<unsigned char> stack_;
  uint64_t lowest_ = 0;
};

// with_doors() returns a copy of a backend with another table of kernels. Each entry stores the
// address of its stack frame in `door`, and then calls the original kernel, in `behind_doors`.
const Backend* behind_doors = nullptr;
uintptr_t door = 0;
template <uint32_t kernel, uint32_t storage>
Status pass_door(const KernelContext& context, const RowCall& call) {
  door = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  return behind_doors->kernels[kernel][storage](context, call);
}
template <uint32_t... kernels>
Backend with_doors(const Backend& backend, std::integer_sequence<uint32_t, kernels...>) {
  const Kernel doors[kKernelCount][kStorages] = {{pass_door<kernels, 0>, pass_door<kernels, 1>}...};
  Backend table = backend;
  for (uint32_t k = 0; k < kKernelCount; ++k) {
    for (uint32_t s = 0; s < kStorages; ++s)
      table.kernels[k][s] = backend.kernels[k][s] == nullptr ? nullptr : doors[k][s];
  }
  behind_doors = &backend;
  return table;
}

// Bytes that train_step and its callees use on the calling thread's stack before they call a
// kernel. A plan's worker_stack_bytes includes them.
constexpr uint64_t kTrainerFrameBytes = 1536;

struct Most {
  uint64_t used = 0, stated = 0;
};

// Runs each case, requires that it uses no more stack than the rules state, and stores the maximum
// for each kernel. Unless `every_case`, skips cases for which the rules state only the fixed bytes
// for frames.
void measure(const Backend& backend, bool every_case, std::map<std::string, Most>& maximum) {
  PaintedThread thread;
  const Backend watched = with_doors(backend, std::make_integer_sequence<uint32_t, kKernelCount>());
  const TestWorkers one(1);
  const auto judge = [&](const KernelCase& c) {
    if (!takes_weights_of(backend, c)) return;
    const CasePlan plan(backend, c);
    const uint64_t stated = plan.plan().worker_stack_bytes;
    if (!every_case && stated == backend.rules->frame_stack_bytes) return;
    const CaseData data = make_data(c);
    const uint64_t used =
        kTrainerFrameBytes + thread.used([&] { (void)run_case(watched, c, data, {.workers = &one.workers()}); }, door);
    EXPECT_LE(used, stated) << c.id << " at " << backend.kernel_set;
    Most& kernel = maximum[c.info().name];
    kernel = {std::max(kernel.used, used), std::max(kernel.stated, stated)};
  };
  for (const KernelCase& c : kernel_cases()) {
    judge(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) judge(*stored);
  }
}

// Requires that the stated bytes are at most about twice the used bytes, because a board must
// provide all stated bytes.
void expect_little_more(const std::map<std::string, Most>& maximum, uint64_t frame_bytes) {
  for (const auto& [name, kernel] : maximum) {
    ::testing::Test::RecordProperty(name, std::to_string(kernel.used) + " of " + std::to_string(kernel.stated));
    if (kernel.stated > 2 * frame_bytes) {
      EXPECT_LE(kernel.stated, 2 * kernel.used + frame_bytes) << name << " uses " << kernel.used;
    }
  }
}

TEST(WorkerStack, HoldsWhatTheRulesState) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make frames larger";
  std::map<std::string, Most> maximum;
  const std::pair<VectorLevel, GemmTileChoice> sets[] = {{port_level(), GemmTileChoice::kFastest},
                                                         {port_level(), GemmTileChoice::kWidest},
                                                         {VectorLevel::kAvx2, GemmTileChoice::kAvx2},
                                                         {VectorLevel::kBaseline, GemmTileChoice::kBaseline}};
  for (const auto& [level, tile] : sets) {
    if (const Backend* backend = backend_with(tile, level); backend != nullptr)
      measure(*backend, maximum.empty(), maximum);
  }
  measure(emulated_amx_backend(), false, maximum);
  expect_little_more(maximum, kFrameStackBytes);
}

TEST(WorkerStack, OfASmallCoreHoldsWhatItsRulesState) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make frames larger";
  ASSERT_NE(small_backend().rules, nullptr);
  std::map<std::string, Most> maximum;
  measure(small_backend(), true, maximum);
  expect_little_more(maximum, kSmallFrameStackBytes);
}

// Tests the last layer of a small classifier: y[1,10] = x[1,64] w[10,64]^T.
TEST(WorkerStack, OfALayerOfTenOutputsIsEightKilobytesOnASmallCore) {
  const auto y = shaped({1, 10}), x = shaped({1, 64}), w = shaped({10, 64});
  using Forward = LinearForward;
  using Weight = LinearBackwardWeight;
  using Data = LinearBackwardData;
  for (const KernelCase& c :
       {named_case<Forward>({{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}}, LinearAttribute{}),
        named_case<Weight>({{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}, LinearAttribute{}),
        named_case<Data>({{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}, LinearAttribute{})}) {
    const auto stack_bytes = [&](const BackendRules& rules) {
      return CasePlan(Backend{.rules = &rules}, c).plan().worker_stack_bytes;
    };
    EXPECT_LE(stack_bytes(kCpuSmallRules), 8u << 10) << c.info().name;
    EXPECT_LT(stack_bytes(kCpuRules), 40u << 10) << "on a large one it follows from the shape too";
  }
}

}  // namespace
}  // namespace reprise::test
