// See thread_peers.h. Each rank numbers its exchanges; exchanges with the same number belong
// together.
#include "tests/runtime/thread_peers.h"

#include <algorithm>
#include <cstring>

namespace reprise {

ThreadPeers::ThreadPeers(uint32_t count) : ranks_(count) {
  for (uint32_t r = 0; r < count; ++r) ranks_[r].all = this, ranks_[r].rank = r;
}

Peers ThreadPeers::of(uint32_t rank) {
  const auto broadcast = [](void* state, uint32_t root, void* data, uint64_t bytes) {
    Rank& own = *static_cast<Rank*>(state);
    return own.all->start(own, root, data, data, bytes, false);
  };
  const auto gather = [](void* state, const void* from, void* all, uint64_t bytes) {
    Rank& own = *static_cast<Rank*>(state);
    return own.all->start(own, own.rank, from, all, bytes, true);
  };
  const auto wait = [](void* state, const void* data) {
    Rank& own = *static_cast<Rank*>(state);
    return own.all->wait(own, data);
  };
  return {&ranks_[rank], rank, static_cast<uint32_t>(ranks_.size()), broadcast, gather, wait};
}

void ThreadPeers::lose(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  lost_ = rank;
  changed_.notify_all();
}

Status ThreadPeers::lost() const {
  return lost_ == Peers::kNoRank ? ok_status() : Status{Code::kPeer, "a rank has ended", lost_};
}

Status ThreadPeers::start(Rank& rank, uint32_t root, const void* own, void* data, uint64_t bytes, bool gathers) {
  const std::lock_guard lock(mutex_);
  REPRISE_RETURN_IF_ERROR(lost());
  const uint32_t count = static_cast<uint32_t>(ranks_.size());
  const auto [found, is_new] = exchanges_.try_emplace(rank.started);
  Exchange& exchange = found->second;
  if (is_new)
    exchange = {std::vector<std::vector<unsigned char>>(count), std::vector<bool>(count), root, bytes, gathers, 0};
  const bool alike = exchange.bytes == bytes && exchange.gathers == gathers && (gathers || exchange.root == root);
  if (!alike) return {Code::kPeer, "ranks start different things", rank.rank};
  if (gathers || root == rank.rank) {
    const unsigned char* from = static_cast<const unsigned char*>(own);
    exchange.parts[rank.rank].assign(from, from + bytes);
    exchange.is_there[rank.rank] = true;
    sent_bytes_ += bytes * (count - 1);
  }
  std::memset(data, 0xff, gathers ? bytes * count : bytes);
  rank.open.push_back({rank.started++, static_cast<unsigned char*>(data)});
  ++exchange.starts;
  changed_.notify_all();
  return ok_status();
}

bool ThreadPeers::has_come(const Exchange& exchange) const {
  if (!exchange.gathers) return exchange.is_there[exchange.root];
  return std::all_of(exchange.is_there.begin(), exchange.is_there.end(), [](bool there) { return there; });
}

Status ThreadPeers::wait(Rank& rank, const void* data) {
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < rank.open.size();) {
    const Open open = rank.open[i];
    if (data != nullptr && open.data != data) {
      ++i;
      continue;
    }
    Exchange& exchange = exchanges_.at(open.number);
    changed_.wait(lock, [&] { return lost_ != Peers::kNoRank || has_come(exchange); });
    REPRISE_RETURN_IF_ERROR(lost());
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (exchange.gathers) std::memcpy(open.data + r * exchange.bytes, exchange.parts[r].data(), exchange.bytes);
    }
    if (!exchange.gathers) std::memcpy(open.data, exchange.parts[exchange.root].data(), exchange.bytes);
    rank.open.erase(rank.open.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return ok_status();
}

}  // namespace reprise
