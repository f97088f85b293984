// A skeleton to copy (channel_gain.h): the declarations, which for a real family stand in lib/cpu/cpu_kernels.h, with a line of the table
// each.
#pragma once

#include "lib/cpu/cpu_kernels.h"
#include "tests/skeleton/channel_gain.h"

namespace reprise {

template <typename Stored>
Status cpu_channel_gain_forward(const KernelContext& context, const ChannelGainForwardArgsOf<Stored>& args);
template <typename Stored>
Status cpu_channel_gain_backward(const KernelContext& context, const ChannelGainBackwardArgsOf<Stored>& args);

}  // namespace reprise
