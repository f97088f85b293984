// Records a program's rows as a CUDA graph: implements lib/recorder.h for a card.
#pragma once

#include "lib/backend.h"

namespace reprise {

Status cuda_begin_recording(const KernelContext& context);
Status cuda_end_recording(const KernelContext& context, void** recording);
Status cuda_replay(const KernelContext& context, void* recording);
void cuda_release_recording(void* recording);

inline constexpr Recorder kCudaRecorder = {
    .begin = cuda_begin_recording, .end = cuda_end_recording, .replay = cuda_replay, .release = cuda_release_recording};

}  // namespace reprise
