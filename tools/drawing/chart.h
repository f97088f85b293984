// A picture of a few lines over two axes, labelled at their ends.
// Here because a person reads a curve faster than its numbers; fronts and depth curves are drawn alike.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace reprise {

struct ChartLine {
  std::string name;                               // stands at the line's end
  std::vector<std::pair<double, double>> points;  // x rises; not empty
  bool stressed = false;                          // black, thicker, drawn last
};

struct Chart {
  std::string title;
  std::string across, upwards;  // captions, units included
  std::string upwards_unit;     // behind every number of the upward axis, such as " %"
  double x_low = 0, x_high = 1, x_step = 1;
  double y_high = 1;            // from 0; what lies above is cut off
  bool steps = false;           // a point holds until the next one, the last to the right edge; else points are joined
  std::vector<ChartLine> lines;
  std::vector<std::string> notes;  // below the plot, cut at its width
};

// An SVG document.
std::string chart_svg(const Chart& chart);

// A step of 1, 2 or 5 times a power of ten that divides `range` into about `count`.
double tick_step(double range, int count);

}  // namespace reprise
