// Tests streamed weights, end to end. The bits must be those of a training with all weights in
// memory, however late the file is read. If the file has changed, the step must end with a Status
// and change no weight. The file must be written once, completely or not at all. Planner, rows,
// carrier, port and the writer of the file must agree on the offset of each weight in the file.
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "ports/linux/linux_functions.h"
#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/fake_disk.h"
#include "tests/runtime/programs/train_program.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/io/input_file.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/streamed_weights.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json llama(const json& changes = json::object()) {
  return test::with({{"name", "streamed"},
                     {"model",
                      {{"family", "llama"},
                       {"vocab_size", 96},
                       {"hidden_size", 128},
                       {"intermediate_size", 192},
                       {"num_hidden_layers", 3},
                       {"num_attention_heads", 4},
                       {"num_key_value_heads", 2},
                       {"max_position_embeddings", 64},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 10000.0}}},
                     {"init", "random"},
                     {"data", {{"kind", "synthetic"}}},
                     {"batch", 2},
                     {"sequence", 12},
                     {"steps", 3},
                     {"seed", 7},
                     {"lora", {{"r", 2}, {"alpha", 4}}},
                     {"optimizer", {{"name", "adamw"}, {"lr", 0.01}}}},
                    changes);
}
json streaming(const json& changes = json::object()) {
  return test::with(llama({{"weights", {{"stream", true}}}}), changes);
}

// The results of a training: losses, the loss of an evaluation, and every tensor of State in the
// arena, by name.
struct Outcome {
  std::vector<double> losses;
  double evaluation = 0;
  std::map<std::string, std::vector<unsigned char>> state;
};

// A plan of the recipe, bound to memory. The weights are drawn from the seed; streamed weights are
// in a file.
class Net {
 public:
  explicit Net(const json& recipe, double budget_share = -1, uint64_t alignment = kAlignment)
      : recipe_(recipe_from(recipe.dump())),
        run_(plan_run(recipe_, recipe_.schedule.strategy, budget_share)),
        plan_(run_.planned.plan.view()),
        arena_(plan_.arena_bytes + (64 << 10), alignment),
        data_(open_dataset(recipe_, Split::kTraining)) {}

  const Plan& plan() const { return plan_; }
  const PlannedModel& planned() const { return run_.planned; }
  std::string file() const { return folder_.file("weights"); }

  void write_file() const {
    OutputFile out(file());
    write_streamed_weights(plan_, {}, nullptr, {}, out);
    out.finish();
    ASSERT_EQ(fs::file_size(file()), plan_.streamed_bytes);
  }
  std::vector<unsigned char> file_bytes() const {
    std::vector<unsigned char> bytes(plan_.streamed_bytes);
    if (!bytes.empty()) InputFile(file()).read(0, bytes.data(), bytes.size());
    return bytes;
  }
  Status bind_with(const Disk& weights) {
    REPRISE_RETURN_IF_ERROR(
        bind_plan(plan_, test::test_backend(), lasting_workers(), arena_.get(), trainer, {}, weights));
    std::optional<InputFile> in;
    if (plan_.streamed_bytes > 0) in.emplace(file());
    draw_stored_weights(trainer, in ? &*in : nullptr);
    return ok_status();
  }
  Status step(double* loss = nullptr) {
    StepReport report;
    const Status status = train_step(trainer, source_of(*data_), report);
    if (loss != nullptr) *loss = report.loss;
    return status;
  }
  // Runs a step in which all tokens are 0, except the token at `position`, which is out of range.
  Status step_with_bad_token(uint64_t position) {
    const BatchSource source = {&position, [](void* state, uint64_t, uint32_t, BatchSink& sink) {
      std::vector<int32_t> tokens(sink.label_count(), 0);
      const std::vector<int32_t> labels(tokens);
      tokens[*static_cast<uint64_t*>(state)] = 96;
      sink.add(tokens.data(), tokens.size() * sizeof(int32_t), labels.data(), labels.size());
      return ok_status();
    }};
    StepReport report;
    return train_step(trainer, source, report);
  }
  Outcome train(int steps) {
    Outcome outcome;
    for (int s = 0; s < steps; ++s) {
      outcome.losses.push_back(0);
      EXPECT_TRUE(step(&outcome.losses.back()).ok());
    }
    EvaluationReport evaluation;
    EXPECT_TRUE(evaluate(trainer, source_of(*data_), 1, evaluation).ok());
    outcome.evaluation = evaluation.loss;
    outcome.state = state();
    EXPECT_EQ(measure(trainer), plan_.arena_bytes) << "planned is measured";
    return outcome;
  }
  std::map<std::string, std::vector<unsigned char>> state() const {
    std::map<std::string, std::vector<unsigned char>> all;
    for (uint32_t i = 0; i < plan_.state.count; ++i) {
      const StateTensor& state = plan_.state[i];
      const bool lasts = state.kind == StateKind::kParameter || state.kind == StateKind::kOptimizer;
      if (lasts) all[state.name] = bytes_at(trainer, trainer.state_tensor(i), state.tensor.used_bytes());
    }
    return all;
  }

  Trainer trainer;

 private:
  const Recipe recipe_;
  const PlannedRun run_;
  const Plan plan_;
  const TestArena arena_;
  std::unique_ptr<Dataset> data_;
  TemporaryFolder folder_;
};

// Requires equal losses, evaluations, and tensors of State. Tensors that are streamed, and thus
// missing in `streamed`, are not compared.
void expect_same(const Outcome& streamed, const Outcome& resident, const std::string& what) {
  EXPECT_EQ(streamed.losses, resident.losses) << what;
  EXPECT_EQ(streamed.evaluation, resident.evaluation) << what;
  for (const auto& [name, bytes] : streamed.state)
    EXPECT_TRUE(bytes == resident.state.at(name)) << what << ": " << name;
}

TEST(StreamedWeights, TheBitsAreThoseOfResidentWeights) {
  const std::pair<std::string, json> kinds[] = {
      {"f32", json::object()},
      {"Q8_0, two micro-batches", {{"weights", {{"frozen", "q8_0"}}}, {"accumulate", 2}}},
      {"Q4_0 in bf16, released", {{"weights", {{"frozen", "q4_0"}}}, {"dtype", "bf16"}, {"gradient_release", true}}},
      {"embeddings from the file, Q8_0",
       {{"weights", {{"frozen", "q8_0"}, {"embedding", "from_file"}}}, {"accumulate", 2}}},
      {"DoRA", {{"lora", {{"dora", true}}}, {"weights", {{"frozen", "nf4"}}}}},
  };
  for (const auto& [what, changes] : kinds) {
    Net resident(test::with(test::with(llama(), changes), {{"weights", {{"embedding", nullptr}}}}));
    ASSERT_EQ(resident.plan().streamed_bytes, 0u);
    ASSERT_TRUE(resident.bind_with({}).ok());
    const Outcome expected = resident.train(3);
    for (const double share : {-1.0, 0.0, 0.2}) {
      for (const json& stream : {json(true), json("auto"), json(false)}) {
        const bool gathers = changes.contains("weights") && changes.at("weights").contains("embedding");
        if (stream == false && !gathers) continue;
        Net net(test::with(streaming(changes), {{"weights", {{"stream", stream}}}}), share);
        EXPECT_EQ(net.plan().streamed_bytes > 0, net.plan().state_bytes < resident.plan().state_bytes);
        EXPECT_TRUE(net.plan().streamed_bytes > 0 || (stream == "auto" && share != 0));
        net.write_file();
        for (const bool late : {false, true}) {
          FakeDisk disk(net.file_bytes(), late);
          ASSERT_TRUE(net.bind_with(disk.table()).ok());
          expect_same(net.train(3), expected,
                      what + ", share " + std::to_string(share) + ", stream " + stream.dump() + (late ? ", late" : ""));
          EXPECT_EQ(disk.under_way(), 0u);
        }
      }
    }
  }
}

TEST(StreamedWeights, APlanThatDoesNotFitNamesItsBudget) {
  Recipe recipe = recipe_from(streaming().dump());
  recipe.budget_bytes = 4096;
  const SolvedModel model = solve_model(recipe);
  const PlannedModel planned = plan_model(model, request_of(model));
  EXPECT_FALSE(planned.fits);
  EXPECT_EQ(planned.budget_bytes, recipe.budget_bytes);
  EXPECT_GT(planned.smallest_budget_bytes, 4096u);
}

TEST(StreamedWeights, BindAsksForTheFile) {
  Net net(streaming());
  net.write_file();
  EXPECT_EQ(net.bind_with({}).code, Code::kUnsupported);
  FakeDisk small(std::vector<unsigned char>(net.plan().streamed_bytes - 1), false);
  const Status status = net.bind_with(small.table());
  EXPECT_EQ(status.code, Code::kUnsupported);
  EXPECT_EQ(status.detail, net.plan().streamed_bytes);
}

// A token that is out of range must be reported with its position, whether the table of embeddings
// is in memory or in a file.
TEST(StreamedWeights, ABadTokenIsNamedByItsPosition) {
  std::string words[2];
  for (const bool from_file : {false, true}) {
    Net net(from_file ? llama({{"weights", {{"embedding", "from_file"}}}}) : llama());
    net.write_file();
    FakeDisk disk(net.file_bytes(), true);
    ASSERT_TRUE(net.bind_with(disk.table()).ok());
    const Status status = net.step_with_bad_token(5);
    EXPECT_EQ(status.code, Code::kIndexOutOfRange);
    EXPECT_EQ(status.detail, 5u);
    words[from_file] = status.message;
    const Status next = net.step();
    EXPECT_TRUE(next.ok()) << next.message << ", " << from_file;
  }
  EXPECT_EQ(words[0], words[1]);
}

// Makes each call of the disk fail once. The step must report it, no weight may change, and no
// transfer may be pending. A later step must succeed.
TEST(StreamedWeights, AFailureAnywhereEndsTheStep) {
  Net net(streaming(), 0);
  net.write_file();
  FakeDisk disk(net.file_bytes(), true);
  ASSERT_TRUE(net.bind_with(disk.table()).ok());
  ASSERT_TRUE(net.step().ok());
  const int calls = disk.calls;
  const auto before = net.state();
  for (const int at : {0, 1, calls / 3, calls / 2, calls - 2, calls - 1}) {
    disk.calls = 0;
    disk.fails_at = at;
    EXPECT_EQ(net.step().code, Code::kInputOutput) << "call " << at;
    EXPECT_TRUE(net.state() == before) << "call " << at;
    EXPECT_EQ(disk.under_way(), 0u);
  }
  disk.fails_at = -1;
  EXPECT_TRUE(net.step().ok());
}

// ---- the Linux port ----

class LinuxWeights : public ::testing::Test {
 protected:
  LinuxWeights() : net_(streaming(), 0) { net_.write_file(); }
  ~LinuxWeights() override { linux_port().close_disk(&disk_); }
  Status open() { return linux_port().open_weights(net_.file().c_str(), net_.plan().streamed_bytes, &disk_); }

  // Runs a step, which must succeed, calls `change`, and runs another step, which must fail with
  // `error`.
  void expect_end_of_step(const std::function<void()>& change, int error) {
    ASSERT_TRUE(open().ok());
    ASSERT_TRUE(net_.bind_with(disk_).ok());
    ASSERT_TRUE(net_.step().ok());
    const auto before = net_.state();
    change();
    const Status status = net_.step();
    EXPECT_EQ(status.code, Code::kInputOutput);
    EXPECT_EQ(status.detail, static_cast<uint64_t>(error));
    EXPECT_TRUE(net_.state() == before);
  }

  Net net_;
  Disk disk_;
};

TEST_F(LinuxWeights, AFileThatShrinksEndsTheStep) {
  expect_end_of_step([&] { ASSERT_EQ(::truncate(net_.file().c_str(), 4096), 0); }, ESTALE);
}
TEST_F(LinuxWeights, AFileThatIsReplacedEndsTheStep) {
  expect_end_of_step([&] {
    fs::copy_file(net_.file(), net_.file() + ".new");
    fs::rename(net_.file() + ".new", net_.file());
  }, ESTALE);
}
TEST_F(LinuxWeights, AFileThatIsWrittenEndsTheStep) {
  expect_end_of_step([&] {
    const int file = ::open(net_.file().c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(file, "x", 1, 0), 1);
    ::close(file);
  }, ESTALE);
}
TEST_F(LinuxWeights, AFileThatIsGoneEndsTheStep) {
  expect_end_of_step([&] { fs::remove(net_.file()); }, ENOENT);
}

// If the file may have changed while it was read, the read must fail. In this test the file changes
// after its bytes were read and before they are on the device.
TEST(LinuxWeightsFile, AChangeDuringAReadFailsIt) {
  static std::string path;
  const TemporaryFolder folder;
  path = folder.file("w");
  write_file(path, std::string(8192, 'a'));
  alignas(4096) unsigned char piece[4096], memory[4096];
  const auto store = [](void* to, const void* from, uint64_t bytes) {
    std::memcpy(to, from, bytes);
    return ::truncate(path.c_str(), 4096) == 0 ? 0 : errno;
  };
  Disk disk;
  ASSERT_TRUE(linux_open_weights_of_device({piece, sizeof piece, nullptr, store}, path.c_str(), 8192, &disk).ok());
  ASSERT_TRUE(disk.start_read(disk.state, 0, memory, sizeof memory).ok());
  EXPECT_EQ(disk.wait(disk.state, 0).detail, static_cast<uint64_t>(ESTALE));
  linux_close_disk(&disk);
}

TEST_F(LinuxWeights, RefusesWhatIsNotThere) {
  EXPECT_EQ(linux_port().open_weights("/no/such/file", 4096, &disk_).detail, static_cast<uint64_t>(ENOENT));
  EXPECT_EQ(linux_port().open_weights("", 4096, &disk_).code, Code::kInputOutput);
  EXPECT_EQ(linux_port().open_weights(net_.file().c_str(), net_.plan().streamed_bytes + 1, &disk_).code,
            Code::kInputOutput);
  ASSERT_TRUE(open().ok());
  Disk second;
  EXPECT_EQ(linux_port().open_weights(net_.file().c_str(), 4096, &second).code, Code::kUnsupported);
  EXPECT_EQ(disk_.start_write, nullptr);
}

// Returns the number of pages of the file in the kernel's cache.
uint64_t cached_pages(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY);
  const uint64_t bytes = fs::file_size(path), page = 4096;
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  std::vector<unsigned char> there((bytes + page - 1) / page);
  EXPECT_EQ(::mincore(map, bytes, there.data()), 0);
  ::munmap(map, bytes);
  ::close(file);
  uint64_t pages = 0;
  for (const unsigned char p : there) pages += p & 1u;
  return pages;
}

// Reads must leave no page of the file in the page cache. If the memory is aligned to
// kStreamAlignment, as in a port's arena, they bypass the cache; otherwise the port drops the pages
// after the read.
TEST_F(LinuxWeights, ReadsDoNotFillThePageCache) {
  const int file = ::open(net_.file().c_str(), O_RDONLY);
  ASSERT_EQ(::fsync(file), 0);
  (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  ASSERT_TRUE(open().ok());
  ASSERT_TRUE(net_.bind_with(disk_).ok());
  if (cached_pages(net_.file()) != 0) GTEST_SKIP() << "this file system keeps every page";
  ASSERT_TRUE(net_.step().ok());
  EXPECT_EQ(cached_pages(net_.file()), 0u);
  Net aligned(streaming(), 0, kStreamAlignment);
  aligned.write_file();
  ASSERT_TRUE(aligned.bind_with(disk_).ok());
  ASSERT_TRUE(aligned.step().ok());
  EXPECT_EQ(cached_pages(net_.file()), 0u);
}

// ---- making the file ----

class StreamedFile : public ::testing::Test {
 protected:
  bool prepare(const std::string& path) const {
    return prepare_streamed_weights(net_.plan(), {}, {nullptr, nullptr, rules_}, path);
  }
  std::string at(const std::string& name) const { return folder_.file(name); }

  const Net net_{streaming()};
  const InitialRules rules_;
  TemporaryFolder folder_;
};

TEST_F(StreamedFile, IsMadeOnceAndCheckedByEveryByte) {
  const std::string path = at("w");
  EXPECT_FALSE(prepare(path));
  EXPECT_TRUE(prepare(path)) << "it is there";
  const std::string good = read_file(path);
  for (const uint64_t place : {uint64_t{0}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[place] = static_cast<char>(bad[place] ^ 1);
    write_file(path, bad);
    EXPECT_FALSE(prepare(path)) << "a flipped bit is found";
    EXPECT_EQ(read_file(path), good);
  }
  // If a file's size differs from the size in the note next to it, another program has changed it.
  // Such a file must not be overwritten.
  fs::resize_file(path, good.size() - 4096);
  expect_user_error([&] { (void)prepare(path); }, {path, "move it away"});
  EXPECT_EQ(fs::file_size(path), good.size() - 4096);
  fs::remove(path);
  EXPECT_FALSE(prepare(path));
  for (const char* junk : {"", "{", "[]", "{\"weights\": 3}", "{\"weights\": {}, \"bytes\": \"x\"}"}) {
    write_file(path + ".json", junk);
    expect_user_error([&] { (void)prepare(path); }, {path, "move it away"});
    EXPECT_EQ(read_file(path + ".json"), junk);
  }
  EXPECT_EQ(read_file(path), good);
}

TEST_F(StreamedFile, OfAnotherSeedIsAnother) {
  EXPECT_FALSE(prepare(at("w")));
  const Net other(streaming({{"seed", 8}}));
  EXPECT_FALSE(prepare_streamed_weights(other.plan(), {}, {nullptr, nullptr, rules_}, at("w")));
  EXPECT_FALSE(prepare(at("w")));
}

// If writing is interrupted, as may happen for a large model, no file may remain.
TEST_F(StreamedFile, WhoeverStopsItsMakingLeavesNothing) {
  fs::create_directory(at("stopped"));
  int pieces = 0;
  const auto stop = [&] {
    if (++pieces == 3) throw UserError("stopped");
  };
  expect_user_error(
      [&] {
        (void)prepare_streamed_weights(net_.plan(), {}, {nullptr, nullptr, rules_}, at("stopped/w"), stop);
      },
      {"stopped"});
  EXPECT_TRUE(fs::is_empty(at("stopped")));
}

TEST_F(StreamedFile, LeavesNothingHalfWritten) {
  expect_user_error([&] { prepare("/no/such/folder/w"); }, {"/no/such/folder/w"});
  fs::create_directory(at("full"));
  write_file(at("full/w.new-999999999"), "of a process that was killed");
  EXPECT_FALSE(prepare(at("full/w")));
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(at("full")))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"w", "w.json"}));
}

// ---- the compiled program ----

class StreamingProgram : public test::TrainProgram {};

TEST_F(StreamingProgram, TrainsResumesAndSays) {
  const std::string resident = test::train_program("streamed-not", llama()),
                    program =
                        test::train_program("streamed", streaming({{"budget", test::smallest_budget(streaming())}}));
  quietly(resident, {"--log", at("a.log"), "--save", at("a")});
  quietly(program, {"--log", at("b.log"), "--save", at("b"), "--streamed", at("w")});
  EXPECT_EQ(test::read_log(at("a.log")).results(), test::read_log(at("b.log")).results());
  EXPECT_EQ(test::snapshot_tensors(at("a")), test::snapshot_tensors(at("b")));
  quietly(program, {"--steps", "1", "--save", at("half"), "--streamed", at("w")});
  quietly(program, {"--resume", at("half"), "--save", at("rest"), "--streamed", at("w")});
  EXPECT_EQ(test::snapshot_tensors(at("rest")), test::snapshot_tensors(at("b")));
  quietly(program, {"--steps", "1", "--manifest", at("m.json")});
  const test::ProcessResult audit = test::reprise_command({"audit", at("m.json")});
  EXPECT_EQ(audit.status, 0) << audit.err;
  EXPECT_NE(audit.out.find("streamed"), std::string::npos) << audit.out;
  EXPECT_TRUE(fs::exists((fs::path(program).parent_path() / "streamed.streamed"))) << "beside the program";
  expect_refusal(program, {"--streamed", "/no/such/folder/w"}, {"/no/such/folder/w"});
  expect_refusal(program, {"--streamed", ""}, {"--streamed"}, 2);
  expect_refusal(resident, {"--streamed", at("w")}, {"--streamed"}, 2);
}

}  // namespace
}  // namespace reprise
