// A skeleton to copy (channel_gain.h): the declarations. A real family has them in
// lib/cpu/cpu_kernels.h, where each kernel also has a line in the table.
#pragma once

#include "lib/cpu/cpu_kernels.h"
#include "tests/skeleton/channel_gain.h"

namespace reprise {

template <typename Stored>
Status cpu_channel_gain_forward(const KernelContext& context, const ChannelGainForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_channel_gain_backward(const KernelContext& context, const ChannelGainBackwardArgsOf<Stored>& args);

}  // namespace reprise
