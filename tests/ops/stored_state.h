// The numbers of State that updates keep in codes of 8 bits, as the tests read and write them.
// Here because the judge of a kernel must not take a block apart by the kernel's own map: this one is made as Dettmers et al. 2022 tell it.
#pragma once

#include <string>
#include <vector>

#include "lib/tensor.h"
#include "tests/ref/array.h"

namespace reprise::test {

inline bool is_stored_state(DType type) { return type == DType::kDynamic8 || type == DType::kDynamic8Square; }

// The map's 256 numbers, rising.
const std::vector<double>& dynamic_map(bool has_sign);

void write_stored_state(DType type, const ref::Array& values, unsigned char* out);
// values become what their nearest codes stand for.
void round_stored_state(DType type, ref::Array& values);
// All numbers of all blocks, those behind the tensor's last element too.
std::vector<double> read_stored_state(DType type, const std::vector<unsigned char>& bytes);

// "" where each code is the expected number's or a neighbour of it, and keeps its sign.
std::string code_difference(const std::string& name, DType type, const ref::Expected& expected, const std::vector<unsigned char>& bytes);

}  // namespace reprise::test
