// Loads the driver's library. Tests link a driver of their own instead of this file.
#include "ports/cuda/driver.h"

#include <dlfcn.h>

namespace reprise {

// Loads the library, which then stays loaded until the process ends.
Status load_cuda_driver(CudaDriver& driver) {
  driver = {};
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {Code::kUnsupported, "no NVIDIA driver here: libcuda.so.1 cannot be loaded", 0};
  return find_cuda_functions(driver, library, dlsym);
}

}  // namespace reprise
