// Describes a board: the memory that it leaves for an arena, and a lower bound of a step's time.
// With it, `fit` can plan for a board that the user does not have at hand.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lib/host_share.h"
#include "tools/plan/planning/planner.h"

namespace reprise {

// One kind of processor of a board.
struct BoardProcessor {
  uint64_t reserve_bytes = 0;  // used by the system and by this processor's platform, in addition to an arena
  double f32_flops = 0, bf16_flops = 0, bytes_per_second = 0;
};
// A microcontroller, which has no disk: its flash contains the program, with the plan, and the
// weights.
struct Chip {
  uint64_t flash_bytes = 0;
  uint64_t code_bytes = 0;            // program without its plan
  // RAM for stack and data only. Unset: stack and data are next to the arena, in the system's share
  // of the host's memory.
  std::optional<uint64_t> ram_bytes;
};
struct Board {
  std::string name;
  std::string backend;       // the recipe's backend, "cpu" or "cuda"
  BoardProcessor processor;  // processor of the recipe's backend
  // The host's part of the memory. It is computed from the usable and reserved bytes in the board's
  // file, and from the bytes that the backend needs in addition to its arena.
  HostShare host;
  std::optional<Chip> chip;
};

// Returns the bytes of all parameters (trained or frozen) and running statistics in the plan's
// State, without moments and streamed weights.
uint64_t weights_bytes(const OwnedPlan& plan);

// Returns why the chip cannot run this plan of `plan_bytes`: the program needs more flash than the
// chip has, or stack and data need more RAM. Returns "" if it can.
std::string beyond_chip(const Board& board, const OwnedPlan& plan, uint64_t plan_bytes);


// The kinds of processors that a board's file lists, for any backend.
struct BoardKind {
  bool has_card = false;
  bool is_chip = false;  // a microcontroller
};
BoardKind board_kind(const std::string& path);

// Reads a board's file, which tools/FILES.md describes; tools/boards has examples. Throws
// UserError.
Board read_board(const std::string& path, const BackendRules& backend);

// Lower bound of a step's time: each row takes the time of its flops or of its bytes, whichever is
// longer, and no row waits for a transfer.
struct Roofline {
  double seconds = 0;
  double bandwidth_seconds = 0;  // time of the rows that are limited by bytes
};
Roofline step_roofline(const OwnedPlan& plan, const BoardProcessor& processor, const Recipe& recipe);

// Returns {"system_bytes", "headroom_bytes", "staging_bytes", "bytes", "room_bytes"}; `bytes` is
// the sum of the first three.
nlohmann::json host_share_json(const HostShare& share);

// Returns {"name", "backend", "usable_bytes", "reserve_bytes", "room_bytes", "host_share",
// "least_seconds", "bound", "bound_share"}. `bound` is "flops" or "bandwidth", whichever limits
// more of the roofline's time. The last three are null if the plan does not fit. A chip also has
// {"flash_bytes", "code_bytes", "plan_bytes", "weights_bytes", "ram_bytes", "data_bytes",
// "stack_bytes"}; plan, weights and stack are null if no plan was made.
nlohmann::json board_json(const Board& board, const SolvedModel& model, const PlannedModel& planned,
                          uint64_t plan_bytes);
std::string board_text(const Board& board, const nlohmann::json& answer);

}  // namespace reprise
