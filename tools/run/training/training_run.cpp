// If --save names a folder and a training ends by an error, saves the weights of the last complete
// step. It does not save if the memory may be invalid, or after a second signal.
#include "tools/run/training/training_run.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/progress_bar.h"
#include "tools/files/progress/shown_output.h"
#include "tools/plan/audit/manifest.h"
#include "tools/plan/audit/plan_trace.h"
#include "tools/plan/lowering/sharing.h"
#include "tools/run/data/data_feed.h"
#include "tools/run/inference/answer.h"
#include "tools/run/inference/evaluation.h"
#include "tools/run/inference/reference.h"
#include "tools/run/inference/sample.h"
#include "tools/run/session/board_state.h"
#include "tools/run/session/ranks.h"
#include "tools/run/session/session.h"
#include "tools/run/session/status_text.h"
#include "tools/run/session/stop_signal.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/snapshot_store.h"
#include "tools/run/snapshots/state_tensors.h"
#include "tools/run/training/early_stop.h"
#include "tools/run/training/epoch_plans.h"
#include "tools/run/training/event_file.h"
#include "tools/run/training/pause.h"
#include "tools/run/training/plan_requests.h"
#include "tools/run/training/program_manifest.h"
#include "tools/run/training/row_observers.h"
#include "tools/run/training/row_trace.h"
#include "tools/run/training/run_measurements.h"
#include "tools/run/training/run_words.h"
#include "tools/run/training/step_log.h"

namespace reprise {
namespace {

// Throws UserError if `file` would be in the folder of a snapshot, which the next snapshot
// replaces.
void require_outside(const char* option, const std::string& file, const std::string& save) {
  if (file.empty() || save.empty()) return;
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::weakly_canonical(file, ignored).parent_path();
  for (const std::string& taken : {save, save + ".saving", save + ".best", save + ".best.saving"}) {
    if (folder != std::filesystem::weakly_canonical(taken, ignored)) continue;
    throw UserError(file + ": " + option + ": lies in the folder " + taken +
                        ", which is replaced whole with every snapshot; put it beside",
                    UserError::kUsage);
  }
}

class TrainingRun {
 public:
  TrainingRun(const CompiledPlan& compiled, const ProgramOptions& options, const Ranks& ranks)
      : summary_(compiled.summary),
        options_(options),
        ranks_(ranks),
        sizes_(compiled),
        save_every_(options.save_every.empty() ? SaveEvery{} : parse_save_every(options.save_every)) {
    require_outside("--log", options.log, options.save);
    require_outside("--tensorboard", options.tensorboard.empty() ? "" : options.tensorboard + "/events", options.save);
    require_outside("--trace", options.trace, options.save);
    require_outside("--manifest", options.manifest, options.save);
    recipe_ = parse_recipe(compiled.recipe, compiled.plan.name, "/");
    const std::vector<std::string> inputs = inputs_of_run(compiled);
    std::optional<Output> trace;  // opened before the session, so that its errors come early
    if (!options.trace.empty()) trace.emplace(options.trace, kTraceFile, inputs);
    if (!options.save.empty()) {
      // The snapshot that the run resumes may be replaced, so that it is not protected as an input.
      std::vector<std::string> lost = inputs;
      std::erase(lost, options.resume);
      snapshots_.emplace(KeptSnapshots{options.save, options.keep, options.keep_best || recipe_.early_stopping,
                                       options.overwrite, options.resume, options.go_on, lost});
    }
    if (recipe_.data.kind == DataSource::Kind::kNone)
      throw UserError(recipe_.name + ": data: the recipe names none; training needs some");
    training_data_ = open_dataset(recipe_, Split::kTraining);
    texts_ = texts_of(recipe_);
    if (!options.resume.empty()) require_same_classes(options.resume, training_data_->class_names());
    if (evaluates()) evaluation_data_ = open_dataset(recipe_, Split::kEvaluation);
    if (options.keep_best && evaluation_data_ == nullptr) {
      throw UserError(
          recipe_.name +
              ": --keep-best: nothing is evaluated; give data.eval_path or data.held_out, and evaluate_every above 0",
          UserError::kUsage);
    }
    if (recipe_.early_stopping && evaluation_data_ == nullptr) {
      throw UserError(recipe_.name + ": early_stopping: nothing is evaluated; give data.eval_path or data.held_out");
    }
    last_step_ = steps_asked_for();
    if (last_step_ == 0)
      throw UserError(
          recipe_.name +
              ": steps: say how long to train: --steps N, --epochs N, or \"steps\" or \"epochs\" in the recipe",
          UserError::kUsage);
    plans_.emplace(compiled, recipe_, *training_data_);
    if (!options.manifest.empty()) measurements_.emplace(Output(options.manifest, kManifestFile, inputs), compiled);
    session_.emplace(
        plans_->compiled(), options, &training_data_->fingerprint(),
        [this](Session& session) { ask_reference(session); }, &ranks);
    if (!options.control.empty()) control_.emplace(options.control);
    requests_.emplace(sizes_, options, control(), session_->plan_number());
    pause_.emplace(control(), trainer(), session_->port().seconds,
                   [this](const std::string& words) { say_pause(words); });
    first_step_ = saved_step_ = first_step_of_plan_ = trainer().step;
    if (trace) trace_.emplace(*trace, compiled, traced_steps());
    if (ranks_.is_first() && recipe_.lora && first_step_ < last_step_)
      adapter_.emplace(adapter_place(compiled), adapter_folder(recipe_), inputs);
    require_disk_space();
    if (!options.log.empty()) log_.open(options.log, inputs, first_step_);
    if (!options.tensorboard.empty()) events_.open(options.tensorboard, first_step_);
    if (recipe_.early_stopping) {
      stopping_.emplace(recipe_.early_stopping->patience,
                        options.resume.empty() ? std::nullopt : read_facts(options.resume).losses);
    }
  }

  int run() {
    board_looked_ = now();
    show_plan();
    if (first_step_ < last_step_) show_beginning();
    // A run that ended at this step saved its snapshot before the evaluation. An uninterrupted run
    // would have counted that evaluation, so that it is repeated here.
    if (stopping_ && first_step_ > 0 && evaluates_after(first_step_) && !stopping_->knows(first_step_)) evaluate_now();
    train();
    const Doing doing(Activity::kEnding);
    return finish();
  }

 private:
  std::vector<std::string> inputs_of_run(const CompiledPlan& compiled) const {
    std::vector<std::string> inputs = options_.inputs();
    for (const std::vector<std::string>& others : {inputs_of(recipe_), manifest_places(compiled), {compiled.file}})
      inputs.insert(inputs.end(), others.begin(), others.end());
    return inputs;
  }

  // Throws UserError if the disk has no space for the files that the run adds: all snapshots that
  // exist at one time, with the best snapshot, and the adapter.
  void require_disk_space() const {
    if (first_step_ >= last_step_ || !ranks_.is_first()) return;
    const uint64_t bytes = snapshot_bytes(session_->plan());
    std::vector<SpaceNeed> needs;
    if (snapshots_) {
      const bool is_first = !std::filesystem::exists(options_.save),
                 repeats = save_every_.steps != 0 || save_every_.seconds != 0;
      needs.push_back({options_.save, "the snapshot", bytes * (repeats ? (is_first ? 1 : 0) + options_.keep : 1)});
      if (options_.keep_best || recipe_.early_stopping)
        needs.push_back({options_.save + ".best", "the best snapshot", bytes});
    }
    if (adapter_) needs.push_back({adapter_->path(), "the adapter", 2 * bytes});
    require_space(needs);
  }

  // Returns the folder of the adapter: --adapter, or a folder next to the program or its plan file.
  std::string adapter_place(const CompiledPlan& compiled) const {
    return !options_.adapter.empty() ? options_.adapter : run_folder(compiled) + "/adapter";
  }

  Trainer& trainer() { return session_->trainer(); }
  uint64_t samples_per_step() const {
    return static_cast<uint64_t>(recipe_.batch) * static_cast<uint64_t>(recipe_.micro_batches());
  }
  double now() const { return session_->port().seconds(); }
  uint64_t steps_asked_for() const {
    if (options_.steps != 0) return options_.steps;
    if (options_.epochs != 0) return steps_of_epochs(static_cast<double>(options_.epochs), recipe_, *training_data_);
    return recipe_.epochs ? steps_of_epochs(*recipe_.epochs, recipe_, *training_data_) : recipe_.steps;
  }

  void ask_reference(Session& session) {
    const uint64_t first = options_.resume.empty() ? 0 : read_facts(options_.resume).step;
    const auto ask = [&](Dataset& data, uint64_t from, uint64_t end) {
      set_references(session.trainer(), session.port(), recipe_, data, from, end, options_.quiet);
    };
    ask(*training_data_, first, std::max(first, last_step_));
    if (evaluation_data_ == nullptr) return;
    const uint64_t all = evaluation_data_->micro_batches(), maximum = recipe_.evaluate_batches;
    ask(*evaluation_data_, 0, maximum == 0 ? all : std::min(all, maximum));
  }

  // Returns which steps to trace. By default the first step is left out, because it touches the
  // memory for the first time.
  TracedSteps traced_steps() const {
    const TracedSteps done = {first_step_ + 1, last_step_};
    if (done.last < done.first)
      throw UserError("--trace: nothing is left to do, and no step can be traced", UserError::kUsage);
    if (options_.trace_steps.empty()) return {std::min(done.first + 1, done.last), std::min(done.first + 3, done.last)};
    const TracedSteps asked = parse_traced_steps(options_.trace_steps);
    if (asked.first >= done.first && asked.last <= done.last) return asked;
    throw UserError("--trace-steps: must lie within the steps of this run, " + std::to_string(done.first) + ":" +
                        std::to_string(done.last) + ", not " + options_.trace_steps,
                    UserError::kUsage);
  }

  // True if the recipe evaluates; "evaluate_every": 0 disables it. Synthetic data have no path and
  // are evaluated only if the recipe gives evaluate_every.
  bool evaluates() const { return recipe_.evaluate_every ? *recipe_.evaluate_every != 0 : !recipe_.data.path.empty(); }
  // True if a rank has received a signal. All ranks then end after the same step.
  bool stops() { return stopped_ = ranks_.any(stop_signal() != 0); }
  // True if all ranks must evaluate and answer together: each stores only a part of the weights,
  // and loads the other parts from the other ranks.
  bool runs_together() const { return session_->plan().shard_bytes > 0; }
  bool is_asked_to_stop() const { return runs_together() ? ranks_.any(stop_signal() != 0) : stop_signal() != 0; }
  bool stops_early() const { return stopping_ && stopping_->is_due(); }
  bool evaluates_after(uint64_t step) const {
    const uint64_t every = recipe_.evaluate_every.value_or(0);
    return every != 0 && step % every == 0 && step != last_step_;
  }

  // Returns observers of which the first pauses between rows, so that the others do not count a
  // pause as time of a row. If the program is replayed as a recording, no observer pauses.
  RowObservers pausing(ProgramId id) {
    RowObservers observers;
    if (trainer().recordings[static_cast<uint32_t>(id)] == nullptr) observers.add(pause_->observer());
    return observers;
  }

  // Returns an observer that shows progress within a step if the step takes long.
  RowObserver row_progress() {
    return {this, [](void* self, ProgramId, uint32_t) { static_cast<TrainingRun*>(self)->show_row(); }, nullptr};
  }
  void show_row() {
    constexpr double kPatienceSeconds = 2;
    ++rows_begun_;
    const double seconds = now() - pause_->paused_seconds();
    if (progress_ == nullptr || seconds - step_began_ < kPatienceSeconds || !progress_->is_due(seconds)) return;
    const Plan& plan = session_->plan();
    uint64_t rows = plan.program(ProgramId::kUpdate).rows.count;
    for (uint32_t turn = 0; turn < plan.accumulate; ++turn)
      rows += plan.program(program_of_micro_batch(plan, turn)).rows.count;
    char words[64];
    std::snprintf(words, sizeof words, "%.0f%% of step %llu",
                  100.0 * static_cast<double>(rows_begun_ - 1) / static_cast<double>(rows),
                  static_cast<unsigned long long>(trainer().step + 1));
    progress_->show(trainer().step, words, seconds);
  }

  // Runs `work`, which runs a program outside of a step, and returns its result. Measures the run
  // if a manifest was requested.
  template <typename F>
  auto watch(ProgramId id, const F& work) {
    RowObservers observers = pausing(id);
    if (measurements_) {
      measurements_->of(*session_).begin_program(*session_, id);
      observers.add(measurements_->of(*session_).observer());
    }
    trainer().observer = observers.all();
    const auto result = work();
    trainer().observer = {};
    if (measurements_) measurements_->of(*session_).end_program();
    return result;
  }

  void show_plan() {
    if (!ranks_.is_first()) return;
    for (const Dataset* data : {training_data_.get(), evaluation_data_.get()}) {
      if (data == nullptr) continue;
      for (const std::string& warning : data->warnings()) warn(warning);
    }
    for (const std::string& warning : session_->warnings()) warn(warning);
    if (options_.quiet) return;
    warn_of_spent_cosine();
    std::cerr << summary_ << "\ntraining " << recipe_.name << ": ";
    if (first_step_ < last_step_) {
      std::cerr << "steps " << first_step_ + 1 << " to " << last_step_;
    } else {
      std::cerr << "nothing left to do, " << first_step_ << " of " << last_step_ << " steps are done";
    }
    const uint32_t threads = session_->workers().count;
    std::cerr << ", " << training_data_->contents() << ", ";
    if (first_step_ < last_step_)
      std::cerr << passes_text(static_cast<double>(last_step_) * static_cast<double>(samples_per_step()) /
                               static_cast<double>(training_data_->size()))
                << ", ";
    if (recipe_.data.held_out > 0 && evaluation_data_ != nullptr)
      std::cerr << evaluation_data_->size() << " more held out for evaluation, ";
    std::cerr << threads << (threads == 1 ? " thread" : " threads") << ", kernels "
              << trainer().backend->kernel_set << ", arena " << bytes_text(session_->plan().arena_bytes) << "\n";
    const CompiledPlan& compiled = session_->compiled();
    std::cerr << (compiled.is_filed() ? std::string("plan of ") + compiled.file + ", proved by this program"
                                      : "plan compiled in, proved by the compiler")
              << "\n";
    std::cerr << "board: " << text_of(board_) << "\n";
    if (trace_) std::cerr << trace_->summary() << "\n";
    for (const std::string& line : session_->origin_of_weights()) std::cerr << line << "\n";
    if (const std::string order = class_order(recipe_, *training_data_); !order.empty())
      std::cerr << "classes: " << order << "\n";
  }

  // Warns if training continues after the end of its cosine: the learning rate is 0 there, so that
  // weights do not change.
  void warn_of_spent_cosine() const {
    const LrSchedule& rate = recipe_.lr_schedule;
    const uint64_t end = plans_->cosine_steps();
    if (end == 0 || last_step_ <= end || first_step_ >= last_step_) return;
    std::cerr << "warning: " << recipe_.name << ": lr_schedule." << (rate.epochs ? "epochs" : "steps")
              << ": the cosine ends at step " << end << "; steps " << std::max(first_step_, end) + 1 << " to "
              << last_step_ << " train with a rate of 0 and change no weight; set \"steps\": " << last_step_
              << " in the recipe" << (rate.epochs ? " in place of \"epochs\"" : "") << ", or in its lr_schedule\n";
  }

  // Shows results of the initial weights.
  void show_beginning() {
    if (recipe_.evaluate_first) evaluate_now();
    show_answers();
  }

  void show_answers() {
    if (recipe_.prompts.empty() || (options_.quiet && !runs_together())) return;
    if (!can_answer(recipe_, session_->plan())) {
      if (!options_.quiet)
        std::cerr
            << "warning: " << recipe_.name
            << ": prompts: cannot be answered: the model has no tokenizer, or its plan no program that generates\n";
      return;
    }
    const Doing doing(Activity::kAnswering);
    const Answerer answerer(recipe_);
    const GenerationOptions options = {.tokens = static_cast<uint32_t>(recipe_.answer_tokens),
                                       .stop = {},
                                       .never = {},
                                       .stops = [this] { return is_asked_to_stop(); }};
    for (const std::string& prompt : recipe_.prompts) {
      const std::string answer =
          watch(ProgramId::kGenerate, [&] { return answerer.answer(trainer(), prompt, options); });
      if (is_asked_to_stop()) return;
      if (!options_.quiet) std::cerr << "prompt: " << prompt << "\nanswer: " << answer << "\n";
    }
  }

  void train() {
    const uint32_t sequence = recipe_.sequence > 0 ? static_cast<uint32_t>(recipe_.sequence) : 1;
    Progress progress("", first_step_, last_step_, samples_per_step() * sequence, counted_in(recipe_), options_.quiet,
                      now() - pause_->paused_seconds());
    DataFeed feed(*training_data_);
    progress_ = &progress;
    saved_at_ = began_ = now();
    waited_before_ = ranks_.waited_seconds();
    Doing doing(Activity::kTraining);
    while (trainer().step < last_step_ && !stops() && !stops_early()) {
      try {
        pause_->wait_while_asked();
        change_plan_if_asked(progress);
        doing.begin_turn(step_seconds_);
        run_step(feed, progress);
      } catch (const UserError& error) {
        progress.finish();
        save_before_the_end(with_trace(error));
      }
    }
    progress.finish();
    progress_ = nullptr;
    write_trace();
  }

  void say_pause(const std::string& words) {
    if (options_.quiet) return;
    if (progress_ != nullptr) progress_->finish();
    std::cerr << "pause: " << words << "\n";
  }

  // Writes the trace. If that fails, returns `error` with the reason added, so that the weights can
  // still be saved.
  UserError with_trace(const UserError& error) {
    try {
      write_trace();
    } catch (const UserError& second) {
      return UserError(std::string(error.what()) + "; " + second.what(), error.status);
    }
    return error;
  }

  // Runs a step. Adds the observers for pause, progress, trace and manifest that are needed.
  Status watched_step(DataFeed& feed, StepReport& report) {
    const bool traced = trace_ && trace_->wants(trainer().step + 1);
    RowObservers observers = pausing(ProgramId::kMicroFirst);
    if (trainer().recordings[static_cast<uint32_t>(ProgramId::kMicroFirst)] == nullptr) observers.add(row_progress());
    rows_begun_ = 0;
    step_began_ = now() - pause_->paused_seconds();
    if (traced) observers.add(trace_->observer());
    if (measurements_) {
      measurements_->of(*session_).begin_step(*session_);
      observers.add(measurements_->of(*session_).observer());
    }
    if (traced) trace_->begin_step(trainer());
    trainer().observer = observers.all();
    const Status status = train_step(trainer(), feed.source(), report);
    trainer().observer = {};
    if (traced) trace_->end_step(status.ok());
    return status;
  }

  // Writes the trace if it has not been written yet: after its last step, or when the run ends
  // earlier.
  void write_trace() {
    if (!trace_ || trace_->is_written()) return;
    trace_->write();
    if (trace_->steps_done() == 0)
      std::cerr << "warning: " << options_.trace
                << ": --trace: not written: the run ended before the first step that it asks for\n";
  }

  // Reports a change in the state of the board: heat, or another power mode, changes the speed.
  void say_what_the_board_does(uint64_t step, Progress& progress) {
    if (options_.quiet || now() < board_looked_ + kBoardSeconds) return;
    board_looked_ = now();
    const BoardState state = read_board_state();
    const std::string change = change_of(board_, state);
    board_ = state;
    if (change.empty()) return;
    progress.finish();
    std::cerr << "step " << step << ": the board: " << change << "\n";
  }

  ControlFile* control() { return control_ ? &*control_ : nullptr; }
  bool has_plans() const { return session_->compiled().plans.count > 1; }

  // Changes the plan if that is requested. If memory cannot be acquired or released, training
  // continues with the same plan.
  void change_plan_if_asked(Progress& progress) {
    const uint32_t now_in = session_->plan_number();
    const std::optional<PlanRequest> request = requests_->take(now_in, now());
    if (!request) return;
    progress.finish();
    const std::string stays = "; it goes on in " + sizes_.name(now_in);
    if (request->is_warning) return warn_of_plan(request->words + stays);
    if (request->plan == now_in) return say_plan(request->words + stays);
    note_memory_of_plan();
    const uint64_t before = session_->plan().arena_bytes;
    const Status changed = session_->change_plan(request->plan);
    if (!changed.ok()) {
      requests_->refused(now_in, now());
      return warn_of_plan(request->words + ": " + message_of(changed) + stays);
    }
    end_trace_of_plan();
    first_step_of_plan_ = trainer().step;
    const uint64_t bytes = session_->plan().arena_bytes;
    say_plan(request->words + ", which goes on after step " + std::to_string(trainer().step) + ": " +
             bytes_text(bytes) + ", " +
             (bytes < before ? bytes_text(before - bytes) + " given back" : bytes_text(bytes - before) + " more"));
  }

  void warn_of_plan(const std::string& words) const { warn("budgets: " + words); }
  void say_plan(const std::string& words) const {
    if (!options_.quiet) std::cerr << "budgets: " << words << "\n";
  }

  // Ends the trace before a change of plan, because it covers the rows of one plan. If no step was
  // traced yet, it is restarted with the new plan.
  void end_trace_of_plan() {
    if (!trace_ || trace_->is_written()) return;
    if (trace_->steps_done() > 0) return write_trace();
    const Output to = trace_->output();
    trace_.emplace(to, plan_at(session_->compiled(), session_->plan_number()), traced_steps());
  }

  void run_step(DataFeed& feed, Progress& progress) {
    const double start = now(), paused_before = pause_->paused_seconds();
    StepReport report;
    const Status status = watched_step(feed, report);
    // After these errors the weights must not be saved. With gradient release, some weights may
    // already be updated if a disk fails, or if a gradient is not finite. The memory of a failed
    // device is undefined and cannot be read.
    weights_are_whole_ =
        status.code != Code::kBackend && status.code != Code::kStopped &&
        (status.ok() || feed.has_thrown() || status.code == Code::kIndexOutOfRange || !recipe_.gradient_release);
    feed.rethrow();
    session_->require(status);
    const double end = now(), seconds = end - start - (pause_->paused_seconds() - paused_before);
    const uint64_t step = trainer().step;
    step_seconds_ = seconds;
    if (measurements_) measurements_->of(*session_).end_step(seconds);
    if (trace_ && !trace_->wants(step + 1) && trace_->wants(step)) write_trace();
    StepLine line = {step,
                     report.loss,
                     report.gradient_norm,
                     report.learning_rate,
                     seconds,
                     session_->plan().arena_bytes,
                     session_->measured()};
    line.answers = answers_of(report.answers);
    if (has_plans()) line.budget_bytes = sizes_.budget_bytes(session_->plan_number());
    log_.write(line);
    events_.write(line);
    char words[40];
    if (recipe_.loss) {
      std::snprintf(words, sizeof words, "loss %.4f, margin %.3f", report.loss, report.answers.margin());
    } else {
      std::snprintf(words, sizeof words, "loss %.4f", report.loss);
    }
    progress.show(step, words, end - pause_->paused_seconds());
    say_what_the_board_does(step, progress);
    if (evaluates_after(step)) {
      progress.finish();
      evaluate_now();
    }
    if (all_take_part(is_save_due())) save();
  }

  // True if this rank takes part in a save, which rank 0 writes. If moments are distributed over
  // ranks, all ranks must send theirs.
  bool all_take_part(bool saves) const {
    const Plan& plan = session_->plan();
    const bool keep = std::any_of(plan.state.begin(), plan.state.end(),
                                  [](const StateTensor& state) { return state.owner != kEveryRank; });
    return keep ? ranks_.any(saves) : saves;
  }

  bool is_save_due() {
    return (save_every_.steps != 0 && trainer().step % save_every_.steps == 0) ||
           (save_every_.seconds != 0 && now() >= saved_at_ + save_every_.seconds);
  }

  [[noreturn]] void save_before_the_end(const UserError& error) {
    if (stops_at_row()) throw error;  // the user wants the program to end at once
    const uint64_t step = trainer().step;
    if (!all_take_part(snapshots_ && weights_are_whole_ && step != saved_step_)) throw error;
    std::string outcome = "saved to " + options_.save + " after step " + std::to_string(step);
    try {
      save();
    } catch (const UserError& second) {
      outcome = std::string(second.what()) + "; " + save_elsewhere();
    }
    throw UserError(std::string(error.what()) + "; " + outcome, error.status);
  }

  // Saves the snapshot to a new folder next to the adapter, else in the working folder. Returns a
  // message that names the folder, or that says that nothing could be saved.
  std::string save_elsewhere() {
    const bool is_shared = std::any_of(session_->plan().state.begin(), session_->plan().state.end(),
                                       [](const StateTensor& state) { return state.owner != kEveryRank; });
    std::vector<std::filesystem::path> places = {std::filesystem::current_path()};
    if (adapter_) places.insert(places.begin(), std::filesystem::path(adapter_->path()).parent_path());
    const std::string step = std::to_string(trainer().step);
    for (const std::filesystem::path& place : places) {
      if (is_shared) break;  // other ranks have sent their moments, and do not send them again
      try {
        SnapshotDirectory folder((place / (recipe_.name + ".rescued-" + step)).string(), snapshot_folder());
        save_snapshot(trainer(), recipe_, facts(), folder);
        saved_step_ = trainer().step;
        return "the weights after step " + step + " are in " + folder.path();
      } catch (const UserError&) {  // try the next folder
      }
    }
    return "and nothing could be saved elsewhere";
  }

  // Saves the last snapshot and the adapter. Returns the problem if one of them could not be
  // written to its folder; "" if there was none.
  std::string save_all(bool writes_adapter) {
    std::string problem;
    const auto attempt = [&](const auto& work, const auto& otherwise) {
      try {
        work();
      } catch (const UserError& error) {
        problem += (problem.empty() ? "" : "; ") + std::string(error.what()) + "; " + otherwise();
      }
    };
    if (all_take_part(snapshots_.has_value())) attempt([&] { save(); }, [&] { return save_elsewhere(); });
    if (!writes_adapter) return problem;
    attempt([&] { save_adapter(trainer(), recipe_, *adapter_); },
            [&] {
              return saved_step_ == trainer().step
                         ? std::string("a snapshot has the adapter's weights: `reprise export --adapter` writes it")
                         : save_elsewhere();
            });
    return problem;
  }

  // Ends the run. The result is saved before it is evaluated.
  int finish() {
    const bool stopped = stopped_ && trainer().step < last_step_,
               ends_early = trainer().step < last_step_ && stops_early();
    const bool writes_adapter = adapter_ && trainer().step > first_step_;
    if (const std::string problem = save_all(writes_adapter); !problem.empty()) throw UserError(problem);
    if (!stopped && !ends_early) evaluate_now();  // an early end follows directly after an evaluation
    const std::vector<RankMemory> memory = ranks_.memory({session_->plan().arena_bytes, session_->measured()});
    if (!options_.quiet) {
      if (writes_adapter) show_adapter();
      // Without a step, the measurement would show only the memory that the evaluation touched.
      if (trainer().step > first_step_) show_memory(memory);
      if (stopped)
        std::cerr << "stopped by a signal after step " << trainer().step
                  << (snapshots_ ? "; saved to " + options_.save : "; nothing was saved (--save DIR would)") << "\n";
      if (ends_early) show_early_end();
    }
    if (!stopped && !is_asked_to_stop()) show_answers(), show_sample();
    if (measurements_) measurements_->write();
    if (!options_.quiet && trainer().step > first_step_) show_end(stopped, writes_adapter);
    return stop_signal() != 0 && !snapshots_ ? 128 + stop_signal() : 0;
  }

  void show_adapter() const {
    std::cerr << "adapter: " << adapter_->path() << " (PEFT's form)\n";
    for (const std::string& line : adapter_lines(recipe_, adapter_->path())) std::cerr << line << "\n";
  }

  // Prints the last lines: the work that was done, where it is saved, and the command to use it.
  void show_end(bool stopped, bool writes_adapter) {
    const uint64_t steps = trainer().step - first_step_;
    std::cerr << "trained " << steps << (steps == 1 ? " step" : " steps") << " in " << duration_text(now() - began_);
    if (snapshots_ && !stopped) {
      std::cerr << "; saved to " << options_.save;
    } else if (!stopped && !writes_adapter) {
      std::cerr << "; nothing was saved (--save DIR would)";
    }
    const bool goes_on = stopped && !ranks_.are_several();
    const std::string next = goes_on ? continuing_command(options_)
                             : stopped
                                 ? ""
                                 : next_command(options_, recipe_, session_->plan(),
                                                writes_adapter ? adapter_->path() : "", evaluation_data_ != nullptr);
    std::cerr << (next.empty() ? "" : "\nnext: " + next) << "\n";
  }

  void show_early_end() const {
    const LossHistory& losses = stopping_->history();
    char best[64] = "was never finite";
    if (losses.best_loss)
      std::snprintf(best, sizeof best, "has not fallen below %.4f, of step %llu,", *losses.best_loss,
                    static_cast<unsigned long long>(losses.best_step));
    std::cerr << "stopped early after step " << losses.step << ": the test loss " << best << " for "
              << losses.without_gain << (losses.without_gain == 1 ? " evaluation" : " evaluations")
              << " (early_stopping.patience)"
              << (snapshots_ ? "; the best is kept in " + options_.save + ".best"
                             : "; --save DIR would have kept the best")
              << "\n";
  }

  void note_memory_of_plan() {
    if (trainer().step > first_step_of_plan_)
      measured_bytes_[session_->plan_number()] = {session_->measured(), session_->measured_in_host()};
  }

  static std::string compared(uint64_t planned, uint64_t measured) {
    return "planned " + std::to_string(planned) + " bytes, measured " + std::to_string(measured) + " bytes (" +
           (measured == planned ? "equal" : "NOT EQUAL") + ")";
  }

  // Returns the memory of each plan that has run steps, one line for each plan.
  std::string memory_of_plans() const {
    std::string text;
    for (const auto& [number, measured] : measured_bytes_) {
      const Plan& plan = plan_at(session_->compiled(), number).plan;
      text += (text.empty() ? "memory: " : "\nmemory: ") + (has_plans() ? sizes_.name(number) + ", " : "") +
              compared(plan.arena_bytes, measured.first);
      if (spills_to(plan, SpillLevel::kHost))
        text += "; in memory of the host " + compared(plan.spill_bytes, measured.second);
    }
    return text;
  }

  std::string words_of_ranks() const {
    char text[160];
    std::snprintf(text, sizeof text,
                  "ranks: %u; each sends %s a step to every other; rank 0 waited for others in %.2f s of %.2f s",
                  ranks_.peers().count, bytes_text(sent_bytes(session_->plan())).c_str(),
                  ranks_.waited_seconds() - waited_before_, now() - began_);
    return text;
  }

  void show_memory(const std::vector<RankMemory>& of_ranks) {
    note_memory_of_plan();
    struct rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    if (ranks_.are_several()) std::cerr << words_of_ranks() << "\n";
    std::cerr << memory_of_plans() << "; the whole process, with code, stacks and data set, took at most "
              << bytes_text(static_cast<uint64_t>(usage.ru_maxrss) * 1024) << "\n";
    for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
      std::cerr << "memory of rank " << rank << ": "
                << compared(of_ranks[rank].planned_bytes, of_ranks[rank].measured_bytes) << "\n";
    }
    if (session_->port().describe_device == nullptr) return;
    char text[512];
    session_->port().describe_device(text, sizeof text);
    std::cerr << "device: " << text << "\n";
  }

  void evaluate_now() {
    if (evaluation_data_ == nullptr) return;
    const Doing doing(Activity::kEvaluating);
    const EvaluationLimits limits = {.max_batches = recipe_.evaluate_batches,
                                     .quiet = options_.quiet,
                                     .stops = [this] { return is_asked_to_stop(); }};
    const EvaluationResult result = watch(ProgramId::kEvaluate, [&] {
      return evaluate_set(trainer(), session_->port(), recipe_, *evaluation_data_, limits);
    });
    if (result.stopped) {
      if (!options_.quiet) std::cerr << "the evaluation after step " << trainer().step << " was stopped by a signal\n";
      return;
    }
    session_->require(result.status);
    const EvaluationLine line = {trainer().step, result.report.loss, result.accuracy(),
                                 answers_of(result.report.answers), result.metrics};
    log_.write(line);
    events_.write(line);
    if (stopping_) stopping_->take(line.step, line.eval_loss);
    // The score of a classifier is its accuracy. For other models, and with early stopping, it is
    // the negative loss.
    const bool is_classifier =
        recipe_.sequence == 0 && describe_model(recipe_.model).target == ModelDescription::Target::kClass;
    const double score = !is_classifier || stopping_ ? -result.report.loss : result.accuracy();
    if (all_take_part(snapshots_ && snapshots_->is_best(score))) {
      snapshots_ ? snapshots_->save_best(trainer(), recipe_, facts(), score) : give_moments(trainer());
    }
    if (options_.quiet) return;
    char loss[64], accuracy[64] = "";
    std::snprintf(loss, sizeof loss, "%.4f", result.report.loss);
    if (result.has_accuracy)
      std::snprintf(accuracy, sizeof accuracy, ", test accuracy %.2f%%", 100 * result.accuracy());
    std::cerr << "step " << trainer().step << ": test loss " << loss << accuracy << metrics_text(result.metrics)
              << "\n";
  }

  SnapshotFacts facts() const {
    return {.data = training_data_->fingerprint(),
            .class_names = training_data_->class_names(),
            .score = {},
            .base = session_->base(),
            .texts = texts_,
            .losses = stopping_ ? std::optional(stopping_->history()) : std::nullopt};
  }

  std::optional<JudgedAnswers> answers_of(const JudgedAnswers& answers) const {
    return recipe_.loss ? std::optional(answers) : std::nullopt;
  }

  void save() {
    if (!snapshots_) return give_moments(trainer());
    const Doing doing(Activity::kSaving);
    log_.flush();  // after a power failure, the log then has all steps of the snapshot
    snapshots_->save(trainer(), recipe_, facts());
    saved_step_ = trainer().step;
    saved_at_ = now();
  }

  void show_sample() {
    if ((options_.quiet && !runs_together()) || !recipe_.prompts.empty() ||
        describe_model(recipe_.model).vocabulary != 256 || recipe_.data.kind != DataSource::Kind::kText)
      return;
    std::string text;
    session_->require(watch(ProgramId::kGenerate, [&] { return sample_bytes(trainer(), "\n", 300, 0.8, text); }));
    if (options_.quiet) return;
    const auto is_shown = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
    std::replace_if(text.begin(), text.end(), [&](char c) { return !is_shown(c); }, '?');
    std::cerr << "sample:\n";
    // Prints the text in short pieces, because stderr shortens long words and a model may write
    // long ones.
    constexpr size_t kPiece = 100;
    for (size_t at = 0; at < text.size(); at += kPiece) std::cerr << text.substr(at, kPiece);
    std::cerr << "\n";
  }

  const char* const summary_;
  const ProgramOptions options_;
  const Ranks& ranks_;
  bool stopped_ = false;
  std::optional<SnapshotStore> snapshots_;    // exists for the whole run, so that no other process saves to the folder
  std::optional<SnapshotDirectory> adapter_;  // folder of the adapter, which is written at the end of the run
  Recipe recipe_;
  std::unique_ptr<Dataset> training_data_, evaluation_data_;
  std::map<std::string, std::string> texts_;  // checksums of the model's texts, by name
  std::optional<EpochPlans> plans_;           // must outlive session_, which refers to it
  std::optional<RunMeasurements> measurements_;
  std::optional<Session> session_;
  std::optional<RowTrace> trace_;
  StepLog log_;
  EventFile events_;
  std::optional<EarlyStop> stopping_;
  const PlanSizes sizes_;
  std::optional<ControlFile> control_;
  std::optional<PlanRequests> requests_;
  std::optional<Pause> pause_;
  Progress* progress_ = nullptr;  // null while no progress is shown
  // For each plan that has run steps, by its number: the bytes measured in the arena, and in memory
  // of the host.
  std::map<uint32_t, std::pair<uint64_t, uint64_t>> measured_bytes_;
  uint64_t first_step_of_plan_ = 0;  // number of steps before the plan became active
  static constexpr double kBoardSeconds = 10;
  BoardState board_ = read_board_state();
  double board_looked_ = 0;
  double step_began_ = 0;                    // port.seconds() minus pauses
  uint64_t rows_begun_ = 0;                  // number of rows begun in the current step
  double step_seconds_ = 0;                  // duration of the last step without pauses; 0 before the first step
  uint64_t first_step_ = 0, last_step_ = 0;  // number of steps before this run, and number of steps when it ends
  const SaveEvery save_every_;
  uint64_t saved_step_ = 0;
  double saved_at_ = 0;
  // Time when the steps began, and seconds that this rank had waited for other ranks until then.
  double began_ = 0, waited_before_ = 0;
  bool weights_are_whole_ = true;
};

}  // namespace

namespace {

// Returns the options of this rank. Only rank 0 prints, writes files and receives commands.
ProgramOptions options_of_rank(const ProgramOptions& options, const Ranks& ranks) {
  if (ranks.is_first()) return options;
  ProgramOptions silent = options;
  silent.quiet = true;
  silent.keep_best = false;
  for (std::string* file : {&silent.log, &silent.tensorboard, &silent.save, &silent.save_every, &silent.trace,
                            &silent.trace_steps, &silent.manifest, &silent.control})
    file->clear();
  return silent;
}

}  // namespace

int train(const CompiledPlan& compiled, const ProgramOptions& options) {
  const Ranks ranks(compiled.port, parse_recipe(compiled.recipe, compiled.plan.name, "/"));
  if (!ranks.is_first()) silence_stop_signals();
  return TrainingRun(compiled, options_of_rank(options, ranks), ranks).run();
}

}  // namespace reprise
