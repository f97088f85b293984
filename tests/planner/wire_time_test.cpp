// Tests the predicted time of a step with network transfers. The plans have a few rows, so that
// number and length of waits and the bytes sent can be computed by hand.
#include "tools/plan/costs/wire_time.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

constexpr double kMicroBatch = 0.125, kSum = 0.5;
// On this wire a tensor of 1 KiB takes 1.25 s, and a tensor of 4 KiB takes 4.25 s.
constexpr Wire kWire = {2, 0.25, 0x1p-10};

// A plan for these tests. Its rows of computation store their time in `attribute`, in eighths of a
// second, which only this file reads.
class HandMadePlan {
 public:
  explicit HandMadePlan(uint32_t ranks, uint32_t accumulate = 1) {
    plan_.ranks = ranks;
    plan_.accumulate = accumulate;
    for (uint32_t rank = 0; rank < ranks; ++rank) plan_.attributes.intern(ShareAttribute{rank});
  }

  void begin(ProgramId id) { here_ = &plan_.program(id); }
  void compute(double seconds) { add_row(Op::kCopy, Pass::kForward, static_cast<uint32_t>(8 * seconds), {}); }
  // Starts to share a gradient of `floats` floats from every rank with all ranks. Returns the slots
  // of the received parts.
  std::vector<Ref> start(uint32_t floats) {
    std::vector<Ref> parts;
    const Ref own = slot(floats);
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) parts.push_back(slot(floats));
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) add_row(Op::kShare, Pass::kStart, rank, {parts[rank], own});
    return parts;
  }
  // Shares in place a parameter that rank `owner` has updated: one row starts, and the next one
  // waits.
  void share_in_place(uint32_t floats, uint32_t owner) {
    const Ref whole = slot(floats);
    for (const Pass pass : {Pass::kStart, Pass::kWait}) add_row(Op::kShareInPlace, pass, owner, {whole, whole});
  }
  // Loads a streamed weight; each rank stores a slice of it.
  void load(uint32_t floats) {
    plan_.shard_bytes = kAlignment;
    const Ref whole = slot(floats);
    for (const Pass pass : {Pass::kStart, Pass::kWait}) add_row(Op::kLoad, pass, 0, {whole, whole});
  }
  void add(const std::vector<Ref>& parts) {
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      add_row(Op::kShare, Pass::kWait, rank, {parts[rank], parts[rank]});
      compute(kSum);
    }
  }

  WireTime time(const Wire& wire = kWire) const {
    return wire_time(plan_, wire, kMicroBatch, [](const OwnedProgram&, const Row& row) { return row.attribute / 8.0; });
  }

 private:
  Ref slot(uint32_t floats) {
    Slot slot;
    slot.tensor.dtype = DType::kF32;
    slot.tensor.rank = 1;
    slot.tensor.shape[0] = floats;
    slot.tensor.bytes = align_up(slot.tensor.used_bytes());
    here_->slots.push_back(slot);
    return make_ref(Region::kProgram, static_cast<uint32_t>(here_->slots.size() - 1));
  }
  void add_row(Op op, Pass pass, uint32_t attribute, std::initializer_list<Ref> arguments) {
    Row row = {};
    row.op = op, row.pass = pass, row.attribute = attribute;
    row.first_argument = static_cast<uint32_t>(here_->arguments.size());
    here_->arguments.insert(here_->arguments.end(), arguments);
    here_->rows.push_back(row);
  }

  OwnedPlan plan_;
  OwnedProgram* here_ = nullptr;
};

// Three ranks run two micro-batches. Each micro-batch is:
//
// rows  0.125 fill, 2 dw        | 1 another row | 0.5 | 0.5 | wait to 4.625, 0.5 | reports to 5.625
// wire                    2.125 | rank 1's to 3.375 | rank 2's to 4.625          | 0.25 + 0.25
TEST(WireTime, OfAGradientThatComesWhileRowsRun) {
  HandMadePlan plan(3, 2);
  for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd}) {
    plan.begin(id);
    plan.compute(2);
    const std::vector<Ref> parts = plan.start(256);
    plan.compute(1);
    plan.add(parts);
  }
  plan.begin(ProgramId::kUpdate);
  plan.compute(1);
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 2 * 5.625 + 1);
  EXPECT_EQ(time.wire_seconds, 2 * (2 * 1.25 + 2 * 0.25));
  EXPECT_EQ(time.waited_seconds, 2 * (0.5 + 0.5));
  EXPECT_EQ(time.sent_bytes, 2 * 1024u);
  EXPECT_EQ(time.received_bytes, 2 * time.sent_bytes);
}

// The second tensor is sent when the first has arrived.
//
// rows  0.125 fill, 1 | 0.125 | 0.5 | wait to 5.375, 0.5 | 0.5 | wait to 6.625, 0.5 | to 7.375
// wire          1.125 | the first, to 5.375              | the second, to 6.625     | 0.25
TEST(WireTime, CarriesOneAfterAnother) {
  HandMadePlan plan(2);
  plan.begin(ProgramId::kMicroFirst);
  plan.compute(1);
  const std::vector<Ref> first = plan.start(1024);
  plan.compute(0.125);
  const std::vector<Ref> second = plan.start(256);
  // Adding `first`: its own part from 1.25 to 1.75, the other rank's part from 5.375 to 5.875.
  // Adding `second`: its own part until 6.375, the other rank's part from 6.625 to 7.125.
  plan.add(first);
  plan.add(second);
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 7.125 + 0.25);
  EXPECT_EQ(time.waited_seconds, (5.375 - 1.75) + (6.625 - 6.375) + 0.25);
  EXPECT_EQ(time.wire_seconds, 4.25 + 1.25 + 0.25);
  EXPECT_EQ(time.sent_bytes, 4096u + 1024u);
}

// Gradients shared in `update` are sent then, and the step ends only when all of them have arrived,
// even if no row waits.
TEST(WireTime, EndsWithTheWire) {
  HandMadePlan plan(2);
  plan.begin(ProgramId::kMicroFirst);
  plan.compute(1);
  plan.begin(ProgramId::kUpdate);
  plan.start(256);
  plan.compute(0.5);
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 1.125 + 0.25 + 1.25);
  EXPECT_EQ(time.waited_seconds, 0.25) << "no row waits for it";
  EXPECT_EQ(time.sent_bytes, 1024u);
}

// Rank 0 owns 4 KiB, and ranks 1 and 2 own 1 KiB each. The times are those of rank 0, which
// receives the two small parameters and sends the large one.
TEST(WireTime, OfParametersThatRanksKeep) {
  HandMadePlan plan(3);
  plan.begin(ProgramId::kUpdate);
  plan.compute(1);
  plan.share_in_place(1024, 0);
  plan.share_in_place(256, 1);
  plan.share_in_place(256, 2);
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 1 + 2 * 1.25);
  EXPECT_EQ(time.waited_seconds, 2 * 1.25);
  EXPECT_EQ(time.sent_bytes, 4096u);
  EXPECT_EQ(time.received_bytes, 2 * 1024u);
}

// The weight has 4 KiB. Each rank stores a slice of 1 KiB and receives the other three.
TEST(WireTime, OfWeightsThatRanksHoldInSlices) {
  HandMadePlan plan(4);
  plan.begin(ProgramId::kMicroFirst);
  plan.load(1024);
  plan.compute(1);
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 0.125 + 3 * 1.25 + 1 + 3 * 0.25);
  EXPECT_EQ(time.waited_seconds, 3 * 1.25 + 3 * 0.25);
  EXPECT_EQ(time.sent_bytes, 1024u);
  EXPECT_EQ(time.received_bytes, 3 * 1024u);
}

TEST(WireTime, OneRankWaitsForNobody) {
  HandMadePlan plan(1, 3);
  for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd, ProgramId::kUpdate}) {
    plan.begin(id);
    plan.compute(2);
  }
  const WireTime time = plan.time();
  EXPECT_EQ(time.step_seconds, 3 * (kMicroBatch + 2) + 2);
  EXPECT_EQ(time.wire_seconds, 0);
  EXPECT_EQ(time.waited_seconds, 0);
  EXPECT_EQ(time.sent_bytes, 0u);
}

TEST(WireTime, SaysWhatAWireTakes) {
  EXPECT_EQ(wire_words({2, 0.0002, 0x1p-30}),
            "a tensor of another rank takes 0.2 ms and 0.9766 ms a MiB, measured with 2 ranks");
}

}  // namespace
}  // namespace reprise
