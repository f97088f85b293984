// The 4-bit weights that bitsandbytes leaves in safetensors (NF4, Dettmers et al. 2023), as the matrices that they stand for.
// Here so that nothing but this file knows the tensors in which such a matrix lies: NAME with two numbers in a byte, and beside it
//   NAME.absmax                            the largest magnitude of each block, F32; of double quantisation U8 codes,
//   NAME.quant_map                         the 16 quantiles
//   NAME.nested_absmax, .nested_quant_map  of double quantisation: a scale for 256 codes, and what a code stands for
//   NAME.quant_state.bitsandbytes__nf4     JSON as bytes: shape, block sizes, the offset of double quantisation
#pragma once

#include <memory>

#include "tools/weights/weight_source.h"

namespace reprise {

bool has_bitsandbytes_weights(const WeightSource& source);

// The same source with each such matrix under its own name, F32 as bitsandbytes dequantises it. One in blocks of 64 may be
// kept as NF4, or as NF4_DOUBLE where its scales are quantised and its rows are whole blocks of that; both are exact. Throws UserError with
// file and tensor for what is not NF4, or does not fit together.
std::unique_ptr<WeightSource> open_bitsandbytes_weights(std::unique_ptr<WeightSource> source);

}  // namespace reprise
