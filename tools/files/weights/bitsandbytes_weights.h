// Reads the 4-bit weights that bitsandbytes writes into safetensors (NF4, Dettmers et al. 2023) as
// the matrices that they represent. Only this module handles the tensors that store a matrix. They
// are NAME, with two numbers in each byte, and
//   NAME.absmax                            maximum magnitude of each block: F32, or U8 codes
//   NAME.quant_map                         the 16 quantiles
//   NAME.nested_absmax, .nested_quant_map  for U8 codes: a scale per 256 codes, the value per code
//   NAME.quant_state.bitsandbytes__nf4     JSON as bytes: shape, block sizes, offset of the codes
// U8 codes mean double quantisation.
#pragma once

#include <memory>

#include "tools/files/weights/weight_source.h"

namespace reprise {

bool has_bitsandbytes_weights(const WeightSource& source);

// Returns a source in which each quantised matrix has its own name and the F32 numbers that
// bitsandbytes dequantises. A matrix also has the format NF4 if it is in blocks of 64 and a row is
// whole blocks. The format is NF4_DOUBLE instead if the magnitudes are quantised too, with
// bitsandbytes' usual code values, and each row and each group of magnitudes is whole blocks of
// NF4_DOUBLE. Both formats represent exactly the F32 numbers. Throws UserError with file and tensor
// if the quantisation is not NF4, or if the parts of a matrix do not fit together.
std::unique_ptr<WeightSource> open_bitsandbytes_weights(std::unique_ptr<WeightSource> source);

}  // namespace reprise
