// What a chat template computes with: texts, numbers, lists, mappings, and the few functions that it may call.
// Here because Jinja's values are Python's, and their equality, order and text must be Python's too.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tools/chat/marked_text.h"

namespace reprise {

// How much one rendering may do: a template that loops for ever, or a text that grows without end, ends with a refusal.
class TemplateBudget {
 public:
  static constexpr uint64_t kSteps = 20'000'000;
  static constexpr uint64_t kBytes = uint64_t{256} << 20;
  void spend_steps(uint64_t steps);
  void spend_bytes(uint64_t bytes);
  // Counts a walk over so many bytes of text, or over so many elements: a machine does some of them in the time of one step.
  void spend_walk(uint64_t bytes) { spend_steps(bytes / kBytesOfStep); }
  void spend_search(uint64_t elements) { spend_steps(elements / kElementsOfStep); }
  // Refuses what will be spent when it is made, before it takes memory.
  void require_bytes(uint64_t bytes) const;

 private:
  static constexpr uint64_t kBytesOfStep = 64, kElementsOfStep = 16;
  uint64_t steps_ = kSteps, bytes_ = kBytes;
};

// A reason without its line: the interpreter knows which line it is at.
struct TemplateFault {
  std::string reason;
  bool is_limit = false;  // true if TemplateBudget ended the rendering
};
[[noreturn]] inline void template_fault(const std::string& reason) { throw TemplateFault{reason}; }

struct TemplateStatement;
class TemplateValue;
using TemplateList = std::vector<TemplateValue>;
struct TemplateMapping;

class TemplateValue {
 public:
  struct Undefined {
    std::string name;  // what was asked for and is not there
  };
  struct None {};
  struct Namespace {
    size_t index;  // among the interpreter's
  };
  struct Loop {
    size_t index;  // among the interpreter's
  };
  struct Function {
    std::string name;
    const TemplateStatement* macro = nullptr;  // null: one of kTemplateCalls
  };
  using Text = std::shared_ptr<const MarkedText>;
  using List = std::shared_ptr<const TemplateList>;
  using Mapping = std::shared_ptr<const TemplateMapping>;
  // A list's or mapping's depth is one more than its deepest element's.
  static constexpr uint32_t kDeepest = 100;

  TemplateValue() : held_(None{}) {}
  static TemplateValue undefined(std::string name) { return TemplateValue(Undefined{std::move(name)}); }
  static TemplateValue boolean(bool value) { return TemplateValue(value); }
  static TemplateValue integer(int64_t value) { return TemplateValue(value); }
  static TemplateValue number(double value) { return TemplateValue(value); }
  static TemplateValue text(MarkedText value, TemplateBudget& budget);
  static TemplateValue text(const std::string& value, TextOrigin origin, TemplateBudget& budget) { return text(MarkedText(value, origin), budget); }
  static TemplateValue list(TemplateList elements, TemplateBudget& budget);
  static TemplateValue mapping(TemplateMapping entries, TemplateBudget& budget);
  static TemplateValue name_space(size_t index) { return TemplateValue(Namespace{index}); }
  static TemplateValue loop(size_t index) { return TemplateValue(Loop{index}); }
  static TemplateValue function(std::string name, const TemplateStatement* macro = nullptr) { return TemplateValue(Function{std::move(name), macro}); }
  // Texts of JSON are the sample's, or marked.
  static TemplateValue of_json(const nlohmann::ordered_json& json, TemplateBudget& budget, TextOrigin origin = TextOrigin::kSample, uint32_t depth = 0);

  // Null where the value is of another kind.
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

  const char* kind() const;  // "a list", "text" ...: for messages
  bool truth() const;        // Python's
  uint32_t depth() const;
  // What a template writes where it writes the value; a list or mapping is refused, because Python would quote what is in it.
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

// In the order in which they were given; a key is there once.
struct TemplateMapping {
  std::vector<std::pair<MarkedText, TemplateValue>> entries;
  const TemplateValue* find(const std::string& key, TemplateBudget& budget) const;
};

// Python's == and <; the order of kinds that have none is a fault.
bool equal(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget);
bool less(const TemplateValue& a, const TemplateValue& b, TemplateBudget& budget);

// json.dumps(value, ensure_ascii=False) as transformers calls it; `indent` below zero: on one line.
TemplateValue json_text_of(const TemplateValue& value, int64_t indent, TemplateBudget& budget);

// repr() of a finite float: the shortest digits that are read back.
std::string python_number(double value);

}  // namespace reprise
