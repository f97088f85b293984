// See row_trace.h.
// In a step a row costs one look at the clock and one number: a row begins where the one before it has ended. All else is known of the plan, and
// put beside the numbers when they are written.
#include "tools/training/row_trace.h"

#include <algorithm>
#include <cmath>

#include "lib/op.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/training/program_manifest.h"

namespace reprise {

using nlohmann::json;

namespace {

constexpr uint64_t kMostRows = uint64_t{1} << 22;  // 32 MiB of times, and about a GB of text

// The programs of a step, in the order in which they run.
template <typename F>
void for_each_program_of_step(const Plan& plan, const F& f) {
  for (uint32_t micro = 0; micro < plan.accumulate; ++micro) f(micro == 0 ? ProgramId::kMicroFirst : ProgramId::kMicroAdd, micro);
  f(ProgramId::kUpdate, plan.accumulate);
}

// Rows of a step, and numbers that it notes.
uint64_t rows_of_step(const Plan& plan) {
  uint64_t rows = 0;
  for_each_program_of_step(plan, [&](ProgramId id, uint32_t) { rows += plan.program(id).rows.count; });
  return rows;
}
uint64_t numbers_of_step(const Plan& plan) {
  uint64_t numbers = 2 + rows_of_step(plan);
  for_each_program_of_step(plan, [&](ProgramId id, uint32_t) { numbers += plan.program(id).rows.count > 0; });
  return numbers;
}

std::vector<uint64_t> live_bytes_of(const Program& program) {
  std::vector<uint64_t> live(program.rows.count + 1, 0);  // first the change at each row, modulo 2^64
  for (const Slot& slot : program.slots) {
    live[slot.first_row] += slot.tensor.bytes;
    live[slot.end_row] -= slot.tensor.bytes;
  }
  for (size_t row = 1; row < live.size(); ++row) live[row] += live[row - 1];
  return live;
}

// Events as a file of one array, an event a line.
class EventWriter {
 public:
  EventWriter(OutputFile& file, const Plan& plan, const json& manifest) : file_(file), plan_(plan), manifest_(manifest) {
    for (uint32_t p = 0; p < kProgramCount; ++p) live_[p] = live_bytes_of(plan.programs[p]);
    write("{\"displayTimeUnit\": \"ms\", \"otherData\": " + other_data().dump() + ", \"traceEvents\": [");
    event({{"ph", "M"}, {"name", "process_name"}, {"pid", 1}, {"args", {{"name", std::string("train ") + plan.name}}}});
    event({{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", 0}, {"args", {{"name", "compute"}}}});
    if (plan.disk_bytes > 0) event({{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", "transfers"}}}});
  }

  void step(uint64_t number, const double* times, double origin) {
    origin_ = origin;
    const double* next = times + 1;
    slice("step " + std::to_string(number), "step", 0, times[0], times[numbers_of_step(plan_) - 1],
          {{"step", number}, {"planned_seconds", planned_step()}});
    for_each_program_of_step(plan_, [&](ProgramId id, uint32_t micro) {
      const uint32_t count = plan_.program(id).rows.count;
      for (uint32_t r = 0; r < count; ++r) row(number, id, micro, r, next[r], next[r + 1]);
      if (count > 0) live_bytes(next[count], 0);
      next += count + (count > 0 ? 1 : 0);
    });
  }

  void finish() { write("\n]}\n"); }

 private:
  void write(const std::string& text) { file_.write(text.data(), text.size()); }

  json other_data() const {
    return {{"name", plan_.name}, {"backend", plan_.backend}, {"planned_bytes", plan_.arena_bytes}, {"times", "measured"},
            {"plan_hash", manifest_.is_object() ? manifest_["plan_hash"] : json(nullptr)}};
  }

  void event(const json& value) {
    write((is_first_ ? "\n" : ",\n") + value.dump());
    is_first_ = false;
  }

  // Whole nanoseconds, so that slices that touch do not overlap by a rounding.
  double nanoseconds(double seconds) const { return std::round(1e9 * (seconds - origin_)); }

  void slice(const std::string& name, const std::string& category, uint32_t queue, double from, double to, const json& details) {
    event({{"ph", "X"}, {"name", name}, {"cat", category}, {"pid", 1}, {"tid", queue}, {"ts", nanoseconds(from) / 1e3},
           {"dur", (nanoseconds(to) - nanoseconds(from)) / 1e3}, {"args", details}});
  }

  void live_bytes(double at, uint64_t bytes) {
    event({{"ph", "C"}, {"name", "live bytes"}, {"pid", 1}, {"tid", 0}, {"ts", nanoseconds(at) / 1e3}, {"args", {{"bytes", bytes}}}});
  }

  void row(uint64_t step, ProgramId id, uint32_t micro, uint32_t r, double from, double to) {
    const Row& row = plan_.program(id).rows[r];
    const json& known = row_of_manifest(id, r);
    const json stage = known.is_object() ? known.value("stage", json("row")) : json("row");
    json details = {{"row", r}, {"program", program_name(id)}, {"step", step},
                    {"planned_seconds", known.is_object() ? known.value("seconds", json(nullptr)) : json(nullptr)}};
    details["micro_batch"] = id == ProgramId::kUpdate ? json(nullptr) : json(micro);
    slice(std::string(kernel_info(row.op, row.pass).name) + " " + link_name(row.link), stage.is_string() ? stage.get<std::string>() : "row", row.queue, from, to,
          details);
    live_bytes(from, live_[static_cast<uint32_t>(id)][r]);
  }

  // What the manifest says beyond the plan, as far as it does: null else.
  json planned_step() const { return manifest_.is_object() ? manifest_.value("predicted_seconds", json(nullptr)) : json(nullptr); }

  std::string link_name(uint32_t link) const {
    const json* links = member(manifest_, "links");
    if (links == nullptr || !links->is_array() || link >= links->size() || !(*links)[link].is_string()) return "link " + std::to_string(link);
    return (*links)[link].get<std::string>();
  }

  const json& row_of_manifest(ProgramId id, uint32_t r) const {
    static const json none;
    const json* programs = member(manifest_, "programs");
    if (programs == nullptr || !programs->is_array()) return none;
    for (const json& program : *programs) {
      const json *name = member(program, "name"), *rows = member(program, "rows");
      if (name == nullptr || *name != program_name(id)) continue;
      return rows != nullptr && rows->is_array() && r < rows->size() ? (*rows)[r] : none;
    }
    return none;
  }

  static const json* member(const json& object, const char* key) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(key);
    return found == object.end() ? nullptr : &*found;
  }

  OutputFile& file_;
  const Plan& plan_;
  const json& manifest_;
  std::vector<uint64_t> live_[kProgramCount];
  double origin_ = 0;
  bool is_first_ = true;
};

}  // namespace

TracedSteps parse_traced_steps(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string words[2] = {text.substr(0, colon), colon == std::string::npos ? text : text.substr(colon + 1)};
  uint64_t steps[2] = {};
  for (int i = 0; i < 2; ++i) {
    const bool digits = !words[i].empty() && words[i].size() <= 18 && words[i].find_first_not_of("0123456789") == std::string::npos;
    if (digits) steps[i] = std::stoull(words[i]);
  }
  if (steps[0] == 0 || steps[1] < steps[0]) {
    throw UserError("--trace-steps: must be FIRST:LAST, steps from 1 on, not \"" + text + "\"", UserError::kUsage);
  }
  return {steps[0], steps[1]};
}

RowTrace::RowTrace(const std::string& path, const CompiledPlan& compiled, const TracedSteps& steps)
    : path_(path), compiled_(compiled), port_(compiled.port), steps_(steps) {
  const uint64_t most = std::max<uint64_t>(1, kMostRows / std::max<uint64_t>(1, rows_of_step(compiled.plan)));
  if (steps.count() > most) {
    throw UserError("--trace-steps: of this plan, of " + std::to_string(rows_of_step(compiled.plan)) + " rows a step, " + std::to_string(most) +
                        " steps can be traced at most, not " + std::to_string(steps.count()),
                    UserError::kUsage);
  }
  require_writable(path);
  times_.resize(steps.count() * numbers_of_step(compiled.plan));
}

void RowTrace::begin_step(const Trainer& trainer) {
  trainer_ = &trainer;
  step_begin_ = next_;
  note();
}

RowObserver RowTrace::observer() {
  const auto before = [](void* self, ProgramId, uint32_t row) {
    if (row == 0) static_cast<RowTrace*>(self)->note();
  };
  const auto after = [](void* self, ProgramId, uint32_t) {
    RowTrace& trace = *static_cast<RowTrace*>(self);
    (void)trace.trainer_->backend->host.synchronise(trace.trainer_->context);  // what fails, the step says
    trace.note();
  };
  return {this, before, after};
}

void RowTrace::end_step(bool done) {
  note();
  if (done) {
    ++done_;
  } else {
    next_ = step_begin_;
  }
}

void RowTrace::write() {
  written_ = true;
  const json manifest = manifest_if_there(compiled_);
  replace_file(path_, [&](const std::string& to) {
    OutputFile file(to);
    EventWriter events(file, compiled_.plan, manifest);
    for (uint64_t step = 0; step < done_; ++step) {
      events.step(steps_.first + step, times_.data() + step * numbers_of_step(compiled_.plan), times_[0]);
    }
    events.finish();
    file.finish();
  });
}

}  // namespace reprise
