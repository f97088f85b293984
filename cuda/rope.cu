// Rotary position embedding (Su et al. 2021): every query and key head turned by the angles of its row.
// Here as the twin of lib/cpu/rope.cpp: a thread computes the angles of some pairs once and turns these pairs of all heads.
#include "cuda/cuda_kernels.h"
#include "cuda/grid.h"
#include "cuda/pack.h"

#include <bit>
#include <cmath>

namespace reprise {
namespace {

constexpr uint32_t kMostPairs = RopeAttribute::kMostRotary / 2;

struct Frequencies {
  double at[kMostPairs];  // radians a position
};

struct Turn {
  float cosine, sine;
};

// Angle = n pi / 2 + r, |r| <= pi / 4: the reduction in double, because positions reach 2^20 and n times the high part of pi / 2 (33
// bits) is exact; then Taylor's series of r in f32.
__device__ inline Turn turn_by(double angle) {
  constexpr double kRound = 0x1.8p52;  // adding it leaves the nearest integer in the low bits of the significand
  const double shifted = fma(angle, 0x1.45f306dc9c883p-1, kRound);
  const double n = shifted - kRound;
  const float r = static_cast<float>(fma(-n, 0x1.0b4611a626331p-34, fma(-n, 0x1.921fb544p+0, angle)));
  const float square = r * r;
  float s = fmaf(square, 1.0f / 362880, -1.0f / 5040);
  s = fmaf(s, square, 1.0f / 120);
  s = fmaf(s, square, -1.0f / 6);
  s = fmaf(r * square, s, r);
  float c = fmaf(square, -1.0f / 3628800, 1.0f / 40320);
  c = fmaf(c, square, -1.0f / 720);
  c = fmaf(c, square, 1.0f / 24);
  c = fmaf(c, square, -0.5f);
  c = fmaf(c, square, 1.0f);
  const uint64_t quarter = std::bit_cast<uint64_t>(shifted);
  const bool odd = (quarter & 1) != 0;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return {((quarter + 1) & 2) != 0 ? -cosine : cosine, (quarter & 2) != 0 ? -sine : sine};
}

// (a, b) becomes (a cos - b sin, b cos + a sin).
__device__ inline void turn_pair(float& a, float& b, const Turn& t) {
  const float turned = fmaf(a, t.cosine, -(b * t.sine));
  b = fmaf(b, t.cosine, a * t.sine);
  a = turned;
}

// A head's elements [at, at + kWidth) and [other, other + kWidth), which hold kWidth pairs.
template <uint32_t kWidth, typename Stored>
__device__ void turn_packs(Stored* y, const Stored* x, uint64_t at, uint64_t other, bool neighbours, const Turn (&turns)[kWidth]) {
  Pack<kWidth> a = load_pack<kWidth>(x + at), b = load_pack<kWidth>(x + other);
  if (kWidth == 1 || !neighbours) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) turn_pair(a.at[k], b.at[k], turns[k]);
  } else {
    REPRISE_UNROLL
    for (uint32_t k = 0; k + 1 < kWidth; k += 2) {
      turn_pair(a.at[k], a.at[k + 1], turns[k / 2]);
      turn_pair(b.at[k], b.at[k + 1], turns[(kWidth + k) / 2]);
    }
  }
  store_pack(y + at, a);
  store_pack(y + other, b);
}

template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) turn_heads(const RopeArgsOf<Stored> args, const Frequencies frequencies) {
  const uint32_t pairs = args.rope.rotary / 2, packs = pairs / kWidth, turned = args.rope.heads + args.rope.kv_heads;
  const bool neighbours = args.rope.neighbours != 0;
  const uint64_t columns = uint64_t{args.D} * (turned + args.rope.kv_heads);
  for (uint64_t i = grid_thread(); i < args.M * packs; i += grid_threads()) {
    const uint64_t m = i / packs;
    const uint32_t first = static_cast<uint32_t>(i % packs) * kWidth;
    const auto t = static_cast<double>(m % args.T);
    const double start = args.document_start != nullptr ? static_cast<double>(args.document_start[m]) : 0.0;
    const double position = args.inverse ? start - t : t - start;
    Turn turns[kWidth];
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) {
      const double f = args.frequencies != nullptr ? static_cast<double>(args.frequencies[first + k]) : frequencies.at[first + k];
      turns[k] = turn_by(position * f);
    }
    const uint64_t at = m * columns + (neighbours ? 2 * first : first), other = at + (neighbours ? kWidth : pairs);
    for (uint32_t h = 0; h < turned; ++h) {
      const uint64_t head = uint64_t{h} * args.D;
      turn_packs<kWidth>(args.y, args.x, at + head, other + head, neighbours, turns);
    }
  }
}

// What is not turned, where it does not lie where it belongs: what is behind `rotary` in the turned heads, then the values.
template <uint32_t kWidth, typename Stored>
__global__ void __launch_bounds__(kBlockThreads) copy_unturned(const RopeArgsOf<Stored> args) {
  const uint64_t turned = args.rope.heads + args.rope.kv_heads, D = args.D / kWidth, rotary = args.rope.rotary / kWidth;
  const uint64_t behind = D - rotary, of_row = turned * behind + args.rope.kv_heads * D, columns = (turned + args.rope.kv_heads) * D;
  for (uint64_t i = grid_thread(); i < args.M * of_row; i += grid_threads()) {
    const uint64_t j = i % of_row;
    const uint64_t in_row = j < turned * behind ? j / behind * D + rotary + j % behind : turned * rotary + j;
    const uint64_t at = (i / of_row * columns + in_row) * kWidth;
    store_pack(args.y + at, load_pack<kWidth>(args.x + at));
  }
}

template <uint32_t kWidth, typename Stored>
Status launch_rope(const KernelContext& context, const RopeArgsOf<Stored>& args) {
  const RopeAttribute& rope = args.rope;
  Frequencies frequencies = {};
  for (uint32_t i = 0; i < rope.rotary / 2 && args.frequencies == nullptr; ++i) {
    frequencies.at[i] = std::pow(static_cast<double>(rope.theta), -2.0 * i / rope.rotary);
  }
  REPRISE_LAUNCH((turn_heads<kWidth, Stored>), blocks_for(args.M * (rope.rotary / 2 / kWidth)), kBlockThreads, context.queue,
                 args, frequencies);
  if (args.x == args.y) return launch_status();
  const uint64_t elements = args.M * ((rope.heads + rope.kv_heads) * uint64_t{args.D - rope.rotary} + uint64_t{rope.kv_heads} * args.D);
  REPRISE_LAUNCH((copy_unturned<kWidth, Stored>), blocks_for(elements / kWidth), kBlockThreads, context.queue, args);
  return launch_status();
}

}  // namespace

template <typename Stored>
Status cuda_rope(const KernelContext& context, const RopeArgsOf<Stored>& args) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const bool wide = args.rope.rotary % (2 * kWide) == 0 && args.D % kWide == 0;
  return wide ? launch_rope<kWide>(context, args) : launch_rope<1>(context, args);
}

REPRISE_CUDA_INSTANTIATE(cuda_rope, RopeArgs)

}  // namespace reprise
