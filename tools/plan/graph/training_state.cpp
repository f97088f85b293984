// Orders parameters so that one optimizer row can update a group of parameters, which must be
// contiguous in the arena. If the optimizer releases gradients, inserts the updates into the
// backward.
#include "tools/plan/graph/training_state.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/plan/graph/call.h"

namespace reprise {

namespace {

// A tensor of State that an optimizer keeps for a parameter. Its name is `prefix` and the
// parameter's name.
struct Kept {
  const char* prefix;
  Shape shape;
  DType type;
};
uint64_t bytes_of(const Kept& kept) {
  uint64_t elements = 1;
  for (const uint32_t size : kept.shape) elements *= size;
  return stored_bytes(kept.type, elements);
}
// The update of one parameter. Neighbouring parameters are updated together if the rule is plain
// and their moments are in the arena.
struct UpdateRule {
  Op update;
  std::vector<Kept> kept;
  bool is_plain = false;  // true if the rule works element by element and all its tensors are f32
  bool joins = false;
};

class RuleFinder {
 public:
  RuleFinder(const Graph& graph, const OptimizerChoice& optimizer) : graph_(graph), optimizer_(optimizer) {
    for (const Node& node : graph.nodes) {
      if (node.op == Op::kEmbedding || node.op == Op::kLossHead)
        tables_.insert(node.parameters.begin(), node.parameters.end());
    }
  }

  UpdateRule rule_of(ValueId v) const {
    const Tensor& p = graph_.tensor(v);
    const contract::MatrixShape m = contract::matrix_of(p);
    const auto side = [](uint64_t n) { return static_cast<uint32_t>(n); };
    const bool is_matrix = p.rank >= 2 && m.shorter() > 1;
    if (optimizer_.update == Op::kAdafactor) {
      if (!is_matrix) return {Op::kAdafactor, {{"second_moment.", shape_of(p), DType::kF32}}};
      return {Op::kAdafactor,
              {{"row_moment.", {side(m.rows)}, DType::kF32}, {"column_moment.", {side(m.columns)}, DType::kF32}}};
    }
    if (optimizer_.update == Op::kApollo && is_matrix && m.shorter() > optimizer_.rank) {
      const Shape moments = {side(m.longer()), optimizer_.rank};
      return {Op::kApollo,
              {{"first_moment.", moments, DType::kF32},
               {"second_moment.", moments, DType::kF32},
               {"growth.", {1}, DType::kF32}}};
    }
    if (optimizer_.update == Op::kMuon && is_matrix && tables_.count(v) == 0)
      return {Op::kMuon, {{"momentum.", shape_of(p), moments_of(p, DType::kDynamic8)}}};
    return by_elements(p);
  }

  bool is_offloaded(const Kept& kept) const { return optimizer_.offload && bytes_of(kept) >= kMinOffloadedBytes; }

 private:
  // Returns the type of the moments of p: the optimizer's type, or, if that is 8-bit, `codes` for a
  // large tensor and f32 for a small one.
  DType moments_of(const Tensor& p, DType codes) const {
    if (optimizer_.moments != DType::kDynamic8) return optimizer_.moments;
    return p.elements() < kMinCodedElements ? DType::kF32 : codes;
  }

  UpdateRule by_elements(const Tensor& p) const {
    const Kept first = {"momentum.", shape_of(p), moments_of(p, DType::kDynamic8)};
    UpdateRule rule = {Op::kAdamW, {}};
    if (optimizer_.update == Op::kSgd || optimizer_.update == Op::kLion) {
      rule.update = optimizer_.update;
      if (optimizer_.update == Op::kLion || optimizer_.momentum != 0) rule.kept = {first};
    } else {
      rule.kept = {{"first_moment.", first.shape, first.type},
                   {"second_moment.", first.shape, moments_of(p, DType::kDynamic8Square)}};
    }
    rule.is_plain = p.dtype == DType::kF32 && std::all_of(rule.kept.begin(), rule.kept.end(),
                                                          [](const Kept& k) { return k.type == DType::kF32; });
    rule.joins = rule.is_plain &&
                 std::none_of(rule.kept.begin(), rule.kept.end(), [this](const Kept& k) { return is_offloaded(k); });
    return rule;
  }

  const Graph& graph_;
  const OptimizerChoice& optimizer_;
  std::set<ValueId> tables_;  // parameters of embeddings and of loss heads
};

class StateBuilder {
 public:
  StateBuilder(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer)
      : graph_(graph), chain_(chain), optimizer_(optimizer), finder_(graph, optimizer) {}

  TrainingState run() {
    sort_parameters();
    norms_ = graph_.add_value("gradient_norms", ValueKind::kNorms,
                              {static_cast<uint32_t>(std::max<size_t>(1, trained_.size()))}, DType::kF64);
    add_moments();
    choose_owners();
    release();
    list_state();
    list_carried();
    update_program();
    return std::move(state_);
  }

 private:
  ValueId gradient_of(ValueId parameter) const { return chain_.weight_gradients[parameter]; }

  // Orders parameters: trained with weight decay, trained without it, frozen; each in the order of
  // the model. No optimizer may change this order, because a parameter's place in State decides its
  // random initial values.
  void sort_parameters() {
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].kind != ValueKind::kParameter) continue;
      const bool trained = v < chain_.weight_gradients.size() && gradient_of(v) != kNoValue;
      (trained ? trained_ : frozen_).push_back(v);
      if (trained) rules_.emplace(v, finder_.rule_of(v));
    }
    const auto decays = [this](ValueId v) { return graph_.values[v].decays; };
    decayed_ = static_cast<size_t>(std::stable_partition(trained_.begin(), trained_.end(), decays) - trained_.begin());
  }

  // Returns the factor by which the update of v multiplies the recipe's learning rate.
  float rate_of(ValueId v) const {
    const float own = graph_.values[v].rate;
    if (optimizer_.update != Op::kMuon) return own;
    const contract::MatrixShape m = contract::matrix_of(graph_.tensor(v));
    if (rules_.at(v).update != Op::kMuon) return own * optimizer_.plain_rate;
    const double rows = static_cast<double>(m.rows), columns = static_cast<double>(m.columns);
    return static_cast<float>(optimizer_.matches_adam ? 0.2 * std::sqrt(std::max(rows, columns))
                                                      : std::sqrt(std::max(1.0, rows / columns))) *
           own;
  }

  void add_moments() {
    for (const ValueId p : trained_) {
      for (const Kept& kept : rules_.at(p).kept) {
        const ValueKind kind = finder_.is_offloaded(kept) ? ValueKind::kOffloaded : ValueKind::kOptimizer;
        kept_[p].push_back(graph_.add_value(kept.prefix + graph_.values[p].name, kind, kept.shape, kept.type));
      }
    }
  }

  uint64_t kept_bytes(ValueId p) const {
    uint64_t bytes = 0;
    for (const ValueId moment : kept_.at(p)) bytes += graph_.tensor(moment).bytes;
    return bytes;
  }

  // Returns the number of ranks needed if each stores at most `max_bytes` of moments; ~0u if the
  // moments of one parameter have more. The parameters of a rank are neighbours, so that one row
  // can update many of them.
  uint32_t ranks_for(uint64_t max_bytes) const {
    uint64_t bytes = 0;
    uint32_t ranks = 1;
    for (const ValueId p : trained_) {
      const uint64_t more = kept_.count(p) == 0 ? 0 : kept_bytes(p);
      if (more > max_bytes) return ~0u;
      if (bytes + more > max_bytes) ++ranks, bytes = 0;
      bytes += more;
    }
    return ranks;
  }

  // Distributes moments over ranks so that the largest share is as small as possible.
  void choose_owners() {
    if (optimizer_.owners == 1) return;
    uint64_t minimum = 0, enough = 0;
    for (const ValueId p : trained_) enough += kept_.count(p) == 0 ? 0 : kept_bytes(p);
    while (minimum < enough) {
      const uint64_t middle = minimum + (enough - minimum) / 2;
      if (ranks_for(middle) <= optimizer_.owners) {
        enough = middle;
      } else {
        minimum = middle + 1;
      }
    }
    uint64_t bytes = 0;
    uint32_t rank = 0;
    for (const ValueId p : trained_) {
      if (kept_.count(p) == 0) continue;
      if (bytes + kept_bytes(p) > enough) ++rank, bytes = 0;
      bytes += kept_bytes(p);
      for (const ValueId moment : kept_.at(p)) state_.owners[moment] = rank;
    }
  }
  // Returns the rank that stores the moments of p; kEveryRank if p has no moments or all ranks
  // store them.
  uint32_t owner_of(ValueId p) const {
    const auto kept = kept_.find(p);
    const auto owner =
        kept == kept_.end() || kept->second.empty() ? state_.owners.end() : state_.owners.find(kept->second[0]);
    return owner == state_.owners.end() ? kEveryRank : owner->second;
  }

  // Returns how many parameters, beginning with `first`, one row updates.
  size_t updated_together(size_t first) const {
    const ValueId p = trained_[first];
    if (optimizer_.gradient_release || !rules_.at(p).joins) return 1;
    const auto joins = [&](ValueId v) {
      return rules_.at(v).joins && graph_.values[v].decays == graph_.values[p].decays && rate_of(v) == rate_of(p) &&
             owner_of(v) == owner_of(p);
    };
    return static_cast<size_t>(
               std::find_if_not(trained_.begin() + static_cast<ptrdiff_t>(first), trained_.end(), joins) -
               trained_.begin()) -
           first;
  }

  // Returns trained parameters [first, first + count) as one group.
  GroupAttribute group(size_t first, size_t count) const {
    uint64_t bytes = 0;
    for (size_t i = first; i + 1 < first + count; ++i) bytes += graph_.tensor(gradient_of(trained_[i])).bytes;
    return {static_cast<uint32_t>(count), static_cast<uint32_t>(first),
            bytes / sizeof(float) + graph_.tensor(trained_[first + count - 1]).elements()};
  }

  Call reduce_call(size_t first, size_t count) {
    using A = GradNormReduce;
    const uint32_t attribute = graph_.attributes.intern(group(first, count));
    return call<A>({{A::kNorms, norms_}, {A::kGradients, gradient_of(trained_[first])}}, attribute);
  }

  Call update_call(size_t first, size_t count) {
    const ValueId p = trained_[first], gradients = gradient_of(p), scalars = graph_.scalars;
    const std::vector<ValueId>& kept = kept_[p];
    const auto moments = [&](size_t i) { return i < kept.size() ? kept[i] : kNoValue; };  // in the order of the rule
    switch (rules_.at(p).update) {
      case Op::kAdafactor: {
        using A = AdafactorUpdate;
        return call<A>({{A::kParameters, p},
                        {A::kRow, moments(0)},
                        {A::kColumn, moments(1)},
                        {A::kGradients, gradients},
                        {A::kScalars, scalars}},
                       factored_attribute(first));
      }
      case Op::kApollo: {
        using A = ApolloUpdate;
        return call<A>({{A::kParameters, p},
                        {A::kFirstMoments, moments(0)},
                        {A::kSecondMoments, moments(1)},
                        {A::kGrowth, moments(2)},
                        {A::kGradients, gradients},
                        {A::kScalars, scalars}},
                       projected_attribute(first));
      }
      case Op::kMuon: {
        using A = MuonUpdate;
        return call<A>(
            {{A::kParameters, p}, {A::kMomenta, moments(0)}, {A::kGradients, gradients}, {A::kScalars, scalars}},
            update_attribute(first, 1));
      }
      case Op::kAdamW: {
        using A = AdamWUpdate;
        return call<A>({{A::kParameters, p},
                        {A::kFirstMoments, moments(0)},
                        {A::kSecondMoments, moments(1)},
                        {A::kGradients, gradients},
                        {A::kScalars, scalars}},
                       update_attribute(first, count));
      }
      case Op::kLion: {
        using A = LionUpdate;
        return call<A>(
            {{A::kParameters, p}, {A::kMomenta, moments(0)}, {A::kGradients, gradients}, {A::kScalars, scalars}},
            update_attribute(first, count));
      }
      default: {
        using A = SgdUpdate;
        return call<A>(
            {{A::kParameters, p}, {A::kMomenta, moments(0)}, {A::kGradients, gradients}, {A::kScalars, scalars}},
            update_attribute(first, count));
      }
    }
  }

  float decay_of(size_t first) const { return first < decayed_ ? optimizer_.weight_decay : 0.0f; }
  // Returns the tensor's own random stream; 0 if its update rule is plain and so draws no random
  // bits.
  uint32_t stream_of(size_t first) const {
    return rules_.at(trained_[first]).is_plain ? 0 : static_cast<uint32_t>(first);
  }

  uint32_t update_attribute(size_t first, size_t count) {
    return graph_.attributes.intern(UpdateAttribute{.group = group(first, count),
                                                    .weight_decay = decay_of(first),
                                                    .momentum = optimizer_.momentum,
                                                    .nesterov = optimizer_.nesterov ? 1u : 0u,
                                                    .beta1 = optimizer_.beta1,
                                                    .beta2 = optimizer_.beta2,
                                                    .epsilon = optimizer_.epsilon,
                                                    .rate = rate_of(trained_[first]),
                                                    .stream = stream_of(first)});
  }
  uint32_t factored_attribute(size_t first) {
    return graph_.attributes.intern(FactoredAttribute{.group = group(first, 1),
                                                      .weight_decay = decay_of(first),
                                                      .decay_power = optimizer_.decay_power,
                                                      .epsilon = optimizer_.epsilon,
                                                      .min_scale = optimizer_.min_scale,
                                                      .clip = optimizer_.update_clip,
                                                      .adalomo = optimizer_.adalomo ? 1u : 0u,
                                                      .rate = rate_of(trained_[first]),
                                                      .stream = stream_of(first)});
  }
  uint32_t projected_attribute(size_t first) {
    return graph_.attributes.intern(ProjectedAttribute{.group = group(first, 1),
                                                       .weight_decay = decay_of(first),
                                                       .beta1 = optimizer_.beta1,
                                                       .beta2 = optimizer_.beta2,
                                                       .epsilon = optimizer_.epsilon,
                                                       .scale = optimizer_.scale,
                                                       .by_tensor = optimizer_.by_tensor ? 1u : 0u,
                                                       .period = optimizer_.period,
                                                       .rate = rate_of(trained_[first]),
                                                       .stream = stream_of(first)});
  }

  // Inserts the norm and update calls of each parameter into the backward of a link, after the last
  // call that uses the parameter or its gradient. A gradient that only one link writes becomes a
  // value of that link's backward. A gradient that several links write (of a tied table) stays in
  // Carried.
  void release() {
    if (!optimizer_.gradient_release) return;
    for (size_t i = 0; i < trained_.size(); ++i) {
      const ValueId p = trained_[i], g = gradient_of(p);
      int users = 0;
      LinkBody* last = nullptr;
      for (size_t l = chain_.links.size(); l-- > 0;) {
        if (last_use(chain_.links[l], {g}) < 0) continue;
        ++users;
        last = &chain_.links[l];
      }
      if (users == 1) graph_.values[g].kind = ValueKind::kGradient;
      const auto at = last->backward.begin() + last_use(*last, {p, g}) + 1;
      const Call calls[] = {reduce_call(i, 1), update_call(i, 1)};
      last->backward.insert(at, std::begin(calls), std::end(calls));
    }
  }

  static int last_use(const LinkBody& link, const std::vector<ValueId>& values) {
    for (size_t c = link.backward.size(); c-- > 0;) {
      for (const ValueId v : link.backward[c].arguments) {
        if (std::find(values.begin(), values.end(), v) != values.end()) return static_cast<int>(c);
      }
    }
    return -1;
  }

  void list_state() {
    state_.state = {graph_.scalars, norms_};
    const auto append = [this](const std::vector<ValueId>& values) {
      state_.state.insert(state_.state.end(), values.begin(), values.end());
    };
    append(trained_);
    append(frozen_);
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const ValueKind kind = graph_.values[v].kind;
      if (kind == ValueKind::kBuffer || kind == ValueKind::kTable) state_.state.push_back(v);
    }
    // Moments of one kind are neighbours, in the order of their parameters. Rows that update
    // several parameters require this order.
    for (size_t kind = 0; kind < kMaxKept; ++kind) {
      for (const ValueId p : trained_) {
        if (const auto kept = kept_.find(p); kept != kept_.end() && kind < kept->second.size())
          state_.state.push_back(kept->second[kind]);
      }
    }
    for (size_t i = 0; i < state_.state.size(); ++i) state_.state_index[state_.state[i]] = static_cast<uint32_t>(i);
  }

  void list_carried() {
    for (const ValueId p : trained_) {
      const ValueId g = gradient_of(p);
      if (graph_.values[g].kind != ValueKind::kWeightGradient) continue;
      state_.carried_index[g] = static_cast<uint32_t>(state_.carried.size());
      state_.carried.push_back(g);
    }
  }

  void update_program() {
    const std::pair<size_t, size_t> groups[] = {{0, decayed_}, {decayed_, trained_.size() - decayed_}};
    if (!optimizer_.gradient_release) {
      for (const auto& [first, count] : groups) {
        if (count > 0) state_.update.push_back(reduce_call(first, count));
      }
    }
    const uint32_t clip = graph_.attributes.intern(ClipAttribute{optimizer_.clip_norm});
    using Finish = GradNormFinish;
    state_.update.push_back(call<Finish>({{Finish::kScalars, graph_.scalars}, {Finish::kNorms, norms_}}, clip));
    if (!optimizer_.gradient_release) {
      for (size_t first = 0; first < trained_.size(); first += updated_together(first)) {
        state_.update.push_back(update_call(first, updated_together(first)));
      }
    }
  }

  Graph& graph_;
  ChainBodies& chain_;
  const OptimizerChoice& optimizer_;
  const RuleFinder finder_;
  static constexpr size_t kMaxKept = 3;  // maximum over all rules

  std::vector<ValueId> trained_, frozen_;
  std::map<ValueId, UpdateRule> rules_;             // key: a trained parameter
  // moments of each trained parameter, in the order of its rule
  std::map<ValueId, std::vector<ValueId>> kept_;
  size_t decayed_ = 0;
  ValueId norms_ = kNoValue;
  TrainingState state_;
};

}  // namespace

TrainingState build_training_state(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer) {
  return StateBuilder(graph, chain, optimizer).run();
}

}  // namespace reprise
