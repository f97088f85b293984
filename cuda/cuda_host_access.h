// The operations of lib/host_access.h for an arena in a card's memory. All use the context's queue,
// a cudaStream_t. Only start_out and start_in use the queue of CudaCopies, if the machine has one.
#pragma once

#include "lib/backend.h"

namespace reprise {

Status cuda_copy_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes);
Status cuda_copy_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes);
Status cuda_fill(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes);
Status cuda_copy(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes);
Status cuda_start_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes, uint32_t number);
Status cuda_start_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes, uint32_t number);
Status cuda_await(const KernelContext& context, uint32_t number);
Status cuda_synchronise(const KernelContext& context);

inline constexpr HostAccess kCudaHostAccess = {.copy_in = cuda_copy_in,
                                               .copy_out = cuda_copy_out,
                                               .fill = cuda_fill,
                                               .copy = cuda_copy,
                                               .start_out = cuda_start_out,
                                               .start_in = cuda_start_in,
                                               .await = cuda_await,
                                               .synchronise = cuda_synchronise};

}  // namespace reprise
