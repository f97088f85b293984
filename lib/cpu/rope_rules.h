// The stack that a rotary embedding takes for the angles of a row: rules and kernel agree on it here.
#pragma once

#include "lib/backend_rules.h"
#include "lib/stack_room.h"

namespace reprise {

constexpr uint32_t rope_pairs(const RopeAttribute& rope) { return rope.rotary / 2; }

constexpr void add_rope_rules(BackendRules& rules) {
  // A frequency in double, a sine and a cosine.
  rules.of<RopeForward>().stack_bytes = rules.of<RopeBackward>().stack_bytes = [](const ShapedCall& c) {
    const uint64_t pairs = rope_pairs(c.attribute<RopeAttribute>());
    return stack_room_bytes(pairs * sizeof(double)) + 2 * stack_room_bytes(pairs * sizeof(float));
  };
}

}  // namespace reprise
