// A box of a tensor, and a box within zeros: neighbouring places along each dimension but that of the samples.
// Here because one walk serves all that takes parts out of a tensor or puts them in: the columns of a wide linear layer (Phi-3's q, k and v),
// a class token, the channels that a split gives, what an image has inside its padding, and the gradients of what was put side by side.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// A box of a tensor, by as few dimensions as it takes, of which the last ones are the longest: a dimension that the box holds whole is joined with
// the one before. So the box is runs of part[3] elements, of which part[2] make a row of it, and so is the tensor by `whole`.
struct Box {
  uint64_t whole[4], part[4], first[4];

  constexpr uint64_t whole_elements() const { return whole[0] * whole[1] * whole[2] * whole[3]; }
  constexpr uint64_t part_elements() const { return part[0] * part[1] * part[2] * part[3]; }
  // In the tensor, the first element of the box's run of that number.
  constexpr uint64_t place_of_run(uint64_t run) const {
    const uint64_t column = run % part[2], row = run / part[2] % part[1], sample = run / part[2] / part[1];
    return (((sample + first[0]) * whole[1] + row + first[1]) * whole[2] + column + first[2]) * whole[3] + first[3];
  }
  // In the box, the number of the run that begins the row which lies in the tensor's row of that number; kNoRun where none does.
  static constexpr uint64_t kNoRun = ~uint64_t{0};
  constexpr uint64_t row_in(uint64_t whole_row) const {
    const uint64_t row = whole_row % whole[1] - first[1], sample = whole_row / whole[1] - first[0];  // below 0 they wrap, and are none of the box's
    return row < part[1] && sample < part[0] ? (sample * part[1] + row) * part[2] : kNoRun;
  }
  // The same of the run in column `column` of that row.
  constexpr uint64_t run_in(uint64_t row, uint64_t column) const {
    return row != kNoRun && column - first[2] < part[2] ? row + (column - first[2]) : kNoRun;
  }
};

// part[...] = whole[the box].
template <typename Stored>
struct TakeBoxArgsOf {
  Stored* part;
  const Stored* whole;
  Box box;
  bool accumulate_part;
};
// whole[the box] (+)= part. What is not of the box is cleared where `whole` is not added to, else it stays.
template <typename Stored>
struct PutBoxArgsOf {
  Stored* whole;
  const Stored* part;
  Box box;
  bool accumulate_whole;
};

namespace contract {
constexpr uint32_t box_begin(const ColumnsAttribute& a, uint32_t dimensions_behind) {
  return dimensions_behind == 0 ? a.first : dimensions_behind == 1 ? a.second_last : dimensions_behind == 2 ? a.third_last : 0;
}

constexpr Fault box_fault(const ShapedCall& c, const Tensor& part, const Tensor& whole) {
  const ColumnsAttribute& a = c.attribute<ColumnsAttribute>();
  if (part.rank != whole.rank || (whole.rank > 1 && part.shape[0] != whole.shape[0])) return Fault::kShape;
  for (uint32_t behind = 0; behind < kMaxRank; ++behind) {
    const uint32_t begin = box_begin(a, behind);
    if (behind >= whole.rank) {
      if (begin != 0) return Fault::kAttribute;
      continue;
    }
    const uint32_t d = whole.rank - 1 - behind;
    if (uint64_t{begin} + part.shape[d] > whole.shape[d]) return Fault::kAttribute;
  }
  return Fault::kNone;
}

constexpr Box box_of(const ShapedCall& c, const Tensor& part, const Tensor& whole) {
  Box box{{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}};
  for (uint32_t behind = 0; behind < whole.rank; ++behind) {
    const uint32_t d = whole.rank - 1 - behind, at = kMaxRank - 1 - behind;
    box.whole[at] = whole.shape[d], box.part[at] = part.shape[d], box.first[at] = box_begin(c.attribute<ColumnsAttribute>(), behind);
  }
  for (uint32_t d = kMaxRank - 1, joined = 0; d > 0 && joined + 1 < kMaxRank;) {
    if (box.part[d] != box.whole[d]) {
      --d;
      continue;
    }
    const uint64_t length = box.whole[d];
    for (uint32_t i = d; i > 0; --i) box.whole[i] = box.whole[i - 1], box.part[i] = box.part[i - 1], box.first[i] = box.first[i - 1];
    box.whole[0] = box.part[0] = 1, box.first[0] = 0;
    box.whole[d] *= length, box.part[d] *= length, box.first[d] *= length;
    ++joined;
  }
  return box;
}

template <typename Stored>
TakeBoxArgsOf<Stored> take_box_arguments(const RowCall& c) {
  return {.part = c.pointer<Stored>(0), .whole = c.pointer<Stored>(1), .box = box_of(c, c[0], c[1]), .accumulate_part = c.adds(0)};
}
template <typename Stored>
PutBoxArgsOf<Stored> put_box_arguments(const RowCall& c) {
  return {.whole = c.pointer<Stored>(0), .part = c.pointer<Stored>(1), .box = box_of(c, c[1], c[0]), .accumulate_whole = c.adds(0)};
}
}  // namespace contract

struct ColumnsForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kY], c[kX]); }
  static constexpr const char* kSynopsis = "y = box of x from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kColumns, .pass = Pass::kForward, .name = "columns.forward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_sum("y[M,C]"), contract::act_in("x[M,K]")}, .shape_fault = fault};
  template <typename Stored>
  static TakeBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::take_box_arguments<Stored>(c);
  }
};

struct ColumnsBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kDy], c[kDx]); }
  static constexpr const char* kSynopsis = "dx = dy in box from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kColumns, .pass = Pass::kBackward, .name = "columns.backward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_sum("dx[M,K]"), contract::act_in("dy[M,C]")}, .shape_fault = fault};
  template <typename Stored>
  static PutBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::put_box_arguments<Stored>(c);
  }
};

// Zeros around x: what columns does to a gradient, and its gradient what columns does to x.
struct PadForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kX], c[kY]); }
  static constexpr const char* kSynopsis = "y = x in box from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPad, .pass = Pass::kForward, .name = "pad.forward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static PutBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::put_box_arguments<Stored>(c);
  }
};

struct PadBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kDx], c[kDy]); }
  static constexpr const char* kSynopsis = "dx = box of dy from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {
      .op = Op::kPad, .pass = Pass::kBackward, .name = "pad.backward", .attribute = kAttributeKind<ColumnsAttribute>,
      .arguments = {contract::act_sum("dx[...]"), contract::act_in("dy[...]")}, .shape_fault = fault};
  template <typename Stored>
  static TakeBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::take_box_arguments<Stored>(c);
  }
};

using ColumnsKernels = TypeList<ColumnsForward, ColumnsBackward>;
using PadKernels = TypeList<PadForward, PadBackward>;

}  // namespace reprise
