// A driver that replaces NVIDIA's in tests. It has one card, whose memory is host memory, and whose
// functions fail if a test requests it. With it the CUDA port runs without a card; together with
// the fibres it trains complete nets. A test links this file instead of ports/cuda/driver.cpp: both
// define load_cuda_driver.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "ports/cuda/driver.h"

namespace reprise::test {

struct FakeCudaCard {
  bool has_driver = true, has_card = true, is_integrated = false, has_virtual_memory = true;
  int major = 8, minor = 7, driver_version = 13000;
  uint64_t total_bytes = uint64_t{8} << 30, taken_by_others = 0, granularity = uint64_t{2} << 20;
  uint64_t taken_by_files = 0;   // bytes that an integrated card reports as occupied, but can allocate
  std::set<std::string> fails = {};  // names of members of CudaDriver that return CUDA_ERROR_OUT_OF_MEMORY

  std::set<std::string> lacks = {};  // names of functions that the library does not export

  // `live_bytes` and `live_resources`: bytes of the card's memory, and number of resources, that
  // the port has allocated and not freed. `calls`: number of requests for memory or addresses.
  // `reserved_bytes`: bytes of the last reservation of addresses.
  uint64_t live_bytes = 0, live_resources = 0, calls = 0, reserved_bytes = 0;
  // Number of calls by names without a version, which a driver exports for programs with 32-bit
  // addresses.
  uint64_t old_calls = 0;
};
FakeCudaCard& fake_cuda_card();
// Returns the address of the fake driver's function `name`, as dlsym does. The functions have the
// types and structs of cuda_driver_abi.h.
void* fake_driver_symbol(void* library, const char* name);

}  // namespace reprise::test
