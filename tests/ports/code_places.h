// Places in a program's code, as four bytes each, and the source lines that they are.
// Here so that a judge of accesses keeps a place beside every byte, and asks for lines only where a test shows what it has found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::fibre {

// Of an address in this program: its distance from the program's begin.
uint32_t place_of(const void* code);
// " at code 0x1234", or "" for place 0, which is nobody's.
std::string code_text(uint32_t place);

// Texts with lines in the place of what code_text() has said: " at cuda/pack.h:35 of cuda/elementwise.cu:61", the line itself and, where that
// is another, the kernel's line into which it was inlined. The program must have line tables (-g1), and binutils' addr2line reads them.
std::vector<std::string> with_lines(std::vector<std::string> texts);  // at once, because addr2line takes its time to begin
inline std::string with_lines(const std::string& text) { return with_lines(std::vector<std::string>{text})[0]; }

}  // namespace reprise::fibre
