// The functions of NVIDIA's driver that the port calls, found in libcuda.so.1 at run time. So a
// program that can use a card also starts on a machine without one, and reports what is missing.
// Tests give the port a driver of their own, which fails at the calls that a test chooses.
//
// The types are those of cuda.h (CUDA 12 and 13, "CUDA Driver API"), declared without that header.
// Handles are void*, addresses on the card are uint64_t. Every function returns a CUresult, which
// is 0 for success.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/status.h"

namespace reprise {

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc, with the values for pinned memory of one
// device that is not shared with other processes. tests/ports/cards/cuda_driver_test.sh compares
// them with cuda.h.
struct CudaMemoryLocation {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int device = 0;
};
struct CudaMemoryKind {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int shared_by = 0;  // CU_MEM_HANDLE_TYPE_NONE
  CudaMemoryLocation location;
  void* windows = nullptr;  // win32HandleMetaData
  unsigned char flags[8] = {};
};
struct CudaMemoryAccess {
  CudaMemoryLocation location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

// The values of CUdevice_attribute that the port reads.
enum class CudaDeviceFact : int {
  kMultiprocessors = 16,
  kIsIntegrated = 18,
  kMajor = 75,
  kMinor = 76,
  kHasVirtualMemory = 102
};

// Pointers to the driver's functions; driver_functions.cpp lists their names.
struct CudaDriver {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);  // The text has static storage.
  int (*version)(int* version);                     // CUDA version of the driver: 13000 for 13.0.
  int (*device_count)(int* count);
  int (*device)(int* device, int ordinal);
  int (*device_name)(char* name, int bytes, int device);
  int (*device_fact)(int* value, CudaDeviceFact fact, int device);
  int (*retain_context)(void** context, int device);  // retains the primary context, which CUDA's runtime also uses
  int (*release_context)(int device);
  int (*set_context)(void* context);  // makes a context current for the calling thread
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
  int (*stream_priorities)(int* minimum, int* greatest);
  int (*create_stream)(void** stream, unsigned flags, int priority);
  int (*destroy_stream)(void* stream);
  int (*synchronise_stream)(void* stream);
  int (*create_event)(void** event, unsigned flags);
  int (*destroy_event)(void* event);
  int (*copy_to_host)(void* to, uint64_t from, size_t bytes, void* stream);
  int (*copy_to_card)(uint64_t to, const void* from, size_t bytes, void* stream);
};

// Loads the driver's library and finds the functions in it. Returns kUnsupported if there is no
// driver, or if a function is missing.
Status load_cuda_driver(CudaDriver& driver);

// Finds all functions in `library`; `symbol` (dlsym) finds one function by its name. Returns
// kUnsupported if a function is missing.
Status find_cuda_functions(CudaDriver& driver, void* library, void* (*symbol)(void* library, const char* name));

// Returns the Status of a CUresult, with the driver's own text; the detail is the CUresult.
inline Status driver_status(const CudaDriver& driver, int error) {
  if (error == 0) return ok_status();
  const char* text = nullptr;
  if (driver.error_text(error, &text) != 0 || text == nullptr) text = "the driver failed, and does not say how";
  return {Code::kBackend, text, static_cast<uint64_t>(error)};
}

}  // namespace reprise
