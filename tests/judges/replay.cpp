// Runs a complete plan on the machine of term_machine.h. Then compares the terms of all lasting
// values (State and the scalars) with the terms that the network defines.
#include "tests/judges/replay.h"

#include <memory>
#include <set>

#include "tests/judges/term_machine.h"

namespace reprise::testing {

std::string ReplayVerdict::text() const {
  if (ok) return "accepted";
  return program + (row == ~0u ? "" : " row " + std::to_string(row)) + ": " + reason;
}

namespace {

class Judgement {
 public:
  Judgement(const Plan& plan, TermTable& terms, const ExpectedStep& expected, ReplayTrace* trace)
      : plan_(plan), terms_(terms), expected_(expected), trace_(trace) {}

  ReplayVerdict run() {
    try {
      where_ = "the arena";
      if (plan_.ranks == 0 || plan_.ranks > kMaxRanks) throw Wrong{"no such number of ranks"};
      for (uint32_t r = 0; r < plan_.ranks; ++r) machines_.push_back(std::make_unique<TermMachine>(plan_, terms_, r));
      std::vector<TermMachine*> ranks;
      for (const auto& each : machines_) ranks.push_back(each.get());
      for (TermMachine* each : ranks) each->know_ranks(ranks);
      machine_ = ranks[0];
      run_step();
      where_ = "the step";
      for (TermMachine* each : ranks) {
        machine_ = each;
        compare_state();
        compare_scalars(expected_.scalars);
      }
      run_evaluation();
    } catch (const Wrong& wrong) {
      return {false, where_, machine_ ? machine_->row() : ~0u, wrong.reason};
    }
    return {};
  }

 private:
  std::vector<RowTerms>* trace(ProgramId id) {
    std::vector<RowTerms>* rows = trace_ == nullptr ? nullptr : &trace_->rows[static_cast<size_t>(id)];
    return rows == nullptr || !rows->empty() ? nullptr : rows;
  }

  void run_step() {
    Scalars step = host_scalars(terms_, plan_.seed, kTrainingStep);
    for (uint32_t turn = 0; turn < plan_.accumulate; ++turn) {
      const ProgramId id = turn == 0             ? ProgramId::kMicroFirst
                           : is_last_level(turn) ? ProgramId::kMicroLast
                                                 : ProgramId::kMicroAdd;
      where_ = turn == 0 ? "micro_first"
                         : (id == ProgramId::kMicroLast ? "micro_last " : "micro_add ") + std::to_string(turn);
      run_turn(id, turn, step);
    }
    where_ = "update";
    for (const auto& each : machines_) {
      machine_ = each.get();
      each->scalars = step;
      each->begin(ProgramId::kUpdate, "nothing", each == machines_[0] ? trace(ProgramId::kUpdate) : nullptr);
    }
    run_together(ProgramId::kUpdate);
    for (const auto& each : machines_) each->end();
  }

  void run_together(ProgramId id) {
    for (uint32_t row = 0; row < plan_.program(id).rows.count; ++row) {
      for (const auto& each : machines_) {
        machine_ = each.get();
        machine_->run_next_row();
      }
    }
  }

  bool is_last_level(uint32_t turn) const {
    return turn + 1 == plan_.accumulate && plan_.program(ProgramId::kMicroLast).rows.count > 0;
  }

  // Runs one micro-batch of every rank: number turn * ranks + r in rank r. All ranks run the same
  // row before any runs the next one.
  void run_turn(ProgramId id, uint32_t turn, Scalars& step) {
    const bool is_alone = plan_.ranks == 1;
    for (uint32_t r = 0; r < plan_.ranks; ++r) {
      const uint32_t u = turn * plan_.ranks + r;
      machine_ = machines_[r].get();
      machine_->scalars = is_alone ? step : scalars_of_rank(terms_, step);
      machine_->scalars[Scalar::kMicroBatch] = micro_batch_leaf(terms_, u);
      machine_->begin(id, training_batch(u), r == 0 ? trace(id) : nullptr);
    }
    run_together(id);
    for (const auto& each : machines_) {
      each->end();
      is_alone ? void(step = each->scalars) : add_rank(terms_, each->scalars, step);
    }
    if (!is_alone)
      step[Scalar::kMicroBatch] = micro_batch_leaf(terms_, static_cast<uint32_t>(micro_batches_of_step(plan_)) - 1);
  }

  void run(TermMachine& machine, ProgramId id, const std::string& batch, bool is_traced) {
    machine_ = &machine;
    machine.begin(id, batch, is_traced ? trace(id) : nullptr);
    for (uint32_t row = 0; row < plan_.program(id).rows.count; ++row) machine.run_next_row();
    machine.end();
  }

  void run_evaluation() {
    const std::vector<Term> before = machine_->whole_state();
    machine_->scalars = host_scalars(terms_, plan_.seed, kEvaluationStep);
    where_ = "evaluate";
    run(*machine_, ProgramId::kEvaluate, kEvaluationBatch, true);
    where_ = "the evaluation";
    compare_scalars(expected_.evaluated);
    if (machine_->whole_state() != before) throw Wrong{"changed more of State than the scalars"};
  }

  void compare_state() const {
    std::set<std::string> seen;
    for (uint32_t i = 1; i < plan_.state.count; ++i) {
      const StateTensor& tensor = plan_.state[i];
      if (tensor.kind == StateKind::kNorms) {
        compare_norms(i);
        continue;
      }
      const auto found = expected_.state.find(tensor.name);
      if (found == expected_.state.end()) throw Wrong{std::string("nobody knows the state ") + tensor.name};
      const ExpectedTensor& e = found->second;
      if (!seen.insert(tensor.name).second) throw Wrong{std::string("State has twice ") + tensor.name};
      const bool same_kind = e.kind == tensor.kind ||
                             (tensor.kind == StateKind::kStreamed && e.kind == StateKind::kParameter) ||
                             (tensor.kind == StateKind::kOffloaded && e.kind == StateKind::kOptimizer);
      if (!same_kind || e.init != tensor.init || e.init_scale != tensor.init_scale) {
        throw Wrong{std::string("another kind or start of ") + tensor.name};
      }
      if (tensor.kind == StateKind::kTable && numbers_of(tensor) != e.numbers)
        throw Wrong{std::string("other numbers in ") + tensor.name};
      // This rank has no content of a tensor that another rank owns.
      if (tensor.owner != kEveryRank &&
          (tensor.owner >= machines_.size() || machine_ != machines_[tensor.owner].get()))
        continue;
      const Term term = machine_->state(i);
      if (term != e.after) throw Wrong{std::string(tensor.name) + ": " + terms_.difference(e.after, term)};
    }
    if (plan_.state.count == 0 || plan_.state[0].kind != StateKind::kScalars)
      throw Wrong{"state[0] is not the scalars"};
    if (machine_->state(0) == kNoTerm) throw Wrong{"the scalars have been overwritten"};
    for (const auto& [name, tensor] : expected_.state) {
      if (seen.count(name) == 0) throw Wrong{"State lacks " + name};
    }
  }

  std::vector<float> numbers_of(const StateTensor& table) const {
    std::vector<float> numbers;
    for (uint64_t i = 0; i < table.tensor.elements() && table.first_number + i < plan_.numbers.count; ++i) {
      numbers.push_back(plan_.numbers[table.first_number + i]);
    }
    return numbers;
  }

  void compare_norms(uint32_t index) const {
    if (plan_.state[index].tensor.elements() != expected_.norms.size())
      throw Wrong{"State has another number of norms"};
    for (uint32_t i = 0; i < expected_.norms.size(); ++i) {
      const Term term = machine_->norm(index, i);
      if (term != expected_.norms[i])
        throw Wrong{"norm " + std::to_string(i) + ": " + terms_.difference(expected_.norms[i], term)};
    }
  }

  void compare_scalars(const Scalars& expected) const {
    for (uint32_t s = 0; s < kScalarCount; ++s) {
      if (machine_->scalars.terms[s] != expected.terms[s]) {
        throw Wrong{"scalars: " + terms_.difference(expected.terms[s], machine_->scalars.terms[s])};
      }
    }
  }

  const Plan& plan_;
  TermTable& terms_;
  const ExpectedStep& expected_;
  ReplayTrace* trace_;
  std::vector<std::unique_ptr<TermMachine>> machines_;  // one for each rank
  TermMachine* machine_ = nullptr;                      // the machine that is running or being compared
  std::string where_;
};

}  // namespace

Replay::Replay(const Graph& network, const Recipe& recipe) : expected_(expected_step(network, recipe, terms_)) {}

ReplayVerdict Replay::judge(const Plan& plan, ReplayTrace* trace) {
  return Judgement(plan, terms_, expected_, trace).run();
}

}  // namespace reprise::testing
