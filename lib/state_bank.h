// A bank: all of State that outlives a run, as bytes after a checksummed header (BankHeader). A
// board's flash (ports/cortex_m/flash_banks.h) and a host's file (tools/run/snapshots/bank_file.h)
// use the same format. So a training can move from one to the other.
//
//   | header | parameters, buffers, moments: in the plan's order, each padded with zeros to units |
//
// The header is written last. It identifies the payload, and its checksums cover the payload and
// the header itself. So a bank that was written only in part is invalid.
#pragma once

#include "lib/trainer.h"

namespace reprise {

constexpr uint32_t kBankMagic = 0x4b425052, kBankFormat = 1;  // "RPBK" in memory
constexpr uint32_t kBankUnit = 32;                            // Bytes of a unit; every write has whole units.

// The header of a bank. Numbers are little-endian. Later formats must keep the offsets of `magic`,
// `format`, `sequence` and `checksum`.
struct BankHeader {
  uint32_t magic, format;      // kBankMagic and kBankFormat.
  uint64_t sequence;           // The newer of two banks has the larger number.
  uint64_t step;               // Number of steps done.
  uint64_t identity;           // state_identity() of the plan
  uint64_t seed;               // The plan's seed. Seed and step determine a step's random numbers.
  uint64_t payload_bytes;      // Bytes after the header.
  uint32_t plan_format, tensors;  // kPlanFormat; number of tensors in the payload.
  char kernel_set[96];            // Backend::kernel_set, which ends with a zero.
  uint32_t payload_checksum;      // CRC-32 of the payload.
  uint32_t checksum;              // CRC-32 of the header's bytes before this field.
};
static_assert(sizeof(BankHeader) == 160 && sizeof(BankHeader) % kBankUnit == 0);

// Returns the CRC-32 of IEEE 802.3, as in zlib and Ethernet: polynomial 0xedb88320, lowest bit
// first. `before` is the CRC of the bytes that precede bytes[count]; 0 if there are none.
uint32_t crc32(uint32_t before, const void* bytes, uint64_t count);

// Returns the FNV-1a hash, 64 bits, of all that defines State. It covers the kind, type, shape and
// name of each tensor, the numbers of tables, and the optimizers that update State. It does not
// cover budget, learning rate and batch, so a training may continue with other values of these.
uint64_t state_identity(const Plan& plan);

// Returns the bytes of the plan's payload; the header of a bank has sizeof(BankHeader) more.
uint64_t payload_bytes(const Plan& plan);

// The destination of a payload. write() receives `bytes` bytes, which are whole units, for offset
// `at` of the payload. The pieces are small, and their offsets increase.
struct BankSink {
  void* state = nullptr;  // Passed to write().
  Status (*write)(void* state, uint64_t at, const void* piece, uint64_t bytes) = nullptr;
};
// Writes the payload to `sink`; call it between steps. Sets `checksum` to the CRC-32 of the
// payload, for the header, which the caller writes last.
Status write_payload(const Trainer& trainer, const BankSink& sink, uint32_t& checksum);
// Fills `header` with the header of the trainer's bank.
void make_bank_header(const Trainer& trainer, uint64_t sequence, uint32_t payload_checksum, BankHeader& header);

// Returns the header of the bank at the start of bytes[space], whose address must be aligned to 8
// bytes. Returns null if there is no complete bank or a checksum is wrong.
const BankHeader* whole_bank(const unsigned char* bytes, uint64_t space);

// Checks that a training with the trainer's plan and kernels can continue from a bank as if it had
// not stopped. Returns kUnsupported, with the reason, if it cannot. The bank must have passed
// whole_bank().
Status check_bank(const BankHeader& header, const Trainer& trainer);

// Sets State and step from a bank that has passed whole_bank() and check_bank(). The payload must
// follow the header in memory.
Status read_bank(Trainer& trainer, const BankHeader& header);

}  // namespace reprise
