// Inserts the rows of sharing.h, and computes the memory that they need.
#include "tools/plan/lowering/sharing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>

#include "lib/assert.h"

namespace reprise {
namespace {

constexpr uint64_t kFlights = 8;  // maximum space for data in flight, as a multiple of the bytes that one row needs

// Returns the number of parts that arrive for each shared tensor: one from each rank. A single rank
// uses its own tensor directly, without a part.
uint64_t parts_of(uint32_t ranks) { return ranks > 1 ? ranks : 0; }

bool is_output(const KernelInfo& kernel, uint32_t a) { return kernel.arguments[a].role == Role::kOutput; }

// How a gradient is computed. `rows`: number of rows that write it. `running`: a kernel starts its
// sums with the contents of Carried.
struct Making {
  uint32_t rows = 0;
  bool running = false;
  // True if the micro-batch's gradient needs a tensor of its own when the gradients of `ranks`
  // ranks are added.
  bool is_apart(uint32_t ranks) const { return ranks > 1 || rows > 1 || running; }
};

// Returns the number of ranks whose gradients are added at the end of each micro-batch.
uint32_t added_ranks(const Sharing& sharing) { return sharing.two_levels ? 1 : sharing.ranks; }

// Memory for the gradients that one row writes. `own`: gradients with a tensor of their own that no
// other row writes. `largest`: the largest gradient that is complete after the row, and is then
// sent.
struct RowBytes {
  uint64_t own = 0, largest = 0;
  // Returns the minimum bytes, with one part in flight at a time. In two levels the sum is copied
  // before it is sent.
  uint64_t minimum(const Sharing& sharing) const {
    if (sharing.ranks <= 1) return own;
    return own + (sharing.two_levels ? 2 : 1) * largest;
  }
};

// Allocates memory for tensors in flight, always the lowest free space that is large enough.
class Space {
 public:
  Space(uint64_t first, uint64_t end) : first_(first), end_(end) {}

  std::optional<uint64_t> take(uint64_t bytes) {
    uint64_t at = first_;
    for (const auto& [begin, end] : taken_) {
      if (begin - at >= bytes) break;
      at = end;
    }
    if (at + bytes > end_) return std::nullopt;
    taken_[at] = at + bytes;
    return at;
  }
  void give_back(uint64_t at) { taken_.erase(at); }
  // True if this number of contiguous bytes is free.
  bool has(uint64_t bytes) const {
    uint64_t at = first_;
    for (const auto& [begin, end] : taken_) {
      if (begin - at >= bytes) return true;
      at = end;
    }
    return end_ - at >= bytes;
  }

 private:
  const uint64_t first_, end_;
  std::map<uint64_t, uint64_t> taken_;  // begin -> end
};

class Sharer {
 public:
  Sharer(OwnedProgram& program, ProgramId id, const Graph& graph, const TrainingState& state, const Sharing& sharing,
         uint64_t offset)
      : program_(program),
        id_(id),
        graph_(graph),
        state_(state),
        sharing_(sharing),
        kept_(offset),
        kept_end_(offset + sharing.kept_bytes),
        space_(offset + sharing.kept_bytes, offset + sharing.bytes()) {}

  void run() {
    const std::vector<Row> rows = std::move(program_.rows);
    const std::vector<RowOrigin> origins = std::move(program_.origins);
    program_.rows.clear(), program_.origins.clear();
    for (size_t r = 0; r < rows.size(); ++r) note_makings(rows[r], r);
    for (size_t r = 0; r < rows.size(); ++r) {
      origin_ = origins[r];
      link_ = rows[r].link;
      if (sharing_.ranks > 1 && moves_statistics(rows[r])) {
        share_statistics(rows[r]);
      } else {
        emit(rows[r], r);
      }
    }
    while (!under_way_.empty()) land();
    REPRISE_ASSERT(kept_ <= kept_end_, "gradients that several rows write fit the bytes that are kept for them");
  }

 private:
  struct Gradient : Making {
    size_t last_row = 0;
    Ref own = kNoRef;
  };
  // One or more tensors that ranks share at once, and the use of the parts that arrive. If `sum` is
  // set, they are added to this sum in Carried. If it is kNoRef, copies of the row `row` read them.
  struct Shared {
    std::vector<Ref> sources;
    Ref sum = kNoRef;
    Row row = {};
    uint32_t ranks = 1;                      // number of ranks whose parts arrive
    // True: rank 0's part is added to the sum's contents. False: it replaces them.
    bool adds = true;
    // offset of the source, to be freed after the last part has arrived; unset: not freed
    std::optional<uint64_t> own_place = {};
  };
  // The data of one rank: a tensor for each source.
  struct Part {
    std::shared_ptr<const Shared> shared;
    uint32_t rank = 0;
    std::vector<Ref> here = {};
    std::vector<uint64_t> places = {};  // offsets to free after use
  };

  const Tensor& tensor_of(Ref ref) const {
    return ref_region(ref) == Region::kCarried ? graph_.tensor(state_.carried[ref_index(ref)])
                                               : program_.slots[ref_index(ref)].tensor;
  }
  const std::string& name_of(Ref carried) const { return graph_.values[state_.carried[ref_index(carried)]].name; }
  Ref& argument(const Row& row, uint32_t a) { return program_.arguments[row.first_argument + a]; }
  static bool is_carried(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kCarried; }

  void note_makings(const Row& row, size_t r) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      if (!is_output(kernel, a) || !is_carried(argument(row, a))) continue;
      Gradient& gradient = gradients_[argument(row, a)];
      ++gradient.rows;
      gradient.running = gradient.running || kernel.arguments[a].running;
      gradient.last_row = r;
    }
  }

  bool moves_statistics(const Row& row) const { return row.op == Op::kBatchNorm && row.pass == Pass::kRunning; }

  void add_row(const Row& row) {
    program_.rows.push_back(row);
    program_.origins.push_back(origin_);
  }
  void add_row(Op op, Pass pass, uint32_t attribute, uint8_t queue, bool accumulate,
               std::initializer_list<Ref> arguments) {
    Row row = {};
    row.op = op, row.pass = pass, row.attribute = attribute, row.queue = queue, row.link = link_;
    row.accumulate = accumulate ? 1 : 0;
    row.first_argument = static_cast<uint32_t>(program_.arguments.size());
    program_.arguments.insert(program_.arguments.end(), arguments);
    add_row(row);
  }

  Ref new_slot(const Tensor& like, const std::string& name, uint64_t offset) {
    Slot slot;
    slot.tensor = like;
    slot.tensor.offset = offset;
    slot.use = SlotKind::kWeightGradient;
    program_.slots.push_back(slot);
    program_.slot_names.push_back(name);
    return make_ref(Region::kProgram, static_cast<uint32_t>(program_.slots.size() - 1));
  }

  // Receives the oldest parts until `bytes` contiguous bytes are free. Without this, parts in
  // flight could divide the free space into ranges that are all too small.
  void make_space(uint64_t bytes) {
    while (!space_.has(bytes)) {
      if (under_way_.empty()) throw std::logic_error("no room for what ranks share");
      land();
    }
  }
  uint64_t take(uint64_t bytes) {
    make_space(bytes);
    return *space_.take(bytes);
  }

  bool is_last_level() const { return sharing_.two_levels && id_ == ProgramId::kMicroLast; }
  bool is_apart(const Gradient& gradient) const { return gradient.is_apart(added_ranks(sharing_)); }

  RowBytes bytes_of(const Row& row, size_t r) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    RowBytes bytes;
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const Ref ref = argument(row, a);
      if (!is_output(kernel, a) || !is_carried(ref)) continue;
      const Gradient& gradient = gradients_.at(ref);
      if (is_apart(gradient) && gradient.rows == 1) bytes.own += tensor_of(ref).bytes;
      if (gradient.last_row == r) bytes.largest = std::max(bytes.largest, tensor_of(ref).bytes);
    }
    return bytes;
  }

  // Emits a row, and shares the gradients that are complete after it. If a gradient needs a tensor
  // of its own, the row writes to this tensor.
  void emit(Row row, size_t r) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    std::vector<Ref> whole;
    make_space(bytes_of(row, r).minimum(sharing_));
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const Ref ref = argument(row, a);
      if (!is_output(kernel, a) || !is_carried(ref)) continue;
      Gradient& gradient = gradients_.at(ref);
      if (gradient.last_row == r) whole.push_back(ref);
      if (!is_apart(gradient)) continue;
      const uint16_t bit = static_cast<uint16_t>(1u << a);
      row.accumulate = static_cast<uint16_t>(gradient.own == kNoRef ? row.accumulate & ~bit : row.accumulate | bit);
      if (gradient.own == kNoRef) begin(ref, gradient);
      argument(row, a) = gradient.own;
    }
    add_row(row);
    for (const Ref ref : whole) end(ref, gradients_.at(ref));
  }

  void begin(Ref ref, Gradient& gradient) {
    const Tensor tensor = tensor_of(ref);
    uint64_t at = kept_;
    if (gradient.rows > 1) {
      kept_ += tensor.bytes;
    } else {
      at = take(tensor.bytes);
    }
    gradient.own = new_slot(tensor, name_of(ref) + ", own", at);
  }

  // Ends the micro-batch's gradient for `sum`, which all its rows have written. If the gradient has
  // a tensor of its own, starts to share it; if added_ranks() is 1, adds it to `sum` at once
  // instead. After the last micro-batch in two levels, also shares the sum.
  void end(Ref sum, const Gradient& gradient) {
    if (is_apart(gradient)) {
      Shared shared = {.sources = {gradient.own}, .sum = sum, .adds = id_ != ProgramId::kMicroFirst};
      if (gradient.rows == 1) shared.own_place = program_.slots[ref_index(gradient.own)].tensor.offset;
      share(std::move(shared), added_ranks(sharing_));
    }
    if (is_last_level()) share_sum(sum);
  }

  // Shares a copy of this rank's sum, because the sum over all ranks is built in the same tensor.
  void share_sum(Ref sum) {
    const Tensor tensor = tensor_of(sum);
    make_space(2 * tensor.bytes);
    const uint64_t place = take(tensor.bytes);
    const Ref own = new_slot(tensor, name_of(sum) + ", own sum", place);
    add_row(Op::kCopy, Pass::kForward, 0, 0, false, {own, sum});
    share({.sources = {own}, .sum = sum, .adds = false, .own_place = place}, sharing_.ranks);
  }

  void share_statistics(const Row& row) {
    using A = BatchNormRunning;
    share({.sources = {argument(row, A::kMean), argument(row, A::kRstd)}, .row = row}, sharing_.ranks);
  }

  // Shares data among `ranks` ranks. A single rank uses its own data directly.
  void share(Shared shared, uint32_t ranks) {
    shared.ranks = ranks;
    const auto shared_by_all = std::make_shared<const Shared>(std::move(shared));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      Part part = {.shared = shared_by_all, .rank = rank};
      if (ranks == 1) return take_in(part);
      start(part);
      under_way_.push_back(std::move(part));
    }
  }

  void start(Part& part) {
    const Shared& shared = *part.shared;
    uint64_t bytes = 0;
    for (const Ref source : shared.sources) bytes += tensor_of(source).bytes;
    make_space(bytes);
    for (const Ref source : shared.sources) {
      const Tensor tensor = tensor_of(source);
      const std::string name = shared.sum == kNoRef ? program_.slot_names[ref_index(source)] : name_of(shared.sum);
      part.places.push_back(*space_.take(tensor.bytes));
      part.here.push_back(new_slot(tensor, name + " of rank " + std::to_string(part.rank), part.places.back()));
      add_row(Op::kShare, Pass::kStart, part.rank, 1, false, {part.here.back(), source});
    }
  }

  // Receives the oldest part. Parts arrive in the order of the ranks.
  void land() {
    const Part part = std::move(under_way_.front());
    under_way_.pop_front();
    take_in(part);
  }
  void take_in(const Part& part) {
    const Shared& shared = *part.shared;
    for (size_t s = 0; s < part.here.size(); ++s)
      add_row(Op::kShare, Pass::kWait, part.rank, 1, false, {part.here[s], shared.sources[s]});
    use(shared, part.rank, part.here.empty() ? shared.sources : part.here);
    for (const uint64_t place : part.places) space_.give_back(place);
    if (part.rank + 1 == shared.ranks && shared.own_place) space_.give_back(*shared.own_place);
  }

  void use(const Shared& shared, uint32_t rank, const std::vector<Ref>& here) {
    if (shared.sum != kNoRef)
      return add_row(Op::kCopy, Pass::kForward, 0, 0, shared.adds || rank > 0, {shared.sum, here[0]});
    using A = BatchNormRunning;
    Row row = shared.row;
    row.first_argument = static_cast<uint32_t>(program_.arguments.size());
    for (uint32_t a = 0; a < A::kArity; ++a)
      program_.arguments.push_back(program_.arguments[shared.row.first_argument + a]);
    argument(row, A::kMean) = here[0], argument(row, A::kRstd) = here[1];
    add_row(row);
  }

  OwnedProgram& program_;
  const ProgramId id_;
  const Graph& graph_;
  const TrainingState& state_;
  const Sharing& sharing_;
  uint64_t kept_;  // offset for the next gradient that several rows write
  const uint64_t kept_end_;
  Space space_;
  std::map<Ref, Gradient> gradients_;
  std::deque<Part> under_way_;
  RowOrigin origin_;
  uint32_t link_ = 0;
};

// Calls use(call) for every call of the links' backward.
template <typename Use>
void for_each_backward_call(const ChainBodies& chain, const Use& use) {
  for (const LinkBody& link : chain.links) {
    for (const Call& call : link.backward) use(call);
  }
}

// Returns how each carried gradient is computed.
std::map<ValueId, Making> makings_of(const ChainBodies& chain, const TrainingState& state) {
  std::map<ValueId, Making> makings;
  for_each_backward_call(chain, [&](const Call& call) {
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    for (uint32_t a = 0; a < call.arguments.size(); ++a) {
      if (!is_output(kernel, a) || state.carried_index.count(call.arguments[a]) == 0) continue;
      Making& making = makings[call.arguments[a]];
      ++making.rows;
      making.running = making.running || kernel.arguments[a].running;
    }
  });
  return makings;
}

uint64_t max_statistics(const Graph& graph, const ChainBodies& chain) {
  uint64_t maximum = 0;
  for (const LinkBody& link : chain.links) {
    for (const auto* calls : {&link.forward, &link.backward}) {
      for (const Call& call : *calls) {
        if (call.op == Op::kBatchNorm && call.pass == Pass::kRunning)
          maximum = std::max(maximum, graph.tensor(call.arguments[BatchNormRunning::kMean]).bytes);
      }
    }
  }
  return maximum;
}

}  // namespace

Sharing plan_sharing(Graph& graph, const ChainBodies& chain, const TrainingState& state, uint32_t ranks,
                     bool two_levels) {
  Sharing sharing = {.ranks = ranks, .two_levels = two_levels && ranks > 1};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    [[maybe_unused]] const uint32_t index = graph.attributes.intern(ShareAttribute{rank});
    REPRISE_ASSERT(index == rank, "the attribute of a rank has the rank as its index");
  }
  const uint64_t parts = parts_of(ranks);
  sharing.min_bytes = parts == 0 ? 0 : 2 * max_statistics(graph, chain);
  uint64_t flight_bytes = parts * 2 * max_statistics(graph, chain), all_bytes = 0;
  const std::map<ValueId, Making> makings = makings_of(chain, state);
  for (const auto& [gradient, making] : makings) {
    if (making.rows > 1 && making.is_apart(added_ranks(sharing))) sharing.kept_bytes += graph.tensor(gradient).bytes;
  }
  for_each_backward_call(chain, [&](const Call& call) {
    RowBytes bytes;
    uint64_t made = 0;
    for (const ValueId v : call.arguments) {
      const auto making = makings.find(v);
      if (making == makings.end()) continue;
      if (making->second.is_apart(added_ranks(sharing)) && making->second.rows == 1) bytes.own += graph.tensor(v).bytes;
      made += graph.tensor(v).bytes;
      bytes.largest = std::max(bytes.largest, graph.tensor(v).bytes);
    }
    const uint64_t copied = sharing.two_levels ? 1 : 0;
    sharing.min_bytes = std::max(sharing.min_bytes, bytes.minimum(sharing));
    flight_bytes = std::max(flight_bytes, bytes.own + (copied + parts) * bytes.largest);
    all_bytes += bytes.own + (copied + parts) * made;
  });
  const uint64_t flights = ranks > 1 ? kFlights : 1;
  sharing.space_bytes = std::max({sharing.min_bytes, flight_bytes, std::min(flights * flight_bytes, all_bytes)});
  return sharing;
}

void share_parameters(OwnedProgram& program, const Graph& graph, const TrainingState& state) {
  if (state.owners.empty()) return;
  std::vector<Row> rows, waits;
  const auto add = [&](Pass pass, uint32_t root, Ref parameter, std::vector<Row>& to) {
    Row row = {};
    row.op = Op::kShareInPlace, row.pass = pass, row.attribute = root, row.queue = 1;
    row.first_argument = static_cast<uint32_t>(program.arguments.size());
    program.arguments.insert(program.arguments.end(), {parameter, parameter});
    to.push_back(row);
  };
  const AttributePools pools = graph.attributes.pools();
  for (size_t r = 0; r < program.rows.size(); ++r) {
    const Row& row = program.rows[r];
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    rows.push_back(row);
    uint32_t owner = kEveryRank;
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const Ref ref = program.arguments[row.first_argument + a];
      if (ref == kNoRef || ref_region(ref) != Region::kState) continue;
      const auto kept = state.owners.find(state.state[ref_index(ref)]);
      if (kept == state.owners.end()) continue;
      owner = kept->second;
      REPRISE_ASSERT(owner < graph.attributes.of<ShareAttribute>().size(), "the owner of a moment is one of the ranks");
    }
    if (owner == kEveryRank) continue;
    const Ref first = program.arguments[row.first_argument];
    for (uint32_t t = 0; t < group_of(pools, kernel.attribute, row.attribute)->tensors; ++t) {
      add(Pass::kStart, owner, first + t, rows);
      add(Pass::kWait, owner, first + t, waits);
    }
  }
  rows.insert(rows.end(), waits.begin(), waits.end());
  program.rows = std::move(rows);
  program.origins.resize(program.rows.size(), program.origins.empty() ? RowOrigin{} : program.origins.back());
}

uint64_t sent_bytes(const Plan& plan) {
  std::vector<uint64_t> bytes(plan.ranks);
  for (uint32_t p = 0; p < kProgramCount; ++p) {
    const Program& program = plan.programs[p];
    const uint64_t times = runs_in_step(plan, static_cast<ProgramId>(p));
    for (const Row& row : program.rows) {
      if (row.pass != Pass::kStart || (row.op != Op::kShare && row.op != Op::kShareInPlace)) continue;
      bytes[plan.attributes.of<ShareAttribute>()[row.attribute].root] +=
          times * tensor_of(plan, program, program.arguments[row.first_argument]).used_bytes();
    }
  }
  return *std::max_element(bytes.begin(), bytes.end());
}

void share_gradients(OwnedProgram& program, ProgramId id, const Graph& graph, const TrainingState& state,
                     const Sharing& sharing, uint64_t offset) {
  REPRISE_ASSERT(sharing.space_bytes >= sharing.min_bytes, "what ranks share has its minimum of space");
  if (sharing.ranks > 0) Sharer(program, id, graph, state, sharing, offset).run();
}

}  // namespace reprise
