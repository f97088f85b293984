// How kernels go through their work on one machine: what costs seconds and changes no bit. Where sums are cut is fixed elsewhere (cpu_size.h).
// Here because these numbers are derived (cpu_machine.h), measured (tuning.h), kept in a file and printed, by one table of their names.
#pragma once

#include <cstdint>

namespace reprise {

struct CpuBlocking {
  uint32_t columns;                  // of B that a product packs at a time
  uint32_t pack_from;                // columns of C from which a panel of A is packed although its rows could serve as they lie
  uint32_t pack_depths_from;         // the same where they lie by depths
  uint32_t depth_columns;            // of B at a time where A lies by depths (gemm_split and multiply_columns of gemm.h)
  uint32_t product_tasks = 128;      // into which a product's rows are shared out at most: a claim must stay cheap against its work
  uint32_t winograd_floats = 32768;  // of transformed inputs at a position, for which the filters come once; at most kWinogradSpan
  uint32_t winograd_block = 128;     // channels whose transforms stand in scratch together; at most kWinogradBlock
  uint32_t winograd_tiles = 24;      // about as many share a pass over the filters of a panel
  uint32_t direct_floats = 8192;     // of the image's rows that a worker copies at a time; at most kDirectBufferFloats
  uint32_t floats_ahead = 32;        // of a line are fetched while it is packed: two cache lines
  uint32_t rows_ahead = 16;          // are fetched while rows of pairs are packed, each of which is read for one cache line alone
};

struct BlockingField {
  const char* name;
  uint32_t CpuBlocking::*value;
  uint32_t least, most;  // that kernels take
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
