// OwnedPlan: a Plan whose arrays are vectors, so that a test can copy it, change one number and look at the result.
// Here because a Plan only views its arrays; mutants, builders and fuzzers need to own them.
// It must not know what makes a plan right.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/plan.h"

namespace reprise::testing {

template <typename T>
std::vector<T> owned(const Span<T>& span) {
  return std::vector<T>(span.begin(), span.end());
}
template <typename T>
Span<T> viewed(const std::vector<T>& items) {
  return {items.data(), static_cast<uint32_t>(items.size())};
}

struct OwnedProgram {
  std::vector<Row> rows;
  std::vector<Ref> arguments;
  std::vector<Slot> slots;
  uint64_t bytes = 0;
  uint32_t input = kNoSlot;
  uint32_t labels = kNoSlot;
  std::vector<Slot> disk;

  OwnedProgram() = default;
  explicit OwnedProgram(const Program& p)
      : rows(owned(p.rows)),
        arguments(owned(p.arguments)),
        slots(owned(p.slots)),
        bytes(p.bytes),
        input(p.input),
        labels(p.labels),
        disk(owned(p.disk)) {}
  Program view() const { return {viewed(rows), viewed(arguments), viewed(slots), bytes, input, labels, viewed(disk)}; }
};

struct OwnedPlan {
  uint32_t format = kPlanFormat;
  std::string name = "test", backend = "cpu";
  std::vector<StateTensor> state;
  std::vector<Tensor> carried;
  OwnedProgram programs[kProgramCount];
  std::vector<WindowAttribute> window;
  std::vector<NormAttribute> norm;
  std::vector<LinearAttribute> linear;
  std::vector<GeluAttribute> gelu;
  std::vector<AttentionAttribute> attention;
  std::vector<DropoutAttribute> dropout;
  std::vector<GroupAttribute> group;
  std::vector<ClipAttribute> clip;
  std::vector<UpdateAttribute> update;
  LearningRate learning_rate;
  std::vector<uint32_t> milestones;
  uint64_t state_bytes = 0, carried_bytes = 0, arena_bytes = 0, seed = 0;
  uint32_t accumulate = 1;
  uint64_t disk_bytes = 0;

  OwnedPlan() = default;
  explicit OwnedPlan(const Plan& p)
      : format(p.format),
        name(p.name),
        backend(p.backend),
        state(owned(p.state)),
        carried(owned(p.carried)),
        programs{OwnedProgram(p.programs[0]), OwnedProgram(p.programs[1]), OwnedProgram(p.programs[2]),
                 OwnedProgram(p.programs[3])},
        window(owned(p.attributes.window)),
        norm(owned(p.attributes.norm)),
        linear(owned(p.attributes.linear)),
        gelu(owned(p.attributes.gelu)),
        attention(owned(p.attributes.attention)),
        dropout(owned(p.attributes.dropout)),
        group(owned(p.attributes.group)),
        clip(owned(p.attributes.clip)),
        update(owned(p.attributes.update)),
        learning_rate(p.learning_rate),
        milestones(owned(p.learning_rate.milestones)),
        state_bytes(p.state_bytes),
        carried_bytes(p.carried_bytes),
        arena_bytes(p.arena_bytes),
        seed(p.seed),
        accumulate(p.accumulate),
        disk_bytes(p.disk_bytes) {
    for (StateTensor& tensor : state) tensor.name = keep(tensor.name);
  }

  OwnedProgram& program(ProgramId id) { return programs[static_cast<uint32_t>(id)]; }
  const OwnedProgram& program(ProgramId id) const { return programs[static_cast<uint32_t>(id)]; }

  // A copy of a state tensor's name that lives as long as this plan and its copies.
  const char* keep(const std::string& text) {
    kept_.push_back(std::make_shared<const std::string>(text));
    return kept_.back()->c_str();
  }

  // Valid while this object is neither changed nor destroyed.
  Plan view() const {
    Plan plan;
    plan.format = format;
    plan.name = name.c_str();
    plan.backend = backend.c_str();
    plan.state = viewed(state);
    plan.carried = viewed(carried);
    for (uint32_t p = 0; p < kProgramCount; ++p) plan.programs[p] = programs[p].view();
    plan.attributes = {viewed(window),  viewed(norm),  viewed(linear), viewed(gelu),  viewed(attention),
                       viewed(dropout), viewed(group), viewed(clip),   viewed(update)};
    plan.learning_rate = learning_rate;
    plan.learning_rate.milestones = viewed(milestones);
    plan.state_bytes = state_bytes;
    plan.carried_bytes = carried_bytes;
    plan.arena_bytes = arena_bytes;
    plan.seed = seed;
    plan.accumulate = accumulate;
    plan.disk_bytes = disk_bytes;
    return plan;
  }

 private:
  std::vector<std::shared_ptr<const std::string>> kept_;
};

}  // namespace reprise::testing
