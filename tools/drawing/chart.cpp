// The picture of chart.h, written as text: lines, ticks, labels that make room for each other.
// Here without a drawing library: lines and words are all it needs.
#include "tools/drawing/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace reprise {

namespace {

constexpr double kWidth = 900, kHeight = 520;
constexpr double kLeft = 76, kTop = 62, kBottom = 436;  // of the plot
constexpr double kLabelGap = 17, kLetter = 7.2;         // pixels between labels; width of a letter at 13 pixels
constexpr const char* kInk = "#333333";
constexpr const char* kFaint = "#767676";
// Distinct for readers who see fewer colours too: dark and light take turns.
constexpr std::array<const char*, 10> kColours = {"#4477aa", "#d9772b", "#228833", "#aa3377", "#8a6d00",
                                                  "#117a8b", "#b02a37", "#5b4fa2", "#6b7a1e", "#7a4b2a"};
constexpr const char* kStressed = "#000000";

struct Scale {
  double low = 0, high = 1, step = 1;  // of the values
  double from = 0, to = 1;             // pixels
  double at(double value) const { return from + (std::clamp(value, low, high) - low) / (high - low) * (to - from); }
};

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

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    size_t longest = 4;
    for (const ChartLine& line : chart.lines) longest = std::max(longest, line.name.size());
    x_ = {.low = chart.x_low, .high = chart.x_high, .step = chart.x_step, .from = kLeft,
          .to = kWidth - 40 - kLetter * static_cast<double>(std::min<size_t>(longest, 40))};
    y_.step = tick_step(chart.y_high, 6);
    y_ = {.low = 0, .high = std::ceil(chart.y_high / y_.step - 1e-9) * y_.step, .step = y_.step, .from = kBottom, .to = kTop};
    choose_looks();
    place_labels();
  }

  std::string svg() const {
    std::string svg = text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" ", kWidth, kHeight, kWidth, kHeight);
    svg += "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n";
    svg += text_of("<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", kWidth, kHeight) + axes();
    for (const bool stressed : {false, true}) {
      for (size_t l = 0; l < chart_.lines.size(); ++l) {
        if (chart_.lines[l].stressed == stressed) svg += line(chart_.lines[l], looks_[l]);
      }
    }
    return svg + notes() + "</svg>\n";
  }

 private:
  struct Look {
    std::string colour;
    double width = 2, label_y = 0;
  };

  double end_of(const ChartLine& line) const { return y_.at(line.points.back().second); }

  // The thicker lines come first, so that of two that coincide both can be seen.
  void choose_looks() {
    for (size_t l = 0; l < chart_.lines.size(); ++l) {
      if (chart_.lines[l].stressed) looks_.push_back({kStressed, 2.6});
      else looks_.push_back({kColours[l % kColours.size()], std::max(1.4, 4.2 - 0.4 * static_cast<double>(l))});
    }
  }

  void place_labels() {
    std::vector<size_t> order;
    for (size_t l = 0; l < looks_.size(); ++l) order.push_back(l);
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) { return chart_.lines[a].points.back().second > chart_.lines[b].points.back().second; });
    const double last = kBottom + 5, room = last - kTop - 5;
    const double gap = order.size() < 2 ? kLabelGap : std::min(kLabelGap, room / static_cast<double>(order.size() - 1));
    double least = kTop + 5;
    for (const size_t l : order) {
      looks_[l].label_y = std::max(least, end_of(chart_.lines[l]));
      least = looks_[l].label_y + gap;
    }
    double most = last;
    for (auto l = order.rbegin(); l != order.rend(); ++l) {
      looks_[*l].label_y = std::min(looks_[*l].label_y, most);
      most = looks_[*l].label_y - gap;
    }
  }

  std::string axes() const {
    std::string svg = words(kLeft, 26, "start", kInk, chart_.title, " font-size=\"17\" font-weight=\"bold\"");
    svg += words(kLeft, 46, "start", kFaint, chart_.upwards, " font-size=\"12\"");
    for (double value = 0; value <= y_.high + 1e-9; value += y_.step) {
      svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", kLeft, y_.at(value), x_.to, y_.at(value));
      svg += words(kLeft - 8, y_.at(value) + 4, "end", kFaint, text_of("%g", value) + chart_.upwards_unit, " font-size=\"12\"");
    }
    svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", kLeft, kBottom, x_.to, kBottom, kFaint);
    for (double value = std::ceil(x_.low / x_.step) * x_.step; value <= x_.high * (1 + 1e-12); value += x_.step) {
      svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x_.at(value), kBottom, x_.at(value), kBottom + 5, kFaint);
      svg += words(x_.at(value), kBottom + 20, "middle", kFaint, text_of("%g", value), " font-size=\"12\"");
    }
    return svg + words((kLeft + x_.to) / 2, kBottom + 42, "middle", kFaint, chart_.across, " font-size=\"12\"");
  }

  std::string line(const ChartLine& drawn, const Look& look) const {
    std::string path, dots;
    bool beyond = false;  // the point before this one lies above the upper edge
    for (const auto& [value_x, value_y] : drawn.points) {
      const double at_x = x_.at(value_x), at_y = y_.at(value_y);
      const bool above = std::exchange(beyond, value_y > y_.high);
      if (beyond) continue;
      if (path.empty() || above) path += above && chart_.steps ? text_of("M%.1f %.1fV%.1f", at_x, y_.to, at_y) : text_of("M%.1f %.1f", at_x, at_y);
      else path += chart_.steps ? text_of("H%.1fV%.1f", at_x, at_y) : text_of("L%.1f %.1f", at_x, at_y);
      dots += text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", at_x, at_y, look.width / 2 + 1.4, look.colour.c_str());
    }
    if (path.empty()) path = text_of("M%.1f %.1f", x_.at(drawn.points.back().first), y_.to);
    if (chart_.steps) path += text_of("H%.1f", x_.to);
    std::string svg = "<path d=\"" + path + text_of("\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", look.colour.c_str(), look.width) + dots;
    svg += text_of("<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"0.8\"/>\n",
                   chart_.steps ? x_.to : x_.at(drawn.points.back().first), end_of(drawn), x_.to + 22, look.label_y, look.colour.c_str());
    const char* weight = drawn.stressed ? " class=\"label\" font-weight=\"bold\"" : " class=\"label\"";
    return svg + words(x_.to + 26, look.label_y + 4.5, "start", look.colour.c_str(), drawn.name, weight);
  }

  std::string notes() const {
    std::string svg;
    double at = kBottom + 62;
    const size_t most = static_cast<size_t>((kWidth - kLeft) / 6.2);
    for (const std::string& note : chart_.notes) {
      svg += words(kLeft, at, "start", kFaint, note.size() > most ? note.substr(0, most - 3) + "..." : note, " font-size=\"11\"");
      at += 15;
    }
    return svg;
  }

  const Chart& chart_;
  Scale x_, y_;
  std::vector<Look> looks_;
};

}  // namespace

double tick_step(double range, int count) {
  const double rough = range / count, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

std::string chart_svg(const Chart& chart) { return Drawing(chart).svg(); }

}  // namespace reprise
