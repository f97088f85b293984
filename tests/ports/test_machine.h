// The CPU backend of this machine for tests: with the machine's fastest kernels, or with another
// tile and vector level. Each tile and level has a backend of its own, so no test changes the
// backend of another test.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "lib/cpu/cpu_backend.h"
#include "ports/linux/linux_port.h"

namespace reprise::test {

// Returns the machine that the port chooses, or null if the port cannot choose one. The port also
// detects the caches and sets the architecture of BLIS. It may choose a higher level than
// best_vector_level().
inline const CpuMachine* port_machine() {
  Backend backend;
  return linux_port().open_backend("cpu", &backend).ok() ? static_cast<const CpuMachine*>(backend.machine) : nullptr;
}
inline VectorLevel port_level() {
  const CpuMachine* machine = port_machine();
  return machine != nullptr ? machine->level : best_vector_level();
}

// Returns a backend that lives until the process ends, or null if this machine or build lacks the
// tile or the level. Not thread-safe.
inline const Backend* backend_with(GemmTileChoice tile, VectorLevel level = port_level()) {
  struct Made {
    CpuMachine machine;
    Backend backend;
  };
  static std::map<std::pair<GemmTileChoice, VectorLevel>, std::unique_ptr<Made>> all;
  auto [place, is_new] = all.try_emplace({tile, level});
  if (is_new) {
    auto made = std::make_unique<Made>();
    const CpuMachine* port = port_machine();
    if (port != nullptr && choose_cpu_machine(made->machine, tile, level, port->caches).ok()) {
      made->backend = cpu_backend(made->machine);
      place->second = std::move(made);
    }
  }
  return place->second == nullptr ? nullptr : &place->second->backend;
}

// Returns the backend with the kernels of a small core, which lives until the process ends.
inline const Backend& small_backend() {
  static CpuMachine machine;
  static const Backend backend = [] {
    const Status chosen =
        choose_cpu_machine(machine, GemmTileChoice::kBaseline, VectorLevel::kBaseline, {}, CpuSize::kSmall);
    return chosen.ok() ? cpu_backend(machine) : Backend{};
  }();
  return backend;
}

inline const Backend& test_backend() { return *backend_with(GemmTileChoice::kFastest); }

}  // namespace reprise::test
