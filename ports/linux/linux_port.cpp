// The Linux port's table, its clock, and the message of a failed assertion.
#include "ports/linux/linux_port.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lib/assert.h"
#include "ports/linux/linux_functions.h"

namespace reprise {
namespace {

double linux_seconds() {
  timespec now = {};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr Port kLinuxPort = {
    .name = "linux",
    .open_backend = linux_open_backend,
    .close_backend = linux_close_backend,
    .acquire_arena = linux_acquire_arena,
    .release_arena = linux_release_arena,
    .reserve_arena = linux_reserve_arena,
    .resize_arena = linux_resize_arena,
    .start_workers = linux_start_workers,
    .stop_workers = linux_stop_workers,
    .max_workers = kMaxWorkers,
    .tune_backend = linux_tune_backend,
    .open_disk = linux_open_disk,
    .close_disk = linux_close_disk,
    .open_weights = linux_open_weights,
    .acquire_host = linux_acquire_host,
    .release_host = linux_release_host,
    .open_peers = nullptr,
    .close_peers = nullptr,
    .seconds = linux_seconds,
    .describe_device = nullptr,
};

}  // namespace

// Replaces lib's definition, which is weak.
void assertion_failed(const char* must_hold, const char* file, uint32_t line) {
  fprintf(stderr, "%s:%u: assertion failed: %s\n", file, line, must_hold);
  abort();
}

const Port& linux_port() { return kLinuxPort; }

}  // namespace reprise
