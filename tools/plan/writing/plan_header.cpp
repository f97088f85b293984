// Writes plan.h with one row of a table on each line, so that the text can be read and diffed. A
// comment above a table names its columns. A comment in a line names the row's index, kernel and
// link, or the slot's value; comments are only for the reader. Plan and its programs are written
// with the names of their fields.
#include "tools/plan/writing/plan_header.h"

#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <functional>

#include "lib/assert.h"
#include "tools/plan/writing/cpp_text.h"

namespace reprise {

namespace {

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char* pattern, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, pattern);
  const int bytes = std::vsnprintf(text, sizeof text, pattern, arguments);
  va_end(arguments);
  REPRISE_ASSERT(bytes >= 0 && bytes < static_cast<int>(sizeof text),
                 "a row of numbers and names that cpp_comment() has cut fits the buffer");
  return text;
}

std::string tensor_text(const Tensor& t) {
  return format("{%" PRIu64 ", %" PRIu64 ", DType{%d}, %d, {%u, %u, %u, %u}}", t.offset, t.bytes,
                static_cast<int>(t.dtype), t.rank, t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
}

// Returns the number as C++ source. Infinity and NaN need builtins, because C++ has no literal for
// them.
std::string double_text(double value) {
  if (std::isfinite(value)) return format("%a", value);
  return std::isnan(value) ? "__builtin_nan(\"\")" : value > 0 ? "__builtin_inf()" : "-__builtin_inf()";
}

std::string float_text(float value) {
  return std::isfinite(value) ? format("%af", static_cast<double>(value)) : "float(" + double_text(value) + ")";
}

class HeaderWriter {
 public:
  explicit HeaderWriter(const OwnedPlan& plan) : plan_(plan) {}

  std::string tables() {
    table("StateTensor", "kState",
          tensor_columns() + ", kind, init, init_scale, name, first_number, keeper where one rank has it", plan_.state,
          [](const StateTensor& s) {
            return "{" + tensor_text(s.tensor) +
                   format(", StateKind{%d}, InitKind{%d}, ", static_cast<int>(s.kind), static_cast<int>(s.init)) +
                   float_text(s.init_scale) + ", " + cpp_literal(s.name) + format(", %u", s.first_number) +
                   (s.owner == kEveryRank ? "}" : format(", %u}", s.owner));
          });
    table("float", "kNumbers", "", plan_.numbers, float_text);
    table("Tensor", "kCarried", tensor_columns(), plan_.carried, tensor_text);
    for (uint32_t p = 0; p < kProgramCount; ++p) program(plan_.programs[p], p);
    attribute_tables();
    table("uint32_t", "kMilestones", "", plan_.milestones, [](uint32_t m) { return format("%u", m); });
    return text_;
  }

  std::string plan_text() const {
    const LearningRate& rate = plan_.learning_rate;
    std::string text = "inline constexpr Plan kPlan = {\n    .format = kPlanFormat,\n";
    text += "    .name = " + cpp_literal(plan_.name) + ",\n    .backend = " + cpp_literal(plan_.backend) + ",\n";
    text += "    .state = " + span("kState", plan_.state.size()) +
            ",\n    .numbers = " + span("kNumbers", plan_.numbers.size()) + ",\n";
    text += "    .carried = " + span("kCarried", plan_.carried.size()) + ",\n    .programs = {\n";
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      const OwnedProgram& program = plan_.programs[p];
      const std::string n = std::to_string(p);
      text += "        {.rows = " + span("kRows" + n, program.rows.size()) +
              ", .arguments = " + span("kArguments" + n, program.arguments.size()) +
              ", .slots = " + span("kSlots" + n, program.slots.size()) +
              format(", .bytes = %" PRIu64 ", .input = %uu, .labels = %uu, .document_start = %uu, .output = %uu",
                     program.bytes, program.input, program.labels, program.document_start, program.output) +
              (program.pairs == kNoSlot ? "" : format(", .pairs = %uu", program.pairs)) +
              (program.token_types == kNoSlot ? "" : format(", .token_types = %uu", program.token_types)) +
              ", .spilled = " + span("kSpilled" + n, program.spilled.size()) + "},\n";
    }
    text += "    },\n    .attributes = {";
    for_each_pool(plan_.attributes, [&text](const auto& pool) {
      using A = typename std::decay_t<decltype(pool)>::value_type;
      text += (text.back() == '{' ? "{" : ", {") + span(std::string("k") + A::kName, pool.size()) + "}";
    });
    text += "},\n";
    text += format(
                "    .learning_rate = {.kind = LearningRateKind{%d}, .base = %a, .gamma = %a, .warmup_steps = %u, "
                ".steps = %u, .milestones = ",
                static_cast<int>(rate.kind), rate.base, rate.gamma, rate.warmup_steps, rate.steps) +
            span("kMilestones", plan_.milestones.size()) + "},\n";
    text += format("    .state_bytes = %" PRIu64 ",\n    .carried_bytes = %" PRIu64 ",\n    .arena_bytes = %" PRIu64
                   ",\n    .seed = %" PRIu64 "u,\n",
                   plan_.state_bytes, plan_.carried_bytes, plan_.arena_bytes, plan_.seed);
    text += format("    .accumulate = %u,\n", plan_.accumulate);
    if (plan_.ranks > 1) text += format("    .ranks = %u,\n", plan_.ranks);
    text += format("    .spill_level = SpillLevel::%s,\n    .spill_bytes = %" PRIu64 ",\n",
                   plan_.spill_level == SpillLevel::kHost ? "kHost" : "kDisk", plan_.spill_bytes);
    if (plan_.streamed_bytes > 0) text += format("    .streamed_bytes = %" PRIu64 ",\n", plan_.streamed_bytes);
    if (plan_.shard_bytes > 0) text += format("    .shard_bytes = %" PRIu64 ",\n", plan_.shard_bytes);
    text += format("    .worker_stack_bytes = %" PRIu64 ",\n    .recipe_hash = 0x%" PRIx64 "u,\n};\n",
                   plan_.worker_stack_bytes, plan_.recipe_hash);
    return text;
  }

 private:
  static std::string span(const std::string& name, size_t count) {
    return count == 0 ? "{nullptr, 0}" : "{" + name + ", " + std::to_string(count) + "}";
  }

  static std::string tensor_columns() { return "{offset, bytes, dtype, rank, shape}"; }

  // Writes a table. `columns`: the names of a line's columns, for the comment above the table; ""
  // if each line is one number.
  template <typename T, typename F>
  void table(const std::string& type, const std::string& name, const std::string& columns, const std::vector<T>& values,
             const F& write) {
    if (values.empty()) return;
    if (!columns.empty()) text_ += "// " + columns + "\n";
    text_ += "inline constexpr " + type + " " + name + "[] = {\n";
    for (const T& value : values) text_ += "  " + write(value) + ",\n";
    text_ += "};\n";
  }

  void program(const OwnedProgram& program, uint32_t p) {
    const std::string n = std::to_string(p);
    uint32_t id = 0;
    table("Row", "kRows" + n, "row, kernel, link: op, pass, queue, accumulate, attribute, link, first_argument",
          program.rows, [&](const Row& r) {
            const std::string link = r.link < plan_.link_names.size() ? cpp_comment(plan_.link_names[r.link]) : "";
            return format("/* %4u %-22s %-24s */ {Op{%d}, Pass{%d}, %d, %d, %u, %u, %u}", id++,
                          kernel_info(r.op, r.pass).name, link.c_str(), static_cast<int>(r.op),
                          static_cast<int>(r.pass), r.queue, r.accumulate, r.attribute, r.link, r.first_argument);
          });
    table("Ref", "kArguments" + n,
          "the two top bits are the region (0 program, 1 Carried, 2 State, 3 the second level), the rest is the index; "
          "all ones: absent",
          program.arguments, [](Ref ref) { return format("0x%xu", ref); });
    slots("kSlots" + n, program.slots, program.slot_names);
    slots("kSpilled" + n, program.spilled, program.spilled_names);
  }

  void slots(const std::string& table_name, const std::vector<Slot>& list, const std::vector<std::string>& names) {
    uint32_t id = 0;
    table("Slot", table_name, "slot, value: " + tensor_columns() + ", first_row, end_row, below, kind", list,
          [&](const Slot& s) {
            const std::string name = cpp_comment(names[id]);
            return format("/* %4u %-32s */ {", id++, name.c_str()) + tensor_text(s.tensor) +
                   format(", %u, %u, %uu, SlotUse{%d}}", s.first_row, s.end_row, s.below, static_cast<int>(s.use));
          });
  }

  static std::string field_text(float value) { return float_text(value); }
  static std::string field_text(double value) { return double_text(value); }
  static std::string field_text(uint64_t value) { return std::to_string(value); }
  template <typename A>
  static std::string field_text(const A& attribute) {
    if constexpr (std::is_integral_v<A>) {
      return std::to_string(attribute);
    } else {
      std::string text;
      attribute.fields(
          [&text](const char*, const auto& value) { text += (text.empty() ? "{" : ", ") + field_text(value); });
      return text + "}";
    }
  }

  void attribute_tables() {
    for_each_pool(plan_.attributes, [this](const auto& pool) {
      using A = typename std::decay_t<decltype(pool)>::value_type;
      std::string columns;
      A{}.fields([&columns](const char* field, const auto&) {
        columns += (columns.empty() ? "" : ", ") + std::string(field);
      });
      table(std::string(A::kName) + "Attribute", std::string("k") + A::kName, columns, pool,
            [](const A& attribute) { return field_text(attribute); });
    });
  }

  const OwnedPlan& plan_;
  std::string text_;
};

std::string comment_of(const std::string& lines) {
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at);
    text += "// " + cpp_comment(lines.substr(at, end - at), 1000) + "\n";
    at = end == std::string::npos ? lines.size() : end + 1;
  }
  return text;
}

// Returns one plan with its texts, and its proof.
std::string plan_and_proof(const PlanHeaderParts& parts) {
  HeaderWriter writer(parts.plan);
  std::string text = writer.tables() + writer.plan_text();
  text += "inline constexpr char kPlanHash[] = \"" + plan_hash(parts.plan) + "\";\n";
  text += "inline constexpr char kRecipe[] =\n  " + cpp_literal(parts.recipe, "\n  ") + ";\n";
  text += "inline constexpr char kSummary[] =\n  " + cpp_literal(parts.summary, "\n  ") + ";\n";
  if (!parts.smaller_budgets.empty()) {
    std::string list;
    for (const uint64_t bytes : parts.smaller_budgets) list += (list.empty() ? "" : ", ") + std::to_string(bytes);
    text += "inline constexpr uint64_t kSmallerBudgets[] = {" + list + "};\n";
  }
  text += "\n";
  text +=
      "static_assert(text_hash(kRecipe) == kPlan.recipe_hash, \"the recipe above is not the one that this plan was "
      "made from; plan again\");\n";
  text +=
      "// The proof: a faulty plan does not compile, and the message names PlanIsSafe<fault, program, row, slot>.\n";
  text += std::string("inline constexpr Verdict kVerdict = prove<check_marks(kPlan)>(kPlan, ") + parts.rules.constant +
          ");\n";
  text += "static_assert(PlanIsSafe<kVerdict.fault, kVerdict.program, kVerdict.row, kVerdict.slot>::value);\n\n";
  return text;
}

// Returns the plan's line in kPlans; `in`: the namespace of its tables.
std::string entry_of(const PlanHeaderParts& parts, const std::string& in) {
  const std::string smaller = parts.smaller_budgets.empty()
                                  ? "{}"
                                  : "{" + in + "kSmallerBudgets, " + std::to_string(parts.smaller_budgets.size()) + "}";
  return "  {&" + in + "kPlan, " + in + "kRecipe, " + in + "kSummary, " + in + "kPlanHash, " + smaller + "},\n";
}

}  // namespace

std::string plan_header(const PlanHeaderParts& first, const std::vector<PlanHeaderParts>& others) {
  std::string text = kPlanHeaderMark + std::string("; changed by planning again.\n") + comment_of(first.summary);
  text += std::string("#pragma once\n\n#include \"lib/check.h\"\n") +
          (others.empty() ? "" : "#include \"lib/same_state.h\"\n") + "#include \"" + first.rules.header +
          "\"\n\nnamespace reprise::" + first.space + " {\n\n" + plan_and_proof(first);
  std::string plans = entry_of(first, "");
  for (size_t i = 0; i < others.size(); ++i) {
    const std::string space = "budget_" + std::to_string(i + 1);
    text += comment_of(others[i].summary) + "namespace " + space + " {\n\n" + plan_and_proof(others[i]) +
            "}  // namespace " + space + "\n\n";
    text += "// It takes over between steps: State stays where it lies.\nstatic_assert(same_state(kPlan, " + space +
            "::kPlan));\n\n";
    plans += entry_of(others[i], space + "::");
  }
  text +=
      "// The program's plans: plan, recipe, summary, hash, smaller budgets.\ninline constexpr WrittenPlan kPlans[] = "
      "{\n" +
      plans + "};\n";
  return text + "\n}  // namespace reprise::" + first.space + "\n";
}

std::string plan_hash(const OwnedPlan& plan) {
  HeaderWriter writer(plan);
  const std::string text = writer.tables() + writer.plan_text();
  return format("%016" PRIx64, text_hash(text.c_str()));
}

}  // namespace reprise
