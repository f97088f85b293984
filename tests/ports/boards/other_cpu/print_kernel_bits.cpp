// Prints a hash of the outputs of every CPU kernel on every case of the table, at every vector
// level with the level's own tile. Compare the hashes of two builds of the library to find
// different bits: of two compilers, for two processors, or before and after a change.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lib/cpu/cpu_backend.h"
#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"
#include "tests/ports/test_workers.h"

namespace {

using namespace reprise;
using namespace reprise::test;

// Returns the FNV-1a hash of the data hashed so far, `hash`, continued by `count` bytes.
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
  CpuSize size = CpuSize::kLarge;
};
constexpr Set kSets[] = {{VectorLevel::kBaseline, GemmTileChoice::kBaseline},
                         {VectorLevel::kBaseline, GemmTileChoice::kBaseline, CpuSize::kSmall},
                         {VectorLevel::kNeon, GemmTileChoice::kWidest},
                         {VectorLevel::kAvx2, GemmTileChoice::kAvx2},
                         {VectorLevel::kAvx512, GemmTileChoice::kAvx512},
                         {VectorLevel::kAvx512Bf16, GemmTileChoice::kAvx512}};

}  // namespace

// Usage: print_kernel_bits [LEVEL EVERY]. Runs every EVERY-th case at this vector level; without
// arguments all cases at all levels. Skips cases that a kernel refuses, and cases with values that
// are not finite, because their outputs are undefined.
int main(int argc, char** argv) {
  const TestWorkers one(1);
  const std::vector<KernelCase> cases = kernel_cases();
  const size_t every = argc == 3 ? std::strtoul(argv[2], nullptr, 10) : 1;
  for (const Set& set : kSets) {
    CpuMachine machine;
    if (argc == 3 && std::string(argv[1]) != vector_level_name(set.level)) continue;
    if (!choose_cpu_machine(machine, set.tile, set.level, {}, set.size).ok()) continue;
    const Backend backend = cpu_backend(machine);
    for (size_t i = 0; i < cases.size(); i += every) {
      const KernelCase& c = cases[i];
      if (c.expects_bad_index() || c.is_non_finite() || !takes_weights_of(backend, c)) continue;
      const CaseRunResult result = run_case(backend, c, make_data(c), {.workers = &one.workers()});
      std::printf("%s %s %016llx\n", backend.kernel_set, c.id.c_str(),
                  static_cast<unsigned long long>(hash_of(result)));
    }
  }
}
