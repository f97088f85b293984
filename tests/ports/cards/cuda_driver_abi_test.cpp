// Checks that the port requests each driver function by its exported name with version, and calls
// it with the driver's argument types. Also checks that the port refuses a driver that has only the
// older functions, and that the fake driver refuses a struct with another layout. The port includes
// no CUDA header, so an argument of wrong width would otherwise fail only on a card.
#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <map>

#include "tests/ports/cards/cuda_driver_abi.h"
#include "tests/ports/cards/fake_cuda_driver.h"

namespace reprise::test {
namespace {

// A member of CudaDriver, which is a pointer to a function: a getter of its value, and a text for
// its argument types.
struct Member {
  void* (*address)(const CudaDriver&);
  std::string arguments;
};
template <auto kMember>
Member member() {
  return {[](const CudaDriver& driver) { return reinterpret_cast<void*>(driver.*kMember); },
          arguments_of(CudaDriver{}.*kMember)};
}
// All members, in the order of CudaDriver.
const Member kMembers[] = {member<&CudaDriver::init>(),
                           member<&CudaDriver::error_text>(),
                           member<&CudaDriver::version>(),
                           member<&CudaDriver::device_count>(),
                           member<&CudaDriver::device>(),
                           member<&CudaDriver::device_name>(),
                           member<&CudaDriver::device_fact>(),
                           member<&CudaDriver::retain_context>(),
                           member<&CudaDriver::release_context>(),
                           member<&CudaDriver::set_context>(),
                           member<&CudaDriver::memory>(),
                           member<&CudaDriver::allocate>(),
                           member<&CudaDriver::free>(),
                           member<&CudaDriver::granularity>(),
                           member<&CudaDriver::reserve_addresses>(),
                           member<&CudaDriver::free_addresses>(),
                           member<&CudaDriver::create>(),
                           member<&CudaDriver::release>(),
                           member<&CudaDriver::map>(),
                           member<&CudaDriver::unmap>(),
                           member<&CudaDriver::set_access>(),
                           member<&CudaDriver::allocate_pinned>(),
                           member<&CudaDriver::free_pinned>(),
                           member<&CudaDriver::stream_priorities>(),
                           member<&CudaDriver::create_stream>(),
                           member<&CudaDriver::destroy_stream>(),
                           member<&CudaDriver::synchronise_stream>(),
                           member<&CudaDriver::create_event>(),
                           member<&CudaDriver::destroy_event>(),
                           member<&CudaDriver::copy_to_host>(),
                           member<&CudaDriver::copy_to_card>()};
static_assert(std::size(kMembers) * sizeof(void*) == sizeof(CudaDriver), "every member is judged");

class CudaDriverAbi : public ::testing::Test {
 protected:
  void SetUp() override { fake_cuda_card() = {}; }
};

TEST_F(CudaDriverAbi, EveryFunctionIsCalledByItsOwnNameAndAsTheDriverHasIt) {
  CudaDriver driver;
  ASSERT_TRUE(find_cuda_functions(driver, nullptr, fake_driver_symbol).ok());
  std::map<void*, DriverFunction> by_address;
  for (const DriverFunction& each : kDriverFunctions) {
    void* const address = fake_driver_symbol(nullptr, each.name);
    ASSERT_NE(address, nullptr) << each.name;
    EXPECT_TRUE(by_address.insert({address, each}).second) << each.name;
  }
  ASSERT_EQ(std::size(kMembers), std::size(kDriverFunctions));
  for (size_t i = 0; i < std::size(kMembers); ++i) {
    const auto found = by_address.find(kMembers[i].address(driver));
    ASSERT_NE(found, by_address.end()) << "member " << i << " is a function without its version";
    EXPECT_EQ(kMembers[i].arguments, found->second.arguments) << found->second.name;
    by_address.erase(found);
  }
  EXPECT_TRUE(by_address.empty());
}

TEST_F(CudaDriverAbi, ADriverWithoutOneOfThemIsRefused) {
  for (const DriverFunction& each : kDriverFunctions) {
    fake_cuda_card().lacks = {each.name};
    CudaDriver driver;
    EXPECT_EQ(find_cuda_functions(driver, nullptr, fake_driver_symbol).code, Code::kUnsupported) << each.name;
  }
}

// Finds a symbol by its name without the version. A port that used the names in the documentation
// would do this.
void* symbol_without_version(void* library, const char* name) {
  const std::string whole = name;
  const size_t version = whole.rfind("_v2");
  return fake_driver_symbol(library, whole.substr(0, version == std::string::npos ? whole.size() : version).c_str());
}

TEST_F(CudaDriverAbi, TheOldFunctionsAreSeenAndRefused) {
  CudaDriver driver;
  ASSERT_TRUE(find_cuda_functions(driver, nullptr, symbol_without_version).ok());
  uint64_t address = 0;
  size_t free_bytes = 0, total_bytes = 0;
  EXPECT_NE(driver.allocate(&address, 4096), 0);
  EXPECT_NE(driver.memory(&free_bytes, &total_bytes), 0);
  EXPECT_EQ(fake_cuda_card().old_calls, 2u);
  EXPECT_EQ(fake_cuda_card().live_resources, 0u);
}

TEST_F(CudaDriverAbi, AStructOfAnotherLayoutIsRefused) {
  static_assert(sizeof(CudaMemoryLocation) == sizeof(DriverLocation) &&
                sizeof(CudaMemoryKind) == sizeof(DriverAllocation) && sizeof(CudaMemoryAccess) == sizeof(DriverAccess));
  CudaDriver driver;
  ASSERT_TRUE(load_cuda_driver(driver).ok());
  const CudaMemoryKind right;
  size_t bytes = 0;
  EXPECT_EQ(driver.granularity(&bytes, &right, 1), 0);
  // First shifts the location into the place of the handle types, as if that member were missing.
  // Then changes each byte that a driver reads, one at a time.
  CudaMemoryKind shifted;
  std::memcpy(reinterpret_cast<unsigned char*>(&shifted) + offsetof(DriverAllocation, requested_handle_types),
              &right.location, sizeof right.location);
  EXPECT_NE(driver.granularity(&bytes, &shifted, 1), 0);
  for (size_t i = 0; i < sizeof right; ++i) {
    CudaMemoryKind changed = right;
    reinterpret_cast<unsigned char*>(&changed)[i] ^= 0x40;
    unsigned long long handle = 0;
    EXPECT_NE(driver.granularity(&bytes, &changed, 1), 0) << i;
    EXPECT_NE(driver.create(&handle, 1 << 21, &changed, 0), 0) << i;
  }
  for (size_t i = 0; i < sizeof(CudaMemoryAccess); ++i) {
    CudaMemoryAccess changed;
    reinterpret_cast<unsigned char*>(&changed)[i] ^= 0x40;
    EXPECT_NE(driver.set_access(0, 1 << 21, &changed, 1), 0) << i;
  }
  EXPECT_EQ(fake_cuda_card().live_resources, 0u);
}

}  // namespace
}  // namespace reprise::test
