// The names of the driver's functions that the port calls. A name selects the version of a
// function. These versions have the types of driver.h, as in cuda.h of CUDA 12.2 to 13.0. A driver
// also has old functions without a version in their names, which use addresses and sizes of 32
// bits. The table in tests/ports/cards/cuda_driver_abi.h checks this table.
#include "ports/cuda/driver.h"

namespace reprise {
namespace {

struct Library {
  void* handle;
  void* (*symbol)(void* handle, const char* name);
};

template <typename Function>
bool find(const Library& library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(library.symbol(library.handle, name));
  return function != nullptr;
}

bool find_all(const Library& library, CudaDriver& d) {
  return find(library, "cuInit", d.init) && find(library, "cuGetErrorString", d.error_text) &&
         find(library, "cuDriverGetVersion", d.version) && find(library, "cuDeviceGetCount", d.device_count) &&
         find(library, "cuDeviceGet", d.device) && find(library, "cuDeviceGetName", d.device_name) &&
         find(library, "cuDeviceGetAttribute", d.device_fact) &&
         find(library, "cuDevicePrimaryCtxRetain", d.retain_context) &&
         find(library, "cuDevicePrimaryCtxRelease_v2", d.release_context) &&
         find(library, "cuCtxSetCurrent", d.set_context) && find(library, "cuMemGetInfo_v2", d.memory) &&
         find(library, "cuMemAlloc_v2", d.allocate) && find(library, "cuMemFree_v2", d.free) &&
         find(library, "cuMemGetAllocationGranularity", d.granularity) &&
         find(library, "cuMemAddressReserve", d.reserve_addresses) &&
         find(library, "cuMemAddressFree", d.free_addresses) && find(library, "cuMemCreate", d.create) &&
         find(library, "cuMemRelease", d.release) && find(library, "cuMemMap", d.map) &&
         find(library, "cuMemUnmap", d.unmap) && find(library, "cuMemSetAccess", d.set_access) &&
         find(library, "cuMemAllocHost_v2", d.allocate_pinned) && find(library, "cuMemFreeHost", d.free_pinned) &&
         find(library, "cuCtxGetStreamPriorityRange", d.stream_priorities) &&
         find(library, "cuStreamCreateWithPriority", d.create_stream) &&
         find(library, "cuStreamDestroy_v2", d.destroy_stream) &&
         find(library, "cuStreamSynchronize", d.synchronise_stream) && find(library, "cuEventCreate", d.create_event) &&
         find(library, "cuEventDestroy_v2", d.destroy_event) && find(library, "cuMemcpyDtoHAsync_v2", d.copy_to_host) &&
         find(library, "cuMemcpyHtoDAsync_v2", d.copy_to_card);
}

}  // namespace

Status find_cuda_functions(CudaDriver& driver, void* library, void* (*symbol)(void* library, const char* name)) {
  driver = {};
  if (!find_all({library, symbol}, driver))
    return {Code::kUnsupported, "the NVIDIA driver must be of CUDA 12 or later: a function is missing", 0};
  return ok_status();
}

}  // namespace reprise
