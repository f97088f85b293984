// See kernel_run.h. A guard of NaNs is before and after every argument, so a kernel that reads it
// gives a wrong result.
#include "tests/ops/kernel_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lib/trainer.h"
#include "tests/ops/case_plan.h"
#include "tests/ops/op_family.h"
#include "tests/ops/stored_state.h"

namespace reprise::test {
namespace {

// A range of the arena that the kernel may access. The bytes between two fields are a guard.
struct Field {
  uint64_t offset, bytes;
  const char* name;
  bool writable = true;
};

// A copy of the arena in host memory. It consists of fields with guards between them. Guards are
// bytes 0xff, which are NaN as f32, and must stay unchanged.
class GuardedImage {
 public:
  explicit GuardedImage(uint64_t bytes) : bytes_(bytes, 0xff) {}
  Bytes& bytes() { return bytes_; }
  const unsigned char* at(uint64_t offset) const { return bytes_.data() + offset; }
  // Returns the address ranges of the fields for an image that begins at `start`.
  MemoryRanges ranges(uint64_t start) const {
    std::vector<MemoryRange> ranges;
    for (const Field& field : fields_)
      ranges.push_back({start + field.offset, start + field.offset + field.bytes, field.writable, field.name});
    return MemoryRanges(std::move(ranges));
  }
  unsigned char* add(const Field& field, uint32_t poison) {
    fields_.push_back(field);
    unsigned char* data = bytes_.data() + field.offset;
    for (uint64_t i = 0; i < field.bytes; ++i) data[i] = static_cast<unsigned char>(poison >> 8 * (i % 4));
    return data;
  }
  // Returns "" if every guard is unchanged. Otherwise names the fields before and after each
  // changed guard.
  std::string fault() {
    std::sort(fields_.begin(), fields_.end(), [](const Field& a, const Field& b) { return a.offset < b.offset; });
    uint64_t from = 0;
    std::string fault, before = "everything";
    for (const Field& field : fields_) {
      if (!is_guard(from, field.offset)) fault += "wrote outside, between " + before + " and " + field.name + "; ";
      from = field.offset + field.bytes;
      before = field.name;
    }
    return is_guard(from, bytes_.size()) ? fault : fault + "wrote outside, behind " + before + "; ";
  }

 private:
  bool is_guard(uint64_t from, uint64_t to) const {
    return std::all_of(at(from), at(to), [](unsigned char byte) { return byte == 0xff; });
  }
  Bytes bytes_;
  std::vector<Field> fields_;
};

// Bytes that the arena has in addition to the image. They let case_start() choose between two
// addresses that differ by kAlignment. So two runs have addresses with different remainders modulo
// larger powers of two.
constexpr uint64_t kStartsBytes = 3 * kAlignment;
ArenaAddress case_start(const Arena& arena, bool odd_page) {
  const uint64_t start = reinterpret_cast<uintptr_t>(arena.base.for_kernels);
  return arena.base +
         ((start + 2 * kAlignment - 1) / (2 * kAlignment) * (2 * kAlignment) - start + (odd_page ? kAlignment : 0));
}

// Returns the offset of the scalars in which a kernel records faults. The scalars are after the
// memory of the plan, with a guard before and after them.
uint64_t found_offset(const CasePlan& plan) { return align_up(plan.plan().arena_bytes) + CasePlan::kGuard; }
uint64_t image_bytes(const CasePlan& plan) {
  return found_offset(plan) + align_up(sizeof(StepScalars)) + CasePlan::kGuard;
}

// Copies the image to the arena, runs the case's row, and copies the arena back to the image.
Status run_between(const Trainer& trainer, const CasePlan& plan, Bytes& image) {
  REPRISE_RETURN_IF_ERROR(trainer.write(trainer.arena.base, image.data(), image.size()));
  const Status status = dispatch(trainer, plan.program(), plan.row(), false);
  const Status settled = trainer.read(image.data(), trainer.arena.base, image.size());
  return status.ok() ? settled : status;
}

// Converts a number to T. A Bf16 is made from a float, because it has no conversion from double.
template <typename T>
T element_as(double value) {
  if constexpr (std::is_same_v<T, Bf16>) return Bf16(static_cast<float>(value));
  else return static_cast<T>(value);
}
template <typename T>
T value_of(T element) { return element; }
inline float value_of(Bf16 element) { return element; }

template <typename T>
void write_as(const Array& values, unsigned char* out) {
  for (const double value : values) {
    const T element = element_as<T>(value);
    std::memcpy(out, &element, sizeof element);
    out += sizeof element;
  }
}
template <typename T>
std::vector<double> read_as(const Bytes& bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T element;
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof element);
    values[i] = static_cast<double>(value_of(element));
  }
  return values;
}
void write_values(Element element, DType type, const Array& values, unsigned char* out) {
  switch (element) {
    case Element::kBlocks: return write_stored_weights(type, values, out);
    case Element::kCodes: return write_stored_state(type, values, out);
    case Element::kF32: return write_as<float>(values, out);
    case Element::kBf16: return write_as<Bf16>(values, out);
    case Element::kF64: return write_as<double>(values, out);
    case Element::kI32: return write_as<int32_t>(values, out);
    case Element::kI64: return write_as<int64_t>(values, out);
    case Element::kU8: return write_as<uint8_t>(values, out);
    case Element::kScalars: return;
  }
}

}  // namespace

Element element_of(const KernelCase& c, uint32_t i) {
  switch (c.tensor(i).dtype) {
    case DType::kI32: return Element::kI32;
    case DType::kI64: return Element::kI64;
    case DType::kF64: return Element::kF64;
    case DType::kU8: return is_scalars(c, i) ? Element::kScalars : Element::kU8;
    case DType::kBf16: return Element::kBf16;
    case DType::kF32: return Element::kF32;
    case DType::kDynamic8:
    case DType::kDynamic8Square: return Element::kCodes;
    default: return Element::kBlocks;
  }
}

std::vector<double> read_values(Element element, const Bytes& bytes) {
  switch (element) {
    case Element::kF64: return read_as<double>(bytes);
    case Element::kBf16: return read_as<Bf16>(bytes);
    case Element::kI32: return read_as<int32_t>(bytes);
    case Element::kI64: return read_as<int64_t>(bytes);
    case Element::kU8: return read_as<uint8_t>(bytes);
    default: return read_as<float>(bytes);
  }
}

void write_argument(const KernelCase& c, const CaseData& data, uint32_t i, unsigned char* at) {
  if (element_of(c, i) == Element::kScalars) std::memcpy(at, &data.scalars, sizeof data.scalars);
  write_values(element_of(c, i), c.tensor(i).dtype, data.values[i], at);
}

uint64_t case_arena_bytes(const Backend& backend, const KernelCase& c) {
  return image_bytes(CasePlan(backend, c)) + kStartsBytes;
}

CaseRunResult run_case(const CaseDevice& device, const KernelCase& c, const CaseData& data,
                       const CaseRunOptions& options) {
  const KernelInfo& info = c.info();
  const CasePlan plan(device.backend, c, options.in_place);
  GuardedImage image(image_bytes(plan));
  const auto count = static_cast<uint32_t>(c.arguments.size());
  const auto shared_output = static_cast<uint32_t>(info.in_place_output),
             shared_input = static_cast<uint32_t>(info.in_place_input);
  std::vector<Bytes> before(count);
  const auto bytes_of = [&](uint32_t i) { return c.tensor(i).used_bytes(); };
  for (uint32_t i = 0; i < count; ++i) {
    if (!c.has(i) || (options.in_place && i == shared_output)) continue;
    const bool is_input = info.arguments[i].role == Role::kInput;
    const bool writable = !is_input || (options.in_place && i == shared_input);
    unsigned char* at = image.add({plan.offset(i), bytes_of(i), info.arguments[i].name, writable}, options.poison);
    write_argument(c, data, i, at);
    if (is_input) before[i].assign(at, at + bytes_of(i));
  }
  if (plan.scratch_bytes() != 0) image.add({plan.offset(count), plan.scratch_bytes(), "scratch"}, options.poison);
  unsigned char* found_at = image.add({found_offset(plan), sizeof(StepScalars), "the scalars of faults"}, 0);
  if (options.fault_before != DataFault::kNone) {
    StepScalars before = {};
    before.fault = fault_elsewhere(options.fault_before), before.skip = 1;
    std::memcpy(found_at, &before, sizeof before);
  }

  Bytes own(device.arena.bytes == 0 ? image.bytes().size() + kStartsBytes : 0);
  const Arena arena = device.arena.bytes == 0 ? Arena{{own.data()}, own.size()} : device.arena;
  CaseRunResult result;
  if (image.bytes().size() + kStartsBytes > arena.bytes) {
    result.status = {Code::kArenaTooSmall, "the cases' arena must hold case_arena_bytes",
                     image.bytes().size() + kStartsBytes};
    return result;
  }
  Trainer trainer;
  trainer.plan = &plan.plan();
  trainer.backend = &device.backend;
  trainer.context.workers = options.workers;
  trainer.context.machine = device.backend.machine;
  trainer.context.queue = device.backend.queue;
  trainer.arena = {case_start(arena, options.odd_page), plan.plan().arena_bytes};
  trainer.context.scalars = reinterpret_cast<StepScalars*>((trainer.arena.base + found_offset(plan)).for_kernels);
  if (device.allow != nullptr) device.allow(image.ranges(reinterpret_cast<uintptr_t>(trainer.arena.base.for_kernels)));
  result.status = run_between(trainer, plan, image.bytes());
  if (device.allow != nullptr) device.allow({});
  result.fault = image.fault();
  StepScalars found;
  std::memcpy(&found, image.at(found_offset(plan)), sizeof found);
  result.data_fault = found.fault;
  if (found.fault.code != DataFault::kNone && options.fault_before == DataFault::kNone)
    result.data_fault.row -= static_cast<uint32_t>(&plan.row() - plan.program().rows.data);
  if (found.skip != (found.fault.code != DataFault::kNone)) result.fault += "a fault in data and skip go together; ";
  result.outputs.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (!c.has(i)) continue;
    const unsigned char* at = image.at(plan.offset(i));
    if (info.arguments[i].role != Role::kInput) {
      result.outputs[i].assign(at, at + bytes_of(i));
      if (element_of(c, i) == Element::kScalars) std::memcpy(&result.scalars, at, sizeof result.scalars);
    } else if (!(options.in_place && i == shared_input) && !std::equal(before[i].begin(), before[i].end(), at)) {
      result.fault += std::string("changed its input ") + info.arguments[i].name + "; ";
    }
  }
  return result;
}

}  // namespace reprise::test
