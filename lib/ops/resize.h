// Resizing of images as in PyTorch's interpolate: by the nearest pixel, or by interpolation between
// four pixels.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// One side of a resized image: `in` input pixels become `out` output pixels. Output pixel p has the
// position (slope p + begin) / parts on the input side; a negative position counts as the first
// pixel. All numbers are integers, so that every machine computes the same sources and shares.
struct ResizeSide {
  // The maximum pixels of a side. The product of two sides is then far below 2^63.
  static constexpr uint32_t kMax = 1u << 20;

  int64_t in, out, slope, begin, parts;
  bool interpolates;  // False: each output pixel has one source.

  // The sources of an output pixel: y = (1 - share) x[near] + share x[far]. `share` is at most 1/2,
  // so that x[far] has the smaller weight and the smaller effect on rounding.
  struct Sources {
    int64_t near, far;
    float share;
  };
  // Returns the sources of output pixel `p`.
  constexpr Sources sources(int64_t p) const {
    const int64_t place = slope * p + begin, whole = place < 0 ? 0 : place / parts,
                  rest = place < 0 ? 0 : place % parts;
    if (!interpolates || rest == 0 || whole + 1 >= in) return {whole, whole, 0.0f};
    if (2 * rest <= parts) return {whole, whole + 1, static_cast<float>(rest) / static_cast<float>(parts)};
    return {whole + 1, whole, static_cast<float>(parts - rest) / static_cast<float>(parts)};
  }
  // Returns the share of input pixel x[i] in an output pixel with the sources `s`; 0 if x[i] is no
  // source.
  static constexpr float share_of(int64_t i, const Sources& s) {
    const float of_far = s.far == i ? s.share : 0.0f;
    return s.near == i ? 1.0f - (s.near == s.far ? 0.0f : s.share) : of_far;
  }
  // Returns the first output pixel that may have x[i] as a source.
  constexpr int64_t first_reader(int64_t i) const { return first_behind(interpolates ? i - 1 : i); }
  // Returns the output pixel after the last one that may have x[i] as a source.
  constexpr int64_t end_reader(int64_t i) const { return first_behind(i + 1); }

 private:
  // Returns the first output pixel whose position on the input side is at least `old`; `out` if
  // there is none.
  constexpr int64_t first_behind(int64_t old) const {
    if (old <= 0) return 0;
    const int64_t distance = old * parts - begin;
    if (distance <= 0) return 0;
    const int64_t first = slope == 0 ? out : (distance + slope - 1) / slope;
    return first < out ? first : out;
  }
};

// The sizes of a call: N images of C channels, and how both sides are resized.
struct ResizeShape {
  uint64_t N, C;
  ResizeSide height, width;
};

// y = x, resized
template <typename Stored>
struct ResizeForwardArgsOf {
  Stored* y;        // [N,P,Q,C]
  const Stored* x;  // [N,H,W,C]
  ResizeShape shape;
};
// dx (+)= the gradient of x, computed from dy
template <typename Stored>
struct ResizeBackwardArgsOf {
  Stored* dx;        // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,C]
  ResizeShape shape;
  bool accumulate_dx;
};

namespace contract {
// Returns the fault of a resize from x to y.
constexpr Fault resize_fault(const Tensor& y, const Tensor& x) {
  if (y.rank != 4 || x.rank != 4 || y.shape[0] != x.shape[0] || y.shape[3] != x.shape[3]) return Fault::kShape;
  for (uint32_t side = 1; side <= 2; ++side) {
    if (y.shape[side] > ResizeSide::kMax || x.shape[side] > ResizeSide::kMax) return Fault::kShape;
  }
  return Fault::kNone;
}

// Returns how a side of `in` pixels is resized to `out` pixels.
constexpr ResizeSide resize_side(const ResizeAttribute& a, int64_t in, int64_t out) {
  switch (static_cast<ResizeKind>(a.kind)) {
    case ResizeKind::kNearest: return {in, out, in, 0, out, false};                // p in / out
    case ResizeKind::kBilinear: return {in, out, 2 * in, in - out, 2 * out, true};  // (p + 1/2) in / out - 1/2
    case ResizeKind::kBilinearCorners: break;                                     // p (in - 1) / (out - 1)
  }
  return {in, out, out > 1 ? in - 1 : 0, 0, out > 1 ? out - 1 : 1, true};
}

// Returns the sizes of a resize from x to y.
constexpr ResizeShape resize_shape(const ShapedCall& c, const Tensor& y, const Tensor& x) {
  const auto& a = c.attribute<ResizeAttribute>();
  return {x.shape[0], x.shape[3], resize_side(a, x.shape[1], y.shape[1]), resize_side(a, x.shape[2], y.shape[2])};
}
}  // namespace contract

struct ResizeForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::resize_fault(c[kY], c[kX]); }
  static constexpr const char* kSynopsis = "y = x resized by attribute.kind";
  static constexpr KernelInfo kInfo = {
      .op = Op::kResize, .pass = Pass::kForward, .name = "resize.forward", .attribute = kAttributeKind<ResizeAttribute>,
      .arguments = {contract::act_out("y[N,P,Q,C]"), contract::act_in("x[N,H,W,C]")}, .shape_fault = fault};
  template <typename Stored>
  static ResizeForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .x = c.pointer<Stored>(kX), .shape = contract::resize_shape(c, c[kY], c[kX])};
  }
};

struct ResizeBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::resize_fault(c[kDy], c[kDx]); }
  static constexpr const char* kSynopsis = "dx = sum of dy over its places by attribute.kind";
  static constexpr KernelInfo kInfo = {.op = Op::kResize,
                                       .pass = Pass::kBackward,
                                       .name = "resize.backward",
                                       .attribute = kAttributeKind<ResizeAttribute>,
                                       .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static ResizeBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx),
            .dy = c.pointer<Stored>(kDy),
            .shape = contract::resize_shape(c, c[kDy], c[kDx]),
            .accumulate_dx = c.adds(kDx)};
  }
};

using ResizeKernels = TypeList<ResizeForward, ResizeBackward>;

}  // namespace reprise
