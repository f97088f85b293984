// Rotary position embedding (Su et al. 2021). Rotates every query and key head by the angles of the
// row's position. Also copies the heads between separate tensors q, k, v and one tensor qkv. The
// counterpart of lib/cpu/attention/rope.cpp. A thread computes the angles of some pairs once, and
// rotates these pairs in all heads of the row.
#include "cuda/cuda_kernels.h"
#include "cuda/gemm/pack.h"
#include "cuda/grid.h"
#include "lib/portable_math.h"

#include <bit>

namespace reprise {
namespace {

constexpr uint32_t kMaxPairs = RopeAttribute::kMaxRotary / 2;

struct Frequencies {
  double at[kMaxPairs];  // radians per position
};

struct Rotation {
  float cosine, sine;
};

// Returns cosine and sine of `angle`. The angle is written as n pi / 2 + r, with |r| <= pi / 4. r
// is computed in f64, because positions reach 2^20. The product of n and the high part of pi / 2,
// which has 33 bits, is exact in f64. The Taylor series of r are computed in f32.
__device__ inline Rotation rotate_by(double angle) {
  constexpr double kRound = 0x1.8p52;  // x + kRound has the integer nearest to x in the low bits of its significand
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

// Rotates (a, b) to (a cos - b sin, b cos + a sin).
__device__ inline void turn_pair(float& a, float& b, const Rotation& t) {
  const float rotated = fmaf(a, t.cosine, -(b * t.sine));
  b = fmaf(b, t.cosine, a * t.sine);
  a = rotated;
}

// Computes addresses of heads in separate tensors q, k and v. head(m, h) is head h of row m. The
// query heads have the first indices, then the key heads, then the value heads. HeadsBeside
// computes the addresses in one tensor qkv.
template <typename Stored>
struct HeadsApart {
  Stored *q, *k, *v;
  uint32_t heads, kv_heads, D;

  __device__ Stored* head(uint64_t m, uint32_t h) const {
    if (h < heads) return q + (m * heads + h) * D;
    h -= heads;
    return h < kv_heads ? k + (m * kv_heads + h) * D : v + (m * kv_heads + h - kv_heads) * D;
  }
};
template <typename Stored>
struct HeadsBeside {
  Stored* qkv;
  uint32_t all, D;

  __device__ Stored* head(uint64_t m, uint32_t h) const { return qkv + (m * all + h) * D; }
};

// The arguments that the forward and the backward share.
struct Rows {
  const int32_t* document_start;
  const float* frequencies;
  uint64_t M;
  uint32_t T, D;
  RopeAttribute rope;
  bool inverse;  // true in the backward: rotates by the negative angles

  template <typename Args>
  static Rows of(const Args& args, bool inverse) {
    return {args.document_start, args.frequencies, args.M, args.T, args.D, args.rope, inverse};
  }
  __device__ double position(uint64_t m) const {
    const auto t = static_cast<double>(m % T);
    const double start = document_start != nullptr ? static_cast<double>(document_start[m]) : 0.0;
    return inverse ? start - t : t - start;
  }
};

// Rotates kWidth pairs of a head: its elements [at, at + kWidth) and [other, other + kWidth). The
// elements of a pair are adjacent if `neighbours`; otherwise they are at + k and other + k.
template <uint32_t kWidth, typename Stored>
__device__ void rotate_packs(Stored* y, const Stored* x, uint32_t at, uint32_t other, bool neighbours,
                           const Rotation (&rotates)[kWidth]) {
  Pack<kWidth> a = load_pack<kWidth>(x + at), b = load_pack<kWidth>(x + other);
  if (kWidth == 1 || !neighbours) {
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) turn_pair(a.at[k], b.at[k], rotates[k]);
  } else {
    REPRISE_UNROLL
    for (uint32_t k = 0; k + 1 < kWidth; k += 2) {
      turn_pair(a.at[k], a.at[k + 1], rotates[k / 2]);
      turn_pair(b.at[k], b.at[k + 1], rotates[(kWidth + k) / 2]);
    }
  }
  store_pack(y + at, a);
  store_pack(y + other, b);
}

template <uint32_t kWidth, typename To, typename From>
__global__ void __launch_bounds__(kBlockThreads)
    turn_heads(const Rows rows, const To to, const From from, const Frequencies frequencies) {
  const uint32_t pairs = rows.rope.rotary / 2, packs = pairs / kWidth, rotated = rows.rope.heads + rows.rope.kv_heads;
  const bool neighbours = rows.rope.neighbours != 0;
  for (uint64_t i = grid_thread(); i < rows.M * packs; i += grid_threads()) {
    const uint64_t m = i / packs;
    const uint32_t first = static_cast<uint32_t>(i % packs) * kWidth;
    const double position = rows.position(m);
    Rotation rotates[kWidth];
    REPRISE_UNROLL
    for (uint32_t k = 0; k < kWidth; ++k) {
      const double f =
          rows.frequencies != nullptr ? static_cast<double>(rows.frequencies[first + k]) : frequencies.at[first + k];
      rotates[k] = rotate_by(position * f);
      rotates[k].cosine *= rows.rope.scale, rotates[k].sine *= rows.rope.scale;
    }
    const uint32_t at = neighbours ? 2 * first : first, other = at + (neighbours ? kWidth : pairs);
    for (uint32_t h = 0; h < rotated; ++h)
      rotate_packs<kWidth>(to.head(m, h), from.head(m, h), at, other, neighbours, rotates);
  }
}

// Copies the elements that are not rotated: elements from `rotary` on of the query and key heads,
// and all elements of the value heads.
template <uint32_t kWidth, typename To, typename From>
__global__ void __launch_bounds__(kBlockThreads) copy_unrotated(const Rows rows, const To to, const From from) {
  const uint32_t D = rows.D / kWidth, rotary = rows.rope.rotary / kWidth, behind = D - rotary;
  const uint32_t of_rotated = (rows.rope.heads + rows.rope.kv_heads) * behind,
                 of_row = of_rotated + rows.rope.kv_heads * D;
  for (uint64_t i = grid_thread(); i < rows.M * of_row; i += grid_threads()) {
    const uint64_t m = i / of_row;
    const auto j = static_cast<uint32_t>(i % of_row);
    const bool is_value = j >= of_rotated;
    const uint32_t in_values = j - of_rotated;
    const uint32_t h = is_value ? rows.rope.heads + rows.rope.kv_heads + in_values / D : j / behind;
    const uint32_t at = (is_value ? in_values % D : rotary + j % behind) * kWidth;
    store_pack(to.head(m, h) + at, load_pack<kWidth>(from.head(m, h) + at));
  }
}

template <uint32_t kWidth, typename To, typename From>
Status launch_width(const KernelContext& context, const Rows& rows, const To& to, const From& from) {
  const RopeAttribute& rope = rows.rope;
  Frequencies frequencies = {};
  for (uint32_t i = 0; i < rope.rotary / 2 && rows.frequencies == nullptr; ++i) {
    frequencies.at[i] = portable_power(static_cast<double>(rope.theta), -2.0 * i / rope.rotary);
  }
  if (rope.rotary > 0) {
    REPRISE_LAUNCH((turn_heads<kWidth, To, From>), blocks_for(rows.M * (rope.rotary / 2 / kWidth)), kBlockThreads,
                   context.queue, rows, to, from, frequencies);
  }
  const uint64_t elements =
      rows.M * ((rope.heads + rope.kv_heads) * uint64_t{rows.D - rope.rotary} + uint64_t{rope.kv_heads} * rows.D);
  REPRISE_LAUNCH((copy_unrotated<kWidth, To, From>), blocks_for(elements / kWidth), kBlockThreads, context.queue, rows,
                 to, from);
  return launch_status();
}
template <typename Stored, typename To, typename From>
Status launch_rope(const KernelContext& context, const Rows& rows, const To& to, const From& from) {
  constexpr uint32_t kWide = kPackWidth<Stored>;
  const bool wide = rows.rope.rotary % (2 * kWide) == 0 && rows.D % kWide == 0;
  return wide ? launch_width<kWide>(context, rows, to, from) : launch_width<1>(context, rows, to, from);
}

}  // namespace

template <typename Stored>
Status cuda_rope_forward(const KernelContext& context, const RopeForwardArgsOf<Stored>& args) {
  const RopeAttribute& rope = args.rope;
  return launch_rope<Stored>(context, Rows::of(args, false),
                             HeadsBeside<Stored>{args.qkv, rope.heads + 2 * rope.kv_heads, args.D},
                             HeadsApart<const Stored>{args.q, args.k, args.v, rope.heads, rope.kv_heads, args.D});
}

template <typename Stored>
Status cuda_rope_backward(const KernelContext& context, const RopeBackwardArgsOf<Stored>& args) {
  const RopeAttribute& rope = args.rope;
  return launch_rope<Stored>(context, Rows::of(args, true),
                             HeadsApart<Stored>{args.dq, args.dk, args.dv, rope.heads, rope.kv_heads, args.D},
                             HeadsBeside<const Stored>{args.dqkv, rope.heads + 2 * rope.kv_heads, args.D});
}

REPRISE_CUDA_INSTANTIATE(cuda_rope_forward, RopeForwardArgs)
REPRISE_CUDA_INSTANTIATE(cuda_rope_backward, RopeBackwardArgs)

}  // namespace reprise
