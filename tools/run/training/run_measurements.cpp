// All programs use the same region. To measure each one separately, the canary is written again
// after the last row of a program. This is done in the first step and in the first batch of an
// evaluation. It is not done for a generation, whose caches the next run of the program reads.
#include "tools/run/training/run_measurements.h"

#include <algorithm>
#include <fstream>

#include "tools/files/io/output_file.h"
#include "tools/run/training/heap_calls.h"
#include "tools/run/training/program_manifest.h"

namespace reprise {

using nlohmann::json;

namespace {

constexpr size_t kMaxSeconds = 4096;
constexpr uint64_t kStackMargin = 32 << 10;  // painted beyond the plan's limit, so that a larger use is detected

// Returns the peak memory of this process since its exec; nothing if the system does not report it.
std::optional<uint64_t> process_peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  }
  return std::nullopt;
}

}  // namespace

PlanMeasurements::PlanMeasurements(const CompiledPlan& compiled) : compiled_(compiled) {
  seconds_.reserve(kMaxSeconds);
}

void PlanMeasurements::watch(Session& session, std::initializer_list<ProgramId> programs) {
  session_ = &session;
  is_watching_ = false;
  for (const ProgramId id : programs) {
    const bool is_new = !program_bytes_[static_cast<uint32_t>(id)] || id == ProgramId::kGenerate;
    is_watching_ = is_watching_ || (is_new && compiled_.plan.program(id).rows.count > 0);
  }
  if (is_watching_) session.require(lay_canary(session.trainer()));
}

void PlanMeasurements::begin_step(Session& session) {
  if (steps_ == 0) {
    watch(session, {ProgramId::kMicroFirst, ProgramId::kMicroAdd, ProgramId::kMicroLast, ProgramId::kUpdate});
    stacks_.paint(session.workers(), compiled_.plan.worker_stack_bytes + kStackMargin);
  }
  calls_before_ = heap_calls();
}

void PlanMeasurements::end_step(double seconds) {
  if (calls_before_) calls_ += *heap_calls() - *calls_before_;
  stop_watching();
  if (steps_ == 0) stack_bytes_ = stacks_.used();
  if (steps_ == 1) seconds_.clear();  // drops the time of the first step, which is slower because it is measured
  const size_t place = static_cast<size_t>(steps_++ % kMaxSeconds);
  if (seconds_.size() < kMaxSeconds) {
    seconds_.push_back(seconds);
  } else {
    seconds_[place] = seconds;
  }
}

RowObserver PlanMeasurements::observer() {
  if (!is_watching_) return {};
  const auto after = [](void* self, ProgramId id, uint32_t row) {
    PlanMeasurements& own = *static_cast<PlanMeasurements*>(self);
    if (row + 1 == own.compiled_.plan.program(id).rows.count) own.see_last_row(id);
  };
  return {this, nullptr, after};
}

// Ignores errors of a device: the step reports them.
void PlanMeasurements::see_last_row(ProgramId id) {
  has_generated_ = id == ProgramId::kGenerate;
  if (has_generated_ || (id == ProgramId::kEvaluate && program_bytes_[static_cast<uint32_t>(id)])) return;
  measure_program(id);
  (void)lay_canary(session_->trainer());
}

void PlanMeasurements::stop_watching() {
  if (has_generated_) measure_program(ProgramId::kGenerate);
  is_watching_ = has_generated_ = false;
}

void PlanMeasurements::measure_program(ProgramId id) {
  uint64_t bytes = 0;
  if (!measured_bytes(session_->trainer(), Region::kProgram, bytes).ok()) return;
  std::optional<uint64_t>& maximum = program_bytes_[static_cast<uint32_t>(id)];
  maximum = std::max(maximum.value_or(0), bytes);
}

json PlanMeasurements::regions() const {
  json regions = json::array();
  const auto add = [&regions](const char* name, uint64_t bytes) {
    regions.push_back({{"name", name}, {"high_water_bytes", bytes}});
  };
  for (const auto& [name, region] : {std::pair{"state", Region::kState}, {"carried", Region::kCarried}}) {
    uint64_t bytes = 0;
    if (region == Region::kCarried && steps_ == 0) continue;
    session_->require(measured_bytes(session_->trainer(), region, bytes));
    add(name, bytes);
  }
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    if (program_bytes_[p]) add(program_name(static_cast<ProgramId>(p)), *program_bytes_[p]);
  }
  if (spills_to(session_->plan(), SpillLevel::kHost) && steps_ > 0) add("host", session_->measured_in_host());
  return regions;
}

double PlanMeasurements::median_seconds() const {
  std::vector<double> sorted = seconds_;
  std::sort(sorted.begin(), sorted.end());
  const size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

json PlanMeasurements::measured() const {
  if (session_ == nullptr) return json::object();
  json measured = {{"proved_by", compiled_.is_filed() ? "program" : "compiler"},
                   {"regions", regions()},
                   {"steps", steps_}};
  if (const std::optional<uint64_t> peak = process_peak_bytes()) measured["process_peak_bytes"] = *peak;
  if (steps_ == 0) return measured;
  measured["step_seconds"] = median_seconds();
  if (calls_before_) measured["heap_calls_in_steps"] = calls_;
  if (stack_bytes_.empty()) return measured;
  measured["stack_bytes"] = *std::max_element(stack_bytes_.begin(), stack_bytes_.end());
  measured["stacks"] = json::array();
  for (size_t w = 0; w < stack_bytes_.size(); ++w)
    measured["stacks"].push_back({{"worker", w}, {"bytes", stack_bytes_[w]}});
  return measured;
}

RunMeasurements::RunMeasurements(const Output& to, const CompiledPlan& compiled)
    : to_(to), manifest_(manifest_of_program(compiled, "--manifest")) {
  to.require_writable();
  for (uint32_t p = 0; p < std::max<uint32_t>(1, compiled.plans.count); ++p) plans_.emplace_back(plan_at(compiled, p));
}

void RunMeasurements::write() {
  for (const PlanMeasurements& plan : plans_) {
    if (json* const own = manifest_of_plan(manifest_, plan.plan_hash())) (*own)["measured"] = plan.measured();
  }
  to_.write(manifest_.dump(1) + "\n");
}

}  // namespace reprise
