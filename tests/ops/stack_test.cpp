// What kernels take of a worker's stack, measured on a painted one: never more than the CPU's rules say, which a plan promises and a
// port must have; and of those that say much, not much less.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "tests/ops/case_plan.h"
#include "tests/ops/families.h"
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

// A thread on a stack of known content; how deep it went is read off afterwards.
class PaintedThread {
 public:
  PaintedThread() : stack_(kBytes, kPaint) { nothing_ = depth([] {}); }
  uint64_t used(const std::function<void()>& work) { return depth(work) - nothing_; }

 private:
  static constexpr uint64_t kBytes = 2 << 20;
  static constexpr unsigned char kPaint = 0xa5;

  uint64_t depth(const std::function<void()>& work) {
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
    lowest_ = static_cast<uint64_t>(std::find_if(stack_.begin(), stack_.end(), [](unsigned char byte) { return byte != kPaint; }) - stack_.begin());
    return stack_.size() - lowest_;
  }
  void* aligned() { return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(stack_.data()) + kPage - 1) / kPage * kPage); }

  static constexpr uintptr_t kPage = 4096;
  std::vector<unsigned char> stack_;
  uint64_t lowest_ = 0, nothing_ = 0;
};

struct Most {
  uint64_t used = 0, stated = 0;
};

// Of every case, or of those whose kernel states more than its frames, by kernel.
void measure(const Backend& backend, bool every_case, std::map<std::string, Most>& most) {
  PaintedThread thread;
  const TestWorkers one(1);
  const auto judge = [&](const KernelCase& c) {
    const CasePlan plan(backend, c);
    const uint64_t stated = plan.plan().worker_stack_bytes;
    if (!every_case && stated == kFrameStackBytes) return;
    const CaseData data = make_data(c);
    const uint64_t used = thread.used([&] { (void)run_case(backend, c, data, {.workers = &one.workers()}); });
    EXPECT_LE(used, stated) << c.id << " at " << backend.kernel_set;
    Most& kernel = most[c.info().name];
    kernel = {std::max(kernel.used, used), std::max(kernel.stated, stated)};
  };
  for (const KernelCase& c : kernel_cases()) {
    judge(c);
    if (const std::optional<KernelCase> stored = stored_as_bf16(c)) judge(*stored);
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
  for (const auto& [name, kernel] : most) {
    RecordProperty(name, std::to_string(kernel.used) + " of " + std::to_string(kernel.stated));
    // A board gives what is stated: so it must not be stated lightly.
    if (kernel.stated > 2 * kFrameStackBytes) {
      EXPECT_LE(kernel.stated, 2 * kernel.used + kFrameStackBytes) << name << " uses " << kernel.used;
    }
  }
}

}  // namespace
}  // namespace reprise::test
