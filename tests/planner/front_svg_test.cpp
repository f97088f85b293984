// Tests the drawing of memory-time fronts. It must be well-formed and inside its canvas. It must
// name every strategy once, and no name may cover another. A drawing without one strategy or unit
// would look correct. A small reader of XML in this file parses the text, independently of the
// drawing code.
#include "tools/files/drawing/front_svg.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

using nlohmann::json;

struct Element {
  std::string name, text;
  std::map<std::string, std::string> attributes;
  double number(const std::string& key) const { return std::strtod(attributes.at(key).c_str(), nullptr); }
};

// Parses elements, attributes in double quotes, text, and the five predefined entities. `fault`
// describes the first error; "" if there is none.
class XmlReader {
 public:
  explicit XmlReader(const std::string& text) : text_(text) {
    while (fault.empty() && at_ < text_.size()) text_[at_] == '<' ? read_tag() : read_text();
    if (fault.empty() && !open_.empty()) fault = "not closed: " + open_.back();
  }
  std::vector<Element> elements;
  std::string fault;

 private:
  void read_text() {
    const size_t end = std::min(text_.find('<', at_), text_.size());
    const std::string piece = text_.substr(at_, end - at_);
    for (size_t i = piece.find('&'); i != std::string::npos; i = piece.find('&', i + 1)) {
      if (piece.find(';', i) == std::string::npos) fault = "a bare &";
    }
    if (open_.empty() && piece.find_first_not_of(" \n") != std::string::npos) fault = "text outside of the root";
    if (!open_.empty() && !elements.empty()) elements.back().text += piece;
    at_ = end;
  }
  void read_tag() {
    const size_t end = text_.find('>', at_);
    if (end == std::string::npos) return void(fault = "a tag without end");
    std::string tag = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    if (tag[0] == '/') {
      if (open_.empty() || open_.back() != tag.substr(1)) fault = "closes another: " + tag;
      else open_.pop_back();
      return;
    }
    const bool empty = tag.back() == '/';
    if (empty) tag.pop_back();
    if (open_.empty() && !elements.empty()) fault = "two roots";
    Element element{.name = tag.substr(0, tag.find(' ')), .text = "", .attributes = {}};
    read_attributes(tag, element);
    if (!empty) open_.push_back(element.name);
    elements.push_back(element);
  }
  void read_attributes(const std::string& tag, Element& element) {
    size_t at = element.name.size();
    while ((at = tag.find_first_not_of(' ', at)) != std::string::npos) {
      const size_t equals = tag.find("=\"", at);
      const size_t end = equals == std::string::npos ? equals : tag.find('"', equals + 2);
      if (end == std::string::npos) return void(fault = "an attribute without value in <" + tag + ">");
      const std::string key = tag.substr(at, equals - at), value = tag.substr(equals + 2, end - equals - 2);
      if (value.find('<') != std::string::npos) fault = "a < in an attribute";
      if (!element.attributes.emplace(key, value).second) fault = "an attribute given twice: " + key;
      at = end + 1;
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  std::vector<std::string> open_;
};

json point(uint64_t bytes, double extra) {
  return {{"feasible", true},
          {"packed_bytes", bytes},
          {"peak_bytes", bytes},
          {"extra_forward_cost", extra},
          {"budget", bytes}};
}
json nothing(uint64_t budget) {
  return {{"feasible", false}, {"packed_bytes", nullptr}, {"extra_forward_cost", nullptr}, {"budget", budget}};
}

json sweep_in(uint64_t unit) {
  const auto front = [](const char* strategy, json points) {
    return json{{"strategy", strategy}, {"points", std::move(points)}};
  };
  json fronts = {front("none", {nothing(10 * unit), point(100 * unit, 0)}),
                 front("revolve", {point(20 * unit, 4.5), point(40 * unit, 0.4), point(60 * unit, 0.3)}),
                 front("optimal",
                       {point(10 * unit, 0.9), point(50 * unit, 0.2), point(70 * unit, 0.25), point(100 * unit, 0)}),
                 front("<odd & name>", {point(30 * unit, 0.3), point(90 * unit, 0.0)}),
                 front("policy", {nothing(10 * unit), nothing(100 * unit)})};
  for (int k = 0; k < 9; ++k)
    fronts.push_back(
        front(("other-" + std::to_string(k)).c_str(), {point(30 * unit, 0.5), point(95 * unit, 1e-6 * k)}));
  return {{"store_all_bytes", 100 * unit}, {"fronts", fronts}};
}

// Requires that every coordinate of a path, line, circle or text is inside the canvas.
void expect_inside(const Element& element, double width, double height) {
  const auto inside = [&](double value, double maximum) {
    EXPECT_TRUE(value >= 0 && value <= maximum) << element.name << " " << value;
  };
  for (const auto& [key, value] : element.attributes) {
    if (key == "x" || key == "x1" || key == "x2" || key == "cx") inside(element.number(key), width);
    if (key == "y" || key == "y1" || key == "y2" || key == "cy") inside(element.number(key), height);
  }
  if (element.name != "path") return;
  const char* d = element.attributes.at("d").c_str();
  char command = 'M';
  for (bool across = true; *d != '\0';) {
    if (std::isalpha(static_cast<unsigned char>(*d))) {
      command = *d++;
      across = command != 'V';
      continue;
    }
    char* end = nullptr;
    const double value = std::strtod(d, &end);
    ASSERT_NE(end, d) << "path " << element.attributes.at("d");
    inside(value, across ? width : height);
    if (command == 'M' || command == 'L') across = !across;
    d = *end == ' ' ? end + 1 : end;
  }
}

std::vector<const Element*> labels_of(const XmlReader& xml) {
  std::vector<const Element*> labels;
  for (const Element& element : xml.elements) {
    if (element.name == "text" && element.attributes.count("class") && element.attributes.at("class") == "label")
      labels.push_back(&element);
  }
  return labels;
}

bool says(const XmlReader& xml, const std::string& words) {
  return std::any_of(xml.elements.begin(), xml.elements.end(),
                     [&](const Element& e) { return e.text.find(words) != std::string::npos; });
}

TEST(FrontSvg, IsWellFormedAndInsideItsCanvas) {
  for (const uint64_t unit : {uint64_t{1} << 10, uint64_t{1} << 20, uint64_t{1} << 30}) {
    const std::string svg = front_svg(sweep_in(unit), "a \"title\" & <more>");
    const XmlReader xml(svg);
    ASSERT_EQ(xml.fault, "");
    ASSERT_EQ(xml.elements[0].name, "svg");
    for (const Element& element : xml.elements)
      expect_inside(element, xml.elements[0].number("width"), xml.elements[0].number("height"));
    EXPECT_TRUE(says(xml, "a &quot;title&quot; &amp; &lt;more&gt;"));
  }
}

TEST(FrontSvg, NamesEveryFeasibleStrategyOnceWithoutOverlap) {
  const std::string svg = front_svg(sweep_in(1 << 20), "t");
  const XmlReader xml(svg);
  std::vector<const Element*> labels = labels_of(xml);
  std::vector<std::string> names;
  for (const Element* label : labels) names.push_back(label->text.substr(0, label->text.find('\n')));
  std::sort(names.begin(), names.end());
  std::vector<std::string> wanted = {"&lt;odd &amp; name&gt;", "none", "optimal", "revolve"};
  for (int k = 0; k < 9; ++k) wanted.push_back("other-" + std::to_string(k));
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(names, wanted);
  std::sort(labels.begin(), labels.end(),
            [](const Element* a, const Element* b) { return a->number("y") < b->number("y"); });
  for (size_t i = 1; i < labels.size(); ++i)
    EXPECT_GE(labels[i]->number("y") - labels[i - 1]->number("y"), 13) << labels[i]->text;
  EXPECT_TRUE(says(xml, "Fits at no budget shown: policy"));
}

TEST(FrontSvg, StatesItsUnitsAndWhatItCutsOff) {
  for (const auto& [unit, name] :
       std::map<uint64_t, std::string>{{1u << 10, "KiB"}, {1u << 20, "MiB"}, {1u << 30, "GiB"}}) {
    const std::string svg = front_svg(sweep_in(unit), "t");
    const XmlReader xml(svg);
    EXPECT_TRUE(says(xml, "memory of the whole arena, " + name));
    EXPECT_TRUE(says(xml, "extra work, %"));
    EXPECT_TRUE(says(xml, "20 %"));
    EXPECT_TRUE(says(xml, "Beyond the upper edge: revolve to 450 %"));
  }
}

// A point that needs more memory and more time than another point of its strategy is not drawn.
TEST(FrontSvg, DrawsOnlyTheFront) {
  json sweep = sweep_in(1 << 20);
  const auto circles = [](const json& of) {
    const std::string svg = front_svg(of, "t");
    const XmlReader xml(svg);
    return std::count_if(xml.elements.begin(), xml.elements.end(), [](const Element& e) { return e.name == "circle"; });
  };
  const auto before = circles(sweep);
  sweep["fronts"][2]["points"].push_back(point(80 << 20, 0.5));
  EXPECT_EQ(circles(sweep), before);
  sweep["fronts"][2]["points"].push_back(point(80 << 20, 0.1));
  EXPECT_EQ(circles(sweep), before + 1);
}

TEST(FrontSvg, NothingFitsAndOnePointOnly) {
  const json none = {{"store_all_bytes", 5}, {"fronts", {{{"strategy", "none"}, {"points", {nothing(5)}}}}}};
  const std::string empty = front_svg(none, "t");
  EXPECT_EQ(XmlReader(empty).fault, "");
  const json one = {{"store_all_bytes", 1 << 20},
                    {"fronts", {{{"strategy", "none"}, {"points", {point(1 << 20, 0)}}}}}};
  const std::string svg = front_svg(one, "t");
  const XmlReader xml(svg);
  EXPECT_EQ(xml.fault, "");
  EXPECT_EQ(labels_of(xml).size(), 1u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

// A logarithmic axis, computed from the positions of two ticks. at() returns the position of a
// value in pixels.
struct LogAxis {
  double value, pixel, pixels_of_doubling;
  double at(double other) const { return pixel + pixels_of_doubling * std::log2(other / value); }
};
LogAxis log_axis(const XmlReader& xml, const std::string& anchor, const std::string& coordinate) {
  std::vector<std::pair<double, double>> ticks;
  for (const Element& element : xml.elements) {
    if (element.name != "text" || element.attributes.at("text-anchor") != anchor) continue;
    char* end = nullptr;
    const double value = std::strtod(element.text.c_str(), &end);
    if (end != element.text.c_str() && value > 0) ticks.push_back({value, element.number(coordinate)});
  }
  EXPECT_GE(ticks.size(), 3u);
  const auto [first, first_at] = ticks.front();
  const auto [last, last_at] = ticks.back();
  const LogAxis axis = {first, first_at, (last_at - first_at) / std::log2(last / first)};
  for (const auto& [value, at] : ticks) EXPECT_NEAR(axis.at(value), at, 0.2) << "a tick of " << value;
  return axis;
}

// The picture in the README must show every number of its table. Its axes must be logarithmic, and
// its guide lines must have the slopes 1 and 1/2.
TEST(ChenCurves, ThePictureIsThatOfItsTable) {
  const json table = json::parse(read_file("tests/bench/pages/chen_curves.json")).at("bytes");
  const std::string svg = read_file("tests/bench/pages/chen_curves.svg");
  const XmlReader xml(svg);
  ASSERT_EQ(xml.fault, "");
  for (const Element& element : xml.elements)
    expect_inside(element, xml.elements[0].number("width"), xml.elements[0].number("height"));
  const LogAxis across = log_axis(xml, "middle", "x"), upwards = log_axis(xml, "end", "y");
  const auto is_drawn = [&](double x, double y) {
    return std::any_of(xml.elements.begin(), xml.elements.end(), [&](const Element& e) {
      // The text of a tick is 4 pixels below the tick, and `y` is the position of the text.
      return e.name == "circle" && std::abs(e.number("cx") - x) < 0.3 && std::abs(e.number("cy") - (y - 4)) < 0.3;
    });
  };
  size_t points = 0;
  for (const json& row : table) {
    for (const auto& [rung, bytes] : row.items()) {
      if (!bytes.is_number() || rung == "layers") continue;
      ++points;
      EXPECT_TRUE(is_drawn(across.at(row["layers"]), upwards.at(bytes.get<double>() / 1073741824.0)))
          << rung << " at " << row["layers"];
    }
  }
  EXPECT_EQ(std::count_if(xml.elements.begin(), xml.elements.end(),
                          [](const Element& e) { return e.name == "circle"; }),
            static_cast<std::ptrdiff_t>(points));
  EXPECT_EQ(labels_of(xml).size(), 7u);
  std::vector<double> slopes;
  for (const Element& element : xml.elements) {
    if (element.attributes.count("class") == 0 || element.attributes.at("class") != "guide") continue;
    slopes.push_back((element.number("y2") - element.number("y1")) / upwards.pixels_of_doubling /
                     ((element.number("x2") - element.number("x1")) / across.pixels_of_doubling));
  }
  ASSERT_EQ(slopes.size(), 2u);
  EXPECT_NEAR(slopes[0], 1, 0.01);
  EXPECT_NEAR(slopes[1], 0.5, 0.01);
  EXPECT_TRUE(says(xml, "slope 1/2"));
}

}  // namespace
}  // namespace reprise
