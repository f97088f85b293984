// The end of a program whose memory does not suffice.
// Here because unwinding needs memory too: nlohmann's destructor of a list allocates, and an exception there ends the program by SIGABRT.
#pragma once

namespace reprise {

// Ends the program with status 1 and one line if its stack may not grow to 256 KiB. From here on an operator new that finds no memory prints "PROGRAM: the memory does not suffice", removes what is half-written and ends the
// program with status 1. `program` must live as long as the program.
void end_where_memory_is_short(const char* program);

}  // namespace reprise
