// Tests views of the values of an imported model after transpositions and reshapes. The numbers and
// their order must be as if they had been moved in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tools/plan/onnx/tensor_view.h"

namespace reprise::test {
namespace {

using Shape = std::vector<int64_t>;

int64_t elements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// A reference that moves the numbers in memory. `numbers` is always in the order of `shape`.
struct Moved {
  Shape shape;
  std::vector<int64_t> numbers;

  Moved transposed(const std::vector<size_t>& order) const {
    Moved result;
    for (const size_t axis : order) result.shape.push_back(shape[axis]);
    result.numbers.resize(numbers.size());
    for (int64_t at = 0; at < elements(shape); ++at) {
      std::vector<int64_t> digits(shape.size());
      for (int64_t rest = at, axis = static_cast<int64_t>(shape.size()) - 1; axis >= 0; --axis) {
        digits[static_cast<size_t>(axis)] = rest % shape[static_cast<size_t>(axis)];
        rest /= shape[static_cast<size_t>(axis)];
      }
      int64_t to = 0;
      for (size_t axis = 0; axis < order.size(); ++axis) to = to * result.shape[axis] + digits[order[axis]];
      result.numbers[static_cast<size_t>(to)] = numbers[static_cast<size_t>(at)];
    }
    return result;
  }
};

// Returns the index in memory of each number of the view. The numbers are in the order of the
// model's axes.
std::vector<int64_t> places(const TensorView& view) {
  std::vector<int64_t> result = {0};
  for (const auto& axis : view.axes) {
    for (const int id : axis) {
      int64_t stride = 1;
      for (size_t n = view.place(id) + 1; n < view.memory.size(); ++n) stride *= view.memory[n].size;
      std::vector<int64_t> next;
      for (const int64_t base : result) {
        for (int64_t digit = 0; digit < view.size(id); ++digit) next.push_back(base + digit * stride);
      }
      result = next;
    }
  }
  return result;
}

class Draw {
 public:
  explicit Draw(uint32_t seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }
  std::vector<size_t> order(size_t n) {
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }
  // Returns a random shape with `count` elements. It groups the prime factors of `count` at random,
  // with ones in between.
  Shape shape(int64_t count) {
    Shape shape = {1};
    for (int64_t rest = count, prime = 2; rest > 1;) {
      if (rest % prime != 0) {
        ++prime;
        continue;
      }
      rest /= prime;
      below(2) == 0 ? shape.push_back(prime) : (shape.back() *= prime, void());
    }
    if (below(3) == 0) shape.insert(shape.begin() + static_cast<long>(below(shape.size() + 1)), 1);
    return shape;
  }

 private:
  std::mt19937 random_;
};

TEST(TensorView, IsWhatMovingWouldBe) {
  size_t reshaped = 0, refused = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const int64_t batch = seed % 3 == 0 ? 1 : 11;
    const Shape shape = {batch, static_cast<int64_t>(1 + draw.below(6)), static_cast<int64_t>(1 + draw.below(6)),
                         static_cast<int64_t>(1 + draw.below(6))};
    const bool is_image = draw.below(2) == 0;
    TensorView view =
        TensorView::of("x", shape, is_image ? std::vector<size_t>{0, 2, 3, 1} : std::vector<size_t>{0, 1, 2, 3}, {});
    Moved moved = {shape, places(view)};
    for (int step = 0; step < 6; ++step) {
      if (draw.below(2) == 0) {
        const std::vector<size_t> order = draw.order(moved.shape.size());
        moved = moved.transposed(order);
        view = view.transposed(order);
      } else {
        const Shape next = draw.shape(elements(moved.shape));
        const auto other = view.reshaped(next);
        (other ? reshaped : refused) += 1;
        if (!other) continue;
        moved.shape = next;
        view = *other;
      }
      ASSERT_EQ(view.shape(), moved.shape);
      ASSERT_EQ(places(view), moved.numbers);
      EXPECT_EQ(view.memory[0].id, TensorView::kBatch);
      EXPECT_EQ(view.memory[0].size, batch) << "the batch is never cut";
    }
  }
  EXPECT_GT(reshaped, 3000u);
  EXPECT_GT(refused, 0u) << "or no shape was such that it cannot be read";
}

// PyTorch's attention forms q, k and v with their heads from one packed output by this reshape and
// transposition. A view must represent them without a node that moves numbers.
TEST(TensorView, ReadsHeadsWhereTheyLie) {
  const TensorView packed = TensorView::of("qkv", {11, 4, 18}, {0, 1, 2}, {11, 4, 18});
  const TensorView heads = packed.reshaped({11, 4, 3, 2, 3})->transposed({2, 0, 3, 1, 4});
  EXPECT_EQ(heads.shape(), (Shape{3, 11, 2, 4, 3}));
  EXPECT_EQ(heads.node, "qkv");
  EXPECT_EQ(heads.memory.size(), 5u);
  const TensorView other =
      packed.transposed({1, 0, 2}).reshaped({4, 11, 3, 6})->transposed({2, 0, 1, 3}).reshaped({3, 4, 22, 3}).value();
  EXPECT_EQ(other.shape(), (Shape{3, 4, 22, 3})) << "batch and heads are one axis";
}

TEST(TensorView, RefusesWhatCutsTheBatch) {
  const TensorView view = TensorView::of("x", {12, 5}, {0, 1}, {12, 5});
  EXPECT_FALSE(view.reshaped({3, 20}));
  EXPECT_FALSE(view.reshaped({60, 2}));
  EXPECT_TRUE(view.reshaped({60}));
}

}  // namespace
}  // namespace reprise::test
