// See memory_end.h.
#include "tools/formats/memory_end.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "tools/formats/leftovers.h"

namespace reprise {
namespace {

std::atomic<const char*> short_program = "";

// Runs where no memory is left, in any thread.
void end_short_of_memory() {
  for (const char* const words : {short_program.load(), ": the memory does not suffice; give the program more, or a smaller input\n"}) {
    if (::write(STDERR_FILENO, words, std::strlen(words)) < 0) break;  // nobody reads
  }
  remove_leftovers();
  ::_exit(1);
}

}  // namespace

void end_where_memory_is_short(const char* program) {
  short_program = program;
  std::set_new_handler(end_short_of_memory);
}

}  // namespace reprise
