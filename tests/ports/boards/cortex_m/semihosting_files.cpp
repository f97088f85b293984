// Implements files.h by Arm Semihosting for AArch32 and AArch64, 2.0: SYS_OPEN, SYS_CLOSE,
// SYS_WRITE, SYS_READ.
#include <string.h>

#include "ports/cortex_m/board.h"
#include "tests/ports/boards/cortex_m/files.h"

namespace reprise {
namespace {

constexpr uint32_t kOpen = 0x01, kClose = 0x02, kWrite = 0x05, kRead = 0x06, kToRead = 1, kToWrite = 5;  // binary modes

uint32_t ask(uint32_t operation, const void* arguments) {
  register uint32_t r0 __asm("r0") = operation;
  register const void* r1 __asm("r1") = arguments;
  __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
// Transfers `bytes` bytes between a file and memory; `operation` is kRead or kWrite. Returns the
// number of bytes that were not transferred; `bytes` if the file cannot be opened.
uint32_t move(const char* name, uint32_t mode, uint32_t operation, const void* memory, uint32_t bytes) {
  const uint32_t open[] = {reinterpret_cast<uint32_t>(name), mode, static_cast<uint32_t>(strlen(name))};
  const uint32_t file = ask(kOpen, open);
  if (file == ~0u) return bytes;
  const uint32_t arguments[] = {file, reinterpret_cast<uint32_t>(memory), bytes};
  const uint32_t left = ask(operation, arguments);
  (void)ask(kClose, arguments);
  return left;
}

}  // namespace

uint32_t read_host_file(const char* name, void* to, uint32_t bytes) {
  return bytes - move(name, kToRead, kRead, to, bytes);
}

void write_host_file(const char* name, const void* from, uint32_t bytes) {
  if (move(name, kToWrite, kWrite, from, bytes) == 0) return;
  board_say("the host's file cannot be written\n");
  board_end(1);
}

}  // namespace reprise
