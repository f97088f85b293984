// A driver of NVIDIA's for tests: one card whose memory is the host's, and which fails where a test wants.
// Here so that the CUDA port runs without a card: with the fibres it trains whole nets. A test that uses it gets it instead of
// ports/cuda/driver.cpp, because it defines load_cuda_driver too.
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
  uint64_t taken_by_files = 0;   // of an integrated card: counted as taken, and given to whoever asks
  std::set<std::string> fails = {};  // members of CudaDriver, by name: these answer CUDA_ERROR_OUT_OF_MEMORY

  std::set<std::string> lacks = {};  // functions of the driver's library, by their names there

  // What the port has taken and not given back; `calls`: how often it asked for memory of any kind.
  uint64_t held_bytes = 0, held_things = 0, calls = 0, reserved_bytes = 0;
  uint64_t old_calls = 0;  // of functions whose names lack a version: the driver has them for programs with addresses of 32 bits
};
FakeCudaCard& fake_cuda_card();
// As dlsym: its functions have the types and the structs of cuda_driver_abi.h.
void* fake_driver_symbol(void* library, const char* name);

}  // namespace reprise::test
