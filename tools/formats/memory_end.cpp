// See memory_end.h.
#include "tools/formats/memory_end.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <new>

#include "tools/formats/leftovers.h"

namespace reprise {
namespace {

std::atomic<const char*> short_program = "";

// Prints the words on stderr without the heap, and ends the program.
[[noreturn]] void end_with(std::initializer_list<const char*> words) {
  for (const char* const each : words) {
    if (::write(STDERR_FILENO, each, std::strlen(each)) < 0) break;  // nobody reads
  }
  remove_leftovers();
  ::_exit(1);
}

// Runs where no memory is left, in any thread.
void end_short_of_memory() {
  end_with({short_program.load(), ": the memory does not suffice; give the program more, or a smaller input\n"});
}

}  // namespace

void end_where_memory_is_short(const char* program) {
  short_program = program;
  constexpr rlim_t kSmallestStack = rlim_t{256} << 10;  // commands were tried with 256 KiB; 64 KiB end in SIGSEGV
  struct rlimit stack;
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kSmallestStack)
    end_with({program, ": the stack may not grow to 256 KiB; raise its limit (ulimit -s 1024)\n"});
  std::set_new_handler(end_short_of_memory);
}

}  // namespace reprise
