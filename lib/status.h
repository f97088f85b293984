// Status: the result of functions of lib, cuda and ports that can fail. These functions throw no
// exceptions. A Status must be checked.
#pragma once

#include <cstdint>

namespace reprise {

// The kind of an error.
enum class Code : uint8_t {
  kOk,
  kBadPlan,          // the plan breaks a rule of check.h, or has another format version
  kArenaTooSmall,    // detail: bytes needed
  kUnsupported,      // the backend or the port lacks what the plan asks for
  kOutOfMemory,      // the port has less memory than was requested; detail: bytes requested
  kIndexOutOfRange,  // a token, label, document start or pair is invalid; detail: its position in the micro-batch
  kNonFinite,        // loss or gradient is not finite; no weight was changed, but see train_step() for gradient release
  kBackend,          // a device call failed, its work may be partly done; detail: the device's error number
  kInputOutput,      // a transfer failed; detail: errno
  kPeer,             // another rank has ended or cannot be reached; detail: its number (Peers of port.h)
  kStopped,          // Trainer::stops returned true between two rows; the program's results are incomplete
};

// The value of Status::row if the error has no row, or if the row is unknown.
constexpr uint64_t kUnknownRow = ~uint64_t{0};
// The value of Status::rank if the error has no rank.
constexpr uint32_t kUnknownRank = ~uint32_t{0};

// The result of a function that can fail.
struct [[nodiscard]] Status {
  // The kind of the error; kOk if there is none.
  Code code = Code::kOk;
  // A sentence with static storage that states what is required.
  const char* message = "";
  // A number whose meaning depends on the code.
  uint64_t detail = 0;
  // The row that failed, as program << 32 | row; kUnknownRow if no row failed or
  // the row is unknown.
  uint64_t row = kUnknownRow;
  // The rank whose data or loss is faulty, if all ranks have seen the fault; else kUnknownRank.
  uint32_t rank = kUnknownRank;

  // True if there is no error.
  constexpr bool ok() const { return code == Code::kOk; }
};

// Returns a Status without an error.
constexpr Status ok_status() { return {}; }

}  // namespace reprise

// Returns from the calling function with the Status of `expression` unless it is ok.
#define REPRISE_RETURN_IF_ERROR(expression)                                             \
  do {                                                                                  \
    if (const ::reprise::Status reprise_status = (expression); !reprise_status.ok()) {  \
      return reprise_status;                                                            \
    }                                                                                   \
  } while (false)
