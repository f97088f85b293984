// Implements cuda_recorder.h by stream capture: a recording is an executable graph.
#include "cuda/cuda_recorder.h"

#include "cuda/launch.h"

namespace reprise {
namespace {

cudaStream_t stream_of(const KernelContext& context) { return static_cast<cudaStream_t>(context.queue); }

// Makes an executable graph, and uploads it to the card now, so that no replay allocates memory.
Status instantiate(cudaStream_t stream, cudaGraph_t graph, void** recording) {
  cudaGraphExec_t executable = nullptr;
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaGraphInstantiate(&executable, graph, 0)));
  *recording = executable;
  return cuda_status(cudaGraphUpload(executable, stream));
}

}  // namespace

// Begins a capture. The mode is relaxed, because the driver may load the code of a kernel during
// the capture, at the kernel's first use.
Status cuda_begin_recording(const KernelContext& context) {
  return cuda_status(cudaStreamBeginCapture(stream_of(context), cudaStreamCaptureModeRelaxed));
}

Status cuda_end_recording(const KernelContext& context, void** recording) {
  *recording = nullptr;
  cudaGraph_t graph = nullptr;
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaStreamEndCapture(stream_of(context), &graph)));
  const Status status = instantiate(stream_of(context), graph, recording);
  const Status destroyed = cuda_status(cudaGraphDestroy(graph));
  REPRISE_RETURN_IF_ERROR(status);
  return destroyed;
}

Status cuda_replay(const KernelContext& context, void* recording) {
  return cuda_status(cudaGraphLaunch(static_cast<cudaGraphExec_t>(recording), stream_of(context)));
}

void cuda_release_recording(void* recording) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(recording)); }

}  // namespace reprise
