// HostAccess of the CPU backend. The arena is the host's own memory: copies are complete when they
// return, so await and synchronise have nothing to wait for.
#pragma once

#include "lib/host_access.h"

namespace reprise {

Status cpu_copy_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes);
Status cpu_copy_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes);
Status cpu_fill(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes);
Status cpu_copy(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes);
Status cpu_start_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes, uint32_t number);
Status cpu_start_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes, uint32_t number);
Status cpu_await(const KernelContext& context, uint32_t number);
Status cpu_synchronise(const KernelContext& context);

inline constexpr HostAccess kCpuHostAccess = {.copy_in = cpu_copy_in,
                                              .copy_out = cpu_copy_out,
                                              .fill = cpu_fill,
                                              .copy = cpu_copy,
                                              .start_out = cpu_start_out,
                                              .start_in = cpu_start_in,
                                              .await = cpu_await,
                                              .synchronise = cpu_synchronise};

}  // namespace reprise
