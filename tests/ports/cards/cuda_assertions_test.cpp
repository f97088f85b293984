// Plants a violation at each seam between the host's code for cards and a card. The program must
// stop and print the sentence of the assertion that guards the seam.
#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include "cuda/cuda_host_access.h"
#include "cuda/grid.h"
#include "lib/backend.h"
#include "ports/linux/linux_port.h"

namespace reprise {
namespace {

// Links the port, whose assertion_failed() prints the sentence. lib's own only ends the program.
TEST(LaunchAssertions, AreReportedByThePort) { EXPECT_STREQ(linux_port().name, "linux"); }

TEST(LaunchAssertions, StopGridsThatNoCardAccepts) {
  EXPECT_EQ(grid_of(7, 65535).y, 65535u);
  constexpr char kMessage[] =
      "grid.h:[0-9]+: assertion failed: a grid has blocks, and no more than every card accepts";
  EXPECT_DEATH((void)grid_of(0), kMessage);
  EXPECT_DEATH((void)grid_of(uint64_t{1} << 31), kMessage);
  EXPECT_DEATH((void)grid_of(1, 65536), kMessage);
}

TEST(LaunchAssertions, StopAFillOfAPartOfAWord) {
  EXPECT_DEATH((void)cuda_fill({}, {}, 0, 6),
               "cuda_host_access.cu:[0-9]+: assertion failed: a filled range has whole words");
}

}  // namespace
}  // namespace reprise
