// Orders parameters so that one optimizer row serves a contiguous group, and releases gradients where that is allowed.
// Here because groups are a matter of order in the arena.
// It must not know budgets.
#include "tools/graph/training_state.h"

#include <algorithm>

namespace reprise {

namespace {

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
    const int moments = optimizer_.adamw ? 2 : optimizer_.momentum != 0 ? 1 : 0;
    static const char* const kNames[2][2] = {{"momentum.", ""}, {"first_moment.", "second_moment."}};
    for (int m = 0; m < moments; ++m) {
      for (const ValueId p : trained_) {
        const Tensor tensor = graph_.tensor(p);
        moments_[m].push_back(graph_.add_value(kNames[optimizer_.adamw ? 1 : 0][m] + graph_.values[p].name, ValueKind::kOptimizer,
                                               Shape(tensor.shape, tensor.shape + tensor.rank)));
      }
    }
  }

  ValueId moment(int m, size_t trained) const { return moments_[m].empty() ? kNoValue : moments_[m][trained]; }

  // Trained parameters [first, first + count) as one group.
  GroupAttribute group(size_t first, size_t count) const {
    uint64_t bytes = 0;
    for (size_t i = first; i + 1 < first + count; ++i) bytes += graph_.tensor(trained_[i]).bytes;
    return {static_cast<uint32_t>(count), static_cast<uint32_t>(first), bytes / sizeof(float) + graph_.tensor(trained_[first + count - 1]).elements()};
  }

  Call reduce_call(size_t first, size_t count) {
    const uint32_t attribute = graph_.attributes.intern(group(first, count));
    return {Op::kGradNorm, Pass::kReduce, attribute, {norms_, gradient_of(trained_[first])}};
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
    const ValueId p = trained_[first], g = gradient_of(p);
    if (optimizer_.adamw) return {Op::kAdamW, Pass::kUpdate, index, {p, moment(0, first), moment(1, first), g, graph_.scalars}};
    return {Op::kSgd, Pass::kUpdate, index, {p, moment(0, first), g, graph_.scalars}};
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
      if (graph_.values[v].kind == ValueKind::kBuffer) state_.state.push_back(v);
    }
    append(moments_[0]);
    append(moments_[1]);
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
    state_.update.push_back({Op::kGradNorm, Pass::kFinish, clip, {graph_.scalars, norms_}});
    if (!optimizer_.gradient_release) {
      for (const auto& [first, count] : groups) {
        if (count > 0) state_.update.push_back(update_call(first, count));
      }
    }
  }

  Graph& graph_;
  ChainBodies& chain_;
  const OptimizerChoice& optimizer_;
  std::vector<ValueId> trained_, frozen_, moments_[2];
  size_t decayed_ = 0;
  ValueId norms_ = kNoValue;
  TrainingState state_;
};

}  // namespace

TrainingState build_training_state(Graph& graph, ChainBodies& chain, const OptimizerChoice& optimizer) {
  return StateBuilder(graph, chain, optimizer).run();
}

}  // namespace reprise
