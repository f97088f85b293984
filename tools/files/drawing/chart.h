// Draws a few lines over two axes, with labels at the lines' ends, because people read a curve
// faster than its numbers. Memory-time fronts and depth curves are drawn with it.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace reprise {

// One line of a chart.
struct ChartLine {
  std::string name;                               // label at the line's end
  std::vector<std::pair<double, double>> points;  // x ascends; not empty
  bool stressed = false;                          // true: black, thicker, and drawn last
};

// A dashed straight line, as a reference for other lines. Both axes must be logarithmic; there the
// guide is the curve through (x, y) on which y is proportional to x ^ slope.
struct ChartGuide {
  std::string name;  // label at the line's beginning
  double x = 1, y = 1, slope = 1;
};

// The contents of a chart.
struct Chart {
  std::string title;
  std::string across, upwards;  // captions of the axes, including units
  std::string upwards_unit;     // appended to each number of the vertical axis, for example " %"
  double x_low = 0, x_high = 1, x_step = 1;
  double y_high = 1;  // the axis begins at 0; parts of lines above y_high are cut off
  // True: both axes are logarithmic. y begins at y_low, x has ticks at x_low, twice and four times
  // x_low, and so on; x_step is unused.
  bool logarithmic = false;
  double y_low = 0;  // used only if the axes are logarithmic
  // True: y is constant from a point to the next one, or to the right edge; false: points are
  // joined
  bool steps = false;
  std::vector<ChartLine> lines;
  std::vector<ChartGuide> guides = {};
  std::vector<std::string> notes;  // lines of text below the plot, shortened to its width
};

// Returns the chart as an SVG document.
std::string chart_svg(const Chart& chart);

// Returns a step for ticks: 1, 2 or 5 times a power of ten. It divides `range` into about `count`
// parts.
double tick_step(double range, int count);

}  // namespace reprise
