// See session.h.
#include "tools/run/session/session.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "lib/check.h"
#include "lib/same_state.h"
#include "tools/files/formats/json_differences.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/files/progress/shown_output.h"
#include "tools/files/weights/model_files.h"
#include "tools/files/weights/tied_head.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/session/smaller_plans.h"
#include "tools/run/session/stop_signal.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/snapshot.h"
#include "tools/run/snapshots/streamed_weights.h"

namespace reprise {

namespace {

uint32_t number_of(const CompiledPlan& compiled) {
  uint32_t number = 0;
  while (number < compiled.plans.count && compiled.plans[number].plan != &compiled.plan) ++number;
  return number < compiled.plans.count ? number : 0;
}

uint64_t space_of(const Plan& plan) { return plan.arena_bytes + kGuardBytes; }

// Returns the bytes of the arena for each plan of the program, smallest first.
std::vector<uint64_t> arena_sizes(const CompiledPlan& compiled) {
  std::vector<uint64_t> sizes = {space_of(compiled.plan)};
  for (const WrittenPlan& written : compiled.plans) sizes.push_back(space_of(*written.plan));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

}  // namespace

Session::Session(const CompiledPlan& compiled, const ProgramOptions& options, const DataFingerprint* data,
                 const AskReference& ask_reference, const Ranks* ranks)
    : compiled_(compiled),
      number_(number_of(compiled)),
      port_(compiled.port),
      recipe_(parse_recipe(compiled.recipe, compiled.plan.name, "/")),
      ranks_(ranks) {
  try {
    set_up(options, data, ask_reference);
  } catch (...) {
    release();
    throw;
  }
}

Session::~Session() { release(); }

void Session::release() {
  unbind(trainer_);
  port_.stop_workers(&workers_);
  for (Disk* file : {&disk_, &streamed_}) {
    if (file->wait != nullptr) port_.close_disk(file);
  }
  if (host_memory_.base != nullptr) port_.release_host(&host_memory_);
  port_.release_arena(&arena_);
  port_.close_backend(&backend_);
}

namespace {

// Throws UserError if the model's config has changed since the program was planned.
void require_same_model(const Recipe& recipe) {
  if (recipe.place.path().empty() || !std::filesystem::exists(recipe.place.path())) return;
  const std::string config = ModelFiles::open(recipe.place.path()).config_path();
  if (!std::filesystem::exists(config)) return;
  const std::vector<JsonDifference> differences =
      find_differences(model_json(recipe.model), model_json(read_published_model(recipe.place)));
  if (differences.empty()) return;
  throw UserError(config + ": is not the model that this program was planned for: " + differences_shown(differences) +
                  "; plan again");
}

}  // namespace

void Session::set_up(const ProgramOptions& options, const DataFingerprint* data, const AskReference& ask_reference) {
  const LongWork work("setting up " + recipe_.name);
  require(port_.open_backend(plan().backend, &backend_));
  require(port_.start_workers(options.threads, &workers_));
  if (!options.no_tune) tune();
  take_arena();
  open_disk(options.disk);
  take_host_memory();
  require_same_model(recipe_);
  const bool asks = has_reference(recipe_) && ask_reference != nullptr, takes_base = recipe_.lora || asks;
  choose_weights(options, takes_base);
  std::vector<std::string> inputs = options.inputs(), others = inputs_of(recipe_);
  inputs.insert(inputs.end(), others.begin(), others.end());
  if (source_ != nullptr) inputs.push_back(source_->path());
  if (plan().streamed_bytes > 0) open_streamed(options.streamed, inputs);
  std::vector<CheckMark> marks(check_marks(plan()));
  for (const WrittenPlan& written : compiled_.plans)
    marks.resize(std::max<size_t>(marks.size(), check_marks(*written.plan)));
  const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
  const Resources resources = {.arena = arena_,
                               .workers = &workers_,
                               .disk = disk_,
                               .weights = streamed_,
                               .host_memory = host_memory_,
                               .peers = peers(),
                               .workspace = workspace,
                               .eager = options.eager};
  if (ranks_ != nullptr && data != nullptr) {
    for (const std::string& warning : ranks_->compare(facts_of(plan(), recipe_, *data, backend_.kernel_set)))
      warnings_.push_back(warning);
  }
  prove_other_plans(resources);
  require(bind(plan(), backend_, resources, trainer_));
  trainer_.stops = stops_at_row;
  if (options.resume.empty() || takes_base) load_weights();
  if (asks) ask_reference(*this);
  if (!options.resume.empty()) {
    const std::vector<std::string> differences = resume_snapshot(trainer_, recipe_, data, options.resume);
    warnings_.insert(warnings_.end(), differences.begin(), differences.end());
    resumed_ = options.resume;
    return;
  }
  if (options.init_adapter.empty()) return;
  adapter_said_ = load_adapter(trainer_, recipe_, options.init_adapter);
  adapter_ = options.init_adapter;
}

// Loads the tuning, or measures it. Called before the arena is acquired, because measuring needs
// memory temporarily.
void Session::tune() {
  if (port_.tune_backend == nullptr) return;
  const Tuning tuning = port_.tune_backend(workers_, TuningMode::kUse);
  if (tuning.problem[0] != 0) warnings_.push_back(std::string(tuning.file) + ": " + tuning.problem);
}

// Reserves addresses for the largest plan, and acquires memory for the plan that runs first.
void Session::take_arena() {
  const std::vector<uint64_t> sizes = arena_sizes(compiled_);
  const bool changes = sizes.front() < sizes.back();
  Status reserved = {Code::kUnsupported, "arenas of this port keep their size", 0};
  if (changes && port_.reserve_arena != nullptr) reserved = port_.reserve_arena(sizes.back(), &arena_);
  if (reserved.ok()) {
    const Status taken = resize_arena(space_of(plan()));
    if (!taken.ok()) port_.release_arena(&arena_);
    return require_arena(taken);
  }
  if (changes) fixed_ = reserved.message;
  require_arena(port_.acquire_arena(space_of(plan()), &arena_));
}

// Throws UserError if the arena was not acquired. If memory is short, the error names smaller plans
// that fit: plans of the program, and plans that planning again would give.
void Session::require_arena(const Status& taken) {
  if (taken.ok() || taken.code != Code::kOutOfMemory) return require(taken);
  const auto has_space = [this](uint64_t bytes) {
    Arena arena;
    const bool has = port_.acquire_arena(bytes + kGuardBytes, &arena).ok();
    port_.release_arena(&arena);
    return has;
  };
  const std::string refusal = message_of(taken);  // a copy, because the port may overwrite its message
  throw UserError(recipe_.name + ": " + refusal + smaller_that_fit(compiled_, number_, has_space));
}

// Changes the size of the arena. It grows in steps of the plans' sizes, because a port may be able
// to release only whole amounts that it acquired by one call.
Status Session::resize_arena(uint64_t bytes) {
  const uint64_t before = arena_.bytes;
  for (const uint64_t size : arena_sizes(compiled_)) {
    if (size <= arena_.bytes || size > bytes) continue;
    const Status status = port_.resize_arena(size, &arena_);
    if (status.ok()) continue;
    if (before < arena_.bytes) require(port_.resize_arena(before, &arena_));
    return status;
  }
  return arena_.bytes > bytes ? port_.resize_arena(bytes, &arena_) : ok_status();
}

// Checks the other plans before the first step, so that a fault is reported now and not when the
// plan changes.
void Session::prove_other_plans(const Resources& resources) {
  for (const WrittenPlan& written : compiled_.plans) {
    if (written.plan == &plan()) continue;
    Resources own = resources;
    own.arena.bytes = space_of(*written.plan);  // the arena's bytes when this plan runs
    require(check_plan(*written.plan, backend_, own));
    if (!same_state(plan(), *written.plan))
      throw UserError(recipe_.name + ": the plans of this program have not the same State; plan and compile again");
  }
}

Status Session::change_plan(uint32_t number) {
  const Plan& next = plan_at(compiled_, number).plan;
  if (fixed_ != nullptr && space_of(next) != space_of(plan())) return {Code::kUnsupported, fixed_, 0};
  REPRISE_RETURN_IF_ERROR(resize_arena(space_of(next)));
  const Resources resources = {.arena = arena_,
                               .workers = &workers_,
                               .disk = disk_,
                               .weights = streamed_,
                               .host_memory = host_memory_,
                               .peers = peers(),
                               .workspace = {},
                               .eager = trainer_.eager};
  require(rebind(next, resources, trainer_));
  number_ = number;
  return ok_status();
}

namespace {

// True for the name of a buffer that older files contain next to the weights: an attention mask, or
// frequencies of rotary positions.
bool is_buffer_of_before(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

// Chooses the file of the initial weights. If a run is resumed, none is needed unless `takes_base`:
// the weights with which the training began are then needed, too.
void Session::choose_weights(const ProgramOptions& options, bool takes_base) {
  if (options.resume.empty()) {
    choose_initial_weights(options);
  } else if (takes_base) {
    choose_base_of(options.resume);
  }
  if (source_ == nullptr) return;
  weights_ = source_->path();
  if ((recipe_.lora || has_reference(recipe_)) && !base_) base_ = sum_base(*source_);
}

void Session::choose_initial_weights(const ProgramOptions& options) {
  const std::string path = !options.init.empty()        ? options.init
                           : !recipe_.init.from.empty() ? recipe_.init.from
                                                        : published_weights(recipe_);
  if (path.empty()) {
    if (const std::string missing = missing_weights(recipe_); !missing.empty()) throw UserError(missing);
    if (!options.init_skip.empty())
      throw UserError("--init-skip: needs weights: --init FILE, or init.from in the recipe", UserError::kUsage);
    return;
  }
  rules_ = {.skip = recipe_.init.skip, .allow_missing = recipe_.init.allow_missing};
  rules_.skip.insert(rules_.skip.end(), options.init_skip.begin(), options.init_skip.end());
  source_ = open_model_weights(recipe_, path);
  is_published_ = path == published_weights(recipe_);
}

// Finds the weights with which a snapshot's training began. Snapshots of adapters and of preference
// training name the file. If they name none, the weights were drawn from the seed.
void Session::choose_base_of(const std::string& snapshot) {
  const std::optional<BaseWeights> base = read_facts(snapshot).base;
  if (!base) return;
  const std::string path = find_base(*base, recipe_, snapshot);
  if (const std::string named = published_weights(recipe_); recipe_.init.from.empty() && !named.empty()) {
    std::error_code ignored;
    const std::string file = std::filesystem::exists(named, ignored) ? open_weights(named)->path() : path;
    if (!std::filesystem::equivalent(file, path, ignored))
      warnings_.push_back(snapshot + ": was trained beside " + path + ", which is used; the recipe names " + file);
  }
  rules_ = {.skip = recipe_.init.skip, .allow_missing = recipe_.init.allow_missing};
  source_ = open_model_weights(recipe_, path);
  is_published_ = path == published_weights(recipe_);
  base_ = sum_base(*source_);
  require_same_base(*base_, *base, snapshot);
}

void Session::load_weights() {
  const InputFile* streamed = streamed_file_ ? &*streamed_file_ : nullptr;
  if (source_ == nullptr) return draw_stored_weights(trainer_, streamed);
  const LongWork reading("reading " + weights_);
  taken_ = read_initial_weights(trainer_, *source_, rules_, streamed);
  source_.reset();
  if (taken_.drops_head) {
    warnings_.push_back(
        weights_ + ": " + kHead +
        " differs from the embeddings and is dropped, because the model's config ties both (tie_word_embeddings), as "
        "transformers 4 " +
        "reads it; transformers 5 would keep it: set tie_word_embeddings to false in the config to train it");
  }
  std::vector<std::string> homeless;
  for (const std::string& name : taken_.unused) {
    if (name != kHead && !is_buffer_of_before(name)) homeless.push_back(name);
  }
  if (!homeless.empty() && is_published_) {
    warnings_.push_back(weights_ + ": holds what the model of its config has no place for: " + some_of(homeless));
  }
}

std::vector<std::string> Session::origin_of_weights() const {
  const auto listed = [](const std::vector<std::string>& names) {
    return std::to_string(names.size()) + " tensors: " + some_of(names);
  };
  std::vector<std::string> lines;
  if (!weights_.empty()) {
    const std::string unused = taken_.unused.empty() ? ""
                                                     : ", " + std::to_string(taken_.unused.size()) +
                                                           " of the file not needed: " + some_of(taken_.unused);
    lines.push_back("weights from " + weights_ + ": " + std::to_string(taken_.loaded) + " tensors loaded" + unused);
  } else if (resumed_.empty() || recipe_.lora) {
    lines.push_back("weights drawn from the seed " + std::to_string(recipe_.seed));
  }
  if (!taken_.skipped.empty())
    lines.push_back("left at their initial values, because they are skipped: " + listed(taken_.skipped));
  if (!taken_.left_over.empty())
    lines.push_back("left at their initial values, because the file has none: " + listed(taken_.left_over));
  const std::string part = recipe_.lora ? "adapters from " : "weights from ";
  if (!resumed_.empty())
    lines.push_back(part + "the snapshot " + resumed_ + ", after step " + std::to_string(trainer_.step));
  if (!adapter_.empty()) lines.push_back(part + adapter_ + (adapter_said_.empty() ? "" : "; " + adapter_said_));
  return lines;
}

void show_untrained(const Session& session) {
  for (const std::string& warning : session.warnings()) warn(warning);
  if (session.is_resumed()) return;
  if (session.weights().empty()) {
    warn(session.recipe().name + ": no trained weights are given, so the initial ones are used, drawn from the seed; " +
         "give --resume DIR, --init FILE, or init.from in the recipe");
    return;
  }
  if (session.recipe().lora && !session.has_adapter()) {
    warn(session.recipe().name +
         ": no trained adapters are given, so the model answers as it was published; give --resume DIR or "
         "--init-adapter DIR");
  }
  std::vector<std::string> untrained = session.taken().skipped;
  for (const std::string& name : session.taken().left_over) {
    if (!name.ends_with(".num_batches_tracked")) untrained.push_back(name);
  }
  if (untrained.empty()) return;
  warn(session.weights() + ": leaves " + std::to_string(untrained.size()) +
       (untrained.size() == 1 ? " tensor" : " tensors") + " untrained, at their initial values: " + some_of(untrained));
}

std::string program_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

std::string run_folder(const CompiledPlan& compiled) {
  return compiled.is_filed() ? std::filesystem::absolute(compiled.file).parent_path().string() : program_folder();
}

namespace {

void heed_stop_signal(const std::string& who) {
  const int signal = stop_signal();
  if (signal == 0) return;
  throw UserError(who + ": stopped by a signal while its streamed weights were written, before the first step",
                  static_cast<UserError::Status>(128 + signal));
}

}  // namespace

// Opens the file of streamed weights: the option's file, or one next to the program. It is kept for
// the next run.
void Session::open_streamed(const std::string& option, const std::vector<std::string>& inputs) {
  const std::string path = !option.empty() ? option : run_folder(compiled_) + "/" + recipe_.name + ".streamed";
  if (port_.open_weights == nullptr)
    throw UserError(recipe_.name + ": the plan streams weights, but a board of port \"" + port_.name +
                    "\" has no file for them");
  prepare_streamed_weights(
      plan(), workers_, {source_.get(), base_ ? &*base_ : nullptr, rules_}, path,
      [this] { heed_stop_signal(recipe_.name); }, inputs);
  streamed_file_.emplace(path);
  const Status status = port_.open_weights(path.c_str(), plan().streamed_bytes, &streamed_);
  if (!status.ok()) fail(path, status, &plan());
}

// Opens the spill file, which is large enough for all plans. Without the option it is next to the
// program, because a folder for temporary files may be in memory.
void Session::open_disk(const std::string& option) {
  const uint64_t bytes = max_spill_bytes(compiled_, SpillLevel::kDisk);
  if (bytes == 0) return;
  const std::string path =
      !option.empty() ? option : run_folder(compiled_) + "/" + recipe_.name + ".spill-" + std::to_string(::getpid());
  if (port_.open_disk == nullptr)
    throw UserError(recipe_.name + ": the plan keeps values on disk, but a board of port \"" + port_.name +
                    "\" has none");
  const Status status = port_.open_disk(path.c_str(), bytes, &disk_);
  if (!status.ok()) fail(path + ": " + bytes_text(bytes) + " for --disk", status, &plan());
}

// Acquires memory of the host, enough for all plans.
void Session::take_host_memory() {
  const uint64_t bytes = max_spill_bytes(compiled_, SpillLevel::kHost);
  if (bytes == 0) return;
  if (port_.acquire_host == nullptr) {
    throw UserError(recipe_.name + ": the plan keeps values in memory of the host, but a board of port \"" +
                    port_.name + "\" has none for it");
  }
  const Status status = port_.acquire_host(bytes, &host_memory_);
  if (!status.ok()) fail(recipe_.name + ": schedule.host: " + bytes_text(bytes), status, &plan());
}

uint64_t Session::measured() const {
  uint64_t bytes = 0;
  require(measured_bytes(trainer_, bytes));
  return bytes;
}

uint64_t Session::measured_in_host() const {
  uint64_t bytes = 0;
  if (spills_to(plan(), SpillLevel::kHost)) require(measured_bytes(trainer_, Region::kSpill, bytes));
  return bytes;
}

}  // namespace reprise
