// See status_text.h.
#include "tools/run/session/status_text.h"

#include <cstring>

#include "lib/op.h"
#include "lib/port.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"

namespace reprise {

namespace {

std::string number_text(const Status& status) {
  switch (status.code) {
    case Code::kOk: return "";
    case Code::kOutOfMemory:
    case Code::kArenaTooSmall: return " (" + bytes_text(status.detail) + ")";
    case Code::kIndexOutOfRange: return " (at position " + std::to_string(status.detail) + " of the micro-batch)";
    case Code::kNonFinite:
      return " at step " + std::to_string(status.detail) +
             "; no weight was changed by it: lower optimizer.lr, add warmup_steps or clip_norm";
    case Code::kInputOutput: return std::string(": ") + std::strerror(static_cast<int>(status.detail));
    case Code::kBackend: return " (error " + std::to_string(status.detail) + " of the device)";
    case Code::kPeer: return status.detail == Peers::kNoRank ? "" : " (rank " + std::to_string(status.detail) + ")";
    case Code::kStopped: return ", by a second signal";
    default: return status.detail == 0 ? "" : " (" + std::to_string(status.detail) + ")";
  }
}

std::string row_text(const Status& status, const Plan* plan) {
  constexpr const char* kPrograms[kProgramCount] = {"the first micro-batch", "a further micro-batch",
                                                    "the last micro-batch",  "the update",
                                                    "the evaluation",        "the generation"};
  if (plan == nullptr) return "";
  if (status.row == kUnknownRow)
    return status.code == Code::kBackend ? "; with --eager the row that fails is named" : "";
  const auto program = static_cast<uint32_t>(status.row >> 32), number = static_cast<uint32_t>(status.row);
  const Row& row = plan->programs[program].rows[number];
  return "; in row " + std::to_string(number) + " of " + kPrograms[program] + ", " +
         kOps[kernel_index(row.op, row.pass)].name;
}

}  // namespace

std::string message_of(const Status& status, const Plan* plan) {
  const std::string rank = status.rank == kUnknownRank ? "" : "; rank " + std::to_string(status.rank) + " has found it";
  return status.message + number_text(status) + row_text(status, plan) + rank;
}

void fail(const std::string& who, const Status& status, const Plan* plan) {
  throw UserError(who + ": " + message_of(status, plan));
}

}  // namespace reprise
