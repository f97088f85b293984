// A box of a tensor: a range of indices along each dimension except that of the samples. The
// kernels take a box out of a tensor, or put it into a tensor of zeros.
// All ops that take parts out of a tensor or put parts into a tensor use these kernels. Examples:
// the columns of a wide linear layer (Phi-3's q, k and v), a class token, the channels of a split,
// the inside of a padded image, and the gradients of a concatenation.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// A box of a tensor, described with as few dimensions as possible. Dimensions that the box covers
// completely are joined with the dimension before them. The dimensions that remain are in the last
// entries of the arrays; unused leading sizes are 1. The box consists of runs of part[3] elements,
// and part[2] runs make a row. `whole` has the sizes of the tensor, joined in the same way.
struct Box {
  uint64_t whole[4], part[4], first[4];  // Sizes of the tensor, sizes of the box, and the box's first indices.

  // Returns the number of elements of the tensor.
  constexpr uint64_t whole_elements() const { return whole[0] * whole[1] * whole[2] * whole[3]; }
  // Returns the number of elements of the box.
  constexpr uint64_t part_elements() const { return part[0] * part[1] * part[2] * part[3]; }
  // Returns the index in the tensor of the first element of the box's run `run`.
  constexpr uint64_t place_of_run(uint64_t run) const {
    const uint64_t column = run % part[2], row = run / part[2] % part[1], sample = run / part[2] / part[1];
    return (((sample + first[0]) * whole[1] + row + first[1]) * whole[2] + column + first[2]) * whole[3] + first[3];
  }
  static constexpr uint64_t kNoRun = ~uint64_t{0};  // The value of a run that means "no run of the box".
  // Returns the first run of the box in row `whole_row` of the tensor; kNoRun if the box has none
  // there.
  constexpr uint64_t row_in(uint64_t whole_row) const {
    // Indices below 0 wrap to large numbers and are outside the box.
    const uint64_t row = whole_row % whole[1] - first[1], sample = whole_row / whole[1] - first[0];
    return row < part[1] && sample < part[0] ? (sample * part[1] + row) * part[2] : kNoRun;
  }
  // Returns the run of the box in column `column` of the row whose first run is `row`; kNoRun if
  // the box has none there.
  constexpr uint64_t run_in(uint64_t row, uint64_t column) const {
    return row != kNoRun && column - first[2] < part[2] ? row + (column - first[2]) : kNoRun;
  }
};

// part (+)= whole[box]
template <typename Stored>
struct TakeBoxArgsOf {
  Stored* part;         // The shape of the box.
  const Stored* whole;  // The shape of the tensor.
  Box box;
  bool accumulate_part;
};
// whole[box] (+)= part. If accumulate_whole is true, elements outside the box stay; otherwise they
// become 0.
template <typename Stored>
struct PutBoxArgsOf {
  Stored* whole;       // The shape of the tensor.
  const Stored* part;  // The shape of the box.
  Box box;
  bool accumulate_whole;
};

namespace contract {
// Returns the box's first index along the dimension after which `dimensions_behind` dimensions
// follow.
constexpr uint32_t box_begin(const ColumnsAttribute& a, uint32_t dimensions_behind) {
  return dimensions_behind == 0   ? a.first
         : dimensions_behind == 1 ? a.second_last
         : dimensions_behind == 2 ? a.third_last
                                  : 0;
}

// Returns the fault of a box with the shape of `part` in `whole`.
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

// Returns the box of a call that box_fault() accepts.
constexpr Box box_of(const ShapedCall& c, const Tensor& part, const Tensor& whole) {
  Box box{{1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0}};
  for (uint32_t behind = 0; behind < whole.rank; ++behind) {
    const uint32_t d = whole.rank - 1 - behind, at = kMaxRank - 1 - behind;
    box.whole[at] = whole.shape[d], box.part[at] = part.shape[d],
    box.first[at] = box_begin(c.attribute<ColumnsAttribute>(), behind);
  }
  for (uint32_t d = kMaxRank - 1, joined = 0; d > 0 && joined + 1 < kMaxRank;) {
    if (box.part[d] != box.whole[d]) {
      --d;
      continue;
    }
    const uint64_t length = box.whole[d];
    for (uint32_t i = d; i > 0; --i)
      box.whole[i] = box.whole[i - 1], box.part[i] = box.part[i - 1], box.first[i] = box.first[i - 1];
    box.whole[0] = box.part[0] = 1, box.first[0] = 0;
    box.whole[d] *= length, box.part[d] *= length, box.first[d] *= length;
    ++joined;
  }
  return box;
}

// Returns the arguments of a kernel whose argument 0 is the output and whose argument 1 is the
// input.
template <typename Stored>
TakeBoxArgsOf<Stored> take_box_arguments(const RowCall& c) {
  return {.part = c.pointer<Stored>(0),
          .whole = c.pointer<Stored>(1),
          .box = box_of(c, c[0], c[1]),
          .accumulate_part = c.adds(0)};
}
template <typename Stored>
PutBoxArgsOf<Stored> put_box_arguments(const RowCall& c) {
  return {.whole = c.pointer<Stored>(0),
          .part = c.pointer<Stored>(1),
          .box = box_of(c, c[1], c[0]),
          .accumulate_whole = c.adds(0)};
}
}  // namespace contract

struct ColumnsForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kY], c[kX]); }
  static constexpr const char* kSynopsis =
      "y = box of x from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {.op = Op::kColumns,
                                       .pass = Pass::kForward,
                                       .name = "columns.forward",
                                       .attribute = kAttributeKind<ColumnsAttribute>,
                                       .arguments = {contract::act_sum("y[M,C]"), contract::act_in("x[M,K]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static TakeBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::take_box_arguments<Stored>(c);
  }
};

struct ColumnsBackward {
  enum : uint32_t { kDx, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kDy], c[kDx]); }
  static constexpr const char* kSynopsis =
      "dx = dy in box from [attribute.third_last, attribute.second_last, attribute.first] on";
  static constexpr KernelInfo kInfo = {.op = Op::kColumns,
                                       .pass = Pass::kBackward,
                                       .name = "columns.backward",
                                       .attribute = kAttributeKind<ColumnsAttribute>,
                                       .arguments = {contract::act_sum("dx[M,K]"), contract::act_in("dy[M,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static PutBoxArgsOf<Stored> arguments(const RowCall& c) {
    return contract::put_box_arguments<Stored>(c);
  }
};

// Surrounds x with zeros. The forward computes the same as columns.backward, and the backward the
// same as columns.forward.
struct PadForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return contract::box_fault(c, c[kX], c[kY]); }
  static constexpr const char* kSynopsis =
      "y = x in box from [attribute.third_last, attribute.second_last, attribute.first] on";
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
  static constexpr const char* kSynopsis =
      "dx = box of dy from [attribute.third_last, attribute.second_last, attribute.first] on";
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
