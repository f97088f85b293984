// CMSIS-DSP's products in f32 on a board under QEMU, of the shapes that a small core's rows have: `m x k x n ticks products multiply-adds`, as
// tests/bench/board_cmsis.sh builds it.
// Here because another library's kernels, compiled the same way, say what ours are worth; its sources are not in this tree.
#include <string.h>

#include "ports/cortex_m/board.h"
#include "ports/cortex_m/say.h"

// As arm_math.h has them.
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
// Convolutions of 3 x 3 as products whose windows somebody has gathered, a pointwise one, and layers at batch 1.
constexpr Shape kProducts[] = {{1024, 144, 16}, {256, 288, 32}, {64, 576, 64}, {125, 64, 64}, {1, 640, 128}, {1, 128, 128}, {1, 64, 10}};
constexpr uint64_t kTurns = 4;
constexpr uint32_t kMost = 1024 * 144;
REPRISE_ARENA float a[kMost];
REPRISE_ARENA float b[kMost];
REPRISE_ARENA float c[kMost];

template <typename Call>
void measure(const char* name, const Shape& shape, const Call& call) {
  const uint64_t start = board_ticks();
  for (uint64_t turn = 0; turn < kTurns; ++turn) call();
  const uint64_t ticks = board_ticks() - start;
  board_say(name), board_say(" "), say(uint64_t{shape.m}), board_say("x"), say(uint64_t{shape.k}), board_say("x"), say(uint64_t{shape.n});
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
