// Implements fake_cuda_driver.h. The driver's streams and events are those of the fibres.
#include "tests/ports/fibres/cuda_fibre.h"

#include "tests/ports/cards/fake_cuda_driver.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <new>

#include "tests/ports/cards/cuda_driver_abi.h"

namespace reprise::test {
namespace {

constexpr int kOutOfMemory = 2, kNoDevice = 100, kInvalidValue = 1;
constexpr int kMinPriority = 3;
constexpr std::align_val_t kAlignment{4096};

FakeCudaCard card;
std::map<uint64_t, uint64_t> plain, created, mapped, reserved;  // key: address or handle; value: bytes
unsigned long long last_handle = 76;

int answer(const char* name) { return card.fails.count(name) != 0 ? kOutOfMemory : 0; }

// Counts `bytes` as allocated on the card; fails if the card does not have them or if a test
// requests that the function `name` fails.
int take(const char* name, uint64_t bytes) {
  ++card.calls;
  if (answer(name) != 0 || card.live_bytes + card.taken_by_others + bytes > card.total_bytes) return kOutOfMemory;
  card.live_bytes += bytes;
  ++card.live_resources;
  return 0;
}
void give(uint64_t bytes) {
  card.live_bytes -= bytes;
  --card.live_resources;
}

void* make_memory(uint64_t bytes) {
  void* memory = ::operator new(bytes, kAlignment);
  std::memset(memory, 0xff, bytes);
  return memory;
}
uint64_t number(void* memory) { return reinterpret_cast<uintptr_t>(memory); }
void destroy_memory(uint64_t address) { ::operator delete(reinterpret_cast<void*>(address), kAlignment); }

int error_text(int error, const char** text) {
  *text = error == kOutOfMemory ? "out of memory" : "a fake error";
  return 0;
}

int device_fact(int* value, CudaDeviceFact fact, int) {
  switch (fact) {
    case CudaDeviceFact::kMultiprocessors: *value = 8; break;
    case CudaDeviceFact::kIsIntegrated: *value = card.is_integrated; break;
    case CudaDeviceFact::kMajor: *value = card.major; break;
    case CudaDeviceFact::kMinor: *value = card.minor; break;
    case CudaDeviceFact::kHasVirtualMemory: *value = card.has_virtual_memory; break;
  }
  return answer("device_fact");
}

int memory(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = card.total_bytes - card.taken_by_others - card.taken_by_files - card.live_bytes;
  *total_bytes = card.total_bytes;
  return answer("memory");
}

int allocate(uint64_t* address, size_t bytes) {
  if (const int error = take("allocate", bytes); error != 0) return error;
  *address = number(make_memory(bytes));
  plain[*address] = bytes;
  return 0;
}
int free_plain(uint64_t address) {
  if (plain.count(address) == 0) return kInvalidValue;
  give(plain[address]);
  plain.erase(address);
  destroy_memory(address);
  return 0;
}

// Reserves addresses. They are host memory from the start, because the physical memory of this card
// is only a number.
int reserve_addresses(uint64_t* address, size_t bytes, size_t, uint64_t, unsigned long long) {
  ++card.calls;
  if (answer("reserve_addresses") != 0 || bytes % card.granularity != 0) return kOutOfMemory;
  *address = number(make_memory(bytes));
  reserved[*address] = bytes;
  card.reserved_bytes = bytes;
  ++card.live_resources;
  return 0;
}
int free_addresses(uint64_t address, size_t bytes) {
  if (reserved.count(address) == 0 || reserved[address] != bytes) return kInvalidValue;
  const auto first = mapped.lower_bound(address);
  if (first != mapped.end() && first->first < address + bytes) return kInvalidValue;
  reserved.erase(address);
  --card.live_resources;
  destroy_memory(address);
  return 0;
}
// True if a driver would read the struct as a request for plain memory of device 0: all other
// fields are 0.
bool is_device_memory(const void* kind) {
  DriverAllocation as;
  std::memcpy(&as, kind, sizeof as);
  const bool has_extras = as.requested_handle_types != 0 || as.win32_handle_data != nullptr ||
                          as.compression_type != 0 || as.gpu_direct_capable != 0 || as.usage != 0 ||
                          std::any_of(std::begin(as.reserved), std::end(as.reserved), [](int b) { return b != 0; });
  return as.type == 1 && as.location.type == 1 && as.location.id == 0 && !has_extras;
}
int granularity(size_t* bytes, const void* kind, int) {
  *bytes = card.granularity;
  return is_device_memory(kind) ? answer("granularity") : kInvalidValue;
}
int set_access(uint64_t, size_t, const void* access, size_t count) {
  DriverAccess as;
  std::memcpy(&as, access, sizeof as);
  return count == 1 && as.location.type == 1 && as.location.id == 0 && as.flags == 3 ? answer("set_access")
                                                                                     : kInvalidValue;
}
int create(unsigned long long* handle, size_t bytes, const void* kind, unsigned long long) {
  if (!is_device_memory(kind)) return kInvalidValue;
  if (const int error = take("create", bytes); error != 0) return error;
  *handle = ++last_handle;
  created[*handle] = bytes;
  return 0;
}
int release(unsigned long long handle) {
  if (created.count(handle) == 0) return kInvalidValue;
  give(created[handle]);
  created.erase(handle);
  return 0;
}
int map(uint64_t address, size_t bytes, size_t, unsigned long long handle, unsigned long long) {
  const auto behind = reserved.upper_bound(address);
  if (answer("map") != 0 || behind == reserved.begin() || created[handle] != bytes) return kOutOfMemory;
  const auto& [begin, size] = *std::prev(behind);
  if (address + bytes > begin + size) return kOutOfMemory;
  const auto next = mapped.upper_bound(address);  // no other mapping may overlap
  if (next != mapped.end() && next->first < address + bytes) return kInvalidValue;
  if (next != mapped.begin() && std::prev(next)->first + std::prev(next)->second > address) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes);  // as if other programs had left content
  mapped[address] = bytes;
  ++card.live_resources;
  return 0;
}
// Unmaps a whole mapping, and overwrites its content.
int unmap(uint64_t address, size_t bytes) {
  if (mapped.count(address) == 0 || mapped[address] != bytes) return kInvalidValue;
  mapped.erase(address);
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes);
  --card.live_resources;
  return 0;
}

int allocate_pinned(void** memory, size_t bytes) {
  ++card.calls;
  if (answer("allocate_pinned") != 0) return kOutOfMemory;
  ++card.live_resources;
  *memory = make_memory(bytes);
  return 0;
}
int free_pinned(void* memory) {
  --card.live_resources;
  destroy_memory(number(memory));
  return 0;
}

// The kernels' queue: the first stream that the port creates.
void* queue = nullptr;

int stream_priorities(int* minimum, int* greatest) {
  if (answer("stream_priorities") != 0) return kOutOfMemory;
  *minimum = kMinPriority;
  *greatest = -5;
  return 0;
}
int create_stream(void** stream, unsigned flags, int priority) {
  if (answer("create_stream") != 0) return kOutOfMemory;
  if (priority != kMinPriority) return kInvalidValue;
  ++card.live_resources;
  const int error = cudaStreamCreateWithFlags(stream, flags);
  if (queue == nullptr) fibre::expect_queue(queue = *stream);
  return error;
}
int destroy_stream(void* stream) {
  --card.live_resources;
  if (stream == queue) fibre::expect_queue(queue = nullptr);
  return cudaStreamDestroy(stream);
}
int create_event(void** event, unsigned flags) {
  if (answer("create_event") != 0) return kOutOfMemory;
  ++card.live_resources;
  return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), flags);
}
int destroy_event(void* event) {
  --card.live_resources;
  return cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

// Copies immediately. The thread of the spill file calls this function, while the fibres' queue
// belongs to the training thread.
int copy_to_host(void* to, uint64_t from, size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return answer("copy_to_host");
}
int copy_to_card(uint64_t to, const void* from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return answer("copy_to_card");
}

int init(unsigned) { return card.has_card ? answer("init") : kNoDevice; }
int version(int* version) { return *version = card.driver_version, answer("version"); }
int device_count(int* count) { return *count = card.has_card, answer("device_count"); }
int device(int* device, int) { return *device = 0, answer("device"); }
int device_name(char* name, int bytes, int) {
  return std::snprintf(name, static_cast<size_t>(bytes), "Fake Orin"), answer("device_name");
}
int retain_context(void** context, int) { return *context = &card, ++card.live_resources, 0; }
int release_context(int) { return --card.live_resources, 0; }
int set_context(void*) { return answer("set_context"); }
int synchronise_stream(void*) { return answer("synchronise_stream"); }

// Counts the call and returns an error. The fake driver exports this function in place of each old
// function, whose name has no version, if a newer version exists.
int refuse_old() {
  ++card.old_calls;
  return kInvalidValue;
}

template <typename Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}
const std::map<std::string, void*>& symbols() {
  static const std::map<std::string, void*> kSymbols = [] {
    std::map<std::string, void*> all = {{"cuInit", address_of(init)},
                                        {"cuGetErrorString", address_of(error_text)},
                                        {"cuDriverGetVersion", address_of(version)},
                                        {"cuDeviceGetCount", address_of(device_count)},
                                        {"cuDeviceGet", address_of(device)},
                                        {"cuDeviceGetName", address_of(device_name)},
                                        {"cuDeviceGetAttribute", address_of(device_fact)},
                                        {"cuDevicePrimaryCtxRetain", address_of(retain_context)},
                                        {"cuDevicePrimaryCtxRelease_v2", address_of(release_context)},
                                        {"cuCtxSetCurrent", address_of(set_context)},
                                        {"cuMemGetInfo_v2", address_of(memory)},
                                        {"cuMemAlloc_v2", address_of(allocate)},
                                        {"cuMemFree_v2", address_of(free_plain)},
                                        {"cuMemGetAllocationGranularity", address_of(granularity)},
                                        {"cuMemAddressReserve", address_of(reserve_addresses)},
                                        {"cuMemAddressFree", address_of(free_addresses)},
                                        {"cuMemCreate", address_of(create)},
                                        {"cuMemRelease", address_of(release)},
                                        {"cuMemMap", address_of(map)},
                                        {"cuMemUnmap", address_of(unmap)},
                                        {"cuMemSetAccess", address_of(set_access)},
                                        {"cuMemAllocHost_v2", address_of(allocate_pinned)},
                                        {"cuMemFreeHost", address_of(free_pinned)},
                                        {"cuCtxGetStreamPriorityRange", address_of(stream_priorities)},
                                        {"cuStreamCreateWithPriority", address_of(create_stream)},
                                        {"cuStreamDestroy_v2", address_of(destroy_stream)},
                                        {"cuStreamSynchronize", address_of(synchronise_stream)},
                                        {"cuEventCreate", address_of(create_event)},
                                        {"cuEventDestroy_v2", address_of(destroy_event)},
                                        {"cuMemcpyDtoHAsync_v2", address_of(copy_to_host)},
                                        {"cuMemcpyHtoDAsync_v2", address_of(copy_to_card)}};
    for (const DriverFunction& each : kDriverFunctions) {
      if (std::strcmp(each.headers, each.name) != 0) all[each.headers] = address_of(refuse_old);
    }
    return all;
  }();
  return kSymbols;
}

}  // namespace

FakeCudaCard& fake_cuda_card() { return card; }

void* fake_driver_symbol(void*, const char* name) {
  const auto found = symbols().find(name);
  return found == symbols().end() || card.lacks.count(name) != 0 ? nullptr : found->second;
}

}  // namespace reprise::test

namespace reprise {

Status load_cuda_driver(CudaDriver& driver) {
  if (!test::card.has_driver) return {Code::kUnsupported, "no NVIDIA driver here: this one is a test's", 0};
  return find_cuda_functions(driver, nullptr, test::fake_driver_symbol);
}

}  // namespace reprise
