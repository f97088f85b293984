// A disk in memory, for tests of spilling and of streamed weights. Training must be correct however
// late a transfer completes, and must end cleanly if a call fails.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/port.h"

namespace reprise {

// A disk in memory. If `late`, each transfer completes as late as the contract allows, otherwise
// immediately. A test can make one call fail.
class FakeDisk {
 public:
  FakeDisk(uint64_t bytes, bool late) : FakeDisk(std::vector<unsigned char>(bytes), late) {}
  FakeDisk(std::vector<unsigned char> content, bool late) : memory_(std::move(content)), late_(late) {}

  Disk table() {
    return {this, memory_.size(),
            [](void* self, uint64_t offset, const void* from, uint64_t bytes) {
              return static_cast<FakeDisk*>(self)->start(
                  {offset, bytes, static_cast<unsigned char*>(const_cast<void*>(from)), true});
            },
            [](void* self, uint64_t offset, void* to, uint64_t bytes) {
              return static_cast<FakeDisk*>(self)->start({offset, bytes, static_cast<unsigned char*>(to), false});
            },
            [](void* self, uint64_t offset) { return static_cast<FakeDisk*>(self)->wait(offset); }};
  }

  size_t under_way() const { return requests_.size(); }
  int calls = 0;
  int fails_at = -1;  // number of the call that fails, from 0; -1: none

 private:
  struct Request {
    uint64_t offset, bytes;
    unsigned char* memory;
    bool writes;
  };
  bool fails() { return calls++ == fails_at; }
  static Status failure() { return {Code::kInputOutput, "the fake disk fails", ENOSPC}; }

  void perform(const Request& r) {
    std::memcpy(r.writes ? memory_.data() + r.offset : r.memory, r.writes ? r.memory : memory_.data() + r.offset,
                r.bytes);
  }

  Status start(const Request& request) {
    if (request.offset + request.bytes > memory_.size()) ADD_FAILURE() << "past the disk's end";
    if (fails()) return failure();
    requests_.push_back(request);
    if (!late_) perform(request);
    if (late_ && !request.writes) std::memset(request.memory, 0xff, request.bytes);  // NaN until wait() delivers
    return ok_status();
  }

  Status wait(uint64_t offset) {
    const bool failed = fails();
    // Completes the requests in order, up to and including the last one at the offset for which the
    // caller waits.
    size_t done = offset == Disk::kEverything ? requests_.size() : 0;
    for (size_t r = 0; r < requests_.size(); ++r) done = requests_[r].offset == offset ? r + 1 : done;
    for (size_t r = 0; late_ && r < done; ++r) perform(requests_[r]);
    requests_.erase(requests_.begin(), requests_.begin() + static_cast<std::ptrdiff_t>(done));
    return failed ? failure() : ok_status();
  }

  std::vector<unsigned char> memory_;
  std::vector<Request> requests_;
  const bool late_;
};

}  // namespace reprise
