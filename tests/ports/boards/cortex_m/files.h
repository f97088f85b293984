// Access to files of the host on which the board's debugger or emulator runs. A test uses files to
// move the content of the flash between host and board.
#pragma once

#include <stdint.h>

namespace reprise {

// Reads at most `bytes` bytes of the file to `to`. Returns the number of bytes read; 0 if there is
// no such file.
uint32_t read_host_file(const char* name, void* to, uint32_t bytes);
void write_host_file(const char* name, const void* from, uint32_t bytes);

}  // namespace reprise
