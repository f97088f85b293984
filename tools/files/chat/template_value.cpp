// Implements equality, order and text of template values, as Python defines them.
#include "tools/files/chat/template_value.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

namespace reprise {
namespace {

double as_double(const TemplateValue& value) {
  if (const bool* const truth = value.as<bool>()) return *truth ? 1 : 0;
  if (const int64_t* const integer = value.as<int64_t>()) return static_cast<double>(*integer);
  return *value.as<double>();
}

// Returns the value as an integer, which may be in `storage`; null if it is not an integer or bool.
// Numbers are compared as integers if possible, because a double cannot represent all integers.
const int64_t* as_integer(const TemplateValue& value, int64_t& storage) {
  if (const bool* const truth = value.as<bool>()) return &(storage = *truth);
  return value.as<int64_t>();
}

bool equal_numbers(const TemplateValue& a, const TemplateValue& b) {
  int64_t first, second;
  const int64_t* const x = as_integer(a, first);
  const int64_t* const y = as_integer(b, second);
  return x != nullptr && y != nullptr ? *x == *y : as_double(a) == as_double(b);
}

bool equal_lists(const TemplateList& a, const TemplateList& b, TemplateBudget& budget) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equal(a[i], b[i], budget)) return false;
  }
  return true;
}

bool equal_mappings(const TemplateMapping& a, const TemplateMapping& b, TemplateBudget& budget) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const TemplateValue* const other = b.find(key.bytes, budget);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

// Throws for a namespace or a loop. They must not be stored in a list or mapping, because they
// could contain themselves, or exist only during the rendering.
void require_holdable(const TemplateValue& value) {
  if (value.as<TemplateValue::Namespace>() || value.as<TemplateValue::Loop>())
    template_fault(std::string(value.kind()) + " cannot be held by another value");
}

// Writes JSON in Python's form: ", " and ": " on one line, or each element on its own line with an
// indent.
class JsonWriter {
 public:
  JsonWriter(int64_t indent, TemplateBudget& budget) : indent_(indent), budget_(budget) {}

  void write(const TemplateValue& value, int64_t level) {
    budget_.spend_steps(1);
    if (const auto* const text = value.as_text()) return write_text(*text);
    if (const auto* const list = value.as_list()) {
      return write_all('[', ']', list->size(), level, [&](size_t i) { write((*list)[i], level + 1); });
    }
    if (const auto* const mapping = value.as_mapping()) {
      return write_all('{', '}', mapping->entries.size(), level, [&](size_t i) {
        write_text(mapping->entries[i].first);
        add(": ");
        write(mapping->entries[i].second, level + 1);
      });
    }
    if (value.is_none()) return add("null");
    if (const bool* const truth = value.as<bool>()) return add(*truth ? "true" : "false");
    if (const int64_t* const integer = value.as<int64_t>()) return add(std::to_string(*integer));
    if (const double* const number = value.as<double>()) return add(python_number(*number));
    template_fault(std::string("tojson: ") + value.kind() + " is no JSON");
  }
  // Returns the text. The punctuation of JSON has the sample's origin, so that it cannot become
  // part of a control token.
  MarkedText text() && { return std::move(text_); }

 private:
  template <typename WriteElement>
  void write_all(char open, char close, size_t count, int64_t level, const WriteElement& write_element) {
    put(open);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) add(indent_ < 0 ? ", " : ",");
      new_line(level + 1);
      write_element(i);
    }
    if (count > 0) new_line(level);
    put(close);
  }

  void new_line(int64_t level) {
    if (indent_ < 0) return;
    const auto spaces = static_cast<size_t>(indent_ * level);
    budget_.spend_bytes(spaces);
    text_.append('\n' + std::string(spaces, ' '), TextOrigin::kSample);
  }

  void write_text(const MarkedText& text) {
    budget_.spend_walk(text.size());
    budget_.require_bytes(text_.size() + text.size());
    put('"');
    for (size_t i = 0; i < text.size(); ++i) write_byte(text.bytes[i], text.origin(i));
    put('"');
  }

  void write_byte(char c, TextOrigin origin) {
    constexpr const char *kPlain = "\"\\\n\r\t\b\f", *kEscaped = "\"\\nrtbf", *kDigits = "0123456789abcdef";
    const char* const found = c == '\0' ? nullptr : std::strchr(kPlain, c);
    if (found != nullptr) return add({'\\', kEscaped[found - kPlain]}, origin);
    if (static_cast<unsigned char>(c) >= 0x20) return text_.append({&c, 1}, origin);
    add(std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15], origin);
  }

  void put(char c) { text_.append({&c, 1}, TextOrigin::kSample); }

  void add(const std::string& text, TextOrigin origin = TextOrigin::kSample) {
    budget_.spend_bytes(text.size());
    text_.append(text, origin);
  }

  int64_t indent_;
  TemplateBudget& budget_;
  MarkedText text_;
};

}  // namespace

void TemplateBudget::spend_steps(uint64_t steps) {
  if (steps > steps_)
    throw TemplateFault{"takes more than " + std::to_string(kSteps) + " steps; does it loop for ever?", true};
  steps_ -= steps;
}

void TemplateBudget::require_bytes(uint64_t bytes) const {
  if (bytes > bytes_)
    throw TemplateFault{"makes more than " + std::to_string(kBytes >> 20) + " MiB of text; does it grow without end?",
                        true};
}

void TemplateBudget::spend_bytes(uint64_t bytes) {
  require_bytes(bytes);
  bytes_ -= bytes;
}

TemplateValue TemplateValue::text(MarkedText value, TemplateBudget& budget) {
  budget.spend_bytes(sizeof(MarkedText) + value.size());
  return TemplateValue(Held(std::make_shared<const MarkedText>(std::move(value))));
}

TemplateValue TemplateValue::list(TemplateList elements, TemplateBudget& budget) {
  budget.spend_bytes(elements.size() * sizeof(TemplateValue));
  uint32_t depth = 0;
  for (const TemplateValue& element : elements) {
    require_holdable(element);
    depth = std::max(depth, element.depth_);
  }
  if (depth >= kDeepest)
    template_fault("lists and mappings lie deeper than " + std::to_string(kDeepest) + " in each other");
  TemplateValue value(Held(std::make_shared<const TemplateList>(std::move(elements))));
  value.depth_ = depth + 1;
  return value;
}

TemplateValue TemplateValue::mapping(TemplateMapping entries, TemplateBudget& budget) {
  budget.spend_bytes(entries.entries.size() * (sizeof(MarkedText) + sizeof(TemplateValue)));
  uint32_t depth = 0;
  for (const auto& [key, element] : entries.entries) {
    require_holdable(element);
    depth = std::max(depth, element.depth_);
  }
  if (depth >= kDeepest)
    template_fault("lists and mappings lie deeper than " + std::to_string(kDeepest) + " in each other");
  TemplateValue value(Held(std::make_shared<const TemplateMapping>(std::move(entries))));
  value.depth_ = depth + 1;
  return value;
}

TemplateValue TemplateValue::of_json(const nlohmann::ordered_json& json, TemplateBudget& budget, TextOrigin origin,
                                     uint32_t depth) {
  if (depth >= kDeepest) template_fault("JSON values lie deeper than " + std::to_string(kDeepest) + " in each other");
  budget.spend_steps(1);
  if (json.is_null()) return {};
  if (json.is_boolean()) return boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    template_fault("the integer " + json.dump() + " has more than 63 bits");
  if (json.is_number_integer()) return integer(json.get<int64_t>());
  if (json.is_number()) return number(json.get<double>());
  if (json.is_string()) return text(json.get<std::string>(), origin, budget);
  if (json.is_array()) {
    TemplateList elements;
    for (const auto& element : json) elements.push_back(of_json(element, budget, origin, depth + 1));
    return list(std::move(elements), budget);
  }
  TemplateMapping mapped;
  for (const auto& [key, value] : json.items()) {
    mapped.entries.emplace_back(MarkedText(key, origin), of_json(value, budget, origin, depth + 1));
  }
  return mapping(std::move(mapped), budget);
}

const char* TemplateValue::kind() const {
  constexpr const char* kKinds[] = {"none",   "an undefined value", "a boolean",   "an integer", "a float",   "text",
                                    "a list", "a mapping",          "a namespace", "a loop",     "a function"};
  return kKinds[held_.index()];
}

bool TemplateValue::truth() const {
  if (const bool* const truth = as<bool>()) return *truth;
  if (const int64_t* const integer = as<int64_t>()) return *integer != 0;
  if (const double* const number = as<double>()) return *number != 0;
  if (const auto* const text = as_text()) return text->size() > 0;
  if (const auto* const list = as_list()) return !list->empty();
  if (const auto* const mapping = as_mapping()) return !mapping->entries.empty();
  return !is_none() && !is_undefined();
}


MarkedText TemplateValue::printed() const {
  const auto own = [](const std::string& text) { return MarkedText(text, TextOrigin::kTemplate); };
  if (const auto* const text = as_text()) return *text;
  if (is_undefined()) return {};
  if (is_none()) return own("None");
  if (const bool* const truth = as<bool>()) return own(*truth ? "True" : "False");
  if (const int64_t* const integer = as<int64_t>()) return own(std::to_string(*integer));
  if (const double* const number = as<double>()) return own(python_number(*number));
  template_fault(std::string("writes ") + kind() + " as text; only tojson can");
}

const TemplateValue* TemplateMapping::find(const std::string& key, TemplateBudget& budget) const {
  budget.spend_steps(1);
  budget.spend_search(entries.size());
  for (const auto& [name, value] : entries) {
    if (name.size() != key.size()) continue;
    budget.spend_walk(key.size());
    if (name.bytes == key) return &value;
  }
  return nullptr;
}

bool equal(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget) {
  budget.spend_steps(1);
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.as_text() && b.as_text()) {
    if (a.as_text()->size() != b.as_text()->size()) return false;
    budget.spend_walk(a.as_text()->size());
    return a.as_text()->bytes == b.as_text()->bytes;
  }
  if (a.as_list() && b.as_list()) return equal_lists(*a.as_list(), *b.as_list(), budget);
  if (a.as_mapping() && b.as_mapping()) return equal_mappings(*a.as_mapping(), *b.as_mapping(), budget);
  if (a.as<TemplateValue::Namespace>() && b.as<TemplateValue::Namespace>()) {
    return a.as<TemplateValue::Namespace>()->index == b.as<TemplateValue::Namespace>()->index;
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget) {
  budget.spend_steps(1);
  if (a.is_number() && b.is_number()) {
    int64_t first, second;
    const int64_t* const x = as_integer(a, first);
    const int64_t* const y = as_integer(b, second);
    return x != nullptr && y != nullptr ? *x < *y : as_double(a) < as_double(b);
  }
  // In UTF-8, the order of bytes equals the order of code points.
  if (a.as_text() && b.as_text()) {
    budget.spend_walk(std::min(a.as_text()->size(), b.as_text()->size()));
    return a.as_text()->bytes < b.as_text()->bytes;
  }
  template_fault(std::string("compares the order of ") + a.kind() + " and " + b.kind());
}

TemplateValue json_text_of(const TemplateValue& value, int64_t indent, TemplateBudget& budget) {
  constexpr int64_t kWidest = 64;
  if (indent > kWidest) template_fault("tojson: an indent of more than " + std::to_string(kWidest));
  JsonWriter writer(indent, budget);
  writer.write(value, 0);
  return TemplateValue::text(std::move(writer).text(), budget);
}

std::string python_number(double value) {
  char digits[40];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  const std::string shortest(digits, end);  // has the form d.ddde+XX
  const size_t e = shortest.find('e');
  const int exponent = std::stoi(shortest.substr(e + 1));
  constexpr int kMinPlain = -4, kMaxPlain = 16;  // Python writes exponents from -4 to 15 as plain digits
  if (exponent < kMinPlain || exponent >= kMaxPlain) return shortest;
  char plain[64];
  const auto plain_end = std::to_chars(plain, plain + sizeof plain, value, std::chars_format::fixed).ptr;
  std::string text(plain, plain_end);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

}  // namespace reprise
