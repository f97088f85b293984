// The functions of NVIDIA's driver that the port calls, as the driver exports them: names with
// versions, and how arguments are passed. Without its version a name means another function, with
// 32-bit addresses. This mistake would only show on a real card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace reprise::test {

// A function of the driver. `headers` is the name in a program, `name` the exported name. If they
// differ, cuda.h defines the first as the second, and the driver still exports the first name, for
// the old function. `arguments` has a character for each argument: p for a pointer or handle, 4 or
// 8 for a number of 4 or 8 bytes.
struct DriverFunction {
  const char* headers;
  const char* name;
  const char* arguments;
};
constexpr DriverFunction kDriverFunctions[] = {
    {"cuInit", "cuInit", "4"},
    {"cuGetErrorString", "cuGetErrorString", "4p"},
    {"cuDriverGetVersion", "cuDriverGetVersion", "p"},
    {"cuDeviceGetCount", "cuDeviceGetCount", "p"},
    {"cuDeviceGet", "cuDeviceGet", "p4"},
    {"cuDeviceGetName", "cuDeviceGetName", "p44"},
    {"cuDeviceGetAttribute", "cuDeviceGetAttribute", "p44"},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", "p4"},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "4"},
    {"cuCtxSetCurrent", "cuCtxSetCurrent", "p"},
    {"cuMemGetInfo", "cuMemGetInfo_v2", "pp"},
    {"cuMemAlloc", "cuMemAlloc_v2", "p8"},
    {"cuMemFree", "cuMemFree_v2", "8"},
    {"cuMemGetAllocationGranularity", "cuMemGetAllocationGranularity", "pp4"},
    {"cuMemAddressReserve", "cuMemAddressReserve", "p8888"},
    {"cuMemAddressFree", "cuMemAddressFree", "88"},
    {"cuMemCreate", "cuMemCreate", "p8p8"},
    {"cuMemRelease", "cuMemRelease", "8"},
    {"cuMemMap", "cuMemMap", "88888"},
    {"cuMemUnmap", "cuMemUnmap", "88"},
    {"cuMemSetAccess", "cuMemSetAccess", "88p8"},
    {"cuMemAllocHost", "cuMemAllocHost_v2", "p8"},
    {"cuMemFreeHost", "cuMemFreeHost", "p"},
    {"cuCtxGetStreamPriorityRange", "cuCtxGetStreamPriorityRange", "pp"},
    {"cuStreamCreateWithPriority", "cuStreamCreateWithPriority", "p44"},
    {"cuStreamDestroy", "cuStreamDestroy_v2", "p"},
    {"cuStreamSynchronize", "cuStreamSynchronize", "p"},
    {"cuEventCreate", "cuEventCreate", "p4"},
    {"cuEventDestroy", "cuEventDestroy_v2", "p"},
    {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", "p88p"},
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", "8p8p"},
};

// Returns the character for an argument of this type, as in DriverFunction::arguments.
template <typename Argument>
constexpr char way_of() {
  return std::is_pointer_v<Argument> ? 'p' : sizeof(Argument) == 4 ? '4' : sizeof(Argument) == 8 ? '8' : '?';
}
template <typename Answer, typename... Arguments>
std::string arguments_of(Answer (*)(Arguments...)) {
  static_assert(sizeof(Answer) == 4, "every function answers a CUresult");
  return {way_of<Arguments>()...};
}

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc as a driver reads them.
struct DriverLocation {
  int type, id;
};
struct DriverAllocation {
  int type, requested_handle_types;
  DriverLocation location;
  void* win32_handle_data;
  unsigned char compression_type, gpu_direct_capable;
  unsigned short usage;
  unsigned char reserved[4];
};
struct DriverAccess {
  DriverLocation location;
  int flags;
};
static_assert(sizeof(DriverLocation) == 8 && sizeof(DriverAllocation) == 32 && sizeof(DriverAccess) == 12);

}  // namespace reprise::test
