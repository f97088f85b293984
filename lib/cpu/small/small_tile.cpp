// Implements small_tile.h with scalar fused multiply-adds, or with Helium's vectors of four floats.
#include "lib/cpu/small/small_tile.h"

#include "lib/cpu/vector_level.h"

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
#include <arm_mve.h>
#endif

namespace reprise {
namespace {

#define REPRISE_UNROLLED _Pragma("GCC unroll 8")

// A column is one float, or, in a Helium register, four neighbouring floats. Sums and operands fit
// in the registers, which have space for 32 floats.
#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 2)
using Column = float32x4_t;
REPRISE_INLINE Column read_column(const float* from) { return vld1q_f32(from); }
REPRISE_INLINE void write_column(float* to, Column column) { vst1q_f32(to, column); }
REPRISE_INLINE Column fuse(float a, Column b, Column sum) { return vfmaq_n_f32(sum, b, a); }
REPRISE_INLINE Column fuse(Column a, Column b, Column sum) { return vfmaq_f32(sum, a, b); }
#define REPRISE_HELIUM 1
#else
using Column = float;
REPRISE_INLINE Column read_column(const float* from) { return *from; }
REPRISE_INLINE void write_column(float* to, Column column) { *to = column; }
REPRISE_INLINE Column fuse(float a, Column b, Column sum) { return __builtin_fmaf(a, b, sum); }
#endif

// Returns the address of a tile's first sums: zeros, or `sums`. The compiler must not know which:
// it would compile a loop for zeros and a loop for sums, each with more instructions.
constexpr float kZeros[kSmallLines * kSmallColumns] = {};
REPRISE_INLINE const float* beginning(const SmallParts& parts, const float* sums) {
  const float* from = parts.first ? kZeros : sums;
  __asm("" : "+r"(from));
  return from;
}

template <uint32_t kLines>
struct Tile {
  static constexpr uint32_t kWidth = sizeof(Column) / sizeof(float), kCount = kSmallColumns / kWidth;
  Column sums[kLines][kCount];

  REPRISE_INLINE void read(const float* from) {
    REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) {
      REPRISE_UNROLLED for (uint32_t j = 0; j < kCount; ++j) sums[i][j] =
          read_column(from + i * kSmallColumns + j * kWidth);
    }
  }
  REPRISE_INLINE void write(float* to) const {
    REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) {
      REPRISE_UNROLLED for (uint32_t j = 0; j < kCount; ++j)
          write_column(to + i * kSmallColumns + j * kWidth, sums[i][j]);
    }
  }
  REPRISE_INLINE void add(const float (&a)[kLines], const float* b) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kCount; ++j) {
      const Column column = read_column(b + j * kWidth);
      REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) sums[i][j] = fuse(a[i], column, sums[i][j]);
    }
  }
  REPRISE_INLINE void add_channels(const float* const (&a)[kLines], const float* b) {
    REPRISE_UNROLLED for (uint32_t j = 0; j < kCount; ++j) {
      const Column column = read_column(b + j * kWidth);
      REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) sums[i][j] =
          fuse(read_column(a[i] + j * kWidth), column, sums[i][j]);
    }
  }
};

#if defined(REPRISE_HELIUM)
// Two depths of three lines take 20 instructions, but one depth takes 12. Each load fills several
// general registers, and each register contains one float of a line. At present, no compiler
// generates this code.
#define REPRISE_HELIUM_SUMS(t)                                                                                  \
  "+w"((t).sums[0][0]), "+w"((t).sums[0][1]), "+w"((t).sums[1][0]), "+w"((t).sums[1][1]), "+w"((t).sums[2][0]), \
      "+w"((t).sums[2][1])
#define REPRISE_HELIUM_DEPTH(x, y, z)                                                                           \
  "vfma.f32 %q0, %q6, " x "\n vfma.f32 %q1, %q7, " x "\n vfma.f32 %q2, %q6, " y "\n vfma.f32 %q3, %q7, " y "\n" \
  "vfma.f32 %q4, %q6, " z "\n vfma.f32 %q5, %q7, " z "\n"
REPRISE_INLINE void add_lines(Tile<3>& tile, const float* (&a)[3], const float*& b) {
  Column low, high;
  __asm volatile(
      "ldrd r0, r1, [%[a0]], #8\n ldrd r2, r3, [%[a1]], #8\n ldrd r4, r5, [%[a2]], #8\n"
      "vldrw.32 %q6, [%[b]], #16\n vldrw.32 %q7, [%[b]], #16\n" REPRISE_HELIUM_DEPTH(
          "r0", "r2", "r4") "vldrw.32 %q6, [%[b]], #16\n vldrw.32 %q7, [%[b]], #16\n" REPRISE_HELIUM_DEPTH("r1", "r3",
                                                                                                           "r5")
      : REPRISE_HELIUM_SUMS(tile), "=&w"(low),
        "=&w"(high), [a0] "+r"(a[0]), [a1] "+r"(a[1]), [a2] "+r"(a[2]), [b] "+r"(b)
      :
      : "r0", "r1", "r2", "r3", "r4", "r5", "memory");
}
REPRISE_INLINE void add_depth(Tile<3>& tile, const float* a, const float* b) {
  Column low, high;
  __asm volatile("ldmia %[a], {r0, r1, r2}\n vldrw.32 %q6, [%[b]]\n vldrw.32 %q7, [%[b], #16]\n" REPRISE_HELIUM_DEPTH(
                     "r0", "r1", "r2")
                 : REPRISE_HELIUM_SUMS(tile), "=&w"(low), "=&w"(high)
                 : [a] "r"(a), [b] "r"(b)
                 : "r0", "r1", "r2", "memory");
}
constexpr uint32_t kTogether = 2;
#else
constexpr uint32_t kTogether = 4;
#endif

// Adds kTogether depths, so that addresses are incremented once for all of them.
template <uint32_t kLines>
REPRISE_INLINE void add_lines(Tile<kLines>& tile, const float* (&a)[kLines], const float*& b) {
  REPRISE_UNROLLED for (uint32_t d = 0; d < kTogether; ++d) {
    float of_depth[kLines];
    REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) of_depth[i] = a[i][d];
    tile.add(of_depth, b + d * kSmallColumns);
  }
  REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) a[i] += kTogether;
  b += kTogether * kSmallColumns;
}
template <uint32_t kLines>
REPRISE_INLINE void add_depth(Tile<kLines>& tile, const float* a, const float* b) {
  float lines[kLines];
  REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) lines[i] = a[i];
  tile.add(lines, b);
}

template <uint32_t kLines>
REPRISE_INLINE void by_lines(float* sums, const SmallParts& parts, ptrdiff_t a_line) {
  Tile<kLines> tile;
  tile.read(beginning(parts, sums));
  for (uint32_t part = 0; part < parts.count; ++part) {
    const float *a[kLines], *b = parts.parts[part].b;
    REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) a[i] =
        parts.parts[part].a + static_cast<ptrdiff_t>(i) * a_line;
    for (uint32_t left = parts.depths / kTogether; left > 0; --left) add_lines(tile, a, b);
    for (uint32_t left = parts.depths % kTogether; left > 0; --left, b += kSmallColumns) {
      float of_depth[kLines];
      REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) of_depth[i] = *a[i]++;
      tile.add(of_depth, b);
    }
  }
  tile.write(sums);
}

template <uint32_t kLines>
REPRISE_INLINE void by_depths(float* sums, const SmallParts& parts, ptrdiff_t a_depth, ptrdiff_t b_depth) {
  Tile<kLines> tile;
  tile.read(beginning(parts, sums));
  for (uint32_t part = 0; part < parts.count; ++part) {
    const float *a = parts.parts[part].a, *b = parts.parts[part].b;
    for (uint32_t left = parts.depths / 2; left > 0; --left) {
      add_depth(tile, a, b);
      a += a_depth, b += b_depth;
      add_depth(tile, a, b);
      a += a_depth, b += b_depth;
    }
    if (parts.depths % 2 != 0) add_depth(tile, a, b);
  }
  tile.write(sums);
}

template <uint32_t kLines>
REPRISE_INLINE void by_channels(float* sums, const SmallParts& parts, ptrdiff_t a_line, ptrdiff_t a_depth,
                                ptrdiff_t b_depth) {
  Tile<kLines> tile;
  tile.read(beginning(parts, sums));
  for (uint32_t part = 0; part < parts.count; ++part) {
    const float *a[kLines], *b = parts.parts[part].b;
    REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) a[i] =
        parts.parts[part].a + static_cast<ptrdiff_t>(i) * a_line;
    for (uint32_t left = parts.depths; left > 0; --left, b += b_depth) {
      tile.add_channels(a, b);
      REPRISE_UNROLLED for (uint32_t i = 0; i < kLines; ++i) a[i] += a_depth;
    }
  }
  tile.write(sums);
}

#if defined(REPRISE_HELIUM)
REPRISE_INLINE void by_columns(float* sums, const float* a, const float* b, ptrdiff_t b_column, uint32_t depths) {
  const uint32x4_t low = vmulq_n_u32(vidupq_n_u32(0, 1), static_cast<uint32_t>(b_column)),
                   high = vaddq_n_u32(low, 4 * static_cast<uint32_t>(b_column));
  Tile<1> tile;
  tile.read(sums);
  for (; depths > 0; --depths, ++a, ++b) {
    tile.sums[0][0] = fuse(*a, vldrwq_gather_shifted_offset_f32(b, low), tile.sums[0][0]);
    tile.sums[0][1] = fuse(*a, vldrwq_gather_shifted_offset_f32(b, high), tile.sums[0][1]);
  }
  tile.write(sums);
}
#else
REPRISE_INLINE void by_columns(float* sums, const float* a, const float* b, ptrdiff_t b_column, uint32_t depths) {
  const float* column[kSmallColumns];
  float sum[kSmallColumns];
  REPRISE_UNROLLED for (uint32_t j = 0; j < kSmallColumns; ++j) column[j] = b + static_cast<ptrdiff_t>(j) * b_column,
                                                                sum[j] = sums[j];
  const auto add = [&](uint32_t together) __attribute__((always_inline)) {
    REPRISE_UNROLLED for (uint32_t d = 0; d < together; ++d) {
      REPRISE_UNROLLED for (uint32_t j = 0; j < kSmallColumns; ++j) sum[j] = __builtin_fmaf(a[d], column[j][d], sum[j]);
    }
    a += together;
    REPRISE_UNROLLED for (uint32_t j = 0; j < kSmallColumns; ++j) column[j] += together;
  };
  for (uint32_t left = depths / kTogether; left > 0; --left) add(kTogether);
  for (uint32_t left = depths % kTogether; left > 0; --left) add(1);
  REPRISE_UNROLLED for (uint32_t j = 0; j < kSmallColumns; ++j) sums[j] = sum[j];
}
#endif

}  // namespace

// On x86-64 each function is built a second time, for processors with FMA; other processors call
// fmaf(), which rounds equally.
#define REPRISE_OF_LINES(body, arguments)   \
  switch (lines) {                          \
    case 1: return body<1> arguments;       \
    case 2: return body<2> arguments;       \
    default: return body<3> arguments;      \
  }
#if defined(__x86_64__) && !defined(REPRISE_BASELINE_ONLY)
#define REPRISE_FUSED(name, parameters, arguments, statement)                                                    \
  __attribute__((target("avx2,fma"))) static void name##_fused parameters { statement }                          \
  void name parameters {                                                                                         \
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return name##_fused arguments;          \
    statement                                                                                                    \
  }
#else
#define REPRISE_FUSED(name, parameters, arguments, statement) \
  void name parameters { statement }
#endif

REPRISE_FUSED(add_by_lines, (float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line),
              (sums, lines, parts, a_line), REPRISE_OF_LINES(by_lines, (sums, parts, a_line)))
REPRISE_FUSED(add_by_depths,
              (float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_depth, ptrdiff_t b_depth),
              (sums, lines, parts, a_depth, b_depth), REPRISE_OF_LINES(by_depths, (sums, parts, a_depth, b_depth)))
REPRISE_FUSED(add_by_channels,
              (float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line, ptrdiff_t a_depth,
               ptrdiff_t b_depth),
              (sums, lines, parts, a_line, a_depth, b_depth),
              REPRISE_OF_LINES(by_channels, (sums, parts, a_line, a_depth, b_depth)))
REPRISE_FUSED(add_by_columns, (float* sums, const float* a, const float* b, ptrdiff_t b_column, uint32_t depths),
              (sums, a, b, b_column, depths), by_columns(sums, a, b, b_column, depths);)

void add_columns(float* sums, const float* terms) {
  constexpr uint32_t kWidth = sizeof(Column) / sizeof(float);
  REPRISE_UNROLLED for (uint32_t j = 0; j < kSmallColumns; j += kWidth)
      write_column(sums + j, read_column(sums + j) + read_column(terms + j));
}

}  // namespace reprise
