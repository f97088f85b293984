// What kernels take of a worker's stack, measured on a painted one: never more than the CPU's rules say, which a plan promises and a
// port must have; and of those that say much, not much less.
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

// A thread on a stack of known content: how deep a kernel went below its door is read off afterwards.
class PaintedThread {
 public:
  PaintedThread() : stack_(kBytes, kPaint) {}
  // `door` is set by the work.
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

  static bool is_painted(const unsigned char* page) { return page[0] == kPaint && std::memcmp(page, page + 1, kPage - 1) == 0; }
  void* aligned() { return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(stack_.data()) + kPage - 1) / kPage * kPage); }

  static constexpr uintptr_t kPage = 4096;
  std::vector<unsigned char> stack_;
  uint64_t lowest_ = 0;
};

// A table whose kernels are those of another one, behind a door that says where it stood.
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
    for (uint32_t s = 0; s < kStorages; ++s) table.kernels[k][s] = backend.kernels[k][s] == nullptr ? nullptr : doors[k][s];
  }
  behind_doors = &backend;
  return table;
}

// What train_step and all between it and a kernel take of the calling thread's stack: a plan's frames are for them too.
constexpr uint64_t kTrainerFrameBytes = 1536;

struct Most {
  uint64_t used = 0, stated = 0;
};

// Of every case, or of those whose kernel states more than its frames, by kernel.
void measure(const Backend& backend, bool every_case, std::map<std::string, Most>& most) {
  PaintedThread thread;
  const Backend watched = with_doors(backend, std::make_integer_sequence<uint32_t, kKernelCount>());
  const TestWorkers one(1);
  const auto judge = [&](const KernelCase& c) {
    if (!takes_weights_of(backend, c)) return;
    const CasePlan plan(backend, c);
    const uint64_t stated = plan.plan().worker_stack_bytes;
    if (!every_case && stated == backend.rules->frame_stack_bytes) return;
    const CaseData data = make_data(c);
    const uint64_t used = kTrainerFrameBytes + thread.used([&] { (void)run_case(watched, c, data, {.workers = &one.workers()}); }, door);
    EXPECT_LE(used, stated) << c.id << " at " << backend.kernel_set;
    Most& kernel = most[c.info().name];
    kernel = {std::max(kernel.used, used), std::max(kernel.stated, stated)};
  };
  for (const KernelCase& c : kernel_cases()) {
    judge(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) judge(*stored);
  }
}

// A board gives what is stated: so it must not be stated lightly.
void expect_little_more(const std::map<std::string, Most>& most, uint64_t frame_bytes) {
  for (const auto& [name, kernel] : most) {
    ::testing::Test::RecordProperty(name, std::to_string(kernel.used) + " of " + std::to_string(kernel.stated));
    if (kernel.stated > 2 * frame_bytes) {
      EXPECT_LE(kernel.stated, 2 * kernel.used + frame_bytes) << name << " uses " << kernel.used;
    }
  }
}

TEST(WorkerStack, HoldsWhatTheRulesState) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make frames larger";
  std::map<std::string, Most> most;
  const std::pair<VectorLevel, GemmTileChoice> sets[] = {{port_level(), GemmTileChoice::kFastest},
                                                         {port_level(), GemmTileChoice::kPortable},
                                                         {VectorLevel::kAvx2, GemmTileChoice::kAvx2},
                                                         {VectorLevel::kBaseline, GemmTileChoice::kBaseline}};
  for (const auto& [level, tile] : sets) {
    if (const Backend* backend = backend_with(tile, level); backend != nullptr) measure(*backend, most.empty(), most);
  }
  measure(emulated_amx_backend(), false, most);
  expect_little_more(most, kFrameStackBytes);
}

TEST(WorkerStack, OfASmallCoreHoldsWhatItsRulesState) {
  if (kSanitized) GTEST_SKIP() << "sanitizers make frames larger";
  ASSERT_NE(small_backend().rules, nullptr);
  std::map<std::string, Most> most;
  measure(small_backend(), true, most);
  expect_little_more(most, kSmallFrameStackBytes);
}

// y[1,10] = x[1,64] w[10,64]^T: what a classifier ends with.
TEST(WorkerStack, OfALayerOfTenOutputsIsEightKilobytesOnASmallCore) {
  const auto y = shaped({1, 10}), x = shaped({1, 64}), w = shaped({10, 64});
  using Forward = LinearForward;
  using Weight = LinearBackwardWeight;
  using Data = LinearBackwardData;
  for (const KernelCase& c : {named_case<Forward>({{Forward::kY, y}, {Forward::kX, x}, {Forward::kW, w}}, LinearAttribute{}),
                              named_case<Weight>({{Weight::kDw, w}, {Weight::kX, x}, {Weight::kDy, y}}, LinearAttribute{}),
                              named_case<Data>({{Data::kDx, x}, {Data::kDy, y}, {Data::kW, w}}, LinearAttribute{})}) {
    const auto stack_bytes = [&](const BackendRules& rules) { return CasePlan(Backend{.rules = &rules}, c).plan().worker_stack_bytes; };
    EXPECT_LE(stack_bytes(kCpuSmallRules), 8u << 10) << c.info().name;
    EXPECT_LT(stack_bytes(kCpuRules), 40u << 10) << "on a large one it follows from the shape too";
  }
}

}  // namespace
}  // namespace reprise::test
