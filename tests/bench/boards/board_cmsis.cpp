// Measures CMSIS-DSP's f32 products on a board under QEMU, in the shapes of a small core's rows.
// Prints a line `function MxKxN ticks multiply-adds` for each shape; the last two numbers are sums
// over kTurns calls. tests/bench/boards/board_cmsis.sh builds it. Another library's kernels,
// compiled in the same way, show how good this library's kernels are. The sources of CMSIS-DSP are
// not in this repository.
#include <string.h>

#include "ports/cortex_m/board.h"
#include "ports/cortex_m/say.h"

// These declarations must equal those in arm_math.h.
extern "C" {
struct arm_matrix_instance_f32 {
  uint16_t rows, columns;
  float* data;
};
int arm_mat_mult_f32(const arm_matrix_instance_f32* a, const arm_matrix_instance_f32* b, arm_matrix_instance_f32* c);
void arm_mat_vec_mult_f32(const arm_matrix_instance_f32* a, const float* b, float* c);
}

namespace {

using namespace reprise;

struct Shape {
  uint16_t m, k, n;
};
// 3 x 3 convolutions as products of gathered windows, a pointwise convolution, and layers at batch
// 1.
constexpr Shape kProducts[] = {{1024, 144, 16}, {256, 288, 32}, {64, 576, 64}, {125, 64, 64},
                               {1, 640, 128},   {1, 128, 128},  {1, 64, 10}};
constexpr uint64_t kTurns = 4;
constexpr uint32_t kMax = 1024 * 144;
REPRISE_ARENA float a[kMax];
REPRISE_ARENA float b[kMax];
REPRISE_ARENA float c[kMax];

template <typename Call>
void measure(const char* name, const Shape& shape, const Call& call) {
  const uint64_t start = board_ticks();
  for (uint64_t turn = 0; turn < kTurns; ++turn) call();
  const uint64_t ticks = board_ticks() - start;
  board_say(name), board_say(" "), say(uint64_t{shape.m}), board_say("x"), say(uint64_t{shape.k}), board_say("x"),
      say(uint64_t{shape.n});
  board_say(" "), say(ticks), board_say(" "), say(kTurns * shape.m * shape.k * shape.n), board_say("\n");
}

}  // namespace

int main() {
  memset(a, 0, sizeof a), memset(b, 0, sizeof b);
  for (const Shape& shape : kProducts) {
    const arm_matrix_instance_f32 left = {shape.m, shape.k, a}, right = {shape.k, shape.n, b};
    arm_matrix_instance_f32 product = {shape.m, shape.n, c};
    measure("arm_mat_mult_f32", shape, [&] { (void)arm_mat_mult_f32(&left, &right, &product); });
    if (shape.m > 1) continue;
    const arm_matrix_instance_f32 matrix = {shape.n, shape.k, b};
    measure("arm_mat_vec_mult_f32", shape, [&] { arm_mat_vec_mult_f32(&matrix, a, c); });
  }
  return 0;
}
