// Runs the kernels of cuda_global_kernels.h in memory whose ranges are known. There are two judges
// of global memory, one under the fibres and one for PTX. The tests of both judges use this file,
// so that they run the same planted faults.
#pragma once

#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "tests/ports/cards/cuda_global_kernels.h"

namespace reprise::test {

inline bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_search(text, std::regex(pattern));
}

constexpr uint32_t kColumns = 36;
constexpr uint64_t kRows = 2 * 128 + 1;

// Memory for a launch. A test adds ranges one after the other. Each has guards on both sides, so
// that a faulty access still hits mapped memory.
class LaunchMemory {
 public:
  template <typename T>
  T* add(uint64_t count, bool writable, const char* name) {
    T* const at = reinterpret_cast<T*>(bytes_.data() + used_);
    const auto begin = reinterpret_cast<uint64_t>(at);
    ranges_.push_back({begin, begin + count * sizeof(T), writable, name});
    used_ += (count * sizeof(T) + 2 * kGuardBytes - 1) / kGuardBytes * kGuardBytes;
    return at;
  }
  template <typename F>
  fibre::Report report_of(F launch) const {
    fibre::allow_memory(MemoryRanges(ranges_));
    EXPECT_TRUE(launch().ok());
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    fibre::allow_memory({});
    return fibre::take_report();
  }

 private:
  static constexpr uint64_t kGuardBytes = 64 * 1024;
  std::vector<unsigned char> bytes_ = std::vector<unsigned char>(1024 * 1024);
  uint64_t used_ = kGuardBytes;
  std::vector<MemoryRange> ranges_;
};

inline const float* add_ramp(LaunchMemory& memory, uint64_t count) {
  float* const x = memory.add<float>(count, false, "x");
  for (uint64_t i = 0; i < count; ++i) x[i] = static_cast<float>(i % 61) - 30.0f;
  return x;
}

struct TileSums {
  std::vector<float> sums;
  fibre::Report report;

  explicit TileSums(TileSumKind kind, uint32_t columns = kColumns) {
    LaunchMemory memory;
    const float* const x = add_ramp(memory, kRows * columns);
    float* const to = memory.add<float>(3 * columns, true, "sums");
    report = memory.report_of([&] { return launch_tile_sums({to, x, kRows, columns}, kind, nullptr); });
    sums.assign(to, to + 3 * columns);
  }
};

struct Total {
  std::vector<float> total;
  unsigned int count = 0;
  fibre::Report report;

  explicit Total(TotalKind kind) {
    LaunchMemory memory;
    const float* const x = add_ramp(memory, kRows * kColumns);
    float* const to = memory.add<float>(kColumns, true, "total");
    float* const partials = memory.add<float>(3 * kColumns, true, "partials");
    unsigned int* const blocks = memory.add<unsigned int>(1, true, "count");
    report = memory.report_of([&] { return launch_total({to, partials, blocks, x, kRows, kColumns}, kind, nullptr); });
    total.assign(to, to + kColumns);
    count = *blocks;
  }
};

}  // namespace reprise::test
