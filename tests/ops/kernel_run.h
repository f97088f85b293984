// Runs a kernel case once on a backend, through the library's dispatch, in memory with guards and
// fill patterns. Tests, comparisons of backends and benchmarks all run kernels through this file,
// on a CPU, under fibres and on a card. The host prepares an image of the memory, and the backend's
// HostAccess copies the image to the kernel's memory and back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/kernel_case.h"
#include "tests/ops/memory_ranges.h"

namespace reprise::test {

struct CaseData;  // tests/ops/op_family.h

// Tells a device which memory is accessible. It is called before the kernel with the ranges that
// the kernel may access, and after the kernel with empty ranges.
using AllowMemory = void (*)(MemoryRanges ranges);

// The device on which cases run: a backend, and memory that its kernels can access. If `arena` is
// empty, each case allocates host memory. `allow` is null unless the device checks accesses.
struct CaseDevice {
  const Backend& backend;
  Arena arena = {};
  AllowMemory allow = nullptr;

  CaseDevice(const Backend& backend_of_cases, Arena arena_of_cases = {}, AllowMemory allow_of_device = nullptr)
      : backend(backend_of_cases), arena(arena_of_cases), allow(allow_of_device) {}
};

// Returns a data fault with a row and a position that no case has. Tests record it before the
// kernel (`fault_before`).
constexpr StepFault fault_elsewhere(DataFault code) { return {code, 7777, 123456789}; }

// How a kernel's argument stores an element. kBlocks: weights in blocks, which no kernel writes.
// kCodes: moments in codes of 8 bits.
enum class Element : uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8, kScalars, kBlocks, kCodes };

using Bytes = std::vector<unsigned char>;

struct CaseRunOptions {
  const Workers* workers = nullptr;
  uint32_t poison = 0xffffffffu;  // bit pattern that fills scratch and outputs before the call; the default is a NaN
  bool odd_page = false;
  DataFault fault_before = DataFault::kNone;  // fault that an earlier row of the step has recorded
  bool in_place = false;  // the output shares its input's memory, if kOps allows it
};

struct CaseRunResult {
  Status status;
  std::vector<Bytes> outputs;  // bytes of each argument after the call, by argument; empty for an input
  StepScalars scalars{};
  StepFault data_fault = {};  // fault that the kernel recorded; its row is relative to the row of the case
  std::string fault;  // description of overwritten guards and changed inputs; "" if there are none
};

Element element_of(const KernelCase& c, uint32_t argument);
std::vector<double> read_values(Element element, const Bytes& bytes);
// Writes to `at` the bytes that argument `i` has before the call. Writes nothing if the kernel
// overwrites the argument.
void write_argument(const KernelCase& c, const CaseData& data, uint32_t i, unsigned char* at);

// Returns the bytes of arena that run_case needs for the case.
uint64_t case_arena_bytes(const Backend& backend, const KernelCase& c);

CaseRunResult run_case(const CaseDevice& device, const KernelCase& c, const CaseData& data,
                       const CaseRunOptions& options);

}  // namespace reprise::test
