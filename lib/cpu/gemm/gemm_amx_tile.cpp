// AMX's instructions for gemm_amx_tile.h. They are written in assembly, because the compilers'
// intrinsics need tile numbers as literals and a target that the template cannot have. Compilers do
// not use tile registers themselves, so the assembly does not declare the tile registers that it
// changes.
#include "lib/cpu/gemm/gemm_amx_tile.h"

#include "lib/cpu/cpu_machine.h"

#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)

namespace reprise {
namespace {

struct AmxInstructions {
  REPRISE_INLINE static void configure(const AmxConfiguration& configuration) {
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  REPRISE_INLINE static void release() { asm volatile("tilerelease"); }
  template <int kTile>
  REPRISE_INLINE static void clear() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  REPRISE_INLINE static void load(const float* from, int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kTile) : "memory");
  }
  template <int kTile>
  REPRISE_INLINE static void store(float* to, int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kTile) : "memory");
  }
  template <int kSum, int kA, int kB>
  REPRISE_INLINE static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
  }
};

constexpr GemmTile kPairTile = AmxPairTile<AmxInstructions>::tile();

}  // namespace

const GemmTile* amx_pair_tile() { return &kPairTile; }

}  // namespace reprise
#else
namespace reprise {
const GemmTile* amx_pair_tile() { return nullptr; }
}  // namespace reprise
#endif
