// Implements flash_banks.h. The payload is written first and the header last.
#include "ports/cortex_m/flash_banks.h"

namespace reprise {
namespace {

struct Banks {
  uint32_t newest = 1;             // Number of the newest bank; 1 if there is none, so that bank 0 is written first.
  const BankHeader* header = nullptr;  // Header of the newest bank; null: there is none.
};

uint32_t bank_bytes(const Flash& flash) { return flash.bytes / 2; }

Status check_flash(const Plan& plan, const Flash& flash) {
  const bool has_sectors =
      flash.sector_bytes > 0 && flash.sector_bytes % kBankUnit == 0 && flash.bytes % (2 * flash.sector_bytes) == 0;
  if (!has_sectors || reinterpret_cast<uintptr_t>(flash.base) % alignof(BankHeader) != 0) {
    return {Code::kUnsupported, "a flash must be an even number of sectors of whole units, at an address of 8 bytes",
            flash.sector_bytes};
  }
  const uint64_t needed = sizeof(BankHeader) + payload_bytes(plan);
  if (needed > bank_bytes(flash))
    return {Code::kArenaTooSmall, "each bank of the flash must hold the plan's State and its seal", needed};
  return ok_status();
}

Banks find_banks(const Flash& flash) {
  Banks banks;
  for (uint32_t b = 0; b < 2; ++b) {
    const BankHeader* const header = whole_bank(flash.base + b * bank_bytes(flash), bank_bytes(flash));
    if (header != nullptr && (banks.header == nullptr || header->sequence > banks.header->sequence))
      banks = {b, header};
  }
  return banks;
}

// A bank that is being written, at offset `at` of the flash. The payload follows the space for the
// header.
struct OpenBank {
  const Flash& flash;
  uint32_t at;

  Status program(uint64_t offset, const void* words, uint64_t bytes) const {
    return flash.program(flash.state, at + static_cast<uint32_t>(offset), words, static_cast<uint32_t>(bytes));
  }
};

// Writes the header, which is the last part of a bank, and checks the complete bank. This function
// is not inlined, so that a header and a piece of the payload are never on the stack at the same
// time.
[[gnu::noinline]] Status write_bank_header(const Trainer& trainer, const OpenBank& bank, uint64_t sequence,
                                   uint32_t payload_checksum) {
  BankHeader header;
  make_bank_header(trainer, sequence, payload_checksum, header);
  REPRISE_RETURN_IF_ERROR(bank.program(0, &header, sizeof header));
  const BankHeader* const written = whole_bank(bank.flash.base + bank.at, bank_bytes(bank.flash));
  if (written != nullptr && written->checksum == header.checksum) return ok_status();
  return {Code::kInputOutput, "the flash does not hold what was written: it is worn out, or its driver wrong", bank.at};
}

}  // namespace

Status save_to_flash(const Trainer& trainer, const Flash& flash) {
  REPRISE_RETURN_IF_ERROR(check_flash(*trainer.plan, flash));
  const Banks banks = find_banks(flash);
  const OpenBank bank = {flash, (1 - banks.newest) * bank_bytes(flash)};
  const uint64_t sequence = banks.header == nullptr ? 1 : banks.header->sequence + 1;
  const uint64_t bytes = sizeof(BankHeader) + payload_bytes(*trainer.plan);
  for (uint32_t at = 0; at < bytes; at += flash.sector_bytes)
    REPRISE_RETURN_IF_ERROR(flash.erase(flash.state, bank.at + at));
  const auto write = [](void* state, uint64_t at, const void* piece, uint64_t count) {
    return static_cast<const OpenBank*>(state)->program(sizeof(BankHeader) + at, piece, count);
  };
  uint32_t checksum = 0;
  REPRISE_RETURN_IF_ERROR(write_payload(trainer, {const_cast<OpenBank*>(&bank), write}, checksum));
  return write_bank_header(trainer, bank, sequence, checksum);
}

Status load_from_flash(Trainer& trainer, const Flash& flash, bool& found) {
  found = false;
  REPRISE_RETURN_IF_ERROR(check_flash(*trainer.plan, flash));
  const Banks banks = find_banks(flash);
  if (banks.header == nullptr) return ok_status();
  REPRISE_RETURN_IF_ERROR(check_bank(*banks.header, trainer));
  REPRISE_RETURN_IF_ERROR(read_bank(trainer, *banks.header));
  found = true;
  return ok_status();
}

}  // namespace reprise
