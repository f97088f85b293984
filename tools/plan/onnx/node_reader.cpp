// See node_reader.h.
#include "tools/plan/onnx/node_reader.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/shown_text.h"

namespace reprise {

void NodeReader::refuse(const std::string& reason) {
  const std::string name = !node_.name.empty() ? node_.name : node_.outputs.empty() ? "" : node_.outputs[0];
  const std::string op = shown_text((node_.domain.empty() ? "" : node_.domain + ".") + node_.op);
  constexpr size_t kLongest = 500;  // a reason may list a shape of a million numbers
  refused_.push_back("node " + json_shown(name) + " (" + op + "): " + shown_text(reason, kLongest));
}

const OnnxAttribute* NodeReader::find(const char* name) {
  asked_.insert(name);
  const auto found = std::find_if(node_.attributes.begin(), node_.attributes.end(),
                                  [&](const OnnxAttribute& a) { return a.name == name; });
  return found == node_.attributes.end() ? nullptr : &*found;
}

int64_t NodeReader::integer(const char* name, int64_t absent) {
  const OnnxAttribute* found = find(name);
  return found == nullptr ? absent : found->integer;
}
double NodeReader::number(const char* name, double absent) {
  const OnnxAttribute* found = find(name);
  return found == nullptr ? absent : shortest(static_cast<double>(found->number));
}
std::vector<int64_t> NodeReader::integers(const char* name, const std::vector<int64_t>& absent) {
  const OnnxAttribute* found = find(name);
  return found == nullptr ? absent : found->integers;
}
std::string NodeReader::text(const char* name, const std::string& absent) {
  const OnnxAttribute* found = find(name);
  return found == nullptr ? absent : found->text;
}

void NodeReader::require_integer(const char* name, int64_t right) {
  if (const int64_t given = integer(name, right); given != right)
    refuse(std::string(name) + " is " + std::to_string(given) + "; available is " + std::to_string(right));
}
void NodeReader::require_number(const char* name, double right) {
  if (const double given = number(name, right); given != right)
    refuse(std::string(name) + " is " + std::to_string(given) + "; available is " + std::to_string(right));
}
void NodeReader::require_text(const char* name, const std::string& right) {
  if (const std::string given = text(name, right); given != right)
    refuse(std::string(name) + " is " + json_shown(given) + "; available is " + json_shown(right));
}

void NodeReader::finish() {
  for (const OnnxAttribute& attribute : node_.attributes) {
    if (asked_.count(attribute.name) == 0)
      refuse("attribute " + json_shown(attribute.name) + " is not available (yet)");
  }
}

double shortest(double number) {
  const float wanted = static_cast<float>(number);
  for (int digits = 6; digits < 9; ++digits) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*g", digits, number);
    const double shorter = std::strtod(text, nullptr);
    if (static_cast<float>(shorter) == wanted) return shorter;
  }
  return static_cast<double>(wanted);
}

}  // namespace reprise
