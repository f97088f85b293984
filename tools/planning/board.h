// A board that a person may have: how much memory it leaves, and how fast it could be at best.
// Here because `fit` answers before the board is bought, or without going to it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lib/host_share.h"
#include "tools/planning/planner.h"

namespace reprise {

// One kind of processor of a board.
struct BoardProcessor {
  uint64_t reserve_bytes = 0;  // what the system, and the platform of that processor, take beside an arena
  double f32_flops = 0, bf16_flops = 0, bytes_per_second = 0;
};
struct Board {
  std::string name;
  BoardProcessor processor;  // of the recipe's backend
  HostShare host;            // of the file's usable and reserved bytes, and of what the backend asks for beside its arena
};

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
// "bandwidth", whichever binds more of the roofline's time; the last three are null where the plan does not fit.
nlohmann::json board_json(const Board& board, const SolvedModel& model, const PlannedModel& planned);
std::string board_text(const Board& board, const nlohmann::json& answer);

}  // namespace reprise
