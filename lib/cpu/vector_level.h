// Builds each loop for several vector levels and selects one by CPUID feature: baseline x86-64,
// AVX2 with FMA, or AVX-512. The default build must run on any x86-64 and yet use the vectors that
// the machine has. AArch64 has two levels: NEON with fused multiply-adds, and the baseline without.
// Other processors have only the baseline. A level with products of bf16 runs the loops of the
// level below it; only products of pairs (bf16_pairs.h) have code of their own for that level.
//
// The level is chosen once, in a CpuMachine (cpu_machine.h). A level changes rounding (fused
// multiply-add), so its name is part of the kernel set. The compiler's name is not part of it,
// because kernels are written so that all compilers round equally.
// tests/ports/boards/compilers_test.sh compares the bits. The rules are:
// - In a level that can fuse, a product and a sum are fused only if both are in one expression.
//   This is clang's rule. g++ also fuses a named product that is only ever added, so no such
//   product may have a name.
// - If a sum has two products, compilers may fuse different ones. Such sums are computed in double
//   (rope.cpp), or one product at a time.
// - Sums over elements keep their lanes in arrays or vectors of a width that the source gives,
//   because no compiler may reorder them.
//
// The baseline fuses nothing, so it has equal bits on every processor. On processors other than
// x86-64, compilers fuse by default, so the library is compiled with -ffp-contract=off there.
// NEON's functions then need an attribute that clang lacks. So a clang build for AArch64 has only
// NEON, and no baseline.
#pragma once

#include <cstdint>

#define REPRISE_INLINE [[gnu::always_inline]] inline

// Precedes a loop in which no iteration accesses an element of another iteration, even if output
// and input are the same array.
#if defined(__clang__)
#define REPRISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define REPRISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace reprise {

// A 32-bit processor is taken to be a microcontroller: it has a small stack, no vectors of 64-bit
// numbers, and multiplies two words in one instruction.
constexpr bool kIs32Bit = sizeof(void*) < 8;
#if defined(__arm__) && !(defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE & 2)
constexpr bool kHasVectors = false;
#else
constexpr bool kHasVectors = true;
#endif
// Columns that a loop processes together; no column reads another. The number is 1 without vectors,
// because several columns would then cost more time than they save.
template <int kLanes>
constexpr int kColumnLanes = kHasVectors ? kLanes : 1;

enum class VectorLevel : uint8_t { kBaseline, kNeon, kNeonBf16, kAvx2, kAvx512, kAvx512Bf16, kAvx512Amx };

// The best level that every processor of the architecture has.
#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY)
constexpr VectorLevel kCommonLevel = VectorLevel::kNeon;
#else
constexpr VectorLevel kCommonLevel = VectorLevel::kBaseline;
#endif

// Returns the best level that the processor itself reports. A port must request two further levels
// (ports/linux/kernels.cpp): kNeonBf16, which the operating system reports, and kAvx512Amx, whose
// registers the operating system must grant. REPRISE_BASELINE_ONLY builds one level, for images in
// which every byte of code counts.
inline VectorLevel best_vector_level() {
#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    if (!wide) return VectorLevel::kAvx2;
    return __builtin_cpu_supports("avx512bf16") ? VectorLevel::kAvx512Bf16 : VectorLevel::kAvx512;
  }
#endif
  return kCommonLevel;
}

// True if the processor may have the level. False if the processor reports that it lacks the level,
// for levels of another architecture, and for kBaseline in a build by clang for AArch64.
inline bool may_have_vector_level(VectorLevel level) {
#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY)
#if defined(__clang__)
  if (level == VectorLevel::kBaseline) return false;
#endif
  return level <= VectorLevel::kNeonBf16;
#else
  const VectorLevel own = level == VectorLevel::kAvx512Amx ? VectorLevel::kAvx512Bf16 : level;
  return own <= best_vector_level() && own != VectorLevel::kNeon && own != VectorLevel::kNeonBf16;
#endif
}

constexpr bool has_products_of_bf16(VectorLevel level) {
  return level == VectorLevel::kNeonBf16 || level >= VectorLevel::kAvx512Bf16;
}

constexpr const char* vector_level_name(VectorLevel level) {
  switch (level) {
    case VectorLevel::kBaseline: return "baseline";
    case VectorLevel::kNeon: return "neon";
    case VectorLevel::kNeonBf16: return "neon+bf16";
    case VectorLevel::kAvx2: return "avx2";
    case VectorLevel::kAvx512: return "avx512";
    case VectorLevel::kAvx512Bf16: return "avx512+bf16";
    case VectorLevel::kAvx512Amx: return "avx512+bf16+amx";
  }
  return "";
}

}  // namespace reprise

// Defines `static void name(VectorLevel level, parameters)`, which calls `body arguments` compiled
// for that level; the processor must have the level. `body` and all functions that it calls must be
// REPRISE_INLINE. `body` may be a template over kLanes, the floats in a vector.
// REPRISE_STORAGE_LEVELS defines a template over Stored, the storage type of activations in
// `parameters`.
#define REPRISE_LISTED(...) __VA_ARGS__
#define REPRISE_VECTOR_LEVELS(name, body, parameters, arguments) REPRISE_LEVELS_OF(, name, body, parameters, arguments)
#define REPRISE_STORAGE_LEVELS(name, body, parameters, arguments) \
  REPRISE_LEVELS_OF(template <typename Stored>, name, body, parameters, arguments)
#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
#define REPRISE_AVX512 target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define REPRISE_LEVELS_OF(head, name, body, parameters, arguments)                                           \
  head __attribute__((REPRISE_AVX512)) static void name##_avx512 parameters {                              \
    [[maybe_unused]] constexpr int kLanes = 16;                                                              \
    body arguments;                                                                                          \
  }                                                                                                          \
  head __attribute__((target("avx2,fma"))) static void name##_avx2 parameters {                                   \
    [[maybe_unused]] constexpr int kLanes = 8;                                                               \
    body arguments;                                                                                          \
  }                                                                                                          \
  head static void name##_baseline parameters {                                                                 \
    [[maybe_unused]] constexpr int kLanes = 4;                                                               \
    body arguments;                                                                                          \
  }                                                                                                          \
  head static void name(::reprise::VectorLevel level, REPRISE_LISTED parameters) {                            \
    switch (level) {                                                                                         \
      case ::reprise::VectorLevel::kAvx512Amx:                                                               \
      case ::reprise::VectorLevel::kAvx512Bf16:                                                              \
      case ::reprise::VectorLevel::kAvx512: return name##_avx512 arguments;                                  \
      case ::reprise::VectorLevel::kAvx2: return name##_avx2 arguments;                                      \
      case ::reprise::VectorLevel::kNeonBf16:                                                              \
      case ::reprise::VectorLevel::kNeon:                                                                  \
      case ::reprise::VectorLevel::kBaseline: break;                                                       \
    }                                                                                                      \
    name##_baseline arguments;                                                                             \
  }
#elif defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY) && !defined(__clang__)
#define REPRISE_LEVELS_OF(head, name, body, parameters, arguments)                        \
  head __attribute__((optimize("fp-contract=fast"))) static void name##_neon parameters { \
    [[maybe_unused]] constexpr int kLanes = 4;                                            \
    body arguments;                                                                       \
  }                                                                                       \
  head static void name##_baseline parameters {                                           \
    [[maybe_unused]] constexpr int kLanes = 4;                                            \
    body arguments;                                                                       \
  }                                                                                       \
  head static void name(::reprise::VectorLevel level, REPRISE_LISTED parameters) {        \
    if (level == ::reprise::VectorLevel::kBaseline) return name##_baseline arguments;     \
    name##_neon arguments;                                                                \
  }
#else
#define REPRISE_LEVELS_OF(head, name, body, parameters, arguments)                 \
  head static void name(::reprise::VectorLevel, REPRISE_LISTED parameters) { \
    [[maybe_unused]] constexpr int kLanes = 4;                               \
    body arguments;                                                          \
  }
#endif
