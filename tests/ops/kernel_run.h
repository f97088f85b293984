// Runs a kernel case once on a backend, through the library's dispatch, in guarded and poisoned memory.
// Here so that judges, the comparison of two backends and benchmarks call kernels in the same way, on a CPU, under fibres or on a card: the
// host looks at a copy alone, which goes to the kernel's memory and back by the backend's HostAccess.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/kernel_case.h"
#include "tests/ops/memory_ranges.h"

namespace reprise::test {

struct CaseData;  // tests/ops/op_family.h

// Told what a case's kernel may touch before it runs, and nothing again behind it.
using AllowMemory = void (*)(MemoryRanges ranges);

// What cases run on: a backend, and memory that its kernels reach. Without such memory a case gets some of the process's own. A device
// that watches accesses gives its AllowMemory.
struct CaseDevice {
  const Backend& backend;
  Arena arena = {};
  AllowMemory allow = nullptr;

  CaseDevice(const Backend& backend_of_cases, Arena arena_of_cases = {}, AllowMemory allow_of_device = nullptr)
      : backend(backend_of_cases), arena(arena_of_cases), allow(allow_of_device) {}
};

// Where the fault of fault_before lies: no case has so many rows.
constexpr StepFault fault_elsewhere(DataFault code) { return {code, 7777, 123456789}; }

enum class Element : uint8_t { kF32, kBf16, kF64, kI32, kI64, kU8, kScalars, kBlocks, kCodes };  // blocks: of weights, which no kernel writes; codes: of moments

using Bytes = std::vector<unsigned char>;

struct CaseRunOptions {
  const Workers* workers = nullptr;
  uint32_t poison = 0xffffffffu;  // word that scratch and outputs hold before the call; the default is a NaN
  bool odd_page = false;
  DataFault fault_before = DataFault::kNone;  // that the step has had already, in a row and at a position of its own
  bool in_place = false;  // the output shares the input's memory, as kOps allows
};

struct CaseRunResult {
  Status status;
  std::vector<Bytes> outputs;  // by argument; empty for inputs
  StepScalars scalars{};
  StepFault data_fault = {};  // its row counts from the case's own
  std::string fault;  // a guard was broken, or an input changed
};

Element element_of(const KernelCase& c, uint32_t argument);
std::vector<double> read_values(Element element, const Bytes& bytes);
// Argument i before the call, as it lies in memory. Writes nothing where that is an output alone.
void write_argument(const KernelCase& c, const CaseData& data, uint32_t i, unsigned char* at);

// Of the arena that a case needs.
uint64_t case_arena_bytes(const Backend& backend, const KernelCase& c);

CaseRunResult run_case(const CaseDevice& device, const KernelCase& c, const CaseData& data, const CaseRunOptions& options);

}  // namespace reprise::test
