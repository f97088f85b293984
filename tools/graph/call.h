// Kernel calls made by the kernel's own names for its arguments.
#pragma once

#include "tools/graph/graph.h"
#include "tools/graph/named_arguments.h"

namespace reprise {

// call<LossHeadBackward>({{A::kX, x}, ...}), with using A = LossHeadBackward. Order does not matter, and an optional argument that is not
// named, or named with kNoValue, is absent. An output may be named with kNoValue where its value is still to come. What in_order refuses
// is refused.
template <typename K>
Call call(const std::vector<NamedArgument<K, ValueId>>& arguments, uint32_t attribute = 0) {
  std::vector<PlacedArgument<ValueId>> placed;
  for (const auto& [argument, value] : arguments) placed.push_back({argument, value == kNoValue ? std::nullopt : std::optional(value)});
  Call call = {K::kInfo.op, K::kInfo.pass, attribute, {}};
  for (const std::optional<ValueId>& value : in_order(K::kInfo, placed)) call.arguments.push_back(value.value_or(kNoValue));
  return call;
}

}  // namespace reprise
