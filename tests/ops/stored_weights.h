// Numbers as a file stores weights, by the encoders and decoders of the tools: what kernels make of such bytes is compared with these.
#pragma once

#include "lib/weight_format.h"
#include "tests/ref/array.h"

namespace reprise::test {

using ref::Array;

// Whether it is a format of weights, other than f32.
inline bool is_stored_weight(DType type) { return type != DType::kF32 && takes_weights(kEveryWeight, type); }

// values -> the format's bytes. They are whole blocks, row by row.
void write_stored_weights(DType type, const Array& values, unsigned char* out);

// Each value becomes one that the format has, near it: encoded again it gives the same bytes.
void round_stored_weights(DType type, Array& values);

}  // namespace reprise::test
