// Plants a violation at each kind of seam between modules. The program must stop and print the
// sentence of the assertion that guards the seam. Assertions on a kernel's arguments are in
// tests/ops/door_test.cpp, those of cards in tests/ports/cards/cuda_assertions_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lib/cpu/gemm/gemm.h"
#include "lib/state_bank.h"
#include "lib/trainer.h"
#include "tests/planner/deep_resnet.h"
#include "tests/ports/test_machine.h"
#include "tools/plan/graph/cuts.h"
#include "tools/plan/graph/fold.h"
#include "tools/plan/graph/link_signature.h"
#include "tools/plan/graph/link_solver.h"
#include "tools/plan/graph/offload.h"
#include "tools/plan/graph/skips.h"
#include "tools/plan/layout/gradient_path.h"
#include "tools/plan/layout/pack.h"
#include "tools/plan/lowering/program_builder.h"
#include "tools/plan/planning/planner.h"
#include "tools/plan/schedule/recursion.h"
#include "tools/plan/schedule/schedule.h"
#include "tools/run/data/sample_order.h"

namespace reprise {
namespace {

// Returns the regular expression of the message of the assertion in `file` with this sentence.
std::string says(const std::string& file, const std::string& sentence) {
  std::string escaped;
  for (const char c : sentence) {
    if (c == '(' || c == ')' || c == '.') escaped += '\\';
    escaped += c;
  }
  return file + ":[0-9]+: assertion failed: " + escaped;
}

// ---- the graph and its links ----

// A linear layer, a ReLU, a second linear layer and the loss.
struct SmallNet {
  Graph graph;

  SmallNet() {
    graph.input = graph.add_value("x", ValueKind::kInput, {2, 3, 8});
    graph.labels = graph.add_value("labels", ValueKind::kLabels, {2, 3}, DType::kI32);
    const ValueId first = graph.linear(graph.input, "first", 8, false, false, 1);
    const ValueId second = graph.linear(graph.relu(first, "relu"), "second", 8, false, false, 1);
    graph.loss_head(second, "loss", graph.parameter("w", {5, 8}, InitKind::kNormal, 1), kNoValue);
  }
};

double price_of_one(const Graph&, const Call&) { return 1; }

TEST(GraphAssertions, StopNodesOutOfOrder) {
  SmallNet net;
  EXPECT_NO_THROW((void)cut_into_links(net.graph));
  std::swap(net.graph.nodes[0], net.graph.nodes[1]);
  EXPECT_DEATH((void)cut_into_links(net.graph),
               says("link.cpp", "a node reads values of its graph, which earlier nodes write"));
}

TEST(GraphAssertions, StopASecondWriter) {
  SmallNet net;
  net.graph.nodes[1].outputs = net.graph.nodes[0].outputs;
  EXPECT_DEATH((void)cut_into_links(net.graph), says("link.cpp", "one node writes a value"));
}

TEST(GraphAssertions, StopACallOfTooManyArguments) {
  const AttributePools pools;
  KernelCall call{Op::kCopy, Pass::kForward, 0, 0, std::vector<const Tensor*>(kMaxArguments, nullptr)};
  EXPECT_FALSE(ShapedKernelCall(call, pools).shaped().has(0));
  call.tensors.push_back(nullptr);
  EXPECT_DEATH(ShapedKernelCall(call, pools), says("graph.h", "a call has at most kMaxArguments arguments"));
}

TEST(ArrangementAssertions, StopACallThatReadsWhatNoneWrites) {
  const SmallNet net;
  const std::vector<Call> calls = forward_calls(net.graph, net.graph.nodes[1]);
  EXPECT_EQ(arrange_calls(net.graph, calls, net.graph.nodes[0].outputs, kNoScratch).calls.size(), 1u);
  EXPECT_DEATH((void)arrange_calls(net.graph, calls, {}, kNoScratch),
               says("arrange.cpp", "a call reads only placed values and those that an earlier call writes"));
}

TEST(CutAssertions, StopLinksThatCannotBeEnumerated) {
  const SmallNet net;
  EXPECT_DEATH((void)find_cuts(net.graph, kMaxCandidates + 1),
               says("cuts.cpp", "links are cut for at most kMaxCandidates values"));
}

TEST(FrontAssertions, StopAFrontInAnotherOrder) {
  SmallNet net;
  ChainBodies bodies = cut_into_links(net.graph);
  EXPECT_DEATH((void)chain_of(net.graph, bodies.links), says("link.cpp", "a link has a tape"));
  solve_links(net.graph, bodies.links, kNoScratch, price_of_one);
  EXPECT_EQ(chain_of(net.graph, bodies.links).length(), 1);
  std::vector<TapeChoice>& tapes = bodies.links[0].tapes;
  tapes.push_back(tapes[0]);
  tapes.back().bytes += 256;
  EXPECT_DEATH((void)chain_of(net.graph, bodies.links),
               says("link.cpp", "a link's front begins with the largest tape, and bytes do not grow"));
  tapes.pop_back();
  bodies.links[0].residues.push_back({});
  EXPECT_DEATH((void)chain_of(net.graph, bodies.links), says("link.cpp", "a residue has a price for each tape"));
}

TEST(FrontAssertions, StopAModeBeforeTheLinkIsSolved) {
  SmallNet net;
  ChainBodies bodies = cut_into_links(net.graph);
  const CallPrice price = price_of_one;
  LinkSolver solver(net.graph, bodies.links[0], kNoScratch, price);
  EXPECT_DEATH(solver.add_mode(1),
               says("link_solver.cpp", "a mode chooses among the residues that solve() has found"));
}

TEST(FrontAssertions, StopATransferToAnotherLink) {
  LinkBody to;
  EXPECT_DEATH(transfer_solution({}, to, {1, 2}, {1}),
               says("link_signature.cpp", "links of equal signature have as many values and calls"));
}

TEST(SkipAssertions, StopASkipThatIsReadFirst) {
  SmallNet net;
  LinkBody link;
  link.forward = forward_calls(net.graph, net.graph.nodes[1]);
  net.graph.values[net.graph.nodes[0].outputs[0]].kind = ValueKind::kSkip;
  EXPECT_DEATH((void)pack_skips(net.graph, {link}),
               says("skips.cpp", "a skip or its gradient is written before it is read"));
}

TEST(FoldAssertions, StopAReluWhoseGradientAnotherOpReads) {
  Graph graph;
  graph.input = graph.add_value("images", ValueKind::kInput, {2, 8, 8, 4});
  graph.labels = graph.add_value("labels", ValueKind::kLabels, {128}, DType::kI32);
  const WindowAttribute window = {3, 3, 1, 1};
  const ValueId normed = graph.batch_norm(graph.conv(graph.input, "conv0", 16, window), "bn");
  const ValueId x = graph.conv(graph.relu(normed, "relu"), "conv1", 16, window);
  graph.loss_head(x, "loss", graph.parameter("w", {5, 16}, InitKind::kNormal, 1), kNoValue);
  std::vector<Call> forward;
  for (const Node& node : graph.nodes) {
    for (const Call& call : forward_calls(graph, node)) forward.push_back(call);
  }
  std::vector<Call> backward =
      BackwardBuilder(graph).build(0, graph.nodes.size(), graph.input, kNoValue, kNoValue).calls;
  const auto norm = std::find_if(backward.begin(), backward.end(), [](const Call& call) {
    return call.op == Op::kBatchNorm && call.pass == Pass::kBackward;
  });
  ASSERT_NE(norm, backward.end());
  norm->op = Op::kGroupNorm;
  EXPECT_DEATH(fold_norms(graph, forward, backward),
               says("fold.cpp", "the gradient of a folded relu is read by its norm's backward"));
}

TEST(OffloadAssertions, StopAnotherPolicy) {
  SmallNet net;
  const ChainBodies bodies = cut_into_links(net.graph);
  EXPECT_DEATH((void)offloaded_starts("names:relu", net.graph, bodies.links, "net"),
               says("offload.cpp", "the policy offloads, and the chain has links"));
}

// ---- layout ----

TEST(PackAssertions, StopAPackingThatIsNone) {
  const std::vector<PackBuffer> buffers = {{0, 2, 256}, {1, 3, 256}};
  assert_packed(buffers, {0, 256}, 256, 512);
  EXPECT_DEATH(assert_packed(buffers, {0, 384}, 256, 1024), says("pack.cpp", "a packed buffer is aligned"));
  EXPECT_DEATH(assert_packed(buffers, {0, 256}, 256, 256), says("pack.cpp", "a packed buffer ends within the packing"));
  EXPECT_DEATH(assert_packed(buffers, {0, 0}, 256, 512),
               says("pack.cpp", "no two live buffers of a packing overlap"));
}

TEST(PackAssertions, StopProblemsWithoutMeaning) {
  EXPECT_DEATH((void)pack_buffers({{0, 1, 1}}, {.alignment = 0}),
               says("pack.cpp", "buffers are aligned to one byte at least"));
  EXPECT_DEATH((void)search_packing({{3, 3, 1}}, 8, {.nodes = 10}),
               says("pack_search.cpp", "a searched buffer has bytes and a lifetime"));
}

TEST(GradientPathAssertions, StopAGapThatEndsBeforeItBegins) {
  EXPECT_DEATH((void)float_gradient({GapStep{.bottom = 8, .top = 0, .forwards = {}}}),
               says("gradient_path.cpp", "a gap begins before it ends, and its blocks have no negative size"));
}

// ---- the schedule ----

Chain chain_of_three() {
  Chain chain;
  chain.input_bytes = 1;
  for (int i = 0; i < 3; ++i) {
    Link link;
    link.name = "link";
    link.forward_cost = 1;
    link.boundary_bytes = i < 2 ? 2 : 0;
    link.tapes = {{.bytes = link.boundary_bytes + 3, .backward_cost = 2}};
    chain.links.push_back(link);
  }
  return chain;
}

TEST(ScheduleAssertions, StopSegmentsOutOfOrder) {
  const Chain chain = chain_of_three();
  EXPECT_TRUE(make_schedule(chain, {.starts = {0, 2}}).feasible);
  EXPECT_DEATH((void)make_schedule(chain, {.starts = {1, 2}}),
               says("schedule.cpp", "the first segment begins at link 0"));
  for (const std::vector<int>& starts : {std::vector<int>{0, 2, 1}, {0, 3}, {0, 0}}) {
    EXPECT_DEATH((void)make_schedule(chain, {.starts = starts}),
                 says("schedule.cpp", "segments begin at links in rising order"));
  }
}

TEST(ScheduleAssertions, StopAPlanBelowTheMinimum) {
  const UnitChain units = chain_in_units(chain_of_three(), {});
  const Bounds bounds(units, 0, false);
  const MinMemory minimum(units, bounds, 0);
  const int64_t least = minimum.at(kPlain, 0, units.length() - 1);
  EXPECT_FALSE(minimum.plan(least).empty());
  EXPECT_DEATH((void)minimum.plan(least - 1), says("recursion.cpp", "a plan has the chain's minimum memory"));
}

TEST(ScheduleAssertions, StopAUnitOfNothing) {
  EXPECT_DEATH((void)chain_in_units(chain_of_three(), {.unit = 0}), says("units.cpp", "a unit has one byte at least"));
}

// ---- lowering ----

struct TinyPlan {
  SolvedModel model;
  Schedule schedule;
  ChainLayout layout;

  TinyPlan()
      : model(solve_model(parse_recipe(
            R"({"name": "tiny", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 8, "n_embd": 16,
            "n_layer": 1, "n_head": 2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
            "data": {"kind": "synthetic"}, "batch": 2, "optimizer": {"name": "sgd", "lr": 0.1}, "steps": 1})",
            "tiny.json", "/"))),
        schedule(make_schedule(model.chain, {})),
        layout(layout_chain(model.chain, schedule.actions)) {}

  LoweringInput input() const {
    return {model.graph, model.bodies.links, model.state, kNoScratch, model.window, model.skips, model.sharing};
  }
};

TEST(LoweringAssertions, StopALayoutOfAnotherSchedule) {
  TinyPlan plan;
  EXPECT_FALSE(lower_schedule(plan.model, plan.schedule, plan.layout).programs[0].rows.empty());
  plan.layout.actions.pop_back();
  EXPECT_DEATH((void)lower_schedule(plan.model, plan.schedule, plan.layout),
               says("lower.cpp", "a layout places each action of the schedule"));
}

TEST(LoweringAssertions, StopABlockThatIsNotAligned) {
  TinyPlan plan;
  for (ActionPlacement& action : plan.layout.actions) action.tape += 1;
  EXPECT_DEATH((void)lower_schedule(plan.model, plan.schedule, plan.layout),
               says("program_builder.cpp", "a slot is aligned to 256 bytes"));
}

TEST(LoweringAssertions, StopABackwardWithoutARecord) {
  TinyPlan plan;
  plan.schedule.actions = {{.kind = ActionKind::kBackward, .first = plan.model.chain.length() - 1}};
  plan.layout.actions.assign(1, {});
  EXPECT_DEATH((void)lower_schedule(plan.model, plan.schedule, plan.layout),
               says("lower.cpp", "a backward follows its link's record"));
}

TEST(LoweringAssertions, StopAnArrangementWithoutScratch) {
  const TinyPlan plan;
  const LoweringInput input = plan.input();
  ProgramBuilder builder(input, ProgramId::kMicroFirst);
  ArrangedCalls arranged;
  arranged.calls.resize(1);
  EXPECT_DEATH(builder.emit(arranged, 0, {}, 0, true),
               says("program_builder.cpp", "an arrangement states the scratch of each of its calls"));
}

TEST(SharingAssertions, StopRanksWithOtherAttributes) {
  Graph graph;
  graph.attributes.intern(ShareAttribute{5});
  EXPECT_DEATH((void)plan_sharing(graph, {}, {}, 2, false),
               says("sharing.cpp", "the attribute of a rank has the rank as its index"));
}

TEST(SharingAssertions, StopTooLittleSpace) {
  const SmallNet net;
  OwnedProgram program;
  EXPECT_DEATH(share_gradients(program, ProgramId::kMicroFirst, net.graph, {}, {.ranks = 2, .min_bytes = 256}, 0),
               says("sharing.cpp", "what ranks share has its minimum of space"));
}

TEST(SharingAssertions, StopAnOwnerThatIsNoRank) {
  const SmallNet net;
  TrainingState state;
  state.state = {net.graph.input};
  state.owners[net.graph.input] = 3;
  OwnedProgram program;
  program.rows.push_back({.op = Op::kCopy, .pass = Pass::kForward, .first_argument = 0});
  program.arguments = {make_ref(Region::kState, 0), make_ref(Region::kState, 0)};
  EXPECT_DEATH(share_parameters(program, net.graph, state),
               says("sharing.cpp", "the owner of a moment is one of the ranks"));
}

TEST(WindowAssertions, StopUsesOutOfOrder) {
  for (const std::vector<WeightUse>& uses : {std::vector<WeightUse>{{3, 0}, {1, 0}}, {{0, 1}}}) {
    EXPECT_DEATH((void)fill_window(uses, {4096}, 4096),
                 says("weight_window.cpp", "uses of weights are in the order of rows, and each weight has bytes"));
  }
}

// ---- batches ----

TEST(BatchAssertions, StopSamplesOutsideOfTheSet) {
  EXPECT_DEATH((void)permuted(3, 3, 0, 0),
               says("sample_order.cpp", "an index is less than the size of its permutation"));
  EXPECT_DEATH((void)stand_in(0, 0, 0, 0, 0),
               says("sample_order.cpp", "a stand-in is drawn from some samples, at most 2\\^32 times"));
  Recipe recipe;
  recipe.batch = 4;
  const SampleOrder order(recipe, Split::kTraining, 10);
  EXPECT_TRUE(order.sample_at(0, 0, 3));
  EXPECT_DEATH((void)order.sample_at(0, 0, 4),
               says("sample_order.cpp", "a place in a micro-batch is less than the batch"));
}

// ---- lib: rows, State, transfers ----

// A trainer of a plan without rows. Tests add one row, and run it by dispatch().
class RowAssertions : public ::testing::Test {
 protected:
  RowAssertions() {
    plan_.state = {&state_, 1};
    plan_.state_bytes = kAlignment;
    trainer_.plan = &plan_;
    trainer_.backend = &test::test_backend();
    trainer_.context.workers = &alone_;
    trainer_.context.machine = trainer_.backend->machine;
    trainer_.arena = {{memory_}, sizeof memory_};
  }

  Status run(Row row) {
    row_ = row;
    Program& program = plan_.programs[0];
    program.rows = {&row_, 1};
    program.arguments = {refs_, 3};
    program.slots = {slots_, 3};
    program.spilled = {&spilled_, 1};
    return dispatch(trainer_, program, row_, false);
  }

  Ref refs_[3] = {0, 1, 2};
  Slot slots_[3] = {{.tensor = {0, 256, DType::kF32, 1, {64, 1, 1, 1}}},
                    {.tensor = {256, 1024, DType::kF32, 2, {4, 64, 1, 1}}},
                    {.tensor = {1280, 4096, DType::kU8, 1, {4096, 1, 1, 1}}}};
  Slot spilled_ = {.tensor = {0, 256, DType::kF32, 1, {64, 1, 1, 1}}};
  StateTensor state_ = {.tensor = {0, 256, DType::kF32, 1, {64, 1, 1, 1}}};
  Plan plan_;
  Trainer trainer_;
  alignas(kAlignment) unsigned char memory_[6144] = {};

 private:
  Row row_ = {};
  const Workers alone_ = {.stack_bytes = 1 << 20};
};

TEST_F(RowAssertions, StopAnArgumentOutsideOfTheArena) {
  const Row row = {.op = Op::kLinear, .pass = Pass::kBackwardBias, .first_argument = 0};
  EXPECT_TRUE(run(row).ok());
  slots_[1].tensor.offset = sizeof memory_ - kAlignment;
  EXPECT_DEATH((void)run(row), says("dispatch.cpp", "a kernel's arguments are in the arena"));
}

TEST_F(RowAssertions, StopAPartOfStateThatEndsBehindItsTensor) {
  unsigned char bytes[64] = {};
  EXPECT_TRUE(trainer_.write_state(0, 192, bytes, 64).ok());
  EXPECT_DEATH((void)trainer_.write_state(0, 193, bytes, 64),
               says("program_run.cpp", "a written part of State is within one tensor"));
  EXPECT_DEATH((void)trainer_.read_state(1, 0, bytes, 64),
               says("program_run.cpp", "a part of State that is read is within one tensor"));
}

TEST_F(RowAssertions, StopABlockBehindTheSecondLevel) {
  const Row row = {.op = Op::kTransfer, .pass = Pass::kStart, .first_argument = 0};
  refs_[0] = make_ref(Region::kSpill, 0), refs_[1] = make_ref(Region::kProgram, 0);
  trainer_.disk.bytes = trainer_.host_memory.bytes = 128;
  plan_.spill_level = SpillLevel::kDisk;
  EXPECT_DEATH((void)run(row), says("carriers.cpp", "a block that is copied is on the disk"));
  plan_.spill_level = SpillLevel::kHost;
  EXPECT_DEATH((void)run(row), says("carriers.cpp", "a block that is copied is in the memory of the host"));
}

TEST_F(RowAssertions, StopAParameterWithoutEqualSlices) {
  state_.kind = StateKind::kStreamed;
  plan_.ranks = 3;
  plan_.shard_bytes = 64;
  trainer_.peers.count = 3;
  trainer_.peers.wait = [](void*, const void*) { return ok_status(); };
  trainer_.peers.start_broadcast = [](void*, uint32_t, void*, uint64_t) { return ok_status(); };
  refs_[0] = make_ref(Region::kProgram, 0), refs_[1] = make_ref(Region::kState, 0);
  EXPECT_DEATH((void)run({.op = Op::kLoad, .pass = Pass::kStart, .first_argument = 0}),
               says("carriers.cpp", "a streamed parameter has a slice of equal size in each rank"));
}

TEST_F(RowAssertions, StopTokensWithoutDocumentStarts) {
  slots_[0] = {.tensor = {0, 256, DType::kI32, 2, {1, 4, 1, 1}}};
  slots_[1] = {.tensor = {256, 256, DType::kI32, 2, {1, 3, 1, 1}}};
  slots_[2] = {.tensor = {512, 256, DType::kF32, 2, {4, 8, 1, 1}}, .use = SlotKind::kCache};
  const Row row = {.op = Op::kCopy, .pass = Pass::kForward, .first_argument = 0};
  Program& program = plan_.programs[static_cast<uint32_t>(ProgramId::kGenerate)];
  program.rows = {&row, 1};
  program.arguments = {refs_, 3};
  program.slots = {slots_, 3};
  program.input = 0, program.document_start = 1, program.output = 2;
  const int32_t token = 0;
  float logits[8];
  EXPECT_DEATH((void)generate(trainer_, &token, 1, 0, logits),
               says("generation.cpp", "each token has a document start"));
}

TEST_F(RowAssertions, StopABankThatWasNotChecked) {
  const BankHeader header = {};
  EXPECT_DEATH((void)read_bank(trainer_, header),
               says("state_bank.cpp", "a bank is read after check_bank() has accepted it"));
}

TEST_F(RowAssertions, StopCopiesOfTheHostWithoutMeaning) {
  const HostAccess& host = trainer_.backend->host;
  EXPECT_TRUE(host.copy(trainer_.context, {memory_}, {memory_ + 64}, 64).ok());
  EXPECT_DEATH((void)host.copy(trainer_.context, {memory_}, {memory_ + 64}, 65),
               says("cpu_host_access.cpp", "the ranges of a copy do not overlap"));
  EXPECT_DEATH((void)host.fill(trainer_.context, {memory_}, 0, 6),
               says("cpu_host_access.cpp", "a filled range has whole words"));
}

// ---- lib/cpu: splits and products ----

TEST_F(RowAssertions, StopAProductOfNoDepth) {
  alignas(64) float numbers[4096] = {};
  const MatrixPacker operand = {numbers, 1, 1};
  EXPECT_DEATH(gemm(trainer_.context, {1, 1, 0}, operand, operand, MatrixOutput{numbers, 1}, false, numbers),
               says("gemm.h", "a product's depth is a multiple of its tile's group, and not 0"));
}

TEST(PartitionAssertions, StopMorePiecesThanAreCounted) {
  const auto nothing = [](uint64_t, uint64_t) {};
  for_each_piece(Workers{}, Partition{0, 1}, nothing);
  for (const Partition& split : {Partition{uint64_t{1} << 40, 1}, Partition{8, 0}}) {
    EXPECT_DEATH(for_each_piece(Workers{}, split, nothing),
                 says("partition.h", "the pieces of a split cover all elements, and 32 bits count them"));
  }
}

// ---- ports ----

TEST(WorkerAssertions, StopACallInsideOfACall) {
  const auto nothing = [](void*, uint32_t) {};
  const auto call_again = [](void* workers, uint32_t) {
    const Workers& own = *static_cast<const Workers*>(workers);
    own.run(own.state, 1, [](void*, uint32_t) {}, nullptr);
  };
  const auto run_nested = [&] {
    Workers workers;
    (void)linux_port().start_workers(2, &workers);
    workers.run(workers.state, 3, nothing, nullptr);
    workers.run(workers.state, 1, call_again, &workers);
  };
  EXPECT_DEATH(run_nested(), says("workers.cpp", "the workers' last call has ended"));
}

}  // namespace
}  // namespace reprise
