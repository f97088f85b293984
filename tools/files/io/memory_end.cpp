// See memory_end.h.
#include "tools/files/io/memory_end.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <initializer_list>
#include <new>

#include "tools/files/io/leftovers.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

std::atomic<const char*> short_program = "";

// Prints the words on stderr without using the heap, removes unfinished files, and ends the
// program.
[[noreturn]] void end_with(std::initializer_list<const char*> words) {
  for (const char* const each : words) {
    if (::write(STDERR_FILENO, each, std::strlen(each)) < 0) break;  // nobody reads stderr
  }
  remove_leftovers();
  ::_exit(1);
}

// Ends the program with a message. operator new calls it if no memory is left. Every thread may
// call it.
void end_short_of_memory() {
  const char* const program = short_program.load();
  if (::write(STDERR_FILENO, program, std::strlen(program)) >= 0 && ::write(STDERR_FILENO, ": ", 2) >= 0)
    write_long_work(STDERR_FILENO);
  end_with({"the memory does not suffice; give the program more, or a smaller input\n"});
}

}  // namespace

void end_where_memory_is_short(const char* program) {
  short_program = program;
  constexpr rlim_t kSmallestStack = rlim_t{256} << 10;  // commands work with 256 KiB and end with SIGSEGV with 64 KiB
  struct rlimit stack;
  if (::getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kSmallestStack)
    end_with({program, ": the stack may not grow to 256 KiB; raise its limit (ulimit -s 1024)\n"});
  std::set_new_handler(end_short_of_memory);
}

}  // namespace reprise
