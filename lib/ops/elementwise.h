// ReLU, GELU, SwiGLU, GeGLU, cap, addition, copy and reshape: an output element depends only on the
// input elements with the same index. Also move, which copies a value to an address range that may
// overlap the old range.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y = f(x) for relu, gelu, copy, move and reshape.
template <typename Stored>
struct UnaryArgsOf {
  Stored* y;        // [n]; may be x for relu and gelu; may overlap x for move and reshape (memmove semantics)
  const Stored* x;  // [n]
  uint64_t n;
  bool accumulate_y;  // copy only: true if the kernel adds to y
  bool tanh_form;     // gelu only: GeluAttribute::tanh_form
};
// The gradient of relu (`saved` is y: dx = dy if y > 0, else 0) or of gelu (`saved` is x).
template <typename Stored>
struct ActivationBackwardArgsOf {
  Stored* dx;                     // [n]; may be dy
  const Stored* saved;            // [n]
  const Stored* dy;               // [n]
  uint64_t n;
  bool tanh_form;  // gelu only: GeluAttribute::tanh_form
};
// y = a + b
template <typename Stored>
struct AddArgsOf {
  Stored* y;  // [n]; may be a
  const Stored* a;  // [n]
  const Stored* b;  // [n]
  uint64_t n;
};

// A gated unit (Shazeer 2020): y = f(gate) * up. SwiGLU's f is silu(x) = x / (1 + e^-x), GeGLU's is
// gelu in the tanh form.
template <typename Stored>
struct GatedArgsOf {
  Stored* y;           // [n]; may be gate
  const Stored* gate;  // [n]
  const Stored* up;    // [n]
  uint64_t n;
};
// The gradients of a gated unit.
template <typename Stored>
struct GatedBackwardArgsOf {
  Stored* dgate;  // [n]; may be gate
  Stored* dup;    // [n]
  const Stored* gate;  // [n]
  const Stored* up;    // [n]
  const Stored* dy;  // [n]
  uint64_t n;
};

namespace contract {
// Returns the arguments of a kernel that computes argument 0 from argument 1.
template <typename Stored>
UnaryArgsOf<Stored> unary_arguments(const RowCall& c, bool tanh_form) {
  return {.y = c.pointer<Stored>(0),
          .x = c.pointer<Stored>(1),
          .n = c[0].elements(),
          .accumulate_y = c.adds(0),
          .tanh_form = tanh_form};
}
// Returns the arguments of a gradient: argument 0 from 1 (saved) and 2 (dy).
template <typename Stored>
ActivationBackwardArgsOf<Stored> activation_backward_arguments(const RowCall& c, bool tanh_form) {
  return {.dx = c.pointer<Stored>(0),
          .saved = c.pointer<Stored>(1),
          .dy = c.pointer<Stored>(2),
          .n = c[0].elements(),
          .tanh_form = tanh_form};
}
}  // namespace contract

struct ReluForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = max(x, 0)";
  static constexpr KernelInfo kInfo = {
      .op = Op::kRelu, .pass = Pass::kForward, .name = "relu.forward", .in_place_output = kY, .in_place_input = kX,
      .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, false);
  }
};

struct ReluBackward {
  enum : uint32_t { kDx, kY, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 3); }
  static constexpr const char* kSynopsis = "dx = (y > 0 ? dy : 0)";
  static constexpr KernelInfo kInfo = {.op = Op::kRelu,
                                       .pass = Pass::kBackward,
                                       .name = "relu.backward",
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[...]"), contract::act_in("y[...]"),
                                                     contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static ActivationBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return contract::activation_backward_arguments<Stored>(c, false);
  }
};

struct AddForward {
  enum : uint32_t { kY, kA, kB, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 3); }
  static constexpr const char* kSynopsis = "y = a + b";
  static constexpr KernelInfo kInfo = {.op = Op::kAdd,
                                       .pass = Pass::kForward,
                                       .name = "add.forward",
                                       .in_place_output = kY,
                                       .in_place_input = kA,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("a[...]"),
                                                     contract::act_in("b[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static AddArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY), .a = c.pointer<Stored>(kA), .b = c.pointer<Stored>(kB), .n = c[kY].elements()};
  }
};

struct CopyForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = x";
  static constexpr KernelInfo kInfo = {
      .op = Op::kCopy, .pass = Pass::kForward, .name = "copy.forward", .copies = true,
      .arguments = {contract::act_sum("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, false);
  }
};

struct GeluForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = gelu(x)";
  static constexpr KernelInfo kInfo = {.op = Op::kGelu,
                                       .pass = Pass::kForward,
                                       .name = "gelu.forward",
                                       .attribute = kAttributeKind<GeluAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, c.attribute<GeluAttribute>().tanh_form != 0);
  }
};

struct GeluBackward {
  enum : uint32_t { kDx, kX, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 3); }
  static constexpr const char* kSynopsis = "dx = dy gelu'(x)";
  static constexpr KernelInfo kInfo = {.op = Op::kGelu,
                                       .pass = Pass::kBackward,
                                       .name = "gelu.backward",
                                       .attribute = kAttributeKind<GeluAttribute>,
                                       .in_place_output = kDx,
                                       .in_place_input = kDy,
                                       .arguments = {contract::act_out("dx[...]"), contract::act_in("x[...]"),
                                                     contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static ActivationBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return contract::activation_backward_arguments<Stored>(c, c.attribute<GeluAttribute>().tanh_form != 0);
  }
};

// The forward kernel of a gated `Unit`, which provides the op and the names and synopses of its
// kernels.
template <typename Unit>
struct GatedForward {
  enum : uint32_t { kY, kGate, kUp, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 3); }
  static constexpr const char* kSynopsis = Unit::kForwardSynopsis;
  static constexpr KernelInfo kInfo = {.op = Unit::kOp,
                                       .pass = Pass::kForward,
                                       .name = Unit::kForward,
                                       .in_place_output = kY,
                                       .in_place_input = kGate,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("gate[...]"),
                                                     contract::act_in("up[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static GatedArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .gate = c.pointer<Stored>(kGate),
            .up = c.pointer<Stored>(kUp),
            .n = c[kY].elements()};
  }
};

// The backward kernel of a gated `Unit`.
template <typename Unit>
struct GatedBackward {
  enum : uint32_t { kDgate, kDup, kGate, kUp, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 5); }
  static constexpr const char* kSynopsis = Unit::kBackwardSynopsis;
  static constexpr KernelInfo kInfo = {.op = Unit::kOp,
                                       .pass = Pass::kBackward,
                                       .name = Unit::kBackward,
                                       .in_place_output = kDgate,
                                       .in_place_input = kGate,
                                       .arguments = {contract::act_out("dgate[...]"), contract::act_out("dup[...]"),
                                                     contract::act_in("gate[...]"), contract::act_in("up[...]"),
                                                     contract::act_in("dy[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static GatedBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dgate = c.pointer<Stored>(kDgate), .dup = c.pointer<Stored>(kDup), .gate = c.pointer<Stored>(kGate),
            .up = c.pointer<Stored>(kUp), .dy = c.pointer<Stored>(kDy), .n = c[kDgate].elements()};
  }
};

namespace contract {
// The unit y = silu(gate) up.
struct SwigluUnit {
  static constexpr Op kOp = Op::kSwiglu;
  static constexpr const char *kForward = "swiglu.forward", *kForwardSynopsis = "y = silu(gate) up";
  static constexpr const char *kBackward = "swiglu.backward",
                              *kBackwardSynopsis = "dgate = dy up silu'(gate); dup = dy silu(gate)";
};
// The unit y = gelu(gate) up.
struct GegluUnit {
  static constexpr Op kOp = Op::kGeglu;
  static constexpr const char *kForward = "geglu.forward", *kForwardSynopsis = "y = gelu(gate) up";
  static constexpr const char *kBackward = "geglu.backward",
                              *kBackwardSynopsis = "dgate = dy up gelu'(gate); dup = dy gelu(gate)";
};
}  // namespace contract

using SwigluForward = GatedForward<contract::SwigluUnit>;
using SwigluBackward = GatedBackward<contract::SwigluUnit>;
using GegluForward = GatedForward<contract::GegluUnit>;
using GegluBackward = GatedBackward<contract::GegluUnit>;

// Caps logits before sampling, as the loss head does in training: y = softcap tanh(x / softcap).
template <typename Stored>
struct CapArgsOf {
  Stored* y;        // [n]; may be x
  const Stored* x;  // [n]
  uint64_t n;
  float softcap;
};
struct CapForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    if (c.attribute<CapAttribute>().softcap == 0) return Fault::kAttribute;
    return shape::all_alike(c, 2);
  }
  static constexpr const char* kSynopsis = "y = attribute.softcap tanh(x / attribute.softcap)";
  static constexpr KernelInfo kInfo = {.op = Op::kCap,
                                       .pass = Pass::kForward,
                                       .name = "cap.forward",
                                       .attribute = kAttributeKind<CapAttribute>,
                                       .in_place_output = kY,
                                       .in_place_input = kX,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static CapArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .x = c.pointer<Stored>(kX),
            .n = c[kY].elements(),
            .softcap = c.attribute<CapAttribute>().softcap};
  }
};

// Copies a value to an address range that may overlap the value's old range (memmove semantics).
struct MoveForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = x, whose places may overlap";
  static constexpr KernelInfo kInfo = {
      .op = Op::kMove, .pass = Pass::kForward, .name = "move.forward", .copies = true, .moves = true,
      .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, false);
  }
};

// Copies x to y, which has other dimensions. The lifetime of x may end, and the lifetime of y
// begin, with this row. If the plan then gives x and y the same address, nothing is copied.
struct ReshapeForward {
  enum : uint32_t { kY, kX, kArity };
  static constexpr Fault fault(const ShapedCall& c) { return shape::all_alike(c, 2); }
  static constexpr const char* kSynopsis = "y = x, whose places may overlap";
  static constexpr KernelInfo kInfo = {
      .op = Op::kReshape, .pass = Pass::kForward, .name = "reshape.forward", .copies = true, .moves = true,
      .arguments = {contract::act_out("y[...]"), contract::act_in("x[...]")}, .shape_fault = fault};
  template <typename Stored>
  static UnaryArgsOf<Stored> arguments(const RowCall& c) {
    return contract::unary_arguments<Stored>(c, false);
  }
};

using ElementwiseKernels = TypeList<ReluForward, ReluBackward, AddForward, CopyForward, GeluForward, GeluBackward,
                                    SwigluForward, SwigluBackward, MoveForward>;

using GegluKernels = TypeList<GegluForward, GegluBackward>;
using CapKernels = TypeList<CapForward>;
using ReshapeKernels = TypeList<ReshapeForward>;

}  // namespace reprise
