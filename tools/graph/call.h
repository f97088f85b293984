// Kernel calls made by the kernel's own names for its arguments.
// Here because an argument's place is known in its family's header alone: a rule that counts places is wrong one day and nobody sees it.
#pragma once

#include <initializer_list>

#include "tools/graph/graph.h"

namespace reprise {

// One argument of a call of K. Its place is K's own enumerator: that of another kernel does not compile.
template <typename K>
struct NamedArgument {
  decltype(K::kArity) argument;
  ValueId value;
};

namespace call_places {
struct PlacedArgument {
  uint32_t place;
  ValueId value;
};
Call make(const KernelInfo& kernel, const std::vector<PlacedArgument>& arguments, uint32_t attribute);
}  // namespace call_places

// call<LossHeadBackward>({{A::kX, x}, ...}), with using A = LossHeadBackward. Order does not matter, and an optional argument that is not
// named, or named with kNoValue, is absent. An output may be named with kNoValue where its value is still to come. Throws std::logic_error
// with the kernel's and the argument's name for one that is named twice, for a required one that is not named or has no value, for the
// scratch, which no call has, and for a place that the kernel does not have.
template <typename K>
Call call(std::initializer_list<NamedArgument<K>> arguments, uint32_t attribute = 0) {
  std::vector<call_places::PlacedArgument> placed;
  for (const NamedArgument<K>& each : arguments) placed.push_back({static_cast<uint32_t>(each.argument), each.value});
  return call_places::make(K::kInfo, placed, attribute);
}

}  // namespace reprise
