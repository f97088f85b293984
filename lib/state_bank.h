// A bank: all of State that outlives a run, as bytes behind a seal, for the flash of a board (ports/cortex_m/flash_banks.h) and for a file of the
// host (tools/snapshots/bank_file.h).
// Here because both must mean the same by a byte: a run goes from one to the other in the middle of a training.
//
//   | seal | parameters, buffers and moments in the plan's order, as State holds them, each padded with zeros to whole units |
//
// The seal is written last. It names what the bytes are, and its checksums cover them and itself: a bank that was written in part is none.
#pragma once

#include "lib/trainer.h"

namespace reprise {

constexpr uint32_t kBankMagic = 0x4b425052, kBankFormat = 1;  // "RPBK" as a processor stores it
constexpr uint32_t kBankUnit = 32;                            // bytes; all that is written is whole units

// Numbers are little-endian. A later format leaves `magic`, `format`, `sequence` and `checksum` where they are.
struct BankSeal {
  uint32_t magic, format;
  uint64_t sequence;           // of two banks the one with the larger number is the newer
  uint64_t step;               // steps done
  uint64_t identity;           // state_identity() of the plan
  uint64_t seed;               // the plan's: what a step draws at random follows from it and from `step`
  uint64_t payload_bytes;      // behind the seal
  uint32_t plan_format, tensors;  // kPlanFormat; how many the payload has
  char kernel_set[96];         // ended by a zero
  uint32_t payload_checksum;   // CRC-32
  uint32_t checksum;           // of the seal in front of this field
};
static_assert(sizeof(BankSeal) == 160 && sizeof(BankSeal) % kBankUnit == 0);

// CRC-32 of IEEE 802.3, as zlib and Ethernet have it: polynomial 0xedb88320, of the lowest bit first. `before`: of the bytes in front of these; 0: none.
uint32_t crc32(uint32_t before, const void* bytes, uint64_t count);

// FNV-1a, 64 bits, of what makes State the same: kind, type, shape and name of each tensor, the numbers of tables, and which optimizers update it.
// Not of the budget, the learning rate or the batch: with these a training may go on as it likes.
uint64_t state_identity(const Plan& plan);

// Of the plan's payload: a bank takes so many and a seal's.
uint64_t payload_bytes(const Plan& plan);

// Where a payload goes: `bytes` of them, whole units, `at` from its start. Pieces come in their order and are small.
struct BankSink {
  void* state = nullptr;
  Status (*write)(void* state, uint64_t at, const void* piece, uint64_t bytes) = nullptr;
};
// Between steps. The payload's checksum is what its seal must hold, which the caller writes last.
Status write_payload(const Trainer& trainer, const BankSink& sink, uint32_t& checksum);
void make_seal(const Trainer& trainer, uint64_t sequence, uint32_t payload_checksum, BankSeal& seal);

// The seal of these `room` bytes, 8-byte aligned, where they begin with a whole bank; null: they do not, or some byte of it is not what was written.
const BankSeal* whole_bank(const unsigned char* bytes, uint64_t room);

// Whether a training of the trainer's plan, with its kernels, goes on from a whole bank as if nobody had stopped it. kUnsupported, with a line that
// says why not.
Status check_bank(const BankSeal& seal, const Trainer& trainer);

// State and step become those of a bank that is whole and has been checked, and whose payload follows the seal in memory.
Status read_bank(Trainer& trainer, const BankSeal& seal);

}  // namespace reprise
