// The CUDA backend: the table that dispatch calls, and the resources that its port provides. This
// header includes no kernels and no CUDA headers, so that a program can use the backend without
// them.
#pragma once

#include "cuda/card_size.h"
#include "cuda/gemm/product_math.h"
#include "cuda/host_share.h"
#include "lib/backend.h"

namespace reprise {

// Pinned memory of the host through which batches, scalars and weights go to the card. It has two
// halves: the host fills one half while the card may still read the other.
struct CudaStaging {
  static constexpr uint64_t kBytes = kCudaStagingBytes, kHalfBytes = kBytes / 2;
  unsigned char* base = nullptr;  // kBytes bytes
  void* copied[2] = {};           // cudaEvent_t of each half: occurs after the card has read the half
  uint32_t half = 0;              // index of the half that is being filled
  uint64_t used = 0;              // used bytes of the half that is being filled
};

// The queue and events of transfers between the card and host memory, which run at the same time as
// kernels. Transfers end in the order of their starts. So several transfers can share an event: the
// event occurs after the latest of them, when all earlier transfers have ended.
struct CudaCopies {
  static constexpr uint32_t kEvents = 16;
  void* queue = nullptr;         // a cudaStream_t
  void* asked = nullptr;         // cudaEvent_t: occurs when all work enqueued before the latest transfer is done
  void* copied[kEvents] = {};    // cudaEvent_t: the end of a transfer; number n uses event n % kEvents
};

// The chosen device and the options of its kernels.
struct CudaMachine {
  char kernel_set[64] = {};         // "BACKEND/COMPILER/sm_NN": names all choices that decide the bits of results
  CardSize size = CardSize::kSmall;
  ProductMath math = ProductMath::kF32;
  uint32_t architecture = 0;        // architecture of the code that runs, 87 for sm_87; 0 if no code fits the device
  uint32_t runtime_version = 0;     // CUDA version of this program, 13000 for 13.0; the driver must not be older
  void* queue = nullptr;            // a cudaStream_t; null is the default stream, which cannot be recorded
  CudaStaging* staging = nullptr;   // null: copy_in waits until its copy to the card has ended
  const CudaCopies* copies = nullptr;  // null: start_out and start_in use the kernels' queue
};

// Sets all fields of `machine` except queue, staging and copies, which the caller sets. Call the
// function once, after the device has been chosen.
void choose_cuda_machine(CudaMachine& machine, CardSize size = CardSize::kSmall, ProductMath math = ProductMath::kF32);

// Returns the backend's table. The table points into `machine`, which must outlive the table.
Backend cuda_backend(const CudaMachine& machine);

// Returns the size of card for which a kernel splits its sums.
inline CardSize card_size(const KernelContext& context) {
  return context.machine == nullptr ? CardSize::kSmall : static_cast<const CudaMachine*>(context.machine)->size;
}
// Returns how a kernel multiplies numbers that are stored as f32.
inline ProductMath product_math(const KernelContext& context) {
  return context.machine == nullptr ? ProductMath::kF32 : static_cast<const CudaMachine*>(context.machine)->math;
}

}  // namespace reprise
