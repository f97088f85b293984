// Builds kernel calls from the kernel's own names for its arguments.
#pragma once

#include "tools/plan/graph/graph.h"
#include "tools/plan/graph/named_arguments.h"

namespace reprise {

// Builds a call, for example call<LossHeadBackward>({{A::kX, x}, ...}) after `using A =
// LossHeadBackward`. The order of the arguments does not matter. An optional argument is absent if
// it is not named, or is named with kNoValue. An output may be named with kNoValue if its value is
// not yet known. Throws std::logic_error if the arguments do not fit the kernel (in_order()).
template <typename K>
Call call(const std::vector<NamedArgument<K, ValueId>>& arguments, uint32_t attribute = 0) {
  std::vector<PlacedArgument<ValueId>> placed;
  for (const auto& [argument, value] : arguments)
    placed.push_back({argument, value == kNoValue ? std::nullopt : std::optional(value)});
  Call call = {K::kInfo.op, K::kInfo.pass, attribute, {}};
  for (const std::optional<ValueId>& value : in_order(K::kInfo, placed))
    call.arguments.push_back(value.value_or(kNoValue));
  return call;
}

}  // namespace reprise
