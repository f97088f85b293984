// Places in a program's code, stored as four bytes each, and their source lines. A judge of
// accesses stores a place for every byte of memory. It looks up lines only when a test prints a
// fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::fibre {

// Returns the distance of the code address `code` from the start of the program.
uint32_t place_of(const void* code);
// Returns " at code 0x1234", or "" for place 0, which means "no place".
std::string code_text(uint32_t place);

// Returns the texts with each " at code 0x1234" replaced by source lines, for example " at
// cuda/gemm/pack.h:35 of cuda/pointwise/elementwise.cu:61". The first line is that of the code. The
// second is the line of the kernel into which that code was inlined; it is omitted if both are
// equal. Requires line tables (-g1) in the program, and addr2line of binutils. Pass many texts in
// one call, because addr2line starts slowly.
std::vector<std::string> with_lines(std::vector<std::string> texts);
inline std::string with_lines(const std::string& text) { return with_lines(std::vector<std::string>{text})[0]; }

}  // namespace reprise::fibre
