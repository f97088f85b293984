// The host side of small kernels that use every function of cuda/warp.h, right ones and ones with one planted fault each.
// Here so that the fibres are tested by a pipelined product such as the library's own, and nvcc compiles the same source.
#pragma once

#include <cstdint>

#include "lib/status.h"

namespace reprise::test {

// c[M][N] = a[M][K] b[K][N], bf16 into f32: 64x64 tiles of c, steps of 32 in K, three stages of asynchronous copies. N
// and K are multiples of 8, so that a row is a multiple of 16 bytes.
struct ProductArgs {
  float* c = nullptr;
  const uint16_t* a = nullptr;
  const uint16_t* b = nullptr;
  uint32_t M = 0, N = 0, K = 0;
};

enum class ProductKind : uint8_t {
  kRight,
  kPlain,           // right, but tiles are stored without the swizzle: banks conflict
  kNoBarrier,       // the barrier behind wait_copies is missing
  kReusedTooEarly,  // a stage is filled again before the barrier that says that all have read it
  kReadBeforeWait,  // wait_copies lets one group too many be unfinished
  kPastTheTile,     // a matrix is loaded from the row behind a tile's last
  kWrongFragment,   // two registers of a are exchanged
};
Status launch_product(const ProductArgs& args, ProductKind kind, void* queue);

// c[16][8] = a[16][8] b[8][8] in f32 by the tensor cores of one warp; and what its lane l loads of two matrices of 8x8,
// as they are and transposed: rows[l][2], columns[l][2].
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
