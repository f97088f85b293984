// The training program: set up, train, evaluate, log, save; from step to step no heap is touched.
// Errors are one line; what was saved last stays whole.
#include "tools/training/program.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>

#include "lib/check.h"
#include "lib/reprise.h"
#include "tools/command_line.h"
#include "tools/data/check_data.h"
#include "tools/data/dataset.h"
#include "tools/formats/error.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/formats/text.h"
#include "tools/training/progress.h"
#include "tools/training/sample.h"
#include "tools/training/snapshot.h"
#include "tools/training/step_log.h"
#include "tools/training/weights.h"

namespace reprise {

namespace {

volatile sig_atomic_t stop_signal = 0;
void request_stop(int signal) { stop_signal = signal; }

void set_up_signals() {
  struct sigaction action = {};
  action.sa_handler = request_stop;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A file that may grow no further, or a reader that went away, is an error of write() like any other.
  ::signal(SIGXFSZ, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
}

struct Options {
  uint64_t steps = 0, epochs = 0, save_every = 0;
  uint32_t threads = 0;
  std::string log, init, save, resume, disk;
  bool quiet = false, check_data = false;
};

[[noreturn]] void fail(const std::string& who, const Status& status) {
  std::string line = who + ": " + status.message;
  switch (status.code) {
    case Code::kOutOfMemory:
    case Code::kArenaTooSmall: line += " (" + bytes_text(status.detail) + ")"; break;
    case Code::kIndexOutOfRange: line += " (at position " + std::to_string(status.detail) + " of the micro-batch)"; break;
    case Code::kNonFinite:
      line += " at step " + std::to_string(status.detail) + "; no weight was changed by it: lower optimizer.lr, add warmup_steps or clip_norm";
      break;
    case Code::kInputOutput: line += std::string(": ") + std::strerror(static_cast<int>(status.detail)); break;
    case Code::kOk: break;
    default:
      if (status.detail != 0) line += " (" + std::to_string(status.detail) + ")";
  }
  throw UserError(line);
}

// Micro-batches for lib, which knows no exceptions: one that a data set throws waits here until the step has returned.
class DataFeed {
 public:
  explicit DataFeed(Dataset& data) : data_(data) {}
  BatchSource source() {
    return {this, [](void* self, uint64_t step, uint32_t micro, BatchSink& sink) { return static_cast<DataFeed*>(self)->fill(step, micro, sink); }};
  }
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  Status fill(uint64_t step, uint32_t micro, BatchSink& sink) {
    try {
      data_.fill(step, micro, sink);
      return ok_status();
    } catch (...) {
      thrown_ = std::current_exception();
      return {Code::kInputOutput, "the data cannot be read", 0};
    }
  }
  Dataset& data_;
  std::exception_ptr thrown_;
};

// Everything that outlives a step.
class Training {
 public:
  Training(const CompiledPlan& compiled, const Port& port, const Options& options)
      : plan_(compiled.plan), port_(port), summary_(compiled.summary), options_(options), recipe_(parse_recipe(compiled.recipe, plan_.name, "/")) {}
  ~Training() {
    port_.stop_workers(&workers_);
    if (disk_.wait != nullptr) port_.close_disk(&disk_);
    port_.release_arena(&arena_);
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  int run() {
    set_up();
    show_plan();
    return train();
  }

 private:
  void set_up() {
    if (!options_.save.empty()) check_snapshot_target(options_.save, snapshot_files());
    if (recipe_.data.kind == DataSource::Kind::kNone) throw UserError(recipe_.name + ": data: the recipe names none; training needs some");
    training_data_ = open_dataset(recipe_, Split::kTraining);
    evaluation_data_ = open_dataset(recipe_, Split::kEvaluation);
    last_step_ = options_.steps != 0 ? options_.steps : options_.epochs != 0 ? options_.epochs * steps_per_epoch() : recipe_.steps;
    if (last_step_ == 0) throw UserError(recipe_.name + ": steps: say how long to train: --steps N, --epochs N, or \"steps\" in the recipe", UserError::kUsage);
    require(port_.set_up_kernels(&machine_));
    backend_ = cpu_backend(machine_);
    require(port_.start_workers(options_.threads, &workers_));
    constexpr uint64_t kGuardBytes = 64 << 10;  // canary behind the plan's last byte: a row that wrote there would be seen
    require(port_.acquire_arena(plan_.arena_bytes + kGuardBytes, &arena_));
    if (plan_.disk_bytes > 0) open_disk();
    std::vector<CheckMark> marks(check_marks(plan_));
    const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
    require(bind(plan_, backend_, {.arena = arena_, .workers = &workers_, .disk = disk_, .workspace = workspace}, trainer_));
    if (!initial_weights().empty()) read_state(trainer_, SafetensorsFile(initial_weights()), StatePart::kModel);
    if (!options_.resume.empty()) {
      const std::string warning = resume_snapshot(trainer_, recipe_, options_.resume);
      if (!warning.empty()) std::cerr << "warning: " << warning << "\n";
    }
    first_step_ = trainer_.step;
    if (!options_.log.empty()) log_.open(options_.log, trainer_.step);
  }

  // --disk, else a file beside the program: a folder for temporary files may lie in memory.
  void open_disk() {
    std::error_code ignored;
    const std::string folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
    const std::string path = !options_.disk.empty() ? options_.disk : folder + "/" + recipe_.name + ".spill-" + std::to_string(::getpid());
    if (port_.open_disk == nullptr) throw UserError(recipe_.name + ": the plan keeps values on disk, but a board of port \"" + port_.name + "\" has none");
    const Status status = port_.open_disk(path.c_str(), plan_.disk_bytes, &disk_);
    if (!status.ok()) fail(path + ": " + bytes_text(plan_.disk_bytes) + " for --disk", status);
  }

  // --init, else the weights beside the config.json that the recipe names; "": drawn from the seed, or resumed.
  std::string initial_weights() const {
    if (!options_.init.empty() || !options_.resume.empty()) return options_.init;
    return published_weights(recipe_);
  }

  uint64_t samples_per_step() const { return static_cast<uint64_t>(recipe_.batch) * static_cast<uint64_t>(recipe_.accumulate); }
  uint64_t steps_per_epoch() const { return std::max<uint64_t>(1, training_data_->size() / samples_per_step()); }
  void require(const Status& status) const {
    if (!status.ok()) fail(recipe_.name, status);
  }

  void show_plan() const {
    if (options_.quiet) return;
    std::cerr << summary_ << "\ntraining " << recipe_.name << ": ";
    if (trainer_.step < last_step_) {
      std::cerr << "steps " << trainer_.step + 1 << " to " << last_step_;
    } else {
      std::cerr << "nothing left to do, " << trainer_.step << " of " << last_step_ << " steps are done";
    }
    std::cerr << ", " << training_data_->size() << " samples, " << workers_.count << (workers_.count == 1 ? " thread" : " threads") << ", kernels "
              << trainer_.backend->kernel_set << ", arena " << bytes_text(plan_.arena_bytes) << "\n";
    if (!initial_weights().empty()) std::cerr << "weights from " << initial_weights() << "\n";
    if (recipe_.backend == Recipe::BackendChoice::kAuto) std::cerr << "backend auto: this program was built for the CPU alone, it trains there\n";
  }

  int train() {
    const uint32_t sequence = recipe_.sequence > 0 ? static_cast<uint32_t>(recipe_.sequence) : 1;
    Progress progress(trainer_.step, last_step_, samples_per_step() * sequence, recipe_.sequence > 0 ? "tokens" : "images", options_.quiet,
                      port_.seconds());
    DataFeed feed(*training_data_);
    const BatchSource source = feed.source();
    while (trainer_.step < last_step_ && stop_signal == 0) {
      const double start = port_.seconds();
      StepReport report;
      const Status status = train_step(trainer_, source, report);
      if (!status.ok()) progress.finish();
      feed.rethrow();
      require(status);
      const double end = port_.seconds();
      log_.write(StepLine{trainer_.step, report.loss, report.gradient_norm, report.learning_rate, end - start, plan_.arena_bytes, measure()});
      progress.show(trainer_.step, report.loss, end);
      if (recipe_.evaluate_every != 0 && trainer_.step % recipe_.evaluate_every == 0 && trainer_.step != last_step_) evaluate_now(progress);
      if (options_.save_every != 0 && trainer_.step % options_.save_every == 0 && !options_.save.empty()) save();
    }
    progress.finish();
    return finish(progress);
  }

  int finish(Progress& progress) {
    const bool stopped = stop_signal != 0 && trainer_.step < last_step_;
    if (!stopped) evaluate_now(progress);
    if (!options_.save.empty()) save();
    if (!options_.quiet) {
      if (trainer_.step > first_step_) show_memory();  // without a step, only what evaluation touched would be measured
      if (stopped) std::cerr << "stopped by a signal after step " << trainer_.step << (options_.save.empty() ? "; nothing was saved (--save DIR would)" : "; saved to " + options_.save) << "\n";
      if (!stopped) show_sample();
    }
    return stopped && options_.save.empty() ? 128 + static_cast<int>(stop_signal) : 0;
  }

  uint64_t measure() const {
    uint64_t bytes = 0;
    require(measured_bytes(trainer_, bytes));
    return bytes;
  }

  void show_memory() const {
    const uint64_t measured = measure();
    struct rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    std::cerr << "memory: planned " << plan_.arena_bytes << " bytes, measured " << measured << " bytes ("
              << (measured == plan_.arena_bytes ? "equal" : "NOT EQUAL") << "); the whole process, with code, stacks and data set, took at most "
              << bytes_text(static_cast<uint64_t>(usage.ru_maxrss) * 1024) << "\n";
  }

  void evaluate_now(Progress& progress) {
    if (evaluation_data_ == nullptr) return;
    EvaluationReport report;
    DataFeed feed(*evaluation_data_);
    const Status status = evaluate(trainer_, feed.source(), evaluation_data_->micro_batches(), report);
    if (!status.ok()) progress.finish();
    feed.rethrow();
    require(status);
    const double accuracy = report.labelled == 0 ? 0 : static_cast<double>(report.correct) / static_cast<double>(report.labelled);
    log_.write(EvaluationLine{trainer_.step, report.loss, accuracy});
    if (options_.quiet) return;
    progress.finish();
    std::fprintf(stderr, "step %llu: test loss %.4f, test accuracy %.2f%%\n", static_cast<unsigned long long>(trainer_.step), report.loss, 100 * accuracy);
  }

  void save() { save_snapshot(trainer_, recipe_, options_.save); }

  void show_sample() {
    if (describe_model(recipe_.model).vocabulary != 256 || recipe_.data.kind != DataSource::Kind::kText) return;
    std::string text;
    require(sample_bytes(trainer_, "\n", 300, 0.8, text));
    const auto is_shown = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
    std::replace_if(text.begin(), text.end(), [&](char c) { return !is_shown(c); }, '?');
    std::cerr << "sample:\n" << text << "\n";
  }

  const Plan& plan_;
  const Port& port_;
  const char* const summary_;
  const Options options_;
  const Recipe recipe_;
  std::unique_ptr<Dataset> training_data_, evaluation_data_;
  Workers workers_;
  Arena arena_;
  Disk disk_;
  CpuMachine machine_;
  Backend backend_ = {};
  Trainer trainer_;
  StepLog log_;
  uint64_t first_step_ = 0, last_step_ = 0;  // steps done when this run began, and when it ends
};

void add_options(CLI::App& app, Options& options, const Plan& plan, uint32_t most_workers) {
  CLI::Option* steps = app.add_option("--steps", options.steps, "train until this step, resumed steps included; default: the recipe's")->check(integer_from(1));
  app.add_option("--epochs", options.epochs, "train until so many passes over the data")->check(integer_from(1, 1000000000))->excludes(steps);
  app.add_option("--log", options.log, "write a JSON line for each step and evaluation to this file");
  CLI::Option* init = app.add_option("--init", options.init, "start from these weights (safetensors)");
  app.add_option("--save", options.save, "write snapshots to this folder: at the end, on SIGINT and SIGTERM, and every --save-every steps");
  app.add_option("--save-every", options.save_every, "steps between snapshots")->check(integer_from(1));
  app.add_option("--resume", options.resume, "go on from this snapshot")->excludes(init);
  if (plan.disk_bytes > 0) {
    app.add_option("--disk", options.disk, "new file for the " + bytes_text(plan.disk_bytes) +
                                               " that the plan keeps on disk, without a name as soon as it is made; default: beside the program");
  }
  app.add_option("--threads", options.threads, "workers; default: one for each processor")->check(integer_from(1, most_workers));
  app.add_flag("--check-data", options.check_data, "decode every picture, name the broken ones, and train nothing");
  app.add_flag("--quiet", options.quiet, "print errors and warnings only");
}

}  // namespace

int run_training(const CompiledPlan& compiled, const Port& port, int argc, char** argv) {
  const Plan& plan = compiled.plan;
  Options options;
  CLI::App app(std::string("Trains ") + plan.name + " inside the " + bytes_text(plan.arena_bytes) + " that its plan proves.", "train");
  add_options(app, options, plan, port.most_workers);
  try {
    app.parse(argc, argv);
    if (options.check_data) return check_data(parse_recipe(compiled.recipe, plan.name, "/"), options.threads);
    if (options.save_every != 0 && options.save.empty()) throw UserError("--save-every: needs --save DIR", UserError::kUsage);
    stop_signal = 0;
    set_up_signals();
    return Training(compiled, port, options).run();
  } catch (const CLI::ParseError& error) {
    return exit_status_of(app, error, "train");
  } catch (const UserError& error) {
    std::cerr << error.what() << "\n";
    return error.status;
  } catch (const std::exception& error) {
    std::cerr << plan.name << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace reprise
