// See bank_file.h.
#include "tools/run/snapshots/bank_file.h"

#include <filesystem>
#include <iostream>

#include "lib/state_bank.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/snapshot_directory.h"
#include "tools/files/progress/shown_output.h"
#include "tools/run/snapshots/snapshot.h"

namespace reprise {
namespace {

void require(const std::string& who, const Status& status) {
  if (!status.ok()) throw UserError(who + ": " + status.message);
}

// A trainer that runs no programs. It has only State and the name of the kernel set that trained
// it.
class BankState {
 public:
  BankState(const BankTraining& training, const std::string& kernel_set)
      : port_(training.port), kernel_set_(kernel_set), plan_(training.plan.view()) {
    const std::string& name = training.recipe.name;
    if (training.recipe.lora)
      throw UserError(name + ": lora: a bank holds all of State, and the snapshot of an adapter its own weights alone");
    const bool is_whole = plan_.ranks == 1 && plan_.streamed_bytes == 0 && offloaded_bytes(plan_) == 0;
    if (!is_whole)
      throw UserError(name +
                      ": a bank holds the State of one process in its arena; this plan has ranks, or streams weights "
                      "or keeps moments elsewhere");
    require(name, port_.open_backend(plan_.backend, &backend_));
    const Status taken = port_.acquire_arena(plan_.state_bytes, &trainer_.arena);
    if (!taken.ok()) port_.close_backend(&backend_);
    require(name, taken);
    backend_.kernel_set = kernel_set_.c_str();
    trainer_.plan = &plan_;
    trainer_.backend = &backend_;
  }
  ~BankState() {
    port_.release_arena(&trainer_.arena);
    port_.close_backend(&backend_);
  }
  BankState(const BankState&) = delete;
  BankState& operator=(const BankState&) = delete;

  Trainer& trainer() { return trainer_; }
  BankReport report() const { return {trainer_.step, sizeof(BankHeader) + payload_bytes(plan_), kernel_set_}; }

 private:
  const Port& port_;
  const std::string kernel_set_;
  const Plan plan_;
  Backend backend_ = {};
  Trainer trainer_;
};

// Returns the newest complete bank in the bytes of a file, which is a bank or a region with two
// banks. The bytes of a string are aligned as by malloc, which a bank needs.
const BankHeader& bank_in(const std::string& bytes, const std::string& path) {
  const unsigned char* const first = reinterpret_cast<const unsigned char*>(bytes.data());
  const uint64_t half = bytes.size() / 2;
  const BankHeader* const one = whole_bank(first, bytes.size());
  const BankHeader* const other = half % alignof(BankHeader) == 0 ? whole_bank(first + half, half) : nullptr;
  const BankHeader* const newest =
      other != nullptr && (one == nullptr || other->sequence > one->sequence) ? other : one;
  if (newest == nullptr)
    throw UserError(
        path +
        ": holds no whole bank: it must be a bank of a board's flash, or its region of two, as it was read from there");
  return *newest;
}

// The sequence number of a bank that is written here, as for the first bank of a region. A board
// counts on from this number.
constexpr uint64_t kFirstSequence = 1;
bool is_first_bank(const std::string& path) {
  try {
    const std::string bytes = read_file(path);
    const BankHeader* const header = whole_bank(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return header != nullptr && header->sequence == kFirstSequence;
  } catch (const UserError&) {
    return false;
  }
}
constexpr OutputKind kBankFile = {"bank", is_first_bank, true};

}  // namespace

BankReport write_bank_file(const BankTraining& training, const std::string& snapshot, const std::string& image) {
  const Output output(image, kBankFile, training.inputs);
  const SnapshotFacts facts = read_facts(snapshot);
  BankState held(training, facts.kernel_set);
  for (const std::string& warning : resume_snapshot(held.trainer(), training.recipe, &facts.data, snapshot))
    warn(warning);
  std::string payload;
  const auto append = [](void* to, uint64_t, const void* piece, uint64_t bytes) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(piece), bytes);
    return ok_status();
  };
  uint32_t checksum = 0;
  require(snapshot, write_payload(held.trainer(), {&payload, append}, checksum));
  BankHeader header;
  make_bank_header(held.trainer(), kFirstSequence, checksum, header);
  output.write(std::string(reinterpret_cast<const char*>(&header), sizeof header) + payload);
  return held.report();
}

BankReport write_bank_snapshot(const BankTraining& training, const std::string& image, const std::string& folder) {
  const std::string bytes = read_file(image);
  const BankHeader& header = bank_in(bytes, image);
  require_replaceable(folder, snapshot_folder(), training.inputs);
  BankState held(training, header.kernel_set);
  require(image, check_bank(header, held.trainer()));
  require(image, read_bank(held.trainer(), header));
  SnapshotFacts facts;
  facts.texts = texts_of(training.recipe);
  SnapshotDirectory directory(folder, snapshot_folder(), training.inputs);
  save_snapshot(held.trainer(), training.recipe, facts, directory);
  return held.report();
}

}  // namespace reprise
