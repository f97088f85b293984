// See flash_banks.h.
#include "ports/cortex_m/flash_banks.h"

namespace reprise {
namespace {

struct Banks {
  uint32_t newest = 1;             // its number; where there is none, the other one is written first
  const BankSeal* seal = nullptr;  // of the newest; null: there is none
};

uint32_t bank_bytes(const Flash& flash) { return flash.bytes / 2; }

Status check_flash(const Plan& plan, const Flash& flash) {
  const bool has_sectors = flash.sector_bytes > 0 && flash.sector_bytes % kBankUnit == 0 && flash.bytes % (2 * flash.sector_bytes) == 0;
  if (!has_sectors || reinterpret_cast<uintptr_t>(flash.base) % alignof(BankSeal) != 0) {
    return {Code::kUnsupported, "a flash must be an even number of sectors of whole units, at an address of 8 bytes", flash.sector_bytes};
  }
  const uint64_t needed = sizeof(BankSeal) + payload_bytes(plan);
  if (needed > bank_bytes(flash)) return {Code::kArenaTooSmall, "each bank of the flash must hold the plan's State and its seal", needed};
  return ok_status();
}

Banks find_banks(const Flash& flash) {
  Banks banks;
  for (uint32_t b = 0; b < 2; ++b) {
    const BankSeal* const seal = whole_bank(flash.base + b * bank_bytes(flash), bank_bytes(flash));
    if (seal != nullptr && (banks.seal == nullptr || seal->sequence > banks.seal->sequence)) banks = {b, seal};
  }
  return banks;
}

// Where a payload goes, behind the room of its seal.
struct OpenBank {
  const Flash& flash;
  uint32_t at;

  Status program(uint64_t offset, const void* words, uint64_t bytes) const {
    return flash.program(flash.state, at + static_cast<uint32_t>(offset), words, static_cast<uint32_t>(bytes));
  }
};

// The last that is written of a bank; then all of it is looked at. Not inlined, so that a seal and a piece of the payload are never on the stack at once.
[[gnu::noinline]] Status seal_bank(const Trainer& trainer, const OpenBank& bank, uint64_t sequence, uint32_t payload_checksum) {
  BankSeal seal;
  make_seal(trainer, sequence, payload_checksum, seal);
  REPRISE_RETURN_IF_ERROR(bank.program(0, &seal, sizeof seal));
  const BankSeal* const written = whole_bank(bank.flash.base + bank.at, bank_bytes(bank.flash));
  if (written != nullptr && written->checksum == seal.checksum) return ok_status();
  return {Code::kInputOutput, "the flash does not hold what was written: it is worn out, or its driver wrong", bank.at};
}

}  // namespace

Status save_to_flash(const Trainer& trainer, const Flash& flash) {
  REPRISE_RETURN_IF_ERROR(check_flash(*trainer.plan, flash));
  const Banks banks = find_banks(flash);
  const OpenBank bank = {flash, (1 - banks.newest) * bank_bytes(flash)};
  const uint64_t sequence = banks.seal == nullptr ? 1 : banks.seal->sequence + 1;
  const uint64_t bytes = sizeof(BankSeal) + payload_bytes(*trainer.plan);
  for (uint32_t at = 0; at < bytes; at += flash.sector_bytes) REPRISE_RETURN_IF_ERROR(flash.erase(flash.state, bank.at + at));
  const auto write = [](void* state, uint64_t at, const void* piece, uint64_t count) {
    return static_cast<const OpenBank*>(state)->program(sizeof(BankSeal) + at, piece, count);
  };
  uint32_t checksum = 0;
  REPRISE_RETURN_IF_ERROR(write_payload(trainer, {const_cast<OpenBank*>(&bank), write}, checksum));
  return seal_bank(trainer, bank, sequence, checksum);
}

Status load_from_flash(Trainer& trainer, const Flash& flash, bool& found) {
  found = false;
  REPRISE_RETURN_IF_ERROR(check_flash(*trainer.plan, flash));
  const Banks banks = find_banks(flash);
  if (banks.seal == nullptr) return ok_status();
  REPRISE_RETURN_IF_ERROR(check_bank(*banks.seal, trainer));
  REPRISE_RETURN_IF_ERROR(read_bank(trainer, *banks.seal));
  found = true;
  return ok_status();
}

}  // namespace reprise
