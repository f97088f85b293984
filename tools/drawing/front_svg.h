// The memory-time fronts of `compare --sweep` as one picture.
// Here because a person reads a front faster than its numbers.
// It must not compute a schedule: it draws what sweep_strategies answered.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace reprise {

// An SVG document: bytes of the packed arena across, extra work in per cent of a step's forward and backward upwards, one line of
// steps per strategy with its name at the line's end; strategies that fit at no budget are named below. A line goes on to the
// right edge, as more memory never hurts. Extra work far above what most strategies need is cut off, and a note says so.
// `sweep` is sweep_strategies' answer.
std::string front_svg(const nlohmann::json& sweep, const std::string& title);

}  // namespace reprise
