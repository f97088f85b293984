// A profile: the measured times of all distinct kernel calls of a recipe on one machine, and its
// file format. With a profile, plans predict the time of a step; without one, costs are computed
// from flops and bytes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tools/files/io/output.h"
#include "tools/plan/lowering/owned_plan.h"
#include "tools/plan/planning/planner.h"

namespace reprise {

constexpr uint64_t kProfileFormat = 1;

// The contents of a profile.
struct Profile {
  struct Time {
    double seconds = 0;
    uint64_t runs = 0;  // number of calls that were measured
    bool operator==(const Time&) const = default;
  };
  std::string path;  // path of the profile's file, for messages
  std::string backend = "cpu", kernel_set, processor;
  uint64_t threads = 1;
  // Seconds of a micro-batch outside of its rows: filling the data, and the loop over the rows
  double micro_batch_seconds = 0;
  std::optional<DiskLevel> disk = {}, host = {};   // seconds per byte; unset: not measured
  std::optional<double> stream_read_seconds = {};  // seconds per byte of streamed weights; unset: not measured
  std::optional<Wire> wire = {};                   // between ranks; unset: not measured
  std::map<std::string, Time> kernels;             // times of calls; index: call_key() of the call

  // Returns the seconds of a call. Throws UserError if the profile does not have the key.
  double seconds(const std::string& key) const;
  // Returns the seconds of a part of a group of tensors, computed from the kernel's largest group
  // in proportion to elements. It is needed because a plan for one rank has only whole groups.
  // Returns nothing if `key` is not the key of a group, or if the profile does not have the kernel.
  std::optional<double> seconds_of_part(const std::string& key) const;
};

// Returns the key of a kernel call. It contains the kernel's name, the types and shapes of its
// arguments, and which outputs are added to. It also has the attributes that change its time: no
// random streams, no optimizer constants. An absent argument is "-"; scratch and the norms of all
// gradients are left out. An example: "conv.forward window=3x3/1+1 f32[8,28,28,16] f32[8,28,28,16]
// f32[16,3,3,16]". row_key() returns the key of a row in a plan.
std::string call_key(const Graph& graph, const Call& call);
std::string row_key(const OwnedPlan& plan, const OwnedProgram& program, const Row& row);

// Returns the text of the file: {"format", "backend", "kernel_set", "threads", "processor",
// "micro_batch_seconds", "kernels": [{"key", "seconds", "runs"}]}. Seconds per byte are added for a
// disk ("disk_write_seconds", "disk_read_seconds"), for memory of the host ("host_write_seconds",
// "host_read_seconds") and for streamed weights ("stream_read_seconds"). If ranks were measured, it
// has "wire_ranks", "wire_message_seconds", "wire_byte_seconds". The functions that read a profile
// throw UserError "FILE: field: ...".
std::string profile_text(const Profile& profile);
Profile parse_profile(const std::string& text, const std::string& path);
Profile read_profile(const std::string& path);
// True if the file is a profile; false if it cannot be read.
bool is_profile(const std::string& path);
constexpr OutputKind kProfileFile = {"profile", is_profile};

// Returns the costs for solve_model(). Requesting the cost of a call that the profile lacks throws
// UserError.
MeasuredCosts costs_of(std::shared_ptr<const Profile> profile);

// Returns one line if the profile was made with other kernels or another number of threads;
// otherwise "".
std::string profile_mismatch(const Profile& profile, const std::string& kernel_set, uint64_t threads);

}  // namespace reprise
