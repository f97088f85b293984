// Implements card.h: queries the driver, and retains the card's primary context.
#include "ports/cuda/card.h"

#include "cuda/cuda_rules.h"

namespace reprise {
namespace {

constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

Status fact(const CudaDriver& driver, const Card& card, CudaDeviceFact which, int& value) {
  return driver_status(driver, driver.device_fact(&value, which, card.device));
}

Status find_device(const CudaDriver& driver, Card& card) {
  constexpr Status kNone = {Code::kUnsupported,
                            "no NVIDIA card here that this process may use (CUDA_VISIBLE_DEVICES hides cards)", 0};
  const int started = driver.init(0);
  if (started == kNoDevice) return kNone;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, started));
  int count = 0, version = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.version(&version)));
  card.driver_version = static_cast<uint32_t>(version);
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.device_count(&count)));
  if (count == 0) return kNone;
  return driver_status(driver, driver.device(&card.device, 0));
}

Status read_facts(const CudaDriver& driver, Card& card) {
  int major = 0, minor = 0, multiprocessors = 0, is_integrated = 0, has_virtual_memory = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.device_name(card.name, sizeof card.name, card.device)));
  REPRISE_RETURN_IF_ERROR(fact(driver, card, CudaDeviceFact::kMajor, major));
  REPRISE_RETURN_IF_ERROR(fact(driver, card, CudaDeviceFact::kMinor, minor));
  REPRISE_RETURN_IF_ERROR(fact(driver, card, CudaDeviceFact::kMultiprocessors, multiprocessors));
  REPRISE_RETURN_IF_ERROR(fact(driver, card, CudaDeviceFact::kIsIntegrated, is_integrated));
  REPRISE_RETURN_IF_ERROR(fact(driver, card, CudaDeviceFact::kHasVirtualMemory, has_virtual_memory));
  card.architecture = static_cast<uint32_t>(10 * major + minor);
  card.multiprocessors = static_cast<uint32_t>(multiprocessors);
  card.is_integrated = is_integrated != 0;
  card.has_virtual_memory = has_virtual_memory != 0;
  return ok_status();
}

Status open_context(const CudaDriver& driver, Card& card) {
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.retain_context(&card.context, card.device)));
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.set_context(card.context)));
  size_t free_bytes = 0, total_bytes = 0;
  REPRISE_RETURN_IF_ERROR(driver_status(driver, driver.memory(&free_bytes, &total_bytes)));
  card.free_bytes = free_bytes;
  card.total_bytes = total_bytes;
  return ok_status();
}

}  // namespace

Status open_card(const CudaDriver& driver, Card& card) {
  card = {};
  REPRISE_RETURN_IF_ERROR(find_device(driver, card));
  REPRISE_RETURN_IF_ERROR(read_facts(driver, card));
  if (card.architecture < kMinArchitecture) {
    return {Code::kUnsupported, "the card must be sm_80 or later, and is older", card.architecture};
  }
  const Status opened = open_context(driver, card);
  if (!opened.ok()) close_card(driver, card);
  return opened;
}

void close_card(const CudaDriver& driver, Card& card) {
  if (card.context == nullptr) return;
  (void)driver.set_context(nullptr);
  (void)driver.release_context(card.device);
  card.context = nullptr;
}

uint64_t card_space_bytes(uint64_t free_bytes) {
  return free_bytes > kCudaRules.headroom_bytes ? free_bytes - kCudaRules.headroom_bytes : 0;
}

HostShare card_host_share(const LinuxMemory& memory, uint64_t pinned_bytes) {
  const uint64_t taken = memory.total_bytes > memory.available_bytes ? memory.total_bytes - memory.available_bytes : 0;
  return kCudaRules.host_share(memory.total_bytes, taken > pinned_bytes ? taken - pinned_bytes : 0);
}

}  // namespace reprise
