// See chart.h. Writes lines, ticks and labels as SVG text, which needs no library. Labels are moved
// apart so that they do not overlap.
#include "tools/files/drawing/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace reprise {

namespace {

constexpr double kWidth = 900, kHeight = 520;
constexpr double kLeft = 76, kTop = 62, kBottom = 436;  // edges of the plot in pixels
constexpr double kLabelGap = 17, kLetter = 7.2;         // pixels from label to label; width of a 13-pixel letter
constexpr const char* kInk = "#333333";
constexpr const char* kFaint = "#767676";
// The colours differ also for readers who distinguish fewer colours, because dark and light ones
// alternate.
constexpr std::array<const char*, 10> kColours = {"#4477aa", "#d9772b", "#228833", "#aa3377", "#8a6d00",
                                                  "#117a8b", "#b02a37", "#5b4fa2", "#6b7a1e", "#7a4b2a"};
constexpr const char* kStressed = "#000000";

struct Scale {
  double low = 0, high = 1;
  std::vector<double> ticks;
  double from = 0, to = 1;  // ends of the axis in the picture, in pixels
  bool logarithmic = false;
  double at(double value) const {
    const double clamped = std::clamp(value, low, high);
    const double share = logarithmic ? std::log(clamped / low) / std::log(high / low) : (clamped - low) / (high - low);
    return from + share * (to - from);
  }
};

std::vector<double> even_ticks(double low, double high, double step) {
  std::vector<double> ticks;
  for (double value = std::ceil(low / step) * step; value <= high * (1 + 1e-12); value += step) ticks.push_back(value);
  return ticks;
}

std::vector<double> doubling_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double value = low; value <= high * (1 + 1e-12); value *= 2) ticks.push_back(value);
  return ticks;
}

// Returns 1, 2 and 5 times the powers of ten that are in the range.
std::vector<double> decade_ticks(double low, double high) {
  std::vector<double> ticks;
  for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor * power >= low * (1 - 1e-12) && factor * power <= high * (1 + 1e-12)) ticks.push_back(factor * power);
    }
  }
  return ticks;
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

std::string words(double x, double y, const char* anchor, const char* colour, const std::string& text,
                  const char* more = "") {
  return text_of("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"%s>", x, y, anchor, colour, more) +
         escaped(text) + "</text>\n";
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    size_t longest = 4;
    for (const ChartLine& line : chart.lines) longest = std::max(longest, line.name.size());
    const double right = kWidth - 40 - kLetter * static_cast<double>(std::min<size_t>(longest, 40));
    x_ = {.low = chart.x_low,
          .high = chart.x_high,
          .ticks = {},
          .from = kLeft,
          .to = right,
          .logarithmic = chart.logarithmic};
    y_ = {.low = chart.logarithmic ? chart.y_low : 0,
          .high = chart.y_high,
          .ticks = {},
          .from = kBottom,
          .to = kTop,
          .logarithmic = chart.logarithmic};
    if (chart.logarithmic) {
      x_.ticks = doubling_ticks(x_.low, x_.high);
      y_.ticks = decade_ticks(y_.low, y_.high);
    } else {
      const double step = tick_step(chart.y_high, 6);
      y_.high = std::ceil(chart.y_high / step - 1e-9) * step;
      x_.ticks = even_ticks(x_.low, x_.high, chart.x_step);
      y_.ticks = even_ticks(0, y_.high, step);
    }
    choose_looks();
    place_labels();
  }

  std::string svg() const {
    std::string svg =
        text_of("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" ", kWidth,
                kHeight, kWidth, kHeight);
    svg += "font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n";
    svg += text_of("<rect width=\"%g\" height=\"%g\" fill=\"#ffffff\"/>\n", kWidth, kHeight) + axes();
    for (const ChartGuide& each : chart_.guides) svg += guide(each);
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

  // Chooses colours and widths. Earlier lines are thicker, so that both of two lines that coincide
  // can be seen.
  void choose_looks() {
    for (size_t l = 0; l < chart_.lines.size(); ++l) {
      if (chart_.lines[l].stressed) looks_.push_back({kStressed, 2.6});
      else looks_.push_back({kColours[l % kColours.size()], std::max(1.4, 4.2 - 0.4 * static_cast<double>(l))});
    }
  }

  void place_labels() {
    std::vector<size_t> order;
    for (size_t l = 0; l < looks_.size(); ++l) order.push_back(l);
    std::stable_sort(order.begin(), order.end(), [this](size_t a, size_t b) {
      return chart_.lines[a].points.back().second > chart_.lines[b].points.back().second;
    });
    const double last = kBottom + 5, space = last - kTop - 5;
    const double gap =
        order.size() < 2 ? kLabelGap : std::min(kLabelGap, space / static_cast<double>(order.size() - 1));
    double minimum = kTop + 5;
    for (const size_t l : order) {
      looks_[l].label_y = std::max(minimum, end_of(chart_.lines[l]));
      minimum = looks_[l].label_y + gap;
    }
    double maximum = last;
    for (auto l = order.rbegin(); l != order.rend(); ++l) {
      looks_[*l].label_y = std::min(looks_[*l].label_y, maximum);
      maximum = looks_[*l].label_y - gap;
    }
  }

  std::string axes() const {
    std::string svg = words(kLeft, 26, "start", kInk, chart_.title, " font-size=\"17\" font-weight=\"bold\"");
    svg += words(kLeft, 46, "start", kFaint, chart_.upwards, " font-size=\"12\"");
    for (const double value : y_.ticks) {
      svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e4e4\"/>\n", kLeft,
                     y_.at(value), x_.to, y_.at(value));
      svg += words(kLeft - 8, y_.at(value) + 4, "end", kFaint, text_of("%g", value) + chart_.upwards_unit,
                   " font-size=\"12\"");
    }
    svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", kLeft, kBottom, x_.to,
                   kBottom, kFaint);
    for (const double value : x_.ticks) {
      svg += text_of("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x_.at(value), kBottom,
                     x_.at(value), kBottom + 5, kFaint);
      svg += words(x_.at(value), kBottom + 20, "middle", kFaint, text_of("%g", value), " font-size=\"12\"");
    }
    return svg + words((kLeft + x_.to) / 2, kBottom + 42, "middle", kFaint, chart_.across, " font-size=\"12\"");
  }

  // Returns the SVG text of a guide, cut off at the edges of the plot.
  std::string guide(const ChartGuide& drawn) const {
    const auto y_of = [&drawn](double x) { return drawn.y * std::pow(x / drawn.x, drawn.slope); };
    const auto x_of = [&drawn](double y) { return drawn.x * std::pow(y / drawn.y, 1 / drawn.slope); };
    const double first = std::max(x_.low, x_of(y_.low)), last = std::min(x_.high, x_of(y_.high));
    std::string svg = text_of(
        "<line class=\"guide\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-dasharray=\"6 "
        "5\"/>\n",
        x_.at(first), y_.at(y_of(first)), x_.at(last), y_.at(y_of(last)), kFaint);
    return svg + words(x_.at(first) + 6, y_.at(y_of(first)) - 8, "start", kFaint, drawn.name, " font-size=\"11\"");
  }

  std::string line(const ChartLine& drawn, const Look& look) const {
    std::string path, dots;
    bool beyond = false;  // true if the previous point is above the upper edge
    for (const auto& [value_x, value_y] : drawn.points) {
      const double at_x = x_.at(value_x), at_y = y_.at(value_y);
      const bool above = std::exchange(beyond, value_y > y_.high);
      if (beyond) continue;
      if (path.empty() || above)
        path +=
            above && chart_.steps ? text_of("M%.1f %.1fV%.1f", at_x, y_.to, at_y) : text_of("M%.1f %.1f", at_x, at_y);
      else path += chart_.steps ? text_of("H%.1fV%.1f", at_x, at_y) : text_of("L%.1f %.1f", at_x, at_y);
      dots += text_of("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", at_x, at_y, look.width / 2 + 1.4,
                      look.colour.c_str());
    }
    if (path.empty()) path = text_of("M%.1f %.1f", x_.at(drawn.points.back().first), y_.to);
    if (chart_.steps) path += text_of("H%.1f", x_.to);
    std::string svg =
        "<path d=\"" + path +
        text_of("\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n", look.colour.c_str(), look.width) + dots;
    svg += text_of("<path d=\"M%.1f %.1fL%.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"0.8\"/>\n",
                   chart_.steps ? x_.to : x_.at(drawn.points.back().first), end_of(drawn), x_.to + 22, look.label_y,
                   look.colour.c_str());
    const char* weight = drawn.stressed ? " class=\"label\" font-weight=\"bold\"" : " class=\"label\"";
    return svg + words(x_.to + 26, look.label_y + 4.5, "start", look.colour.c_str(), drawn.name, weight);
  }

  std::string notes() const {
    std::string svg;
    double at = kBottom + 62;
    const size_t maximum = static_cast<size_t>((kWidth - kLeft) / 6.2);
    for (const std::string& note : chart_.notes) {
      svg += words(kLeft, at, "start", kFaint, note.size() > maximum ? note.substr(0, maximum - 3) + "..." : note,
                   " font-size=\"11\"");
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
