// The values of a chat template: texts, numbers, lists, mappings, and the few functions that it may
// call. Jinja's values are Python's, so that equality, order and text are also as in Python.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tools/files/chat/marked_text.h"

namespace reprise {

// The limits of one rendering. They stop a template that loops for ever or writes a text without
// end.
class TemplateBudget {
 public:
  static constexpr uint64_t kSteps = 20'000'000;
  static constexpr uint64_t kBytes = uint64_t{256} << 20;
  void spend_steps(uint64_t steps);
  void spend_bytes(uint64_t bytes);
  // Counts an operation over `bytes` bytes of text (spend_walk) or over `elements` elements
  // (spend_search). 64 bytes or 16 elements count as one step.
  void spend_walk(uint64_t bytes) { spend_steps(bytes / kBytesOfStep); }
  void spend_search(uint64_t elements) { spend_steps(elements / kElementsOfStep); }
  // Throws a fault if fewer than `bytes` bytes are left. It is called before memory is allocated;
  // spend_bytes() counts the memory later.
  void require_bytes(uint64_t bytes) const;

 private:
  static constexpr uint64_t kBytesOfStep = 64, kElementsOfStep = 16;
  uint64_t steps_ = kSteps, bytes_ = kBytes;
};

// The reason of an error in a template. The interpreter adds the number of the line.
struct TemplateFault {
  std::string reason;
  bool is_limit = false;  // true if TemplateBudget stopped the rendering
};
[[noreturn]] inline void template_fault(const std::string& reason) { throw TemplateFault{reason}; }

struct TemplateStatement;
class TemplateValue;
using TemplateList = std::vector<TemplateValue>;
struct TemplateMapping;

// One value.
class TemplateValue {
 public:
  struct Undefined {
    std::string name;  // the name that is not defined
  };
  struct None {};
  struct Namespace {
    size_t index;  // index into the interpreter's namespaces
  };
  struct Loop {
    size_t index;  // index into the interpreter's loops
  };
  struct Function {
    std::string name;
    const TemplateStatement* macro = nullptr;  // null: the function is one of kTemplateCalls
  };
  using Text = std::shared_ptr<const MarkedText>;
  using List = std::shared_ptr<const TemplateList>;
  using Mapping = std::shared_ptr<const TemplateMapping>;
  // Maximum depth of lists and mappings. The depth of a list is 1 more than that of its deepest
  // element.
  static constexpr uint32_t kDeepest = 100;

  TemplateValue() : held_(None{}) {}
  static TemplateValue undefined(std::string name) { return TemplateValue(Undefined{std::move(name)}); }
  static TemplateValue boolean(bool value) { return TemplateValue(value); }
  static TemplateValue integer(int64_t value) { return TemplateValue(value); }
  static TemplateValue number(double value) { return TemplateValue(value); }
  static TemplateValue text(MarkedText value, TemplateBudget& budget);
  static TemplateValue text(const std::string& value, TextOrigin origin, TemplateBudget& budget) {
    return text(MarkedText(value, origin), budget);
  }
  static TemplateValue list(TemplateList elements, TemplateBudget& budget);
  static TemplateValue mapping(TemplateMapping entries, TemplateBudget& budget);
  static TemplateValue name_space(size_t index) { return TemplateValue(Namespace{index}); }
  static TemplateValue loop(size_t index) { return TemplateValue(Loop{index}); }
  static TemplateValue function(std::string name, const TemplateStatement* macro = nullptr) {
    return TemplateValue(Function{std::move(name), macro});
  }
  // Converts JSON to a value. All texts in it have the origin `origin`.
  static TemplateValue of_json(const nlohmann::ordered_json& json, TemplateBudget& budget,
                               TextOrigin origin = TextOrigin::kSample, uint32_t depth = 0);

  // Returns the value of type T; null if the value is of another kind.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  const MarkedText* as_text() const { return pointed<Text>(); }
  const TemplateList* as_list() const { return pointed<List>(); }
  const TemplateMapping* as_mapping() const { return pointed<Mapping>(); }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_number() const { return as<bool>() || as<int64_t>() || as<double>(); }

  const char* kind() const;  // returns "a list", "text" and so on, for messages
  bool truth() const;        // returns Python's truth value
  // Returns the text that a template writes for the value. Throws for a list or a mapping, because
  // Python would quote the elements.
  MarkedText printed() const;

 private:
  using Held = std::variant<None, Undefined, bool, int64_t, double, Text, List, Mapping, Namespace, Loop, Function>;
  explicit TemplateValue(Held held) : held_(std::move(held)) {}
  template <typename T>
  const typename T::element_type* pointed() const {
    const T* const held = as<T>();
    return held == nullptr ? nullptr : held->get();
  }
  Held held_;
  uint32_t depth_ = 0;
};

// A mapping: entries in the order in which they were given; each key occurs once.
struct TemplateMapping {
  std::vector<std::pair<MarkedText, TemplateValue>> entries;
  const TemplateValue* find(const std::string& key, TemplateBudget& budget) const;
};

// Returns whether a == b (equal) or a < b (less) is true in Python. less() throws a fault for kinds
// of values that have no order.
bool equal(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget);
bool less(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget);

// Returns json.dumps(value, ensure_ascii=False), as in transformers. An `indent` below 0 means one
// line.
TemplateValue json_text_of(const TemplateValue& value, int64_t indent, TemplateBudget& budget);

// Returns Python's repr() of a finite float: the minimum number of digits that read back as the
// same value.
std::string python_number(double value);

}  // namespace reprise
