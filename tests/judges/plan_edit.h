// What makers of mutants do to a good plan's rows and slots, and what they ask of a row.
// Here because several kinds of mutants change plans by the same steps.
#pragma once

#include <utility>
#include <vector>

#include "tools/lowering/owned_plan.h"

namespace reprise::testing {

const KernelInfo& kernel(const Row& row);
inline bool is_slot(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kProgram; }
inline bool is_disk(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kSpill; }
inline bool is_carried(Ref ref) { return ref != kNoRef && ref_region(ref) == Region::kCarried; }
inline bool is_local(Ref ref) { return is_slot(ref) || is_disk(ref); }  // lasts no longer than the program
inline bool adds(const Row& row, uint32_t argument) { return (row.accumulate >> argument & 1) != 0; }
inline bool is_reduce(const Row& row) { return kernel(row).attribute == kAttributeKind<GroupAttribute>; }
inline bool is_finish(const Row& row) { return kernel(row).attribute == kAttributeKind<ClipAttribute>; }
inline bool updates_weights(const Row& row) { return row.pass == Pass::kUpdate; }
inline bool walks_groups(const Row& row) { return is_reduce(row) || is_finish(row) || updates_weights(row); }
uint32_t gradients_argument(const Row& row);  // the group that a row only reads

// A copy of row `row`'s attribute that no other row shares.
template <typename T>
T& own_attribute(OwnedPlan& plan, OwnedProgram& p, uint32_t row) {
  std::vector<T>& attributes = plan.attributes.of<T>();
  attributes.push_back(T(attributes[p.rows[row].attribute]));
  p.rows[row].attribute = static_cast<uint32_t>(attributes.size()) - 1;
  return attributes.back();
}

// The same of the group in the attribute of a row that updates.
inline GroupAttribute& own_group(OwnedPlan& plan, OwnedProgram& p, uint32_t row) {
  const AttributeKind kind = kernel(p.rows[row]).attribute;
  if (kind == kAttributeKind<FactoredAttribute>) return own_attribute<FactoredAttribute>(plan, p, row).group;
  if (kind == kAttributeKind<ProjectedAttribute>) return own_attribute<ProjectedAttribute>(plan, p, row).group;
  return own_attribute<UpdateAttribute>(plan, p, row).group;
}
inline uint32_t updated_tensors(const OwnedPlan& plan, const Row& row) {
  return group_of(plan.attributes.pools(), kernel(row).attribute, row.attribute)->tensors;
}

// A copy of row `row`'s arguments that no other row shares.
Ref* own_arguments(OwnedProgram& p, uint32_t row);

// Lifetimes from the first use to the last; those that the host fills start before the first row.
void renew_lifetimes(OwnedProgram& p);
void move_row(OwnedProgram& p, uint32_t from, uint32_t to);

// Regions and arena as large as what lies in them.
void fit_regions(OwnedPlan& plan);

// What argument `i` of a row reads is transferred to a slot of its own, where that row and all later ones read it: by way of a disk block, in a
// program that has none yet, or straight.
enum class Way : uint8_t { kDisk, kMemory };
void carry_argument(OwnedPlan& plan, ProgramId id, uint32_t row, uint32_t i, Way way);

// Rows and slots of one program, and the repairs that keep a mutant wrong in one thing only.
class ProgramEditor {
 public:
  explicit ProgramEditor(OwnedProgram& program) : p_(program) {}

  std::vector<Ref> arguments(uint32_t row) const;
  void set_argument(uint32_t row, uint32_t i, Ref ref) { own_arguments(p_, row)[i] = ref; }
  // [first, last] row that names the slot; first > last where none does.
  std::pair<uint32_t, uint32_t> uses(uint32_t slot) const;

  void erase_row(uint32_t row);      // and the slots that nobody names any more
  void duplicate_row(uint32_t row);  // right behind itself
  void swap_with_next(uint32_t row);
  // The live slot whose end is nearest below the slot's start, for slots born no later than it.
  uint32_t below(uint32_t index) const;

 private:
  void drop_unused_slots();
  OwnedProgram& p_;
};

}  // namespace reprise::testing
