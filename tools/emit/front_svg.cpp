// The picture of front_svg.h, written as text: steps, ticks, labels that make room for each other.
// Here without a drawing library: lines and words are all it needs.
// It must not favour a strategy, but for the order of drawing.
#include "tools/emit/front_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace reprise {

namespace {

using nlohmann::json;

constexpr double kWidth = 900, kHeight = 520;
constexpr double kLeft = 76, kTop = 62, kBottom = 436;  // of the plot
constexpr double kLabelGap = 17, kLetter = 7.2;         // pixels between labels; width of a letter at 13 pixels
constexpr const char* kInk = "#333333";
constexpr const char* kFaint = "#767676";
// Distinct for readers who see fewer colours too: dark and light take turns.
constexpr std::array<const char*, 10> kColours = {"#4477aa", "#d9772b", "#228833", "#aa3377", "#8a6d00",
                                                  "#117a8b", "#b02a37", "#5b4fa2", "#6b7a1e", "#7a4b2a"};
constexpr const char* kOptimalColour = "#000000";

struct Point {
  double bytes = 0, percent = 0;
};

struct Front {
  std::string name, colour;
  std::vector<Point> points;  // bytes rise, per cent falls
  double width = 2, label_y = 0;
};

struct Scale {
  double low = 0, high = 1, step = 1;  // of the values
  double from = 0, to = 1;             // pixels
  double at(double value) const { return from + (std::clamp(value, low, high) - low) / (high - low) * (to - from); }
};

struct Unit {
  double bytes;
  const char* name;
};

// A step of 1, 2 or 5 times a power of ten that gives about `count` ticks.
double tick_step(double range, int count) {
  const double rough = range / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

template <typename... Values>
std::string text_of(const char* format, Values... values) {
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, format, values...);
  return buffer;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') result += "&amp;";
    else if (c == '<') result += "&lt;";
    else if (c == '>') result += "&gt;";
    else if (c == '"') result += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20) result += c;
  }
  return result;
}

std::string words(double x, double y, const char* anchor, const char* colour, const std::string& text, const char* more = "") {
  return text_of("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s>", x, y, anchor, colour, more) + escaped(text) + "</text>\n";
}

// What is feasible, without the points that another of the same strategy beats.
std::vector<Point> front_of(const json& points) {
  std::vector<Point> all, front;
  for (const json& point : points) {
    if (point.at("feasible").get<bool>()) all.push_back({point.at("packed_bytes").get<double>(), 100 * point.at("extra_forward_cost").get<double>()});
  }
  std::sort(all.begin(), all.end(), [](const Point& a, const Point& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.percent < b.percent; });
  for (const Point& point : all) {
    if (front.empty() || point.percent < front.back().percent - 1e-9) front.push_back(point);
  }
  return front;
}

// The thicker lines come first, so that of two that coincide both can be seen.
std::vector<Front> fronts_of(const json& sweep, std::string& without) {
  std::vector<Front> fronts;
  for (const json& given : sweep.at("fronts")) {
    Front front;
    front.name = given.value("policy", given.at("strategy").get<std::string>());
    front.points = front_of(given.at("points"));
    if (front.points.empty()) {
      without += (without.empty() ? "" : ", ") + front.name;
      continue;
    }
    front.colour = front.name == "optimal" ? kOptimalColour : kColours[fronts.size() % kColours.size()];
    front.width = front.name == "optimal" ? 2.6 : std::max(1.4, 4.2 - 0.4 * static_cast<double>(fronts.size()));
    fronts.push_back(front);
  }
  return fronts;
}

// Where most strategies' fronts end upwards; a strategy that needs far more must not press the others flat.
double percent_shown(const std::vector<Front>& fronts) {
  std::vector<double> highest;
  for (const Front& front : fronts) highest.push_back(front.points.front().percent);
  std::sort(highest.begin(), highest.end());
  if (highest.empty()) return 100;
  const double usual = std::max(20.0, 1.5 * highest[highest.size() / 2]);
  return std::max(1.0, std::min(highest.back(), usual));
}

void place_labels(std::vector<Front>& fronts, const Scale& y) {
  std::vector<Front*> order;
  for (Front& front : fronts) order.push_back(&front);
  std::stable_sort(order.begin(), order.end(), [](const Front* a, const Front* b) { return a->points.back().percent > b->points.back().percent; });
  const double last = kBottom + 5, room = last - kTop - 5;
  const double gap = order.size() < 2 ? kLabelGap : std::min(kLabelGap, room / static_cast<double>(order.size() - 1));
  double least = kTop + 5;
  for (Front* front : order) {
    front->label_y = std::max(least, y.at(front->points.back().percent));
    least = front->label_y + gap;
  }
  double most = last;
  for (auto front = order.rbegin(); front != order.rend(); ++front) {
    (*front)->label_y = std::min((*front)->label_y, most);
    most = (*front)->label_y - gap;
  }
}

std::string draw_axes(const Scale& x, const Scale& y, const Unit& unit, const std::string& title) {
  std::string svg = words(kLeft, 26, "start", kInk, title, " font-size=\"17\" font-weight=\"bold\"");
  svg += words(kLeft, 46, "start", kFaint, "extra work, % of one step's forward and backward", " font-size=\"12\"");
  for (double value = 0; value <= y.high + 1e-9; value += y.step) {
    svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", kLeft, y.at(value), x.to, y.at(value));
    svg += words(kLeft - 8, y.at(value) + 4, "end", kFaint, text_of("%g %%", value), " font-size=\"12\"");
  }
  svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", kLeft, kBottom, x.to, kBottom, kFaint);
  for (double value = std::ceil(x.low / x.step) * x.step; value <= x.high * (1 + 1e-12); value += x.step) {
    svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x.at(value), kBottom, x.at(value), kBottom + 5, kFaint);
    svg += words(x.at(value), kBottom + 20, "middle", kFaint, text_of("%g", value / unit.bytes), " font-size=\"12\"");
  }
  return svg + words((kLeft + x.to) / 2, kBottom + 42, "middle", kFaint, std::string("memory of the whole arena, ") + unit.name, " font-size=\"12\"");
}

std::string draw_front(const Front& front, const Scale& x, const Scale& y) {
  std::string path, dots;
  bool beyond = false;  // the point before this one lies above the upper edge
  for (const Point& point : front.points) {
    const double at_x = x.at(point.bytes), at_y = y.at(point.percent);
    const bool above = std::exchange(beyond, point.percent > y.high);
    if (beyond) continue;
    path += above ? text_of("M%.1f %.1fV%.1f", at_x, y.to, at_y) : path.empty() ? text_of("M%.1f %.1f", at_x, at_y) : text_of("H%.1fV%.1f", at_x, at_y);
    dots += text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", at_x, at_y, front.width / 2 + 1.4, front.colour.c_str());
  }
  if (path.empty()) path = text_of("M%.1f %.1f", x.at(front.points.back().bytes), y.to);
  path += text_of("H%.1f", x.to);
  const double end_y = y.at(front.points.back().percent);
  std::string svg = "<path d=\"" + path + text_of("\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", front.colour.c_str(), front.width) + dots;
  svg += text_of("<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"0.8\"/>\n", x.to, end_y, x.to + 22, front.label_y,
                 front.colour.c_str());
  const char* weight = front.name == "optimal" ? " class=\"label\" font-weight=\"bold\"" : " class=\"label\"";
  return svg + words(x.to + 26, front.label_y + 4.5, "start", front.colour.c_str(), front.name, weight);
}

// Lines of at most the picture's width below the plot.
std::string notes(const std::vector<Front>& fronts, const Scale& y, const std::string& without) {
  std::string cut;
  for (const Front& front : fronts) {
    if (front.points.front().percent <= y.high) continue;
    cut += (cut.empty() ? "Beyond the upper edge: " : ", ") + front.name + text_of(" to %.0f %%", front.points.front().percent);
  }
  std::string svg;
  double at = kBottom + 62;
  for (const std::string& note : {cut, without.empty() ? without : "Fits at no budget shown: " + without}) {
    if (note.empty()) continue;
    const size_t most = static_cast<size_t>((kWidth - kLeft) / 6.2);
    svg += words(kLeft, at, "start", kFaint, note.size() > most ? note.substr(0, most - 3) + "..." : note, " font-size=\"11\"");
    at += 15;
  }
  return svg;
}

}  // namespace

std::string front_svg(const json& sweep, const std::string& title) {
  std::string without;
  std::vector<Front> fronts = fronts_of(sweep, without);
  const double most = std::max(1.0, sweep.at("store_all_bytes").get<double>());
  double least = most;
  size_t longest = 4;
  for (const Front& front : fronts) {
    least = std::min(least, front.points.front().bytes);
    longest = std::max(longest, front.name.size());
  }
  const Unit unit = most >= 1073741824.0 ? Unit{1073741824.0, "GiB"} : most >= 1048576.0 ? Unit{1048576.0, "MiB"} : Unit{1024.0, "KiB"};
  Scale x{.low = 0, .high = most, .step = unit.bytes * tick_step(most / unit.bytes, 8), .from = kLeft,
          .to = kWidth - 40 - kLetter * static_cast<double>(std::min<size_t>(longest, 40))};
  // The axis begins at nought unless that would leave most of the picture empty.
  if (least > 0.5 * most && least < most) {
    x.step = unit.bytes * tick_step((most - least) / unit.bytes, 8);
    x.low = std::floor(least / x.step - 0.5) * x.step;
  }
  const double shown = percent_shown(fronts), step = tick_step(shown, 6);
  const Scale y{.low = 0, .high = std::ceil(shown / step - 1e-9) * step, .step = step, .from = kBottom, .to = kTop};
  place_labels(fronts, y);

  std::string svg = text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" ", kWidth, kHeight, kWidth, kHeight);
  svg += "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n";
  svg += text_of("<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", kWidth, kHeight) + draw_axes(x, y, unit, title);
  for (const Front& front : fronts) {
    if (front.name != "optimal") svg += draw_front(front, x, y);
  }
  for (const Front& front : fronts) {
    if (front.name == "optimal") svg += draw_front(front, x, y);
  }
  return svg + notes(fronts, y, without) + "</svg>\n";
}

}  // namespace reprise
