// The CPU's arena is the host's own memory: copies are done when they return, and there is nothing to wait for.
#pragma once

#include "lib/host_access.h"

namespace reprise {

Status cpu_copy_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes);
Status cpu_copy_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes);
Status cpu_fill(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes);
Status cpu_copy(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes);
Status cpu_synchronise(const KernelContext& context);

inline constexpr HostAccess kCpuHostAccess = {cpu_copy_in, cpu_copy_out, cpu_fill, cpu_copy, cpu_synchronise};

}  // namespace reprise
