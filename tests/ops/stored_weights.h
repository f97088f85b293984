// Stores numbers in the formats of weight files, with the encoders and decoders of the tools. Tests
// compare the kernels' decoders with them.
#pragma once

#include "lib/weight_format.h"
#include "tests/ref/array.h"

namespace reprise::test {

using ref::Array;

// True if `type` is a format of weights other than f32.
inline bool is_stored_weight(DType type) { return type != DType::kF32 && takes_weights(kEveryWeight, type); }

// Writes the values to `out` in the format, in whole blocks, row by row.
void write_stored_weights(DType type, const Array& values, unsigned char* out);

// Replaces each value by a nearby value that the format can represent. Encoding the new values
// gives the bytes that encoding the old values gives.
void round_stored_weights(DType type, Array& values);

}  // namespace reprise::test
