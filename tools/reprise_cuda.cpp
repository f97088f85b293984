// The main program of `reprise` with CUDA's kernels, too: `make install-cuda` installs it.
#include "ports/cuda/cuda_port.h"
#include "ports/linux/linux_port.h"
#include "tools/reprise_commands.h"

int main(int argc, char** argv) {
  return reprise::run_reprise({&reprise::cuda_port(), &reprise::linux_port()}, argc, argv);
}
