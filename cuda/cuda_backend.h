// The CUDA backend: the table that dispatch calls, and what its port gives it.
// Here so that a product can name CUDA without naming its kernels, or including CUDA's headers.
#pragma once

#include "cuda/card_size.h"
#include "cuda/host_share.h"
#include "cuda/product_math.h"
#include "lib/backend.h"

namespace reprise {

// Pinned memory of the host, through which batches, scalars and weights go to the card, in two halves: one is filled while the card may
// still read the other.
struct CudaStaging {
  static constexpr uint64_t kBytes = kCudaStagingBytes, kHalfBytes = kBytes / 2;
  unsigned char* base = nullptr;  // kBytes of it
  void* copied[2] = {};           // cudaEvent_t: the card has read what the half held
  uint32_t half = 0;              // that is being filled
  uint64_t used = 0;              // bytes of it
};

// What copies to memory of the host and back go through, which go on beside the kernels: a queue of its own, in which they end in their order. So
// an event that several transfers share says of the latest that it has ended, and of the others with it.
struct CudaCopies {
  static constexpr uint32_t kEvents = 16;
  void* queue = nullptr;         // a cudaStream_t
  void* asked = nullptr;         // cudaEvent_t: what the kernels' queue had before the last start
  void* copied[kEvents] = {};    // cudaEvent_t: the last start of these numbers has ended
};

// What is known of the device once it is chosen.
struct CudaMachine {
  char kernel_set[64] = {};         // "BACKEND/COMPILER/sm_NN": its splits, its functions and its tensor cores decide the bits
  CardSize size = CardSize::kSmall;
  ProductMath math = ProductMath::kF32;
  uint32_t architecture = 0;        // the code that runs, 87 for sm_87; 0 where the device can run none of this program's
  uint32_t runtime_version = 0;     // CUDA's that this program was compiled with, 13000 for 13.0: the driver must not be older
  void* queue = nullptr;            // a cudaStream_t; null is the default one, which cannot be recorded
  CudaStaging* staging = nullptr;   // null: every copy to the card is waited for
  const CudaCopies* copies = nullptr;  // null: transfers to memory of the host wait their turn among the kernels
};

// Once, when the device has been chosen: all but queue, staging and copies, which are the caller's.
void choose_cuda_machine(CudaMachine& machine, CardSize size = CardSize::kSmall, ProductMath math = ProductMath::kF32);

// The table points into `machine`, which must outlive it.
Backend cuda_backend(const CudaMachine& machine);

// What a kernel splits its sums for.
inline CardSize card_size(const KernelContext& context) {
  return context.machine == nullptr ? CardSize::kSmall : static_cast<const CudaMachine*>(context.machine)->size;
}
// How a kernel multiplies what is stored as f32.
inline ProductMath product_math(const KernelContext& context) {
  return context.machine == nullptr ? ProductMath::kF32 : static_cast<const CudaMachine*>(context.machine)->math;
}

}  // namespace reprise
