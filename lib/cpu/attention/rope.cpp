// Rotary position embedding (Su et al. 2021). Computes the angles of a row once, in double, then
// rotates every query and key head while it is copied between qkv and the separate tensors. This
// file has its own sine and cosine, because the C library's do not vectorise.
#include <bit>
#include <cstring>

#include "lib/cpu/attention/rope_rules.h"
#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_machine.h"
#include "lib/cpu/partition.h"
#include "lib/portable_math.h"

namespace reprise {
namespace {

// Writes the frequency of each pair, in radians per position.
void find_frequencies(double* frequencies, const float* table, const RopeAttribute& rope) {
  for (uint32_t i = 0; i < rope_pairs(rope); ++i) {
    const double exponent = -2.0 * i / rope.rotary;
    frequencies[i] =
        table != nullptr ? static_cast<double>(table[i]) : portable_power(static_cast<double>(rope.theta), exponent);
  }
}

// Writes the cosines and sines of position * frequency, times `scale`. Splits the angle as n pi / 2
// + r with |r| <= pi / 4, then uses Taylor's series of r. The error is below 1e-11 for angles up to
// 2^20 quarter turns, because n times the high part of pi / 2 (33 bits) is exact.
REPRISE_INLINE void cosines_and_sines(float* cosines, float* sines, const double* frequencies, uint32_t pairs,
                                      double position, double scale) {
  constexpr double kRound = 0x1.8p52;  // x + kRound has the integer nearest to x in the low bits of its significand
  REPRISE_INDEPENDENT
  for (uint32_t i = 0; i < pairs; ++i) {
    const double angle = position * frequencies[i];
    const double shifted = angle * 0x1.45f306dc9c883p-1 + kRound;
    const double n = shifted - kRound;
    const double r = (angle - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
    const double square = r * r;
    double s = -1.0 / 39916800;
    s = s * square + 1.0 / 362880;
    s = s * square - 1.0 / 5040;
    s = s * square + 1.0 / 120;
    s = s * square - 1.0 / 6;
    s = r * (s * square + 1.0);
    double c = 1.0 / 479001600;
    c = c * square - 1.0 / 3628800;
    c = c * square + 1.0 / 40320;
    c = c * square - 1.0 / 720;
    c = c * square + 1.0 / 24;
    c = c * square - 0.5;
    c = c * square + 1.0;
    // A quarter turn swaps sine and cosine and changes a sign. This uses bit operations, which
    // every level has for 64-bit words.
    const uint64_t quarter = std::bit_cast<uint64_t>(shifted);
    const uint64_t odd = 0 - (quarter & 1u);
    const uint64_t sine = std::bit_cast<uint64_t>(s), cosine = std::bit_cast<uint64_t>(c);
    sines[i] =
        static_cast<float>(scale * std::bit_cast<double>(((sine & ~odd) | (cosine & odd)) ^ (quarter & 2u) << 62));
    cosines[i] = static_cast<float>(
        scale * std::bit_cast<double>(((cosine & ~odd) | (sine & odd)) ^ ((quarter + 1) & 2u) << 62));
  }
}

struct Rotated {
  float a, b;
};
// Rotates a pair in double, where products of f32 are exact. In f32 the bits would depend on the
// compiler, because compilers fuse different products of a sum of two products.
REPRISE_INLINE Rotated turn(double a, double b, double cosine, double sine) {
  return {static_cast<float>(a * cosine - b * sine), static_cast<float>(b * cosine + a * sine)};
}

template <typename Stored>
REPRISE_INLINE void turn_halves(Stored* y, const Stored* x, const float* cosines, const float* sines, uint32_t pairs) {
  REPRISE_INDEPENDENT
  for (uint32_t i = 0; i < pairs; ++i) {
    const float a = x[i], b = x[pairs + i];
    const Rotated t = turn(a, b, cosines[i], sines[i]);
    y[i] = t.a;
    y[pairs + i] = t.b;
  }
}

template <typename Stored>
REPRISE_INLINE void turn_neighbours(Stored* y, const Stored* x, const float* cosines, const float* sines,
                                    uint32_t pairs) {
  REPRISE_INDEPENDENT
  for (uint32_t i = 0; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    const Rotated t = turn(a, b, cosines[i], sines[i]);
    y[2 * i] = t.a;
    y[2 * i + 1] = t.b;
  }
}

// Copies `heads` heads of D from x to y, and rotates their first rope.rotary elements.
template <typename Stored>
REPRISE_INLINE void turn_heads(Stored* y, const Stored* x, uint32_t heads, uint32_t D, const RopeAttribute& rope,
                               const float* cosines, const float* sines) {
  for (uint32_t h = 0; h < heads; ++h, y += D, x += D) {
    if (rope.neighbours != 0) {
      turn_neighbours(y, x, cosines, sines, rope_pairs(rope));
    } else {
      turn_halves(y, x, cosines, sines, rope_pairs(rope));
    }
    std::memcpy(y + rope.rotary, x + rope.rotary, (D - rope.rotary) * sizeof(Stored));
  }
}

// Returns the distance of row m from the start of its document.
template <typename Args>
REPRISE_INLINE double position_of(const Args& args, uint64_t m) {
  const double start = args.document_start != nullptr ? static_cast<double>(args.document_start[m]) : 0.0;
  return static_cast<double>(m % args.T) - start;
}

template <typename Stored>
REPRISE_INLINE void rope_body(const RopeForwardArgsOf<Stored>& args, const double* frequencies, uint64_t begin,
                              uint64_t end) {
  const RopeAttribute& rope = args.rope;
  const uint64_t of_q = uint64_t{args.D} * rope.heads, of_k = uint64_t{args.D} * rope.kv_heads;
  REPRISE_STACK_BUFFER(float, cosines, rope_pairs(rope));
  REPRISE_STACK_BUFFER(float, sines, rope_pairs(rope));
  for (uint64_t m = begin; m < end; ++m) {
    cosines_and_sines(cosines, sines, frequencies, rope_pairs(rope), position_of(args, m),
                      static_cast<double>(rope.scale));
    Stored* qkv = args.qkv + m * (of_q + 2 * of_k);
    turn_heads(qkv, args.q + m * of_q, rope.heads, args.D, rope, cosines, sines);
    turn_heads(qkv + of_q, args.k + m * of_k, rope.kv_heads, args.D, rope, cosines, sines);
    std::memcpy(qkv + of_q + of_k, args.v + m * of_k, of_k * sizeof(Stored));
  }
}

template <typename Stored>
REPRISE_INLINE void rope_gradient_body(const RopeBackwardArgsOf<Stored>& args, const double* frequencies,
                                       uint64_t begin, uint64_t end) {
  const RopeAttribute& rope = args.rope;
  const uint64_t of_q = uint64_t{args.D} * rope.heads, of_k = uint64_t{args.D} * rope.kv_heads;
  REPRISE_STACK_BUFFER(float, cosines, rope_pairs(rope));
  REPRISE_STACK_BUFFER(float, sines, rope_pairs(rope));
  for (uint64_t m = begin; m < end; ++m) {
    cosines_and_sines(cosines, sines, frequencies, rope_pairs(rope), -position_of(args, m),
                      static_cast<double>(rope.scale));
    const Stored* dqkv = args.dqkv + m * (of_q + 2 * of_k);
    turn_heads(args.dq + m * of_q, dqkv, rope.heads, args.D, rope, cosines, sines);
    turn_heads(args.dk + m * of_k, dqkv + of_q, rope.kv_heads, args.D, rope, cosines, sines);
    std::memcpy(args.dv + m * of_k, dqkv + of_q + of_k, of_k * sizeof(Stored));
  }
}

REPRISE_STORAGE_LEVELS(rope_rows, rope_body,
                       (const RopeForwardArgsOf<Stored>& args, const double* frequencies, uint64_t begin, uint64_t end),
                       (args, frequencies, begin, end))
REPRISE_STORAGE_LEVELS(rope_gradient_rows, rope_gradient_body,
                       (const RopeBackwardArgsOf<Stored>& args, const double* frequencies, uint64_t begin,
                        uint64_t end),
                       (args, frequencies, begin, end))

template <typename Args>
Partition rows_of(const Args& args) {
  return split_rows(args.M, uint64_t{args.D} * (args.rope.heads + 2 * args.rope.kv_heads));
}

}  // namespace

template <typename Stored>
Status cpu_rope_forward(const KernelContext& context, const RopeForwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  REPRISE_STACK_BUFFER(double, frequencies, rope_pairs(args.rope));
  find_frequencies(frequencies, args.frequencies, args.rope);
  for_each_piece(*context.workers, rows_of(args),
                 [&](uint64_t begin, uint64_t end) { rope_rows(level, args, frequencies, begin, end); });
  return ok_status();
}

template <typename Stored>
Status cpu_rope_backward(const KernelContext& context, const RopeBackwardArgsOf<Stored>& args) {
  const VectorLevel level = cpu_machine(context).level;
  REPRISE_STACK_BUFFER(double, frequencies, rope_pairs(args.rope));
  find_frequencies(frequencies, args.frequencies, args.rope);
  for_each_piece(*context.workers, rows_of(args),
                 [&](uint64_t begin, uint64_t end) { rope_gradient_rows(level, args, frequencies, begin, end); });
  return ok_status();
}

REPRISE_INSTANTIATE(cpu_rope_forward, RopeForwardArgs)
REPRISE_INSTANTIATE(cpu_rope_backward, RopeBackwardArgs)

}  // namespace reprise
