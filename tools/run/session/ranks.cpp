// See ranks.h.
#include "tools/run/session/ranks.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "lib/op.h"
#include "tools/files/io/error.h"
#include "tools/plan/writing/plan_file.h"
#include "tools/run/session/status_text.h"

namespace reprise {
namespace {

class Sum {
 public:
  void add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(static_cast<unsigned char>(number >> shift));
  }
  void add(const std::string& text) {
    for (const char c : text) add_byte(static_cast<unsigned char>(c));
    add_byte(0);
  }
  uint64_t value() const { return value_; }

 private:
  void add_byte(unsigned char byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }  // one step of FNV-1a
  uint64_t value_ = 0xcbf29ce484222325u;
};

uint64_t sum_of_library() {
  Sum sum;
  sum.add(contract_of_kernels());
  return sum.value();
}

uint64_t sum_of_state(const Plan& plan) {
  Sum sum;
  for (const StateTensor& state : plan.state) {
    sum.add(state.name);
    sum.add(static_cast<uint64_t>(state.kind));
    sum.add(static_cast<uint64_t>(state.tensor.dtype));
    for (uint32_t d = 0; d < state.tensor.rank; ++d) sum.add(state.tensor.shape[d]);
  }
  return sum.value();
}

// Returns a checksum of the recipe without the fields that may differ between ranks: memory,
// schedule, names and paths.
uint64_t sum_of_recipe(const Recipe& recipe) {
  nlohmann::json value = nlohmann::json::parse(canonical_recipe(recipe));
  for (const char* own : {"schedule", "budget", "budgets", "feature_map_budget", "data", "name", "init"})
    value.erase(own);
  for (const char* place : {"huggingface", "gguf"}) value["model"].erase(place);
  Sum sum;
  sum.add(value.dump());
  return sum.value();
}

uint64_t sum_of_data(const DataFingerprint& data) {
  Sum sum;
  for (const uint64_t number : {data.samples, data.files, data.bytes}) sum.add(number);
  sum.add(data.checksum);
  return sum.value();
}

uint64_t sum_of_shared(const Plan& plan) {
  Sum sum;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows) {
      const bool shares = row.op == Op::kShare || row.op == Op::kShareInPlace,
                 loads = row.op == Op::kLoad && plan.shard_bytes > 0;
      if (row.pass != Pass::kStart || !(shares || loads)) continue;
      sum.add(shares ? plan.attributes.of<ShareAttribute>()[row.attribute].root : plan.ranks);
      sum.add(tensor_of(plan, program, program.arguments[row.first_argument]).used_bytes());
    }
  }
  return sum.value();
}

}  // namespace

RankFacts facts_of(const Plan& plan, const Recipe& recipe, const DataFingerprint& data, const char* kernel_set) {
  Sum kernels;
  kernels.add(std::string(kernel_set));
  return {sum_of_library(),  sum_of_state(plan),  sum_of_recipe(recipe),
          sum_of_data(data), sum_of_shared(plan), kernels.value()};
}

Ranks::Ranks(const Port& port, const Recipe& recipe) : port_(port), name_(recipe.name) {
  if (recipe.ranks() == 1) return;
  if (port.open_peers == nullptr)
    throw UserError(name_ + ": parallel: this program knows no other processes; build it by `make run RANKS=" +
                    std::to_string(recipe.ranks()) + "`");
  const Status status = port.open_peers(static_cast<uint32_t>(recipe.ranks()), recipe.parallel->timeout, &peers_);
  if (!status.ok()) throw UserError(name_ + ": parallel: " + message_of(status));
  const auto broadcast = [](void* ranks, uint32_t root, void* data, uint64_t bytes) {
    const Peers& peers = static_cast<Ranks*>(ranks)->peers_;
    return peers.start_broadcast(peers.state, root, data, bytes);
  };
  const auto gather = [](void* ranks, const void* own, void* all, uint64_t bytes) {
    const Peers& peers = static_cast<Ranks*>(ranks)->peers_;
    return peers.start_gather(peers.state, own, all, bytes);
  };
  const auto advance = [](void* ranks) {
    const Peers& peers = static_cast<Ranks*>(ranks)->peers_;
    peers.advance(peers.state);
  };
  timed_ = {this, peers_.rank, peers_.count, broadcast, gather, timed_wait, nullptr};
  if (peers_.advance != nullptr) timed_.advance = advance;
}

Status Ranks::timed_wait(void* ranks, const void* data) {
  Ranks& own = *static_cast<Ranks*>(ranks);
  const double start = own.port_.seconds();
  const Status status = own.peers_.wait(own.peers_.state, data);
  own.waited_seconds_ += own.port_.seconds() - start;
  return status;
}

Ranks::~Ranks() {
  if (are_several() && std::uncaught_exceptions() == 0) port_.close_peers(&peers_);
}

template <typename T>
std::vector<T> Ranks::gather(const T& own) const {
  std::vector<T> all(peers_.count);
  Status status = peers_.start_gather(peers_.state, &own, all.data(), sizeof own);
  if (status.ok()) status = peers_.wait(peers_.state, all.data());
  if (!status.ok()) throw UserError(name_ + ": parallel: " + message_of(status));
  return all;
}

std::vector<std::string> Ranks::compare(const RankFacts& facts) const {
  if (!are_several()) return {};
  const std::vector<RankFacts> all = gather(facts);
  struct Field {
    uint64_t RankFacts::*value;
    const char* words;
  };
  constexpr Field kFields[] = {{&RankFacts::library,
                                "library: it is another version of Reprise; build all ranks from one"},
                               {&RankFacts::state, "state: its weights have other names, shapes or types"},
                               {&RankFacts::recipe, "recipe: it trains something else"},
                               {&RankFacts::data, "data: its training set has other samples or files"},
                               {&RankFacts::shared,
                                "plan: its gradients or weights come in another order; give all ranks one schedule "
                                "and, with shard_weights, one budget"}};
  std::vector<std::string> warnings;
  for (uint32_t rank = 1; rank < all.size(); ++rank) {
    const std::string who = name_ + ": parallel: rank " + std::to_string(rank) + " differs from rank 0: ";
    for (const Field& field : kFields) {
      if (all[rank].*field.value != all[0].*field.value) throw UserError(who + field.words);
    }
    if (all[rank].kernels != all[0].kernels)
      warnings.push_back(who +
                         "kernels: another processor computes there, and bits depend on which rank computes what");
  }
  return warnings;
}

bool Ranks::any(bool own) const {
  if (!are_several()) return own;
  for (const uint64_t each : gather(uint64_t{own})) {
    if (each != 0) return true;
  }
  return false;
}

std::vector<RankMemory> Ranks::memory(const RankMemory& own) const {
  return are_several() ? gather(own) : std::vector{own};
}

Peers lone_peers(const Plan& plan) {
  if (plan.ranks == 1) return {};
  const auto refuse = [](void*, uint32_t, void*, uint64_t) {
    return Status{Code::kPeer, "a process alone shares nothing with others", Peers::kNoRank};
  };
  return {.count = plan.ranks, .start_broadcast = refuse};
}

}  // namespace reprise
