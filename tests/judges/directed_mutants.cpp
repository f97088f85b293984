// Makes the mutants of directed_mutants.h. Skips a kind if the plan has no row or attribute that it
// could change.
#include "tests/judges/directed_mutants.h"

#include <functional>
#include <limits>

#include "tests/judges/plan_edit.h"

namespace reprise::testing {

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class DirectedMutantMaker {
 public:
  explicit DirectedMutantMaker(const OwnedPlan& good) : good_(good) {}

  std::vector<PlanMutant> make() {
    break_sizes();
    break_learning_rate();
    break_attributes();
    exchange_host_slots();
    break_norms();
    break_updates();
    break_release();
    return std::move(mutants_);
  }

 private:
  using Change = std::function<void(OwnedPlan&)>;
  struct RowSite {
    uint32_t program = kProgramCount, row = 0;
    bool found() const { return program != kProgramCount; }
  };

  void add(const std::string& name, Fault fault, const Change& change) {
    mutants_.push_back({name, good_, {fault}, false});
    change(mutants_.back().plan);
  }
  // Adds a mutant if the plan has the row `at`.
  void add_at(const std::string& name, Fault fault, RowSite at,
              const std::function<void(OwnedPlan&, OwnedProgram&)>& change) {
    if (at.found()) add(name, fault, [&](OwnedPlan& plan) { change(plan, plan.programs[at.program]); });
  }

  template <typename Test>
  std::vector<RowSite> rows(const Test& test) const {
    std::vector<RowSite> sites;
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      for (uint32_t r = 0; r < good_.programs[p].rows.size(); ++r) {
        if (test(good_.programs[p].rows[r])) sites.push_back({p, r});
      }
    }
    return sites;
  }
  template <typename Test>
  RowSite last_row(const Test& test) const {
    const std::vector<RowSite> sites = rows(test);
    return sites.empty() ? RowSite{} : sites.back();
  }
  RowSite finish() const { return last_row(is_finish); }
  bool releases() const {
    const RowSite update = last_row(updates_weights);
    return update.found() && update.program == static_cast<uint32_t>(ProgramId::kMicroFirst);
  }

  // ---- sizes: each region must be exactly as large as its contents ----

  void break_sizes() {
    add("arena of 2^60 bytes", Fault::kArenaBytes, [](OwnedPlan& plan) { plan.arena_bytes = uint64_t{1} << 60; });
    add("arena one alignment too large", Fault::kArenaBytes, [](OwnedPlan& plan) { plan.arena_bytes += kAlignment; });
    add("state one alignment too large", Fault::kArenaBytes, [](OwnedPlan& plan) {
      plan.state_bytes += kAlignment;
      plan.arena_bytes += kAlignment;
    });
    add("carried one alignment too large", Fault::kArenaBytes, [](OwnedPlan& plan) {
      plan.carried_bytes += kAlignment;
      plan.arena_bytes += kAlignment;
    });
    add("a program's region one alignment too large", Fault::kArenaBytes, [](OwnedPlan& plan) {
      plan.programs[0].bytes += kAlignment;
      plan.arena_bytes += kAlignment;
    });
    add("disk one alignment too large", Fault::kArenaBytes, [](OwnedPlan& plan) { plan.spill_bytes += kAlignment; });
    add("a row that ends inside a block", Fault::kBlocks, [](OwnedPlan& plan) {
      for (StateTensor& state : plan.state) {
        if (state.tensor.dtype != DType::kF32 || are_whole_blocks(DType::kQ8_0, state.tensor.last_dimension()))
          continue;
        state.tensor.dtype = DType::kQ8_0;
        return;
      }
    });
    add("a worker's stack one byte too small", Fault::kStack, [](OwnedPlan& plan) { --plan.worker_stack_bytes; });
    add("a worker's stack one byte too large", Fault::kStack, [](OwnedPlan& plan) { ++plan.worker_stack_bytes; });
  }

  // ---- meaningless values ----

  void break_learning_rate() {
    const auto rate = [this](const std::string& name, const std::function<void(LearningRate&)>& change) {
      add("learning rate: " + name, Fault::kLearningRate, [&](OwnedPlan& plan) { change(plan.learning_rate); });
    };
    rate("NaN", [](LearningRate& r) { r.base = static_cast<double>(kNan); });
    rate("infinite", [](LearningRate& r) { r.base = kInfinity; });
    rate("negative", [](LearningRate& r) { r.base = -0.5; });
    rate("gamma NaN", [](LearningRate& r) { r.gamma = static_cast<double>(kNan); });
    rate("unknown kind", [](LearningRate& r) { r.kind = static_cast<LearningRateKind>(3); });
    add("milestones fall", Fault::kLearningRate, [](OwnedPlan& plan) { plan.milestones = {7, 3}; });
    add("a milestone twice", Fault::kLearningRate, [](OwnedPlan& plan) { plan.milestones = {3, 7, 7}; });
  }

  template <typename T>
  void attribute(const std::string& name, void (*change)(T&)) {
    if (good_.attributes.of<T>().empty()) return;
    add(std::string(T::kName) + ": " + name, Fault::kAttribute,
        [&](OwnedPlan& plan) { change(plan.attributes.of<T>().back()); });
  }
  void break_attributes() {
    attribute<WindowAttribute>("stride 65535", [](WindowAttribute& a) { a.stride_h = 65535; });
    attribute<WindowAttribute>("pad 65535", [](WindowAttribute& a) { a.pad_top = 65535; });
    attribute<WindowAttribute>("stride 0 across", [](WindowAttribute& a) { a.stride_w = 0; });
    attribute<WindowAttribute>("pad 65535 behind", [](WindowAttribute& a) { a.pad_bottom = 65535; });
    attribute<WindowAttribute>("dilation 0", [](WindowAttribute& a) { a.dilation_h = 0; });
    attribute<WindowAttribute>("groups 0", [](WindowAttribute& a) { a.groups = 0; });
    attribute<WindowAttribute>("kernel 65535 high", [](WindowAttribute& a) { a.kernel_h = 65535; });
    attribute<WindowAttribute>("kernel 0 wide", [](WindowAttribute& a) { a.kernel_w = 0; });
    attribute<WindowAttribute>("epsilon negative", [](WindowAttribute& a) { a.statistics_epsilon = -1e-5f; });
    attribute<WindowAttribute>("epsilon 1e30", [](WindowAttribute& a) { a.statistics_epsilon = 1e30f; });
    attribute<WindowAttribute>("epsilon NaN", [](WindowAttribute& a) { a.statistics_epsilon = kNan; });
    attribute<NormAttribute>("epsilon 0", [](NormAttribute& a) { a.epsilon = 0; });
    attribute<NormAttribute>("epsilon negative", [](NormAttribute& a) { a.epsilon = -1e-5f; });
    attribute<NormAttribute>("epsilon 1e30", [](NormAttribute& a) { a.epsilon = 1e30f; });
    attribute<NormAttribute>("epsilon NaN", [](NormAttribute& a) { a.epsilon = kNan; });
    attribute<NormAttribute>("momentum NaN", [](NormAttribute& a) { a.momentum = kNan; });
    attribute<NormAttribute>("momentum 2", [](NormAttribute& a) { a.momentum = 2; });
    attribute<NormAttribute>("offset 2", [](NormAttribute& a) { a.offset = 2; });
    attribute<NormAttribute>("offset NaN", [](NormAttribute& a) { a.offset = kNan; });
    attribute<EmbeddingAttribute>("scale 0", [](EmbeddingAttribute& a) { a.scale = 0; });
    attribute<EmbeddingAttribute>("scale NaN", [](EmbeddingAttribute& a) { a.scale = kNan; });
    attribute<CapAttribute>("cap negative", [](CapAttribute& a) { a.softcap = -30; });
    attribute<CapAttribute>("cap NaN", [](CapAttribute& a) { a.softcap = kNan; });
    attribute<TargetLossAttribute>("no loss", [](TargetLossAttribute& a) { a.kind = 4; });
    attribute<TargetLossAttribute>("a delta of squares", [](TargetLossAttribute& a) { a = {0, 1.0f}; });
    attribute<TargetLossAttribute>("huber without a delta", [](TargetLossAttribute& a) { a = {2, 0.0f}; });
    attribute<ClassLossAttribute>("a label smoothed away", [](ClassLossAttribute& a) { a.label_smoothing = 1; });
    attribute<ClassLossAttribute>("more dice than loss", [](ClassLossAttribute& a) { a.dice = 1.5f; });
    attribute<PairLossAttribute>("no loss of pairs", [](PairLossAttribute& a) { a.kind = 3; });
    attribute<PairLossAttribute>("a temperature of 0", [](PairLossAttribute& a) { a = {0, 0.0f}; });
    attribute<PairLossAttribute>("a temperature that is none", [](PairLossAttribute& a) { a = {0, kNan}; });
    attribute<PairLossAttribute>("symmetric twice", [](PairLossAttribute& a) { a = {0, 0.5f, 2}; });
    attribute<PairLossAttribute>("a cosine's temperature", [](PairLossAttribute& a) { a = {1, 0.5f}; });
    attribute<PairLossAttribute>("a margin of 1", [](PairLossAttribute& a) { a = {1, 0, 0, 1.0f}; });
    attribute<UnaryAttribute>("no function", [](UnaryAttribute& a) { a.function = kUnaryFunctionCount; });
    attribute<UnaryAttribute>("parameter NaN", [](UnaryAttribute& a) { a.parameter = kNan; });
    attribute<TransposeAttribute>("a dimension twice", [](TransposeAttribute& a) { a.axis_1 = a.axis_2; });
    attribute<TransposeAttribute>("the samples' dimension", [](TransposeAttribute& a) { a.axis_3 = 0; });
    attribute<TransposeAttribute>("dimension 4", [](TransposeAttribute& a) { a.axis_2 = 4; });
    attribute<ResizeAttribute>("kind 3", [](ResizeAttribute& a) { a.kind = 3; });
    attribute<AttentionAttribute>("probability 1", [](AttentionAttribute& a) { a.dropout = 1; });
    attribute<AttentionAttribute>("probability negative", [](AttentionAttribute& a) { a.dropout = -0.1f; });
    attribute<AttentionAttribute>("cap negative", [](AttentionAttribute& a) { a.softcap = -50; });
    attribute<AttentionAttribute>("cap NaN", [](AttentionAttribute& a) { a.softcap = kNan; });
    attribute<AttentionAttribute>("scale negative", [](AttentionAttribute& a) { a.scale = -0.1f; });
    attribute<AttentionAttribute>("scale NaN", [](AttentionAttribute& a) { a.scale = kNan; });
    attribute<AttentionAttribute>("causal 2", [](AttentionAttribute& a) { a.causal = 2; });
    attribute<AttentionAttribute>("a window without causality",
                                  [](AttentionAttribute& a) { a.window = 3, a.causal = 0; });
    attribute<DropoutAttribute>("probability 1", [](DropoutAttribute& a) { a.probability = 1; });
    attribute<DropoutAttribute>("probability negative", [](DropoutAttribute& a) { a.probability = -0.1f; });
    attribute<DropoutAttribute>("shared by none", [](DropoutAttribute& a) { a.shared = 0; });
    attribute<DropoutAttribute>("shared by more than there are",
                                [](DropoutAttribute& a) { a.shared = uint64_t{1} << 40; });
    attribute<DropoutAttribute>("probability NaN", [](DropoutAttribute& a) { a.probability = kNan; });
    attribute<ClipAttribute>("limit negative", [](ClipAttribute& a) { a.max_norm = -1; });
    attribute<ClipAttribute>("limit NaN", [](ClipAttribute& a) { a.max_norm = kNan; });
    attribute<UpdateAttribute>("momentum NaN", [](UpdateAttribute& a) { a.momentum = kNan; });
    attribute<UpdateAttribute>("weight decay NaN", [](UpdateAttribute& a) { a.weight_decay = kNan; });
    attribute<UpdateAttribute>("beta 1", [](UpdateAttribute& a) { a.beta2 = 1; });
    attribute<UpdateAttribute>("epsilon negative", [](UpdateAttribute& a) { a.epsilon = -1e-8f; });
    attribute<UpdateAttribute>("epsilon zero", [](UpdateAttribute& a) { a.epsilon = 0; });
    attribute<UpdateAttribute>("epsilon NaN", [](UpdateAttribute& a) { a.epsilon = kNan; });
  }

  // Adds mutants in which two host slots are exchanged, or a host slot is not filled. Tokens,
  // labels and document starts have equal types and shapes, so check() must notice that a row reads
  // the wrong slot. If the exchange gives a slot a type that its new use forbids, for example bf16
  // labels, check() reports kDType.
  void exchange_host_slots() {
    for (uint32_t p = 0; p < kProgramCount; ++p) {
      const OwnedProgram& program = good_.programs[p];
      if (program.input == kNoSlot || program.labels == kNoSlot) continue;
      const DType input = program.slots[program.input].tensor.dtype,
                  labels = program.slots[program.labels].tensor.dtype;
      const bool may_be = input != DType::kBf16 && labels != DType::kU8;
      add(input == DType::kI32 ? "tokens and labels exchanged" : "images and labels exchanged",
          may_be ? Fault::kHostSlot : Fault::kDType,
          [p](OwnedPlan& plan) { std::swap(plan.programs[p].input, plan.programs[p].labels); });
      if (program.pairs != kNoSlot) {
        add("labels and pairs exchanged", Fault::kDType,
            [p](OwnedPlan& plan) { std::swap(plan.programs[p].labels, plan.programs[p].pairs); });
        add("nobody fills the pairs", Fault::kReadBeforeWrite,
            [p](OwnedPlan& plan) { plan.programs[p].pairs = kNoSlot; });
      }
      if (program.token_types != kNoSlot) {
        add("nobody fills the tokens' types", Fault::kReadBeforeWrite,
            [p](OwnedPlan& plan) { plan.programs[p].token_types = kNoSlot; });
        add("the tokens' types fill the tokens", Fault::kAliasing,
            [p](OwnedPlan& plan) { plan.programs[p].token_types = plan.programs[p].input; });
        add("labels and the tokens' types exchanged", Fault::kHostSlot,
            [p](OwnedPlan& plan) { std::swap(plan.programs[p].labels, plan.programs[p].token_types); });
      }
      if (program.document_start == kNoSlot) continue;
      add("labels and starts of documents exchanged", Fault::kHostSlot,
          [p](OwnedPlan& plan) { std::swap(plan.programs[p].labels, plan.programs[p].document_start); });
      add("nobody fills the starts of documents", Fault::kReadBeforeWrite,
          [p](OwnedPlan& plan) { plan.programs[p].document_start = kNoSlot; });
    }
  }

  // ---- updates and norms ----

  void break_norms() {
    const RowSite reduce = last_row(is_reduce), finish = this->finish();
    const auto erase = [](RowSite at) {
      return [at](OwnedPlan&, OwnedProgram& p) { ProgramEditor(p).erase_row(at.row); };
    };
    const auto twice = [](RowSite at) {
      return [at](OwnedPlan&, OwnedProgram& p) { ProgramEditor(p).duplicate_row(at.row); };
    };
    add_at("norm not taken", Fault::kUpdate, reduce, erase(reduce));
    add_at("norm taken twice", Fault::kUpdate, reduce, twice(reduce));
    add_at("clip factor not computed", Fault::kUpdate, finish, erase(finish));
    add_at("clip factor computed twice", Fault::kUpdate, finish, twice(finish));
    const RowSite later = last_row([this](const Row& row) {
      return is_reduce(row) && good_.attributes.of<GroupAttribute>()[row.attribute].first_norm > 0;
    });
    add_at("a norm in another's place", Fault::kUpdate, later, [later](OwnedPlan& plan, OwnedProgram& p) {
      --own_attribute<GroupAttribute>(plan, p, later.row).first_norm;
    });
    if (finish.found() && reduce.program == finish.program) {
      add_at("clip factor before a norm", Fault::kUpdate, finish,
             [&](OwnedPlan&, OwnedProgram& p) { std::swap(p.rows[finish.row], p.rows[reduce.row]); });
    }
    add_at("clip factor computed in a micro-batch", Fault::kUpdate, finish, [&](OwnedPlan& plan, OwnedProgram& p) {
      append(p, finish.row, plan.program(ProgramId::kMicroFirst));
      ProgramEditor(p).erase_row(finish.row);
    });
    // The other buffer is added after the last tensor of State. This is possible only if all ranks
    // have the last tensor, because tensors of one rank must follow those of all ranks.
    const RowSite own_place = good_.state.back().owner == kEveryRank ? finish : RowSite{};
    add_at("clip factor of another buffer", Fault::kUpdate, own_place, [&](OwnedPlan& plan, OwnedProgram& p) {
      StateTensor twin = plan.state[kNormsIndex];
      twin.kind = StateKind::kBuffer;
      twin.tensor.offset = plan.state_bytes;
      plan.state.push_back(twin);
      plan.state_bytes += twin.tensor.bytes;
      plan.arena_bytes += twin.tensor.bytes;
      own_arguments(p, finish.row)[GradNormFinish::kNorms] =
          make_ref(Region::kState, static_cast<uint32_t>(plan.state.size()) - 1);
    });
    add_at("one norm too many", Fault::kUpdate, finish,
           [](OwnedPlan& plan, OwnedProgram&) { ++plan.state[kNormsIndex].tensor.shape[0]; });
  }

  void break_updates() {
    // The last update that has no scratch. Erasing, copying or moving a row that has scratch also
    // affects the scratch slot, so check() could report another fault than kUpdate.
    const RowSite finish = this->finish(), update = last_row([](const Row& row) {
      const KernelInfo& info = kernel(row);
      return updates_weights(row) && info.arguments[info.arity() - 1].role != Role::kScratch;
    });
    add_at("a parameter never updated", Fault::kUpdate, update,
           [&](OwnedPlan&, OwnedProgram& p) { ProgramEditor(p).erase_row(update.row); });
    add_at("a parameter updated twice", Fault::kUpdate, update,
           [&](OwnedPlan&, OwnedProgram& p) { ProgramEditor(p).duplicate_row(update.row); });
    if (update.found() && update.program == finish.program) {
      add_at("a parameter updated before the norm", Fault::kUpdate, update,
             [&](OwnedPlan&, OwnedProgram& p) { std::swap(p.rows[finish.row], p.rows[update.row]); });
      for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd}) {
        if (good_.program(id).rows.empty()) continue;
        const std::string name =
            id == ProgramId::kMicroAdd ? "a parameter updated in micro_add" : "a parameter updated in micro_first";
        add_at(name, Fault::kUpdate, update,
               [&](OwnedPlan& plan, OwnedProgram& p) { append(p, update.row, plan.program(id)); });
      }
    }
    forget_last_of_group();
    exchange_parameters();
  }

  // Adds a mutant in which a group of updated tensors ends one tensor too early. Reduces the
  // group's number of elements accordingly, so that only the update of that tensor is missing.
  void forget_last_of_group() {
    const RowSite update = last_row([this](const Row& row) {
      return updates_weights(row) && updated_tensors(good_, row) > 1;
    });
    add_at("the last of a group never updated", Fault::kUpdate, update, [&](OwnedPlan& plan, OwnedProgram& p) {
      GroupAttribute& group = own_group(plan, p, update.row);
      const uint32_t first = ref_index(p.arguments[p.rows[update.row].first_argument]),
                     last = first + --group.tensors - 1;
      const Tensor &from = plan.state[first].tensor, &to = plan.state[last].tensor;
      group.elements = (to.offset - from.offset) / sizeof(float) + to.elements();
    });
  }

  // Exchanges two parameters of equal shape between their updates. Each then gets the gradient of
  // the other.
  void exchange_parameters() {
    const auto parameter = [this](RowSite at) -> uint32_t {
      const OwnedProgram& p = good_.programs[at.program];
      return ref_index(p.arguments[p.rows[at.row].first_argument]);
    };
    const std::vector<RowSite> updates = rows([this](const Row& row) {
      return updates_weights(row) && updated_tensors(good_, row) == 1;
    });
    for (size_t i = 1; i < updates.size(); ++i) {
      const RowSite a = updates[i - 1], b = updates[i];
      if (!same_shape(good_.state[parameter(a)].tensor, good_.state[parameter(b)].tensor)) continue;
      return add_at("a parameter updated by another's gradient", Fault::kUpdate, a, [&](OwnedPlan&, OwnedProgram& p) {
        own_arguments(p, a.row)[0] = make_ref(Region::kState, parameter(b));
        own_arguments(p, b.row)[0] = make_ref(Region::kState, parameter(a));
      });
    }
  }

  void break_release() {
    if (!releases()) return;
    const RowSite finish = this->finish();
    add_at("clips what has been released", Fault::kUpdate, finish,
           [&](OwnedPlan& plan, OwnedProgram& p) { own_attribute<ClipAttribute>(plan, p, finish.row).max_norm = 1; });
    add("releases before the last micro-batch", Fault::kUpdate, [](OwnedPlan& plan) {
      plan.accumulate = 2;
      plan.program(ProgramId::kMicroAdd) = plan.program(ProgramId::kMicroFirst);
    });
  }

  // Appends a copy of row `row` of `from` to the program `to`. The row must not name a slot.
  static void append(const OwnedProgram& from, uint32_t row, OwnedProgram& to) {
    Row copy = from.rows[row];
    const auto first = from.arguments.begin() + copy.first_argument;
    copy.first_argument = static_cast<uint32_t>(to.arguments.size());
    to.arguments.insert(to.arguments.end(), first, first + kernel(copy).arity());
    to.rows.push_back(copy);
  }

  const OwnedPlan& good_;
  std::vector<PlanMutant> mutants_;
};

}  // namespace

std::vector<PlanMutant> make_directed_mutants(const OwnedPlan& good) { return DirectedMutantMaker(good).make(); }

}  // namespace reprise::testing
