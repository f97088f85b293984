// The one table of CUDA kernels, and the name of the set that this device runs.
// Here so that what CUDA can do is read in one place.
#include "cuda/cuda_backend.h"

#include <initializer_list>

#include "cuda/cuda_host_access.h"
#include "cuda/cuda_kernels.h"
#include "cuda/cuda_recorder.h"
#include "cuda/cuda_rules.h"
#include "cuda/launch.h"

namespace reprise {
namespace {

// Its only use is to be asked which of the compiled architectures the device took.
__global__ void architecture_probe() {}

// 87 for sm_87; 0 where there is no device, or none that this program was compiled for.
uint32_t loaded_architecture() {
  cudaFuncAttributes attributes{};
  if (cudaFuncGetAttributes(&attributes, architecture_probe) == cudaSuccess)
    return static_cast<uint32_t>(attributes.binaryVersion);
  (void)cudaGetLastError();  // an unasked question's error must not be met by the next launch
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
