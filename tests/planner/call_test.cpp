// Tests calls that are made with the names of a kernel's arguments: the order of the arguments, and
// refusals that name the kernel and the argument. A missing argument must be refused where the call
// is made, not when its plan is checked.
#include "tools/plan/graph/call.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace reprise {
namespace {

template <typename Make>
std::string refusal_of(const Make& make) {
  try {
    make();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Call, ArgumentsStandWhereTheKernelHasThem) {
  using A = LossHeadBackward;
  const Call head = call<A>(
      {{A::kLabels, 9}, {A::kX, 4}, {A::kW, 5}, {A::kScalars, 3}, {A::kDx, kNoValue}, {A::kDb, 2}, {A::kB, kNoValue}},
      7);
  EXPECT_EQ(head, (Call{Op::kLossHead, Pass::kBackward, 7, {kNoValue, kNoValue, 2, 3, 4, 5, kNoValue, 9, kNoValue}}));
  using C = CopyForward;
  EXPECT_EQ(call<C>({{C::kX, 1}, {C::kY, 2}}), (Call{Op::kCopy, Pass::kForward, 0, {2, 1}}));
}

TEST(Call, WhatIsMissingDoubledOrUnknownIsRefusedByName) {
  using A = LossHeadBackward;
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kDx, 1}, {A::kScalars, 2}, {A::kX, 3}, {A::kW, 4}});
            }),
            "loss_head.backward: labels[M] is missing; it is not optional");
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kScalars, 2}, {A::kX, 3}, {A::kW, 4}, {A::kLabels, 5}});
            }),
            "loss_head.backward: dx[M,C] is missing; it is not optional");
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kDx, 1}, {A::kScalars, 2}, {A::kX, 3}, {A::kX, 4}, {A::kW, 4}, {A::kLabels, 5}});
            }),
            "loss_head.backward: x[M,C] is named twice");
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kDx, 1}, {A::kScalars, 2}, {A::kX, kNoValue}, {A::kW, 4}, {A::kLabels, 5}});
            }),
            "loss_head.backward: x[M,C] has no value; it is not optional");
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kDx, 1}, {A::kScalars, kNoValue}, {A::kX, 3}, {A::kW, 4}, {A::kLabels, 5}});
            }),
            "loss_head.backward: scalars has no value; it is not optional");
  EXPECT_EQ(refusal_of([] {
              call<A>({{A::kDx, 1}, {A::kScalars, 2}, {A::kX, 3}, {A::kW, 4}, {A::kLabels, 5}, {A::kScratch, 6}});
            }),
            "loss_head.backward: scratch is found by the planner; a call does not name it");
  using C = CopyForward;
  EXPECT_EQ(refusal_of([] {
              call<C>({{C::kY, 1}, {C::kX, 2}, {C::kArity, 3}});
            }),
            "copy.forward: argument 2 is none of this kernel's");
}

// The names of a kernel's arguments have a type of their own for each kernel. So a call cannot use
// a name of another kernel.
template <typename K, typename Other>
concept TakesPlacesOf = requires(ValueId v) { NamedArgument<K, ValueId>{Other::kX, v}; };
static_assert(TakesPlacesOf<ConvForward, ConvForward>);
static_assert(!TakesPlacesOf<ConvForward, NormConvForward>);

// Names all arguments of a kernel, the last one first. in_order() must return them in the order of
// kInfo.
template <typename K>
void expect_all_named() {
  std::vector<PlacedArgument<ValueId>> placed;
  std::vector<std::optional<ValueId>> values;
  for (uint32_t a = 0; a < K::kInfo.arity(); ++a) {
    if (K::kInfo.arguments[a].role == Role::kScratch) continue;
    placed.insert(placed.begin(), {a, ValueId{100 + a}});
    values.push_back(100 + a);
  }
  EXPECT_EQ(in_order(K::kInfo, placed), values);
}
template <typename... K>
void expect_all_named(TypeList<K...>) {
  (expect_all_named<K>(), ...);
}
TEST(Call, EveryKernelCanBeCalled) { expect_all_named(Kernels{}); }

}  // namespace
}  // namespace reprise
