// Tests the CUDA port without a card: the fibres run its kernels, and a fake driver replaces
// NVIDIA's. A failure must be one clear Status and must leave no resources allocated. Complete
// trainings run as in the compiled program of a recipe, recorded or row by row, and must have equal
// bits. The tests include failures of boards whose card shares the host's memory.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cuda/cuda_backend.h"
#include "cuda/cuda_rules.h"
#include "ports/cuda/arena.h"
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_port.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/ports/cards/fake_cuda_driver.h"
#include "tests/runtime/expect_same.h"
#include "tests/runtime/programs/process.h"
#include "tests/runtime/programs/train_program.h"
#include "tools/plan/costs/board.h"
#include "tools/run/profiling/doctor.h"
#include "tools/run/training/program.h"

namespace reprise::test {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class CudaPort : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda_card() = {};
    fibre::architecture = 87;
    fibre::set_order(7);
  }
  void TearDown() override {
    EXPECT_EQ(fibre::take_report().text, "");
    EXPECT_EQ(fake_cuda_card().live_resources, 0u) << "the port keeps what it has taken";
    EXPECT_EQ(fake_cuda_card().live_bytes, 0u);
    fibre::architecture = 0;
  }
};

std::string gpt(const std::string& extra = "") {
  return R"({"name": "tiny-gpt", "model": {"family": "gpt2", "vocab_size": 37, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2},
         "data": {"kind": "synthetic"}, "batch": 2, "sequence": 11, "steps": 4, "seed": 4, "backend": "cuda",
         "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.1}, "accumulate": 2)" +
         extra + "}";
}

// ---- which kind of memory the arena gets ----

class CudaArena : public CudaPort {
 protected:
  void SetUp() override {
    CudaPort::SetUp();
    ASSERT_TRUE(load_cuda_driver(driver_).ok());
    ASSERT_TRUE(open_card(driver_, card_).ok());
  }
  void TearDown() override {
    give_card_arena(driver_, arena_);
    close_card(driver_, card_);
    CudaPort::TearDown();
  }
  Status take(uint64_t bytes) { return take_card_arena(driver_, card_, host_, bytes, arena_); }

  CudaDriver driver_;
  Card card_;
  HostShare host_;
  CardArena arena_;
};

TEST_F(CudaArena, IsMappedInWholePieces) {
  ASSERT_TRUE(take(5 * kMiB + 1).ok());
  EXPECT_EQ(arena_.mapped_bytes, 6 * kMiB);
  EXPECT_EQ(fake_cuda_card().live_bytes, 6 * kMiB);
  EXPECT_EQ(fake_cuda_card().reserved_bytes, 6 * kMiB)
      << "never more addresses than the arena: a board refuses large ranges";
  EXPECT_EQ(arena_.arena.bytes, 5 * kMiB + 1);
}

TEST_F(CudaArena, IsPlainMemoryWhereAnyPartOfMappingFails) {
  for (const char* function : {"granularity", "reserve_addresses", "create", "map", "set_access"}) {
    fake_cuda_card().fails = {function};
    const uint64_t before = fake_cuda_card().live_resources;
    ASSERT_TRUE(take(3 * kMiB).ok()) << function;
    EXPECT_EQ(arena_.mapped_bytes, 0u) << function;
    EXPECT_EQ(fake_cuda_card().live_bytes, 3 * kMiB) << function;
    EXPECT_EQ(fake_cuda_card().live_resources, before + 1)
        << function << ": what was done of the mapping must be undone";
    give_card_arena(driver_, arena_);
    EXPECT_EQ(fake_cuda_card().live_resources, before) << function;
  }
  fake_cuda_card().fails.clear();
  card_.has_virtual_memory = false;
  ASSERT_TRUE(take(3 * kMiB).ok());
  EXPECT_EQ(arena_.mapped_bytes, 0u);
}

TEST_F(CudaArena, IsRefusedWithItsBytes) {
  fake_cuda_card().fails = {"create", "allocate"};
  Status status = take(3 * kMiB);
  EXPECT_EQ(status.code, Code::kOutOfMemory);
  EXPECT_EQ(status.detail, 3 * kMiB);
  fake_cuda_card().fails.clear();
  fake_cuda_card().taken_by_others = fake_cuda_card().total_bytes - kCudaHeadroomBytes - 2 * kMiB;
  status = take(3 * kMiB);
  EXPECT_EQ(status.code, Code::kOutOfMemory);
  EXPECT_NE(std::string(status.message).find("less room"), std::string::npos) << status.message;
  EXPECT_NE(std::string(status.message).find("2 MiB of the 3 that it takes"), std::string::npos) << status.message;
  EXPECT_EQ(take(2 * kMiB + 1).code, Code::kOutOfMemory) << "what comes behind the arena has its room on every card";
  EXPECT_TRUE(take(2 * kMiB).ok());
}

// On a board with shared memory the port tries three kinds of memory, one after the other: mapped,
// plain and pinned. If a kind fails, its memory must be freed. An error is reported only if all
// three fail. Other cards have no third kind.
TEST_F(CudaArena, ASharedMemorysLadder) {
  host_ = kCudaRules.host_share(7620 * kMiB, 1024 * kMiB);
  const uint64_t before = fake_cuda_card().live_resources;
  const std::set<std::string> mapped_fails = {"create"}, plain_fails = {"create", "allocate"},
                              all_fail = {"create", "allocate", "allocate_pinned"};
  for (const bool is_integrated : {false, true}) {
    card_.is_integrated = is_integrated;
    fake_cuda_card().fails = mapped_fails;
    ASSERT_TRUE(take(3 * kMiB).ok());
    EXPECT_FALSE(arena_.is_pinned);
    give_card_arena(driver_, arena_);
    fake_cuda_card().fails = plain_fails;
    const Status status = take(3 * kMiB);
    EXPECT_EQ(status.ok(), is_integrated) << "memory of the host is the card's own on such a board alone";
    EXPECT_EQ(arena_.is_pinned, is_integrated);
    if (is_integrated) std::memset(arena_.arena.base.for_kernels, 7, 3 * kMiB);
    EXPECT_EQ(resize_card_arena(driver_, card_, host_, 4 * kMiB, arena_).code, Code::kUnsupported);
    give_card_arena(driver_, arena_);
    fake_cuda_card().fails = all_fail;
    EXPECT_EQ(take(3 * kMiB).code, Code::kOutOfMemory);
    EXPECT_EQ(fake_cuda_card().live_resources, before);
  }
}

// Memory is mapped in pieces, all of which must be unmapped again.
TEST_F(CudaArena, GrowsAndShrinksByPieces) {
  ASSERT_TRUE(reserve_card_arena(driver_, card_, 9 * kMiB + 1, arena_).ok());
  unsigned char* const base = arena_.arena.base.for_kernels;
  const uint64_t before = fake_cuda_card().live_resources;
  EXPECT_EQ(fake_cuda_card().reserved_bytes, 10 * kMiB);
  EXPECT_EQ(fake_cuda_card().live_bytes, 0u) << "addresses alone";
  const auto resize = [&](uint64_t bytes, uint64_t held) {
    const Status status = resize_card_arena(driver_, card_, host_, bytes, arena_);
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(arena_.arena.bytes, bytes);
    EXPECT_EQ(arena_.arena.base.for_kernels, base);
    EXPECT_EQ(fake_cuda_card().live_bytes, held) << bytes;
  };
  resize(3 * kMiB, 4 * kMiB);
  std::memset(base, 7, 3 * kMiB);
  resize(4 * kMiB - 256, 4 * kMiB);
  for (int turn = 0; turn < 40; ++turn) {  // more iterations than the maximum number of pieces
    resize(5 * kMiB, 6 * kMiB);
    resize(9 * kMiB + 1, 10 * kMiB);
    resize(5 * kMiB, 6 * kMiB);
    resize(3 * kMiB, 4 * kMiB);
    EXPECT_EQ(std::count(base, base + 3 * kMiB, 7), static_cast<std::ptrdiff_t>(3 * kMiB)) << "State stays";
  }
  for (const char* function : {"create", "map", "set_access"}) {
    fake_cuda_card().fails = {function};
    const uint64_t things = fake_cuda_card().live_resources;
    const Status status = resize_card_arena(driver_, card_, host_, 9 * kMiB, arena_);
    EXPECT_EQ(status.code, Code::kOutOfMemory) << function;
    EXPECT_EQ(status.detail, 9 * kMiB) << function;
    EXPECT_EQ(arena_.arena.bytes, 3 * kMiB) << function << ": it stays as it was";
    EXPECT_EQ(fake_cuda_card().live_resources, things) << function;
  }
  fake_cuda_card().fails.clear();
  fake_cuda_card().taken_by_others = fake_cuda_card().total_bytes - 5 * kMiB;
  EXPECT_EQ(resize_card_arena(driver_, card_, host_, 9 * kMiB, arena_).code, Code::kOutOfMemory);
  card_.is_integrated = true;
  host_ = kCudaRules.host_share(300 * kMiB, 40 * kMiB);
  fake_cuda_card().taken_by_others = 0;
  EXPECT_NE(std::string(resize_card_arena(driver_, card_, host_, 9 * kMiB, arena_).message)
                .find("one memory that the board shares"),
            std::string::npos);
  card_.is_integrated = false;
  EXPECT_EQ(resize_card_arena(driver_, card_, host_, 11 * kMiB, arena_).code, Code::kUnsupported);
  give_card_arena(driver_, arena_);
  EXPECT_EQ(fake_cuda_card().live_resources, before - 1);
  for (const char* function : {"granularity", "reserve_addresses"}) {
    fake_cuda_card().fails = {function};
    EXPECT_EQ(reserve_card_arena(driver_, card_, 9 * kMiB, arena_).code, Code::kUnsupported) << function;
  }
  fake_cuda_card().fails.clear();
  ASSERT_TRUE(take(3 * kMiB).ok());
  EXPECT_EQ(resize_card_arena(driver_, card_, host_, 4 * kMiB, arena_).code, Code::kUnsupported)
      << "an arena that was taken whole keeps its size";
}

// The port, `reprise doctor` and `reprise fit --board` must report the same numbers for a board of
// 8 GB.
TEST_F(CudaArena, ThreeInterfacesReportTheHostsMemory) {
  constexpr uint64_t kUsable = 7620 * kMiB, kSystem = 1536 * kMiB, kSpace = 5820 * kMiB;
  const std::string words = "of 7620 MiB the host keeps 1800 MiB (1536 MiB the system, 256 MiB free, 8 MiB for copies)";
  const nlohmann::json parts = {{"system_bytes", kSystem}, {"headroom_bytes", 256 * kMiB}, {"staging_bytes", 8 * kMiB},
                                {"bytes", 1800 * kMiB}, {"room_bytes", kSpace}};
  host_ = kCudaRules.host_share(kUsable, kSystem);
  EXPECT_EQ(host_share_text(host_).text, words);

  fake_cuda_card().total_bytes = uint64_t{1} << 50;
  fake_cuda_card().taken_by_files = fake_cuda_card().total_bytes;
  card_.is_integrated = true;
  const Status refused = take(kSpace + 1);
  EXPECT_EQ(refused.code, Code::kOutOfMemory);
  EXPECT_EQ(refused.detail, kSpace + 1);
  EXPECT_NE(std::string(refused.message).find(words), std::string::npos) << refused.message;
  EXPECT_TRUE(take(kSpace).ok());

  const auto doctor = [this](bool json) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(
        print_doctor(
            linux_port(),
            {.problem = {}, .name = "Orin", .is_integrated = true, .space_bytes = host_.space_bytes(), .host = host_},
            json),
        0);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_NE(doctor(false).find(words), std::string::npos) << doctor(false);
  EXPECT_EQ(nlohmann::json::parse(doctor(true))["card"]["host_share"], parts);

  const TemporaryFolder folder;
  const std::string board = folder.file("board.json"), recipe = folder.file("recipe.json");
  const nlohmann::json rates = {{"f32_flops", 1e12}, {"bf16_flops", 1e13}, {"bytes_per_second", 1e11}};
  nlohmann::json file = {{"name", "Nano"}, {"usable_bytes", kUsable}, {"processors", {{"cuda", rates}}}};
  file["processors"]["cuda"]["reserve_bytes"] = kSystem;
  const auto fit = [&](uint64_t usable_bytes, const std::vector<std::string>& more) {
    file["usable_bytes"] = usable_bytes;
    write_text(board, file.dump());
    write_text(recipe, gpt());
    std::vector<std::string> arguments = {"fit", recipe, "--board", board};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return reprise_command(arguments);
  };
  EXPECT_NE(fit(kUsable, {}).out.find(words), std::string::npos) << fit(kUsable, {}).out;
  const nlohmann::json answer = nlohmann::json::parse(fit(kUsable, {"--json"}).out);
  EXPECT_EQ(answer["board"]["host_share"], parts);
  EXPECT_EQ(answer["board"]["room_bytes"], kSpace);
  const uint64_t smallest = answer["smallest_budget"], kept = host_.bytes();
  EXPECT_EQ(fit(kept + smallest, {}).status, 0) << "the room is the budget";
  EXPECT_EQ(fit(kept + smallest - 1, {}).status, 3);
  // `fit` must use the card's rates for every size of card and every math. The board's rate for
  // bf16 is higher than that for f32, so a math on tensor cores must give a shorter time.
  const auto min_seconds = [&](const std::string& keys) {
    write_text(recipe, gpt(keys));
    return nlohmann::json::parse(reprise_command({"fit", recipe, "--board", board, "--budget", "64MiB", "--json"})
                                     .out)["board"]["least_seconds"]
        .get<double>();
  };
  file["usable_bytes"] = kUsable;
  file["processors"]["cuda"]["bytes_per_second"] = 1e15;  // so large that memory limits the time of no row
  write_text(board, file.dump());
  const double in_f32 = min_seconds(R"(, "card": "large")"), in_tf32 = min_seconds(R"(, "math": "tf32")"),
               in_bf16x3 = min_seconds(R"(, "math": "bf16x3")");
  EXPECT_LE(in_tf32, in_bf16x3);
  EXPECT_LT(in_bf16x3, in_f32);
}

TEST_F(CudaArena, StagingThatIsTakenIsNotTheSystems) {
  constexpr LinuxMemory kMemory = {.total_bytes = 7620 * kMiB, .available_bytes = 6000 * kMiB};
  const HostShare before = card_host_share(kMemory, 0), own = card_host_share(kMemory, CudaStaging::kBytes);
  EXPECT_EQ(before.system_bytes, 1620 * kMiB);
  EXPECT_EQ(own.system_bytes + CudaStaging::kBytes, before.system_bytes);
  EXPECT_EQ(own.staging_bytes, CudaStaging::kBytes);
  EXPECT_EQ(card_host_share({~uint64_t{0}, ~uint64_t{0}}, 0).system_bytes, 0u) << "where Linux does not say";
}

// ---- what stops a run ----

TEST_F(CudaPort, SaysWhatIsMissing) {
  const auto problem = [] {
    Backend backend;
    const Status status = cuda_port().open_backend("cuda", &backend);
    EXPECT_EQ(status.ok(), backend.rules != nullptr);
    cuda_port().close_backend(&backend);
    return status.ok() ? std::string() : std::string(status.message) + " " + std::to_string(status.detail);
  };
  const auto expect_problem = [&](const FakeCudaCard& card, const char* words) {
    fake_cuda_card() = card;
    EXPECT_NE(problem().find(words), std::string::npos) << words << " in: " << problem();
    EXPECT_EQ(fake_cuda_card().live_resources, 0u) << words;
  };
  EXPECT_EQ(problem(), "");
  expect_problem({.has_driver = false}, "no NVIDIA driver");
  expect_problem({.has_card = false}, "no NVIDIA card");
  expect_problem({.major = 7, .minor = 5}, "75");
  expect_problem({.driver_version = 12040}, "update the driver");
  for (const char* function : {"version", "device", "device_name", "device_fact", "set_context", "memory",
                               "stream_priorities", "create_stream", "allocate_pinned", "create_event"}) {
    expect_problem({.fails = {function}}, "out of memory");
  }
  fibre::architecture = 0;
  expect_problem({}, "no code for the card's architecture");
}

// ---- copies to the card ----

TEST_F(CudaPort, CopiesThroughPinnedMemoryAndFreesTheSourceAtOnce) {
  Backend backend;
  Arena arena;
  ASSERT_TRUE(cuda_port().open_backend("cuda", &backend).ok());
  ASSERT_TRUE(cuda_port().acquire_arena(64 * kMiB, &arena).ok());
  KernelContext context;
  context.machine = backend.machine;
  context.queue = backend.queue;
  std::vector<uint32_t> source(5 * CudaStaging::kHalfBytes / sizeof(uint32_t) + 3), back(source.size());
  std::iota(source.begin(), source.end(), 1u);
  const std::vector<uint32_t> expected = source;
  const uint64_t bytes = source.size() * sizeof(uint32_t);
  // The first copy has 5 bytes, so that the second copy does not begin at the start of a half of
  // the staging buffer.
  ASSERT_TRUE(backend.host.copy_in(context, arena.base, source.data(), 5).ok());
  ASSERT_TRUE(backend.host.copy_in(context, arena.base + 256, source.data(), bytes).ok());
  std::fill(source.begin(), source.end(), 0u);
  ASSERT_TRUE(backend.host.copy_out(context, back.data(), arena.base + 256, bytes).ok());
  ASSERT_TRUE(backend.host.synchronise(context).ok());
  EXPECT_TRUE(back == expected);
  cuda_port().release_arena(&arena);
  cuda_port().close_backend(&backend);
}

// ---- whole trainings, by the program ----

struct ProgramRun {
  int status = 0;
  std::string err;
  Log log;
};

class CudaProgram : public CudaPort {
 protected:
  // Runs the recipe's plan like a compiled program. `arguments` are passed in addition to --log.
  ProgramRun run(const std::string& recipe_text, const std::string& strategy, double share,
                 std::vector<std::string> arguments) {
    const Recipe recipe = recipe_from(recipe_text);
    const PlannedRun planned = plan_run(recipe, strategy, share);
    return run_choices({planned}, std::move(arguments));
  }
  ProgramRun run_choices(const std::vector<PlannedRun>& runs, std::vector<std::string> arguments) {
    std::vector<Plan> plans;
    std::vector<std::string> texts;
    for (const PlannedRun& each : runs) {
      plans.push_back(each.planned.plan.view());
      texts.push_back(canonical_recipe(each.model.recipe));
    }
    std::vector<CompiledPlan> choices;
    for (size_t i = 0; i < runs.size(); ++i) {
      choices.push_back(
          {plans[i], texts[i].c_str(), "", std::strcmp(plans[i].backend, "cpu") == 0 ? linux_port() : cuda_port()});
    }
    return run_compiled(choices, std::move(arguments));
  }
  ProgramRun run_compiled(const std::vector<CompiledPlan>& choices, std::vector<std::string> arguments) {
    const std::string log = folder_.file("log" + std::to_string(++runs_) + ".jsonl");
    arguments.insert(arguments.begin(), {"train", "--threads", "1", "--log", log});
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    ProgramRun result;
    ::testing::internal::CaptureStderr();
    result.status = run_training(choices, static_cast<int>(argv.size()), argv.data());
    result.err = ::testing::internal::GetCapturedStderr();
    result.log = read_log(log);
    return result;
  }

  TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(CudaProgram, TrainsRecordedOrRowByRowWithTheSameBits) {
  const std::string first = folder_.file("a"), second = folder_.file("b"), third = folder_.file("c");
  const ProgramRun recorded = run(gpt(), "none", -1, {"--save", first});
  ASSERT_EQ(recorded.status, 0) << recorded.err;
  for (const char* words : {"(equal)", "device: Fake Orin (sm_87, driver of CUDA 13.0)", "cuda/fibres/sm_87"}) {
    EXPECT_NE(recorded.err.find(words), std::string::npos) << words << " in " << recorded.err;
  }
  const ProgramRun eager = run(gpt(), "none", -1, {"--save", second, "--eager"});
  ASSERT_EQ(eager.status, 0) << eager.err;
  const ProgramRun small = run(gpt(), "optimal", 0, {"--save", third});
  ASSERT_EQ(small.status, 0) << small.err;
  EXPECT_EQ(recorded.log.results(), eager.log.results());
  EXPECT_EQ(recorded.log.results(), small.log.results());
  ASSERT_NE(snapshot_tensors(first), "");
  EXPECT_EQ(snapshot_tensors(first), snapshot_tensors(second));
  EXPECT_EQ(snapshot_tensors(first), snapshot_tensors(third));
}

// The backend for large cards has the same kernels but splits sums differently. So resuming a
// snapshot that the other backend wrote must print a warning.
TEST_F(CudaProgram, ALargeCardHasATableOfItsOwn) {
  const std::string saved = folder_.file("saved"), large = gpt(R"(, "card": "large")");
  const ProgramRun stored = run(large, "none", -1, {"--save", saved}), small = run(large, "optimal", 0, {});
  ASSERT_EQ(stored.status, 0) << stored.err;
  EXPECT_NE(stored.err.find("kernels cuda-large/fibres/sm_87"), std::string::npos) << stored.err;
  EXPECT_NE(stored.err.find("(equal)"), std::string::npos) << stored.err;
  EXPECT_EQ(stored.log.results(), small.log.results());
  const ProgramRun resumed = run(gpt(), "none", -1, {"--resume", saved, "--steps", "5"});
  EXPECT_NE(resumed.err.find("cuda-large/fibres/sm_87"), std::string::npos) << resumed.err;
}

// Another math has its own backend. "auto" must fall back to a processor that multiplies in f32,
// and must report the kernel set of that processor.
TEST_F(CudaProgram, AnotherMathHasATableOfItsOwn) {
  const std::string saved = folder_.file("saved"), tf32 = gpt(R"(, "math": "tf32")");
  const ProgramRun stored = run(tf32, "none", -1, {"--save", saved}), small = run(tf32, "optimal", 0, {});
  ASSERT_EQ(stored.status, 0) << stored.err;
  EXPECT_NE(stored.err.find("kernels cuda+tf32/fibres/sm_87"), std::string::npos) << stored.err;
  EXPECT_NE(stored.err.find("(equal)"), std::string::npos) << stored.err;
  EXPECT_EQ(stored.log.results(), small.log.results());
  const ProgramRun resumed = run(gpt(), "none", -1, {"--resume", saved, "--steps", "5"});
  EXPECT_NE(resumed.err.find("cuda+tf32/fibres/sm_87"), std::string::npos) << resumed.err;

  std::string for_all = tf32;
  for_all.replace(for_all.find("\"cuda\""), 6, "\"auto\"");
  fake_cuda_card().taken_by_others = fake_cuda_card().total_bytes;
  const ProgramRun fallen =
      run_choices({plan_run(recipe_from(tf32), "none"), plan_run(recipe_from(for_all), "none")}, {"--steps", "1"});
  EXPECT_EQ(fallen.status, 0) << fallen.err;
  for (const char* words :
       {"backend auto: not on cuda+tf32: the card has less room", "backend auto: trains on cpu", "kernels cpu/"}) {
    EXPECT_NE(fallen.err.find(words), std::string::npos) << words << " in " << fallen.err;
  }
}

// Runs a card's program with two plans, one of which a control file or --start-budget selects. The
// bits must not depend on the plan.
TEST_F(CudaProgram, ChangesItsPlanWithTheSameBits) {
  const Recipe recipe = recipe_from(gpt());
  const PlannedRun large = plan_run(recipe, "none"), small = plan_run(recipe, "optimal", 0);
  fake_cuda_card().granularity = 4096;  // memory is mapped in small pieces, because the net is small
  const Plan plans[] = {large.planned.plan.view(), small.planned.plan.view()};
  ASSERT_GT(plans[0].arena_bytes, plans[1].arena_bytes + 2 * fake_cuda_card().granularity)
      << "too little to be seen in pieces";
  std::string texts[2];
  for (int i = 0; i < 2; ++i) {
    Recipe own = recipe;
    own.budget_bytes = plans[i].arena_bytes;
    texts[i] = canonical_recipe(own);
  }
  const WrittenPlan written[] = {{&plans[0], texts[0].c_str(), "", "a"}, {&plans[1], texts[1].c_str(), "", "b"}};
  const auto train_on = [&](std::vector<std::string> arguments) {
    return run_compiled({compiled_plans(written, cuda_port())}, std::move(arguments));
  };
  const auto budgets_of = [](const Log& log) {
    std::vector<uint64_t> budgets;
    for (const nlohmann::json& line : log.lines) budgets.push_back(line["budget_bytes"]);
    return budgets;
  };
  const std::string first = folder_.file("a"), second = folder_.file("b"), third = folder_.file("c"),
                    control = folder_.file("control");
  const ProgramRun alone = train_on({"--save", first});
  ASSERT_EQ(alone.status, 0) << alone.err;
  write_text(control, "budget 1\n");
  const ProgramRun changed = train_on({"--save", second, "--control", control, "--steps", "2"});
  ASSERT_EQ(changed.status, 0) << changed.err;
  EXPECT_EQ(budgets_of(changed.log), (std::vector<uint64_t>(2, plans[1].arena_bytes)));
  EXPECT_NE(changed.err.find("given back"), std::string::npos) << changed.err;
  EXPECT_NE(changed.err.find("(equal)"), std::string::npos) << changed.err;
  write_text(control, "budget 0\n");
  const ProgramRun grown = train_on({"--resume", second, "--save", third, "--control", control, "--start-budget", "1"});
  ASSERT_EQ(grown.status, 0) << grown.err;
  EXPECT_EQ(budgets_of(grown.log), (std::vector<uint64_t>(2, plans[0].arena_bytes)));
  EXPECT_EQ(snapshot_tensors(first), snapshot_tensors(third));

  // Apart from the arena of the small plan and the headroom, only 72 KiB of the card are free. So
  // the large plan must be refused.
  fake_cuda_card().taken_by_others =
      fake_cuda_card().total_bytes - plans[1].arena_bytes - (64 << 10) - 8192 - kCudaHeadroomBytes;
  const ProgramRun refused = train_on({"--control", control, "--start-budget", "1"});
  EXPECT_EQ(refused.status, 0) << refused.err;
  EXPECT_NE(refused.err.find("warning: budgets: "), std::string::npos) << refused.err;
  EXPECT_EQ(budgets_of(refused.log), (std::vector<uint64_t>(4, plans[1].arena_bytes)));
  const ProgramRun too_large = train_on({"--start-budget", "0"});
  EXPECT_EQ(too_large.status, 1);
  EXPECT_NE(too_large.err.find("; --start-budget 1 ("), std::string::npos) << too_large.err;
  fake_cuda_card().taken_by_others = 0;

  fake_cuda_card().has_virtual_memory = false;
  write_text(control, "budget 1\n");
  const ProgramRun fixed = train_on({"--control", control});
  EXPECT_EQ(fixed.status, 0) << fixed.err;
  EXPECT_NE(fixed.err.find("no virtual memory management, so its arena keeps its size"), std::string::npos)
      << fixed.err;
  EXPECT_EQ(budgets_of(fixed.log), (std::vector<uint64_t>(4, plans[0].arena_bytes)));
}

TEST_F(CudaProgram, ResumesAndSpillsToTheDiskWithTheSameBits) {
  const std::string whole = folder_.file("whole"), half = folder_.file("half"), rest = folder_.file("rest");
  ASSERT_EQ(run(gpt(), "none", -1, {"--save", whole}).status, 0);
  ASSERT_EQ(run(gpt(), "none", -1, {"--save", half, "--steps", "2"}).status, 0);
  const ProgramRun spilled =
      run(gpt(), "h-revolve", 0, {"--resume", half, "--save", rest, "--disk", folder_.file("spill")});
  ASSERT_EQ(spilled.status, 0) << spilled.err;
  EXPECT_EQ(snapshot_tensors(whole), snapshot_tensors(rest));
}

// Bits must be equal, whether the program is recorded or runs row by row. All pinned memory must be
// freed at the end.
TEST_F(CudaProgram, KeepsValuesInPinnedMemoryWithTheSameBits) {
  const std::string
      whole = folder_.file("whole"),
      to_host = R"(, "schedule": {"strategy": "h-revolve", "host": "64MiB", "write_cost": 0.1, "read_cost": 0.1})";
  const ProgramRun stored = run(gpt(), "none", -1, {"--save", whole});
  ASSERT_EQ(stored.status, 0);
  ASSERT_NE(snapshot_tensors(whole), "");
  for (const bool late : {false, true}) {
    for (const bool eager : {false, true}) {
      const std::string saved = folder_.file(std::string(late ? "late" : "early") + (eager ? "eager" : "recorded"));
      std::vector<std::string> arguments = {"--save", saved};
      if (eager) arguments.push_back("--eager");
      fibre::set_late_copies(late);
      const ProgramRun spilled = run(gpt(to_host), "h-revolve", 0, arguments);
      ASSERT_EQ(spilled.status, 0) << spilled.err;
      EXPECT_EQ(stored.log.results(), spilled.log.results());
      EXPECT_EQ(snapshot_tensors(whole), snapshot_tensors(saved)) << saved;
      EXPECT_NE(spilled.err.find("in memory of the host"), std::string::npos) << spilled.err;
      EXPECT_EQ(fake_cuda_card().live_resources, 0u) << "the copies' queue, its events and the memory are given back";
    }
  }
}

// Moments are kept in pinned memory, loaded for each update and stored again. The bits must not
// change.
TEST_F(CudaProgram, KeepsMomentsInPinnedMemoryWithTheSameBits) {
  const auto wide = [](const std::string& of_the_optimizer) {
    std::string text = gpt();
    text.replace(text.find("37"), 2, "1100");
    const std::string last = R"("weight_decay": 0.1)";
    return text.replace(text.find(last), last.size(), last + of_the_optimizer);
  };
  const std::string whole = folder_.file("whole");
  const ProgramRun stored = run(wide(""), "none", -1, {"--save", whole});
  ASSERT_EQ(stored.status, 0);
  ASSERT_NE(snapshot_tensors(whole), "");
  for (const bool late : {false, true}) {
    const std::string saved = folder_.file(late ? "late" : "early");
    fibre::set_late_copies(late);
    const ProgramRun offloaded = run(wide(R"(, "offload": true)"), "none", -1, {"--save", saved});
    ASSERT_EQ(offloaded.status, 0) << offloaded.err;
    EXPECT_EQ(stored.log.results(), offloaded.log.results());
    EXPECT_EQ(snapshot_tensors(whole), snapshot_tensors(saved)) << saved;
    EXPECT_NE(offloaded.err.find("in memory of the host"), std::string::npos) << offloaded.err;
  }
}

TEST_F(CudaPort, MemoryOfTheHostIsPinnedOrRefusedInOneLine) {
  Backend backend;
  HostMemory memory, second;
  ASSERT_TRUE(cuda_port().open_backend("cuda", &backend).ok());
  const uint64_t before = fake_cuda_card().live_resources;
  ASSERT_TRUE(cuda_port().acquire_host(1 << 20, &memory).ok());
  EXPECT_EQ(memory.bytes, uint64_t{1} << 20);
  EXPECT_EQ(cuda_port().acquire_host(1 << 20, &second).code, Code::kUnsupported);
  cuda_port().release_host(&memory);
  EXPECT_EQ(fake_cuda_card().live_resources, before);
  const Status large = cuda_port().acquire_host(uint64_t{1} << 60, &memory);
  EXPECT_EQ(large.code, Code::kOutOfMemory);
  EXPECT_NE(std::string(large.message).find("1099511627776 MiB"), std::string::npos) << large.message;
  EXPECT_NE(std::string(large.message).find("available"), std::string::npos) << large.message;
  for (const char* each : {"allocate_pinned", "create_stream", "create_event"}) {
    fake_cuda_card().fails = {each};
    EXPECT_FALSE(cuda_port().acquire_host(1 << 20, &memory).ok()) << each;
    EXPECT_EQ(memory.base, nullptr);
    EXPECT_EQ(fake_cuda_card().live_resources, before) << each;
  }
  fake_cuda_card().fails = {};
  cuda_port().close_backend(&backend);
  fake_cuda_card().is_integrated = true;
  ASSERT_TRUE(cuda_port().open_backend("cuda", &backend).ok());
  const Status shared = cuda_port().acquire_host(1 << 20, &memory);
  EXPECT_EQ(shared.code, Code::kUnsupported);
  EXPECT_NE(std::string(shared.message).find("the host's own"), std::string::npos) << shared.message;
  cuda_port().close_backend(&backend);
}

// Returns the recipe of a net so wide that the planner streams its matrices. Its head is not tied
// to the embeddings, so the embeddings may stay in the file.
std::string streaming_gpt(const std::string& weights) {
  return R"({"name": "tiny-gpt", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 24, "n_embd": 64, "n_layer": 2, "n_head": 2,
         "tie_word_embeddings": false, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 11,
         "steps": 3, "backend": "cuda", "lora": {"r": 2}, "optimizer": {"name": "sgd", "lr": 0.1}, "init": "random", "weights": )" +
         weights + "}";
}

TEST_F(CudaProgram, StreamsWeightsThroughPinnedMemoryWithTheSameBits) {
  const std::string resident = folder_.file("resident"), streamed = folder_.file("streamed"),
                    file = folder_.file("weights");
  const ProgramRun whole = run(streaming_gpt(R"({"frozen": "q8_0"})"), "none", -1, {"--save", resident});
  ASSERT_EQ(whole.status, 0) << whole.err;
  const ProgramRun loads = run(streaming_gpt(R"({"frozen": "q8_0", "stream": true, "embedding": "from_file"})"),
                               "optimal", 0, {"--save", streamed, "--streamed", file});
  ASSERT_EQ(loads.status, 0) << loads.err;
  EXPECT_NE(loads.err.find("(equal)"), std::string::npos) << loads.err;
  EXPECT_EQ(whole.log.results(), loads.log.results());
  ASSERT_NE(snapshot_tensors(resident), "");
  EXPECT_EQ(snapshot_tensors(resident), snapshot_tensors(streamed));
  EXPECT_EQ(fake_cuda_card().live_resources, 0u) << "streams and pinned memory are given back";
}

TEST_F(CudaProgram, AllocatesNothingFromStepToStep) {
  ASSERT_EQ(run(gpt(), "optimal", 0, {"--steps", "2"}).status, 0);
  const uint64_t of_two = fake_cuda_card().calls;
  ASSERT_EQ(run(gpt(), "optimal", 0, {"--steps", "6"}).status, 0);
  EXPECT_EQ(fake_cuda_card().calls, 2 * of_two);
}

TEST_F(CudaProgram, NamesTheRowThatFailsAndKeepsTheLastSnapshot) {
  const std::string saved = folder_.file("saved");
  ASSERT_EQ(run(gpt(), "none", -1, {"--save", saved, "--steps", "2"}).status, 0);
  const std::string before = snapshot_tensors(saved);
  ASSERT_NE(before, "");
  const auto fails = [&](std::vector<std::string> arguments, const char* named) {
    arguments.insert(arguments.end(), {"--resume", saved, "--save", saved});
    fibre::fail_launch(150);
    const ProgramRun failed = run(gpt(), "none", -1, arguments);
    EXPECT_EQ(failed.status, 1);
    for (const char* words : {"tiny-gpt: ", "launch failure", named})
      EXPECT_NE(failed.err.find(words), std::string::npos) << failed.err;
    EXPECT_NE(fibre::take_report().text, "") << "nothing has failed";
    EXPECT_EQ(snapshot_tensors(saved), before);
    fibre::fail_launch(0);
    (void)cudaGetLastError();  // on a card the error would remain until the process ends
  };
  fails({}, "--eager");
  fails({"--eager"}, "; in row ");
}

TEST_F(CudaProgram, RefusesInOneLineWhatTheMachineLacks) {
  fake_cuda_card().has_driver = false;
  ProgramRun result = run(gpt(), "none", -1, {});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.err, "tiny-gpt: no NVIDIA driver here: this one is a test's\n");
  fake_cuda_card() = {.taken_by_others = uint64_t{8} << 30};
  result = run(gpt(), "none", -1, {});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("less room"), std::string::npos) << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

TEST_F(CudaProgram, AutoTakesTheCardWhereItCanAndSaysWhy) {
  const std::string text = gpt();
  const PlannedRun card = plan_run(recipe_from(text), "none");
  std::string for_all = text;
  for_all.replace(for_all.find("\"cuda\""), 6, "\"auto\"");
  const PlannedRun cpu = plan_run(recipe_from(for_all), "none");
  ProgramRun result = run_choices({card, cpu}, {"--steps", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("backend auto: trains on cuda"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("kernels cuda/"), std::string::npos) << result.err;
  fake_cuda_card().taken_by_others = fake_cuda_card().total_bytes;
  result = run_choices({card, cpu}, {"--steps", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* words :
       {"backend auto: not on cuda: the card has less room", "backend auto: trains on cpu", "kernels cpu/"}) {
    EXPECT_NE(result.err.find(words), std::string::npos) << words << " in " << result.err;
  }
}

// bind() must record every program that has rows, and unbind() must free the recordings.
TEST_F(CudaPort, RecordsEveryProgramOnce) {
  Backend backend;
  Arena arena;
  ASSERT_TRUE(cuda_port().open_backend("cuda", &backend).ok());
  Recipe recipe = recipe_from(gpt());
  recipe.schedule.host_bytes = uint64_t{1} << 30;  // the copies to the host are also recorded
  recipe.schedule.write_cost = recipe.schedule.read_cost = 0.25;
  const PlannedRun run = plan_run(recipe, "h-revolve", 0);
  const Plan plan = run.planned.plan.view();
  HostMemory memory;
  ASSERT_TRUE(cuda_port().acquire_arena(plan.arena_bytes, &arena).ok());
  ASSERT_TRUE(cuda_port().acquire_host(plan.spill_bytes, &memory).ok());
  Workers workers;
  workers.stack_bytes = plan.worker_stack_bytes;
  Trainer trainer;
  const Status bound = bind_plan(plan, backend, workers, arena, trainer, {}, {}, memory);
  ASSERT_TRUE(bound.ok()) << bound.message;
  for (uint32_t p = 0; p < kProgramCount; ++p)
    EXPECT_EQ(trainer.recordings[p] != nullptr, plan.programs[p].rows.count > 0) << p;
  unbind(trainer);
  for (const void* recording : trainer.recordings) EXPECT_EQ(recording, nullptr);
  cuda_port().release_host(&memory);
  cuda_port().release_arena(&arena);
  cuda_port().close_backend(&backend);
}

}  // namespace
}  // namespace reprise::test
