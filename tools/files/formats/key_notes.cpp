// Implements the forms of key_notes.h: allowed values in words and as JSON Schema.
#include "tools/files/formats/key_notes.h"

#include <algorithm>
#include <cmath>

#include "tools/files/formats/json_text.h"

namespace reprise {
namespace {

using nlohmann::json;

std::string shown_number(double value) {
  const bool integer = value == std::floor(value) && std::fabs(value) < 1e15;
  return integer ? std::to_string(static_cast<int64_t>(value)) : json(value).dump();
}

std::string shown_range(const FieldRange& range) {
  if (std::isinf(range.low) && std::isinf(range.high)) return "";
  if (std::isinf(range.high)) return (range.low_open ? " above " : " of at least ") + shown_number(range.low);
  return " from " + shown_number(range.low) + (range.low_open ? " (excluded)" : "") + " to " +
         shown_number(range.high) + (range.high_open ? " (excluded)" : "");
}

}  // namespace

ValueForm bool_form() { return {"true or false", {{"type", "boolean"}}}; }
ValueForm string_form() { return {"a string", {{"type", "string"}}}; }
ValueForm path_form() { return {"a path", {{"type", "string"}, {"minLength", 1}}}; }
ValueForm object_form() { return {"an object {...}", {{"type", "object"}}}; }
ValueForm null_form() { return {"null", {{"type", "null"}}}; }

ValueForm bytes_form(uint64_t minimum) {
  const json integer = {{"type", "integer"}, {"minimum", minimum}, {"maximum", std::numeric_limits<int64_t>::max()}};
  const json text = {{"type", "string"}, {"pattern", "^[0-9]+(\\.[0-9]+)?( ?([KMGT]i?B|B))?$"}};
  return {"bytes, an integer or a text as \"512MiB\"", {{"anyOf", {integer, text}}}};
}

ValueForm integer_form(uint64_t low, uint64_t high) {
  return {"an integer from " + std::to_string(low) + " to " + std::to_string(high),
          {{"type", "integer"}, {"minimum", low}, {"maximum", high}}};
}

ValueForm number_form(const FieldRange& range) {
  json schema = {{"type", "number"}};
  if (!std::isinf(range.low)) schema[range.low_open ? "exclusiveMinimum" : "minimum"] = range.low;
  if (!std::isinf(range.high)) schema[range.high_open ? "exclusiveMaximum" : "maximum"] = range.high;
  return {"a number" + shown_range(range), schema};
}

ValueForm word_form(const std::vector<std::string>& words) {
  return {"one of " + quoted_list(words), {{"enum", words}}};
}

ValueForm list_form(const ValueForm& element) {
  return {"a list [...], each element " + element.words, {{"type", "array"}, {"items", element.schema}}};
}

ValueForm either_form(const ValueForm& one, const ValueForm& other) {
  return {one.words + ", or " + other.words, {{"anyOf", {one.schema, other.schema}}}};
}

ValueForm optional_form(const ValueForm& form) { return {form.words, {{"anyOf", {form.schema, null_form().schema}}}}; }

void KeyNotes::add(KeyNote note) {
  const bool known = std::any_of(keys.begin(), keys.end(), [&](const KeyNote& key) { return key.path == note.path; });
  if (!known) keys.push_back(std::move(note));
}

}  // namespace reprise
