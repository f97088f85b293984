// The machine that replays a plan (replay.h): an arena of terms, and the effect of each row on it.
// A kernel is a function of its arguments as op.h defines it; only rows over groups of tensors
// (updates and norms) have rules of their own. The machine does not trust the lifetimes, hints and
// slot names of the plan.
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

// The exception that a machine throws at the first fault. replay.cpp catches it and ends the run.
struct Wrong {
  std::string reason;
};

// Where a tensor is stored: in the arena, the second level, or the file of streamed weights.
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
  // Sets the machines of all ranks, including this one, which run their programs row by row
  // together. Without this call the machine is the only rank.
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
    Term old = kNoTerm;  // term in this memory before the row; kNoTerm if the row does not read it
  };

  void run_row(const Row& row);

  // ---- transfers: the destination is garbage until the wait, and the source must not change ----

  struct OpenTransfer {
    ReplayTensor to, from;
    Term term = kNoTerm;
  };

  void transfer(const Row& row);
  void gather_rows(const Row& row, const Ref* refs);
  void start_transfer(const ReplayTensor& to, const ReplayTensor& from);
  void end_transfer(const ReplayTensor& to, const ReplayTensor& from, std::optional<Term> arrives = std::nullopt);
  void share_in_place(const Row& row, const Ref* refs);
  bool is_of_another_rank() const;
  uint32_t root_of(const Row& row) const;
  // Returns the term that the root sends in the share in progress whose destination is `to`. All
  // ranks must have started that share.
  Term shared_term(const Row& row, const ReplayTensor& to) const;
  ReplayTensor resolve_any(Ref ref) const;
  void require_attribute(const Row& row) const;
  ReplayTensor resolve(Ref ref) const;
  Term read(const ReplayTensor& place, const char* what) const;
  void gather(const Row& row);

  // Requires that argument i is state[0], the StepScalars, and that no row has overwritten its
  // memory. The fields are separate terms in `scalars`.
  void require_scalars(uint32_t i) const;
  bool walks_norms_or_groups() const;
  // True if the row reads the term that argument i contains before the row. False for the
  // StepScalars, and in rows over groups and norms, which have their own rules.
  bool needs_old(uint32_t i) const;

  // Throws if an output overlaps another argument of the row. The row's in-place pair and a move
  // may overlap.
  void refuse_overlaps() const;

  // Replaces a call that folds batch-norm by the equivalent plain rows. The call becomes the last
  // of these rows; its inputs become the terms that the earlier rows would compute. Inputs are in
  // the order of kOps. Also replaces an embedding of gathered rows (gather_rows).
  void unfold(Application& call);
  // Returns output i of a convolution that computes statistics of its output: the mean or the rstd.
  // It is the term that a separate row of statistics would give.
  Term statistic(const Row& row, const Application& call, uint32_t i);
  // Returns the term of batch-norm; the inputs are x, mean, rstd, gamma, beta.
  Term norm(const std::vector<Term>& inputs);
  Term relu(Term x);
  Application application(const Row& row) const;
  void append_scalars(Application& call) const;
  void note_read(uint32_t i, Term term);
  void note_written(uint32_t i, Term term);

  // Returns the new term of output i.
  Term written(const Row& row, const Application& call, uint32_t i);
  void apply(const Row& row);

  // ---- groups ----

  void destroy_scratch();
  // Returns the index of the argument that is the group of gradients: the only group that an update
  // reads and does not change. It follows the groups that the update changes.
  uint32_t gradients_argument() const;

  // Runs the update of a group. The row's attribute states its number of elements, counted from the
  // first tensor of each argument on. Requires that the tensors of the arguments correspond.
  void update_group(const Row& row);
  std::vector<uint64_t> offsets_in_group(uint64_t address, uint64_t bytes) const;
  void update_tensor(const Row& row, uint64_t offset, uint32_t last);

  // Runs a row that computes the norms of a group. Tensor t of the group, counted from 0, gives
  // entry first_norm + t of the norms.
  void reduce_group(const Row& row);
  void finish_norm(const Row& row);

  const Plan& plan_;
  TermTable& terms_;
  const uint32_t rank_;
  TermMemory stores_[3];                 // in the order of Store
  std::vector<OpenTransfer> under_way_;  // transfers in progress
  struct Shared {
    Term term = kNoTerm;
    uint32_t root = 0;  // rank that sends the term
  };
  std::map<uint64_t, Shared> shared_;         // terms of the shares in progress; key: address of the destination
  std::vector<TermMachine*> ranks_ = {this};  // the machine of each rank
  struct Gathered {
    Term table = kNoTerm, tokens = kNoTerm, places = kNoTerm;
  };
  std::map<Term, Gathered> gathered_;  // key: the term of the gathered rows
  std::vector<RowTerms>* trace_ = nullptr;
  const Program* program_ = nullptr;
  std::vector<std::vector<Ref>> births_, deaths_;  // slots and disk blocks that are born or die, by row
  uint32_t row_ = ~0u;
  const KernelInfo* kernel_ = nullptr;  // kernel of the current row; refs_ and arguments_ are also those of this row
  const Ref* refs_ = nullptr;
  std::vector<Argument> arguments_;  // in the order of kOps
};

}  // namespace reprise::testing
