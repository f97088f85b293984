// The part of CUDA's run time that host code calls: memory, copies, streams, events. A backend's
// host code runs with it unchanged under the fibres. Work waits in the device's queues until the
// host synchronises, so a forgotten wait is detected.
//
// A captured graph stores its work with the arguments at the time of the capture, as on a card.
// During a capture, waiting and allocating are refused.
//
// Device memory is host memory, initialised to 0xff, which is NaN. A copy to the host fills its
// target with 0xff when the copy is enqueued, and reads its source and delivers the bytes when it
// runs. All streams share one queue. Only a stream that waits for an event of that queue becomes a
// second queue, for copies. An event is a position in one of the two queues. None of the functions
// is inline, so that the symbols of an object show all functions that it calls
// (cuda_symbols_test.sh).
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/ports/fibres/cuda_fibre_device.h"

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
// Runs all work that waits in the queues. Returns cudaErrorLaunchFailure after a fault in a kernel.
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);  // waits for all work first
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);  // waits for the copy
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);        // cudaErrorNotReady if work before the event is still queued
cudaError_t cudaEventSynchronize(cudaEvent_t event);  // runs the work before the event, but none after it
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags = 0);

const char* cudaGetErrorString(cudaError_t error);

struct FibreGraph;
using cudaGraph_t = FibreGraph*;
using cudaGraphExec_t = FibreGraph*;
enum cudaStreamCaptureMode : int {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2
};
// Starts a capture of `stream`, which must not be the default stream.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
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
inline int architecture = 0;  // architecture of the code that the card would run, set by a test; 0: no code fits
}
template <typename F>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, F*) {
  attributes->binaryVersion = reprise::fibre::architecture;
  return reprise::fibre::architecture == 0 ? cudaErrorNoDevice : cudaSuccess;
}
