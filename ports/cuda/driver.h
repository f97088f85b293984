// The functions of NVIDIA's driver that the port calls, found in libcuda.so.1 when the program runs.
// Here because a program that can use a card must start, and say what is missing, on a machine without one; and because tests give the
// port a driver of their own, which fails where they want.
//
// Types are those of cuda.h (CUDA 12 and 13, "CUDA Driver API"), spelled without it: handles are void*, addresses on the card uint64_t,
// and every function answers a CUresult, 0 for success.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/status.h"

namespace reprise {

// CUmemLocation and CUmemAllocationProp: pinned memory of one device, which nobody shares. tests/ports/cuda_driver_layout.cu compares
// them with cuda.h.
struct CudaMemoryLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
};
struct CudaMemoryKind {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int shared_by = 0;
  CudaMemoryLocation location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
struct CudaMemoryAccess {
  CudaMemoryLocation location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

enum class CudaDeviceFact : int { kMultiprocessors = 16, kIsIntegrated = 18, kMajor = 75, kMinor = 76, kHasVirtualMemory = 102 };

struct CudaDriver {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);  // of static storage
  int (*version)(int* version);                     // of CUDA that the driver knows, 13000 for 13.0
  int (*device_count)(int* count);
  int (*device)(int* device, int ordinal);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_fact)(int* value, CudaDeviceFact fact, int device);
  int (*retain_context)(void** context, int device);  // the one that CUDA's run time uses
  int (*release_context)(int device);
  int (*set_context)(void* context);  // of the calling thread
  int (*memory)(size_t* free_bytes, size_t* total_bytes);

  int (*allocate)(uint64_t* address, size_t bytes);
  int (*free)(uint64_t address);
  int (*granularity)(size_t* bytes, const CudaMemoryKind* kind, int recommended);
  int (*reserve_addresses)(uint64_t* address, size_t bytes, size_t alignment, uint64_t wish, unsigned long long flags);
  int (*free_addresses)(uint64_t address, size_t bytes);
  int (*create)(unsigned long long* handle, size_t bytes, const CudaMemoryKind* kind, unsigned long long flags);
  int (*release)(unsigned long long handle);
  int (*map)(uint64_t address, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
  int (*unmap)(uint64_t address, size_t bytes);
  int (*set_access)(uint64_t address, size_t bytes, const CudaMemoryAccess* access, size_t count);

  int (*allocate_pinned)(void** memory, size_t bytes);
  int (*free_pinned)(void* memory);
  int (*stream_priorities)(int* least, int* greatest);
  int (*create_stream)(void** stream, unsigned flags, int priority);
  int (*destroy_stream)(void* stream);
  int (*synchronise_stream)(void* stream);
  int (*create_event)(void** event, unsigned flags);
  int (*destroy_event)(void* event);
  int (*copy_to_host)(void* to, uint64_t from, size_t bytes, void* stream);
  int (*copy_to_card)(uint64_t to, const void* from, size_t bytes, void* stream);
};

// kUnsupported where there is no driver, or one that lacks a function.
Status load_cuda_driver(CudaDriver& driver);

// All of them from a library, where `symbol` (dlsym) finds them by name. kUnsupported where one is missing.
Status find_cuda_functions(CudaDriver& driver, void* library, void* (*symbol)(void* library, const char* name));

// In the driver's own words; detail is the CUresult.
inline Status driver_status(const CudaDriver& driver, int error) {
  if (error == 0) return ok_status();
  const char* text = nullptr;
  if (driver.error_text(error, &text) != 0 || text == nullptr) text = "the driver failed, and does not say how";
  return {Code::kBackend, text, static_cast<uint64_t>(error)};
}

}  // namespace reprise
