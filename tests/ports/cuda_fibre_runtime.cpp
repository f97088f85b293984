// Memory, copies, streams and events of the fibres' device.
#include "tests/ports/cuda_fibre_runtime.h"

#include <cstring>
#include <new>

using reprise::fibre::Device;

struct FibreEvent {
  uint64_t number = 0;  // of the last work before it
};

namespace {

constexpr int kPoison = 0xff;
constexpr std::align_val_t kAlignment{256};  // as cudaMalloc's

}  // namespace

cudaError_t cudaGetLastError() { return Device::instance().take_error(); }
cudaError_t cudaDeviceSynchronize() { return Device::instance().synchronize(); }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }

cudaError_t cudaMalloc(void** memory, size_t bytes) {
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

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  if (kind == cudaMemcpyDeviceToHost) std::memset(to, kPoison, bytes);
  Device::instance().enqueue([=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  (void)cudaMemcpyAsync(to, from, bytes, kind);
  return cudaDeviceSynchronize();
}

cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t) {
  Device::instance().enqueue([=] { std::memset(to, byte, bytes); });
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

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->number = Device::instance().queued();
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Device::instance().done() < event->number ? cudaErrorNotReady : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Device::instance().synchronize_until(event->number); }

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned int) { return cudaSuccess; }
