// See fake_cuda_driver.h. Streams and events are those of the fibres.
#include "tests/ports/cuda_fibre.h"

#include "tests/ports/fake_cuda_driver.h"

#include <cstdio>
#include <cstring>
#include <iterator>
#include <map>
#include <new>

namespace reprise::test {
namespace {

constexpr int kOutOfMemory = 2, kNoDevice = 100, kInvalidValue = 1;
constexpr std::align_val_t kAlignment{4096};

FakeCudaCard card;
std::map<uint64_t, uint64_t> plain, created, mapped, reserved;  // address or handle to bytes
unsigned long long last_handle = 76;

int answer(const char* name) { return card.fails.count(name) != 0 ? kOutOfMemory : 0; }

// Takes `bytes` of the card.
int take(const char* name, uint64_t bytes) {
  ++card.calls;
  if (answer(name) != 0 || card.held_bytes + card.taken_by_others + bytes > card.total_bytes) return kOutOfMemory;
  card.held_bytes += bytes;
  ++card.held_things;
  return 0;
}
void give(uint64_t bytes) {
  card.held_bytes -= bytes;
  --card.held_things;
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
  *free_bytes = card.total_bytes - card.taken_by_others - card.held_bytes;
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

// Addresses are memory of the host from the start; physical memory is a number.
int reserve_addresses(uint64_t* address, size_t bytes, size_t, uint64_t, unsigned long long) {
  ++card.calls;
  if (answer("reserve_addresses") != 0 || bytes % card.granularity != 0) return kOutOfMemory;
  *address = number(make_memory(bytes));
  reserved[*address] = bytes;
  card.reserved_bytes = bytes;
  ++card.held_things;
  return 0;
}
int free_addresses(uint64_t address, size_t bytes) {
  if (reserved.count(address) == 0 || reserved[address] != bytes) return kInvalidValue;
  const auto first = mapped.lower_bound(address);
  if (first != mapped.end() && first->first < address + bytes) return kInvalidValue;
  reserved.erase(address);
  --card.held_things;
  destroy_memory(address);
  return 0;
}
int create(unsigned long long* handle, size_t bytes, const CudaMemoryKind*, unsigned long long) {
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
  const auto next = mapped.upper_bound(address);  // no other mapping may lie there
  if (next != mapped.end() && next->first < address + bytes) return kInvalidValue;
  if (next != mapped.begin() && std::prev(next)->first + std::prev(next)->second > address) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes);  // what others have left there
  mapped[address] = bytes;
  ++card.held_things;
  return 0;
}
// Whole mappings alone. What was there is gone.
int unmap(uint64_t address, size_t bytes) {
  if (mapped.count(address) == 0 || mapped[address] != bytes) return kInvalidValue;
  mapped.erase(address);
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes);
  --card.held_things;
  return 0;
}

int allocate_pinned(void** memory, size_t bytes) {
  ++card.calls;
  if (answer("allocate_pinned") != 0) return kOutOfMemory;
  ++card.held_things;
  *memory = make_memory(bytes);
  return 0;
}
int free_pinned(void* memory) {
  --card.held_things;
  destroy_memory(number(memory));
  return 0;
}

int create_stream(void** stream, unsigned flags) {
  if (answer("create_stream") != 0) return kOutOfMemory;
  ++card.held_things;
  return cudaStreamCreateWithFlags(stream, flags);
}
int destroy_stream(void* stream) {
  --card.held_things;
  return cudaStreamDestroy(stream);
}
int create_event(void** event, unsigned flags) {
  if (answer("create_event") != 0) return kOutOfMemory;
  ++card.held_things;
  return cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), flags);
}
int destroy_event(void* event) {
  --card.held_things;
  return cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

// The spill file's thread copies at once: the fibres' queue belongs to the thread that trains.
int copy_to_host(void* to, uint64_t from, size_t bytes, void*) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return answer("copy_to_host");
}
int copy_to_card(uint64_t to, const void* from, size_t bytes, void*) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return answer("copy_to_card");
}

}  // namespace

FakeCudaCard& fake_cuda_card() { return card; }

}  // namespace reprise::test

namespace reprise {

Status load_cuda_driver(CudaDriver& driver) {
  using namespace test;
  if (!card.has_driver) return {Code::kUnsupported, "no NVIDIA driver here: this one is a test's", 0};
  driver = {.init = [](unsigned) { return card.has_card ? answer("init") : kNoDevice; },
            .error_text = error_text,
            .version = [](int* version) { return *version = card.driver_version, answer("version"); },
            .device_count = [](int* count) { return *count = card.has_card, answer("device_count"); },
            .device = [](int* device, int) { return *device = 0, answer("device"); },
            .device_name = [](char* name, int bytes, int) { return std::snprintf(name, static_cast<size_t>(bytes), "Fake Orin"), answer("device_name"); },
            .device_fact = device_fact,
            .retain_context = [](void** context, int) { return *context = &card, ++card.held_things, 0; },
            .release_context = [](int) { return --card.held_things, 0; },
            .set_context = [](void*) { return answer("set_context"); },
            .memory = memory,
            .allocate = allocate,
            .free = free_plain,
            .granularity = [](size_t* bytes, const CudaMemoryKind*, int) { return *bytes = card.granularity, answer("granularity"); },
            .reserve_addresses = reserve_addresses,
            .free_addresses = free_addresses,
            .create = create,
            .release = release,
            .map = map,
            .unmap = unmap,
            .set_access = [](uint64_t, size_t, const CudaMemoryAccess*, size_t) { return answer("set_access"); },
            .allocate_pinned = allocate_pinned,
            .free_pinned = free_pinned,
            .create_stream = create_stream,
            .destroy_stream = destroy_stream,
            .synchronise_stream = [](void*) { return answer("synchronise_stream"); },
            .create_event = create_event,
            .destroy_event = destroy_event,
            .copy_to_host = copy_to_host,
            .copy_to_card = copy_to_card};
  return ok_status();
}

}  // namespace reprise
