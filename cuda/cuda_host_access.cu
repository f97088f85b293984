// Implements cuda_host_access.h with asynchronous copies on the kernels' queue, through staging
// memory.
#include "cuda/cuda_host_access.h"

#include <cstring>

#include "cuda/cuda_backend.h"
#include "cuda/grid.h"
#include "cuda/launch.h"

namespace reprise {
namespace {

cudaStream_t stream_of(const KernelContext& context) { return static_cast<cudaStream_t>(context.queue); }

CudaStaging* staging_of(const KernelContext& context) {
  return context.machine == nullptr ? nullptr : static_cast<const CudaMachine*>(context.machine)->staging;
}

const CudaCopies* copies_of(const KernelContext& context) {
  return context.machine == nullptr ? nullptr : static_cast<const CudaMachine*>(context.machine)->copies;
}
cudaEvent_t copied(const CudaCopies& copies, uint32_t number) {
  return static_cast<cudaEvent_t>(copies.copied[number % CudaCopies::kEvents]);
}

// Enqueues a copy in the queue of CudaCopies, or in the kernels' queue if there are no CudaCopies.
// The copy begins after all work that is in the kernels' queue at the time of the call. `number`
// selects the event that marks the end of the copy. The function does not wait for the copy. A
// capture of the kernels' queue includes the copy.
Status start_copy(const KernelContext& context, void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind,
                  uint32_t number) {
  const CudaCopies* copies = copies_of(context);
  if (copies == nullptr) return cuda_status(cudaMemcpyAsync(to, from, bytes, kind, stream_of(context)));
  const cudaStream_t queue = static_cast<cudaStream_t>(copies->queue);
  const cudaEvent_t asked = static_cast<cudaEvent_t>(copies->asked);
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaEventRecord(asked, stream_of(context))));
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaStreamWaitEvent(queue, asked, 0)));
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaMemcpyAsync(to, from, bytes, kind, queue)));
  return cuda_status(cudaEventRecord(copied(*copies, number), queue));
}

// Switches to the other half of the staging memory. Waits until the card has read the earlier
// content of that half.
Status turn_halves(CudaStaging& staging, cudaStream_t stream) {
  REPRISE_RETURN_IF_ERROR(cuda_status(cudaEventRecord(static_cast<cudaEvent_t>(staging.copied[staging.half]), stream)));
  staging.half = 1 - staging.half;
  staging.used = 0;
  return cuda_status(cudaEventSynchronize(static_cast<cudaEvent_t>(staging.copied[staging.half])));
}

Status copy_in_staged(CudaStaging& staging, cudaStream_t stream, unsigned char* to, const unsigned char* from,
                      uint64_t bytes) {
  for (uint64_t done = 0; done < bytes;) {
    if (staging.used == CudaStaging::kHalfBytes) REPRISE_RETURN_IF_ERROR(turn_halves(staging, stream));
    const uint64_t piece = minimum(bytes - done, CudaStaging::kHalfBytes - staging.used);
    unsigned char* staged = staging.base + staging.half * CudaStaging::kHalfBytes + staging.used;
    std::memcpy(staged, from + done, piece);
    REPRISE_RETURN_IF_ERROR(cuda_status(cudaMemcpyAsync(to + done, staged, piece, cudaMemcpyHostToDevice, stream)));
    staging.used += piece;
    done += piece;
  }
  return ok_status();
}

__global__ void __launch_bounds__(kBlockThreads) fill_words(uint32_t* to, uint32_t word, uint64_t count) {
  for (uint64_t i = grid_thread(); i < count; i += grid_threads()) to[i] = word;
}

}  // namespace

// Copies through staging memory. Without staging memory, the function waits for the copy, so that
// the caller may reuse `from`.
Status cuda_copy_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes) {
  if (bytes == 0) return ok_status();
  if (CudaStaging* staging = staging_of(context); staging != nullptr) {
    return copy_in_staged(*staging, stream_of(context), to.for_kernels, static_cast<const unsigned char*>(from), bytes);
  }
  REPRISE_RETURN_IF_ERROR(
      cuda_status(cudaMemcpyAsync(to.for_kernels, from, bytes, cudaMemcpyHostToDevice, stream_of(context))));
  return cuda_synchronise(context);
}

Status cuda_copy_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes) {
  if (bytes == 0) return ok_status();
  return cuda_status(cudaMemcpyAsync(to, from.for_kernels, bytes, cudaMemcpyDeviceToHost, stream_of(context)));
}

Status cuda_fill(const KernelContext& context, ArenaAddress to, uint32_t word, uint64_t bytes) {
  REPRISE_ASSERT(bytes % sizeof word == 0, "a filled range has whole words");
  const uint64_t count = bytes / sizeof word;
  if (count == 0) return ok_status();
  REPRISE_LAUNCH(fill_words, blocks_for(count), kBlockThreads, context.queue,
                 reinterpret_cast<uint32_t*>(to.for_kernels), word, count);
  return launch_status();
}

Status cuda_copy(const KernelContext& context, ArenaAddress to, ArenaAddress from, uint64_t bytes) {
  if (bytes == 0) return ok_status();
  return cuda_status(
      cudaMemcpyAsync(to.for_kernels, from.for_kernels, bytes, cudaMemcpyDeviceToDevice, stream_of(context)));
}

Status cuda_start_out(const KernelContext& context, void* to, ArenaAddress from, uint64_t bytes, uint32_t number) {
  return start_copy(context, to, from.for_kernels, bytes, cudaMemcpyDeviceToHost, number);
}

Status cuda_start_in(const KernelContext& context, ArenaAddress to, const void* from, uint64_t bytes, uint32_t number) {
  return start_copy(context, to.for_kernels, from, bytes, cudaMemcpyHostToDevice, number);
}

Status cuda_await(const KernelContext& context, uint32_t number) {
  const CudaCopies* copies = copies_of(context);
  return copies == nullptr ? ok_status()
                           : cuda_status(cudaStreamWaitEvent(stream_of(context), copied(*copies, number), 0));
}

// Waits for all enqueued work. Returns a kernel's fault even if more work was enqueued after the
// kernel.
Status cuda_synchronise(const KernelContext& context) {
  const Status kernels = cuda_status(cudaStreamSynchronize(stream_of(context)));
  const CudaCopies* copies = copies_of(context);
  const Status copied =
      copies == nullptr ? ok_status() : cuda_status(cudaStreamSynchronize(static_cast<cudaStream_t>(copies->queue)));
  return kernels.ok() ? copied : kernels;
}

}  // namespace reprise
