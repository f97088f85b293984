// Functions of Python and Jinja (as defined in jinja2/filters.py and tests.py), applied to template
// values.
#include "tools/files/chat/template_functions.h"

#include <algorithm>
#include <cstring>

namespace reprise {
namespace {

using Arguments = TemplateArguments;

// Returns the argument at `place`, counted from 1, or the argument with this keyword; null if it is
// not given.
const TemplateValue* argument(const Arguments& arguments, size_t place, const char* keyword) {
  if (place < arguments.values.size()) return &arguments.values[place];
  for (const auto& [name, value] : arguments.keywords) {
    if (name == keyword) return &value;
  }
  return nullptr;
}

const MarkedText& text_argument(const Arguments& arguments, size_t place) {
  const MarkedText* const text = arguments.values[place].as_text();
  if (text == nullptr) template_fault(std::string("text is needed, not ") + arguments.values[place].kind());
  return *text;
}

int64_t integer_argument(const Arguments& arguments, size_t place, const char* keyword, int64_t otherwise) {
  const TemplateValue* const value = argument(arguments, place, keyword);
  if (value == nullptr || value->is_none()) return otherwise;
  const int64_t* const integer = value->as<int64_t>();
  if (integer == nullptr) template_fault(std::string("an integer is needed, not ") + value->kind());
  return *integer;
}

TemplateValue made_text(MarkedText text, TemplateBudget& budget) {
  return TemplateValue::text(std::move(text), budget);
}

// ---- texts

// Returns the offset of the needle in the text, at or after `from`; npos if there is none. Takes
// linear time.
size_t find_text(const std::string& text, const std::string& needle, size_t from, TemplateBudget& budget) {
  budget.spend_steps(1);
  budget.spend_walk(text.size() - from);
  const void* const found = ::memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

// Returns character_starts(text). Counts its time against the budget, and throws if the budget has
// fewer bytes than the result may need.
std::vector<size_t> starts_of(const std::string& text, TemplateBudget& budget) {
  budget.spend_search(text.size());
  budget.require_bytes(text.size() * sizeof(size_t));
  return character_starts(text);
}

struct Sides {
  bool left, right;
};

// Returns the text without the given characters at its sides. Null means white space.
TemplateValue strip_sides(const MarkedText& text, const TemplateValue* characters, Sides sides,
                          TemplateBudget& budget) {
  size_t begin = 0, end = text.size();
  if (characters == nullptr || characters->is_none()) {
    const ByteRange kept = without_space(text.bytes);
    if (sides.left) begin = kept.begin;
    if (sides.right) end = kept.end;
    return made_text(text.piece(begin, std::max(begin, end)), budget);
  }
  if (!characters->as_text())
    template_fault(std::string("the characters to strip must be text, not ") + characters->kind());
  const std::string& stripped = characters->as_text()->bytes;
  const std::vector<size_t> starts = starts_of(text.bytes, budget), of_stripped = starts_of(stripped, budget);
  const auto is_stripped = [&](size_t i) {
    const std::string_view character = std::string_view(text.bytes).substr(starts[i], starts[i + 1] - starts[i]);
    budget.spend_steps(of_stripped.size());
    for (size_t s = 0; s + 1 < of_stripped.size(); ++s) {
      if (std::string_view(stripped).substr(of_stripped[s], of_stripped[s + 1] - of_stripped[s]) == character)
        return true;
    }
    return false;
  };
  size_t first = 0, last = starts.size() - 1;
  while (sides.left && first < last && is_stripped(first)) ++first;
  while (sides.right && last > first && is_stripped(last - 1)) --last;
  return made_text(text.piece(starts[first], starts[last]), budget);
}

template <bool left, bool right>
TemplateValue strip(const Arguments& arguments, TemplateBudget& budget) {
  return strip_sides(text_argument(arguments, 0), argument(arguments, 1, "chars"), {left, right}, budget);
}

// Removes the given characters at both sides of a value's text. The value may be of every kind that
// can be printed.
TemplateValue trim(const Arguments& arguments, TemplateBudget& budget) {
  return strip_sides(arguments.values[0].printed(), argument(arguments, 1, "chars"), {true, true}, budget);
}

template <bool is_end>
TemplateValue begins_or_ends(const Arguments& arguments, TemplateBudget& budget) {
  const std::string &text = text_argument(arguments, 0).bytes, &part = text_argument(arguments, 1).bytes;
  budget.spend_walk(part.size());
  return TemplateValue::boolean(is_end ? text.ends_with(part) : text.starts_with(part));
}

// Changes ASCII letters. Refuses other letters: they would need Unicode's tables, and no known
// template changes them.
template <typename Change>
TemplateValue change_letters(const MarkedText& text, TemplateBudget& budget, const Change& change) {
  MarkedText changed = text;
  for (char& c : changed.bytes) {
    if (static_cast<unsigned char>(c) >= 0x80)
      template_fault("upper, lower and title of letters beyond ASCII are not supported");
    c = change(c);
  }
  return made_text(std::move(changed), budget);
}

char upper_letter(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower_letter(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

TemplateValue upper(const Arguments& arguments, TemplateBudget& budget) {
  return change_letters(arguments.values[0].printed(), budget, upper_letter);
}
TemplateValue lower(const Arguments& arguments, TemplateBudget& budget) {
  return change_letters(arguments.values[0].printed(), budget, lower_letter);
}
TemplateValue title(const Arguments& arguments, TemplateBudget& budget) {
  bool in_word = false;
  return change_letters(text_argument(arguments, 0), budget, [&](char c) {
    const char changed = in_word ? lower_letter(c) : upper_letter(c);
    in_word = upper_letter(c) != lower_letter(c);
    return changed;
  });
}

TemplateValue split_at_space(const MarkedText& text, int64_t maximum, TemplateBudget& budget) {
  TemplateList pieces;
  size_t at = 0;
  const std::string_view bytes = text.bytes;
  budget.spend_bytes(bytes.size());
  for (;;) {
    for (size_t next = at; next < bytes.size() && is_python_space(next_character(bytes, next));) at = next;
    if (at == bytes.size()) break;
    size_t end = at;
    if (maximum >= 0 && pieces.size() == static_cast<size_t>(maximum)) {
      end = at + without_space(bytes.substr(at)).end;
    } else {
      for (size_t next = at; next < bytes.size() && !is_python_space(next_character(bytes, next));) end = next;
    }
    pieces.push_back(made_text(text.piece(at, end), budget));
    at = end;
    if (maximum >= 0 && pieces.size() > static_cast<size_t>(maximum)) break;
  }
  return TemplateValue::list(std::move(pieces), budget);
}

TemplateValue split(const Arguments& arguments, TemplateBudget& budget) {
  const MarkedText& text = text_argument(arguments, 0);
  const TemplateValue* const separator = argument(arguments, 1, "sep");
  const int64_t maximum = integer_argument(arguments, 2, "maxsplit", -1);
  if (separator == nullptr || separator->is_none()) return split_at_space(text, maximum, budget);
  if (!separator->as_text()) template_fault(std::string("split: the separator must be text, not ") + separator->kind());
  const std::string& between = separator->as_text()->bytes;
  if (between.empty()) template_fault("split: the separator is empty");
  TemplateList pieces;
  size_t at = 0;
  for (size_t found; (maximum < 0 || pieces.size() < static_cast<size_t>(maximum)) &&
                     (found = find_text(text.bytes, between, at, budget)) != std::string::npos;) {
    pieces.push_back(made_text(text.piece(at, found), budget));
    at = found + between.size();
  }
  pieces.push_back(made_text(text.piece(at, text.size()), budget));
  return TemplateValue::list(std::move(pieces), budget);
}

TemplateValue replace_text(const MarkedText& text, const MarkedText& old, const MarkedText& by, int64_t maximum,
                           TemplateBudget& budget) {
  MarkedText replaced;
  size_t at = 0;
  const std::vector<size_t> starts = old.bytes.empty() ? starts_of(text.bytes, budget) : std::vector<size_t>();
  for (size_t n = 0; maximum < 0 || n < static_cast<size_t>(maximum); ++n) {
    size_t found;
    if (old.bytes.empty()) {
      if (n >= starts.size()) break;
      found = starts[n];
    } else {
      found = find_text(text.bytes, old.bytes, at, budget);
      if (found == std::string::npos) break;
    }
    budget.spend_bytes(by.size() + 1);
    budget.require_bytes(replaced.size() + found - at + by.size());
    replaced.append(text.piece(at, found));
    replaced.append(by);
    at = found + old.size();
  }
  replaced.append(text.piece(at, text.size()));
  return made_text(std::move(replaced), budget);
}

TemplateValue replace(const Arguments& arguments, TemplateBudget& budget) {
  return replace_text(text_argument(arguments, 0), text_argument(arguments, 1), text_argument(arguments, 2),
                      integer_argument(arguments, 3, "count", -1), budget);
}
TemplateValue replace_printed(const Arguments& arguments, TemplateBudget& budget) {
  return replace_text(arguments.values[0].printed(), arguments.values[1].printed(), arguments.values[2].printed(),
                      integer_argument(arguments, 3, "count", -1), budget);
}

// ---- lists and mappings

const TemplateMapping& mapping_argument(const Arguments& arguments) {
  const TemplateMapping* const mapping = arguments.values[0].as_mapping();
  if (mapping == nullptr) template_fault(std::string("a mapping is needed, not ") + arguments.values[0].kind());
  return *mapping;
}

TemplateValue items(const Arguments& arguments, TemplateBudget& budget) {
  TemplateList pairs;
  if (!arguments.values[0].is_undefined()) {
    for (const auto& [key, value] : mapping_argument(arguments).entries) {
      pairs.push_back(TemplateValue::list({made_text(key, budget), value}, budget));
    }
  }
  return TemplateValue::list(std::move(pairs), budget);
}

TemplateValue items_of_mapping(const Arguments& arguments, TemplateBudget& budget) {
  mapping_argument(arguments);
  return items(arguments, budget);
}

TemplateValue keys(const Arguments& arguments, TemplateBudget& budget) {
  mapping_argument(arguments);
  return TemplateValue::list(elements_of(arguments.values[0], budget), budget);
}

TemplateValue values(const Arguments& arguments, TemplateBudget& budget) {
  TemplateList list;
  for (const auto& [key, value] : mapping_argument(arguments).entries) list.push_back(value);
  return TemplateValue::list(std::move(list), budget);
}

TemplateValue get(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateMapping& mapping = mapping_argument(arguments);
  const MarkedText* const key = arguments.values[1].as_text();
  const TemplateValue* const found = key == nullptr ? nullptr : mapping.find(key->bytes, budget);
  if (found != nullptr) return *found;
  return arguments.values.size() > 2 ? arguments.values[2] : TemplateValue();
}

TemplateValue length(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateValue& value = arguments.values[0];
  if (const auto* const text = value.as_text()) {
    budget.spend_walk(text->size());
    return TemplateValue::integer(static_cast<int64_t>(count_characters(text->bytes)));
  }
  if (const auto* const list = value.as_list()) return TemplateValue::integer(static_cast<int64_t>(list->size()));
  if (const auto* const mapping = value.as_mapping())
    return TemplateValue::integer(static_cast<int64_t>(mapping->entries.size()));
  if (value.is_undefined()) return TemplateValue::integer(0);
  template_fault(std::string(value.kind()) + " has no length");
}

TemplateValue first(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateList elements = elements_of(arguments.values[0], budget);
  return elements.empty() ? TemplateValue::undefined("the first of nothing") : elements.front();
}
TemplateValue last(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateList elements = elements_of(arguments.values[0], budget);
  return elements.empty() ? TemplateValue::undefined("the last of nothing") : elements.back();
}

TemplateValue join(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateValue* const given = argument(arguments, 1, "d");
  const MarkedText between = given == nullptr ? MarkedText() : given->printed();
  MarkedText joined;
  bool is_first = true;
  for (const TemplateValue& element : elements_of(arguments.values[0], budget)) {
    const MarkedText text = element.printed();
    budget.spend_bytes(between.size() + text.size());
    if (!is_first) joined.append(between);
    joined.append(text);
    is_first = false;
  }
  return made_text(std::move(joined), budget);
}

TemplateValue list_of(const Arguments& arguments, TemplateBudget& budget) {
  return TemplateValue::list(elements_of(arguments.values[0], budget), budget);
}

// True if the value is true. If argument `place` is given, it names a test; then true if the value
// passes this test with the arguments after `place`.
bool passes(const TemplateValue& value, const Arguments& arguments, size_t place, TemplateBudget& budget) {
  if (arguments.values.size() <= place) return value.truth();
  Arguments tested{.values = {value}, .keywords = {}};
  tested.values.insert(tested.values.end(), arguments.values.begin() + static_cast<ptrdiff_t>(place) + 1,
                       arguments.values.end());
  return find_test(arguments.values[place].as_text()->bytes)->call(tested, budget).truth();
}

template <bool wanted>
TemplateValue choose(const Arguments& arguments, TemplateBudget& budget) {
  TemplateList chosen;
  for (const TemplateValue& element : elements_of(arguments.values[0], budget)) {
    if (passes(element, arguments, 1, budget) == wanted) chosen.push_back(element);
  }
  return TemplateValue::list(std::move(chosen), budget);
}

template <bool wanted>
TemplateValue choose_by_attribute(const Arguments& arguments, TemplateBudget& budget) {
  const std::string& name = text_argument(arguments, 1).bytes;
  if (name.find('.') != std::string::npos)
    template_fault("an attribute \"" + name + "\" of an attribute is not supported");
  TemplateList chosen;
  for (const TemplateValue& element : elements_of(arguments.values[0], budget)) {
    if (element.is_undefined()) template_fault("an element is undefined, and \"" + name + "\" of it is asked for");
    const TemplateValue* const found = element.as_mapping() ? element.as_mapping()->find(name, budget) : nullptr;
    const TemplateValue value = found != nullptr ? *found : TemplateValue::undefined("\"" + name + "\"");
    if (passes(value, arguments, 2, budget) == wanted) chosen.push_back(element);
  }
  return TemplateValue::list(std::move(chosen), budget);
}

TemplateValue default_of(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateValue& value = arguments.values[0];
  const TemplateValue* const of_false_too = argument(arguments, 2, "boolean");
  if (!value.is_undefined() && (of_false_too == nullptr || !of_false_too->truth() || value.truth())) return value;
  const TemplateValue* const given = argument(arguments, 1, "default_value");
  return given == nullptr ? made_text({}, budget) : *given;
}

TemplateValue tojson(const Arguments& arguments, TemplateBudget& budget) {
  const TemplateValue* const ascii = argument(arguments, 1, "ensure_ascii");
  if (ascii != nullptr && ascii->truth()) template_fault("tojson: ensure_ascii is not supported");
  return json_text_of(arguments.values[0], integer_argument(arguments, 2, "indent", -1), budget);
}

TemplateValue printed(const Arguments& arguments, TemplateBudget& budget) {
  return made_text(arguments.values[0].printed(), budget);
}

// ---- tests

template <bool (*test)(const TemplateValue&)>
TemplateValue is(const Arguments& arguments, TemplateBudget&) {
  return TemplateValue::boolean(test(arguments.values[0]));
}

bool is_defined(const TemplateValue& value) { return !value.is_undefined(); }
bool is_undefined(const TemplateValue& value) { return value.is_undefined(); }
bool is_none(const TemplateValue& value) { return value.is_none(); }
bool is_string(const TemplateValue& value) { return value.as_text() != nullptr; }
bool is_mapping(const TemplateValue& value) { return value.as_mapping() != nullptr; }
bool is_iterable(const TemplateValue& value) {
  return value.as_text() || value.as_list() || value.as_mapping() || value.is_undefined();
}
bool is_boolean(const TemplateValue& value) { return value.as<bool>() != nullptr; }
bool is_true(const TemplateValue& value) { return value.as<bool>() && *value.as<bool>(); }
bool is_false(const TemplateValue& value) { return value.as<bool>() && !*value.as<bool>(); }
bool is_integer(const TemplateValue& value) { return value.as<int64_t>() != nullptr; }
bool is_float(const TemplateValue& value) { return value.as<double>() != nullptr; }
bool is_number(const TemplateValue& value) { return value.is_number(); }

TemplateValue equals(const Arguments& arguments, TemplateBudget& budget) {
  return TemplateValue::boolean(equal(arguments.values[0], arguments.values[1], budget));
}
TemplateValue differs(const Arguments& arguments, TemplateBudget& budget) {
  return TemplateValue::boolean(!equal(arguments.values[0], arguments.values[1], budget));
}
TemplateValue is_in(const Arguments& arguments, TemplateBudget& budget) {
  return TemplateValue::boolean(contains(arguments.values[1], arguments.values[0], budget));
}

constexpr TemplateFunction kFilters[] = {
    {"default", 0, 2, "default_value boolean ", default_of}, {"d", 0, 2, "default_value boolean ", default_of},
    {"first", 0, 0, "", first},                              {"last", 0, 0, "", last},
    {"items", 0, 0, "", items},                              {"join", 0, 1, "d ", join},
    {"length", 0, 0, "", length},                            {"count", 0, 0, "", length},
    {"lower", 0, 0, "", lower},                              {"upper", 0, 0, "", upper},
    {"select", 0, 2, "", choose<true>},                      {"reject", 0, 2, "", choose<false>},
    {"replace", 2, 3, "", replace_printed},                  {"string", 0, 0, "", printed},
    {"selectattr", 1, 3, "", choose_by_attribute<true>},     {"rejectattr", 1, 3, "", choose_by_attribute<false>},
    {"list", 0, 0, "", list_of},                             {"trim", 0, 1, "chars ", trim},
    {"tojson", 0, 2, "ensure_ascii indent ", tojson},
};

constexpr TemplateFunction kTests[] = {
    {"defined", 0, 0, "", is<is_defined>},
    {"undefined", 0, 0, "", is<is_undefined>},
    {"none", 0, 0, "", is<is_none>},
    {"string", 0, 0, "", is<is_string>},
    {"mapping", 0, 0, "", is<is_mapping>},
    {"iterable", 0, 0, "", is<is_iterable>},
    {"sequence", 0, 0, "", is<is_iterable>},
    {"boolean", 0, 0, "", is<is_boolean>},
    {"true", 0, 0, "", is<is_true>},
    {"false", 0, 0, "", is<is_false>},
    {"integer", 0, 0, "", is<is_integer>},
    {"float", 0, 0, "", is<is_float>},
    {"number", 0, 0, "", is<is_number>},
    {"equalto", 1, 1, "", equals},
    {"eq", 1, 1, "", equals},
    {"ne", 1, 1, "", differs},
    {"in", 1, 1, "", is_in},
};

constexpr TemplateFunction kMethods[] = {
    {"split", 0, 2, "sep maxsplit ", split},
    {"strip", 0, 1, "", strip<true, true>},
    {"lstrip", 0, 1, "", strip<true, false>},
    {"rstrip", 0, 1, "", strip<false, true>},
    {"startswith", 1, 1, "", begins_or_ends<false>},
    {"endswith", 1, 1, "", begins_or_ends<true>},
    {"upper", 0, 0, "", upper},
    {"lower", 0, 0, "", lower},
    {"title", 0, 0, "", title},
    {"replace", 2, 3, "", replace},
    {"items", 0, 0, "", items_of_mapping},
    {"keys", 0, 0, "", keys},
    {"values", 0, 0, "", values},
    {"get", 1, 2, "", get},
};

template <size_t N>
const TemplateFunction* find(const TemplateFunction (&functions)[N], const std::string& name) {
  for (const TemplateFunction& function : functions) {
    if (function.name == name) return &function;
  }
  return nullptr;
}

}  // namespace

const TemplateFunction* find_filter(const std::string& name) { return find(kFilters, name); }
const TemplateFunction* find_test(const std::string& name) { return find(kTests, name); }
const TemplateFunction* find_method(const std::string& name) { return find(kMethods, name); }

bool is_mapping_method(const std::string& name) {
  for (const char* const method :
       {"clear", "copy", "fromkeys", "get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"}) {
    if (name == method) return true;
  }
  return false;
}

TemplateList elements_of(const TemplateValue& value, TemplateBudget& budget) {
  TemplateList elements;
  if (const auto* const list = value.as_list()) {
    budget.spend_bytes(list->size() * sizeof(TemplateValue));
    return *list;
  }
  if (const auto* const mapping = value.as_mapping()) {
    for (const auto& [key, entry] : mapping->entries) elements.push_back(made_text(key, budget));
    return elements;
  }
  if (const auto* const text = value.as_text()) {
    const std::vector<size_t> starts = starts_of(text->bytes, budget);
    budget.require_bytes(starts.size() * sizeof(MarkedText));
    for (size_t i = 0; i + 1 < starts.size(); ++i)
      elements.push_back(made_text(text->piece(starts[i], starts[i + 1]), budget));
    return elements;
  }
  if (value.is_undefined()) return elements;
  template_fault(std::string("goes over ") + value.kind() + ", which has no elements");
}

bool contains(const TemplateValue& container, const TemplateValue& value, TemplateBudget& budget) {
  if (const auto* const text = container.as_text()) {
    if (!value.as_text()) template_fault(std::string("looks in text for ") + value.kind());
    return find_text(text->bytes, value.as_text()->bytes, 0, budget) != std::string::npos;
  }
  if (const auto* const mapping = container.as_mapping()) {
    return value.as_text() && mapping->find(value.as_text()->bytes, budget) != nullptr;
  }
  if (container.is_undefined()) return false;
  const auto* const list = container.as_list();
  if (list == nullptr) template_fault(std::string("looks for a value in ") + container.kind());
  for (const TemplateValue& element : *list) {
    if (equal(element, value, budget)) return true;
  }
  return false;
}

}  // namespace reprise
