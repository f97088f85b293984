// The command line `reprise`, apart from the ports on which it trains.
#pragma once

#include <vector>

#include "lib/port.h"

namespace reprise {

// Runs the subcommand that the arguments name, and returns the exit status. `boards` are the ports
// on which `reprise train` may train, in the order of preference; the last one is the host's, which
// all other subcommands use.
int run_reprise(const std::vector<const Port*>& boards, int argc, char** argv);

}  // namespace reprise
