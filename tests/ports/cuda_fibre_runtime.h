// The little of CUDA's run time that host code asks for: memory, copies, streams, events. Work waits in the device's queue.
// Here so that a backend's host side runs under the fibres as it is, and a forgotten wait shows.
//
// A captured graph holds its work with the arguments of that time, as on a card; waiting or allocating meanwhile is refused.
//
// Memory of the device is memory of the host, born full of 0xff, which is NaN. A copy to the host fills its target with
// 0xff when it is asked for, and brings the bytes when it runs. A copy reads its source when it runs. There is one queue
// for all streams but the one that waits for an event of it, which is a queue beside it for copies; an event is a place in one
// of them. None of these functions is inline, so that an object names all that it calls (cuda_symbols_test.sh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/ports/cuda_fibre_device.h"

using cudaStream_t = void*;
struct FibreEvent;
using cudaEvent_t = FibreEvent*;

enum cudaMemcpyKind : int {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
};
constexpr unsigned int cudaStreamNonBlocking = 1;
constexpr unsigned int cudaEventDisableTiming = 2;

cudaError_t cudaGetLastError();
// What the work did that has waited until now: cudaErrorLaunchFailure after a fault in a kernel.
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);  // waits for all work first
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);  // waits
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);        // cudaErrorNotReady: some of its work still waits
cudaError_t cudaEventSynchronize(cudaEvent_t event);  // runs what was queued before it, and nothing behind it
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0);

const char* cudaGetErrorString(cudaError_t error);

struct FibreGraph;
using cudaGraph_t = FibreGraph*;
using cudaGraphExec_t = FibreGraph*;
enum cudaStreamCaptureMode : int { cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2 };
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);  // the default stream cannot be captured
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

#define CUDART_VERSION 13000
struct cudaFuncAttributes {
  int binaryVersion = 0;
};
namespace reprise::fibre {
inline int architecture = 0;  // of the code that a card would take: a test sets it; 0 where it could take none
}
template <typename F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F*) {
  attributes->binaryVersion = reprise::fibre::architecture;
  return reprise::fibre::architecture == 0 ? cudaErrorNoDevice : cudaSuccess;
}
