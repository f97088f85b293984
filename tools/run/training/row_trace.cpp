// During a step, each row costs one reading of the clock and one stored number; a row begins when
// the previous one ends. Everything else is derived from the plan when the trace is written.
#include "tools/run/training/row_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lib/op.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/plan/audit/plan_trace.h"
#include "tools/run/training/program_manifest.h"

namespace reprise {

using nlohmann::json;

namespace {

constexpr uint64_t kMaxRows = uint64_t{1} << 22;  // corresponds to 32 MiB of times and about 1 GB of text

// Calls f(program, micro-batch) for each program in a step, in the order in which they run.
template <typename F>
void for_each_program_of_step(const Plan& plan, const F& f) {
  for (uint32_t micro = 0; micro < plan.accumulate; ++micro) f(program_of_micro_batch(plan, micro), micro);
  f(ProgramId::kUpdate, plan.accumulate);
}

// Returns the number of rows in a step. numbers_of_step() returns the number of clock readings that
// are recorded for a step.
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
  // Live bytes at each row. The first loop writes the change at each row, modulo 2^64; the second
  // loop sums the changes.
  std::vector<uint64_t> live(program.rows.count + 1, 0);
  for (const Slot& slot : program.slots) {
    live[slot.first_row] += slot.tensor.bytes;
    live[slot.end_row] -= slot.tensor.bytes;
  }
  for (size_t row = 1; row < live.size(); ++row) live[row] += live[row - 1];
  return live;
}

// Collects text and writes it to the file in large pieces.
class TextBuffer {
 public:
  explicit TextBuffer(OutputFile& file) : file_(file) {}
  void add(const std::string& text) {
    text_ += text;
    if (text_.size() >= kPiece) flush();
  }
  void flush() {
    file_.write(text_.data(), text_.size());
    text_.clear();
  }

 private:
  static constexpr size_t kPiece = 1 << 20;
  OutputFile& file_;
  std::string text_;
};

// Reads values that the compiled plan lacks from its manifest. The manifest may be missing, or an
// older version of reprise may have written it.
class ManifestRows {
 public:
  explicit ManifestRows(const json& manifest) : manifest_(manifest) {
    const json* programs = member(manifest, "programs");
    for (uint32_t p = 0; programs != nullptr && programs->is_array() && p < kProgramCount; ++p) {
      for (const json& program : *programs) {
        const json* name = member(program, "name");
        if (name != nullptr && *name == program_name(static_cast<ProgramId>(p))) rows_[p] = member(program, "rows");
      }
    }
  }

  json plan_hash() const { return value(manifest_, "plan_hash"); }
  json step_seconds() const { return value(manifest_, "predicted_seconds"); }
  json seconds(ProgramId id, uint32_t r) const { return value(row(id, r), "seconds"); }
  std::string stage(ProgramId id, uint32_t r) const { return text(value(row(id, r), "stage"), "row"); }
  std::string link(uint32_t number) const {
    const json* links = member(manifest_, "links");
    const bool is_known = links != nullptr && links->is_array() && number < links->size();
    return text(is_known ? (*links)[number] : json(), "link " + std::to_string(number));
  }

 private:
  const json& row(ProgramId id, uint32_t r) const {
    static const json none;
    const json* rows = rows_[static_cast<uint32_t>(id)];
    return rows != nullptr && rows->is_array() && r < rows->size() ? (*rows)[r] : none;
  }
  static const json* member(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() ? nullptr : &*found;
  }
  static json value(const json& object, const char* key) {
    const json* found = member(object, key);
    return found == nullptr ? json(nullptr) : *found;
  }
  static std::string text(const json& value, const std::string& otherwise) {
    return value.is_string() ? value.get<std::string>() : otherwise;
  }

  const json& manifest_;
  const json* rows_[kProgramCount] = {};
};

// The track on which a slice is drawn: a queue of the process "measured" or "planned".
struct Track {
  uint32_t process, queue;
};
constexpr uint32_t kMeasured = 1, kPlanned = 2;

// Writes events as a file with one array, one event per line. If a profile has predicted the rows'
// seconds, it also writes planned slices.
class EventWriter {
 public:
  EventWriter(OutputFile& file, const Plan& plan, const json& manifest) : text_(file), plan_(plan), known_(manifest) {
    for (uint32_t p = 0; p < kProgramCount; ++p) live_[p] = live_bytes_of(plan.programs[p]);
    text_.add("{\"" + std::string(kWriterKey) + "\": \"" + mark_of(kTraceFile) +
              "\", \"displayTimeUnit\": \"ms\", \"otherData\": " + other_data().dump() + ", \"traceEvents\": [");
    name_tracks(kMeasured, std::string("train ") + plan.name);
    if (known_.step_seconds().is_number()) name_tracks(kPlanned, "planned");
  }

  void step(uint64_t number, const double* times, double origin) {
    origin_ = origin;
    planned_end_ = std::max(planned_end_, times[0]);  // the step may begin before the planned end of the previous one
    const double* next = times + 1;
    slice({kMeasured, 0}, "step " + std::to_string(number), "step", times[0], times[numbers_of_step(plan_) - 1],
          {{"step", number}, {"planned_seconds", known_.step_seconds()}});
    for_each_program_of_step(plan_, [&](ProgramId id, uint32_t micro) {
      const uint32_t count = plan_.program(id).rows.count;
      for (uint32_t r = 0; r < count; ++r) row(number, id, micro, r, next[r], next[r + 1]);
      if (count > 0) live_bytes(next[count], 0);
      next += count + (count > 0 ? 1 : 0);
    });
  }

  void finish() {
    text_.add("\n]}\n");
    text_.flush();
  }

 private:
  json other_data() const {
    return {{"name", plan_.name},
            {"backend", plan_.backend},
            {"planned_bytes", plan_.arena_bytes},
            {"times", "measured"},
            {"plan_hash", known_.plan_hash()}};
  }

  void event(const json& value) {
    text_.add((is_first_ ? "\n" : ",\n") + value.dump());
    is_first_ = false;
  }

  void name(const char* what, const Track& track, const std::string& text) {
    event({{"ph", "M"}, {"name", what}, {"pid", track.process}, {"tid", track.queue}, {"args", {{"name", text}}}});
  }

  void name_tracks(uint32_t process, const std::string& text) {
    name("process_name", {process, 0}, text);
    name("thread_name", {process, 0}, "compute");
    if (plan_.spill_bytes > 0) name("thread_name", {process, 1}, "transfers");
  }

  // Rounds to whole nanoseconds, so that rounding errors do not make adjacent slices overlap.
  double nanoseconds(double seconds) const { return std::round(1e9 * (seconds - origin_)); }

  void slice(const Track& track, const std::string& name, const std::string& category, double from, double to,
             const json& details) {
    event({{"ph", "X"},
           {"name", name},
           {"cat", category},
           {"pid", track.process},
           {"tid", track.queue},
           {"ts", nanoseconds(from) / 1e3},
           {"dur", (nanoseconds(to) - nanoseconds(from)) / 1e3},
           {"args", details}});
  }

  void live_bytes(double at, uint64_t bytes) {
    event({{"ph", "C"},
           {"name", "arena"},
           {"pid", kMeasured},
           {"tid", 0},
           {"ts", nanoseconds(at) / 1e3},
           {"args", {{"live bytes", bytes}}}});
  }

  void row(uint64_t step, ProgramId id, uint32_t micro, uint32_t r, double from, double to) {
    const Row& row = plan_.program(id).rows[r];
    const json planned = known_.seconds(id, r);
    json details = {{"row", r}, {"program", program_name(id)}, {"step", step}, {"planned_seconds", planned}};
    if (id != ProgramId::kUpdate) details["micro_batch"] = micro;
    const std::string name = std::string(kernel_info(row.op, row.pass).name) + " " + known_.link(row.link),
                      stage = known_.stage(id, r);
    slice({kMeasured, row.queue}, name, stage, from, to, details);
    live_bytes(from, live_[static_cast<uint32_t>(id)][r]);
    if (!planned.is_number()) return;
    const double start = planned_end_;
    planned_end_ += planned.get<double>();
    slice({kPlanned, row.queue}, name, stage, start, planned_end_, details);
  }

  TextBuffer text_;
  const Plan& plan_;
  const ManifestRows known_;
  std::vector<uint64_t> live_[kProgramCount];
  double origin_ = 0, planned_end_ = 0;
  bool is_first_ = true;
};

}  // namespace

RowTrace::RowTrace(const Output& to, const CompiledPlan& compiled, const TracedSteps& steps)
    : to_(to), compiled_(compiled), port_(compiled.port), steps_(steps) {
  const uint64_t maximum = std::max<uint64_t>(1, kMaxRows / std::max<uint64_t>(1, rows_of_step(compiled.plan)));
  if (steps.count() > maximum) {
    throw UserError("--trace-steps: of this plan, of " + std::to_string(rows_of_step(compiled.plan)) +
                        " rows a step, " + std::to_string(maximum) + " steps can be traced at most, not " +
                        std::to_string(steps.count()),
                    UserError::kUsage);
  }
  to.require_writable();
  times_.resize(steps.count() * numbers_of_step(compiled.plan));
}

std::string RowTrace::summary() const {
  return "trace: steps " + std::to_string(steps_.first) + " to " + std::to_string(steps_.last) + ", " +
         bytes_text(times_.size() * sizeof(double)) + " reserved for their times, to " + to_.path();
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
    // An error is ignored, because the step reports it
    (void)trace.trainer_->backend->host.synchronise(trace.trainer_->context);
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
  if (done_ == 0) return;
  const json manifest = manifest_if_there(compiled_);
  to_.write([&](const std::string& to) {
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
