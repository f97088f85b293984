// Implements cuda_fibre_memory.h: accesses to a block's shared memory, the texts of their faults,
// and atomics on global memory.
#include "tests/ports/fibres/cuda_fibre_memory.h"

#include <utility>

#include "tests/ports/fibres/code_places.h"
#include "tests/ports/fibres/cuda_fibre_access.h"

namespace reprise::fibre {
namespace {

std::string thread_text() { return "thread " + std::to_string(Device::instance().thread()); }

std::string bytes_text(uint32_t offset, uint32_t bytes, int line) {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset + uint64_t{bytes}) + " at line " +
         std::to_string(line);
}

Moment moment_of(const void* code) {
  Moment moment = Device::instance().now();
  moment.place = place_of(code);
  return moment;
}

// Reports a faulty access. The text contains the place of the access in the code if places are
// stored, that is, if the place of the earlier access is known.
[[noreturn]] void fail_access(const Finding& finding, const char* verb, const std::string& what, uint32_t place) {
  Device::instance().fail(finding.fault,
                          thread_text() + verb + what + code_text(finding.place == 0 ? 0 : place) + text_of(finding));
}

std::string text_of(const SharedElement& element) {
  return std::string(element.array) + "[" + std::to_string(element.index) + "]";
}

}  // namespace

void load_element(const SharedElement& element, void* value) {
  const Moment now = moment_of(__builtin_return_address(0));
  const Finding finding = Device::instance().shared().read(element.offset, element.bytes, now, value);
  if (finding.fault != Fault::kNone) [[unlikely]]
    fail_access(finding, " reads ", text_of(element), now.place);
}

void store_element(const SharedElement& element, const void* value) {
  const Moment now = moment_of(__builtin_return_address(0));
  const Finding finding = Device::instance().shared().write(element.offset, element.bytes, now, value);
  if (finding.fault != Fault::kNone) [[unlikely]]
    fail_access(finding, " writes ", text_of(element), now.place);
}

void fail_index(const char* name, uint64_t index, uint64_t count) {
  Device::instance().fail(Fault::kOutOfBounds, text_of({name, index, 0, 0}) + " of " + std::to_string(count));
}

void fail_allocation(const char* name, uint64_t bytes) {
  Device::instance().fail(Fault::kLaunch, std::string(name) + " needs " + std::to_string(bytes) +
                                              " bytes of shared memory, which the block does not have");
}

}  // namespace reprise::fibre

namespace reprise {

using fibre::Device;
using fibre::Fault;
using fibre::Finding;
using fibre::WarpAccesses;

void SharedBytes::fail_said(uint32_t said, uint32_t bytes) {
  Device::instance().fail(Fault::kLaunch, "a kernel that takes " + std::to_string(said) +
                                              " bytes of dynamic shared memory is launched with " +
                                              std::to_string(bytes));
}

void SharedBytes::fail_address(uint32_t offset, uint32_t bytes, uint32_t alignment, int line) const {
  const std::string text = fibre::thread_text() + " names " + fibre::bytes_text(offset, bytes, line);
  if (uint64_t{offset} + bytes > bytes_) {
    Device::instance().fail(Fault::kOutOfBounds, text + ", of " + std::to_string(bytes_));
  }
  Device::instance().fail(Fault::kMisaligned, text + ", not aligned to " + std::to_string(alignment));
}

void SharedBytes::load_bytes(void* value, uint32_t offset, uint32_t bytes, int line) const {
  Device& device = Device::instance();
  const uint32_t at = address(offset, bytes, bytes, line);
  device.note_access(WarpAccesses::kLoads, line, at, bytes);
  const fibre::Moment now = fibre::moment_of(__builtin_return_address(0));
  const Finding finding = device.shared().read(at, bytes, now, value);
  if (finding.fault != Fault::kNone) [[unlikely]]
    fibre::fail_access(finding, " reads ", fibre::bytes_text(offset, bytes, line), now.place);
}

void SharedBytes::store_bytes(const void* value, uint32_t offset, uint32_t bytes, int line) const {
  Device& device = Device::instance();
  const uint32_t at = address(offset, bytes, bytes, line);
  device.note_access(WarpAccesses::kStores, line, at, bytes);
  const fibre::Moment now = fibre::moment_of(__builtin_return_address(0));
  const Finding finding = device.shared().write(at, bytes, now, value);
  if (finding.fault != Fault::kNone) [[unlikely]]
    fibre::fail_access(finding, " writes ", fibre::bytes_text(offset, bytes, line), now.place);
}

}  // namespace reprise

// ---- atomics ----

namespace {

template <FibreAtomic T>
void announce(T* at, const void* code) {
  reprise::fibre::Device& device = reprise::fibre::Device::instance();
  if (device.judge() != nullptr)
    device.judge()->note_atomic(reinterpret_cast<uint64_t>(at), sizeof(T), reprise::fibre::place_of(code));
}

}  // namespace

template <FibreAtomic T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  announce(at, __builtin_return_address(0));
  return std::exchange(*at, *at + value);
}
template <FibreAtomic T>
T atomicMin(T* at, std::type_identity_t<T> value) {
  announce(at, __builtin_return_address(0));
  return std::exchange(*at, value < *at ? value : *at);
}
template <FibreAtomic T>
T atomicMax(T* at, std::type_identity_t<T> value) {
  announce(at, __builtin_return_address(0));
  return std::exchange(*at, value > *at ? value : *at);
}
template <FibreAtomic T>
T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  announce(at, __builtin_return_address(0));
  return std::exchange(*at, *at == expected ? value : *at);
}
template unsigned int atomicAdd(unsigned int*, unsigned int);
template unsigned int atomicMin(unsigned int*, unsigned int);
template unsigned int atomicMax(unsigned int*, unsigned int);
template unsigned int atomicCAS(unsigned int*, unsigned int, unsigned int);
template unsigned long long atomicAdd(unsigned long long*, unsigned long long);
template unsigned long long atomicMin(unsigned long long*, unsigned long long);
template unsigned long long atomicMax(unsigned long long*, unsigned long long);
template unsigned long long atomicCAS(unsigned long long*, unsigned long long, unsigned long long);
