// See front_svg.h. Selects the points of the fronts, and scales that show most of them. A point is
// left out if another point of the same strategy is better.
#include "tools/files/drawing/front_svg.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "tools/files/drawing/chart.h"

namespace reprise {

namespace {

using nlohmann::json;

struct Unit {
  double bytes;
  const char* name;
};

std::vector<std::pair<double, double>> front_of(const json& points, const Unit& unit) {
  std::vector<std::pair<double, double>> all, front;
  for (const json& point : points) {
    if (!point.at("feasible").get<bool>()) continue;
    all.push_back(
        {point.at("packed_bytes").get<double>() / unit.bytes, 100 * point.at("extra_forward_cost").get<double>()});
  }
  std::sort(all.begin(), all.end());
  for (const auto& point : all) {
    if (front.empty() || point.second < front.back().second - 1e-9) front.push_back(point);
  }
  return front;
}

// Returns the upper end of the vertical axis. It fits the fronts of most strategies, so that one
// strategy that needs much more does not flatten the others.
double percent_shown(const std::vector<ChartLine>& lines) {
  std::vector<double> highest;
  for (const ChartLine& line : lines) highest.push_back(line.points.front().second);
  std::sort(highest.begin(), highest.end());
  if (highest.empty()) return 100;
  const double usual = std::max(20.0, 1.5 * highest[highest.size() / 2]);
  return std::max(1.0, std::min(highest.back(), usual));
}

// Sets the horizontal axis. It begins at 0 unless most of the picture would then be empty.
void scale_across(Chart& chart, double maximum) {
  double minimum = maximum;
  for (const ChartLine& line : chart.lines) minimum = std::min(minimum, line.points.front().first);
  chart.x_high = maximum;
  chart.x_step = tick_step(maximum, 8);
  if (minimum <= 0.5 * maximum || minimum >= maximum) return;
  chart.x_step = tick_step(maximum - minimum, 8);
  chart.x_low = std::floor(minimum / chart.x_step - 0.5) * chart.x_step;
}

void add_notes(Chart& chart, const std::string& without) {
  std::string cut;
  const double step = tick_step(chart.y_high, 6), edge = std::ceil(chart.y_high / step - 1e-9) * step;
  for (const ChartLine& line : chart.lines) {
    if (line.points.front().second <= edge) continue;
    cut += (cut.empty() ? "Beyond the upper edge: " : ", ") + line.name + " to " +
           std::to_string(std::lround(line.points.front().second)) + " %";
  }
  if (!cut.empty()) chart.notes.push_back(cut);
  if (!without.empty()) chart.notes.push_back("Fits at no budget shown: " + without);
}

}  // namespace

std::string front_svg(const json& sweep, const std::string& title) {
  const double maximum = std::max(1.0, sweep.at("store_all_bytes").get<double>());
  const Unit unit = maximum >= 1073741824.0 ? Unit{1073741824.0, "GiB"}
                    : maximum >= 1048576.0  ? Unit{1048576.0, "MiB"}
                                         : Unit{1024.0, "KiB"};
  Chart chart{.title = title,
              .across = std::string("memory of the whole arena, ") + unit.name,
              .upwards = "extra work, % of one step's forward and backward",
              .upwards_unit = " %",
              .steps = true,
              .lines = {},
              .notes = {}};
  std::string without;
  for (const json& given : sweep.at("fronts")) {
    const std::string name = given.value("policy", given.at("strategy").get<std::string>());
    const auto points = front_of(given.at("points"), unit);
    if (points.empty()) without += (without.empty() ? "" : ", ") + name;
    else chart.lines.push_back({name, points, name == "optimal"});
  }
  chart.y_high = percent_shown(chart.lines);
  scale_across(chart, maximum / unit.bytes);
  add_notes(chart, without);
  return chart_svg(chart);
}

}  // namespace reprise
