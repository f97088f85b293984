// Launches kernels of two files that use the same names for their constants, arrays and kernels. A
// test checks with them that under the fibres each .cu is compiled to its own object, as by nvcc.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

Status launch_threes(uint32_t* out, void* queue);  // out[64] = 3 * 63, 3 * 62, ... 0
Status launch_fives(uint32_t* out, void* queue);   // out[32] = 5 * 31, 5 * 30, ... 0

}  // namespace reprise::test
