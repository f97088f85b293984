// Numbers as people read them.
// Here so that every message and report writes a size in the same way.
// It must not know what is counted.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

// "512 B", "1.50 MiB": three or four significant digits, powers of 1024.
std::string bytes_text(uint64_t bytes);

}  // namespace reprise
