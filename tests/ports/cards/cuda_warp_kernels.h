// Launches small kernels that use every function of cuda/warp.h, correct ones and ones with a
// planted fault. They test the fibres with a pipelined product like those of the library. nvcc
// compiles the same source.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

// Arguments of the product c[M][N] = a[M][K] b[K][N], bf16 into f32. A block computes 64 x 64
// elements of c, in steps of 32 depths, with three stages of asynchronous copies. N and K must be
// multiples of 8, so that a row is a multiple of 16 bytes.
struct ProductArgs {
  float* c = nullptr;
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  uint32_t M = 0, N = 0, K = 0;
};

enum class ProductKind : uint8_t {
  kRight,
  kPlain,           // correct, but tiles are stored without the swizzle, so that accesses have bank conflicts
  kNoBarrier,       // without the barrier after wait_copies
  kReusedTooEarly,  // fills a stage again before the barrier after the stage's last read
  kReadBeforeWait,  // wait_copies leaves one group of copies too many unfinished
  kPastTheTile,     // loads a matrix one row too late, so that the last row is outside its tile
  kWrongFragment,   // exchanges two registers of a
};
Status launch_product(const ProductArgs& args, ProductKind kind, void* queue);

// Arguments of a kernel of one warp. It computes c[16][8] = a[16][8] b[8][8] in f32 on tensor
// cores. It also loads two 8x8 matrices, as they are stored and transposed. Lane l writes the
// registers that it gets to rows[l][2] and columns[l][2].
struct MapArgs {
  float* c = nullptr;
  uint32_t* rows = nullptr;
  uint32_t* columns = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  const uint16_t* matrices = nullptr;  // [2][8][8]
  bool rounded = false;
};
Status launch_maps(const MapArgs& args, void* queue);

}  // namespace reprise::test
