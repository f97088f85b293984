// See measure.h. Uses the trainer's row observer. The clock is read twice for each row, which takes
// about 50 ns; rows take many microseconds.
#include "tools/run/profiling/measure.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "lib/check.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/profiling/doctor.h"

namespace reprise {

namespace {

constexpr int kMinSteps = 2, kMaxSteps = 25;  // minimum and maximum steps of a plan in each round
constexpr uint64_t kMoves = 11;               // how often the move of one gradient, and each of its sums, is measured

void require(const std::string& who, const Status& status) {
  if (status.ok()) return;
  const bool is_size = status.code == Code::kOutOfMemory || status.code == Code::kArenaTooSmall;
  throw UserError(who + ": " + status.message + (is_size ? " (" + bytes_text(status.detail) + ")" : ""));
}

// Records the seconds of every row in every step.
struct RowClock {
  const PlanRun* run = nullptr;
  // Seconds of a row, [row][run]. The runs of a program in one step are consecutive.
  std::vector<std::vector<double>> samples[kProgramCount];
  double start = 0, step_rows = 0;

  RowObserver observer() {
    return {this, [](void* self, ProgramId, uint32_t) { static_cast<RowClock*>(self)->begin(); },
            [](void* self, ProgramId id, uint32_t row) { static_cast<RowClock*>(self)->add(id, row); }};
  }
  void begin() { start = seconds_now(); }
  // Returns the time after all enqueued work is done. Work is thus counted for the row that
  // enqueued it.
  double seconds_now() const {
    run->finish();
    return run->port().seconds();
  }
  void add(ProgramId id, uint32_t row) {
    const double seconds = seconds_now() - start;
    samples[static_cast<size_t>(id)][row].push_back(seconds);
    step_rows += seconds;
  }
};

// The times of all plans of a recipe.
struct KernelTimes {
  struct Time {
    double seconds = 0;
    uint64_t runs = 0;
  };
  std::map<std::string, Time> kernels;
  Time beside;  // seconds of micro-batches outside of their rows
};

// Returns the half of the steps whose times are around the median. The means of the kernels over
// these steps add up to a typical step. Medians of single rows would not, if another process uses
// the processor from time to time.
std::vector<size_t> typical_steps(const std::vector<double>& seconds) {
  std::vector<size_t> order(seconds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds[a] < seconds[b]; });
  const auto cut = static_cast<std::ptrdiff_t>(order.size() / 4);
  return {order.begin() + cut, order.end() - cut};
}

void add_rows(const OwnedPlan& plan, const RowClock& clock, const std::vector<size_t>& steps, KernelTimes& times) {
  for (size_t p = 0; p < kProgramCount; ++p) {
    const OwnedProgram& program = plan.programs[p];
    for (size_t r = 0; r < program.rows.size(); ++r) {
      const std::vector<double>& samples = clock.samples[p][r];
      // Moves are measured separately for every gradient. Loads of streamed weights are not
      // measured here, and the evaluation does not run in a step.
      if (program.rows[r].op == Op::kMove ||
          kernel_info(program.rows[r].op, program.rows[r].pass).carrier == Carrier::kWeights || samples.empty())
        continue;
      KernelTimes::Time& kernel = times.kernels[row_key(plan, program, program.rows[r])];
      const size_t each = runs_in_step(plan, static_cast<ProgramId>(p));
      for (const size_t step : steps) {
        for (size_t i = 0; i < each; ++i) kernel.seconds += samples[step * each + i];
      }
      kernel.runs += steps.size() * each;
    }
  }
}

// The times of one plan, over all rounds.
struct MeasuredPlan {
  std::string what;
  OwnedPlan plan;
  RowClock clock;
  std::vector<double> seconds, beside;  // for each step: its seconds, and its seconds outside of rows

  void measure_round(PlanRun& run, double max_seconds) {
    (void)run.step();  // touches pages and caches before the measurement
    clock.run = &run;
    run.observe(clock.observer());
    double spent = 0;
    for (int s = 0; s < kMaxSteps && (s < kMinSteps || spent < max_seconds); ++s) {
      clock.step_rows = 0;
      seconds.push_back(run.step());
      spent += seconds.back();
      beside.push_back(std::max(0.0, seconds.back() - clock.step_rows));
    }
    run.observe({});
  }
  void add_to(KernelTimes& times) const {
    const std::vector<size_t> steps = typical_steps(seconds);
    add_rows(plan, clock, steps, times);
    for (const size_t step : steps) times.beside.seconds += beside[step];
    times.beside.runs += steps.size() * plan.accumulate;
  }
};

// Moves a tensor with the shape of `gradient` to the start of the arena, from `shift` bytes after
// the start.
Status move_down(const Trainer& trainer, const Tensor& gradient, uint64_t shift) {
  const Tensor* tensors[] = {&gradient, &gradient};
  void* pointers[] = {trainer.arena.base.for_kernels, (trainer.arena.base + shift).for_kernels};
  RowCall call;
  static_cast<ShapedCall&>(call) = {Op::kMove, Pass::kForward, tensors, 0b11, &trainer.plan->attributes, 0};
  call.pointers = pointers;
  call.accumulate = 0;
  return trainer.backend->kernels[kKernelIndex<MoveForward>][storage_index(gradient.dtype)](trainer.context, call);
}

// Measures the move of each boundary's gradient by half of its bytes. Other plans may move
// gradients that no measured plan moves.
void measure_moves(const SolvedModel& model, const PlanRun& run, KernelTimes& times) {
  std::set<std::string> done;
  const Trainer& trainer = run.trainer();
  for (const LinkBody& link : model.bodies.links) {
    if (link.d_input == kNoValue) continue;
    const std::string key = call_key(model.graph, {Op::kMove, Pass::kForward, 0, {link.d_input, link.d_input}});
    const Tensor& gradient = model.graph.tensor(link.d_input);
    const uint64_t bytes = gradient.used_bytes();
    const uint64_t shift = std::max<uint64_t>(kAlignment, align_up(bytes / 2));
    if (bytes + shift > trainer.arena.bytes || !done.insert(key).second) continue;
    std::vector<double> samples;
    for (uint64_t i = 0; i < kMoves; ++i) {
      const double start = run.port().seconds();
      require("move", move_down(trainer, gradient, shift));
      run.finish();
      samples.push_back(run.port().seconds() - start);
    }
    times.kernels[key] = {kMoves * median(std::move(samples)), kMoves};
  }
}

// Runs the copy kernel in a separate arena: to[...] = from[...], or += if `adds`.
Status copy_sum(const Trainer& trainer, const Tensor& sum, const Arena& arena, bool adds) {
  const Tensor* tensors[] = {&sum, &sum};
  void* pointers[] = {arena.base.for_kernels, (arena.base + sum.bytes).for_kernels};
  RowCall call;
  static_cast<ShapedCall&>(call) = {Op::kCopy, Pass::kForward, tensors, 0b11, &trainer.plan->attributes, 0};
  call.pointers = pointers;
  call.accumulate = adds ? 1 : 0;
  return trainer.backend->kernels[kKernelIndex<CopyForward>][storage_index(sum.dtype)](trainer.context, call);
}

// Measures the rows that add the gradients of several ranks, which a plan for one rank does not
// have. There are two cases for each gradient: the gradient of the first rank is copied, and the
// gradients of other ranks are added.
void measure_sums(const SolvedModel& model, const PlanRun& run, KernelTimes& times) {
  struct Held {
    const Port& port;
    Arena arena;
    ~Held() { port.release_arena(&arena); }
  } held = {run.port(), {}};
  uint64_t largest = kAlignment;
  for (const ValueId gradient : model.state.carried) largest = std::max(largest, model.graph.tensor(gradient).bytes);
  require("sums of ranks", run.port().acquire_arena(2 * largest, &held.arena));
  require("sums of ranks", run.trainer().backend->host.fill(run.trainer().context, held.arena.base, 0, 2 * largest));
  for (const ValueId gradient : model.state.carried) {
    for (const bool adds : {false, true}) {
      const std::string key =
          call_key(model.graph, {Op::kCopy, Pass::kForward, 0, {gradient, gradient}, uint16_t{adds}});
      if (times.kernels.count(key) > 0) continue;
      std::vector<double> samples;
      for (uint64_t i = 0; i < kMoves; ++i) {
        const double start = run.port().seconds();
        require("sums of ranks", copy_sum(run.trainer(), model.graph.tensor(gradient), held.arena, adds));
        run.finish();
        samples.push_back(run.port().seconds() - start);
      }
      times.kernels[key] = {kMoves * median(std::move(samples)), kMoves};
    }
  }
}

// The blocks with which a second level is measured. A block has the size of the largest boundary.
// `blocks` is the number that fits in the level, at most 512 MiB. `sources` is the number of
// different blocks in memory, at most 64 MiB.
struct MeasuredBlocks {
  explicit MeasuredBlocks(const SolvedModel& model) {
    constexpr uint64_t kMaxBytes = uint64_t{512} << 20, kMemoryBytes = uint64_t{64} << 20;  // larger than any cache
    for (const Link& link : model.chain.links) block = std::max(block, link.boundary_bytes);
    blocks = std::max<uint64_t>(1, std::min(std::max(model.recipe.schedule.spill_bytes(), model.offloaded_bytes),
                                            kMaxBytes) /
                                       block);
    sources = std::clamp<uint64_t>(kMemoryBytes / block, 1, blocks);
  }
  uint64_t bytes() const { return blocks * block; }
  uint64_t block = kAlignment, blocks = 1, sources = 1;
};

void require_host_memory(const Port& port, const std::string& who) {
  if (port.acquire_host == nullptr)
    throw UserError(who + ": the recipe wants memory of the host, but a board of port \"" + port.name +
                    "\" has none for it");
}

// Measures host memory as the second level, with the backend's copies. Returns the seconds per byte
// of writing and of reading. All blocks are copied to the host, then all are copied back.
DiskLevel measure_host(const Port& port, const Backend& backend, const SolvedModel& model) {
  const MeasuredBlocks size(model);
  struct Held {
    const Port& port;
    Arena arena;
    HostMemory memory;
    ~Held() {
      if (memory.base != nullptr) port.release_host(&memory);
      port.release_arena(&arena);
    }
  } held = {port, {}, {}};
  const std::string& who = model.recipe.name;
  require_host_memory(port, who);
  require(who, port.acquire_arena(size.sources * size.block, &held.arena));
  require(who, port.acquire_host(size.bytes(), &held.memory));
  KernelContext context;
  context.machine = backend.machine;
  context.queue = backend.queue;
  require(who, backend.host.fill(context, held.arena.base, 0x01010101, size.sources * size.block));
  const auto seconds_of_byte = [&](const auto& start) {
    for (uint64_t b = 0; b < size.blocks; ++b) require(who, start(b));  // touches the pages before the measurement
    require(who, backend.host.synchronise(context));
    const double begin = port.seconds();
    for (uint64_t b = 0; b < size.blocks; ++b) require(who, start(b));
    require(who, backend.host.synchronise(context));
    return (port.seconds() - begin) / static_cast<double>(size.bytes());
  };
  const auto memory = [&](uint64_t b) { return held.arena.base + b % size.sources * size.block; };
  const auto block = [&](uint64_t b) { return held.memory.base + b * size.block; };
  const double write =
      seconds_of_byte([&](uint64_t b) { return backend.host.start_out(context, block(b), memory(b), size.block, 0); });
  const double read =
      seconds_of_byte([&](uint64_t b) { return backend.host.start_in(context, memory(b), block(b), size.block, 0); });
  return {model.recipe.schedule.host_bytes, write, read};
}

// Measures a disk as the second level, with the port's functions that a training uses. Returns the
// seconds per byte of writing and of reading. All blocks are written, then all are read.
DiskLevel measure_disk(const Port& port, const Backend& backend, const SolvedModel& model, const char* path) {
  const MeasuredBlocks size(model);
  const uint64_t block = size.block, blocks = size.blocks, sources = size.sources, bytes = size.bytes();
  struct Held {
    const Port& port;
    Arena arena;
    Disk disk;
    ~Held() {
      if (disk.wait != nullptr) port.close_disk(&disk);
      port.release_arena(&arena);
    }
  } held = {port, {}, {}};
  require(model.recipe.name, port.acquire_arena(sources * block, &held.arena));
  if (port.open_disk == nullptr)
    throw UserError(model.recipe.name + ": the recipe wants a disk, but a board of port \"" + port.name +
                    "\" has none");
  require(std::string(path), port.open_disk(path, bytes, &held.disk));
  require(model.recipe.name, backend.host.fill({}, held.arena.base, 0x01010101, sources * block));
  require(model.recipe.name, backend.host.synchronise({}));
  const auto memory = [&](uint64_t b) { return (held.arena.base + b % sources * block).for_kernels; };
  const auto seconds_of_byte = [&](const auto& start) {
    const double begin = port.seconds();
    for (uint64_t b = 0; b < blocks; ++b) require(std::string(path), start(b));
    require(std::string(path), held.disk.wait(held.disk.state, Disk::kEverything));
    return (port.seconds() - begin) / static_cast<double>(bytes);
  };
  const double write =
      seconds_of_byte([&](uint64_t b) { return held.disk.start_write(held.disk.state, b * block, memory(b), block); });
  const double read =
      seconds_of_byte([&](uint64_t b) { return held.disk.start_read(held.disk.state, b * block, memory(b), block); });
  return {model.recipe.schedule.disk_bytes, write, read};
}

// A temporary file as large as the streamed weights of the measured plans; its content does not
// matter. Its first bytes are written, so that reading them reads the disk; the rest is a hole.
class StandIn {
 public:
  StandIn(const Port& port, const std::string& who, const std::string& path, uint64_t bytes)
      : port_(port), path_(path) {
    if (port.open_weights == nullptr)
      throw UserError(who + ": the recipe streams weights, but a board of port \"" + port.name +
                      "\" has no file for them");
    OutputFile file(path);
    const std::vector<unsigned char> block(kBlock, 1);
    for (uint64_t at = 0; at < written(bytes); at += kBlock)
      file.write(block.data(), std::min(kBlock, written(bytes) - at));
    file.finish();
    std::filesystem::resize_file(path, bytes);
    require(path, port.open_weights(path.c_str(), bytes, &disk_));
  }
  ~StandIn() {
    port_.close_disk(&disk_);
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  const Disk& disk() const { return disk_; }

  double seconds_of_byte() const {
    const uint64_t bytes = written(disk_.bytes);
    Arena arena;
    require(path_, port_.acquire_arena(kBlock, &arena));
    const double begin = port_.seconds();
    Status status = ok_status();
    for (uint64_t at = 0; at < bytes && status.ok(); at += kBlock) {
      status = disk_.start_read(disk_.state, at, arena.base.for_kernels, std::min(kBlock, bytes - at));
      if (status.ok()) status = disk_.wait(disk_.state, at);  // because all reads use the same memory
    }
    const double seconds = port_.seconds() - begin;
    port_.release_arena(&arena);
    require(path_, status);
    return seconds / static_cast<double>(bytes);
  }

 private:
  static constexpr uint64_t kBlock = uint64_t{8} << 20, kWritten = uint64_t{256} << 20;
  static uint64_t written(uint64_t bytes) { return std::min(bytes, kWritten); }
  const Port& port_;
  const std::string path_;
  Disk disk_;
};

// Adds the calls that no plan has run, because the planner needs their costs, too. A call whose
// rows every plan drops, because its results are not read (in a frozen trunk), costs nothing. A
// repetition that no plan has run costs as much as the first run.
void add_calls_not_run(const SolvedModel& model, KernelTimes& times) {
  for (const LinkBody& link : model.bodies.links) {
    for (const auto* calls : {&link.forward, &link.backward}) {
      for (const Call& call : *calls) {
        const KernelTimes::Time first =
            times.kernels.try_emplace(call_key(model.graph, call), KernelTimes::Time{0, 1}).first->second;
        if (const auto again = repeated(call)) times.kernels.try_emplace(call_key(model.graph, *again), first);
      }
    }
  }
}

// Returns the plan that stores everything, then the smallest plan.
std::vector<MeasuredPlan> measured_plans(SolvedModel& model) {
  std::vector<MeasuredPlan> plans;
  model.recipe.budget_bytes.reset();
  model.recipe.feature_map_budget_bytes.reset();
  for (const std::string strategy : {"none", "optimal"}) {
    ScheduleRequest request;
    request.strategy = strategy;
    const bool is_smallest = strategy == "optimal";
    if (is_smallest) model.recipe.budget_bytes = smallest_budget(model, request);
    PlannedModel planned = plan_model(model, request);
    if (!planned.fits) throw std::logic_error("a plan does not fit its own smallest budget");
    MeasuredPlan& measured = plans.emplace_back();
    measured.what = is_smallest ? "the smallest plan" : "storing all";
    measured.plan = std::move(planned.plan);
    for (size_t p = 0; p < kProgramCount; ++p) measured.clock.samples[p].resize(measured.plan.programs[p].rows.size());
  }
  return plans;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

PlanRun::PlanRun(const Port& port, const Backend& backend, const Recipe& recipe, const OwnedPlan& plan,
                 uint32_t threads, const Disk& weights)
    : port_(port), plan_(plan.view()) {
  if (recipe.data.kind != DataSource::Kind::kNone) {
    data_ = open_dataset(recipe, Split::kTraining);
    feed_.emplace(*data_);
    if (ReferencedRows* rows = data_->referenced()) {  // any values will do: they do not change times
      const auto zeros = std::make_unique<double[][2]>(pair_count(plan_));
      for (uint64_t row = 0; row < data_->size(); ++row) rows->set_reference(row, zeros.get());
    }
  }
  try {
    require(recipe.name, port_.start_workers(threads, &workers_));
    if (port_.tune_backend != nullptr) (void)port_.tune_backend(workers_, TuningMode::kUse);
    require(recipe.name, port_.acquire_arena(plan_.arena_bytes, &arena_));
    if (spills_to(plan_, SpillLevel::kHost)) {
      require_host_memory(port_, recipe.name);
      require(recipe.name, port_.acquire_host(plan_.spill_bytes, &host_memory_));
    }
    std::vector<CheckMark> marks(check_marks(plan_));
    const Workspace workspace = {marks.data(), marks.size() * sizeof(CheckMark)};
    const Resources given = {
        .arena = arena_, .workers = &workers_, .weights = weights, .host_memory = host_memory_, .workspace = workspace};
    require(recipe.name, bind(plan_, backend, given, trainer_));
  } catch (...) {
    release();
    throw;
  }
}

PlanRun::~PlanRun() { release(); }

void PlanRun::release() {
  unbind(trainer_);
  port_.stop_workers(&workers_);
  if (host_memory_.base != nullptr) port_.release_host(&host_memory_);
  port_.release_arena(&arena_);
}

namespace {

// Fills a batch with zeros. If pairs are judged, all rows are distributed over them.
Status fill_with_zeros(void*, uint64_t, uint32_t, BatchSink& sink) {
  constexpr int32_t kZeros[1024] = {};
  const int32_t* starts = sink.wants_document_start() ? kZeros : nullptr;
  const int32_t* types = sink.wants_token_types() ? kZeros : nullptr;
  const double rows = sink.wants_pairs() ? static_cast<double>(sink.label_count() / sink.pair_count() / 2) : 0;
  for (double first = 0; sink.pair_count() > 0; first += 2 * rows) {
    const JudgedPair pair = {.wish = 1,
                             .whole = first,
                             .first = {first, first + rows},
                             .end = {first + rows, first + 2 * rows},
                             .reference = {}};
    sink.add_pairs(&pair, 1);
  }
  while (sink.input_bytes() > 0)
    sink.add(kZeros, std::min<uint64_t>(sizeof kZeros, sink.input_bytes()), nullptr, 0, nullptr, types);
  while (sink.label_count() > 0)
    sink.add(nullptr, 0, kZeros, std::min<uint64_t>(std::size(kZeros), sink.label_count()), starts);
  return ok_status();
}

// Returns a source of zeros that reports the counts of a step: all labels; or, if pairs are judged,
// the pairs and the labels of their first answers.
BatchSource source_of_zeros(const Plan& plan) {
  const auto pairs = [](void* state, uint64_t) {
    return static_cast<const Plan*>(state)->accumulate * pair_count(*static_cast<const Plan*>(state));
  };
  const auto weight = [](void* state, uint64_t) {
    const Plan& own = *static_cast<const Plan*>(state);
    const Program& program = own.program(ProgramId::kMicroFirst);
    const uint64_t count = pair_count(own);
    return static_cast<double>(own.accumulate * count * (program.slots[program.labels].tensor.elements() / count / 2));
  };
  if (pair_count(plan) == 0) return {nullptr, fill_with_zeros};
  return {const_cast<Plan*>(&plan), fill_with_zeros, pairs, weight};
}

}  // namespace

void PlanRun::finish() const { require(plan_.name, trainer_.backend->host.synchronise(trainer_.context)); }

double PlanRun::step() {
  const double start = port_.seconds();
  const Status status = train_step(trainer_, feed_ ? feed_->source() : source_of_zeros(plan_), report_);
  const double seconds = port_.seconds() - start;
  if (feed_) feed_->rethrow();
  if (status.code != Code::kNonFinite) require(plan_.name, status);
  return seconds;
}

namespace {

// Returns the recipe for one rank. The kernels of one rank are the same; work that is added for
// several ranks is measured separately.
Recipe alone(Recipe recipe) {
  if (recipe.parallel)
    recipe.parallel->ranks = 1, recipe.parallel->shard_optimizer = recipe.parallel->shard_weights = false;
  return recipe;
}

}  // namespace

Profile measure_profile(const Port& port, const Recipe& whole, const MeasureOptions& options) {
  const Recipe recipe = alone(whole);
  Backend backend;
  require("profile", port.open_backend("cpu", &backend));
  SolvedModel model = solve_model(recipe);
  Profile profile;
  profile.kernel_set = backend.kernel_set;
  profile.processor = processor_name();
  KernelTimes times;
  std::vector<MeasuredPlan> plans = measured_plans(model);
  std::optional<StandIn> weights;
  if (const uint64_t bytes = plans.back().plan.streamed_bytes; bytes > 0)
    weights.emplace(port, recipe.name, options.spill_file, bytes);
  LongWork work("measuring " + recipe.name);
  for (int round = 0; round < options.rounds; ++round) {
    work.done(static_cast<double>(round) / options.rounds);
    for (size_t p = 0; p < plans.size();) {
      MeasuredPlan& measured = plans[p];
      const bool is_smallest = p + 1 == plans.size();
      const std::string what = measured.what + ", " + bytes_text(measured.plan.arena_bytes);
      try {
        PlanRun run(port, backend, recipe, measured.plan, options.threads, weights ? weights->disk() : Disk{});
        if (options.say && round == 0) options.say("measuring " + what);
        measured.measure_round(run, options.seconds_per_plan / options.rounds);
        if (is_smallest && round == 0) measure_moves(model, run, times);
        if (is_smallest && round == 0 && (recipe.parallel || options.sums)) measure_sums(model, run, times);
        profile.threads = run.workers().count;
        ++p;
      } catch (const UserError& error) {
        if (is_smallest) throw;
        if (options.say) options.say("left out: " + what + ": " + error.what());
        plans.erase(plans.begin());
      }
    }
    if (options.after_round) options.after_round();
  }
  for (const MeasuredPlan& measured : plans) measured.add_to(times);
  add_calls_not_run(model, times);
  if (recipe.spill_level() == SpillLevel::kHost) profile.host = measure_host(port, backend, model);
  if (recipe.schedule.disk_bytes > 0) profile.disk = measure_disk(port, backend, model, options.spill_file);
  if (weights) profile.stream_read_seconds = weights->seconds_of_byte();
  for (const auto& [key, kernel] : times.kernels)
    profile.kernels[key] = {kernel.seconds / static_cast<double>(kernel.runs), kernel.runs};
  profile.micro_batch_seconds = times.beside.seconds / static_cast<double>(times.beside.runs);
  return profile;
}

}  // namespace reprise
