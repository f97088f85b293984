// How often this process has asked for heap, by whatever way and on whatever thread.
// Here so that a training program can say of its own steps that they take none.
#pragma once

#include <cstdint>
#include <optional>

namespace reprise {

// Since the process began; none where nobody can count: the sanitizers own malloc, and other C libraries have other names for it.
std::optional<uint64_t> heap_calls();

}  // namespace reprise
