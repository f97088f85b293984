// See tile_judge.h. This file does not use the library's packing.
#include "tests/ops/tile_judge.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/ops/random_floats.h"

namespace reprise::test {
namespace {

struct Product {
  uint32_t rows, columns;
  uint64_t k;
  float beta;
  std::vector<float> a, b;  // operands: a is [k, rows], b is [k, columns]

  float start() const { return beta == 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.5f; }
  float want(uint32_t i, uint32_t j) const {
    float sum = 0.0f;
    for (uint64_t p = 0; p < k; ++p) sum = std::fma(a[p * rows + i], b[p * columns + j], sum);
    return beta == 0.0f ? sum : std::fma(beta, start(), sum);
  }
};

// Calls compute(c, row_stride), which must write the product to C. Returns a description of the
// first element that differs, "" if none does. Rows have a stride larger than their length and more
// rows follow, so that writes outside C are detected.
template <typename Compute>
std::string compare(const Product& product, const char* way, const Compute& compute) {
  const uint32_t lead = product.columns + 5;
  std::vector<float> c(size_t{lead} * kMaxMr, product.start());
  compute(c.data(), static_cast<int64_t>(lead));
  for (uint32_t i = 0; i < kMaxMr; ++i) {
    for (uint32_t j = 0; j < lead; ++j) {
      const float want = i < product.rows && j < product.columns ? product.want(i, j) : product.start(),
                  got = c[i * lead + j];
      if (std::memcmp(&want, &got, sizeof want) == 0) continue;
      return std::string(way) + ", depth " + std::to_string(product.k) + ", beta " + std::to_string(product.beta) +
             ": element " + std::to_string(i) + ", " + std::to_string(j) + " is " + std::to_string(got) + ", not " +
             std::to_string(want);
    }
  }
  return "";
}

std::string compare_run(const GemmTile& tile, const Product& product) {
  alignas(64) float a[kKc * kMaxMr + kPanelSlack], b[kKc * kMaxNr + kPanelSlack];
  std::memcpy(a, product.a.data(), product.a.size() * 4);
  std::memcpy(b, product.b.data(), product.b.size() * 4);
  return compare(product, "run",
                 [&](float* c, int64_t stride) { tile.run(tile, product.k, a, b, product.beta, c, stride, 1); });
}

// Tests run_rows. The depths of A's rows are divided into three runs, which may be empty.
std::string compare_run_rows(const GemmTile& tile, const Product& product) {
  alignas(64) float b[kKc * kMaxNr + kPanelSlack];
  std::memcpy(b, product.b.data(), product.b.size() * 4);
  const uint32_t k = static_cast<uint32_t>(product.k), ends[] = {0, k / 3, k / 2, k};
  std::vector<float> rows[3];
  RowRun runs[3];
  for (uint32_t r = 0; r < 3; ++r) {
    const uint32_t depths = ends[r + 1] - ends[r], stride = depths + 3 + r;
    rows[r].assign(size_t{stride} * product.rows + 1, std::numeric_limits<float>::quiet_NaN());
    runs[r].depths = depths;
    runs[r].ahead = r == 1 ? 0 : stride;
    for (uint32_t i = 0; i < product.rows; ++i) {
      for (uint32_t p = 0; p < depths; ++p) rows[r][i * stride + p] = product.a[(ends[r] + p) * product.rows + i];
      runs[r].rows[i] = rows[r].data() + i * stride;
    }
  }
  return compare(product, "run_rows",
                 [&](float* c, int64_t stride) { tile.run_rows(runs, 3, b, product.beta, c, stride); });
}

// Tests run_depths for every number of rows, with and without prefetching of the next depths. The
// distances between depths are larger than the operands' widths.
std::string compare_run_depths(const GemmTile& tile, const Product& whole) {
  const uint64_t a_step = whole.rows + 7, b_step = whole.columns + 3;
  std::vector<float> a(a_step * whole.k, std::numeric_limits<float>::quiet_NaN()),
      b(b_step * whole.k, std::numeric_limits<float>::quiet_NaN());
  for (uint64_t p = 0; p < whole.k; ++p) {
    std::memcpy(&a[p * a_step], &whole.a[p * whole.rows], whole.rows * 4);
    std::memcpy(&b[p * b_step], &whole.b[p * whole.columns], whole.columns * 4);
  }
  for (uint32_t rows = tile.row_step; rows <= whole.rows; rows += tile.row_step) {
    Product product{rows, whole.columns, whole.k, whole.beta, {}, whole.b};
    for (uint64_t p = 0; p < whole.k; ++p)
      product.a.insert(product.a.end(), &whole.a[p * whole.rows], &whole.a[p * whole.rows] + rows);
    const int64_t ahead = rows == tile.row_step ? 0 : static_cast<int64_t>(b_step);
    const std::string fault = compare(product, "run_depths", [&](float* c, int64_t stride) {
      tile.run_depths(rows, product.k, {a.data(), static_cast<int64_t>(a_step), ahead},
                      {b.data(), static_cast<int64_t>(b_step), ahead}, product.beta, c, stride);
    });
    if (!fault.empty()) return fault + ", of " + std::to_string(rows) + " rows";
  }
  return "";
}

// The next functions are wrong tiles. Each calls the corresponding function of `right`, with a
// typical error.
const GemmTile* right;
void add_once_more(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c,
                   int64_t row_stride, int64_t column_stride) {
  right->run(tile, k, a, b, beta, c, row_stride, column_stride);
  c[row_stride + 1] = std::nextafter(c[row_stride + 1], 9.0f);
}
void sum_in_halves(const GemmTile& tile, uint64_t k, const float* a, const float* b, float beta, float* c,
                   int64_t row_stride, int64_t column_stride) {
  right->run(tile, k / 2, a, b, beta, c, row_stride, column_stride);
  right->run(tile, k - k / 2, a + k / 2 * tile.mr, b + k / 2 * tile.nr, 1.0f, c, row_stride, column_stride);
}
void forget_a_run(const RowRun* runs, uint32_t count, const float* b, float beta, float* c, int64_t row_stride) {
  right->run_rows(runs, count - 1, b, beta, c, row_stride);
}
void forget_the_step(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                     int64_t row_stride) {
  right->run_depths(rows, k, {a.data, a.step - 1, a.ahead}, b, beta, c, row_stride);
}
void forget_the_step_of_b(uint32_t rows, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                          int64_t row_stride) {
  right->run_depths(rows, k, a, {b.data, b.step - 1, b.ahead}, beta, c, row_stride);
}
void take_all_rows(uint32_t, uint64_t k, const DepthOperand& a, const DepthOperand& b, float beta, float* c,
                   int64_t row_stride) {
  right->run_depths(right->rows(), k, a, b, beta, c, row_stride);
}

}  // namespace

std::string judge_fused_tile(const GemmTile& tile) {
  for (const uint64_t k : {1, 2, 3, 15, 16, 17, 33, 100, 255, 256}) {
    for (const float beta : {0.0f, 1.0f, 0.75f}) {
      const Product product{tile.rows(),
                            tile.columns(),
                            k,
                            beta,
                            random_floats(k * tile.rows(), 1),
                            random_floats(k * tile.columns(), 2)};
      for (const auto way : {compare_run, compare_run_rows, compare_run_depths}) {
        if (const std::string fault = way(tile, product); !fault.empty()) return std::string(tile.name) + " " + fault;
      }
    }
  }
  return "";
}

std::string judge_the_tile_judge(const GemmTile& tile) {
  right = &tile;
  GemmTile wrong[] = {tile, tile, tile, tile, tile, tile};
  wrong[0].run = add_once_more;
  wrong[1].run = sum_in_halves;
  wrong[2].run_rows = forget_a_run;
  wrong[3].run_depths = forget_the_step;
  wrong[4].run_depths = forget_the_step_of_b;
  wrong[5].run_depths = take_all_rows;
  for (const GemmTile& each : wrong) {
    if (judge_fused_tile(each).empty()) return "the judge does not see wrong tile " + std::to_string(&each - wrong);
  }
  return "";
}

}  // namespace reprise::test
