// Writing and reading share one list of fields for each struct, so that both have the same order.
//
//   "reprise plan 3\n"   then lines of text: the kernels' contract, the bytes of what follows, its
//                        checksum; then
//   the plans            numbers in their own width, the lowest byte first; for a list its length,
//                        then its entries
#include "tools/plan/writing/plan_file.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "lib/op.h"
#include "tools/files/formats/checksum.h"
#include "tools/files/io/error.h"

namespace reprise {

namespace {

constexpr char kMagic[] = "reprise plan ";
constexpr char kVersion[] = "3";

// Returns the text whose checksum is contract_of_kernels().
std::string text_of_contract() {
  std::string text = std::to_string(kPlanFormat);
  for (uint32_t i = 0; i < kKernelCount; ++i) {
    text += std::string("\n") + kOps[i].name;
    for (const ArgumentInfo& argument : kOps[i].arguments) {
      if (argument.role == Role::kNone) continue;
      text += std::string(" ") + argument.name + ":" + std::to_string(static_cast<int>(argument.role)) +
              std::to_string(static_cast<int>(argument.storage));
    }
  }
  for_each_pool(AttributePools{}, [&text](const auto& pool) {
    using A = std::decay_t<decltype(pool[0])>;
    text += std::string("\n") + A::kName;
    A{}.fields([&text](const char* field, const auto& value) {
      text += std::string(" ") + field + ":" + std::to_string(sizeof value);
    });
  });
  for (const DTypeInfo& type : kDTypes) text += std::string("\n") + type.name + " " + std::to_string(type.block_bytes);
  return text;
}

template <typename T>
using BitsOf = std::conditional_t<
    sizeof(T) == 8, uint64_t,
    std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;

class Writer {
 public:
  template <typename T>
  void number(const T& value) {
    const auto bits = std::bit_cast<BitsOf<T>>(value);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>(bits >> 8 * i & 0xff);
  }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    bytes_ += value;
  }
  template <typename T>
  void list(const std::vector<T>& values, const auto& entry) {
    number(static_cast<uint32_t>(values.size()));
    for (const T& value : values) entry(value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(const std::string& bytes, size_t at, const std::string& file) : bytes_(bytes), at_(at), file_(file) {}

  template <typename T>
  void number(T& value) {
    need(sizeof(T));
    BitsOf<T> bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      bits =
          static_cast<BitsOf<T>>(bits | static_cast<BitsOf<T>>(static_cast<unsigned char>(bytes_[at_ + i])) << 8 * i);
    at_ += sizeof(T);
    value = std::bit_cast<T>(bits);
  }
  void text(std::string& value) {
    const uint32_t size = count();
    value = bytes_.substr(at_, size);
    at_ += size;
  }
  template <typename T>
  void list(std::vector<T>& values, const auto& entry) {
    values.resize(count());
    for (T& value : values) entry(value);
  }
  bool is_at_end() const { return at_ == bytes_.size(); }
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(file_ + ": " + why + "; write it again with `reprise plan --binary`");
  }

 private:
  void need(uint64_t bytes) const {
    if (bytes > bytes_.size() - at_) refuse("the plan ends in the middle");
  }
  // Reads the length of a list, whose entries have at least one byte, or of a text.
  uint32_t count() {
    uint32_t count = 0;
    number(count);
    need(count);
    return count;
  }

  const std::string& bytes_;
  size_t at_;
  const std::string file_;
};

// Fields of each struct, in one list for Writer and Reader. The structs are const for a Writer.

template <typename File, typename T>
void tensor_fields(File& file, T& t) {
  file.number(t.offset), file.number(t.bytes), file.number(t.dtype), file.number(t.rank);
  for (auto& dimension : t.shape) file.number(dimension);
}

template <typename File, typename T>
void slot_fields(File& file, T& s) {
  tensor_fields(file, s.tensor);
  file.number(s.first_row), file.number(s.end_row), file.number(s.below), file.number(s.use);
}

template <typename File, typename T>
void row_fields(File& file, T& r) {
  file.number(r.op), file.number(r.pass), file.number(r.queue), file.number(r.accumulate), file.number(r.attribute),
      file.number(r.link);
  file.number(r.first_argument);
}

template <typename File, typename T>
void program_fields(File& file, T& p) {
  const auto slots = [&file](auto& list) { file.list(list, [&file](auto& slot) { slot_fields(file, slot); }); };
  file.list(p.rows, [&file](auto& row) { row_fields(file, row); });
  file.list(p.arguments, [&file](auto& ref) { file.number(ref); });
  slots(p.slots);
  slots(p.spilled);
  file.number(p.bytes), file.number(p.input), file.number(p.labels), file.number(p.document_start),
      file.number(p.output), file.number(p.pairs);
  file.number(p.token_types);
}

// Writes or reads the fields of an attribute. fields() passes const references also if the fields
// are read from a file, so the const is cast away.
template <typename File, typename A>
void attribute_fields(File& file, A& attribute) {
  attribute.fields([&file](const char*, const auto& value) {
    using Field = std::decay_t<decltype(value)>;
    auto& field = const_cast<std::conditional_t<std::is_const_v<A>, const Field, Field>&>(value);
    if constexpr (std::is_arithmetic_v<Field>) file.number(field);
    else attribute_fields(file, field);
  });
}

template <typename File, typename P>
void attribute_pools(File& file, P& plan) {
  for_each_pool(plan.attributes, [&](const auto& pool) {
    using A = typename std::decay_t<decltype(pool)>::value_type;
    file.list(plan.attributes.template of<A>(), [&file](auto& attribute) { attribute_fields(file, attribute); });
  });
}

void state_name(Writer& file, const OwnedPlan&, const StateTensor& s) { file.text(s.name); }
void state_name(Reader& file, OwnedPlan& plan, StateTensor& s) {
  std::string name;
  file.text(name);
  s.name = plan.keep(name);
}

template <typename File, typename P>
void plan_fields(File& file, P& plan) {
  file.number(plan.format);
  file.text(plan.name), file.text(plan.backend);
  file.list(plan.state, [&](auto& s) {
    tensor_fields(file, s.tensor);
    file.number(s.kind), file.number(s.init), file.number(s.init_scale), file.number(s.first_number),
        file.number(s.owner);
    state_name(file, plan, s);
  });
  file.list(plan.numbers, [&file](auto& number) { file.number(number); });
  file.list(plan.carried, [&file](auto& tensor) { tensor_fields(file, tensor); });
  for (auto& program : plan.programs) program_fields(file, program);
  attribute_pools(file, plan);
  auto& rate = plan.learning_rate;
  file.number(rate.kind), file.number(rate.base), file.number(rate.gamma), file.number(rate.warmup_steps),
      file.number(rate.steps);
  file.list(plan.milestones, [&file](auto& step) { file.number(step); });
  file.number(plan.state_bytes), file.number(plan.carried_bytes), file.number(plan.arena_bytes), file.number(plan.seed),
      file.number(plan.accumulate), file.number(plan.ranks);
  file.number(plan.spill_level), file.number(plan.spill_bytes), file.number(plan.streamed_bytes),
      file.number(plan.shard_bytes), file.number(plan.worker_stack_bytes), file.number(plan.recipe_hash);
}

template <typename File, typename Plans>
void plans_of_file(File& file, Plans& plans) {
  file.list(plans, [&file](auto& each) {
    plan_fields(file, each.plan);
    file.text(each.recipe), file.text(each.summary), file.text(each.hash);
    file.list(each.smaller_budgets, [&file](auto& bytes) { file.number(bytes); });
  });
}

// Returns the line at `at`, and sets `at` to the next line. Returns "" if no line of at most 64
// bytes is there.
std::string take_line(const std::string& bytes, size_t& at) {
  const size_t end = bytes.find('\n', at);
  if (end == std::string::npos || end - at > 64) return "";
  std::string line = bytes.substr(at, end - at);
  at = end + 1;
  return line;
}

}  // namespace

std::string plan_file(const std::vector<FiledPlan>& plans) {
  Writer writer;
  plans_of_file(writer, plans);
  const std::string written = writer.take();
  return std::string(kMagic) + kVersion + "\n" + contract_of_kernels() + "\n" + std::to_string(written.size()) + "\n" +
         checksum_of(written) + "\n" + written;
}

std::string contract_of_kernels() { return checksum_of(text_of_contract()); }

bool is_plan_file(const std::string& bytes) { return bytes.starts_with(kMagic); }

std::vector<FiledPlan> parse_plan_file(const std::string& bytes, const std::string& file) {
  size_t at = 0;
  const std::string magic = take_line(bytes, at), kernels = take_line(bytes, at), size = take_line(bytes, at),
                    sum = take_line(bytes, at);
  Reader reader(bytes, at, file);
  if (!is_plan_file(bytes)) reader.refuse("is no plan file");
  if (magic != std::string(kMagic) + kVersion)
    reader.refuse("version: is \"" + magic.substr(std::min(magic.size(), sizeof kMagic - 1)) +
                  "\", and this program reads \"" + kVersion + "\"");
  if (kernels != contract_of_kernels())
    reader.refuse(
        "kernels: another version of Reprise wrote this file, whose kernels take other arguments than this program's");
  const std::string plans_bytes = bytes.substr(at);
  if (size != std::to_string(plans_bytes.size()))
    reader.refuse("bytes: should be \"" + size + "\", are " + std::to_string(plans_bytes.size()));
  if (sum != checksum_of(plans_bytes))
    reader.refuse("checksum: is " + checksum_of(plans_bytes) + ", was \"" + sum + "\" when the file was written");
  std::vector<FiledPlan> plans;
  plans_of_file(reader, plans);
  if (!reader.is_at_end()) reader.refuse("bytes lie behind the plans");
  if (plans.empty()) reader.refuse("holds no plan");
  for (const FiledPlan& each : plans) {
    if (text_hash(each.recipe.c_str()) != each.plan.recipe_hash)
      reader.refuse("recipe: is not the one that the plan was made from");
  }
  return plans;
}

}  // namespace reprise
