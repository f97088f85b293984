// Finds the driver's functions. The names are those of the versions that the types of driver.h belong to.
#include "ports/cuda/driver.h"

#include <dlfcn.h>

namespace reprise {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, CudaDriver& d) {
  return find(library, "cuInit", d.init) && find(library, "cuGetErrorString", d.error_text) && find(library, "cuDriverGetVersion", d.version) &&
         find(library, "cuDeviceGetCount", d.device_count) && find(library, "cuDeviceGet", d.device) &&
         find(library, "cuDeviceGetName", d.device_name) && find(library, "cuDeviceGetAttribute", d.device_fact) &&
         find(library, "cuDevicePrimaryCtxRetain", d.retain_context) && find(library, "cuDevicePrimaryCtxRelease_v2", d.release_context) &&
         find(library, "cuCtxSetCurrent", d.set_context) && find(library, "cuMemGetInfo_v2", d.memory) &&
         find(library, "cuMemAlloc_v2", d.allocate) && find(library, "cuMemFree_v2", d.free) &&
         find(library, "cuMemGetAllocationGranularity", d.granularity) && find(library, "cuMemAddressReserve", d.reserve_addresses) &&
         find(library, "cuMemAddressFree", d.free_addresses) && find(library, "cuMemCreate", d.create) &&
         find(library, "cuMemRelease", d.release) && find(library, "cuMemMap", d.map) && find(library, "cuMemUnmap", d.unmap) &&
         find(library, "cuMemSetAccess", d.set_access) && find(library, "cuMemAllocHost_v2", d.allocate_pinned) &&
         find(library, "cuMemFreeHost", d.free_pinned) && find(library, "cuStreamCreate", d.create_stream) &&
         find(library, "cuStreamDestroy_v2", d.destroy_stream) && find(library, "cuStreamSynchronize", d.synchronise_stream) &&
         find(library, "cuEventCreate", d.create_event) && find(library, "cuEventDestroy_v2", d.destroy_event) &&
         find(library, "cuMemcpyDtoHAsync_v2", d.copy_to_host) && find(library, "cuMemcpyHtoDAsync_v2", d.copy_to_card);
}

}  // namespace

// The library stays loaded as long as the process.
Status load_cuda_driver(CudaDriver& driver) {
  driver = {};
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {Code::kUnsupported, "no NVIDIA driver here: libcuda.so.1 cannot be loaded", 0};
  if (!find_all(library, driver)) return {Code::kUnsupported, "the NVIDIA driver must be of CUDA 12 or later: a function is missing", 0};
  return ok_status();
}

}  // namespace reprise
