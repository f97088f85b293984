// Predicts the effect of the network between ranks on a step. The rows of the step's programs run
// one after another, and one queue carries all messages. A plan determines which rows run while a
// message is in flight, so only the time of messages and rows must be measured.
//
//   rows   ... dw of link 7 | dw of link 6 | dw of link 5 | waits | dw7 += rank 0's, rank 1's ...
//   wire                    | link 7's ---------------------------->| link 6's ...
#pragma once

#include <functional>
#include <string>

#include "tools/plan/lowering/owned_plan.h"

namespace reprise {

// A wire as measured by `reprise profile --peers`: the time in which a tensor of one other rank
// arrives while each rank sends and receives at the same time.
struct Wire {
  uint64_t ranks = 0;  // number of ranks in the measurement
  double message_seconds = 0, byte_seconds = 0;

  double seconds(uint64_t bytes) const { return message_seconds + byte_seconds * static_cast<double>(bytes); }
  bool operator==(const Wire&) const = default;
};

std::string wire_words(const Wire& wire);

struct WireTime {
  double step_seconds = 0;
  double wire_seconds = 0;    // time in which the wire is busy
  double waited_seconds = 0;  // time in which rows, or the host between two micro-batches, wait for the wire
  uint64_t sent_bytes = 0;    // bytes that a rank sends to each other rank, for the rank that sends the most
  uint64_t received_bytes = 0;  // bytes that rank 0 receives
};

// A function that returns the seconds of a row. It is called for rows that compute, or that
// transfer to or from a second level.
using RowSeconds = std::function<double(const OwnedProgram&, const Row&)>;

// Returns the time of a step for rank 0, for any number of ranks. Tensors that other ranks send
// arrive in the order of the rows, one after another. The rank's own tensor is sent meanwhile, and
// is available at once. So each of N ranks receives N - 1 tensors for each tensor of its own. The
// simulation assumes that nothing else is slower with more ranks, and that all ranks start at the
// same time. After each micro-batch the host waits for one message of every other rank, the loss.
// `micro_batch_seconds`: time of a micro-batch in addition to its rows.
WireTime wire_time(const OwnedPlan& plan, const Wire& wire, double micro_batch_seconds, const RowSeconds& row_seconds);

}  // namespace reprise
