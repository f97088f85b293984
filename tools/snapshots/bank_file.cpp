// See bank_file.h.
#include "tools/snapshots/bank_file.h"

#include <filesystem>
#include <iostream>

#include "lib/state_bank.h"
#include "tools/formats/error.h"
#include "tools/formats/output.h"
#include "tools/formats/output_file.h"
#include "tools/formats/snapshot_directory.h"
#include "tools/progress/shown_output.h"
#include "tools/snapshots/snapshot.h"

namespace reprise {
namespace {

void require(const std::string& who, const Status& status) {
  if (!status.ok()) throw UserError(who + ": " + status.message);
}

// A trainer that runs nothing: State, and the name of the kernels that trained it.
class HeldState {
 public:
  HeldState(const BankTraining& training, const std::string& kernel_set) : port_(training.port), kernel_set_(kernel_set), plan_(training.plan.view()) {
    const std::string& name = training.recipe.name;
    if (training.recipe.lora) throw UserError(name + ": lora: a bank holds all of State, and the snapshot of an adapter its own weights alone");
    const bool is_whole = plan_.ranks == 1 && plan_.streamed_bytes == 0 && offloaded_bytes(plan_) == 0;
    if (!is_whole) throw UserError(name + ": a bank holds the State of one process in its arena; this plan has ranks, or streams weights or keeps moments elsewhere");
    require(name, port_.open_backend(plan_.backend, &backend_));
    const Status taken = port_.acquire_arena(plan_.state_bytes, &trainer_.arena);
    if (!taken.ok()) port_.close_backend(&backend_);
    require(name, taken);
    backend_.kernel_set = kernel_set_.c_str();
    trainer_.plan = &plan_;
    trainer_.backend = &backend_;
  }
  ~HeldState() {
    port_.release_arena(&trainer_.arena);
    port_.close_backend(&backend_);
  }
  HeldState(const HeldState&) = delete;
  HeldState& operator=(const HeldState&) = delete;

  Trainer& trainer() { return trainer_; }
  BankReport report() const { return {trainer_.step, sizeof(BankSeal) + payload_bytes(plan_), kernel_set_}; }

 private:
  const Port& port_;
  const std::string kernel_set_;
  const Plan plan_;
  Backend backend_ = {};
  Trainer trainer_;
};

// The newest whole bank of a file's bytes: a bank, or a region of two. A string's bytes are aligned as malloc's are.
const BankSeal& bank_in(const std::string& bytes, const std::string& path) {
  const unsigned char* const first = reinterpret_cast<const unsigned char*>(bytes.data());
  const uint64_t half = bytes.size() / 2;
  const BankSeal* const one = whole_bank(first, bytes.size());
  const BankSeal* const other = half % alignof(BankSeal) == 0 ? whole_bank(first + half, half) : nullptr;
  const BankSeal* const newest = other != nullptr && (one == nullptr || other->sequence > one->sequence) ? other : one;
  if (newest == nullptr) throw UserError(path + ": holds no whole bank: it must be a bank of a board's flash, or its region of two, as it was read from there");
  return *newest;
}

// A bank that was made here is the first of its region; a board numbers those that it saves from there.
constexpr uint64_t kFirstSequence = 1;
bool is_first_bank(const std::string& path) {
  try {
    const std::string bytes = read_file(path);
    const BankSeal* const seal = whole_bank(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    return seal != nullptr && seal->sequence == kFirstSequence;
  } catch (const UserError&) {
    return false;
  }
}
constexpr OutputKind kBankFile = {"bank", is_first_bank, true};

}  // namespace

BankReport write_bank_file(const BankTraining& training, const std::string& snapshot, const std::string& image) {
  const Output output(image, kBankFile, training.inputs);
  const SnapshotFacts facts = read_facts(snapshot);
  HeldState held(training, facts.kernel_set);
  for (const std::string& warning : resume_snapshot(held.trainer(), training.recipe, &facts.data, snapshot)) warn(warning);
  std::string payload;
  const auto append = [](void* to, uint64_t, const void* piece, uint64_t bytes) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(piece), bytes);
    return ok_status();
  };
  uint32_t checksum = 0;
  require(snapshot, write_payload(held.trainer(), {&payload, append}, checksum));
  BankSeal seal;
  make_seal(held.trainer(), kFirstSequence, checksum, seal);
  output.write(std::string(reinterpret_cast<const char*>(&seal), sizeof seal) + payload);
  return held.report();
}

BankReport write_bank_snapshot(const BankTraining& training, const std::string& image, const std::string& folder) {
  const std::string bytes = read_file(image);
  const BankSeal& seal = bank_in(bytes, image);
  require_replaceable(folder, snapshot_folder(), training.inputs);
  HeldState held(training, seal.kernel_set);
  require(image, check_bank(seal, held.trainer()));
  require(image, read_bank(held.trainer(), seal));
  SnapshotFacts facts;
  facts.texts = texts_of(training.recipe);
  SnapshotDirectory directory(folder, snapshot_folder(), training.inputs);
  save_snapshot(held.trainer(), training.recipe, facts, directory);
  return held.report();
}

}  // namespace reprise
