// See plan_signals.h.
#include "tools/run/session/plan_signals.h"

#include <signal.h>

#include <atomic>

namespace reprise {
namespace {

struct PlanWish {
  uint8_t rank, last, is_new, unused;
};
std::atomic<PlanWish> wish{PlanWish{}};
static_assert(std::atomic<PlanWish>::is_always_lock_free, "a signal's handler may not wait");

void note_plan_signal(int signal) {
  PlanWish before = wish, after;
  do {
    after = before;
    after.is_new = 1;
    if (signal == SIGUSR1 && after.rank > 0) --after.rank;
    if (signal == SIGUSR2 && after.rank < after.last) ++after.rank;
  } while (!wish.compare_exchange_weak(before, after));
}

}  // namespace

// Uses SA_RESTART to continue an interrupted system call, because the program may be writing a
// snapshot.
void set_up_plan_signals(uint32_t plans) {
  const auto last = static_cast<uint8_t>(plans - 1);
  wish = {last, last, 0, 0};
  for (const int number : {SIGUSR1, SIGUSR2}) {
    struct sigaction action = {};
    action.sa_handler = note_plan_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

void count_plan_signals_from(uint32_t rank) {
  PlanWish before = wish, after;
  do {
    after = before;
    if (after.is_new == 0) after.rank = static_cast<uint8_t>(rank);
  } while (!wish.compare_exchange_weak(before, after));
}

std::optional<uint32_t> take_plan_signals() {
  PlanWish before = wish, after;
  do {
    after = before;
    after.is_new = 0;
  } while (!wish.compare_exchange_weak(before, after));
  return before.is_new != 0 ? std::optional<uint32_t>(before.rank) : std::nullopt;
}

}  // namespace reprise
