// The rows of sharing.h, and the memory that they take.
#include "tools/lowering/sharing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>

namespace reprise {
namespace {

constexpr uint32_t kFlights = 8;  // where memory is no object

// Of what is shared, as it comes: one of each rank; a process alone takes its own as it is.
uint64_t copies_of(uint32_t ranks) { return ranks > 1 ? ranks : 0; }

bool is_output(const KernelInfo& kernel, uint32_t a) { return kernel.arguments[a].role == Role::kOutput; }

// What stands beside the plain sum of one row for a gradient.
struct Making {
  uint32_t rows = 0;
  bool running = false;
  // Whether the micro-batch's gradient must stand by itself.
  bool is_apart(uint32_t ranks) const { return ranks > 1 || rows > 1 || running; }
};

// Memory for what is under way: the lowest room that is free.
class Room {
 public:
  Room(uint64_t first, uint64_t end) : first_(first), end_(end) {}

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
  // Whether so many bytes are free side by side.
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
  Sharer(OwnedProgram& program, const Graph& graph, const TrainingState& state, const Sharing& sharing, uint64_t offset, bool add)
      : program_(program), graph_(graph), state_(state), ranks_(sharing.ranks), add_(add), kept_(offset),
        room_(offset + sharing.kept_bytes, offset + sharing.bytes()) {}

  void run() {
    const std::vector<Row> rows = std::move(program_.rows);
    const std::vector<RowOrigin> origins = std::move(program_.origins);
    program_.rows.clear(), program_.origins.clear();
    for (size_t r = 0; r < rows.size(); ++r) note_makings(rows[r], r);
    for (size_t r = 0; r < rows.size(); ++r) {
      origin_ = origins[r];
      link_ = rows[r].link;
      if (ranks_ > 1 && moves_statistics(rows[r])) {
        share_statistics(rows[r]);
      } else {
        emit(rows[r], r);
      }
    }
    while (!flights_.empty()) land();
  }

 private:
  struct Gradient : Making {
    size_t last_row = 0;
    Ref own = kNoRef;
  };
  // What comes from all ranks: parts[r] of each source are those of rank r.
  struct Flight {
    std::vector<Ref> sources;
    std::vector<std::vector<Ref>> parts;
    std::vector<uint64_t> places;    // to give back
    Ref sum = kNoRef;                // a gradient's place in Carried
    Row row = {};                    // else the row that reads the sources
  };

  const Tensor& tensor_of(Ref ref) const {
    return ref_region(ref) == Region::kCarried ? graph_.tensor(state_.carried[ref_index(ref)]) : program_.slots[ref_index(ref)].tensor;
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
  void add_row(Op op, Pass pass, uint32_t attribute, uint8_t queue, bool accumulate, std::initializer_list<Ref> arguments) {
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
    slot.use = SlotUse::kWeightGradient;
    program_.slots.push_back(slot);
    program_.slot_names.push_back(name);
    return make_ref(Region::kProgram, static_cast<uint32_t>(program_.slots.size() - 1));
  }

  // Lands the oldest flights until there is room side by side, so that what stays cannot cut it in two.
  void make_room(uint64_t bytes) {
    while (!room_.has(bytes)) {
      if (flights_.empty()) throw std::logic_error("no room for what ranks share");
      land();
    }
  }
  uint64_t take(uint64_t bytes) {
    make_room(bytes);
    return *room_.take(bytes);
  }

  // What a row's gradients take: those that begin and end with it, and all that comes of one that ends.
  uint64_t room_of(const Row& row, size_t r) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    uint64_t own = 0, largest = 0;
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const Ref ref = argument(row, a);
      if (!is_output(kernel, a) || !is_carried(ref) || !gradients_.at(ref).is_apart(ranks_)) continue;
      if (gradients_.at(ref).rows == 1) own += tensor_of(ref).bytes;
      if (gradients_.at(ref).last_row == r) largest = std::max(largest, tensor_of(ref).bytes);
    }
    return own + copies_of(ranks_) * largest;
  }

  // Rows whose outputs are gradients write these where they stand by themselves.
  void emit(Row row, size_t r) {
    const KernelInfo& kernel = kernel_info(row.op, row.pass);
    std::vector<Ref> whole;
    make_room(room_of(row, r));
    for (uint32_t a = 0; a < kernel.arity(); ++a) {
      const Ref ref = argument(row, a);
      if (!is_output(kernel, a) || !is_carried(ref)) continue;
      Gradient& gradient = gradients_.at(ref);
      if (!gradient.is_apart(ranks_)) continue;
      const uint16_t bit = static_cast<uint16_t>(1u << a);
      row.accumulate = static_cast<uint16_t>(gradient.own == kNoRef ? row.accumulate & ~bit : row.accumulate | bit);
      if (gradient.own == kNoRef) begin(ref, gradient);
      argument(row, a) = gradient.own;
      if (gradient.last_row == r) whole.push_back(ref);
    }
    add_row(row);
    for (const Ref ref : whole) share_gradient(ref, gradients_.at(ref));
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

  void share_gradient(Ref sum, const Gradient& gradient) {
    Flight flight;
    flight.sum = sum;
    if (gradient.rows == 1) flight.places.push_back(program_.slots[ref_index(gradient.own)].tensor.offset);
    start(flight, {gradient.own});
  }

  void share_statistics(const Row& row) {
    using A = BatchNormRunning;
    Flight flight;
    flight.row = row;
    make_room(copies_of(ranks_) * 2 * tensor_of(argument(row, A::kMean)).bytes);
    start(flight, {argument(row, A::kMean), argument(row, A::kRstd)});
  }

  void start(Flight flight, const std::vector<Ref>& sources) {
    flight.sources = sources;
    for (size_t s = 0; s < sources.size() && ranks_ > 1; ++s) {
      const Tensor tensor = program_.slots[ref_index(sources[s])].tensor;
      const std::string name = flight.sum == kNoRef ? program_.slot_names[ref_index(sources[s])] : name_of(flight.sum);
      flight.parts.emplace_back();
      for (uint32_t rank = 0; rank < ranks_; ++rank) {
        const uint64_t at = take(tensor.bytes);
        flight.places.push_back(at);
        flight.parts.back().push_back(new_slot(tensor, name + " of rank " + std::to_string(rank), at));
      }
    }
    for (uint32_t rank = 0; rank < ranks_ && ranks_ > 1; ++rank) {
      for (size_t s = 0; s < sources.size(); ++s) add_row(Op::kShare, Pass::kStart, rank, 1, false, {flight.parts[s][rank], sources[s]});
    }
    flights_.push_back(std::move(flight));
    if (ranks_ == 1) land();
  }

  // The oldest: its parts have come, and are used in the order of the ranks.
  void land() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (uint32_t rank = 0; rank < ranks_; ++rank) {
      std::vector<Ref> here = flight.sources;
      for (size_t s = 0; s < flight.parts.size(); ++s) {
        here[s] = flight.parts[s][rank];
        add_row(Op::kShare, Pass::kWait, rank, 1, false, {here[s], flight.sources[s]});
      }
      use(flight, here, rank);
    }
    for (const uint64_t place : flight.places) room_.give_back(place);
  }

  void use(const Flight& flight, const std::vector<Ref>& here, uint32_t rank) {
    if (flight.sum != kNoRef) return add_row(Op::kCopy, Pass::kForward, 0, 0, add_ || rank > 0, {flight.sum, here[0]});
    using A = BatchNormRunning;
    Row row = flight.row;
    row.first_argument = static_cast<uint32_t>(program_.arguments.size());
    for (uint32_t a = 0; a < A::kArity; ++a) program_.arguments.push_back(program_.arguments[flight.row.first_argument + a]);
    argument(row, A::kMean) = here[0], argument(row, A::kRstd) = here[1];
    add_row(row);
  }

  OwnedProgram& program_;
  const Graph& graph_;
  const TrainingState& state_;
  const uint32_t ranks_;
  const bool add_;
  uint64_t kept_;  // where the next gradient that several rows make lies
  Room room_;
  std::map<Ref, Gradient> gradients_;
  std::deque<Flight> flights_;
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

// Of each carried gradient.
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

uint64_t most_statistics(const Graph& graph, const ChainBodies& chain) {
  uint64_t most = 0;
  for (const LinkBody& link : chain.links) {
    for (const auto* calls : {&link.forward, &link.backward}) {
      for (const Call& call : *calls) {
        if (call.op == Op::kBatchNorm && call.pass == Pass::kRunning) most = std::max(most, graph.tensor(call.arguments[BatchNormRunning::kMean]).bytes);
      }
    }
  }
  return most;
}

}  // namespace

Sharing plan_sharing(Graph& graph, const ChainBodies& chain, const TrainingState& state, uint32_t ranks) {
  Sharing sharing = {.ranks = ranks};
  for (uint32_t rank = 0; rank < ranks; ++rank) graph.attributes.intern(ShareAttribute{rank});
  const uint64_t copies = copies_of(ranks);
  sharing.flight_bytes = copies * 2 * most_statistics(graph, chain);
  const std::map<ValueId, Making> makings = makings_of(chain, state);
  for (const auto& [gradient, making] : makings) {
    if (making.rows > 1) sharing.kept_bytes += graph.tensor(gradient).bytes;
  }
  for_each_backward_call(chain, [&](const Call& call) {
    uint64_t own = 0, made = 0, largest = 0;  // of the gradients that the call makes
    for (const ValueId v : call.arguments) {
      const auto making = makings.find(v);
      if (making == makings.end() || !making->second.is_apart(ranks)) continue;
      if (making->second.rows == 1) own += graph.tensor(v).bytes;
      made += graph.tensor(v).bytes;
      largest = std::max(largest, graph.tensor(v).bytes);
    }
    sharing.flight_bytes = std::max(sharing.flight_bytes, own + copies * largest);
    sharing.all_bytes += own + copies * made;
  });
  if (ranks > 1) sharing.flights = kFlights;
  return sharing;
}

uint64_t sent_bytes(const Plan& plan) {
  uint64_t bytes = 0;
  for (const ProgramId id : {ProgramId::kMicroFirst, ProgramId::kMicroAdd}) {
    const Program& program = plan.program(id);
    for (const Row& row : program.rows) {
      if (row.op != Op::kShare || row.pass != Pass::kStart || plan.attributes.of<ShareAttribute>()[row.attribute].root != 0) continue;
      const uint64_t times = id == ProgramId::kMicroFirst ? 1 : plan.accumulate - 1;
      bytes += times * tensor_of(plan, program, program.arguments[row.first_argument + ShareStart::kY]).used_bytes();
    }
  }
  return bytes;
}

void share_gradients(OwnedProgram& program, const Graph& graph, const TrainingState& state, const Sharing& sharing, uint64_t offset, bool add) {
  if (sharing.ranks > 0) Sharer(program, graph, state, sharing, offset, add).run();
}

}  // namespace reprise
