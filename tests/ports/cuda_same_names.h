// The host side of two kernel files that share the names of their constants, arrays and kernels.
// Here so that a test sees that each .cu is an object of its own under the fibres, as it is under nvcc.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

Status launch_threes(uint32_t* out, void* queue);  // out[64] = 3 * 63, 3 * 62, ... 0
Status launch_fives(uint32_t* out, void* queue);   // out[32] = 5 * 31, 5 * 30, ... 0

}  // namespace reprise::test
