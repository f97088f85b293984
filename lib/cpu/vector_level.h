// Several builds of the same loop, and which of them the processor runs, by CPUID feature: x86-64 as it was, AVX2 with FMA, or
// AVX-512. Levels with products of bf16 have the loops of the level below: only bf16_pairs.h asks about these.
// Here because the default build must run on any x86-64 and yet use what the machine has. AArch64 has two: NEON with fused multiply-adds,
// and the baseline without them. Other processors have the baseline alone.
// The level is chosen once, in a CpuMachine (cpu_machine.h). A level changes rounding (fused multiply-add), so its name is part of the kernel set.
// The compiler's name is not, so kernels are written for every compiler to round alike. A level that can fuse a product with a sum does so
// where both stand in one expression, and nowhere else: that is clang's rule. g++ also fuses a product that has a name and is only ever added,
// so no product may have such a name. Of two products in one sum each compiler may fuse another one, so such sums are made in double (rope.cpp)
// or one product at a time. Sums over elements keep their lanes in arrays or vectors of a width that the source gives, because
// no compiler may reorder them. tests/ports/compilers_test.sh compares the bits.
//
// The baseline fuses nothing, so it has the same bits on every processor. Where the compiler may fuse anyway (beside x86-64) the library is compiled
// with -ffp-contract=off, and NEON's functions with an attribute that clang lacks: built by clang, AArch64 has NEON and no baseline.
#pragma once

#include <cstdint>

#define REPRISE_INLINE [[gnu::always_inline]] inline

// Before a loop whose iterations touch no element of one another, even where output and input are the same array.
#if defined(__clang__)
#define REPRISE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define REPRISE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace reprise {

// A processor of 32 bits is a microcontroller: it has a small stack, no vectors of 64-bit numbers, and a product of two words is one instruction.
constexpr bool kIs32Bit = sizeof(void*) < 8;
#if defined(__arm__) && !(defined(__ARM_FEATURE_MVE) && __ARM_FEATURE_MVE & 2)
constexpr bool kHasVectors = false;
#else
constexpr bool kHasVectors = true;
#endif
// Columns that are worked side by side, of which none reads another: where there are no vectors, taking them apart would cost more than it gains.
template <int kLanes>
constexpr int kColumnLanes = kHasVectors ? kLanes : 1;

enum class VectorLevel : uint8_t { kBaseline, kNeon, kNeonBf16, kAvx2, kAvx512, kAvx512Bf16, kAvx512Amx };

// The best that every processor of the kind has.
#if defined(__aarch64__) && !defined(REPRISE_BASELINE_ONLY)
constexpr VectorLevel kCommonLevel = VectorLevel::kNeon;
#else
constexpr VectorLevel kCommonLevel = VectorLevel::kBaseline;
#endif

// What the processor says of itself. Of kNeonBf16 an operating system must tell, and the registers of kAvx512Amx it must grant: a port asks for
// these two (ports/linux/kernels.cpp).
// REPRISE_BASELINE_ONLY builds one level, for images where every byte of code counts.
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

// False where the processor says that it lacks the level, or is of another kind.
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

constexpr bool has_products_of_bf16(VectorLevel level) { return level == VectorLevel::kNeonBf16 || level >= VectorLevel::kAvx512Bf16; }

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

// Defines `static void name(VectorLevel level, parameters)`, which calls `body arguments` compiled for that level; the processor must have it.
// `body` must be REPRISE_INLINE, and so must all it calls; it may be a template over kLanes, the floats in a vector.
// REPRISE_STORAGE_LEVELS: the same as a template over Stored, which stands for the storage of activations in `parameters`.
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
