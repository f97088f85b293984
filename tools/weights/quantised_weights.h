// A model's matrices in a format that its files do not have, quantised while they are read.
// Here so that a model that is larger than the memory becomes small on its way in: a piece of a tensor at a time.
#pragma once

#include <set>
#include <string>

#include "tools/weights/weight_source.h"

namespace reprise {

// What a matrix with rows of so many numbers becomes where `format` is asked for: that, where the rows are whole blocks of it; NF4 in place of
// kNF4Double, whose blocks are larger; else none.
std::optional<DType> quantised_format(DType format, uint64_t columns);

// The source's tensors. Each matrix that has a quantised_format(), and every tensor where `format` is f32, has it beside its exact numbers:
// read_stored() makes its blocks by quantise_blocks(), which must write the format. Numbers that are not finite make blocks without a
// meaning, so whoever loads them looks at the exact numbers first.
std::unique_ptr<WeightSource> quantise_weights(std::unique_ptr<WeightSource> source, DType format);

// The same tensors with the numbers that the blocks of these hold in place of their own: what a training beside them computes with.
// `names`: tensors that have a format.
std::unique_ptr<WeightSource> numbers_of_blocks(std::unique_ptr<WeightSource> source, const std::set<std::string>& names);

}  // namespace reprise
