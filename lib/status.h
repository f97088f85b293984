// Status: how lib, cuda and ports report that something could not be done.
// Here because they throw nothing; a Status must be looked at.
#pragma once

#include <cstdint>

namespace reprise {

enum class Code : uint8_t {
  kOk,
  kBadPlan,          // the plan breaks a rule of check.h, or is of another format version
  kArenaTooSmall,    // detail: bytes needed
  kUnsupported,      // the backend or the port lacks what the plan asks for
  kOutOfMemory,      // the port could not get an arena; detail: bytes asked for
  kIndexOutOfRange,  // a token, a label or a document's start; detail: its position in the micro-batch
  kNonFinite,        // loss or gradient is not a finite number; no weight was changed
  kBackend,          // a device call failed, and what it was to do may be done in part; detail: its own error number
  kInputOutput,      // a transfer failed; detail: errno
  kPeer,             // another rank has ended, or cannot be reached; detail: its number (Peers of port.h)
  kStopped,          // Trainer::stops asked for it between two rows; what the program writes is written in part
};

constexpr uint64_t kUnknownRow = ~uint64_t{0};
constexpr uint32_t kUnknownRank = ~uint32_t{0};

// `message` has static storage and says what would be right; `detail` is a number that belongs to the code.
struct [[nodiscard]] Status {
  Code code = Code::kOk;
  const char* message = "";
  uint64_t detail = 0;
  uint64_t row = kUnknownRow;  // the row that failed, as program << 32 | row; kUnknownRow where none did, or where it is not known which
  uint32_t rank = kUnknownRank;  // of several that have all seen the fault, the one whose data or loss it is in

  constexpr bool ok() const { return code == Code::kOk; }
};

constexpr Status ok_status() { return {}; }

}  // namespace reprise

// Returns the caller with the Status of `expression` unless it is ok.
#define REPRISE_RETURN_IF_ERROR(expression)                                             \
  do {                                                                                  \
    if (const ::reprise::Status reprise_status = (expression); !reprise_status.ok()) {  \
      return reprise_status;                                                            \
    }                                                                                   \
  } while (false)
