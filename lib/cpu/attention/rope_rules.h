// Stack bytes that a rotary embedding needs for the angles of a row. Rules and kernel share this
// definition.
#pragma once

#include "lib/backend_rules.h"
#include "lib/stack_buffer.h"

namespace reprise {

constexpr uint32_t rope_pairs(const RopeAttribute& rope) { return rope.rotary / 2; }

constexpr void add_rope_rules(BackendRules& rules) {
  // Per pair: a frequency in double, a sine and a cosine in float.
  rules.of<RopeForward>().stack_bytes = rules.of<RopeBackward>().stack_bytes = [](const ShapedCall& c) {
    const uint64_t pairs = rope_pairs(c.attribute<RopeAttribute>());
    return stack_buffer_bytes(pairs * sizeof(double)) + 2 * stack_buffer_bytes(pairs * sizeof(float));
  };
}

}  // namespace reprise
