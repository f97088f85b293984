// Finds the patterns of fold.h. The search begins at the last call of a pattern, and goes backwards
// to the calls that write its inputs.
#include "tools/plan/graph/fold.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "lib/assert.h"
#include "tools/plan/graph/call.h"

namespace reprise {

namespace {

// An op `plain`, and the op `folded` that replaces it if its input is relu(norm(x)). `folded` reads
// x. It has the arguments of `plain` and those of the norm, under the same names. Its outputs are
// first, in the order of plain's outputs.
struct FoldedReader {
  Op plain, folded;
};
constexpr FoldedReader kFoldedReaders[] = {{Op::kConv, Op::kNormConv}};

// An op that can also compute the mean and rstd of its output. `mean` and `rstd` are the argument
// indices of these two results.
struct StatisticsWriter {
  Op op;
  uint32_t mean, rstd;
};
constexpr StatisticsWriter kStatisticsWriters[] = {{Op::kConv, ConvForward::kMeanOfY, ConvForward::kRstdOfY}};

const StatisticsWriter* statistics_writer(Op op) {
  const auto found = std::find_if(std::begin(kStatisticsWriters), std::end(kStatisticsWriters),
                                  [op](const StatisticsWriter& writer) { return writer.op == op; });
  return found == std::end(kStatisticsWriters) ? nullptr : found;
}

bool is_boundary(const Graph& graph, ValueId v) {
  return std::find(graph.boundaries.begin(), graph.boundaries.end(), v) != graph.boundaries.end();
}
bool crosses_a_cut(const Graph& graph, ValueId v) {
  return graph.values[v].kind == ValueKind::kSkip || is_boundary(graph, v);
}

constexpr size_t kNoCall = ~size_t{0};

// Returns `reader` as a call of the folded op: its argument with index `place`, relu(norm(x)), is
// replaced by x, and the norm's arguments are added. Returns nothing if `reader` has no folded op
// in its pass.
std::optional<Call> reading_norm(const Call& reader, size_t place, const Call& norm) {
  const auto pair = std::find_if(std::begin(kFoldedReaders), std::end(kFoldedReaders),
                                 [&reader](const FoldedReader& each) { return each.plain == reader.op; });
  if (pair == std::end(kFoldedReaders) || kernel_index(pair->folded, reader.pass) == kKernelCount) return std::nullopt;
  using N = BatchNormForward;
  const KernelInfo &plain = kernel_info(reader.op, reader.pass), &folded = kernel_info(pair->folded, reader.pass),
                   &of_norm = N::kInfo;
  Call call = reader;
  call.op = pair->folded;
  call.arguments.clear();
  for (uint32_t a = 0; a < folded.arity() && folded.arguments[a].role != Role::kScratch; ++a) {
    const std::string_view name = folded.arguments[a].name;
    const auto find = [name](const KernelInfo& kernel, size_t count) {
      size_t found = 0;
      while (found < count && kernel.arguments[found].name != name) ++found;
      return found;
    };
    const size_t own = find(plain, reader.arguments.size());
    call.arguments.push_back(own == place                    ? norm.arguments[N::kX]
                             : own < reader.arguments.size() ? reader.arguments[own]
                                                             : norm.arguments.at(find(of_norm, norm.arguments.size())));
  }
  return call;
}

// A list of calls with an index of the writers and readers of each value.
class Calls {
 public:
  explicit Calls(std::vector<Call>& calls) : calls_(calls), dropped_(calls.size(), false) {
    for (size_t i = 0; i < calls.size(); ++i) {
      for (size_t a = 0; a < calls[i].arguments.size(); ++a) {
        const ValueId v = calls[i].arguments[a];
        if (v == kNoValue) continue;
        if (kernel_info(calls[i].op, calls[i].pass).arguments[a].role == Role::kInput) {
          readers_[v].push_back({i, a});
        } else {
          writer_[v] = i;
        }
      }
    }
  }
  void end() {
    size_t i = 0;
    std::erase_if(calls_, [&](const Call&) { return dropped_[i++]; });
  }

  struct Reader {
    size_t call, place;
  };
  const std::vector<Reader>& readers(ValueId v) const {
    static const std::vector<Reader> none;
    const auto found = readers_.find(v);
    return found == readers_.end() ? none : found->second;
  }
  size_t writer(ValueId v) const {
    const auto found = writer_.find(v);
    return found == writer_.end() ? kNoCall : found->second;
  }
  // Returns the forward call of this op that wrote v; kNoCall if another call did.
  size_t writer(ValueId v, Op op) const {
    const size_t found = writer(v);
    return found != kNoCall && calls_[found].op == op && calls_[found].pass == Pass::kForward ? found : kNoCall;
  }
  Call& operator[](size_t i) { return calls_[i]; }
  const Call& operator[](size_t i) const { return calls_[i]; }
  size_t size() const { return calls_.size(); }
  void drop(size_t i) { dropped_[i] = true; }
  bool is(size_t i, Op op, Pass pass) const { return !dropped_[i] && calls_[i].op == op && calls_[i].pass == pass; }

 private:
  std::vector<Call>& calls_;
  std::vector<bool> dropped_;
  std::map<ValueId, size_t> writer_;
  std::map<ValueId, std::vector<Reader>> readers_;
};

class NormFolder {
 public:
  NormFolder(const Graph& graph, std::vector<Call>& forward, std::vector<Call>& backward)
      : graph_(graph), forward_(forward), backward_(backward) {}

  void run() {
    for (size_t i = 0; i < forward_.size(); ++i) {
      if (forward_.is(i, Op::kRelu, Pass::kForward) && !fold_into_readers(i)) fold_into_relu(i);
      if (forward_.is(i, Op::kBatchNorm, Pass::kStatistics)) fold_statistics(i);
    }
    forward_.end();
    backward_.end();
  }

 private:
  // Returns the forward call of `op` that wrote v; kNoCall if there is none. Also returns kNoCall
  // if v crosses a cut, if a backward call reads v, or unless exactly one forward call reads v.
  size_t only_read_once(ValueId v, Op op) const {
    if (crosses_a_cut(graph_, v) || forward_.readers(v).size() != 1 || !backward_.readers(v).empty()) return kNoCall;
    return forward_.writer(v, op);
  }

  // Folds convolution(relu(batch_norm(x))), and returns true if that is possible. The backward of
  // the batch-norm then also applies the ReLU's mask.
  bool fold_into_readers(size_t relu) {
    const ValueId a = forward_[relu].arguments[ReluForward::kY];
    const size_t norm = only_read_once(forward_[relu].arguments[ReluForward::kX], Op::kBatchNorm);
    if (norm == kNoCall || crosses_a_cut(graph_, a) || forward_.readers(a).empty()) return false;
    const Call by = forward_[norm];
    std::vector<std::pair<Call*, Call>> rewritten;
    size_t masks = kNoCall;
    for (Calls* calls : {&forward_, &backward_}) {
      for (const Calls::Reader& reader : calls->readers(a)) {
        if (calls == &backward_ && calls->is(reader.call, Op::kRelu, Pass::kBackward)) {
          masks = reader.call;
          continue;
        }
        const auto call = reading_norm((*calls)[reader.call], reader.place, by);
        if (!call || is_in_groups(*call)) return false;
        rewritten.push_back({&(*calls)[reader.call], *call});
      }
    }
    for (auto& [call, folded] : rewritten) *call = std::move(folded);
    if (masks != kNoCall) mask_in_norm(masks, by);
    forward_.drop(norm);
    forward_.drop(relu);
    return true;
  }

  // True if the convolution has several groups; it then cannot normalise its input
  // (lib/ops/conv.h).
  bool is_in_groups(const Call& call) const {
    return graph_.attributes.of<WindowAttribute>()[call.attribute].groups != 1;
  }

  void mask_in_norm(size_t relu, const Call& norm) {
    const ValueId dn = backward_[relu].arguments[ReluBackward::kDx], da = backward_[relu].arguments[ReluBackward::kDy];
    Call& plain = backward_[backward_.readers(dn).at(0).call];
    REPRISE_ASSERT(plain.op == Op::kBatchNorm && plain.pass == Pass::kBackward,
                   "the gradient of a folded relu is read by its norm's backward");
    using B = BatchNormBackward;
    using A = NormReluBackward;
    static_assert(uint32_t{A::kDx} == B::kDx && uint32_t{A::kDgamma} == B::kDgamma && uint32_t{A::kDbeta} == B::kDbeta,
                  "what is added to keeps its bit");
    const std::vector<ValueId>& b = plain.arguments;
    Call folded = call<A>({{A::kDx, b[B::kDx]},
                           {A::kDgamma, b[B::kDgamma]},
                           {A::kDbeta, b[B::kDbeta]},
                           {A::kX, b[B::kX]},
                           {A::kMean, b[B::kMean]},
                           {A::kRstd, b[B::kRstd]},
                           {A::kGamma, b[B::kGamma]},
                           {A::kBeta, norm.arguments[BatchNormForward::kBeta]},
                           {A::kDa, da}},
                          plain.attribute);
    folded.accumulate = plain.accumulate;
    plain = folded;
    backward_.drop(relu);
  }

  // Folds relu(add(batch_norm(x), b)).
  void fold_into_relu(size_t relu) {
    const size_t add = only_read_once(forward_[relu].arguments[ReluForward::kX], Op::kAdd);
    if (add == kNoCall) return;
    const size_t norm = only_read_once(forward_[add].arguments[AddForward::kA], Op::kBatchNorm);
    if (norm == kNoCall) return;
    using A = NormAddReluForward;
    using N = BatchNormForward;
    const std::vector<ValueId> n = forward_[norm].arguments;
    forward_[relu] = call<A>({{A::kY, forward_[relu].arguments[ReluForward::kY]},
                              {A::kX, n[N::kX]},
                              {A::kB, forward_[add].arguments[AddForward::kB]},
                              {A::kMean, n[N::kMean]},
                              {A::kRstd, n[N::kRstd]},
                              {A::kGamma, n[N::kGamma]},
                              {A::kBeta, n[N::kBeta]}},
                             forward_[norm].attribute);
    forward_.drop(norm);
    forward_.drop(add);
  }

  // Folds batch-norm's statistics into the convolution that writes the norm's input. The
  // convolution may already be a kNormConv, which normalises its own input; mean and rstd of its
  // output have the same argument indices as in kConv.
  void fold_statistics(size_t statistics) {
    using S = BatchNormStatistics;
    const std::vector<ValueId>& s = forward_[statistics].arguments;
    const size_t found = forward_.writer(s[S::kX]);
    if (found == kNoCall) return;
    Call& writer = forward_[found];
    const auto folded = std::find_if(std::begin(kFoldedReaders), std::end(kFoldedReaders),
                                     [&writer](const FoldedReader& each) { return each.folded == writer.op; });
    const StatisticsWriter* takes = statistics_writer(folded == std::end(kFoldedReaders) ? writer.op : folded->plain);
    if (takes == nullptr || writer.arguments[takes->mean] != kNoValue) return;
    if (!(graph_.attributes.of<WindowAttribute>()[writer.attribute].statistics_epsilon > 0)) return;
    writer.arguments[takes->mean] = s[S::kMean];
    writer.arguments[takes->rstd] = s[S::kRstd];
    writer.once = static_cast<uint16_t>(writer.once | 1u << takes->mean | 1u << takes->rstd);
    forward_.drop(statistics);
  }

  const Graph& graph_;
  Calls forward_, backward_;
};

}  // namespace

void want_statistics(Graph& graph) {
  // For each output in the current link that can have statistics, the node that writes it.
  std::map<ValueId, Node*> writer;
  for (Node& node : graph.nodes) {
    const bool ends_link = !node.outputs.empty() && is_boundary(graph, node.outputs[0]);
    const auto found =
        node.op == Op::kBatchNorm && !uses_running_statistics(graph, node) ? writer.find(node.inputs[0]) : writer.end();
    if (found != writer.end()) {
      WindowAttribute window = graph.attributes.of<WindowAttribute>()[found->second->attribute];
      window.statistics_epsilon = graph.attributes.of<NormAttribute>()[node.attribute].epsilon;
      found->second->attribute = graph.attributes.intern(window);
      writer.erase(found);
    }
    if (ends_link) writer.clear();
    else if (statistics_writer(node.op) != nullptr) writer[node.outputs[0]] = &node;
  }
}

void fold_norms(const Graph& graph, std::vector<Call>& forward, std::vector<Call>& backward) {
  NormFolder(graph, forward, backward).run();
}

ChainBodies cut_into_folded_links(Graph& graph) {
  want_statistics(graph);
  ChainBodies chain = cut_into_links(graph);
  for (LinkBody& link : chain.links) fold_norms(graph, link.forward, link.backward);
  return chain;
}

}  // namespace reprise
