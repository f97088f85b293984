// Draws the memory-time fronts of `compare --sweep` as one picture, because people read a front
// faster than its numbers. It does not compute schedules.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// Returns an SVG document. The horizontal axis is the bytes of the packed arena; the vertical axis
// is the extra work, in per cent of a step's forward and backward. Each strategy is one stepped
// line with its name at the line's end; strategies that fit at no budget are listed below. A line
// continues to the right edge, because more memory never hurts. Extra work far above that of most
// strategies is cut off, and a note states this. `sweep` is the result of sweep_strategies().
std::string front_svg(const nlohmann::json& sweep, const std::string& title);

}  // namespace reprise
