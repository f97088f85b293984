// See session.h.
#include "tools/training/session.h"

#include <unistd.h>

#include <filesystem>

#include "lib/check.h"
#include "tools/formats/error.h"
#include "tools/formats/text.h"
#include "tools/progress/long_work.h"
#include "tools/training/adapter_files.h"
#include "tools/training/snapshot.h"

namespace reprise {

Session::Session(const CompiledPlan& compiled, const TrainingOptions& options, const DataFingerprint* data)
    : plan_(compiled.plan), port_(compiled.port), recipe_(parse_recipe(compiled.recipe, plan_.name, "/")) {
  try {
    set_up(options, data);
  } catch (...) {
    release();
    throw;
  }
}

Session::~Session() { release(); }

void Session::release() {
  unbind(trainer_);
  port_.stop_workers(&workers_);
  if (disk_.wait != nullptr) port_.close_disk(&disk_);
  port_.release_arena(&arena_);
  port_.close_backend(&backend_);
}

void Session::set_up(const TrainingOptions& options, const DataFingerprint* data) {
  const LongWork work("setting up " + recipe_.name);
  require(port_.open_backend(plan_.backend, &backend_));
  require(port_.start_workers(options.threads, &workers_));
  require(port_.acquire_arena(plan_.arena_bytes + kGuardBytes, &arena_));
  if (plan_.disk_bytes > 0) open_disk(options.disk);
  std::vector<CheckMark> marks(check_marks(plan_));
  const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
  const Resources resources = {.arena = arena_, .workers = &workers_, .disk = disk_, .workspace = workspace, .eager = options.eager};
  require(bind(plan_, backend_, resources, trainer_));
  if (!options.resume.empty()) {
    if (recipe_.lora) load_base_of(options.resume);
    warnings_ = resume_snapshot(trainer_, recipe_, data, options.resume);
    return;
  }
  load_initial_weights(options);
  if (!options.init_adapter.empty()) load_adapter(trainer_, recipe_, options.init_adapter);
}

void Session::load_initial_weights(const TrainingOptions& options) {
  weights_ = !options.init.empty() ? options.init : !recipe_.init.from.empty() ? recipe_.init.from : published_weights(recipe_);
  if (weights_.empty()) {
    if (!options.init_skip.empty()) throw UserError("--init-skip: needs weights: --init FILE, or init.from in the recipe", UserError::kUsage);
    return;
  }
  InitialRules rules = {.skip = recipe_.init.skip, .allow_missing = recipe_.init.allow_missing};
  rules.skip.insert(rules.skip.end(), options.init_skip.begin(), options.init_skip.end());
  load_weights(weights_, rules);
}

void Session::load_weights(const std::string& path, const InitialRules& rules) {
  const std::unique_ptr<WeightSource> source = open_weights(path);
  weights_ = source->path();
  const LongWork reading("reading " + weights_);
  taken_ = read_initial_weights(trainer_, *source, rules);
  if (recipe_.lora) base_ = {std::filesystem::absolute(weights_).string(), sum_of_file(weights_)};
}

// A snapshot of adapters names the file of the weights beside which they were trained; one without was trained beside the seed's.
void Session::load_base_of(const std::string& snapshot) {
  const std::optional<BaseWeights> base = read_facts(snapshot).base;
  if (!base) return;
  load_weights(base->path, {.skip = recipe_.init.skip, .allow_missing = recipe_.init.allow_missing});
  if (base_->sum == base->sum) return;
  throw UserError(base->path + ": is not the file that the adapters of " + snapshot + " were trained beside (" + std::to_string(base_->sum.bytes) + " bytes, xxh3 " +
                  base_->sum.checksum + "; must be " + std::to_string(base->sum.bytes) + ", " + base->sum.checksum + ")");
}

std::string program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

// The option's file, else one beside the program: a folder for temporary files may lie in memory.
void Session::open_disk(const std::string& option) {
  const std::string path = !option.empty() ? option : program_folder() + "/" + recipe_.name + ".spill-" + std::to_string(::getpid());
  if (port_.open_disk == nullptr) throw UserError(recipe_.name + ": the plan keeps values on disk, but a board of port \"" + port_.name + "\" has none");
  const Status status = port_.open_disk(path.c_str(), plan_.disk_bytes, &disk_);
  if (!status.ok()) fail(path + ": " + bytes_text(plan_.disk_bytes) + " for --disk", status, &plan_);
}

uint64_t Session::measured() const {
  uint64_t bytes = 0;
  require(measured_bytes(trainer_, bytes));
  return bytes;
}

}  // namespace reprise
