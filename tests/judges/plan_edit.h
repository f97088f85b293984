// Functions that edit rows and slots of a correct plan, or answer questions about rows. They are
// used to make mutants.
#pragma once

#include <utility>
#include <vector>

#include "tools/plan/lowering/owned_plan.h"

namespace reprise::testing {

const KernelInfo& kernel(const Row& row);
inline bool is_slot(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kProgram; }
inline bool is_disk(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kSpill; }
inline bool is_carried(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kCarried; }
inline bool is_local(Ref ref) { return is_slot(ref) || is_disk(ref); }  // true: lives within one program
inline bool adds(const Row& row, uint32_t argument) { return (row.accumulate >> argument & 1) != 0; }
inline bool is_reduce(const Row& row) { return kernel(row).attribute == kAttributeKind<GroupAttribute>; }
inline bool is_finish(const Row& row) { return kernel(row).attribute == kAttributeKind<ClipAttribute>; }
inline bool updates_weights(const Row& row) { return row.pass == Pass::kUpdate; }
inline bool walks_groups(const Row& row) { return is_reduce(row) || is_finish(row) || updates_weights(row); }
uint32_t gradients_argument(const Row& row);  // index of the first input that is a group: the gradients

// Gives row `row` an own copy of its attribute, so that a change does not affect other rows.
// Returns the copy.
template <typename T>
T& own_attribute(OwnedPlan& plan, OwnedProgram& p, uint32_t row) {
  std::vector<T>& attributes = plan.attributes.of<T>();
  attributes.push_back(T(attributes[p.rows[row].attribute]));
  p.rows[row].attribute = static_cast<uint32_t>(attributes.size()) - 1;
  return attributes.back();
}

// Gives an updating row an own copy of its attribute. Returns the group in the copy.
inline GroupAttribute& own_group(OwnedPlan& plan, OwnedProgram& p, uint32_t row) {
  const AttributeKind kind = kernel(p.rows[row]).attribute;
  if (kind == kAttributeKind<FactoredAttribute>) return own_attribute<FactoredAttribute>(plan, p, row).group;
  if (kind == kAttributeKind<ProjectedAttribute>) return own_attribute<ProjectedAttribute>(plan, p, row).group;
  return own_attribute<UpdateAttribute>(plan, p, row).group;
}
inline uint32_t updated_tensors(const OwnedPlan& plan, const Row& row) {
  return group_of(plan.attributes.pools(), kernel(row).attribute, row.attribute)->tensors;
}

// Gives row `row` an own copy of its arguments, so that a change does not affect other rows.
// Returns the copy.
Ref* own_arguments(OwnedProgram& p, uint32_t row);

// Sets each slot's lifetime to the rows from its first use to its last. A slot that the host fills
// is live from the first row on.
void renew_lifetimes(OwnedProgram& p);
void move_row(OwnedProgram& p, uint32_t from, uint32_t to);

// Sets the bytes of each region and of the arena to the smallest that contain all tensors.
void fit_regions(OwnedPlan& plan);

// The way of a transfer to a new slot. kDisk: through a disk block. kMemory: directly.
enum class Way : uint8_t { kDisk, kMemory };
// Inserts rows that transfer a value to a new slot: the value that argument `i` of row `row` reads.
// This row and all later rows then read the new slot. Way::kDisk requires a program without disk
// blocks.
void carry_argument(OwnedPlan& plan, ProgramId id, uint32_t row, uint32_t i, Way way);

// Edits the rows and slots of one program. Functions that erase, copy or exchange rows also adapt
// lifetimes and, if necessary, hints and references, so that a mutant has only the planted fault.
class ProgramEditor {
 public:
  explicit ProgramEditor(OwnedProgram& program) : p_(program) {}

  std::vector<Ref> arguments(uint32_t row) const;
  void set_argument(uint32_t row, uint32_t i, Ref ref) { own_arguments(p_, row)[i] = ref; }
  // Returns the first and the last row that name the slot. If no row names it, the first number is
  // larger than the last.
  std::pair<uint32_t, uint32_t> uses(uint32_t slot) const;

  void erase_row(uint32_t row);      // also removes slots that then no row names
  void duplicate_row(uint32_t row);  // inserts the copy directly after the row
  void swap_with_next(uint32_t row);
  // Returns the slot whose end is nearest below the start of slot `index`; kNoSlot if there is
  // none. Only slots count that precede slot `index` in the table and are live at its birth.
  uint32_t below(uint32_t index) const;

 private:
  void drop_unused_slots();
  OwnedProgram& p_;
};

}  // namespace reprise::testing
