// The walk of wire_time.h.
#include "tools/planning/wire_time.h"

#include <algorithm>
#include <cstdio>
#include <map>

namespace reprise {

namespace {

class WireWalk {
 public:
  WireWalk(const OwnedPlan& plan, const Wire& wire) : plan_(plan), wire_(wire) {}

  // `seconds`: of each row.
  void run(const OwnedProgram& program, const std::vector<double>& seconds) {
    arrivals_.clear();
    for (size_t r = 0; r < program.rows.size(); ++r) {
      const Row& row = program.rows[r];
      if (row.op == Op::kShare) {
        share(program, row);
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
    return time_;
  }

 private:
  void share(const OwnedProgram& program, const Row& row) {
    const Ref y = program.arguments[row.first_argument + ShareStart::kY];
    if (row.pass == Pass::kWait) {
      if (const auto arrival = arrivals_.find(y); arrival != arrivals_.end()) wait_until(arrival->second);
      return;
    }
    const uint64_t bytes = kernel_call(plan_, program, row).tensors[ShareStart::kY]->used_bytes();
    if (plan_.attributes.of<ShareAttribute>()[row.attribute].root == 0) {
      time_.sent_bytes += bytes;
      arrivals_[y] = now_;
    } else {
      arrivals_[y] = receive(wire_.seconds(bytes));
    }
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
  double now_ = 0, free_ = 0;  // of the rows, and of the wire: when it has carried all that was started
  std::map<Ref, double> arrivals_;
  WireTime time_;
};

}  // namespace

std::string wire_words(const Wire& wire) {
  char words[160];
  std::snprintf(words, sizeof words, "a tensor of another rank takes %.4g ms and %.4g ms a MiB, measured with %llu ranks", 1e3 * wire.message_seconds,
                1e3 * 0x1p20 * wire.byte_seconds, static_cast<unsigned long long>(wire.ranks));
  return words;
}

WireTime wire_time(const OwnedPlan& plan, const Wire& wire, double micro_batch_seconds, const RowSeconds& row_seconds) {
  struct PricedProgram {
    const OwnedProgram* program;
    uint32_t times;
    std::vector<double> seconds;  // of its rows
  };
  std::vector<PricedProgram> programs;  // in the order in which a step runs them
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    if (programs.empty() || programs.back().program != &program) programs.push_back({&program, times, {}});
    programs.back().seconds.push_back(row.op == Op::kShare || times == 0 ? 0 : row_seconds(program, row));
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
