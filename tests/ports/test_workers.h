// Workers on std::thread that run tasks in forward, reversed or shuffled order. With them tests
// check that a kernel's bits depend neither on the number of workers nor on the order of tasks
// (lib/port.h).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "lib/port.h"

namespace reprise::test {

enum class TaskOrder { kForward, kReversed, kShuffled };

class TestWorkers {
 public:
  explicit TestWorkers(uint32_t count, TaskOrder order = TaskOrder::kForward, uint32_t seed = 1)
      : order_(order), random_(seed) {
    workers_.state = this;
    workers_.count = count;
    workers_.run = &TestWorkers::run;
  }
  TestWorkers(const TestWorkers&) = delete;
  TestWorkers& operator=(const TestWorkers&) = delete;

  const Workers& workers() const { return workers_; }

 private:
  static void run(void* state, uint32_t tasks, void (*task)(void*, uint32_t), void* argument) {
    TestWorkers& self = *static_cast<TestWorkers*>(state);
    const std::vector<uint32_t> order = self.task_order(tasks);
    std::atomic<uint32_t> next{0};
    const auto work = [&] {
      for (uint32_t i = next++; i < tasks; i = next++) task(argument, order[i]);
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i < std::min(self.workers_.count, tasks); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<uint32_t> task_order(uint32_t tasks) {
    std::vector<uint32_t> order(tasks);
    std::iota(order.begin(), order.end(), 0u);
    if (order_ == TaskOrder::kReversed) std::reverse(order.begin(), order.end());
    if (order_ == TaskOrder::kShuffled) std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  Workers workers_;
  TaskOrder order_;
  std::mt19937 random_;
};

}  // namespace reprise::test
