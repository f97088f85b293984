// Ends a program that has run out of memory. An exception would not work, because unwinding needs
// memory, too: the destructor of nlohmann's list allocates, and an exception there ends the program
// with SIGABRT.
#pragma once

namespace reprise {

// Prepares a message for the case that memory is short. Ends the program at once with status 1 and
// one line if its stack may not grow to 256 KiB. Installs a handler for operator new: if no memory
// is found, it prints "PROGRAM: WORK: the memory does not suffice", where WORK names the file
// (long_work.h). It then removes unfinished files and ends the program with status 1. `program`
// must live as long as the program.
void end_where_memory_is_short(const char* program);

}  // namespace reprise
