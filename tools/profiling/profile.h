// A profile: what every distinct kernel call of a recipe took on one machine, and its file format.
// Here because plans made with measured costs predict the step time; without a profile flops and bytes serve.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tools/formats/output.h"
#include "tools/lowering/owned_plan.h"
#include "tools/planning/planner.h"

namespace reprise {

constexpr uint64_t kProfileFormat = 1;

struct Profile {
  struct Time {
    double seconds = 0;
    uint64_t runs = 0;  // measured calls behind the number
    bool operator==(const Time&) const = default;
  };
  std::string path;  // the file it came from, for messages
  std::string backend = "cpu", kernel_set, processor;
  uint64_t threads = 1;
  double micro_batch_seconds = 0;  // of a micro-batch beside its rows: the data's fill, the walk over the rows
  std::optional<DiskLevel> disk = {}, host = {};  // seconds of a byte; none: not measured
  std::optional<double> stream_read_seconds = {};  // of a byte of streamed weights; none: not measured
  std::optional<Wire> wire = {};                   // between ranks; none: not measured
  std::map<std::string, Time> kernels;

  // Throws UserError where the profile lacks the kernel.
  double seconds(const std::string& key) const;
  // Of a group of tensors that a plan for one rank has whole: as many elements' share of its largest group. None where the profile has no such kernel.
  std::optional<double> seconds_of_part(const std::string& key) const;
};

// What tells one kernel call from another: name, the attributes that change its time (no random streams, no optimizer
// constants), types and shapes of its arguments ("-" for an absent one; scratch and the norms of all gradients are left out), outputs that are added to.
// For example "conv.forward window=3x3/1+1 f32[8,28,28,16] f32[8,28,28,16] f32[16,3,3,16]".
std::string call_key(const Graph& graph, const Call& call);
std::string row_key(const OwnedPlan& plan, const OwnedProgram& program, const Row& row);

// The file: {"format", "backend", "kernel_set", "threads", "processor", "micro_batch_seconds",
// "kernels": [{"key", "seconds", "runs"}]}, and of a recipe with a disk "disk_write_seconds", "disk_read_seconds", of one with a host
// "host_write_seconds", "host_read_seconds", of one that streams weights "stream_read_seconds", all of a byte; where ranks were measured "wire_ranks",
// "wire_message_seconds", "wire_byte_seconds". Reading throws UserError "FILE: field: what would be right".
std::string profile_text(const Profile& profile);
Profile parse_profile(const std::string& text, const std::string& path);
Profile read_profile(const std::string& path);
bool is_profile(const std::string& path);
constexpr OutputKind kProfileFile = {"profile", is_profile};

// Prices for solve_model. A call that the profile lacks is a UserError when its price is asked for.
MeasuredCosts costs_of(std::shared_ptr<const Profile> profile);

// One line where the profile was made with other kernels or another number of threads than these; else "".
std::string profile_mismatch(const Profile& profile, const std::string& kernel_set, uint64_t threads);

}  // namespace reprise
