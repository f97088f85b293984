// Prints a hash of what every CPU kernel writes on every case of the table, at every vector level with the tile that belongs to it.
// Here so that the same library built by two compilers, or before and after a change, can be compared bit by bit.
#include <cstdio>
#include <string>
#include <vector>

#include "lib/cpu/cpu_backend.h"
#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_workers.h"

namespace {

using namespace reprise;
using namespace reprise::test;

// FNV-1a.
uint64_t add_bytes(uint64_t hash, const void* data, size_t count) {
  for (size_t i = 0; i < count; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
  return hash;
}

uint64_t hash_of(const CaseRunResult& result) {
  uint64_t hash = 14695981039346656037ull;
  for (const Bytes& output : result.outputs) hash = add_bytes(hash, output.data(), output.size());
  const StepScalars& s = result.scalars;
  hash = add_bytes(hash, &s.loss_sum, sizeof s.loss_sum);
  hash = add_bytes(hash, &s.clip_factor, sizeof s.clip_factor);
  return add_bytes(hash, &s.gradient_norm, sizeof s.gradient_norm);
}

struct Set {
  VectorLevel level;
  GemmTileChoice tile;
};
#if defined(__x86_64__)
constexpr Set kSets[] = {{VectorLevel::kBaseline, GemmTileChoice::kBaseline},
                         {VectorLevel::kAvx2, GemmTileChoice::kAvx2},
                         {VectorLevel::kAvx512, GemmTileChoice::kAvx512},
                         {VectorLevel::kAvx512Bf16, GemmTileChoice::kAvx512}};
#else
constexpr Set kSets[] = {{VectorLevel::kBaseline, GemmTileChoice::kBaseline}, {VectorLevel::kBaseline, GemmTileChoice::kPortable}};
#endif

}  // namespace

// What a case that is refused, or a value that is not finite, leaves in outputs is not promised.
int main() {
  const TestWorkers one(1);
  for (const Set& set : kSets) {
    CpuMachine machine;
    if (!choose_cpu_machine(machine, set.tile, set.level).ok()) continue;
    const Backend backend = cpu_backend(machine);
    for (const KernelCase& c : kernel_cases()) {
      if (c.expects_bad_index() || c.is_non_finite()) continue;
      const CaseRunResult result = run_case(backend, c, make_data(c), {.workers = &one.workers()});
      std::printf("%s %s %016llx\n", backend.kernel_set, c.id.c_str(), static_cast<unsigned long long>(hash_of(result)));
    }
  }
}
