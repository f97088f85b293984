// The accesses to a block's bytes that are not inlined, and what a fault of one says.
#include "tests/ports/cuda_fibre_memory.h"

namespace reprise::fibre {
namespace {

std::string thread_text() { return "thread " + std::to_string(Device::instance().thread()); }

std::string bytes_text(uint32_t offset, uint32_t bytes, int line) {
  return "bytes " + std::to_string(offset) + " to " + std::to_string(offset + uint64_t{bytes}) + " at line " +
         std::to_string(line);
}

}  // namespace

void fail_access(const Finding& finding, const char* verb, const std::string& place) {
  Device::instance().fail(finding.fault, thread_text() + verb + place + text_of(finding));
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
  Device::instance().fail(Fault::kLaunch, "a kernel that takes " + std::to_string(said) + " bytes of dynamic shared memory is launched with " +
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
  const Finding finding = device.shared().read(at, bytes, device.now(), value);
  if (finding.fault != Fault::kNone) fibre::fail_access(finding, " reads ", fibre::bytes_text(offset, bytes, line));
}

void SharedBytes::store_bytes(const void* value, uint32_t offset, uint32_t bytes, int line) const {
  Device& device = Device::instance();
  const uint32_t at = address(offset, bytes, bytes, line);
  device.note_access(WarpAccesses::kStores, line, at, bytes);
  const Finding finding = device.shared().write(at, bytes, device.now(), value);
  if (finding.fault != Fault::kNone) fibre::fail_access(finding, " writes ", fibre::bytes_text(offset, bytes, line));
}

}  // namespace reprise
