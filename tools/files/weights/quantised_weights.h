// Gives a model's matrices a quantised format that its files do not have. The matrices are
// quantised while they are read, a part of a tensor at a time. The model may thus be larger than
// the memory before it is quantised.
#pragma once

#include <set>
#include <string>

#include "tools/files/weights/weight_source.h"

namespace reprise {

// Returns the format in which a matrix with `columns` numbers in a row is stored if `format` is
// requested. This is `format` if a row is whole blocks of it. If kNF4Double does not fit, kNF4 is
// tried, whose blocks are smaller. Returns nothing if no format fits.
std::optional<DType> quantised_format(DType format, uint64_t columns);

// Returns the source's tensors, some with a format in addition to their exact numbers. A matrix of
// floats gets its quantised_format(), if it has one. If `format` is f32, all tensors of floats get
// it. read_stored() makes the blocks with quantise_blocks(), which must support the format. Numbers
// that are not finite give meaningless blocks: check the exact numbers before you load blocks.
std::unique_ptr<WeightSource> quantise_weights(std::unique_ptr<WeightSource> source, DType format);

// Returns the source's tensors. For each tensor in `names`, which must have a format, the exact
// numbers are replaced by the numbers that its blocks represent. A training that loads the blocks
// computes with these numbers. Any other tensor loses its format if its blocks represent other
// numbers than its exact numbers.
std::unique_ptr<WeightSource> numbers_of_blocks(std::unique_ptr<WeightSource> source,
                                                const std::set<std::string>& names);

}  // namespace reprise
