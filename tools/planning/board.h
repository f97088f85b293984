// A board that a person may have: how much memory it leaves, and how fast it could be at best.
// Here because `fit` answers before the board is bought, or without going to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lib/host_share.h"
#include "tools/planning/planner.h"

namespace reprise {

// One kind of processor of a board.
struct BoardProcessor {
  uint64_t reserve_bytes = 0;  // what the system, and the platform of that processor, take beside an arena
  double f32_flops = 0, bf16_flops = 0, bytes_per_second = 0;
};
// Of a microcontroller, which has no disk: its flash holds the program, with the plan, and the weights.
struct Chip {
  uint64_t flash_bytes = 0;
  uint64_t code_bytes = 0;            // of a program without its plan
  std::optional<uint64_t> ram_bytes;  // for stack and data; none: they lie beside the arena, and are the system's share of the host's memory
};
struct Board {
  std::string name;
  BoardProcessor processor;  // of the recipe's backend
  HostShare host;            // of the file's usable and reserved bytes, and of what the backend asks for beside its arena
  std::optional<Chip> chip;
};

// Of the weights and running statistics that a training leaves, as they lie in the plan's state.
uint64_t weights_bytes(const OwnedPlan& plan);

// Why a program with this plan of `plan_bytes` is more than the chip's flash, or its stack and data more than their RAM; "" where neither is.
std::string beyond_chip(const Board& board, const OwnedPlan& plan, uint64_t plan_bytes);


// tools/boards has some; tools/FORMATS.md describes the file. Throws UserError.
Board read_board(const std::string& path, const BackendRules& backend);

// The roofline of a step: each row takes the time of its flops or of its bytes, whichever is longer, and nothing waits. No step is faster.
struct Roofline {
  double seconds = 0;
  double bandwidth_seconds = 0;  // of the rows that bytes bind
};
Roofline step_roofline(const OwnedPlan& plan, const BoardProcessor& processor, const Recipe& recipe);

// {"system_bytes", "headroom_bytes", "staging_bytes", "bytes", "room_bytes"}, `bytes` being the first three together.
nlohmann::json host_share_json(const HostShare& share);

// {"name", "usable_bytes", "reserve_bytes", "room_bytes", "host_share", "least_seconds", "bound", "bound_share"}: `bound` is "flops" or
// "bandwidth", whichever binds more of the roofline's time; the last three are null where the plan does not fit. Of a chip also {"flash_bytes",
// "code_bytes", "plan_bytes", "weights_bytes", "ram_bytes", "data_bytes", "stack_bytes"}, plan, weights and stack null where no plan was made.
nlohmann::json board_json(const Board& board, const SolvedModel& model, const PlannedModel& planned, uint64_t plan_bytes);
std::string board_text(const Board& board, const nlohmann::json& answer);

}  // namespace reprise
