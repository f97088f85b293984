// The blocking of kernels on one machine: these values change speed, never bits. cpu_size.h fixes
// where sums are cut. The values are derived (cpu_machine.h), measured (tuning.h), stored in a file
// and printed, always with the names of the table below.
#pragma once

#include <cstdint>

namespace reprise {

struct CpuBlocking {
  uint32_t columns;  // columns of B that a product packs at a time
  // Minimum columns of C for which a panel of A is packed although its rows could be read in place.
  uint32_t pack_from;
  uint32_t pack_depths_from;  // as pack_from, for an A that is stored depth-major
  // Columns of B that a product packs at a time if A is stored depth-major (gemm_split and
  // multiply_columns of gemm.h).
  uint32_t depth_columns;
  // Maximum tasks into which a product's rows are split. A task must take much longer than a worker
  // needs to claim it.
  uint32_t product_tasks = 128;
  // Floats of transformed inputs, at each of the 16 positions, in a chunk of tiles; maximum
  // kWinogradSpan.
  uint32_t winograd_floats = 32768;
  uint32_t winograd_block = 128;  // channels whose transforms are in scratch at a time; maximum kWinogradBlock
  uint32_t winograd_tiles = 24;   // tiles that are multiplied by a panel of filters at a time, approximately
  uint32_t direct_floats = 8192;  // floats of image rows that a worker copies at a time; maximum kDirectBufferFloats
  uint32_t floats_ahead = 32;     // floats of a line that are prefetched while the line is packed: two cache lines
  // Rows that are prefetched while rows of pairs are packed; only one cache line of each row is
  // read.
  uint32_t rows_ahead = 16;
};

struct BlockingField {
  const char* name;
  uint32_t CpuBlocking::*value;
  uint32_t minimum, maximum;  // the range that kernels accept
};
inline constexpr BlockingField kBlockingFields[] = {
    {"columns", &CpuBlocking::columns, 64, 1024},
    {"pack_from", &CpuBlocking::pack_from, 0, ~0u},
    {"pack_depths_from", &CpuBlocking::pack_depths_from, 0, ~0u},
    {"depth_columns", &CpuBlocking::depth_columns, 64, 1024},
    {"product_tasks", &CpuBlocking::product_tasks, 1, 4096},
    {"winograd_floats", &CpuBlocking::winograd_floats, 1, 32768},
    {"winograd_block", &CpuBlocking::winograd_block, 32, 128},
    {"winograd_tiles", &CpuBlocking::winograd_tiles, 1, 32},
    {"direct_floats", &CpuBlocking::direct_floats, 1, 8192},
    {"floats_ahead", &CpuBlocking::floats_ahead, 0, 1024},
    {"rows_ahead", &CpuBlocking::rows_ahead, 0, 256},
};

}  // namespace reprise
