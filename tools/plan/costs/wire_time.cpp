// Simulates a step for wire_time.h.
#include "tools/plan/costs/wire_time.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace reprise {

namespace {

// True if the row transfers data between ranks (gradients, statistics or parameters), or loads a
// weight of which each rank has a slice.
bool comes_from_ranks(const OwnedPlan& plan, const Row& row) {
  if (row.op == Op::kLoad && plan.shard_bytes > 0) return true;
  return kernel_info(row.op, row.pass).carrier == Carrier::kPeers;
}

class WireWalk {
 public:
  WireWalk(const OwnedPlan& plan, const Wire& wire) : plan_(plan), wire_(wire), sent_(plan.ranks) {}

  // Simulates the rows. `seconds`: the time of each row.
  void run(const OwnedProgram& program, const std::vector<double>& seconds) {
    arrivals_.clear();
    for (size_t r = 0; r < program.rows.size(); ++r) {
      const Row& row = program.rows[r];
      if (comes_from_ranks(plan_, row)) {
        row.pass == Pass::kStart ? start(program, row) : wait_for(program, row);
      } else {
        now_ += seconds[r];
      }
    }
  }
  void compute(double seconds) { now_ += seconds; }
  void hear_of_every_rank() {
    for (uint32_t other = 1; other < plan_.ranks; ++other) receive(wire_.seconds(0));
    wait_until(free_);
  }
  WireTime end() {
    time_.step_seconds = std::max(now_, free_);
    time_.sent_bytes = *std::max_element(sent_.begin(), sent_.end());
    return time_;
  }

 private:
  void start(const OwnedProgram& program, const Row& row) {
    const Ref y = program.arguments[row.first_argument];
    const uint64_t bytes = kernel_call(plan_, program, row).tensors[0]->used_bytes();
    arrivals_[y] = now_;  // this rank's own part is available at once
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      const uint64_t sent = sent_by(rank, row, bytes);
      sent_[rank] += sent;
      if (rank == 0 || sent == 0) continue;
      time_.received_bytes += sent;
      arrivals_[y] = receive(wire_.seconds(sent));
    }
  }
  // Returns the bytes that a rank sends. Each rank sends its slice of a streamed weight; any other
  // data comes from one rank.
  uint64_t sent_by(uint32_t rank, const Row& row, uint64_t bytes) const {
    if (row.op == Op::kLoad) return bytes / plan_.ranks;
    return plan_.attributes.of<ShareAttribute>()[row.attribute].root == rank ? bytes : 0;
  }
  void wait_for(const OwnedProgram& program, const Row& row) {
    const auto arrival = arrivals_.find(program.arguments[row.first_argument]);
    if (arrival != arrivals_.end()) wait_until(arrival->second);
  }
  double receive(double seconds) {
    free_ = std::max(now_, free_) + seconds;
    time_.wire_seconds += seconds;
    return free_;
  }
  void wait_until(double arrival) {
    time_.waited_seconds += std::max(0.0, arrival - now_);
    now_ = std::max(now_, arrival);
  }

  const OwnedPlan& plan_;
  const Wire& wire_;
  // now_: time at which the rows so far are done. free_: time at which all messages that were
  // started have arrived.
  double now_ = 0, free_ = 0;
  std::vector<uint64_t> sent_;  // by rank: bytes that the rank sends to each other rank
  std::map<Ref, double> arrivals_;
  WireTime time_;
};

}  // namespace

std::string wire_words(const Wire& wire) {
  char words[160];
  std::snprintf(words, sizeof words,
                "a tensor of another rank takes %.4g ms and %.4g ms a MiB, measured with %llu ranks",
                1e3 * wire.message_seconds, 1e3 * 0x1p20 * wire.byte_seconds,
                static_cast<unsigned long long>(wire.ranks));
  return words;
}

WireTime wire_time(const OwnedPlan& plan, const Wire& wire, double micro_batch_seconds, const RowSeconds& row_seconds) {
  struct PricedProgram {
    const OwnedProgram* program;
    uint32_t times;
    std::vector<double> seconds;  // entry r: seconds of row r
  };
  std::vector<PricedProgram> programs;  // in the order in which a step runs them
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (programs.empty() || programs.back().program != &program) programs.push_back({&program, times, {}});
    programs.back().seconds.push_back(comes_from_ranks(plan, row) || times == 0 ? 0 : row_seconds(program, row));
  });
  WireWalk walk(plan, wire);
  for (const PricedProgram& each : programs) {
    const bool is_micro_batch = each.program != &plan.program(ProgramId::kUpdate);
    for (uint32_t turn = 0; turn < each.times; ++turn) {
      if (is_micro_batch) walk.compute(micro_batch_seconds);
      walk.run(*each.program, each.seconds);
      if (is_micro_batch) walk.hear_of_every_rank();
    }
  }
  return walk.end();
}

}  // namespace reprise
