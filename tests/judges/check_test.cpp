// Tests that check() accepts complete plans and plans that are only just safe. It must refuse every
// unsafe plan and report the fault, program, row and slot, because a proof is only as good as its
// refusals. The plans are made by hand or by PlanBuilder, not by the planner.
#include "lib/check.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <set>

#include "tests/judges/directed_mutants.h"
#include "tests/judges/expect_fault.h"
#include "tests/judges/mutants.h"
#include "tests/judges/plan_edit.h"

namespace reprise::testing {
namespace {

// ---- proved while this file is compiled ----

constexpr uint32_t kLastFault = static_cast<uint32_t>(Fault::kRanks);

constexpr StateTensor kTinyState[] = {
    {.tensor = {0, 256, DType::kU8, 1, {128, 1, 1, 1}}, .kind = StateKind::kScalars, .name = "scalars"}};
static_assert(sizeof(StepScalars) <= 128);
constexpr Row kTinyRows[] = {{.op = Op::kRelu, .pass = Pass::kForward, .first_argument = 0},
                             {.op = Op::kCopy, .pass = Pass::kForward, .first_argument = 2},
                             {.op = Op::kAdd, .pass = Pass::kForward, .first_argument = 4}};
constexpr Ref kTinyArguments[] = {1, 0, 2, 1, 2, 2, 1};
constexpr Slot kTinySlots[] = {
    {.tensor = {0, 256, DType::kF32, 4, {1, 4, 4, 4}}, .first_row = 0, .end_row = 1},
    {.tensor = {256, 256, DType::kF32, 1, {64, 1, 1, 1}}, .first_row = 0, .end_row = 3, .below = 0},
    {.tensor = {0, 256, DType::kF32, 2, {8, 8, 1, 1}}, .first_row = 1, .end_row = 3}};
constexpr Plan tiny_plan(const Slot* slots) {
  Plan plan;
  plan.state = {kTinyState, 1};
  plan.programs[0] = {{kTinyRows, 3}, {kTinyArguments, 7}, {slots, 3}, 512, 0, kNoSlot};
  plan.state_bytes = 256;
  plan.arena_bytes = 768;
  plan.worker_stack_bytes = kFrameStackBytes;
  return plan;
}
constexpr Plan kTinyPlan = tiny_plan(kTinySlots);
constexpr Verdict kTinyVerdict = prove<4>(kTinyPlan, kSampleRules);
static_assert(PlanIsSafe<kTinyVerdict.fault, kTinyVerdict.program, kTinyVerdict.row, kTinyVerdict.slot>::value);
static_assert(check_marks(kTinyPlan) == 4);

// kTinyPlan with slot 2 at the address of slot 1, which is still live.
constexpr Slot kTinyOverlap[] = {
    kTinySlots[0], kTinySlots[1], {.tensor = {256, 256, DType::kF32, 2, {8, 8, 1, 1}}, .first_row = 1, .end_row = 3}};
constexpr Plan kTinyFaulty = tiny_plan(kTinyOverlap);
constexpr Verdict kTinyFault = prove<4>(kTinyFaulty, kSampleRules);
static_assert(kTinyFault.fault == Fault::kOverlap && kTinyFault.program == 0 && kTinyFault.row == 1 &&
              kTinyFault.slot == 2);
static_assert(prove<3>(kTinyPlan, kSampleRules).fault == Fault::kFormat,
              "too small a workspace is refused, never overrun");

TEST(Check, AcceptsAtRunTimeWhatTheCompilerProved) {
  const Plan plan = kTinyPlan;
  CheckMark marks[4];
  // Fills the marks with arbitrary values, because check() must not depend on their initial
  // content.
  for (CheckMark& mark : marks) mark = {7, 7, 7, 7, true, true, Op::kMove, {7, true, true, true}, 7};
  EXPECT_TRUE(check(plan, marks, kSampleRules).ok());
}

TEST(Check, EveryFaultHasItsText) {
  std::set<std::string> texts;
  for (uint32_t f = 0; f <= kLastFault; ++f) texts.insert(fault_text(static_cast<Fault>(f)));
  EXPECT_EQ(texts.size(), kLastFault + 1);
  EXPECT_EQ(texts.count("unknown fault"), 0u);
}

// ---- whole plans ----

TEST(Check, AcceptsWholePlans) {
  EXPECT_SAFE(SampleConvNet().make());
  EXPECT_SAFE(SampleTransformer().make());
  EXPECT_SAFE(SampleReleased().make());
}

OwnedPlan spilling_plan();

TEST(Check, RejectsEveryMutantWithAnAcceptableFault) {
  std::set<Fault> seen;
  size_t semantic_accepted = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const OwnedPlan& good :
         {SampleConvNet().make(), SampleTransformer().make(), SampleReleased().make(), spilling_plan()}) {
      for (const PlanMutant& mutant : make_mutants(good, seed)) {
        const Verdict verdict = judge(mutant.plan);
        const auto& ok = mutant.acceptable;
        EXPECT_NE(std::find(ok.begin(), ok.end(), verdict.fault), ok.end())
            << "seed " << seed << ", " << mutant.name << ": " << shown(verdict);
        EXPECT_TRUE(mutant.semantic || !verdict.ok()) << "seed " << seed << ", " << mutant.name;
        seen.insert(verdict.fault);
        semantic_accepted += verdict.ok();
      }
    }
  }
  // The mutants of this test do not provoke these faults. RejectsEveryDirectedMutantWithItsFault
  // provokes the first three, and NoReadAfterTheSlotsNextLoad provokes kRefilled.
  for (const Fault fault : {Fault::kLearningRate, Fault::kStack, Fault::kBlocks, Fault::kRefilled}) seen.insert(fault);
  seen.insert(Fault::kDiesEarly);  // AnEvaluationAnswersPairsAlone provokes this fault
  for (uint32_t f = 0; f <= kLastFault; ++f) {
    EXPECT_TRUE(seen.count(static_cast<Fault>(f)))
        << "no mutant met fault " << f << ": " << fault_text(static_cast<Fault>(f));
  }
  EXPECT_GT(semantic_accepted, 100u);  // only their values are wrong, so the replay must reject them
}

TEST(Check, RejectsEveryDirectedMutantWithItsFault) {
  std::set<std::string> kinds;
  for (const OwnedPlan& good : {SampleConvNet().make(), SampleTransformer().make(), SampleReleased().make()}) {
    for (const PlanMutant& mutant : make_directed_mutants(good)) {
      const Verdict verdict = judge(mutant.plan);
      EXPECT_EQ(verdict.fault, mutant.acceptable.at(0)) << mutant.name << ": " << shown(verdict);
      kinds.insert(mutant.name);
    }
  }
  EXPECT_EQ(kinds.size(), 82u) << "a kind of directed mutant found no place in any plan";
}

// With gradient release, a row could write to a gradient's slot once more: before the update, so
// that the norm misses a part, or after the update. check() must refuse both plans.
TEST(Check, AGradientIsWholeWhenItIsApplied) {
  EXPECT_FAULT(SampleReleased(SampleReleased::Again::kBeforeUpdate).make(), kUpdate);
  EXPECT_FAULT(SampleReleased(SampleReleased::Again::kAfterUpdate).make(), kUpdate);
}

// ---- one fault at a time, on a plan of three rows ----

// Makes a plan with the rows copy y <- x, relu z <- y and add w <- z + x. Slots x, y and z have
// different addresses. Slot w gets the address of y, because y dies before w is born.
struct Small {
  PlanBuilder b;
  Ref x, y, z, w;
  OwnedPlan make() {
    b.begin(ProgramId::kMicroFirst);
    x = b.input({4, 16});
    y = b.slot({4, 16});
    z = b.slot({4, 16});
    w = b.slot({4, 16});
    b.row(Op::kCopy, Pass::kForward, {y, x});
    b.row(Op::kRelu, Pass::kForward, {z, y});
    b.row(Op::kAdd, Pass::kForward, {w, z, x});
    b.end();
    return b.finish();
  }
};

TEST(Check, NearMissesAreSafe) {
  OwnedPlan plan = Small().make();  // slots x y z w are born in rows 0 0 1 2; each has 256 bytes, all used
  EXPECT_SAFE(plan);
  EXPECT_EQ(plan.programs[0].slots[3].tensor.offset, 256u) << "w takes the place that y has just left";
  EXPECT_EQ(plan.programs[0].slots[3].end_row, plan.programs[0].rows.size());
  EXPECT_EQ(plan.programs[0].bytes, 768u);
  EXPECT_EQ(plan.arena_bytes, plan.state_bytes + plan.carried_bytes + plan.programs[0].bytes);
}

TEST(Check, NamesProgramRowAndSlot) {
  OwnedPlan plan = Small().make();
  plan.programs[0].slots[1].end_row = 3;  // y is still live when w is born
  const Verdict verdict = judge(plan);
  EXPECT_EQ(verdict.fault, Fault::kOverlap);
  EXPECT_EQ(verdict.program, 0u);
  EXPECT_EQ(verdict.row, 2u);
  EXPECT_EQ(verdict.slot, 3u);
}

TEST(Check, StateAndCarriedStayInTheirRegions) {
  OwnedPlan plan = SampleConvNet().make();
  plan.carried[1].offset -= 256;
  EXPECT_FAULT(plan, kOverlap);
  plan = SampleConvNet().make();
  plan.carried_bytes -= 256;
  EXPECT_FAULT(plan, kOutOfRegion);
  plan = SampleConvNet().make();
  plan.state_bytes += 4;
  EXPECT_FAULT(plan, kMisaligned);
  plan = SampleConvNet().make();
  plan.state[1].tensor.offset = ~uint64_t{0} - 255;  // offset + bytes overflows
  EXPECT_FAULT(plan, kOutOfRegion);
  plan = SampleConvNet().make();
  plan.state[1].tensor.dtype = static_cast<DType>(99);
  EXPECT_FAULT(plan, kDType);
}

TEST(Check, ShapesThatMakeNoSense) {
  OwnedPlan plan = Small().make();
  plan.programs[0].slots[1].tensor.rank = 5;
  EXPECT_FAULT(plan, kShape);
  plan = Small().make();
  plan.programs[0].slots[1].tensor.shape[3] = 2;  // the tensor has rank 2, so this dimension must be 1
  EXPECT_FAULT(plan, kShape);
  plan = Small().make();
  plan.programs[0].slots[1].tensor.shape[0] = 0;
  EXPECT_FAULT(plan, kShape);
  plan = Small().make();
  Tensor& huge = plan.programs[0].slots[1].tensor;
  huge.rank = 4;
  for (uint32_t& dimension : huge.shape) dimension = ~0u;  // the product overflows
  EXPECT_FAULT(plan, kShape);
}

// Activations are stored as f32 or bf16. All activations of a row must have the same type.
TEST(Check, ActivationsOfARowAreStoredAlike) {
  for (uint32_t odd = 0; odd < 4; ++odd) {
    OwnedPlan plan = Small().make();
    for (uint32_t i = 0; i < 4; ++i) plan.programs[0].slots[i].tensor.dtype = DType::kBf16;
    EXPECT_SAFE(plan);
    plan.programs[0].slots[odd].tensor.dtype = DType::kF32;
    EXPECT_FAULT(plan, kDType);
  }
  OwnedPlan plan = Small().make();
  for (uint32_t i = 1; i < 4; ++i) plan.programs[0].slots[i].tensor.dtype = DType::kI32;
  EXPECT_FAULT(plan, kDType);
}

TEST(Check, HostSlotsAreThereBeforeTheFirstRow) {
  OwnedPlan plan = Small().make();
  plan.programs[0].input = 9;
  EXPECT_FAULT(plan, kBadReference);
  plan = Small().make();
  plan.programs[0].input = 3;  // w is born in row 2
  EXPECT_FAULT(plan, kSlotOrder);
  plan = Small().make();
  plan.programs[0].labels = plan.programs[0].input;
  EXPECT_FAULT(plan, kAliasing);
  plan = Small().make();
  std::swap(plan.programs[0].labels, plan.programs[0].input);  // labels are then read by a row as activations
  EXPECT_FAULT(plan, kHostSlot);
  plan = Small().make();
  plan.programs[0].input = kNoSlot;  // x is then never written
  EXPECT_FAULT(plan, kReadBeforeWrite);
}

TEST(Check, ProgramsThatBelongTogether) {
  OwnedPlan plan = SampleConvNet().make();
  plan.program(ProgramId::kMicroAdd) = {};
  EXPECT_FAULT(plan, kFormat);
  plan.accumulate = 1;
  EXPECT_SAFE(plan);
  plan.program(ProgramId::kEvaluate) = {};
  EXPECT_SAFE(plan);
  plan.program(ProgramId::kMicroFirst) = {};
  EXPECT_FAULT(plan, kFormat);
}

TEST(Check, InPlacePairsOnly) {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({64}), y = b.slot({64});
  b.row(Op::kRelu, Pass::kForward, {x, x});
  b.row(Op::kCopy, Pass::kForward, {y, x});
  b.row(Op::kAdd, Pass::kForward, {y, y, x});
  b.end();
  OwnedPlan plan = b.finish();
  EXPECT_SAFE(plan);
  plan.programs[0].arguments[5] = 0;  // y = x + x: two arguments may name one tensor only as an in-place pair
  EXPECT_FAULT(plan, kAliasing);
  plan.programs[0].arguments[5] = 1;
  plan.programs[0].arguments[6] = 1;  // y = y + y
  EXPECT_FAULT(plan, kAliasing);
  plan.programs[0].arguments[6] = 0;
  plan.programs[0].arguments[3] = 1;  // copy.forward has no in-place pair
  EXPECT_FAULT(plan, kAliasing);
}

TEST(Check, InPlaceReadsWhatItOverwrites) {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref y = b.slot({64});
  b.row(Op::kRelu, Pass::kForward, {y, y});
  b.end();
  EXPECT_FAULT(b.finish(), kReadBeforeWrite);
}

// A convolution that computes statistics of its output needs a mean, an rstd and an epsilon. Both
// vectors must have one number for each channel.
TEST(Check, StatisticsOfAConvolution) {
  PlanBuilder b;
  const Ref w = b.state(StateKind::kParameter, "w", {2, 1, 1, 1});
  b.plan.attributes.of<WindowAttribute>() = {{1, 1, 1, 0, 1e-5f}};
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({1, 4, 4, 1}), y = b.slot({1, 4, 4, 2}), mean = b.slot({2}), rstd = b.slot({2}),
            scratch = b.slot({1024}, DType::kU8, SlotKind::kScratch);
  b.row(Op::kConv, Pass::kForward, {y, mean, rstd, x, w, kNoRef, scratch});
  b.end();
  const OwnedPlan plan = b.finish(kSampleStackBytes);
  EXPECT_SAFE(plan);
  OwnedPlan changed = plan;
  changed.attributes.of<WindowAttribute>()[0].statistics_epsilon = 0;
  EXPECT_FAULT(changed, kAttribute);
  changed = plan;
  changed.programs[0].arguments[1] = kNoRef;
  EXPECT_FAULT(changed, kMissingArgument);
  changed = plan;
  changed.programs[0].slots[mean].tensor.shape[0] = 3;
  EXPECT_FAULT(changed, kShape);
  changed = plan;
  changed.programs[0].arguments[2] = mean;
  EXPECT_FAULT(changed, kAliasing);
}

TEST(Check, ScratchHoldsNoValue) {
  PlanBuilder b;
  const Ref w = b.state(StateKind::kParameter, "w", {1, 1, 1, 1});
  b.plan.attributes.of<WindowAttribute>() = {{1, 1, 1, 0}};
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({1, 4, 4, 1}), y = b.slot({1, 4, 4, 1}),
            scratch = b.slot({1024}, DType::kU8, SlotKind::kScratch);
  b.row(Op::kConv, Pass::kForward, {y, kNoRef, kNoRef, x, w, kNoRef, scratch});
  b.end();
  OwnedPlan plan = b.finish(kSampleStackBytes);
  EXPECT_SAFE(plan);
  OwnedPlan small = plan;
  small.programs[0].slots[2].tensor.bytes = small.programs[0].slots[2].tensor.shape[0] = 768;
  fit_regions(small);
  EXPECT_FAULT(small, kScratch);
  OwnedPlan none = plan;
  none.programs[0].arguments[ConvForward::kScratch] = kNoRef;
  EXPECT_FAULT(none, kScratch);

  PlanBuilder c;  // the value of a slot that a row uses as scratch is lost
  const Ref v = c.state(StateKind::kParameter, "w", {1, 1, 1, 1});
  c.plan.attributes.of<WindowAttribute>() = {{1, 1, 1, 0}};
  c.begin(ProgramId::kMicroFirst);
  const Ref in = c.input({1, 4, 4, 16}), value = c.slot({1, 4, 4, 16}), flat = c.slot({1, 4, 4, 1}),
            out = c.slot({1, 4, 4, 1}), last = c.slot({1, 4, 4, 16});
  c.row(Op::kCopy, Pass::kForward, {value, in});
  c.row(Op::kConv, Pass::kForward, {out, kNoRef, kNoRef, flat, v, kNoRef, value});
  c.row(Op::kCopy, Pass::kForward, {last, value});
  c.end();
  OwnedPlan reused = c.finish();
  reused.programs[0].input = kNoSlot;
  reused.programs[0].slots[0].first_row = 0;
  EXPECT_FAULT(reused, kReadBeforeWrite);
}

TEST(Check, EvaluationChangesNothing) {
  OwnedPlan plan = SampleConvNet().make();
  OwnedProgram& evaluate = plan.program(ProgramId::kEvaluate);
  evaluate.rows.push_back(plan.program(ProgramId::kUpdate).rows[2]);
  evaluate.rows.back().first_argument = static_cast<uint32_t>(evaluate.arguments.size());
  const OwnedProgram& update = plan.program(ProgramId::kUpdate);
  evaluate.arguments.insert(evaluate.arguments.end(), update.arguments.begin() + update.rows[2].first_argument,
                            update.arguments.end());
  EXPECT_FAULT(plan, kReadOnly);
}

TEST(Check, CarriedGradientsBeginInMicroFirst) {
  OwnedPlan plan = SampleConvNet().make();
  OwnedProgram& first = plan.program(ProgramId::kMicroFirst);
  for (Row& row : first.rows) {
    if (row.op == Op::kLossHead)
      first.arguments[row.first_argument + 2] = kNoRef;  // micro_first then does not write the bias gradient
  }
  const Verdict verdict = judge(plan);
  EXPECT_EQ(verdict.fault, Fault::kReadBeforeWrite) << shown(verdict);
  EXPECT_EQ(verdict.program, static_cast<uint32_t>(ProgramId::kMicroAdd));
  EXPECT_EQ(verdict.slot, make_ref(Region::kCarried, 4));
}

TEST(Check, GroupsAreContiguousAndMatch) {
  OwnedPlan plan = SampleConvNet().make();
  // Gives a momentum another shape than its gradient.
  std::swap(plan.state[10].tensor.shape[0], plan.state[10].tensor.shape[1]);
  EXPECT_FAULT(plan, kGroup);
  plan = SampleConvNet().make();
  plan.state[11].kind = StateKind::kBuffer;
  EXPECT_FAULT(plan, kReadOnly);
  plan = SampleConvNet().make();
  // Leaves a gap of 256 bytes between two momenta of a group.
  for (size_t i = 12; i < plan.state.size(); ++i) plan.state[i].tensor.offset += 256;
  plan.state_bytes += 256;
  plan.arena_bytes += 256;
  EXPECT_FAULT(plan, kGroup);
  plan = SampleConvNet().make();
  // The group then has one tensor too many, which is a buffer.
  plan.attributes.of<UpdateAttribute>()[0].group.tensors = 6;
  EXPECT_NE(judge(plan).fault, Fault::kNone);
}

// ---- moves and transfers ----

// Returns a plan with the rows wide <- in, z <- wide and out <- z. The second row moves `wide` down
// by 256 bytes, so that source and result overlap. Slots in, wide, z, out are 0 to 3.
OwnedPlan moving_plan() {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({192}), wide = b.slot({192}), z = b.slot({192}), out = b.slot({192});
  b.row(Op::kCopy, Pass::kForward, {wide, in});
  b.row(Op::kMove, Pass::kForward, {z, wide});
  b.row(Op::kRelu, Pass::kForward, {out, z});
  b.end();
  OwnedPlan plan = b.finish();
  OwnedProgram& p = plan.programs[0];
  const uint64_t offsets[] = {1536, 256, 0, 1024};
  const uint32_t below[] = {kNoSlot, kNoSlot, kNoSlot, 2};
  for (uint32_t i = 0; i < 4; ++i) {
    p.slots[i].tensor.offset = offsets[i];
    p.slots[i].below = below[i];
  }
  p.bytes = 1536 + 768;
  plan.arena_bytes = plan.state_bytes + p.bytes;
  return plan;
}

TEST(Check, AMoveMayOverlapItsSource) {
  OwnedPlan plan = moving_plan();
  EXPECT_SAFE(plan);
  plan.programs[0].slots[2].tensor.offset = 512;  // a move upwards is also allowed
  plan.programs[0].slots[3].tensor.offset = 1280;
  EXPECT_SAFE(plan);
  plan = moving_plan();
  plan.programs[0].slots[1].end_row = 3;  // unsafe if the source stays live
  EXPECT_FAULT(plan, kOverlap);
  plan = moving_plan();
  plan.programs[0].rows[1].op = Op::kCopy;  // unsafe for any other kernel
  EXPECT_FAULT(plan, kOverlap);
  plan = moving_plan();
  plan.programs[0].slots[3].first_row = 1;  // unsafe: another slot, born in this row, overlaps the source
  plan.programs[0].slots[3].tensor.offset = 768;
  EXPECT_FAULT(plan, kOverlap);
}

// y <- x is in transfer from row 2 to row 4. In between, row 3 copies `middle_input` to
// `middle_output`.
OwnedPlan transfer_plan(Ref middle_output, Ref middle_input) {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), u = b.slot({64}), v = b.slot({64});
  b.row(Op::kCopy, Pass::kForward, {x, in});
  b.row(Op::kCopy, Pass::kForward, {u, in});
  b.row(Op::kTransfer, Pass::kStart, {y, x});
  const Ref names[] = {in, x, y, u, v};
  b.row(Op::kCopy, Pass::kForward, {names[middle_output], names[middle_input]});
  b.row(Op::kTransfer, Pass::kWait, {y, x});
  b.row(Op::kAdd, Pass::kForward, {v, y, u});
  b.end();
  OwnedPlan plan = b.finish();
  return plan;
}
constexpr Ref kX = 1, kY = 2, kU = 3, kV = 4;

// Rank `root` sends its x, which becomes y in all ranks. The share starts in row 1 and is awaited
// in row 3. If `waits` is false, row 2 reads y before it has arrived.
OwnedPlan sharing_plan(ProgramId id, uint32_t ranks, uint32_t root, bool waits = true) {
  PlanBuilder b;
  b.plan.ranks = ranks;
  b.plan.attributes.of<ShareAttribute>() = {{root}};
  b.begin(id);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), u = b.slot({64});
  b.row(Op::kCopy, Pass::kForward, {x, in});
  b.row(Op::kShare, Pass::kStart, {y, x});
  b.row(Op::kCopy, Pass::kForward, {u, waits ? in : y});
  b.row(Op::kShare, Pass::kWait, {y, x});
  b.end();
  return b.finish();
}

TEST(Check, RanksShareInMicroBatchesAndWhatIsUnderWayIsLeftAlone) {
  EXPECT_SAFE(sharing_plan(ProgramId::kMicroFirst, 2, 1));
  EXPECT_SAFE(sharing_plan(ProgramId::kMicroFirst, kMaxRanks, kMaxRanks - 1));
  EXPECT_FAULT(sharing_plan(ProgramId::kMicroFirst, 2, 2), kRanks);  // there is no rank 2
  EXPECT_FAULT(sharing_plan(ProgramId::kEvaluate, 2, 1), kRanks);
  EXPECT_FAULT(sharing_plan(ProgramId::kMicroLast, 2, 1), kFormat);  // micro_last needs a micro_first before it
  EXPECT_FAULT(sharing_plan(ProgramId::kMicroFirst, 0, 0), kRanks);
  EXPECT_FAULT(sharing_plan(ProgramId::kMicroFirst, kMaxRanks + 1, 0), kRanks);
  EXPECT_FAULT(sharing_plan(ProgramId::kMicroFirst, 2, 1, false), kInFlight);  // y is read before it has arrived
}

TEST(Check, NothingTouchesASlotInFlight) {
  EXPECT_SAFE(transfer_plan(kV, kU));
  EXPECT_SAFE(transfer_plan(kV, kX));              // reading the source is allowed
  EXPECT_FAULT(transfer_plan(kV, kY), kInFlight);  // reading the destination is not
  EXPECT_FAULT(transfer_plan(kX, kU), kInFlight);  // writing the source or the destination is not
  EXPECT_FAULT(transfer_plan(kY, kU), kInFlight);
}

TEST(Check, EveryTransferIsWaitedForOnceWhileBothSlotsLive) {
  OwnedPlan plan = transfer_plan(kV, kU);
  plan.programs[0].rows[4].pass = Pass::kStart;
  EXPECT_FAULT(plan, kInFlight);
  plan = transfer_plan(kV, kU);
  plan.programs[0].rows[2].pass = Pass::kWait;
  EXPECT_NE(judge(plan).fault, Fault::kNone);
  plan = transfer_plan(kV, kU);  // the source dies during the transfer
  for (Slot& slot : plan.programs[0].slots) {
    if (slot.end_row == 5) slot.end_row = 4;
  }
  EXPECT_FAULT(plan, kInFlight);
  plan = transfer_plan(kV, kU);  // no row waits
  plan.programs[0].rows[4] = plan.programs[0].rows[3];
  const Verdict verdict = judge(plan);
  EXPECT_EQ(verdict.fault, Fault::kInFlight) << shown(verdict);
}

// Two values go to disk, x into the lower block and then y into the upper block. They return in the
// reverse order: first y, then x. There are rows 0 to 12; slots in, x, y, u, v, w, out are 0 to 6.
OwnedPlan spilling_plan() {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), u = b.slot({64}), v = b.slot({64}),
            w = b.slot({64}), out = b.slot({64});
  const Ref lower = b.disk({64}, 0), upper = b.disk({64}, 256);
  b.row(Op::kCopy, Pass::kForward, {x, in});
  b.row(Op::kTransfer, Pass::kStart, {lower, x});
  b.row(Op::kRelu, Pass::kForward, {y, x});
  b.row(Op::kTransfer, Pass::kWait, {lower, x});
  b.row(Op::kTransfer, Pass::kStart, {upper, y});
  b.row(Op::kRelu, Pass::kForward, {u, in});
  b.row(Op::kTransfer, Pass::kWait, {upper, y});
  b.row(Op::kTransfer, Pass::kStart, {v, upper});
  b.row(Op::kTransfer, Pass::kWait, {v, upper});
  b.row(Op::kTransfer, Pass::kStart, {w, lower});
  b.row(Op::kTransfer, Pass::kWait, {w, lower});
  b.row(Op::kAdd, Pass::kForward, {out, v, w});
  b.row(Op::kAdd, Pass::kForward, {out, out, u});
  b.end();
  return b.finish();
}
Ref& argument(OwnedPlan& plan, uint32_t row, uint32_t i) {
  return plan.programs[0].arguments[plan.programs[0].rows[row].first_argument + i];
}

TEST(Check, DiskBlocksAreProvedLikeSlots) {
  EXPECT_SAFE(spilling_plan());
  const auto broken = [](auto change) {
    OwnedPlan plan = spilling_plan();
    change(plan, plan.programs[0]);
    return plan;
  };
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.spill_bytes -= 256; }), kOutOfRegion);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.spill_bytes += 4; }), kMisaligned);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[1].tensor.offset = 4; }), kMisaligned);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[1].tensor.offset = 0; }), kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) {
                 std::swap(p.spilled[0].tensor.offset, p.spilled[1].tensor.offset);
               }),
               kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[0].end_row = 9; }), kNotLive);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[0].end_row = 99; }), kSlotOrder);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { std::swap(p.spilled[0], p.spilled[1]); }), kSlotOrder);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[0].first_row = 2; }), kNotLive);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[1].tensor.shape[0] = 63; }), kShape);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) {
                 p.spilled.push_back(p.spilled[1]), p.spilled[2].tensor.offset = 512;
               }),
               kOutOfRegion);
}

// A tensor of State in host memory is loaded into a slot and stored again. Spilled blocks follow
// the tensors in that memory. There are rows 0 to 10.
OwnedPlan offloading_plan() {
  PlanBuilder b;
  const Ref first = b.offloaded("first", {64});
  b.offloaded("second", {64});
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), m = b.slot({64}), out = b.slot({64});
  const Ref block = b.disk({64}, 512);
  b.row(Op::kCopy, Pass::kForward, {x, in});
  b.row(Op::kTransfer, Pass::kStart, {block, x});
  b.row(Op::kTransfer, Pass::kStart, {m, first});
  b.row(Op::kTransfer, Pass::kWait, {block, x});
  b.row(Op::kTransfer, Pass::kWait, {m, first});
  b.row(Op::kRelu, Pass::kForward, {y, m});
  b.row(Op::kTransfer, Pass::kStart, {first, y});
  b.row(Op::kTransfer, Pass::kStart, {out, block});
  b.row(Op::kTransfer, Pass::kWait, {first, y});
  b.row(Op::kTransfer, Pass::kWait, {out, block});
  b.row(Op::kRelu, Pass::kForward, {out, out});
  b.end();
  b.plan.spill_level = SpillLevel::kHost;
  return b.finish();
}

TEST(Check, OffloadedStateIsTouchedByTransfersAlone) {
  EXPECT_SAFE(offloading_plan());
  const Ref first = make_ref(Region::kState, 1), second = make_ref(Region::kState, 2);
  const auto broken = [](auto change) {
    OwnedPlan plan = offloading_plan();
    change(plan, plan.programs[0]);
    return plan;
  };
  const auto with = [&](uint32_t row, uint32_t i, Ref ref) {
    return broken([=](OwnedPlan& plan, OwnedProgram&) { argument(plan, row, i) = ref; });
  };
  EXPECT_FAULT(with(5, 1, first), kSpill);                            // a kernel reads the tensor on the host
  EXPECT_FAULT(with(5, 0, first), kSpill);                            // a kernel writes the tensor on the host
  EXPECT_FAULT(with(2, 0, second), kSpill);                           // from host to host
  EXPECT_FAULT(with(2, 0, make_ref(Region::kSpill, 0)), kSpill);      // from host to a block
  EXPECT_FAULT(with(6, 0, second), kInFlight);                        // the wait names another tensor than the start
  EXPECT_FAULT(with(6, 0, make_ref(Region::kState, 0)), kReadOnly);   // the destination is State in the arena
  EXPECT_FAULT(with(6, 0, make_ref(Region::kState, 3)), kBadReference);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.spill_level = SpillLevel::kDisk; }), kSpill);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.spilled[0].tensor.offset = 256; }), kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.state[2].tensor.offset = 0; }), kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.state[2].tensor.offset = 768; }), kOutOfRegion);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.spill_bytes += 256; }), kArenaBytes);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) {
                 std::swap(plan.programs[0], plan.program(ProgramId::kEvaluate));
               }), kReadOnly);  // evaluation must not change State
}

TEST(Check, OnlyTransfersWithMemoryTouchTheDisk) {
  const Ref lower = make_ref(Region::kSpill, 0), upper = make_ref(Region::kSpill, 1);
  const auto with = [](uint32_t row, uint32_t i, Ref ref) {
    OwnedPlan plan = spilling_plan();
    argument(plan, row, i) = ref;
    return plan;
  };
  EXPECT_FAULT(with(5, 1, lower), kSpill);   // a kernel reads the block
  EXPECT_FAULT(with(11, 0, lower), kSpill);  // a kernel writes the block
  EXPECT_FAULT(with(4, 1, lower), kSpill);   // from disk to disk
  EXPECT_FAULT(with(4, 0, make_ref(Region::kSpill, 2)), kBadReference);
  EXPECT_FAULT(with(4, 1, kNoRef), kMissingArgument);
  EXPECT_FAULT(with(7, 1, lower), kInFlight);  // the wait names another block than the start
  EXPECT_FAULT(with(1, 0, make_ref(Region::kState, 0)), kReadOnly);
  OwnedPlan plan = spilling_plan();
  plan.programs[0].rows[6].pass = Pass::kStart;  // two writes are in progress at once
  EXPECT_FAULT(plan, kInFlight);
  plan = spilling_plan();
  std::swap(argument(plan, 2, 0), argument(plan, 2, 1));  // the source is overwritten during its transfer
  EXPECT_NE(judge(plan).fault, Fault::kNone);
  plan = spilling_plan();
  argument(plan, 1, 0) = upper, argument(plan, 3, 0) = upper;  // the block is read before any write
  plan.programs[0].spilled[0].first_row = plan.programs[0].spilled[1].first_row = 1;
  EXPECT_FAULT(plan, kReadBeforeWrite);
}

// A tensor of State of type `dtype` goes to a disk block, returns to a slot, and is transferred to
// another slot. A sum in Carried is transferred to a slot and on to another tensor of Carried.
// There are rows 0 to 10; slots in, back, again, sum are 0 to 3.
OwnedPlan carrying_plan(DType dtype) {
  PlanBuilder b;
  const Ref kept = b.state(StateKind::kBuffer, "kept", {2, 512}, dtype), first = b.carried({1024}),
            second = b.carried({1024});
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({1024}), back = b.slot({2, 512}, dtype), again = b.slot({1024}, dtype), sum = b.slot({1024});
  const Ref block = b.disk({2, 512}, 0, dtype);
  const auto transfer = [&b](Ref to, Ref from) {
    b.row(Op::kTransfer, Pass::kStart, {to, from});
    b.row(Op::kTransfer, Pass::kWait, {to, from});
  };
  transfer(block, kept);
  transfer(back, block);
  transfer(again, back);
  b.row(Op::kCopy, Pass::kForward, {first, in});
  transfer(sum, first);
  transfer(second, sum);
  b.end();
  return b.finish();
}

TEST(Check, TransfersTakeWhatIsStoredHowever) {
  for (uint32_t d = 0; d < kDTypeCount; ++d) {
    const DType dtype = static_cast<DType>(d), other = dtype == DType::kF32 ? DType::kI32 : DType::kF32;
    EXPECT_SAFE(carrying_plan(dtype));
    const auto broken = [dtype](auto change) {
      OwnedPlan plan = carrying_plan(dtype);
      change(plan, plan.programs[0]);
      return plan;
    };
    EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram& p) {
                   p.spilled[0].tensor.dtype = other, p.spilled[0].tensor.bytes = plan.spill_bytes = 4096;
                 }),
                 kDType);
    EXPECT_FAULT(broken([&](OwnedPlan&, OwnedProgram& p) { p.slots[2].tensor.shape[0] = 512; }), kShape);
    EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram&) { argument(plan, 4, 0) = make_ref(Region::kState, 1); }),
                 kReadOnly);
    EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram&) { argument(plan, 5, 0) = make_ref(Region::kState, 1); }),
                 kInFlight);
    // A transfer must not overwrite `first`, which contains a sum that row 6 has begun. `sum` must
    // not be read before its transfer has ended.
    EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram&) {
                   argument(plan, 9, 0) = argument(plan, 10, 0) = argument(plan, 6, 0);
                 }),
                 kAccumulate);
    EXPECT_FAULT(broken([&](OwnedPlan&, OwnedProgram& p) { std::swap(p.rows[8], p.rows[9]); }), kInFlight);
  }
}

// Three loads of two weights. w1 is loaded for row 2, w2 into the same memory for row 5, and w1
// again for row 8.
enum class Loading { kRight, kReadsTooSoon, kIntoOneSlot };
OwnedPlan loading_plan(Loading how = Loading::kRight) {
  PlanBuilder b;
  const Ref w1 = b.streamed("w1", {64}), w2 = b.streamed("w2", {64});
  b.begin(ProgramId::kMicroFirst);
  const Ref in = b.input({64}), x = b.slot({64}), y = b.slot({64}), z = b.slot({64}), first = b.slot({64}),
            again = b.slot({64});
  const Ref second = how == Loading::kIntoOneSlot ? first : b.slot({64});
  const auto use = [&](Ref slot, Ref from, Ref to, Ref with) {
    b.row(Op::kLoad, Pass::kStart, {slot, from});
    if (how != Loading::kReadsTooSoon) b.row(Op::kLoad, Pass::kWait, {slot, from});
    b.row(Op::kAdd, Pass::kForward, {to, slot, with});
    if (how == Loading::kReadsTooSoon) b.row(Op::kLoad, Pass::kWait, {slot, from});
  };
  use(first, w1, x, in);
  use(second, w2, y, x);
  use(again, w1, z, in);
  b.row(Op::kAdd, Pass::kForward, {z, z, y});
  b.end();
  return b.finish();
}
uint32_t loaded_by(const OwnedPlan& plan, uint32_t row) {
  return plan.programs[0].arguments[plan.programs[0].rows[row].first_argument];
}

TEST(Check, LoadsAreProved) {
  EXPECT_SAFE(loading_plan());
  const auto broken = [](auto change) {
    OwnedPlan plan = loading_plan();
    change(plan, plan.programs[0]);
    return plan;
  };
  const Ref w1 = make_ref(Region::kState, 1), w2 = make_ref(Region::kState, 2);
  EXPECT_FAULT(loading_plan(Loading::kReadsTooSoon), kInFlight);
  // A kernel reads the file directly.
  EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram&) { argument(plan, 2, 1) = w1; }), kSpill);
  // The wait names another weight.
  EXPECT_FAULT(broken([&](OwnedPlan& plan, OwnedProgram&) { argument(plan, 1, 1) = w2; }), kInFlight);
  EXPECT_FAULT(broken([](OwnedPlan&, OwnedProgram& p) { p.rows[0].op = p.rows[1].op = Op::kTransfer; }), kSpill);
  // The source is not streamed.
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) {
                 argument(plan, 0, 1) = argument(plan, 1, 1) = plan.programs[0].input;
               }),
               kSpill);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) {
                 plan.state[1].kind = plan.state[2].kind = StateKind::kParameter;
               }),
               kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.state[2].tensor.offset = 0; }), kOverlap);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.streamed_bytes += 256; }), kArenaBytes);
  EXPECT_FAULT(broken([](OwnedPlan& plan, OwnedProgram&) { plan.streamed_bytes = 4; }), kMisaligned);
}

// Rows of a streamed table are gathered twice by the tokens of the input. `how` says whether the
// plan is correct, or the second wait names other tokens than its start, or the tokens change
// during the second gather.
enum class Gathering { kRight, kWaitsForOtherTokens, kTokensChange };
OwnedPlan gathering_plan(Gathering how = Gathering::kRight) {
  PlanBuilder b;
  const Ref table = b.streamed("table", {8, 64});
  b.begin(ProgramId::kMicroFirst);
  const Ref tokens = b.input({1, 4}, DType::kI32), rows = b.slot({4, 64}), places = b.slot({1, 4}, DType::kI32),
            again = b.slot({4, 64}), others = b.slot({1, 4}, DType::kI32), y = b.slot({4, 64}), z = b.slot({4, 64});
  const Ref block = b.disk({1, 4}, 0, DType::kI32);
  for (const Pass pass : {Pass::kStart, Pass::kWait}) b.row(Op::kTransfer, pass, {block, tokens});
  for (const Pass pass : {Pass::kStart, Pass::kWait}) b.row(Op::kGather, pass, {rows, places, table, tokens});
  b.row(Op::kCopy, Pass::kForward, {y, rows});
  b.row(Op::kGather, Pass::kStart, {again, others, table, tokens});
  if (how == Gathering::kTokensChange)
    b.row(Op::kTransfer, Pass::kStart, {tokens, block}), b.row(Op::kTransfer, Pass::kWait, {tokens, block});
  b.row(Op::kGather, Pass::kWait, {again, others, table, how == Gathering::kWaitsForOtherTokens ? places : tokens});
  b.row(Op::kCopy, Pass::kForward, {z, again});
  b.end();
  return b.finish();
}

// A wait must name the tokens of its start, because they identify the gather.
TEST(Check, AGatherEndsByTheTokensOfItsStart) {
  EXPECT_SAFE(gathering_plan());
  EXPECT_FAULT(gathering_plan(Gathering::kWaitsForOtherTokens), kInFlight);
  EXPECT_FAULT(gathering_plan(Gathering::kTokensChange), kInFlight);
}

// Only the losses of pairs may be an output of `evaluate`: the host reads two numbers for each
// pair, and has no space for other outputs.
TEST(Check, AnEvaluationAnswersPairsAlone) {
  PlanBuilder b;
  b.begin(ProgramId::kEvaluate);
  const Ref in = b.input({64}), y = b.output({64});
  b.row(Op::kCopy, Pass::kForward, {y, in});
  b.end();
  EXPECT_FAULT(b.finish(), kDiesEarly);
}

// The slot of w1 is filled with w2 while a later row, the backward, still expects w1 in it. Another
// library that streams weights had this fault. check() must refuse every plan with it.
TEST(Check, NoReadAfterTheSlotsNextLoad) {
  OwnedPlan plan = loading_plan();
  argument(plan, 8, 1) = loaded_by(plan, 0);  // the slot of w1 is no longer live in row 8
  EXPECT_FAULT(plan, kNotLive);
  plan = loading_plan();  // the slot of w1 is made live until row 8, so that it overlaps the slot of w2
  OwnedProgram& p = plan.programs[0];
  const uint32_t first = loaded_by(plan, 0), second = loaded_by(plan, 3);
  ASSERT_EQ(p.slots[first].tensor.offset, p.slots[second].tensor.offset) << "both take the same memory, in turns";
  argument(plan, 8, 1) = first;
  p.slots[first].end_row = 9;
  EXPECT_FAULT(plan, kOverlap);
  EXPECT_FAULT(loading_plan(Loading::kIntoOneSlot), kRefilled);  // w2 is loaded into the slot of w1
}

TEST(Check, LabelsAreNotTransferred) {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref labels = b.labels({64}), copy = b.slot({64}, DType::kI32);
  b.row(Op::kTransfer, Pass::kStart, {copy, labels});
  b.row(Op::kTransfer, Pass::kWait, {copy, labels});
  b.end();
  EXPECT_FAULT(b.finish(), kHostSlot);
}

// ---- contracts of shapes: each violated in one place ----

struct Broken {
  const char* what;
  std::function<void(OwnedPlan&)> change;
  Fault fault;
};

TEST(Check, ShapeContracts) {
  const auto slot_of = [](OwnedPlan& plan, Op op, Pass pass, uint32_t argument) -> Tensor& {
    OwnedProgram& p = plan.programs[0];
    for (const Row& row : p.rows) {
      if (row.op == op && row.pass == pass) return p.slots[p.arguments[row.first_argument + argument]].tensor;
    }
    ADD_FAILURE() << "no such row";
    return p.slots[0].tensor;
  };
  const Broken conv_net[] = {
      {"window larger than the weight", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].kernel_h = 5; },
       Fault::kShape},
      {"stride 0", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].stride_h = 0; }, Fault::kAttribute},
      {"padding 0 gives a smaller output", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].pad_top = 0; },
       Fault::kShape},
      {"padding 2 gives a wider output", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].pad_right = 2; },
       Fault::kShape},
      {"dilation gives a smaller output", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].dilation_w = 2; },
       Fault::kShape},
      {"groups that do not divide the channels", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[0].groups = 2; },
       Fault::kAttribute},
      {"a pool window wholly in the padding",
       [](OwnedPlan& p) {
         WindowAttribute& a = p.attributes.of<WindowAttribute>()[1];
         a.stride_h = 3, a.pad_top = 2;
       },
       Fault::kAttribute},
      {"a pool in groups", [](OwnedPlan& p) { p.attributes.of<WindowAttribute>()[1].groups = 2; }, Fault::kAttribute},
      {"batch-norm of another batch", [](OwnedPlan& p) { ++p.attributes.of<NormAttribute>()[0].count; },
       Fault::kAttribute},
      {"pool index shaped otherwise",
       [&](OwnedPlan& p) {
         std::swap(slot_of(p, Op::kMaxPool, Pass::kForward, 1).shape[0],
                   slot_of(p, Op::kMaxPool, Pass::kForward, 1).shape[3]);
       },
       Fault::kShape},
      {"global pool's output transposed",
       [&](OwnedPlan& p) {
         std::swap(slot_of(p, Op::kGlobalPool, Pass::kForward, 0).shape[0],
                   slot_of(p, Op::kGlobalPool, Pass::kForward, 0).shape[1]);
       },
       Fault::kShape},
      {"a label too few", [](OwnedPlan& p) { p.programs[0].slots[p.programs[0].labels].tensor.shape[0] = 1; },
       Fault::kShape},
      {"clip below zero", [](OwnedPlan& p) { p.attributes.of<ClipAttribute>()[0].max_norm = -1; }, Fault::kAttribute},
      {"norms too short", [](OwnedPlan& p) { p.attributes.of<GroupAttribute>()[0].first_norm = 1; }, Fault::kShape},
  };
  for (const Broken& broken : conv_net) {
    OwnedPlan plan = SampleConvNet().make();
    broken.change(plan);
    EXPECT_EQ(judge(plan).fault, broken.fault) << broken.what << ": " << shown(judge(plan));
  }
  const Broken transformer[] = {
      {"weight the other way round", [](OwnedPlan& p) { p.attributes.of<LinearAttribute>()[0].input_major = 0; },
       Fault::kShape},
      {"heads do not divide C", [](OwnedPlan& p) { p.attributes.of<AttentionAttribute>()[0].heads = 4; },
       Fault::kAttribute},
      {"more heads than lse has",
       [](OwnedPlan& p) {
         p.attributes.of<AttentionAttribute>()[0] = {3, 3, 0.1f, 7};
       },
       Fault::kShape},
      {"fewer shared heads than qkv has", [](OwnedPlan& p) { p.attributes.of<AttentionAttribute>()[0].kv_heads = 1; },
       Fault::kShape},
      {"shared heads that do not divide the heads",
       [](OwnedPlan& p) { p.attributes.of<AttentionAttribute>()[0].kv_heads = 3; }, Fault::kAttribute},
      {"no heads", [](OwnedPlan& p) { p.attributes.of<AttentionAttribute>()[0].heads = 0; }, Fault::kAttribute},
      {"dropping everything", [](OwnedPlan& p) { p.attributes.of<DropoutAttribute>()[0].probability = 1; },
       Fault::kAttribute},
      {"positions shorter than the sequence", [](OwnedPlan& p) { p.state[3].tensor.shape[0] = 3; }, Fault::kShape},
      {"qkv of 2 C", [&](OwnedPlan& p) { slot_of(p, Op::kAttention, Pass::kForward, 2).shape[2] = 12; }, Fault::kShape},
      {"layer-norm mean of B rows", [&](OwnedPlan& p) { slot_of(p, Op::kLayerNorm, Pass::kForward, 1).shape[0] = 2; },
       Fault::kShape},
      {"tokens transposed",
       [](OwnedPlan& p) { std::swap(p.programs[0].slots[0].tensor.shape[0], p.programs[0].slots[0].tensor.shape[1]); },
       Fault::kShape},
  };
  for (const Broken& broken : transformer) {
    OwnedPlan plan = SampleTransformer().make();
    broken.change(plan);
    EXPECT_EQ(judge(plan).fault, broken.fault) << broken.what << ": " << shown(judge(plan));
  }
}

// Returns a plan with five rows: rms_norm n <- x by heads, h <- x A^T, v <- x W^T + h U^T, rope qkv
// <- n, k, v with documents and a table, swiglu z <- n, x. Slots x, starts, n, rstd, h, v, qkv, z
// are 0 to 7.
OwnedPlan llama_rows_plan() {
  PlanBuilder b;
  const Ref gamma = b.state(StateKind::kParameter, "gamma", {6}),
            table = b.state(StateKind::kBuffer, "frequencies", {2}),
            k = b.state(StateKind::kBuffer, "keys", {2, 5, 12}), w = b.state(StateKind::kParameter, "w", {12, 24}),
            a = b.state(StateKind::kParameter, "a", {3, 24}), u = b.state(StateKind::kParameter, "u", {12, 3});
  b.plan.attributes.of<NormAttribute>() = {{1e-5f, 0, 0}};
  b.plan.attributes.of<RopeAttribute>() = {{4, 2, 4, 0, 10000}};
  b.plan.attributes.of<LinearAttribute>() = {{0}, {0, 2}};
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({2, 5, 24}), starts = b.document_start({2, 5}), n = b.slot({2, 5, 24}),
            rstd = b.slot({2, 5, 4}), h = b.slot({2, 5, 3}), v = b.slot({2, 5, 12}), qkv = b.slot({2, 5, 48}),
            z = b.slot({2, 5, 24});
  b.row(Op::kRmsNorm, Pass::kForward, {n, rstd, x, gamma});
  b.row(Op::kLinear, Pass::kForward, {h, x, a, kNoRef, kNoRef, kNoRef, kNoRef}, 1);
  b.row(Op::kLinear, Pass::kForward, {v, x, w, kNoRef, h, u, kNoRef});
  b.row(Op::kRope, Pass::kForward, {qkv, n, k, v, starts, table});
  b.row(Op::kSwiglu, Pass::kForward, {z, n, x});
  b.end();
  return b.finish();
}

TEST(Check, ShapeContractsOfALlama) {
  EXPECT_SAFE(llama_rows_plan());
  const auto refused = [](Fault fault, const char* what, auto change) {
    OwnedPlan plan = llama_rows_plan();
    change(plan);
    EXPECT_EQ(judge(plan).fault, fault) << what << ": " << shown(judge(plan));
  };
  const auto rope = [&](Fault fault, const char* what, RopeAttribute attribute) {
    refused(fault, what, [&](OwnedPlan& p) { p.attributes.of<RopeAttribute>()[0] = attribute; });
  };
  const auto slot = [](OwnedPlan& p, uint32_t i) -> Tensor& { return p.programs[0].slots[i].tensor; };
  const auto argument = [](OwnedPlan& p, uint32_t row, uint32_t i) -> Ref& {
    return p.programs[0].arguments[p.programs[0].rows[row].first_argument + i];
  };
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  rope(Fault::kNone, "other sensible attributes", {4, 2, 4, 1, 500000, 1.5f});
  rope(Fault::kShape, "a table of nothing that turns", {4, 2, 0, 0, 10000});
  rope(Fault::kAttribute, "no heads", {0, 1, 4, 0, 10000});
  rope(Fault::kAttribute, "no shared heads", {4, 0, 4, 0, 10000});
  rope(Fault::kAttribute, "shared heads that do not divide the heads", {3, 2, 4, 0, 10000});
  rope(Fault::kAttribute, "an odd number of rotary channels", {4, 2, 5, 0, 10000});
  rope(Fault::kAttribute, "more rotary channels than a kernel has room for",
       {4, 2, RopeAttribute::kMaxRotary + 2, 0, 10000});
  rope(Fault::kAttribute, "a third way of pairing", {4, 2, 4, 2, 10000});
  for (const float theta : {0.0f, -10000.0f, 0.5f, kNaN, kInfinity})
    rope(Fault::kAttribute, "theta below 1 or no number", {4, 2, 4, 0, theta});
  for (const float scale : {0.0f, -1.0f, kNaN, kInfinity}) {
    rope(Fault::kAttribute, "a scale that is no factor", {4, 2, 4, 0, 10000, scale});
    refused(Fault::kAttribute, "a product's scale that is no factor",
            [&](OwnedPlan& p) { p.attributes.of<LinearAttribute>()[1].scale = scale; });
  }
  rope(Fault::kShape, "more rotary channels than a head has", {4, 2, 8, 0, 10000});
  rope(Fault::kShape, "heads that do not divide the columns", {5, 1, 4, 0, 10000});
  rope(Fault::kShape, "keys of fewer heads", {4, 4, 4, 0, 10000});
  refused(Fault::kShape, "keys of another sequence",
          [](OwnedPlan& p) { std::swap(p.state[3].tensor.shape[0], p.state[3].tensor.shape[1]); });
  refused(Fault::kShape, "queries, keys and values too wide for their place",
          [&](OwnedPlan& p) { slot(p, 6).shape[2] = 47; });
  refused(Fault::kShape, "a table of another length", [](OwnedPlan& p) { p.state[2].tensor.shape[0] = 3; });
  refused(Fault::kShape, "document starts transposed",
          [&](OwnedPlan& p) { std::swap(slot(p, 1).shape[0], slot(p, 1).shape[1]); });
  refused(Fault::kDType, "document starts that are no integers", [&](OwnedPlan& p) { slot(p, 1).dtype = DType::kF32; });
  refused(Fault::kShape, "an rstd for each sample", [&](OwnedPlan& p) { slot(p, 3).shape[1] = 1; });
  refused(Fault::kShape, "a gamma that does not divide the rows", [](OwnedPlan& p) { p.state[1].tensor.shape[0] = 5; });
  refused(Fault::kShape, "a gamma of other heads than the rstd", [](OwnedPlan& p) { p.state[1].tensor.shape[0] = 12; });
  refused(Fault::kAttribute, "an epsilon of zero",
          [](OwnedPlan& p) { p.attributes.of<NormAttribute>()[0].epsilon = 0; });
  refused(Fault::kShape, "SwiGLU of too few columns", [&](OwnedPlan& p) { slot(p, 7).shape[2] = 23; });
  refused(Fault::kMissingArgument, "half an adapter",
          [&](OwnedPlan& p) { argument(p, 2, LinearForward::kU) = kNoRef; });
  refused(Fault::kShape, "an adapter of another rank", [](OwnedPlan& p) { p.state[6].tensor.shape[1] = 2; });
  refused(Fault::kShape, "an adapter of another width", [](OwnedPlan& p) { p.state[6].tensor.shape[0] = 11; });
}

// Returns a plan with six rows. `part` is a box of x, `wide` is `part` padded with zeros, and
// `both` is the concatenation of `part` and `wide`. `swapped` is `both` transposed, `grown` is
// `swapped` enlarged, and `rows` is `grown` reshaped. Slots x, part, wide, both, swapped, grown,
// rows are 0 to 6.
OwnedPlan moving_rows_plan() {
  PlanBuilder b;
  b.plan.attributes.of<ColumnsAttribute>() = {{1, 2, 1}, {0, 0, 2}};
  b.plan.attributes.of<TransposeAttribute>() = {{3, 1, 2}};
  b.plan.attributes.of<ResizeAttribute>() = {{1}};
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({2, 4, 6, 5}), part = b.slot({2, 3, 4, 3}), wide = b.slot({2, 5, 4, 3}),
            both = b.slot({2, 8, 4, 3}), swapped = b.slot({2, 3, 8, 4}), grown = b.slot({2, 6, 9, 4}),
            rows = b.slot({12, 36});
  b.row(Op::kColumns, Pass::kForward, {part, x});
  b.row(Op::kPad, Pass::kForward, {wide, part}, 1);
  b.row(Op::kConcat, Pass::kForward, {both, part, wide, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef, kNoRef});
  b.row(Op::kTranspose, Pass::kForward, {swapped, both});
  b.row(Op::kResize, Pass::kForward, {grown, swapped});
  b.row(Op::kReshape, Pass::kForward, {rows, grown});
  b.end();
  return b.finish();
}

// The first row, which reshapes the input, is also the row in which the input is born. The result
// must not use the memory of the input, although the row is the last that reads the input.
TEST(Check, AnInputThatItsFirstRowReshapes) {
  PlanBuilder b;
  b.begin(ProgramId::kMicroFirst);
  const Ref x = b.input({2, 6}), rows = b.slot({2, 3, 2}), y = b.slot({6, 2});
  b.row(Op::kReshape, Pass::kForward, {rows, x});
  b.row(Op::kReshape, Pass::kForward, {y, rows});
  b.end();
  OwnedPlan plan = b.finish();
  EXPECT_SAFE(plan);
  std::swap(plan.programs[0].slots[rows].tensor.offset, plan.programs[0].slots[y].tensor.offset);
  ASSERT_EQ(plan.programs[0].slots[rows].tensor.offset, plan.programs[0].slots[x].tensor.offset);
  EXPECT_EQ(judge(plan).fault, Fault::kOverlap) << shown(judge(plan));
}

TEST(Check, ShapeContractsOfWhatOnlyMoves) {
  EXPECT_SAFE(moving_rows_plan());
  const auto refused = [](Fault fault, const char* what, auto change) {
    OwnedPlan plan = moving_rows_plan();
    change(plan);
    EXPECT_EQ(judge(plan).fault, fault) << what << ": " << shown(judge(plan));
  };
  const auto slot = [](OwnedPlan& p, uint32_t i) -> Tensor& { return p.programs[0].slots[i].tensor; };
  const auto box = [](OwnedPlan& p, uint32_t i) -> ColumnsAttribute& { return p.attributes.of<ColumnsAttribute>()[i]; };
  refused(Fault::kAttribute, "a box past the channels", [&](OwnedPlan& p) { box(p, 0).first = 3; });
  refused(Fault::kAttribute, "a box past the columns", [&](OwnedPlan& p) { box(p, 0).second_last = 3; });
  refused(Fault::kAttribute, "a box past the rows", [&](OwnedPlan& p) { box(p, 0).third_last = 2; });
  refused(Fault::kAttribute, "a box that wraps", [&](OwnedPlan& p) { box(p, 0).first = 0xffffffffu; });
  refused(Fault::kShape, "a box of more samples than there are", [&](OwnedPlan& p) { slot(p, 0).shape[0] = 1; });
  refused(Fault::kShape, "a box of another rank", [&](OwnedPlan& p) {
    slot(p, 0) = {slot(p, 0).offset, slot(p, 0).bytes, DType::kF32, 3, {2, 24, 5, 1}};
  });
  refused(Fault::kAttribute, "zeros that are too few", [&](OwnedPlan& p) { box(p, 1).third_last = 3; });
  refused(Fault::kShape, "parts that are longer than what they make", [&](OwnedPlan& p) { slot(p, 3).shape[1] = 7; });
  refused(Fault::kShape, "parts that differ along two dimensions", [&](OwnedPlan& p) { slot(p, 3).shape[2] = 3; });
  refused(Fault::kShape, "samples side by side",
          [&](OwnedPlan& p) { slot(p, 3).shape[0] = 4, slot(p, 3).shape[1] = 4; });
  refused(Fault::kMissingArgument, "one part alone", [](OwnedPlan& p) {
    p.programs[0].arguments[p.programs[0].rows[2].first_argument + ConcatForward::kB] = kNoRef;
  });
  refused(Fault::kAttribute, "a dimension twice",
          [](OwnedPlan& p) { p.attributes.of<TransposeAttribute>()[0].axis_2 = 3; });
  refused(Fault::kAttribute, "a dimension that is none",
          [](OwnedPlan& p) { p.attributes.of<TransposeAttribute>()[0].axis_1 = 4; });
  refused(Fault::kShape, "another order", [](OwnedPlan& p) { p.attributes.of<TransposeAttribute>()[0] = {1, 3, 2}; });
  refused(Fault::kAttribute, "a way to resize that is none",
          [](OwnedPlan& p) { p.attributes.of<ResizeAttribute>()[0].kind = 3; });
  refused(Fault::kShape, "other channels of another size", [&](OwnedPlan& p) { slot(p, 5).shape[3] = 3; });
  refused(Fault::kShape, "elements lost on the way to another shape", [&](OwnedPlan& p) { slot(p, 6).shape[1] = 35; });
}

// ---- generation ----

// Returns a plan with the rows rms_norm n <- x, decode y <- n with caches, and relu z <- y. Slots x
// (the tokens' rows), starts, keys, values, n, rstd, y, z are 0 to 7; z is the output.
OwnedPlan generating_plan() {
  PlanBuilder b;
  const Ref gamma = b.state(StateKind::kParameter, "gamma", {12});
  b.plan.attributes.of<NormAttribute>() = {{1e-5f, 0, 0}};
  b.plan.attributes.of<AttentionAttribute>() = {{2, 1, 0, 3}};
  b.begin(ProgramId::kGenerate);
  const Ref x = b.input({1, 4, 12}), starts = b.document_start({1, 4}), keys = b.cache({9, 3}),
            values = b.cache({9, 3}), n = b.slot({1, 4, 12}), rstd = b.slot({1, 4}), y = b.slot({1, 4, 6}),
            z = b.output({1, 4, 6});
  b.row(Op::kRmsNorm, Pass::kForward, {n, rstd, x, gamma});
  b.row(Op::kAttention, Pass::kDecode, {y, keys, values, n, starts});
  b.row(Op::kRelu, Pass::kForward, {z, y});
  b.end();
  return b.finish();
}

TEST(Check, CachesAreKeptFromRunToRun) {
  EXPECT_SAFE(generating_plan());
  const auto refused = [](Fault fault, const char* what, auto change) {
    OwnedPlan plan = generating_plan();
    change(plan, plan.program(ProgramId::kGenerate));
    EXPECT_EQ(judge(plan).fault, fault) << what << ": " << shown(judge(plan));
  };
  const auto slot_of = [](OwnedProgram& p, SlotKind use, uint32_t number) -> uint32_t {
    for (uint32_t s = 0; s < p.slots.size(); ++s) {
      if (p.slots[s].use == use && number-- == 0) return s;
    }
    ADD_FAILURE() << "no such slot";
    return 0;
  };
  const auto argument = [](OwnedProgram& p, uint32_t row, uint32_t i) -> Ref& {
    return p.arguments[p.rows[row].first_argument + i];
  };
  refused(Fault::kDiesEarly, "a cache that dies before the last row",
          [&](OwnedPlan&, OwnedProgram& p) { --p.slots[slot_of(p, SlotKind::kCache, 0)].end_row; });
  refused(Fault::kReadBeforeWrite, "a cache that nothing holds", [&](OwnedPlan&, OwnedProgram& p) {
    p.slots[slot_of(p, SlotKind::kCache, 1)].use = SlotKind::kTransient;
  });
  refused(Fault::kDiesEarly, "an output that dies before the last row",
          [](OwnedPlan&, OwnedProgram& p) { p.output = p.arguments[p.rows[0].first_argument]; });
  refused(Fault::kDiesEarly, "an output that does not exist", [](OwnedPlan&, OwnedProgram& p) { p.output = 99; });
  refused(Fault::kDiesEarly, "caches of a training",
          [](OwnedPlan& plan, OwnedProgram& p) { std::swap(plan.program(ProgramId::kEvaluate), p); });
  refused(Fault::kOverlap, "something else in a cache", [&](OwnedPlan&, OwnedProgram& p) {
    const uint32_t n = argument(p, 0, 0);
    p.slots[n].below = slot_of(p, SlotKind::kCache, 0);
    p.slots[n].tensor.offset = p.slots[p.slots[n].below].tensor.offset;
  });
  refused(Fault::kShape, "caches of other heads", [&](OwnedPlan&, OwnedProgram& p) {
    for (uint32_t i = 0; i < 2; ++i) p.slots[slot_of(p, SlotKind::kCache, i)].tensor.shape[1] = 6;
  });
  refused(Fault::kShape, "caches shorter than the tokens put in at once", [&](OwnedPlan&, OwnedProgram& p) {
    for (uint32_t i = 0; i < 2; ++i) p.slots[slot_of(p, SlotKind::kCache, i)].tensor.shape[0] = 3;
  });
  refused(Fault::kAttribute, "dropout",
          [](OwnedPlan& plan, OwnedProgram&) { plan.attributes.of<AttentionAttribute>()[0].dropout = 0.5f; });
  refused(Fault::kAttribute, "attention that sees ahead",
          [](OwnedPlan& plan, OwnedProgram&) { plan.attributes.of<AttentionAttribute>()[0].causal = 0; });
  refused(Fault::kAliasing, "one cache for both", [&](OwnedPlan&, OwnedProgram& p) {
    argument(p, 1, AttentionDecode::kValues) = argument(p, 1, AttentionDecode::kKeys);
  });
}

// ---- random tables: check() must return, and under ASAN must not access memory outside its arrays
// ----

TEST(Check, SurvivesRandomNumbers) {
  std::mt19937_64 random(20260727);
  for (uint32_t trial = 0; trial < 4000; ++trial) {
    OwnedPlan plan = trial % 2 ? SampleConvNet().make() : SampleTransformer().make();
    for (uint32_t changes = 1 + random() % 3; changes-- > 0;) {
      OwnedProgram& p = plan.program(random() % 3 == 0 ? ProgramId::kUpdate : ProgramId::kMicroFirst);
      const uint32_t value = random() % 2 ? static_cast<uint32_t>(random() % 70) : static_cast<uint32_t>(random());
      switch (random() % 8) {
        case 0: p.arguments[random() % p.arguments.size()] = value; break;
        case 1: p.rows[random() % p.rows.size()].op = static_cast<Op>(value); break;
        case 2: p.rows[random() % p.rows.size()].pass = static_cast<Pass>(value); break;
        case 3: p.rows[random() % p.rows.size()].first_argument = value; break;
        case 4: p.rows[random() % p.rows.size()].attribute = value; break;
        case 5:
          if (!p.slots.empty()) p.slots[random() % p.slots.size()].below = value;
          break;
        case 6:
          if (!p.slots.empty()) p.slots[random() % p.slots.size()].end_row = value;
          break;
        default: plan.attributes.of<UpdateAttribute>()[0].group.tensors = value; break;
      }
    }
    judge(plan);
  }
}

}  // namespace
}  // namespace reprise::testing
