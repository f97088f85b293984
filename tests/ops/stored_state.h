// Reads and writes State that updates store as 8-bit codes. So that the reference does not depend
// on the kernels' map of codes to numbers, this file computes the map from Dettmers et al. 2022.
#pragma once

#include <string>
#include <vector>

#include "lib/tensor.h"
#include "tests/ref/array.h"

namespace reprise::test {

inline bool is_stored_state(DType type) { return type == DType::kDynamic8 || type == DType::kDynamic8Square; }

// Returns the 256 numbers of the map, in ascending order. `has_sign`: the map of numbers with sign
// (first moments); otherwise of numbers that are not negative.
const std::vector<double>& dynamic_map(bool has_sign);

void write_stored_state(DType type, const ref::Array& values, unsigned char* out);
// Replaces each value by the number of its nearest code. In a block whose value of largest
// magnitude is negative, this value first becomes positive, because the map has no code for -1.
void round_stored_state(DType type, ref::Array& values);
// Returns the numbers of all codes in `bytes`, including those after the tensor's last element.
std::vector<double> read_stored_state(DType type, const std::vector<unsigned char>& bytes);

// Returns "" if each code is at most one away from the code of the expected number and has its
// sign. An exact expectation requires equal codes.
std::string code_difference(const std::string& name, DType type, const ref::Expected& expected,
                            const std::vector<unsigned char>& bytes);

}  // namespace reprise::test
