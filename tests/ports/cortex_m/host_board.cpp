// The board of ports/cortex_m/train.cpp, and of the tests' programs, where these run on the host, for their bits.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "ports/cortex_m/board.h"
#include "tests/ports/cortex_m/files.h"

namespace reprise {

void board_say(const char* words) { std::fputs(words, stdout); }
void board_end(int status) { std::exit(status); }
uint64_t board_ticks() { return 0; }
uint64_t board_stack_bytes() { return 0; }
uint64_t board_stack_used() { return 0; }

uint32_t read_host_file(const char* name, void* to, uint32_t bytes) {
  std::FILE* const file = std::fopen(name, "rb");
  if (file == nullptr) return 0;
  const size_t read = std::fread(to, 1, bytes, file);
  std::fclose(file);
  return static_cast<uint32_t>(read);
}
void write_host_file(const char* name, const void* from, uint32_t bytes) {
  std::FILE* const file = std::fopen(name, "wb");
  if (file == nullptr || std::fwrite(from, 1, bytes, file) != bytes || std::fclose(file) != 0) std::exit(1);
}

}  // namespace reprise
