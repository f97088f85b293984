// See leftovers.h. The table has a fixed size, because a signal handler must not wait for a lock or
// use the heap.
#include "tools/files/io/leftovers.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace reprise {
namespace {

enum : int { kFree, kTaken, kRegistered };

struct Slot {
  std::atomic<int> state{kFree};
  char path[4096] = {};
};

constexpr int kSlots = 32;
Slot slots[kSlots];
std::atomic<int> running{0};

}  // namespace

Leftover::Leftover(const std::string& path) : slot_(-1) {
  if (path.size() >= sizeof Slot::path) return;
  for (int n = 0; n < kSlots && slot_ < 0; ++n) {
    int expected = kFree;
    if (slots[n].state.compare_exchange_strong(expected, kTaken)) slot_ = n;
  }
  if (slot_ < 0) return;
  std::memcpy(slots[slot_].path, path.c_str(), path.size() + 1);
  slots[slot_].state = kRegistered;
}

Leftover::~Leftover() {
  if (slot_ >= 0) slots[slot_].state = kFree;
}

RunningChild::RunningChild(int process) { running = process; }
RunningChild::~RunningChild() { running = 0; }

void remove_leftovers() {
  if (const int process = running; process > 0) {
    ::kill(-process, SIGTERM);
    while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  constexpr int kDeepest = 3;  // rounds: first files are removed, then their folders, then the folders' parents
  for (int round = 0; round < kDeepest; ++round) {
    for (const Slot& slot : slots) {
      if (slot.state == kRegistered && ::unlink(slot.path) != 0) ::rmdir(slot.path);
    }
  }
}

}  // namespace reprise
