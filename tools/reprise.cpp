// The main program of `reprise` with the CPU's kernels.
#include "ports/linux/linux_port.h"
#include "tools/reprise_commands.h"

int main(int argc, char** argv) { return reprise::run_reprise({&reprise::linux_port()}, argc, argv); }
