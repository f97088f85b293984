// Implements cuda_fibre_runtime.h: memory, copies, streams and events of the fibres' device.
#include "tests/ports/fibres/cuda_fibre_runtime.h"

#include <cstring>
#include <new>

using reprise::fibre::Device;

struct FibreEvent {
  uint64_t number = 0;  // number of the last piece of work before the event
  reprise::fibre::Lane lane = reprise::fibre::kKernels;
};

struct FibreGraph {
  reprise::fibre::Lanes work;
};

namespace {

constexpr int kPoison = 0xff;
constexpr std::align_val_t kAlignment{256};  // alignment of cudaMalloc

}  // namespace

cudaError_t cudaGetLastError() { return Device::instance().take_error(); }
cudaError_t cudaDeviceSynchronize() { return Device::instance().synchronize(); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Device& device = Device::instance();
  const reprise::fibre::Lane lane = device.lane_of(stream);
  return device.synchronize_until(lane, device.queued(lane));
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (Device::instance().breaks_capture()) return cudaErrorStreamCaptureUnsupported;
  *memory = ::operator new(bytes == 0 ? 1 : bytes, kAlignment, std::nothrow);
  if (*memory == nullptr) return cudaErrorMemoryAllocation;
  std::memset(*memory, kPoison, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const cudaError_t error = cudaDeviceSynchronize();
  ::operator delete(memory, kAlignment);
  return error;
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  // The target is poisoned so that a forgotten wait is noticed. It must not change while work is
  // captured, because the copy runs later.
  if (kind == cudaMemcpyDeviceToHost && !Device::instance().is_capturing()) std::memset(to, kPoison, bytes);
  Device::instance().enqueue([=] { std::memcpy(to, from, bytes); }, stream);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  (void)cudaMemcpyAsync(to, from, bytes, kind);
  return cudaDeviceSynchronize();
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t stream) {
  Device::instance().enqueue([=] { std::memset(to, byte, bytes); }, stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  *stream = new char;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete static_cast<char*>(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int) {
  *event = new FibreEvent;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  event->lane = Device::instance().lane_of(stream);
  event->number = Device::instance().queued(event->lane);
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Device::instance().done(event->lane) < event->number ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Device::instance().synchronize_until(event->lane, event->number);
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    default: return "an error that the fibres do not name";
  }
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
  return Device::instance().begin_capture() ? cudaSuccess : cudaErrorIllegalState;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  *graph = new FibreGraph;
  if (Device::instance().end_capture((*graph)->work)) return cudaSuccess;
  delete *graph;
  *graph = nullptr;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new FibreGraph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  Device::instance().replay(executable->work);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return cudaGraphDestroy(executable); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  Device::instance().wait_for(stream, event->lane, event->number);
  return cudaSuccess;
}
