// Images of another height and width, by PyTorch's interpolate: the nearest pixel, or what lies between four.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// Along one side of an image, of what `out` pixels are made. Pixel p lies at (slope p + begin) / parts of the old side, or at its first pixel where
// that is before it. All in whole numbers, so that every machine agrees about every pixel and every share.
struct ResizeSide {
  static constexpr uint32_t kMost = 1u << 20;  // pixels of a side: products of two sides stay far below 2^63

  int64_t in, out, slope, begin, parts;
  bool interpolates;

  // y = (1 - share) x[near] + share x[far]. The share is 1/2 at most, so that what is far and counts little spoils nothing.
  struct Sources {
    int64_t near, far;
    float share;
  };
  constexpr Sources sources(int64_t p) const {
    const int64_t place = slope * p + begin, whole = place < 0 ? 0 : place / parts, rest = place < 0 ? 0 : place % parts;
    if (!interpolates || rest == 0 || whole + 1 >= in) return {whole, whole, 0.0f};
    if (2 * rest <= parts) return {whole, whole + 1, static_cast<float>(rest) / static_cast<float>(parts)};
    return {whole + 1, whole, static_cast<float>(parts - rest) / static_cast<float>(parts)};
  }
  // The share of x[i] in what sources() says; 0 where it has none.
  static constexpr float share_of(int64_t i, const Sources& s) {
    const float of_far = s.far == i ? s.share : 0.0f;
    return s.near == i ? 1.0f - (s.near == s.far ? 0.0f : s.share) : of_far;
  }
  // The pixels [first, end) that x[i] may have a share in.
  constexpr int64_t first_reader(int64_t i) const { return first_behind(interpolates ? i - 1 : i); }
  constexpr int64_t end_reader(int64_t i) const { return first_behind(i + 1); }

 private:
  // The first pixel that lies at `old` or behind it.
  constexpr int64_t first_behind(int64_t old) const {
    if (old <= 0) return 0;
    const int64_t distance = old * parts - begin;
    if (distance <= 0) return 0;
    const int64_t first = slope == 0 ? out : (distance + slope - 1) / slope;
    return first < out ? first : out;
  }
};

struct ResizeShape {
  uint64_t N, C;
  ResizeSide height, width;
};

template <typename Stored>
struct ResizeForwardArgsOf {
  Stored* y;        // [N,P,Q,C]
  const Stored* x;  // [N,H,W,C]
  ResizeShape shape;
};
template <typename Stored>
struct ResizeBackwardArgsOf {
  Stored* dx;        // [N,H,W,C]
  const Stored* dy;  // [N,P,Q,C]
  ResizeShape shape;
  bool accumulate_dx;
};

namespace contract {
constexpr Fault resize_fault(const Tensor& y, const Tensor& x) {
  if (y.rank != 4 || x.rank != 4 || y.shape[0] != x.shape[0] || y.shape[3] != x.shape[3]) return Fault::kShape;
  for (uint32_t side = 1; side <= 2; ++side) {
    if (y.shape[side] > ResizeSide::kMost || x.shape[side] > ResizeSide::kMost) return Fault::kShape;
  }
  return Fault::kNone;
}

constexpr ResizeSide resize_side(const ResizeAttribute& a, int64_t in, int64_t out) {
  switch (static_cast<ResizeKind>(a.kind)) {
    case ResizeKind::kNearest: return {in, out, in, 0, out, false};                // p in / out
    case ResizeKind::kBilinear: return {in, out, 2 * in, in - out, 2 * out, true};  // (p + 1/2) in / out - 1/2
    case ResizeKind::kBilinearCorners: break;                                     // p (in - 1) / (out - 1)
  }
  return {in, out, out > 1 ? in - 1 : 0, 0, out > 1 ? out - 1 : 1, true};
}

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
  static constexpr KernelInfo kInfo = {
      .op = Op::kResize, .pass = Pass::kBackward, .name = "resize.backward", .attribute = kAttributeKind<ResizeAttribute>,
      .arguments = {contract::act_sum("dx[N,H,W,C]"), contract::act_in("dy[N,P,Q,C]")}, .shape_fault = fault};
  template <typename Stored>
  static ResizeBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dx = c.pointer<Stored>(kDx), .dy = c.pointer<Stored>(kDy), .shape = contract::resize_shape(c, c[kDy], c[kDx]),
            .accumulate_dx = c.adds(kDx)};
  }
};

using ResizeKernels = TypeList<ResizeForward, ResizeBackward>;

}  // namespace reprise
