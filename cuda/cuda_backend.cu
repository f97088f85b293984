// Builds the table of all CUDA kernels, and the name of the kernel set that this device runs.
#include "cuda/cuda_backend.h"

#include <initializer_list>

#include "cuda/cuda_host_access.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_recorder.h"
#include "cuda/cuda_rules.h"
#include "cuda/launch.h"

namespace reprise {
namespace {

// Does nothing. The attributes of this kernel contain the architecture for which the code that the
// device loads was compiled.
__global__ void architecture_probe() {}

// Returns the architecture of the code that the device loads, for example 87 for sm_87. Returns 0
// if CUDA reports an error, for example because there is no device, or no code for it in the
// program.
uint32_t loaded_architecture() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, architecture_probe) == cudaSuccess)
    return static_cast<uint32_t>(attributes.binaryVersion);
  (void)cudaGetLastError();  // clears the error, so that the next launch does not report it
  return 0;
}

}  // namespace

void choose_cuda_machine(CudaMachine& machine, CardSize size, ProductMath math) {
  machine.size = size;
  machine.math = math;
  uint32_t at = 0;
  for (const char* part : {cuda_rules_of(size, math).name, "/" REPRISE_DEVICE_COMPILER "/sm_"}) {
    for (const char* p = part; *p != 0; ++p) machine.kernel_set[at++] = *p;
  }
  const uint32_t architecture = machine.architecture = loaded_architecture();
  machine.runtime_version = CUDART_VERSION;
  for (uint32_t unit = 100; unit > 0; unit /= 10) {
    if (architecture >= unit || unit == 1) machine.kernel_set[at++] = static_cast<char>('0' + architecture / unit % 10);
  }
  machine.kernel_set[at] = 0;
}

Backend cuda_backend(const CudaMachine& machine) {
  Backend table = {.rules = &cuda_rules_of(machine.size, machine.math),
                   .kernel_set = machine.kernel_set,
                   .machine = &machine,
                   .host = kCudaHostAccess,
                   .queue = machine.queue,
                   .recorder = machine.queue == nullptr ? Recorder{} : kCudaRecorder};
  add_cuda_kernels(table);
  return table;
}

}  // namespace reprise
