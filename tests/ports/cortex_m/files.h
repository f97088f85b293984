// A file of the machine on which the board's debugger or emulator runs: flash comes from there and goes there.
// Here because a run moves between host and board as a file.
#pragma once

#include <stdint.h>

namespace reprise {

// At most `bytes` of the file into memory; how many, 0 where there is none.
uint32_t read_host_file(const char* name, void* to, uint32_t bytes);
void write_host_file(const char* name, const void* from, uint32_t bytes);

}  // namespace reprise
