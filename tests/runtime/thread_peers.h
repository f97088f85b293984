// The ranks of a plan as threads of one process, so that tests need no network. Each rank gets its
// own table of Peers. The target of an exchange contains NaN until the rank has waited for the
// exchange.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "lib/port.h"

namespace reprise {

class ThreadPeers {
 public:
  explicit ThreadPeers(uint32_t count);
  ThreadPeers(const ThreadPeers&) = delete;
  ThreadPeers& operator=(const ThreadPeers&) = delete;

  Peers of(uint32_t rank);
  // Makes all later calls of all ranks fail, with `rank` as the missing rank.
  void lose(uint32_t rank);
  // Returns the bytes that all ranks together have sent to other ranks.
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  // One exchange. Each rank numbers its exchanges, and exchanges with equal numbers belong
  // together.
  struct Exchange {
    std::vector<std::vector<unsigned char>> parts;  // the parts of all ranks for a gather; otherwise only the root's
    std::vector<bool> is_there;
    uint32_t root = 0;
    uint64_t bytes = 0;
    bool gathers = false;
    uint32_t starts = 0;
  };
  struct Open {
    uint64_t number;
    unsigned char* data;
  };
  struct Rank {
    ThreadPeers* all = nullptr;
    uint32_t rank = 0;
    uint64_t started = 0;
    std::vector<Open> open;
  };

  Status start(Rank& rank, uint32_t root, const void* own, void* data, uint64_t bytes, bool gathers);
  Status wait(Rank& rank, const void* data);
  bool has_come(const Exchange& exchange) const;
  Status lost() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<uint64_t, Exchange> exchanges_;  // exchanges in progress, by number
  uint64_t lost_ = Peers::kNoRank;
  uint64_t sent_bytes_ = 0;
};

}  // namespace reprise
