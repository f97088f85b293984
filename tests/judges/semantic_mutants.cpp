// Makes the mutants of semantic_mutants.h. If a change moves, copies or erases rows, lifetimes are
// recomputed, so that only values of the mutant are wrong.
#include "tests/judges/semantic_mutants.h"

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "tests/judges/plan_edit.h"

namespace reprise::testing {

namespace {

struct SemanticSite {
  uint32_t row = 0, argument = 0, other = 0;
};

// Facts about one program of a plan: which rows and outputs affect a value that lasts after the
// program, and which terms slots contain.
class Facts {
 public:
  Facts(const OwnedProgram& p, const std::vector<RowTerms>& terms) : p_(p), terms_(terms), needed_(p.rows.size()) {
    std::set<Ref> wanted;
    for (uint32_t r = static_cast<uint32_t>(p.rows.size()); r-- > 0;) {
      const uint32_t arity = kernel(p.rows[r]).arity();
      for (uint32_t i = 0; i < arity; ++i) {
        const Ref at = ref(r, i);
        if (at == kNoRef || (role(r, i) != Role::kOutput && role(r, i) != Role::kUpdated)) continue;
        if (!is_local(at) || wanted.count(at) != 0) needed_[r] |= 1u << i;
      }
      if (needed_[r] == 0) continue;
      for (uint32_t i = 0; i < arity; ++i) {
        if (is_local(ref(r, i)) && role(r, i) == Role::kOutput && !adds(p.rows[r], i)) wanted.erase(ref(r, i));
      }
      for (uint32_t i = 0; i < arity; ++i) {
        if (is_local(ref(r, i)) && (role(r, i) == Role::kInput || role(r, i) == Role::kUpdated))
          wanted.insert(ref(r, i));
      }
    }
  }

  uint32_t rows() const { return static_cast<uint32_t>(p_.rows.size()); }
  const Row& row(uint32_t r) const { return p_.rows[r]; }
  Ref ref(uint32_t r, uint32_t i) const { return p_.arguments[p_.rows[r].first_argument + i]; }
  Role role(uint32_t r, uint32_t i) const { return kernel(p_.rows[r]).arguments[i].role; }
  Term term(uint32_t r, uint32_t i) const { return terms_[r].read[i]; }
  bool needed(uint32_t r) const { return needed_[r] != 0; }
  bool needed(uint32_t r, uint32_t i) const { return (needed_[r] >> i & 1) != 0; }

  std::vector<uint32_t> needed_rows() const {
    std::vector<uint32_t> list;
    for (uint32_t r = 0; r < rows(); ++r) {
      if (needed(r)) list.push_back(r);
    }
    return list;
  }

  // Returns the term that slot `s` contains before row `r`; kNoTerm if no row has written the slot.
  Term held(uint32_t r, uint32_t s) const {
    while (r-- > 0) {
      for (uint32_t i = 0; i < kernel(p_.rows[r]).arity(); ++i) {
        if (ref(r, i) == s && terms_[r].written[i] != kNoTerm) return terms_[r].written[i];
      }
    }
    return kNoTerm;
  }

 private:
  const OwnedProgram& p_;
  const std::vector<RowTerms>& terms_;
  std::vector<uint32_t> needed_;  // by row; bit i is set if output i affects a lasting value
};

class SemanticMutantMaker {
 public:
  SemanticMutantMaker(const OwnedPlan& good, const ReplayTrace& trace, uint64_t seed)
      : good_(good), trace_(trace), random_(seed) {}

  std::vector<SemanticMutant> make() {
    for (program_ = 0; program_ < kProgramCount; ++program_) {
      const OwnedProgram& p = good_.programs[program_];
      if (p.rows.empty() || trace_.rows[program_].size() != p.rows.size()) continue;
      const Facts facts(p, trace_.rows[program_]);
      facts_ = &facts;
      change_rows();
      change_accumulation();
      change_arguments();
      change_attributes();
      update_too_early();
    }
    return std::move(mutants_);
  }

 private:
  using Test = std::function<bool(SemanticSite&)>;
  using Change = std::function<void(OwnedPlan&, OwnedProgram&, const SemanticSite&)>;

  void add(const std::string& kind, const std::vector<SemanticSite>& sites, const Change& change) {
    if (sites.empty()) return;
    const SemanticSite site = sites[random_() % sites.size()];
    mutants_.push_back({kind + " at program " + std::to_string(program_) + " row " + std::to_string(site.row) +
                            " argument " + std::to_string(site.argument) + "/" + std::to_string(site.other),
                        good_});
    OwnedPlan& plan = mutants_.back().plan;
    change(plan, plan.programs[program_], site);
  }

  std::vector<SemanticSite> rows(const Test& test) const {
    std::vector<SemanticSite> sites;
    for (uint32_t r = 0; r < facts_->rows(); ++r) {
      SemanticSite site{r};
      if (facts_->needed(r) && test(site)) sites.push_back(site);
    }
    return sites;
  }
  std::vector<SemanticSite> arguments(Role role, const Test& test) const {
    std::vector<SemanticSite> sites;
    for (uint32_t r = 0; r < facts_->rows(); ++r) {
      for (uint32_t i = 0; i < kernel(facts_->row(r)).arity(); ++i) {
        SemanticSite site{r, i};
        if (!facts_->needed(r) || facts_->role(r, i) != role || facts_->ref(r, i) == kNoRef) continue;
        if (test(site)) sites.push_back(site);
      }
    }
    return sites;
  }

  Form form(Ref ref) const {
    switch (ref_region(ref)) {
      case Region::kState:
        return form_of(good_.state[ref_index(ref)].tensor);
      case Region::kCarried:
        return form_of(good_.carried[ref_index(ref)]);
      case Region::kSpill:
        return form_of(good_.programs[program_].spilled[ref_index(ref)].tensor);
      default:
        return form_of(good_.programs[program_].slots[ref_index(ref)].tensor);
    }
  }

  // ---- rows ----

  void change_rows() {
    const auto any = [](SemanticSite&) { return true; };
    add("row dropped", rows(any), [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
      p.rows.erase(p.rows.begin() + s.row);
      renew_lifetimes(p);
    });
    const auto is_running = [this](SemanticSite& s) { return facts_->row(s.row).pass == Pass::kRunning; };
    add("running statistics twice", rows(is_running), [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
      p.rows.insert(p.rows.begin() + s.row, p.rows[s.row]);
      renew_lifetimes(p);
    });
    // True if output `i` of this row overwrites a slot that an earlier row has already written. A
    // recomputed norm, for example, writes the same rstd to the same slot again. A row that reads
    // the rstd may be before or after the recomputation, so exchanging the two rows would change
    // nothing.
    const auto stands_already = [this](const SemanticSite& s, uint32_t i) {
      const bool adds = (facts_->row(s.row).accumulate >> i & 1) != 0;
      for (uint32_t row = 0; !adds && row < s.row; ++row) {
        for (uint32_t j = 0; j < kernel(facts_->row(row)).arity(); ++j) {
          if (facts_->ref(row, j) == facts_->ref(s.row, i) && facts_->role(row, j) == Role::kOutput) return true;
        }
      }
      return false;
    };
    const auto reads_the_row_before = [this, stands_already](SemanticSite& s) {
      if (s.row + 1 >= facts_->rows() || !facts_->needed(s.row + 1)) return false;
      for (uint32_t i = 0; i < kernel(facts_->row(s.row)).arity(); ++i) {
        const Ref ref = facts_->ref(s.row, i);
        if (!is_slot(ref) || facts_->role(s.row, i) != Role::kOutput || stands_already(s, i)) continue;
        for (uint32_t j = 0; j < kernel(facts_->row(s.row + 1)).arity(); ++j) {
          if (facts_->ref(s.row + 1, j) == ref && facts_->role(s.row + 1, j) == Role::kInput) return true;
        }
      }
      return false;
    };
    add("rows exchanged", rows(reads_the_row_before),
        [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) { move_row(p, s.row + 1, s.row); });
  }

  // ---- sums ----

  void change_accumulation() {
    const auto adds_here = [this](SemanticSite& s) {
      return adds(facts_->row(s.row), s.argument) && facts_->needed(s.row, s.argument);
    };
    add("sum's row twice", arguments(Role::kOutput, adds_here), [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
      p.rows.insert(p.rows.begin() + s.row, p.rows[s.row]);
      renew_lifetimes(p);
    });
    const auto flip = [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
      p.rows[s.row].accumulate = static_cast<uint16_t>(p.rows[s.row].accumulate ^ 1u << s.argument);
    };
    add("overwrites a sum", arguments(Role::kOutput, adds_here), flip);
    const auto could_add = [this](SemanticSite& s) {
      return kernel(facts_->row(s.row)).arguments[s.argument].may_accumulate && !adds(facts_->row(s.row), s.argument) &&
             facts_->needed(s.row, s.argument);
    };
    add("adds where it should overwrite", arguments(Role::kOutput, could_add), flip);
  }

  // ---- arguments ----

  void change_arguments() {
    const auto has_partner = [this](SemanticSite& s) {
      const Row& row = facts_->row(s.row);
      if (row.op == Op::kAdd || walks_groups(row)) return false;  // addition is commutative
      for (uint32_t j = s.argument + 1; j < kernel(row).arity(); ++j) {
        const Ref a = facts_->ref(s.row, s.argument), b = facts_->ref(s.row, j);
        if (facts_->role(s.row, j) != Role::kInput || b == kNoRef || form(a) != form(b)) continue;
        if (facts_->term(s.row, s.argument) == facts_->term(s.row, j)) continue;
        s.other = j;
        return true;
      }
      return false;
    };
    add("arguments exchanged", arguments(Role::kInput, has_partner),
        [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
          Ref* refs = own_arguments(p, s.row);
          std::swap(refs[s.argument], refs[s.other]);
        });
    const auto redirect = [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) {
      own_arguments(p, s.row)[s.argument] = s.other;
    };
    add("reads a dead slot", arguments(Role::kInput, [this](SemanticSite& s) { return has_older(s, true); }), redirect);
    add("reads an older slot kept alive",
        arguments(Role::kInput, [this](SemanticSite& s) { return has_older(s, false); }),
        [&redirect](OwnedPlan& plan, OwnedProgram& p, const SemanticSite& s) {
          redirect(plan, p, s);
          renew_lifetimes(p);
        });
    const auto has_twin_in_state = [this](SemanticSite& s) {
      const Ref ref = facts_->ref(s.row, s.argument);
      if (walks_groups(facts_->row(s.row)) || ref_region(ref) != Region::kState || ref_index(ref) == 0) return false;
      for (uint32_t i = 1; i < good_.state.size(); ++i) {
        if (i == ref_index(ref) || good_.state[i].kind != good_.state[ref_index(ref)].kind) continue;
        if (form(make_ref(Region::kState, i)) != form(ref)) continue;
        s.other = make_ref(Region::kState, i);
        return true;
      }
      return false;
    };
    add("another layer's parameter", arguments(Role::kInput, has_twin_in_state), redirect);
  }

  // True if another slot of the same form is dead at this row. Sets `other` to that slot. If not
  // `whatever`, the dead slot must also have another address and contain another term, so that
  // reading it gives a wrong value.
  bool has_older(SemanticSite& s, bool whatever) const {
    const Ref ref = facts_->ref(s.row, s.argument);
    if (!is_slot(ref)) return false;
    const std::vector<Slot>& slots = good_.programs[program_].slots;
    for (uint32_t i = static_cast<uint32_t>(slots.size()); i-- > 0;) {
      if (i == ref || slots[i].end_row > s.row || slots[i].use == SlotKind::kScratch || form(i) != form(ref)) continue;
      const bool is_there = slots[i].tensor.offset == slots[ref].tensor.offset;  // then both slots are the same bytes
      if (!whatever && (is_there || facts_->held(s.row, i) == facts_->term(s.row, s.argument))) continue;
      s.other = i;
      return true;
    }
    return false;
  }

  // ---- attributes ----

  void change_attributes() {
    const auto of = [this](std::initializer_list<Op> ops, std::initializer_list<Pass> passes = {}) {
      return rows([&](SemanticSite& s) {
        const Row& row = facts_->row(s.row);
        const bool op = std::find(ops.begin(), ops.end(), row.op) != ops.end();
        return op && (passes.size() == 0 || std::find(passes.begin(), passes.end(), row.pass) != passes.end());
      });
    };
    change("another stride", of({Op::kConv, Op::kMaxPool}), [](WindowAttribute& a) { ++a.stride_h; });
    change("another padding", of({Op::kConv, Op::kMaxPool}), [](WindowAttribute& a) { ++a.pad_top; });
    change("another padding behind", of({Op::kConv, Op::kMaxPool}), [](WindowAttribute& a) { ++a.pad_right; });
    change("another dilation", of({Op::kConv, Op::kMaxPool}), [](WindowAttribute& a) { ++a.dilation_w; });
    change("another number of groups", of({Op::kConv}), [](WindowAttribute& a) { ++a.groups; });
    change("another epsilon", of({Op::kBatchNorm}, {Pass::kStatistics, Pass::kInference, Pass::kBackwardData}),
           [](NormAttribute& a) { a.epsilon *= 2; });
    const auto takes_statistics = [this](SemanticSite& s) {
      const Row& row = facts_->row(s.row);
      return row.pass == Pass::kForward && (row.op == Op::kConv || row.op == Op::kNormConv) && facts_->needed(s.row, 2);
    };
    change("another epsilon of a convolution's statistics", rows(takes_statistics),
           [](WindowAttribute& a) { a.statistics_epsilon *= 2; });
    change("another momentum of the statistics", of({Op::kBatchNorm}, {Pass::kRunning}),
           [](NormAttribute& a) { a.momentum /= 2; });
    change("another epsilon of a layer-norm", of({Op::kLayerNorm}, {Pass::kForward}),
           [](NormAttribute& a) { a.epsilon *= 2; });
    change("another epsilon of an rms-norm", of({Op::kRmsNorm}, {Pass::kForward}),
           [](NormAttribute& a) { a.epsilon *= 2; });
    change("another offset of an rms-norm", of({Op::kRmsNorm}), [](NormAttribute& a) { a.offset = 1 - a.offset; });
    change("another scale of an embedding", of({Op::kEmbedding}), [](EmbeddingAttribute& a) { a.scale *= 2; });
    change("other columns", of({Op::kColumns, Op::kPad}),
           [](ColumnsAttribute& a) { a.first = a.first == 0 ? 1 : a.first - 1; });
    change("another order of dimensions", of({Op::kTranspose}),
           [](TransposeAttribute& a) { std::swap(a.axis_1, a.axis_2); });
    change("another factor of a product turned", of({Op::kProduct}), [](ProductAttribute& a) { a.transposed_b ^= 1u; });
    change("the first factor of a product turned", of({Op::kProduct}),
           [](ProductAttribute& a) { a.transposed_a ^= 1u; });
    change("another way to resize", of({Op::kResize}), [](ResizeAttribute& a) { a.kind = a.kind == 0 ? 1 : 0; });
    change("another cap of the logits", of({Op::kLossHead}), [](CapAttribute& a) { a.softcap = a.softcap * 2 + 1; });
    change("another weight layout", of({Op::kLinear}, {Pass::kForward, Pass::kBackwardData, Pass::kBackwardWeight}),
           [](LinearAttribute& a) { a.input_major ^= 1u; });
    change("another gelu", of({Op::kGelu}), [](GeluAttribute& a) { a.tanh_form ^= 1u; });
    change("another loss of numbers", of({Op::kTargetLoss}), [](TargetLossAttribute& a) {
      a = {a.kind == 0 ? 1u : 0u, 0};
    });
    change("another share of dice", of({Op::kClassLoss}),
           [](ClassLossAttribute& a) { a.dice = a.dice * 0.5f + 0.25f; });
    change("another smoothing of labels", of({Op::kClassLoss}),
           [](ClassLossAttribute& a) { a.label_smoothing = a.label_smoothing * 0.5f + 0.25f; });
    change("another temperature", of({Op::kPairLoss}), [](PairLossAttribute& a) {
      a = {0, a.temperature * 0.5f + 0.25f, a.symmetric};
    });
    change("the other symmetry", of({Op::kPairLoss}), [](PairLossAttribute& a) {
      a = {0, a.kind == 0 ? a.temperature : 0.5f, 1 - a.symmetric};
    });
    change("another function", of({Op::kUnary}), [](UnaryAttribute& a) { a = {a.function == 0 ? 1u : 0u, 0}; });
    change("another number of heads", of({Op::kAttention}), [](AttentionAttribute& a) { ++a.heads; });
    change("another number of shared heads", of({Op::kAttention}), [](AttentionAttribute& a) { ++a.kv_heads; });
    change("another attention dropout", of({Op::kAttention}),
           [](AttentionAttribute& a) { a.dropout = a.dropout / 2 + 0.25f; });
    change("another window of the attention", of({Op::kAttention}), [](AttentionAttribute& a) { ++a.window; });
    change("another cap of the scores", of({Op::kAttention}),
           [](AttentionAttribute& a) { a.softcap = a.softcap * 2 + 1; });
    change("the other causality", of({Op::kAttention}), [](AttentionAttribute& a) { a.causal ^= 1u; });
    change("another scale of the scores", of({Op::kAttention}),
           [](AttentionAttribute& a) { a.scale = a.scale * 2 + 1; });
    const auto computes_frequencies = [this](SemanticSite& s) {
      return facts_->row(s.row).op == Op::kRope && facts_->ref(s.row, RopeForward::kFrequencies) == kNoRef;
    };
    change("another theta", rows(computes_frequencies), [](RopeAttribute& a) { a.theta *= 2; });
    change("another number of rotary channels", of({Op::kRope}),
           [](RopeAttribute& a) { a.rotary += a.rotary > 2 ? -2 : 2; });
    change("another pairing of rotary channels", of({Op::kRope}), [](RopeAttribute& a) { a.neighbours ^= 1u; });
    change("another scale of sines and cosines", of({Op::kRope}), [](RopeAttribute& a) { a.scale *= 2; });
    change("another scale of a product", of({Op::kLinear}, {Pass::kForward, Pass::kBackwardData}),
           [](LinearAttribute& a) { a.scale *= 2; });
    const auto draws = [this](SemanticSite& s) {
      return facts_->row(s.row).op == Op::kAttention &&
             good_.attributes.of<AttentionAttribute>()[facts_->row(s.row).attribute].dropout > 0;
    };
    change("another attention mask", rows(draws), [](AttentionAttribute& a) { ++a.stream; });
    change("another dropout mask", of({Op::kDropout}), [](DropoutAttribute& a) { ++a.stream; });
    change("another share of a dropout's draws", of({Op::kDropout}),
           [](DropoutAttribute& a) { a.shared = a.shared == 1 ? 2 : 1; });
    change("another dropout probability", of({Op::kDropout}), [](DropoutAttribute& a) { a.probability /= 2; });
    change("another weight decay", of({Op::kSgd, Op::kAdamW, Op::kLion, Op::kMuon}),
           [](UpdateAttribute& a) { a.weight_decay += 0.125f; });
    change("another rate", of({Op::kSgd, Op::kAdamW, Op::kLion, Op::kMuon}), [](UpdateAttribute& a) { a.rate *= 2; });
    change("another stream of random bits", of({Op::kSgd, Op::kAdamW, Op::kLion, Op::kMuon}),
           [](UpdateAttribute& a) { ++a.stream; });
    change("another decay of means", of({Op::kAdafactor}), [](FactoredAttribute& a) { a.decay_power /= 2; });
    change("AdaLomo's step for Adafactor's", of({Op::kAdafactor}), [](FactoredAttribute& a) { a.adalomo ^= 1u; });
    change("another period of projections", of({Op::kApollo}), [](ProjectedAttribute& a) { ++a.period; });
    change("channels' factors for a tensor's", of({Op::kApollo}), [](ProjectedAttribute& a) { a.by_tensor ^= 1u; });
    change("another momentum", of({Op::kSgd, Op::kMuon}), [](UpdateAttribute& a) { a.momentum += 0.125f; });
    change("another beta", of({Op::kAdamW}), [](UpdateAttribute& a) { a.beta2 /= 2; });
    change("Lion's betas exchanged", of({Op::kLion}), [](UpdateAttribute& a) { std::swap(a.beta1, a.beta2); });
    const auto lion_decays = [this](SemanticSite& s) {
      return facts_->row(s.row).op == Op::kLion &&
             good_.attributes.of<UpdateAttribute>()[facts_->row(s.row).attribute].weight_decay > 0;
    };
    change("Lion's weight decay lost", rows(lion_decays), [](UpdateAttribute& a) { a.weight_decay = 0; });
    change("another rank's", of({Op::kShare}, {Pass::kStart}),
           [this](ShareAttribute& a) { a.root = (a.root + 1) % good_.ranks; });
    change("another clip", of({Op::kGradNorm}, {Pass::kFinish}), [](ClipAttribute& a) { ++a.max_norm; });
    const auto has_many_norms = [this](SemanticSite& s) {
      const Row& row = facts_->row(s.row);
      return row.op == Op::kGradNorm && row.pass == Pass::kReduce &&
             good_.attributes.of<GroupAttribute>()[row.attribute].first_norm > 0;
    };
    change("a norm in another's place", rows(has_many_norms), [](GroupAttribute& a) { --a.first_norm; });
  }

  template <typename Edit>
  void change(const std::string& kind, const std::vector<SemanticSite>& sites, Edit edit) {
    change_of(kind, sites, edit, &Edit::operator());
  }
  // T is the type of the attribute that `edit` changes.
  template <typename T, typename Edit>
  void change_of(const std::string& kind, const std::vector<SemanticSite>& sites, Edit edit, void (Edit::*)(T&) const) {
    add(kind, sites, [&](OwnedPlan& plan, OwnedProgram& p, const SemanticSite& s) {
      edit(own_attribute<T>(plan, p, s.row));
    });
  }

  // ---- updates ----

  void update_too_early() {
    const auto move_before = [](OwnedPlan&, OwnedProgram& p, const SemanticSite& s) { move_row(p, s.row, s.other); };
    // True if this row is an update, and an earlier row writes its gradient (`role` is kOutput) or
    // reads its weight (kInput). `argument` is the index of the gradient or weight in the update.
    // Sets `other` to the last such row.
    const auto last_row = [this](SemanticSite& s, uint32_t argument, Role role) {
      if (!updates_weights(facts_->row(s.row))) return false;
      for (uint32_t r = s.row; r-- > 0;) {
        for (uint32_t i = 0; i < kernel(facts_->row(r)).arity(); ++i) {
          if (facts_->ref(r, i) != facts_->ref(s.row, argument) || facts_->role(r, i) != role) continue;
          s.other = r;
          return role == Role::kOutput || facts_->needed(r);
        }
      }
      return false;
    };
    add("update before its last gradient",
        rows([&](SemanticSite& s) { return last_row(s, gradients_argument(facts_->row(s.row)), Role::kOutput); }),
        move_before);
    add("update before its weight's last reader", rows([&](SemanticSite& s) { return last_row(s, 0, Role::kInput); }),
        move_before);
    const auto follows_the_norm = [this](SemanticSite& s) {
      if (!updates_weights(facts_->row(s.row))) return false;
      for (s.other = s.row; s.other-- > 0;) {
        if (is_finish(facts_->row(s.other))) return true;
      }
      return false;
    };
    add("update before the clip factor is known", rows(follows_the_norm), move_before);
  }

  const OwnedPlan& good_;
  const ReplayTrace& trace_;
  std::mt19937_64 random_;
  uint32_t program_ = 0;
  const Facts* facts_ = nullptr;
  std::vector<SemanticMutant> mutants_;
};

std::vector<Ref> arguments_of(const OwnedProgram& p, uint32_t row) {
  const auto first = p.arguments.begin() + p.rows[row].first_argument;
  return {first, first + kernel(p.rows[row]).arity()};
}

// True if row `m` of the mutant has the same effect as row `r` of the correct program. Their input
// slots may differ if both slots contain the same term.
bool same_effect(const OwnedProgram& good, uint32_t r, const OwnedProgram& mutant, uint32_t m, const Facts& facts) {
  const Row &a = good.rows[r], &b = mutant.rows[m];
  if (a.op != b.op || a.pass != b.pass || a.accumulate != b.accumulate || a.attribute != b.attribute) return false;
  const std::vector<Ref> old = arguments_of(good, r), now = arguments_of(mutant, m);
  for (uint32_t i = 0; i < old.size(); ++i) {
    if (old[i] == now[i]) continue;
    if (!is_slot(old[i]) || !is_slot(now[i]) || facts.role(r, i) != Role::kInput) return false;
    if (facts.held(r, now[i]) != facts.term(r, i)) return false;
  }
  return true;
}

}  // namespace

std::vector<SemanticMutant> make_semantic_mutants(const OwnedPlan& good, const ReplayTrace& trace, uint64_t seed) {
  return SemanticMutantMaker(good, trace, seed).make();
}

bool changes_nothing(const OwnedPlan& good, const OwnedPlan& mutant, const ReplayTrace& trace) {
  for (uint32_t q = 0; q < kProgramCount; ++q) {
    const OwnedProgram &p = good.programs[q], &m = mutant.programs[q];
    if (m.slots.size() != p.slots.size()) return false;
    const Facts facts(p, trace.rows[q]), mutated(m, trace.rows[q]);
    const std::vector<uint32_t> before = facts.needed_rows(), after = mutated.needed_rows();
    if (before.size() != after.size()) return false;
    for (size_t i = 0; i < before.size(); ++i) {
      if (!same_effect(p, before[i], m, after[i], facts)) return false;
    }
  }
  return true;
}

std::vector<uint32_t> idle_rows(const OwnedPlan& plan, ProgramId program, const ReplayTrace& trace) {
  const Facts facts(plan.program(program), trace.rows[static_cast<size_t>(program)]);
  std::vector<uint32_t> idle;
  for (uint32_t r = 0; r < facts.rows(); ++r) {
    if (!facts.needed(r)) idle.push_back(r);
  }
  return idle;
}

}  // namespace reprise::testing
