// Tests the arithmetic of constants in imported nets against ONNX's definitions: the type of a
// result, the sign of a remainder, and empty lists.
#include "tools/plan/onnx/known_numbers.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

using Numbers = std::vector<double>;

// Returns what a node with this op computes from its inputs.
KnownNumbers result_of(const char* op, const std::vector<KnownNumbers>& inputs,
                       const std::vector<std::pair<const char*, int64_t>>& attributes = {}) {
  OnnxNode node;
  node.op = op;
  for (const auto& [name, integer] : attributes) {
    node.attributes.emplace_back();
    node.attributes.back().name = name;
    node.attributes.back().type = 2;  // INT
    node.attributes.back().integer = integer;
  }
  std::vector<std::string> refused;
  NodeReader reader(node, refused);
  std::vector<const KnownNumbers*> places;
  for (const KnownNumbers& input : inputs) places.push_back(&input);
  const std::optional<KnownNumbers> result = computed(reader, places);
  EXPECT_TRUE(result) << op;
  EXPECT_TRUE(refused.empty()) << op;
  return result.value_or(KnownNumbers{});
}

KnownNumbers floats(const Numbers& numbers) { return {{static_cast<int64_t>(numbers.size())}, numbers, false}; }

TEST(KnownNumbers, APowerHasTheTypeOfItsBase) {
  const KnownNumbers square = result_of("Pow", {floats({0.5, 3}), known_integers({2, 2})});
  EXPECT_EQ(square.numbers, (Numbers{0.25, 9}));
  EXPECT_FALSE(square.is_integer);
  const KnownNumbers root = result_of("Pow", {known_integers({2, 9}), floats({0.5, 0.5})});
  EXPECT_EQ(root.numbers, (Numbers{1, 3}));
  EXPECT_TRUE(root.is_integer);
}

TEST(KnownNumbers, ARemainderHasTheSignOfEitherOperand) {
  const KnownNumbers x = floats({-7.5, 7.5}), y = floats({2, -2});
  EXPECT_EQ(result_of("Mod", {x, y}).numbers, (Numbers{0.5, -0.5}));
  EXPECT_EQ(result_of("Mod", {x, y}, {{"fmod", 1}}).numbers, (Numbers{-1.5, 1.5}));
}

TEST(KnownNumbers, ACastToBooleansTestsForZero) {
  constexpr auto kBool = static_cast<int64_t>(OnnxType::kBool), kBfloat16 = static_cast<int64_t>(OnnxType::kBfloat16),
                 kInt64 = static_cast<int64_t>(OnnxType::kInt64);
  const KnownNumbers x = floats({0.5, 2, 0, -0.25});
  EXPECT_EQ(result_of("Cast", {x}, {{"to", kBool}}).numbers, (Numbers{1, 1, 0, 1}));
  EXPECT_EQ(result_of("Cast", {x}, {{"to", kInt64}}).numbers, (Numbers{0, 2, 0, 0}));
  const KnownNumbers brain = result_of("Cast", {x}, {{"to", kBfloat16}});
  EXPECT_EQ(brain.numbers, x.numbers);
  EXPECT_FALSE(brain.is_integer);
}

TEST(KnownNumbers, TheMeanOfIntegersIsOne) {
  EXPECT_EQ(result_of("ReduceMean", {known_integers({1, 2})}).numbers, (Numbers{1}));
  EXPECT_EQ(result_of("ReduceMean", {floats({1, 2})}).numbers, (Numbers{1.5}));
}

TEST(KnownNumbers, ARangeMayBeEmpty) {
  const auto range = [](int64_t start, int64_t limit, int64_t delta) {
    KnownNumbers ends[3] = {known_integers({start}), known_integers({limit}), known_integers({delta})};
    for (KnownNumbers& end : ends) end.shape.clear();
    return result_of("Range", {ends[0], ends[1], ends[2]});
  };
  EXPECT_EQ(range(2, 5, 2).numbers, (Numbers{2, 4}));
  EXPECT_EQ(range(5, 2, -2).numbers, (Numbers{5, 3}));
  EXPECT_EQ(range(5, 2, 1).shape, (std::vector<int64_t>{0}));
}

TEST(KnownNumbers, ASliceOfNothingIsEmpty) {
  for (const int64_t step : {1, -1, -3}) EXPECT_EQ(slice_range(-1, -100, step, 0).count, 0) << step;
  EXPECT_EQ(slice_range(-1, -100, -1, 3).count, 3);
}

}  // namespace
}  // namespace reprise
