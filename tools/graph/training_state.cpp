// Orders parameters so that one optimizer row serves a contiguous group, and releases gradients where that is allowed.
// Here because groups are a matter of order in the arena.
#include "tools/graph/training_state.h"

#include <algorithm>

#include "tools/graph/call.h"

namespace reprise {

namespace {

// What an optimizer keeps of each parameter, in the order in which update_call takes them: the prefixes of the names in State.
struct Moments {
  Op update;
  std::vector<const char*> prefixes;
};
const Moments kMoments[] = {{Op::kSgd, {"momentum."}}, {Op::kAdamW, {"first_moment.", "second_moment."}}, {Op::kLion, {"momentum."}}};

std::vector<const char*> moments_of(const OptimizerChoice& optimizer) {
  if (optimizer.update == Op::kSgd && optimizer.momentum == 0) return {};
  return std::find_if(std::begin(kMoments), std::end(kMoments), [&](const Moments& m) { return m.update == optimizer.update; })->prefixes;
}

class StateBuilder {
 public:
  StateBuilder(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer)
      : graph_(graph), chain_(chain), optimizer_(optimizer) {}

  TrainingState run() {
    sort_parameters();
    norms_ = graph_.add_value("gradient_norms", ValueKind::kNorms, {static_cast<uint32_t>(std::max<size_t>(1, trained_.size()))}, DType::kF64);
    add_moments();
    release();
    list_state();
    list_carried();
    update_program();
    return std::move(state_);
  }

 private:
  ValueId gradient_of(ValueId parameter) const { return chain_.weight_gradients[parameter]; }

  // Trained parameters with weight decay, those without, then frozen ones; each in the order of the model.
  void sort_parameters() {
    std::vector<ValueId> undecayed;
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      if (value.kind != ValueKind::kParameter) continue;
      const bool trained = v < chain_.weight_gradients.size() && gradient_of(v) != kNoValue;
      (!trained ? frozen_ : value.decays ? trained_ : undecayed).push_back(v);
    }
    decayed_ = trained_.size();
    trained_.insert(trained_.end(), undecayed.begin(), undecayed.end());
  }

  void add_moments() {
    for (const char* prefix : moments_of(optimizer_)) {
      std::vector<ValueId>& moments = moments_.emplace_back();
      for (const ValueId p : trained_) {
        const Tensor tensor = graph_.tensor(p);
        moments.push_back(graph_.add_value(prefix + graph_.values[p].name, ValueKind::kOptimizer,
                                           Shape(tensor.shape, tensor.shape + tensor.rank)));
      }
    }
  }

  // Trained parameters [first, first + count) as one group.
  GroupAttribute group(size_t first, size_t count) const {
    uint64_t bytes = 0;
    for (size_t i = first; i + 1 < first + count; ++i) bytes += graph_.tensor(trained_[i]).bytes;
    return {static_cast<uint32_t>(count), static_cast<uint32_t>(first), bytes / sizeof(float) + graph_.tensor(trained_[first + count - 1]).elements()};
  }

  Call reduce_call(size_t first, size_t count) {
    using A = GradNormReduce;
    const uint32_t attribute = graph_.attributes.intern(group(first, count));
    return call<A>({{A::kNorms, norms_}, {A::kGradients, gradient_of(trained_[first])}}, attribute);
  }

  Call update_call(size_t first, size_t count) {
    UpdateAttribute attribute = {};
    attribute.group = group(first, count);
    attribute.weight_decay = first < decayed_ ? optimizer_.weight_decay : 0.0f;
    attribute.momentum = optimizer_.momentum;
    attribute.nesterov = optimizer_.nesterov ? 1 : 0;
    attribute.beta1 = optimizer_.beta1;
    attribute.beta2 = optimizer_.beta2;
    attribute.epsilon = optimizer_.epsilon;
    const uint32_t index = graph_.attributes.intern(attribute);
    using Sgd = SgdUpdate;
    using AdamW = AdamWUpdate;
    using Lion = LionUpdate;
    const ValueId parameters = trained_[first], gradients = gradient_of(parameters), scalars = graph_.scalars;
    const auto moments = [&](size_t i) { return moments_.at(i)[first]; };  // as kMoments orders them
    if (optimizer_.update == Op::kAdamW) {
      return call<AdamW>({{AdamW::kParameters, parameters}, {AdamW::kFirstMoments, moments(0)}, {AdamW::kSecondMoments, moments(1)},
                          {AdamW::kGradients, gradients}, {AdamW::kScalars, scalars}}, index);
    }
    if (optimizer_.update == Op::kLion) {
      return call<Lion>({{Lion::kParameters, parameters}, {Lion::kMomenta, moments(0)}, {Lion::kGradients, gradients}, {Lion::kScalars, scalars}},
                        index);
    }
    const ValueId momenta = moments_.empty() ? kNoValue : moments(0);
    return call<Sgd>({{Sgd::kParameters, parameters}, {Sgd::kMomenta, momenta}, {Sgd::kGradients, gradients}, {Sgd::kScalars, scalars}}, index);
  }

  // A gradient that one link alone writes becomes a value of that link's backward; one that several write (a tied table)
  // stays carried. Both are used up right after the last call that touches parameter or gradient.
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
    const auto append = [this](const std::vector<ValueId>& values) { state_.state.insert(state_.state.end(), values.begin(), values.end()); };
    append(trained_);
    append(frozen_);
    for (ValueId v = 0; v < graph_.values.size(); ++v) {
      const ValueKind kind = graph_.values[v].kind;
      if (kind == ValueKind::kBuffer || kind == ValueKind::kTable) state_.state.push_back(v);
    }
    for (const std::vector<ValueId>& moments : moments_) append(moments);
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
      for (const auto& [first, count] : groups) {
        if (count > 0) state_.update.push_back(update_call(first, count));
      }
    }
  }

  Graph& graph_;
  ChainBodies& chain_;
  const OptimizerChoice& optimizer_;
  std::vector<ValueId> trained_, frozen_;
  std::vector<std::vector<ValueId>> moments_;
  size_t decayed_ = 0;
  ValueId norms_ = kNoValue;
  TrainingState state_;
};

}  // namespace

TrainingState build_training_state(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer) {
  return StateBuilder(graph, chain, optimizer).run();
}

}  // namespace reprise
