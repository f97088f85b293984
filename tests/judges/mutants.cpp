// Makes one mutant of each kind from a correct plan: unsafe mutants for check(), semantic ones for
// the replay. The planner's plans and plans made by hand are changed in the same ways. This file
// calls no judge. A semantic mutant may by chance compute the same values; changes_nothing()
// detects this.
#include "tests/judges/mutants.h"

#include <algorithm>
#include <functional>
#include <random>

#include "tests/judges/plan_edit.h"

namespace reprise::testing {
namespace {

struct MutantSite {
  uint32_t program = 0, row = 0;
  uint32_t argument = 0, other = 0;  // indices of an argument, slot or block; their use depends on the kind of mutant
};

class MutantMaker {
 public:
  MutantMaker(const OwnedPlan& good, uint64_t seed) : good_(good), random_(seed) {}

  std::vector<PlanMutant> make() {
    break_plan();
    break_slots();
    break_rows();
    break_arguments();
    break_writes();
    break_transfers();
    break_loads();
    break_offloaded();
    change_meaning_of_rows();
    change_meaning_of_arguments();
    change_meaning_of_attributes();
    return std::move(mutants_);
  }

 private:
  using Change = std::function<void(OwnedPlan&, OwnedProgram&, const MutantSite&)>;
  using RowTest = std::function<bool(const OwnedProgram&, MutantSite&)>;

  void add(const std::string& name, const std::vector<Fault>& acceptable,
           const std::function<void(OwnedPlan&)>& change) {
    mutants_.push_back({name, good_, acceptable, false});
    change(mutants_.back().plan);
  }

  // Adds a mutant by changing the plan at a random one of `sites`. Adds none if there are no sites.
  void add_at(const std::string& name, const std::vector<Fault>& acceptable, bool semantic,
              const std::vector<MutantSite>& sites, const Change& change) {
    if (sites.empty()) return;
    const MutantSite site = sites[random_() % sites.size()];
    mutants_.push_back({name + " at program " + std::to_string(site.program) + " row " + std::to_string(site.row) +
                            " argument " + std::to_string(site.argument) + "/" + std::to_string(site.other),
                        good_, acceptable, semantic});
    OwnedPlan& plan = mutants_.back().plan;
    change(plan, plan.programs[site.program], site);
  }

  std::vector<MutantSite> rows(const RowTest& test) const {
    std::vector<MutantSite> sites;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      for (uint32_t r = 0; r < good_.programs[p].rows.size(); ++r) {
        MutantSite site{p, r};
        if (test(good_.programs[p], site)) sites.push_back(site);
      }
    }
    return sites;
  }
  std::vector<MutantSite> arguments(const RowTest& test) const {
    std::vector<MutantSite> sites;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      const OwnedProgram& program = good_.programs[p];
      for (uint32_t r = 0; r < program.rows.size(); ++r) {
        for (uint32_t i = 0; i < kernel(program.rows[r]).arity(); ++i) {
          MutantSite site{p, r, i};
          if (test(program, site)) sites.push_back(site);
        }
      }
    }
    return sites;
  }
  // Returns a site for each slot for which `test` is true. The site's `argument` is the index of
  // the slot.
  std::vector<MutantSite> slots(const RowTest& test) const {
    std::vector<MutantSite> sites;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      for (uint32_t s = 0; s < good_.programs[p].slots.size(); ++s) {
        MutantSite site{p, good_.programs[p].slots[s].first_row, s};
        if (test(good_.programs[p], site)) sites.push_back(site);
      }
    }
    return sites;
  }

  static Ref ref_at(const OwnedProgram& p, const MutantSite& s, uint32_t argument) {
    return p.arguments[p.rows[s.row].first_argument + argument];
  }
  static const ArgumentInfo& info_at(const OwnedProgram& p, const MutantSite& s) {
    return kernel(p.rows[s.row]).arguments[s.argument];
  }
  const Tensor& tensor(const OwnedProgram& p, Ref ref) const {
    switch (ref_region(ref)) {
      case Region::kCarried: return good_.carried[ref_index(ref)];
      case Region::kState: return good_.state[ref_index(ref)].tensor;
      case Region::kSpill: return p.spilled[ref_index(ref)].tensor;
      default: return p.slots[ref_index(ref)].tensor;
    }
  }
  bool alike(const OwnedProgram& p, Ref a, Ref b) const {
    return a != kNoRef && b != kNoRef && a != b && same_shape(tensor(p, a), tensor(p, b)) &&
           tensor(p, a).dtype == tensor(p, b).dtype;
  }

  // ---- unsafe: check() must report the fault ----

  void break_plan() {
    add("another format", {Fault::kFormat}, [](OwnedPlan& plan) { ++plan.format; });
    add("no micro-batch", {Fault::kFormat}, [](OwnedPlan& plan) { plan.accumulate = 0; });
    add("no rank", {Fault::kRanks}, [](OwnedPlan& plan) { plan.ranks = 0; });
    add("scalars are a buffer", {Fault::kScalars}, [](OwnedPlan& plan) { plan.state[0].kind = StateKind::kBuffer; });
    add("arena 256 bytes short", {Fault::kArenaBytes}, [](OwnedPlan& plan) {
      uint64_t maximum = 0;
      for (const OwnedProgram& program : plan.programs) maximum = std::max(maximum, program.bytes);
      plan.arena_bytes = plan.state_bytes + plan.carried_bytes + maximum - kAlignment;
    });
    add("state 256 bytes short", {Fault::kOutOfRegion}, [](OwnedPlan& plan) {
      const auto last = std::find_if(plan.state.rbegin(), plan.state.rend(),
                                     [](const StateTensor& state) { return state.kind != StateKind::kStreamed; });
      plan.state_bytes = last->tensor.offset + last->tensor.bytes - kAlignment;
    });
    if (good_.state.size() > 1) {
      add("state tensors overlap", {Fault::kOverlap},
          [](OwnedPlan& plan) { plan.state[1].tensor.offset = plan.state[0].tensor.offset; });
    }
    if (std::any_of(good_.state.begin(), good_.state.end(), is_kept)) break_owners();
  }

  static bool is_kept(const StateTensor& state) { return state.owner != kEveryRank; }
  static StateTensor& first_kept(OwnedPlan& plan) {
    return *std::find_if(plan.state.begin(), plan.state.end(), is_kept);
  }
  static Row& first_share_in_place(OwnedPlan& plan) {
    std::vector<Row>& rows = plan.program(ProgramId::kUpdate).rows;
    return *std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.op == Op::kShareInPlace; });
  }

  void break_owners() {
    add("kept by a rank that is none", {Fault::kRanks}, [](OwnedPlan& plan) { first_kept(plan).owner = plan.ranks; });
    add("for all ranks behind what one has", {Fault::kRanks},
        [](OwnedPlan& plan) { plan.state.back().owner = kEveryRank; });
    add("kept by another rank", {Fault::kRanks, Fault::kOverlap, Fault::kGroup},
        [](OwnedPlan& plan) { first_kept(plan).owner = (first_kept(plan).owner + 1) % plan.ranks; });
    add("spread from another rank", {Fault::kUpdate}, [](OwnedPlan& plan) {
      first_share_in_place(plan).attribute = (first_share_in_place(plan).attribute + 1) % plan.ranks;
    });
    add("spread into another parameter", {Fault::kAliasing, Fault::kUpdate, Fault::kShape, Fault::kReadOnly},
        [](OwnedPlan& plan) {
          ++plan.program(ProgramId::kUpdate).arguments[first_share_in_place(plan).first_argument];
        });
    add("never spread", {Fault::kUpdate}, [](OwnedPlan& plan) {
      OwnedProgram& update = plan.program(ProgramId::kUpdate);
      for (size_t r = update.rows.size(); r-- > 0;) {
        if (update.rows[r].op == Op::kShareInPlace) ProgramEditor(update).erase_row(static_cast<uint32_t>(r));
      }
    });
  }

  void break_slots() {
    const auto any = [](const OwnedProgram&, MutantSite&) { return true; };
    add_at("offset off by four", {Fault::kMisaligned}, false, slots(any),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].tensor.offset += 4; });
    add_at("dies at birth", {Fault::kSlotOrder}, false, slots(any),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.slots[s.argument].end_row = p.slots[s.argument].first_row;
           });
    add_at("outlives the program", {Fault::kSlotOrder}, false, slots(any),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.slots[s.argument].end_row = static_cast<uint32_t>(p.rows.size()) + 1;
           });
    const auto highest = [](const OwnedProgram& p, MutantSite& s) {
      return p.slots[s.argument].tensor.offset + p.slots[s.argument].tensor.bytes == p.bytes;
    };
    add_at("region 256 bytes short", {Fault::kOutOfRegion}, false, slots(highest),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite&) { p.bytes -= kAlignment; });
    const auto tight = [](const OwnedProgram& p, MutantSite& s) {
      const Tensor& t = p.slots[s.argument].tensor;
      return t.bytes - kAlignment < t.used_bytes();
    };
    add_at("too few bytes", {Fault::kTooFewBytes}, false, slots(tight),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].tensor.bytes -= kAlignment; });
    add_at("floats declared integers", {Fault::kDType}, false,
           slots([](const OwnedProgram& p, MutantSite& s) { return p.slots[s.argument].tensor.dtype == DType::kF32; }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].tensor.dtype = DType::kI32; });
    add_at("one activation alone declared bf16", {Fault::kDType}, false,
           slots([](const OwnedProgram& p, MutantSite& s) { return p.slots[s.argument].tensor.dtype == DType::kF32; }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].tensor.dtype = DType::kBf16; });
    const auto shrinkable = [](const OwnedProgram& p, MutantSite& s) {
      const Tensor& t = p.slots[s.argument].tensor;
      return t.dtype == DType::kF32 && t.shape[0] > 1;
    };
    add_at("one row less", {Fault::kShape, Fault::kAttribute, Fault::kGroup}, false, slots(shrinkable),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { --p.slots[s.argument].tensor.shape[0]; });
    break_neighbours();
    add_at("nobody's slot", {Fault::kUnused}, false,
           rows([](const OwnedProgram& p, MutantSite& s) { return s.row + 1 == p.rows.size(); }),
           [](OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) {
             Slot slot;
             slot.tensor = {p.bytes, kAlignment, DType::kF32, 1, {1, 1, 1, 1}};
             slot.first_row = s.row;
             slot.end_row = s.row + 1;
             p.bytes += kAlignment;
             plan.arena_bytes += kAlignment;
             p.slots.push_back(slot);
             p.slots.back().below = ProgramEditor(p).below(static_cast<uint32_t>(p.slots.size()) - 1);
           });
  }

  void break_neighbours() {
    const auto above_another = [](const OwnedProgram& p, MutantSite& s) {
      return p.slots[s.argument].below != kNoSlot && !kernel(p.rows[s.row]).moves;
    };
    add_at("on top of its neighbour", {Fault::kOverlap}, false, slots(above_another),
           [](OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) {
             p.slots[s.argument].tensor.offset = p.slots[p.slots[s.argument].below].tensor.offset;
             fit_regions(plan);
           });
    add_at("claims to lie lowest", {Fault::kHint}, false, slots(above_another),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].below = kNoSlot; });
    add_at("claims to lie above itself", {Fault::kHint}, false, slots(above_another),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].below = s.argument; });
    const auto place_is_taken_later = [](const OwnedProgram& p, MutantSite& s) {
      const Slot& slot = p.slots[s.argument];
      for (uint32_t i = s.argument + 1; i < p.slots.size(); ++i) {
        const Tensor &a = slot.tensor, &b = p.slots[i].tensor;
        const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        if (!overlap || p.slots[i].first_row < slot.end_row || kernel(p.rows[p.slots[i].first_row]).moves) continue;
        s.other = p.slots[i].first_row + 1;
        return true;
      }
      return false;
    };
    add_at("lives on under its successor", {Fault::kOverlap, Fault::kHint}, false, slots(place_is_taken_later),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].end_row = s.other; });
    const auto dies_early = [](const OwnedProgram& p, MutantSite& s) {
      OwnedProgram copy = p;
      s.other = ProgramEditor(copy).uses(s.argument).second;
      return s.other > p.slots[s.argument].first_row;
    };
    add_at("dies before its last use", {Fault::kNotLive, Fault::kHint, Fault::kInFlight}, false,
           slots_sampled(dies_early),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.slots[s.argument].end_row = s.other; });
  }

  // Returns at most three random sites of slots for which `test` is true. There are at most three,
  // because `test` reads all rows and so is slow.
  std::vector<MutantSite> slots_sampled(const RowTest& test) {
    std::vector<MutantSite> all = slots([](const OwnedProgram&, MutantSite&) { return true; }), some;
    std::shuffle(all.begin(), all.end(), random_);
    for (MutantSite& site : all) {
      if (some.size() == 3) break;
      if (test(good_.programs[site.program], site)) some.push_back(site);
    }
    return some;
  }

  void break_rows() {
    const auto any = [](const OwnedProgram&, MutantSite&) { return true; };
    add_at("no such kernel", {Fault::kUnknownKernel}, false, rows(any),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.rows[s.row].op = Op::kRelu;
             p.rows[s.row].pass = Pass::kWait;
           });
    add_at("arguments past the pool", {Fault::kArgumentPool}, false, rows(any),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.rows[s.row].first_argument = static_cast<uint32_t>(p.arguments.size());
           });
    add_at("attribute past the pool", {Fault::kAttribute}, false,
           rows([](const OwnedProgram& p, MutantSite& s) { return kernel(p.rows[s.row]).attribute != kNoAttribute; }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.rows[s.row].attribute = 1u << 30; });
    add_at("computes on a transfer queue", {Fault::kInFlight}, false,
           rows([](const OwnedProgram& p, MutantSite& s) { return !kernel(p.rows[s.row]).asynchronous(); }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.rows[s.row].queue = 1; });
    const auto updates = [](const OwnedProgram& p, MutantSite& s) { return updates_weights(p.rows[s.row]); };
    add_at("group ends past its tensors", {Fault::kGroup}, false, rows(updates),
           [](OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) { own_group(plan, p, s.row).elements += 64; });
    const auto updates_several = [&](const OwnedProgram& p, MutantSite& s) {
      return updates(p, s) && updated_tensors(good_, p.rows[s.row]) > 1;
    };
    add_at("group forgets its last tensor", {Fault::kGroup}, false, rows(updates_several),
           [](OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) { --own_group(plan, p, s.row).tensors; });
  }

  void break_arguments() {
    // In a move, source and result may overlap. If the move no longer names one of them, the
    // overlap is a fault.
    add_at("names no slot", {Fault::kBadReference, Fault::kOverlap}, false,
           arguments([](const OwnedProgram& p, MutantSite& s) { return ref_at(p, s, s.argument) != kNoRef; }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, static_cast<Ref>(p.slots.size()));
           });
    const auto required = [](const OwnedProgram& p, MutantSite& s) {
      return !info_at(p, s).optional && !adds(p.rows[s.row], s.argument);
    };
    add_at("required argument absent", {Fault::kMissingArgument, Fault::kOverlap}, false, arguments(required),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, kNoRef);
           });
    const auto second_input = [](const OwnedProgram& p, MutantSite& s) {
      const KernelInfo& info = kernel(p.rows[s.row]);
      if (info.arguments[s.argument].role != Role::kInput || static_cast<int>(s.argument) == info.in_place_input)
        return false;
      if (s.argument == 0 || info.arguments[s.argument - 1].role != Role::kInput || walks_groups(p.rows[s.row]))
        return false;
      return ref_at(p, s, s.argument) != kNoRef && ref_at(p, s, s.argument - 1) != kNoRef;
    };
    add_at("two inputs are one", {Fault::kAliasing}, false, arguments(second_input),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, ref_at(p, s, s.argument - 1));
           });
    const auto scratch = [](const OwnedProgram& p, MutantSite& s) {
      return info_at(p, s).role == Role::kScratch && ref_at(p, s, s.argument) != kNoRef;
    };
    add_at("no scratch", {Fault::kScratch, Fault::kUnused}, false, arguments(scratch),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, kNoRef);
           });
  }

  void break_writes() {
    const auto output = [](const OwnedProgram& p, MutantSite& s) {
      return info_at(p, s).role == Role::kOutput && ref_at(p, s, s.argument) != kNoRef;
    };
    if (good_.state.size() > 1) {
      // In a move, the result's slot may overlap the source. If the move no longer writes that
      // slot, the overlap is a fault.
      add_at("writes a parameter", {Fault::kReadOnly, Fault::kOverlap}, false, arguments(output),
             [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
               ProgramEditor(p).set_argument(s.row, s.argument, make_ref(Region::kState, 1));
             });
    }
    const auto cannot_add = [](const OwnedProgram& p, MutantSite& s) {
      return !info_at(p, s).may_accumulate;
    };
    add_at("adds where it cannot", {Fault::kAccumulate}, false, arguments(cannot_add),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.rows[s.row].accumulate = static_cast<uint16_t>(p.rows[s.row].accumulate | 1u << s.argument);
           });
    const auto first_write = [&](const OwnedProgram& p, MutantSite& s) {
      const Ref ref = ref_at(p, s, s.argument);
      if (!output(p, s) || !info_at(p, s).may_accumulate || adds(p.rows[s.row], s.argument)) return false;
      if (is_carried(ref)) return s.program == static_cast<uint32_t>(ProgramId::kMicroFirst);
      return is_slot(ref) && p.slots[ref].first_row == s.row && ref != p.input && ref != p.labels &&
             ref != p.document_start && ref != p.pairs && ref != p.token_types;
    };
    add_at("adds to what nothing has written", {Fault::kReadBeforeWrite}, false, arguments(first_write),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.rows[s.row].accumulate = static_cast<uint16_t>(p.rows[s.row].accumulate | 1u << s.argument);
           });
    const auto carried_sum = [](const OwnedProgram& p, MutantSite& s) {
      return info_at(p, s).role == Role::kOutput && is_carried(ref_at(p, s, s.argument)) &&
             adds(p.rows[s.row], s.argument);
    };
    add_at("overwrites a carried sum", {Fault::kAccumulate}, true, arguments(carried_sum), clear_accumulate);
  }

  static void erase_row(OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) {
    ProgramEditor(p).erase_row(s.row);
    fit_regions(plan);
  }
  static void clear_accumulate(OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
    p.rows[s.row].accumulate = static_cast<uint16_t>(p.rows[s.row].accumulate & ~(1u << s.argument));
  }

  // ---- transfers to and from disk: both judges must detect faults in flight ----

  static bool names(const OwnedProgram& p, uint32_t row, Ref ref) {
    for (uint32_t i = 0; i < kernel(p.rows[row]).arity(); ++i) {
      if (p.arguments[p.rows[row].first_argument + i] == ref) return true;
    }
    return false;
  }
  static bool is_transfer(const OwnedProgram& p, uint32_t row, Pass pass) {
    return row < p.rows.size() && kernel(p.rows[row]).asynchronous() && p.rows[row].pass == pass;
  }

  void break_transfers() {
    const auto is_wait = [](const OwnedProgram& p, MutantSite& s) { return is_transfer(p, s.row, Pass::kWait); };
    add_at("nobody waits", {Fault::kInFlight}, true, rows(is_wait),
           erase_row);
    const auto is_used_at_once = [](const OwnedProgram& p, MutantSite& s) {
      if (!is_transfer(p, s.row, Pass::kWait) || s.row + 1 >= p.rows.size()) return false;
      return is_slot(ref_at(p, s, 0)) && names(p, s.row + 1, ref_at(p, s, 0));
    };
    add_at("used before its wait", {Fault::kInFlight}, true, rows(is_used_at_once),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { ProgramEditor(p).swap_with_next(s.row); });
    // True if a transfer from a slot is in progress at this row, and the row's output has the form
    // of that slot. The row could then write to that slot instead. Sets `other` to the slot.
    const auto could_be_overwritten = [this](const OwnedProgram& p, MutantSite& s) {
      const Ref output = ref_at(p, s, s.argument);
      if (info_at(p, s).role != Role::kOutput || !is_slot(output)) return false;
      for (uint32_t start = s.row; start-- > 0;) {
        if (is_transfer(p, start, Pass::kWait)) return false;
        if (!is_transfer(p, start, Pass::kStart)) continue;
        const Ref source = ref_at(p, {s.program, start}, 1);
        s.other = source;
        return is_slot(source) && alike(p, output, source) && !names(p, s.row, source);
      }
      return false;
    };
    add_at("source overwritten in flight", {Fault::kInFlight}, true, arguments(could_be_overwritten),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, s.other);
           });
    // True if a disk block is born in this row that dies before an older block does. Sets
    // `argument` to the new block and `other` to the older block.
    const auto lies_on_another = [](const OwnedProgram& p, MutantSite& s) {
      for (s.argument = 1; s.argument < p.spilled.size(); ++s.argument) {
        for (s.other = 0; s.other < s.argument; ++s.other) {
          if (p.spilled[s.other].end_row > p.spilled[s.argument].end_row)
            return s.row == p.spilled[s.argument].first_row;
        }
      }
      return false;
    };
    add_at("two disk blocks overlap", {Fault::kOverlap}, false, rows(lies_on_another),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             p.spilled[s.argument].tensor.offset = p.spilled[s.other].tensor.offset;
           });
    const auto has_live_twin_on_disk = [this](const OwnedProgram& p, MutantSite& s) {
      if (!is_transfer(p, s.row, Pass::kStart) || !is_transfer(p, s.row + 1, Pass::kWait) || !is_disk(ref_at(p, s, 1)))
        return false;
      for (uint32_t d = 0; d < p.spilled.size(); ++d) {
        s.other = make_ref(Region::kSpill, d);
        if (p.spilled[d].first_row < s.row && p.spilled[d].end_row > s.row + 1 && alike(p, ref_at(p, s, 1), s.other))
          return true;
      }
      return false;
    };
    add_at("reads another block", {Fault::kNone, Fault::kUnused}, true, rows(has_live_twin_on_disk),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             for (const uint32_t row : {s.row, s.row + 1}) ProgramEditor(p).set_argument(row, 1, s.other);
           });
    const auto could_read_disk = [this](const OwnedProgram& p, MutantSite& s) {
      if (kernel(p.rows[s.row]).asynchronous() || info_at(p, s).role != Role::kInput ||
          !is_slot(ref_at(p, s, s.argument)))
        return false;
      for (uint32_t d = 0; d < p.spilled.size(); ++d) {
        s.other = make_ref(Region::kSpill, d);
        if (p.spilled[d].first_row < s.row && p.spilled[d].end_row > s.row &&
            alike(p, ref_at(p, s, s.argument), s.other))
          return true;
      }
      return false;
    };
    add_at("a kernel reads the disk", {Fault::kSpill}, true, arguments(could_read_disk),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, s.other);
           });
    if (good_.spill_bytes > 0) {
      add("disk 256 bytes short", {Fault::kOutOfRegion}, [](OwnedPlan& plan) { plan.spill_bytes -= kAlignment; });
    }
  }

  // ---- streamed weights ----

  static bool loads(const OwnedProgram& p, uint32_t row, Pass pass) {
    return is_transfer(p, row, pass) && p.rows[row].op == Op::kLoad;
  }
  static void read_instead(OwnedProgram& p, Ref slot, Ref other) {
    for (uint32_t r = 0; r < p.rows.size(); ++r) {
      for (uint32_t i = 0; i < kernel(p.rows[r]).arity(); ++i) {
        if (p.arguments[p.rows[r].first_argument + i] == slot) own_arguments(p, r)[i] = other;
      }
    }
    p.slots[other].end_row = std::max(p.slots[other].end_row, p.slots[slot].end_row);
  }
  // True if row `s.row` starts a load, and an earlier row loaded the same weight (if `same`), or
  // another one of the same form (if not). Sets `other` to the slot of that earlier load.
  bool was_loaded_before(const OwnedProgram& p, MutantSite& s, bool same) const {
    if (!loads(p, s.row, Pass::kStart)) return false;
    for (uint32_t r = 0; r < s.row; ++r) {
      if (!loads(p, r, Pass::kStart)) continue;
      const bool is_same = ref_at(p, {s.program, r}, LoadStart::kFrom) == ref_at(p, s, LoadStart::kFrom);
      s.other = ref_at(p, {s.program, r}, LoadStart::kW);
      if (is_same == same && alike(p, s.other, ref_at(p, s, LoadStart::kW))) return true;
    }
    return false;
  }

  void break_loads() {
    // The backward reads the slot that was loaded for the forward, although its memory was filled
    // again. Another library that streams weights had this fault (Soup's pool of slots).
    const auto comes_again = [this](const OwnedProgram& p, MutantSite& s) {
      return was_loaded_before(p, s, true) && p.slots[s.other].end_row <= s.row;
    };
    add_at("the forward's slot is read after its memory was filled again", {Fault::kOverlap, Fault::kHint}, true,
           rows(comes_again), [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             const Ref again = p.arguments[p.rows[s.row].first_argument + LoadStart::kW];
             std::vector<uint32_t> own;
             for (uint32_t r = 0; r < p.rows.size(); ++r) {
               if (p.rows[r].op == Op::kLoad && p.arguments[p.rows[r].first_argument + LoadStart::kW] == again)
                 own.push_back(r);
             }
             read_instead(p, again, s.other);
             for (size_t i = own.size(); i-- > 0;) ProgramEditor(p).erase_row(own[i]);
           });
    const auto another_came = [this](const OwnedProgram& p, MutantSite& s) { return was_loaded_before(p, s, false); };
    add_at("a slot is loaded a second time", {Fault::kRefilled, Fault::kOverlap, Fault::kHint, Fault::kUnused}, false,
           rows(another_came), [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             read_instead(p, p.arguments[p.rows[s.row].first_argument + LoadStart::kW], s.other);
           });
    const auto could_load_another = [this](const OwnedProgram& p, MutantSite& s) {
      if (!loads(p, s.row, Pass::kStart)) return false;
      for (uint32_t i = 0; i < good_.state.size(); ++i) {
        s.other = make_ref(Region::kState, i);
        if (good_.state[i].kind == StateKind::kStreamed && alike(p, ref_at(p, s, LoadStart::kFrom), s.other))
          return true;
      }
      return false;
    };
    add_at("loads another weight", {Fault::kNone}, true, rows(could_load_another),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             const Ref slot = p.arguments[p.rows[s.row].first_argument + LoadStart::kW];
             for (uint32_t r = 0; r < p.rows.size(); ++r) {
               if (p.rows[r].op == Op::kLoad && p.arguments[p.rows[r].first_argument + LoadStart::kW] == slot)
                 own_arguments(p, r)[LoadStart::kFrom] = s.other;
             }
           });
    const auto reads_a_load = [this](const OwnedProgram& p, MutantSite& s) {
      if (kernel(p.rows[s.row]).asynchronous() || info_at(p, s).role != Role::kInput) return false;
      for (uint32_t r = 0; r < s.row; ++r) {
        if (!loads(p, r, Pass::kStart) || ref_at(p, {s.program, r}, LoadStart::kW) != ref_at(p, s, s.argument))
          continue;
        s.other = ref_at(p, {s.program, r}, LoadStart::kFrom);
        return true;
      }
      return false;
    };
    add_at("a kernel reads the file of weights", {Fault::kSpill}, true, arguments(reads_a_load),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, s.other);
           });
    const auto is_load = [](const OwnedProgram& p, MutantSite& s) { return loads(p, s.row, Pass::kStart); };
    add_at("the spill file's carrier loads", {Fault::kSpill}, true, rows(is_load),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { p.rows[s.row].op = Op::kTransfer; });
    if (good_.streamed_bytes > 0) {
      add("file of weights 256 bytes short", {Fault::kOutOfRegion},
          [](OwnedPlan& plan) { plan.streamed_bytes -= kAlignment; });
      add("file of weights 256 bytes long", {Fault::kArenaBytes},
          [](OwnedPlan& plan) { plan.streamed_bytes += kAlignment; });
    }
  }

  // ---- moments on the host ----

  bool is_offloaded(Ref ref) const {
    return ref != kNoRef && ref_region(ref) == Region::kState &&
           good_.state[ref_index(ref)].kind == StateKind::kOffloaded;
  }

  void break_offloaded() {
    const auto moves = [this](uint32_t end) {
      return [this, end](const OwnedProgram& p, MutantSite& s) {
        return is_transfer(p, s.row, Pass::kStart) && is_offloaded(ref_at(p, s, end));
      };
    };
    add_at("moments are not taken back", {Fault::kNone}, true, rows(moves(TransferStart::kY)),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             const Ref home = own_arguments(p, s.row)[TransferStart::kY];
             for (uint32_t r = static_cast<uint32_t>(p.rows.size()); r-- > 0;) {
               if (p.rows[r].op == Op::kTransfer && own_arguments(p, r)[TransferStart::kY] == home)
                 ProgramEditor(p).erase_row(r);
             }
           });
    const auto another = [this, moves](const OwnedProgram& p, MutantSite& s) {
      if (!moves(TransferStart::kX)(p, s)) return false;
      for (uint32_t i = 0; i < good_.state.size(); ++i) {
        s.other = make_ref(Region::kState, i);
        if (is_offloaded(s.other) && alike(p, ref_at(p, s, TransferStart::kX), s.other)) return true;
      }
      return false;
    };
    add_at("another's moments come", {Fault::kNone}, true, rows(another),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             const Ref slot = own_arguments(p, s.row)[TransferStart::kY];
             for (uint32_t r = 0; r < p.rows.size(); ++r) {
               if (p.rows[r].op == Op::kTransfer && own_arguments(p, r)[TransferStart::kY] == slot)
                 own_arguments(p, r)[TransferStart::kX] = s.other;
             }
           });
    const auto comes_home = [this](const OwnedProgram& p, MutantSite& s) {
      for (uint32_t r = 0; r < s.row && !kernel(p.rows[s.row]).asynchronous(); ++r) {
        if (!is_transfer(p, r, Pass::kStart) ||
            ref_at(p, {s.program, r}, TransferStart::kY) != ref_at(p, s, s.argument))
          continue;
        s.other = ref_at(p, {s.program, r}, TransferStart::kX);
        return is_offloaded(s.other);
      }
      return false;
    };
    add_at("an update reaches for the host", {Fault::kSpill}, true, arguments(comes_home),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, s.other);
           });
    const bool offloads = std::any_of(good_.state.begin(), good_.state.end(),
                                      [](const StateTensor& state) { return state.kind == StateKind::kOffloaded; });
    if (!offloads) return;
    add("moments on a disk", {Fault::kSpill}, [](OwnedPlan& plan) { plan.spill_level = SpillLevel::kDisk; });
    if (!good_.programs[0].spilled.empty()) {
      add("a block among the moments", {Fault::kOverlap},
          [](OwnedPlan& plan) { plan.programs[0].spilled[0].tensor.offset = 0; });
    }
  }

  // ---- semantic: the values differ from the graph's; check() may accept the plan ----

  void change_meaning_of_rows() {
    const std::vector<Fault> any_order = {Fault::kNone, Fault::kReadBeforeWrite, Fault::kNotLive, Fault::kOverlap,
                                          // kStack: the erased row may be the one with the largest
                                          // stack.
                                          Fault::kAccumulate, Fault::kStack};
    const auto accumulates = [](const OwnedProgram& p, MutantSite& s) { return p.rows[s.row].accumulate != 0; };
    add_at("accumulating row dropped", any_order, true, rows(accumulates),
           erase_row);
    const auto only_accumulates = [](const OwnedProgram& p, MutantSite& s) {
      for (s.argument = 0; s.argument < kernel(p.rows[s.row]).arity(); ++s.argument) {
        const bool overwrites = info_at(p, s).role == Role::kOutput && ref_at(p, s, s.argument) != kNoRef;
        if (overwrites && !adds(p.rows[s.row], s.argument)) return false;
      }
      return p.rows[s.row].accumulate != 0;
    };
    add_at("accumulating row twice", {Fault::kNone}, true, rows(only_accumulates),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { ProgramEditor(p).duplicate_row(s.row); });
    const auto op_is = [](Op op, Pass pass) {
      return [op, pass](const OwnedProgram& p, MutantSite& s) {
        return p.rows[s.row].op == op && p.rows[s.row].pass == pass;
      };
    };
    add_at("running statistics twice", {Fault::kNone}, true, rows(op_is(Op::kBatchNorm, Pass::kRunning)),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { ProgramEditor(p).duplicate_row(s.row); });
    add_at("running statistics dropped", {Fault::kNone}, true, rows(op_is(Op::kBatchNorm, Pass::kRunning)),
           erase_row);
    add_at("weight gradient dropped", any_order, true, rows(op_is(Op::kConv, Pass::kBackwardWeight)),
           erase_row);
    const auto updates = [](const OwnedProgram& p, MutantSite& s) { return updates_weights(p.rows[s.row]); };
    add_at("update dropped", {Fault::kUpdate}, true, rows(updates),
           erase_row);
    add_at("update twice", {Fault::kUpdate}, true, rows(updates),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { ProgramEditor(p).duplicate_row(s.row); });
    swap_rows_around_an_overwrite();
  }

  // Exchanges rows r and r+1, where row r overwrites in place a value that row r+1 reads. Row r+1
  // then reads the old value.
  void swap_rows_around_an_overwrite() {
    const auto overwrites = [](const OwnedProgram& p, MutantSite& s) {
      const KernelInfo& info = kernel(p.rows[s.row]);
      if (info.in_place_output < 0 || s.row + 1 >= p.rows.size()) return false;
      const Ref ref = ref_at(p, s, static_cast<uint32_t>(info.in_place_output));
      if (ref != ref_at(p, s, static_cast<uint32_t>(info.in_place_input))) return false;
      const MutantSite next{s.program, s.row + 1};
      for (uint32_t i = 0; i < kernel(p.rows[next.row]).arity(); ++i) {
        if (ref_at(p, next, i) == ref && kernel(p.rows[next.row]).arguments[i].role == Role::kInput) return true;
      }
      return false;
    };
    const std::vector<Fault> acceptable = {Fault::kNone, Fault::kOverlap, Fault::kNotLive, Fault::kReadBeforeWrite,
                                           Fault::kHint, Fault::kInFlight};
    add_at("read before the overwrite", acceptable, true, rows(overwrites),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) { ProgramEditor(p).swap_with_next(s.row); });
  }

  void change_meaning_of_arguments() {
    const auto later_twin = [this](const OwnedProgram& p, MutantSite& s) {
      const KernelInfo& info = kernel(p.rows[s.row]);
      if (info.op == Op::kAdd || walks_groups(p.rows[s.row]) || info.arguments[s.argument].role != Role::kInput)
        return false;
      for (uint32_t j = s.argument + 1; j < info.arity(); ++j) {
        const bool shared =
            static_cast<int>(j) == info.in_place_input || static_cast<int>(s.argument) == info.in_place_input;
        if (info.arguments[j].role != Role::kInput || shared || !alike(p, ref_at(p, s, s.argument), ref_at(p, s, j)))
          continue;
        s.other = j;
        return true;
      }
      return false;
    };
    add_at("two arguments exchanged", {Fault::kNone, Fault::kReadBeforeWrite, Fault::kReadOnly, Fault::kHostSlot}, true,
           arguments(later_twin), [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             const Ref a = ref_at(p, s, s.argument), b = ref_at(p, s, s.other);
             ProgramEditor(p).set_argument(s.row, s.argument, b);
             ProgramEditor(p).set_argument(s.row, s.other, a);
           });
    const auto other_parameter = [this](const OwnedProgram& p, MutantSite& s) {
      const Ref ref = ref_at(p, s, s.argument);
      if (walks_groups(p.rows[s.row]) || p.rows[s.row].op == Op::kShareInPlace || ref == kNoRef ||
          ref_region(ref) != Region::kState || ref_index(ref) == 0)
        return false;
      for (uint32_t i = 0; i < kernel(p.rows[s.row]).arity(); ++i) {
        if (i != s.argument && ref_at(p, s, i) != kNoRef && alike(p, ref, ref_at(p, s, i))) return false;
      }
      for (uint32_t i = 1; i < good_.state.size(); ++i) {
        if (good_.state[i].kind != good_.state[ref_index(ref)].kind || !alike(p, ref, make_ref(Region::kState, i)))
          continue;
        s.other = i;
        return true;
      }
      return false;
    };
    // kInFlight: if the row starts or awaits a load, the wait no longer names the weight of the
    // start.
    add_at("another layer's parameter", {Fault::kNone, Fault::kInFlight}, true, arguments(other_parameter),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, make_ref(Region::kState, s.other));
           });
    // kOverlap: in a move, the result's slot may overlap the source. If the move reads another
    // slot, the overlap is a fault.
    add_at("another value of the same shape",
           {Fault::kNone, Fault::kUnused, Fault::kReadBeforeWrite, Fault::kHostSlot, Fault::kUpdate, Fault::kOverlap,
            Fault::kInFlight},
           true, arguments([this](const OwnedProgram& p, MutantSite& s) { return has_live_twin(p, s); }),
           [](OwnedPlan&, OwnedProgram& p, const MutantSite& s) {
             ProgramEditor(p).set_argument(s.row, s.argument, s.other);
           });
    const auto second_contribution = [](const OwnedProgram& p, MutantSite& s) {
      return info_at(p, s).role == Role::kOutput && is_slot(ref_at(p, s, s.argument)) &&
             adds(p.rows[s.row], s.argument);
    };
    add_at("overwrites the first contribution", {Fault::kNone}, true, arguments(second_contribution), clear_accumulate);
  }

  // True if there is another slot of the same form that is live before and in this row, and that
  // the row does not name. Sets `other` to that slot.
  bool has_live_twin(const OwnedProgram& p, MutantSite& s) const {
    const Ref ref = ref_at(p, s, s.argument);
    const KernelInfo& info = kernel(p.rows[s.row]);
    if (info.arguments[s.argument].role != Role::kInput || !is_slot(ref) || info.asynchronous() ||
        static_cast<int>(s.argument) == info.in_place_input)
      return false;
    for (uint32_t i = 0; i < p.slots.size() && p.slots[i].first_row < s.row; ++i) {
      if (p.slots[i].end_row <= s.row || p.slots[i].use == SlotKind::kScratch || !alike(p, ref, i)) continue;
      bool named = false;
      for (uint32_t j = 0; j < info.arity(); ++j) named = named || ref_at(p, s, j) == i;
      if (named) continue;
      s.other = i;
      return true;
    }
    return false;
  }

  void change_meaning_of_attributes() {
    // Each of the next changes affects a kernel's result. check() can detect only the last one, and
    // only if gradients are released.
    change_attribute<NormAttribute>(
        "another epsilon", [](NormAttribute& a) { a.epsilon *= 2; },
        [](const Row& row) { return row.pass == Pass::kForward && row.op == Op::kLayerNorm; });
    change_attribute<GeluAttribute>("another gelu", [](GeluAttribute& a) { a.tanh_form ^= 1u; });
    change_attribute<DropoutAttribute>("another dropout mask", [](DropoutAttribute& a) { a.stream += 1000; });
    change_attribute<AttentionAttribute>("another attention dropout",
                                         [](AttentionAttribute& a) { a.dropout = a.dropout == 0 ? 0.5f : 0; });
    change_attribute<UpdateAttribute>("another weight decay", [](UpdateAttribute& a) { a.weight_decay += 0.125f; });
    change_attribute<ClipAttribute>("another clip", [](ClipAttribute& a) { a.max_norm += 1; });
  }

  template <typename T, typename Edit>
  void change_attribute(
      const std::string& name, Edit edit, bool (*of_row)(const Row&) = [](const Row&) { return true; }) {
    const auto uses_it = [&](const OwnedProgram& p, MutantSite& s) {
      return kernel(p.rows[s.row]).attribute == kAttributeKind<T> && of_row(p.rows[s.row]);
    };
    // kUpdate: with gradient release, check() refuses a plan that clips gradients by their norm
    // (max_norm > 0), as the changed ClipAttribute does.
    add_at(name, {Fault::kNone, Fault::kUpdate}, true, rows(uses_it),
           [&](OwnedPlan& plan, OwnedProgram& p, const MutantSite& s) { edit(own_attribute<T>(plan, p, s.row)); });
  }

  const OwnedPlan& good_;
  std::mt19937_64 random_;
  std::vector<PlanMutant> mutants_;
};

}  // namespace

std::vector<PlanMutant> make_mutants(const OwnedPlan& good, uint64_t seed) { return MutantMaker(good, seed).make(); }

}  // namespace reprise::testing
