// See cuda_host_access.h.
#include "cuda/cuda_host_access.h"

#include "cuda/grid.h"
#include "cuda/launch.h"

namespace reprise {
namespace {

cudaStream_t stream_of(const KernelContext& context) { return static_cast<cudaStream_t>(context.queue); }

Status status_of(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return ok_status();
  return {Code::kBackend, what, static_cast<uint64_t>(error)};
}

__global__ void __launch_bounds__(kBlockThreads) fill_words(uint32_t* to, uint32_t word, uint64_t count) {
  for (uint64_t i = grid_thread(); i < count; i += grid_threads()) to[i] = word;
}

}  // namespace

// The wait makes the source free to be used again. A port that keeps pinned memory for batches need not wait here.
Status cuda_copy_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes) {
  if (bytes == 0) return ok_status();
  const cudaError_t queued = cudaMemcpyAsync(to.for_kernels, from, bytes, cudaMemcpyHostToDevice, stream_of(context));
  REPRISE_RETURN_IF_ERROR(status_of(queued, "bytes must be copied to the card; detail is the cudaError_t"));
  return cuda_synchronise(context);
}

Status cuda_copy_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes) {
  if (bytes == 0) return ok_status();
  return status_of(cudaMemcpyAsync(to, from.for_kernels, bytes, cudaMemcpyDeviceToHost, stream_of(context)),
                   "bytes must be copied from the card; detail is the cudaError_t");
}

Status cuda_fill(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) {
  const uint64_t count = bytes / sizeof word;
  if (count == 0) return ok_status();
  REPRISE_LAUNCH(fill_words, blocks_for(count), kBlockThreads, context.queue, reinterpret_cast<uint32_t*>(to.for_kernels), word, count);
  return launch_status();
}

// A fault inside a kernel shows here, with all that was queued behind it.
Status cuda_synchronise(const KernelContext& context) {
  return status_of(cudaStreamSynchronize(stream_of(context)), "the work on the card must end well; detail is the cudaError_t");
}

}  // namespace reprise
