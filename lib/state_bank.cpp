// See state_bank.h. The functions use little stack: a board calls them on the stack of its main
// program.
#include "lib/state_bank.h"

#include <bit>
#include <cstddef>
#include <cstring>

#include "lib/assert.h"
#include "lib/program_run.h"

namespace reprise {

static_assert(std::endian::native == std::endian::little, "a bank is memory as it lies");

namespace {

constexpr uint64_t kPiece = 64;
constexpr uint32_t kCheckedBytes = offsetof(BankHeader, checksum);

// The CRC-32 of each value of four bits. The table needs only sixteen words of a board's flash.
constexpr uint32_t kOfNibble[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                    0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                    0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

// True if a bank contains tensors of this kind. It does not contain scalars and norms, which belong
// to a step. It does not contain tables, which are in the plan, or streamed tensors, which are in a
// file.
constexpr bool is_banked(StateKind kind) {
  return kind == StateKind::kParameter || kind == StateKind::kBuffer || kind == StateKind::kOptimizer ||
         kind == StateKind::kOffloaded;
}
constexpr uint64_t whole_units(uint64_t bytes) { return (bytes + kBankUnit - 1) / kBankUnit * kBankUnit; }

uint32_t banked_tensors(const Plan& plan) {
  uint32_t count = 0;
  for (const StateTensor& state : plan.state) count += is_banked(state.kind) ? 1 : 0;
  return count;
}

constexpr uint64_t add_to_hash(uint64_t hash, uint64_t number) {
  for (uint32_t byte = 0; byte < 8; ++byte) hash = (hash ^ (number >> (8 * byte) & 0xff)) * 0x100000001b3u;
  return hash;
}

// Returns a set of ops, as bits: the ops with which the plan's programs update State.
uint64_t updates_of(const Plan& plan) {
  static_assert(static_cast<uint32_t>(Op::kShareInPlace) < 64);
  uint64_t updates = 0;
  for (const Program& program : plan.programs) {
    for (const Row& row : program.rows)
      updates |= row.pass == Pass::kUpdate ? uint64_t{1} << static_cast<uint32_t>(row.op) : 0;
  }
  return updates;
}

}  // namespace

uint32_t crc32(uint32_t before, const void* bytes, uint64_t count) {
  const unsigned char* const byte = static_cast<const unsigned char*>(bytes);
  uint32_t rest = ~before;
  for (uint64_t i = 0; i < count; ++i) {
    rest ^= byte[i];
    rest = rest >> 4 ^ kOfNibble[rest & 15];
    rest = rest >> 4 ^ kOfNibble[rest & 15];
  }
  return ~rest;
}

uint64_t state_identity(const Plan& plan) {
  uint64_t hash = add_to_hash(text_hash(""), updates_of(plan));
  for (const StateTensor& state : plan.state) {
    hash = add_to_hash(hash, static_cast<uint64_t>(state.kind) << 16 | static_cast<uint64_t>(state.tensor.dtype) << 8 |
                                 state.tensor.rank);
    for (const uint32_t side : state.tensor.shape) hash = add_to_hash(hash, side);
    hash = add_to_hash(hash, text_hash(state.name));
  }
  for (const float number : plan.numbers) hash = add_to_hash(hash, std::bit_cast<uint32_t>(number));
  return hash;
}

uint64_t payload_bytes(const Plan& plan) {
  uint64_t bytes = 0;
  for (const StateTensor& state : plan.state)
    bytes += is_banked(state.kind) ? whole_units(state.tensor.used_bytes()) : 0;
  return bytes;
}

Status write_payload(const Trainer& trainer, const BankSink& sink, uint32_t& checksum) {
  const Plan& plan = *trainer.plan;
  checksum = 0;
  uint64_t place = 0;
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (!is_banked(plan.state[i].kind)) continue;
    const uint64_t used = plan.state[i].tensor.used_bytes();
    for (uint64_t at = 0; at < used; at += kPiece) {
      unsigned char piece[kPiece] = {};
      const uint64_t count = smaller_of(kPiece, used - at), units = whole_units(count);
      REPRISE_RETURN_IF_ERROR(trainer.read_state(i, at, piece, count));
      checksum = crc32(checksum, piece, units);
      REPRISE_RETURN_IF_ERROR(sink.write(sink.state, place, piece, units));
      place += units;
    }
  }
  return ok_status();
}

void make_bank_header(const Trainer& trainer, uint64_t sequence, uint32_t payload_checksum, BankHeader& header) {
  const Plan& plan = *trainer.plan;
  // Clears the header in place: a board's stack has no space for a second header.
  std::memset(&header, 0, sizeof header);
  header.magic = kBankMagic;
  header.format = kBankFormat;
  header.sequence = sequence;
  header.step = trainer.step;
  header.identity = state_identity(plan);
  header.seed = plan.seed;
  header.payload_bytes = payload_bytes(plan);
  header.plan_format = plan.format;
  header.tensors = banked_tensors(plan);
  const uint64_t letters = std::strlen(trainer.backend->kernel_set);
  REPRISE_ASSERT(letters < sizeof header.kernel_set, "a seal has room for the kernel set's name");
  std::memcpy(header.kernel_set, trainer.backend->kernel_set, letters);
  header.payload_checksum = payload_checksum;
  header.checksum = crc32(0, &header, kCheckedBytes);
}

const BankHeader* whole_bank(const unsigned char* bytes, uint64_t space) {
  if (space < sizeof(BankHeader)) return nullptr;
  const BankHeader* const header = reinterpret_cast<const BankHeader*>(bytes);
  if (header->magic != kBankMagic || crc32(0, header, kCheckedBytes) != header->checksum) return nullptr;
  if (header->payload_bytes > space - sizeof(BankHeader)) return nullptr;
  return crc32(0, header + 1, header->payload_bytes) == header->payload_checksum ? header : nullptr;
}

Status check_bank(const BankHeader& header, const Trainer& trainer) {
  if (header.format != kBankFormat)
    return {Code::kUnsupported, "the bank was written in another format than this library's", header.format};
  if (std::strncmp(header.kernel_set, trainer.backend->kernel_set, sizeof header.kernel_set) != 0) {
    return {Code::kUnsupported,
            "the bank's State was trained by other kernels, whose bits are others: take the kernel set that it names",
            0};
  }
  const Plan& plan = *trainer.plan;
  const bool same_sizes = header.tensors == banked_tensors(plan) && header.payload_bytes == payload_bytes(plan);
  if (!same_sizes || header.plan_format != plan.format || header.identity != state_identity(plan))
    return {Code::kUnsupported, "the bank holds another plan's State", header.identity};
  if (header.seed != plan.seed)
    return {Code::kUnsupported, "the bank's State is of a training with another seed", header.seed};
  return ok_status();
}

Status read_bank(Trainer& trainer, const BankHeader& header) {
  const Plan& plan = *trainer.plan;
  REPRISE_ASSERT(header.identity == state_identity(plan) && header.payload_bytes == payload_bytes(plan),
                 "a bank is read after check_bank() has accepted it");
  const unsigned char* payload = reinterpret_cast<const unsigned char*>(&header + 1);
  for (uint32_t i = 0; i < plan.state.count; ++i) {
    if (!is_banked(plan.state[i].kind)) continue;
    const uint64_t used = plan.state[i].tensor.used_bytes();
    REPRISE_RETURN_IF_ERROR(trainer.write_state(i, 0, payload, used));
    payload += whole_units(used);
  }
  trainer.step = header.step;
  trainer.generated = 0;
  return ok_status();
}

}  // namespace reprise
