// Counts how often this process has requested heap memory, with every function and on all threads.
// A training program uses it to report that its steps allocate nothing.
#pragma once

#include <cstdint>
#include <optional>

namespace reprise {

// Returns the number of requests since the process began. Returns nothing if requests cannot be
// counted: sanitizers replace malloc, and other C libraries than glibc use other names.
std::optional<uint64_t> heap_calls();

}  // namespace reprise
