// The machine that replays a plan (replay.h): an arena of terms, and what each row does to it.
// Kernels are functions of op.h's contract; only groups of tensors (update, norm) need rules of their own.
// Lifetimes, hints and names of slots are not believed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "tests/judges/expected_terms.h"
#include "tests/judges/replay.h"
#include "tests/judges/term_memory.h"

namespace reprise::testing {

// Thrown by a machine and caught by replay.cpp: the first thing that is wrong ends the run.
struct Wrong {
  std::string reason;
};

// The arena, the spill file, or the file of streamed weights.
enum class Store : uint8_t { kArena, kSpill, kFile };

struct ReplayTensor {
  uint64_t address = 0, reserved = 0;
  const Tensor* tensor = nullptr;
  Store store = Store::kArena;

  uint64_t bytes() const { return tensor->used_bytes(); }
  Form form() const { return form_of(*tensor); }
};

class TermMachine {
 public:
  TermMachine(const Plan& plan, TermTable& terms, uint32_t rank);
  // The ranks' machines, this one among them, which run their programs row by row together. Alone: this one.
  void know_ranks(const std::vector<TermMachine*>& ranks) { ranks_ = ranks; }
  void begin(ProgramId id, const std::string& batch, std::vector<RowTerms>* trace);
  void run_next_row();
  void end();

  uint32_t row() const { return row_; }
  Scalars scalars;

  Term state(uint32_t index) const;
  Term norm(uint32_t index, uint64_t entry) const;
  std::vector<Term> whole_state() const;

 private:
  static uint64_t norm_entry(const ReplayTensor& norms, uint64_t i) { return norms.address + i * sizeof(double); }

  void write(uint64_t address, uint64_t bytes, Term term);

  // ---- lifetimes ----

  void sort_lifetimes();
  void destroy_slots(const std::vector<Ref>& slots);
  ReplayTensor disk_place(uint32_t block) const;
  TermMemory& store(const ReplayTensor& place) { return stores_[static_cast<size_t>(place.store)]; }
  const TermMemory& store(const ReplayTensor& place) const { return stores_[static_cast<size_t>(place.store)]; }
  TermMemory& memory() { return stores_[0]; }
  const TermMemory& memory() const { return stores_[0]; }
  ReplayTensor state_place(uint32_t index) const;
  uint64_t offloaded_end() const;
  ReplayTensor slot_place(uint32_t s) const;

  template <typename Leaf>
  void host_writes(uint32_t slot, const std::string& batch, Leaf leaf) {
    if (slot == kNoSlot) return;
    if (slot >= program_->slots.count) throw Wrong{"the host's slot does not exist"};
    if (program_->slots[slot].first_row != 0) throw Wrong{"the host's slot is not there before the first row"};
    const ReplayTensor place = slot_place(slot);
    write(place.address, place.bytes(), leaf(terms_, batch, place.form()));
  }

  // ---- one row ----

  struct Argument {
    const ArgumentInfo* info = nullptr;
    ReplayTensor place;
    bool present = false, adds = false;
    Term old = kNoTerm;  // what stands there before the row, where the row needs it
  };

  void run_row(const Row& row);

  // ---- transfers: from start to wait the destination is garbage, and the source must keep what the start found ----

  struct OpenTransfer {
    ReplayTensor to, from;
    Term term = kNoTerm;
  };

  void transfer(const Row& row);
  void gather_rows(const Row& row, const Ref* refs);
  void start_transfer(const ReplayTensor& to, const ReplayTensor& from);
  void end_transfer(const ReplayTensor& to, const ReplayTensor& from, std::optional<Term> arrives = std::nullopt);
  void spread(const Row& row, const Ref* refs);
  bool is_of_another_rank() const;
  uint32_t root_of(const Row& row) const;
  // Of a share that has been started into `to` in all ranks: the root's.
  Term shared_term(const Row& row, const ReplayTensor& to) const;
  ReplayTensor resolve_any(Ref ref) const;
  void require_attribute(const Row& row) const;
  ReplayTensor resolve(Ref ref) const;
  Term read(const ReplayTensor& place, const char* what) const;
  void gather(const Row& row);

  // The StepScalars travel as a struct of terms; their bytes must be theirs alone.
  void require_scalars(uint32_t i) const;
  bool walks_norms_or_groups() const;
  // Groups and norms are looked at by rules of their own.
  bool needs_old(uint32_t i) const;

  // What a kernel writes may not lie on anything else that it names, but for its in-place pair and a move.
  void refuse_overlaps() const;

  // A row that folds batch-norm is judged as the plain rows that it stands for: what it reads becomes the value that those would
  // have stored, and its op theirs. Inputs come in the order of kOps.
  void unfold(Application& call);
  // Mean or rstd, output i of a convolution that takes them of what it writes: as of a row of their own.
  Term statistic(const Row& row, const Application& call, uint32_t i);
  // Of x, mean, rstd, gamma, beta.
  Term norm(const std::vector<Term>& inputs);
  Term relu(Term x);
  Application application(const Row& row) const;
  void append_scalars(Application& call) const;
  void note_read(uint32_t i, Term term);
  void note_written(uint32_t i, Term term);

  // What output i becomes.
  Term written(const Row& row, const Application& call, uint32_t i);
  void apply(const Row& row);

  // ---- groups ----

  void destroy_scratch();
  // The group that an update only reads: gradients follow what they update.
  uint32_t gradients_argument() const;

  // An update walks `elements` floats from the first tensor of each argument on: the tensors there must answer one
  // another.
  void update_group(const Row& row);
  std::vector<uint64_t> offsets_in_group(uint64_t address, uint64_t bytes) const;
  void update_tensor(const Row& row, uint64_t offset, uint32_t last);

  // Tensor t of the group, the one that follows the first by t in its region, goes into entry first_norm + t.
  void reduce_group(const Row& row);
  void finish_norm(const Row& row);

  const Plan& plan_;
  TermTable& terms_;
  const uint32_t rank_;
  TermMemory stores_[3];  // in the order of Store
  std::vector<OpenTransfer> under_way_;
  struct Shared {
    Term term = kNoTerm;
    uint32_t root = 0;  // whose term comes in its place
  };
  std::map<uint64_t, Shared> shared_;  // what a share that started last took from here, by where it goes
  std::vector<TermMachine*> ranks_ = {this};
  struct Gathered {
    Term table = kNoTerm, tokens = kNoTerm, places = kNoTerm;
  };
  std::map<Term, Gathered> gathered_;  // by the rows that came of it
  std::vector<RowTerms>* trace_ = nullptr;
  const Program* program_ = nullptr;
  std::vector<std::vector<Ref>> births_, deaths_;  // by row: slots and disk blocks
  uint32_t row_ = ~0u;
  const KernelInfo* kernel_ = nullptr;  // of the row being run, as the two below
  const Ref* refs_ = nullptr;
  std::vector<Argument> arguments_;
};

}  // namespace reprise::testing
