// Tests the network of rearranged_net.h: its gradients, its bits under every schedule, and the
// addresses of its values. The cases of each op test one call. This network also has gradients to
// which several ops contribute, and values that are stored at another value's address.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/expect_gradients.h"
#include "tests/runtime/rearranged_net.h"

namespace reprise {
namespace {

using namespace rearranged;
using Numbers = std::vector<double>;

std::vector<float> images() {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> pixels(size_t{kN} * kH * kW * kIn);
  for (float& pixel : pixels) pixel = uniform(random);
  return pixels;
}
constexpr int32_t kLabels[kN] = {2, 0, 3};
BatchSource source() {
  return {nullptr, [](void*, uint64_t, uint32_t, BatchSink& sink) {
            const std::vector<float> pixels = images();
            const std::vector<Bf16> rounded(pixels.begin(), pixels.end());
            const bool is_f32 = sink.input_bytes() == pixels.size() * sizeof(float);
            sink.add(is_f32 ? static_cast<const void*>(pixels.data()) : rounded.data(), sink.input_bytes(), kLabels,
                     kN);
            return ok_status();
          }};
}

// ---- the same network in double ----

using Index = std::vector<size_t>;

struct Array {
  Index shape;
  Numbers data;

  explicit Array(Index its) : shape(std::move(its)), data(count(shape)) {}
  static size_t count(const Index& shape) {
    size_t all = 1;
    for (const size_t d : shape) all *= d;
    return all;
  }
  double& operator[](const Index& at) { return data[place(at)]; }
  double operator[](const Index& at) const { return data[place(at)]; }
  size_t place(const Index& at) const {
    size_t p = 0;
    for (size_t d = 0; d < shape.size(); ++d) p = p * shape[d] + at[d];
    return p;
  }
};

// Returns an array whose elements are computed by `element` from their indices.
Array made(const Index& shape, const std::function<double(const Index&)>& element) {
  Array y(shape);
  for (size_t i = 0; i < y.data.size(); ++i) {
    Index at(shape.size());
    for (size_t d = shape.size(), rest = i; d-- > 0; rest /= shape[d]) at[d] = rest % shape[d];
    y.data[i] = element(at);
  }
  return y;
}

Array box(const Array& x, const Index& first, const Index& counts) {
  return made(counts, [&](Index at) {
    for (size_t d = 0; d < at.size(); ++d) at[d] += first[d];
    return x[at];
  });
}
Array padded(const Array& x, const Index& before, const Index& behind) {
  Index shape = x.shape;
  for (size_t d = 0; d < shape.size(); ++d) shape[d] += before[d] + behind[d];
  return made(shape, [&](Index at) {
    for (size_t d = 0; d < at.size(); ++d) {
      if (at[d] < before[d] || at[d] >= before[d] + x.shape[d]) return 0.0;
      at[d] -= before[d];
    }
    return x[at];
  });
}
Array joined(const std::vector<Array>& parts, size_t axis) {
  Index shape = parts[0].shape;
  shape[axis] = 0;
  for (const Array& part : parts) shape[axis] += part.shape[axis];
  return made(shape, [&](Index at) {
    size_t i = 0;
    for (; at[axis] >= parts[i].shape[axis]; ++i) at[axis] -= parts[i].shape[axis];
    return parts[i][at];
  });
}
Array in_order(const Array& x, const Index& axes) {
  Index shape;
  for (const size_t axis : axes) shape.push_back(x.shape[axis]);
  return made(shape, [&](const Index& at) {
    Index from(at.size());
    for (size_t d = 0; d < at.size(); ++d) from[axes[d]] = at[d];
    return x[from];
  });
}
Array as(Array x, const Index& shape) {
  x.shape = shape;
  return x;
}
Array sum(Array a, const Array& b) {
  for (size_t i = 0; i < a.data.size(); ++i) a.data[i] += b.data[i];
  return a;
}
// A function that converts the index of an output pixel along a side to an input position. `in` and
// `out` are the lengths of the side.
using PlaceOf = double (*)(double p, double in, double out);
double nearest(double p, double in, double out) { return std::floor((p * in + 0.25) / out); }
double squares(double p, double in, double out) { return std::max(0.0, (p + 0.5) * in / out - 0.5); }
double corners(double p, double in, double out) { return p * (in - 1) / (out - 1); }
Array resized(const Array& x, size_t height, size_t width, PlaceOf place) {
  return made({x.shape[0], height, width, x.shape[3]}, [&](const Index& at) {
    const double h = place(static_cast<double>(at[1]), static_cast<double>(x.shape[1]), static_cast<double>(height));
    const double w = place(static_cast<double>(at[2]), static_cast<double>(x.shape[2]), static_cast<double>(width));
    double y = 0;
    for (size_t i = 0; i < x.shape[1]; ++i) {
      for (size_t j = 0; j < x.shape[2]; ++j) {
        // Interpolates linearly between input pixels. Beyond the last pixel, the value of the last
        // pixel is used.
        const double down = 1 - std::abs(std::min(h, static_cast<double>(x.shape[1] - 1)) - static_cast<double>(i));
        const double across = 1 - std::abs(std::min(w, static_cast<double>(x.shape[2] - 1)) - static_cast<double>(j));
        if (down > 0 && across > 0) y += down * across * x[{at[0], i, j, at[3]}];
      }
    }
    return y;
  });
}

// Multiplies the last dimension of x by the matrix w.
Array product(const Array& x, const Numbers& w) {
  const size_t in = x.shape.back(), out = w.size() / in;
  Index shape = x.shape;
  shape.back() = out;
  return made(shape, [&](Index at) {
    const size_t k = at.back();
    double y = 0;
    for (at.back() = 0; at.back() < in; ++at.back()) y += x[at] * w[k * in + at.back()];
    return y;
  });
}

double loss(const ParametersInDouble& parameters) {
  const auto weight = [&](const std::string& name) { return parameters.at(name + ".weight"); };
  const std::vector<float> pixels = images();
  Array x({kN, kH, kW, kIn});
  x.data.assign(pixels.begin(), pixels.end());
  const Array stem = product(x, weight("stem"));
  const Array left = box(stem, {0, 0, 0, 0}, {kN, kH, kW, 2}), right = box(stem, {0, 0, 0, 2}, {kN, kH, kW, 2});
  const Array side = joined({left, product(right, weight("mix")), right}, 3);
  const Array twice = product(joined({right, left, right}, 3), weight("few"));
  const Array cropped = box(padded(side, {0, 1, 0, 0}, {0, 0, 2, 0}), {0, 0, 1, 0}, {kN, kH, kW, kJoined});
  const Array small = resized(resized(resized(side, 7, 9, squares), 5, 5, corners), kH, kW, nearest);
  const Array tokens = as(sum(sum(cropped, small), twice), {kN, kTokens, kJoined});
  Array mixed = product(in_order(tokens, {0, 2, 1}), weight("mixer"));
  for (size_t i = 0; i < mixed.data.size(); ++i) mixed.data[i] += parameters.at("mixer.bias")[i % kTokens];
  const Array all = sum(in_order(mixed, {0, 2, 1}), tokens);
  Array flat = as(in_order(as(all, {kN, kTokens, 2, 3}), {0, 1, 3, 2}), {kN, kTokens * kJoined});
  for (double& y : flat.data) y = std::max(y, 0.0);
  const Array logits = product(flat, weight("head"));
  double total = 0;
  for (size_t n = 0; n < kN; ++n) {
    double exponentials = 0;
    for (size_t k = 0; k < kClasses; ++k) exponentials += std::exp(logits[{n, k}]);
    total += std::log(exponentials) - logits[{n, static_cast<size_t>(kLabels[n])}];
  }
  return total / kN;
}

Recipe recipe_of(DType stored) {
  Recipe recipe;
  recipe.name = "rearranged";
  recipe.accumulate = 2;
  recipe.clip_norm = 100;
  recipe.seed = 5;
  recipe.dtype = stored == DType::kBf16 ? Recipe::Dtype::kBf16 : Recipe::Dtype::kF32;
  recipe.optimizer.update = Op::kAdamW;
  recipe.optimizer.lr = 0.001;
  return recipe;
}

TEST(RearrangedNet, GradientsAreThoseOfTheWholeNetwork) {
  expect_gradients_of_the_loss(recipe_of(DType::kF32), network(DType::kF32), source(), loss, 6);
}

TEST(RearrangedNet, TrainsWithTheSameBitsUnderEverySchedule) {
  for (const DType stored : {DType::kF32, DType::kBf16})
    expect_same_bits_under_every_schedule(recipe_of(stored), network(stored), source());
}

// Returns the number of reshapes whose output has the address of their input. Adds the number of
// all reshapes to `all`.
size_t reshapes_in_place(const OwnedProgram& program, size_t& all) {
  size_t in_place = 0;
  for (const Row& row : program.rows) {
    if (row.op != Op::kReshape) continue;
    const Ref* refs = &program.arguments[row.first_argument];
    const Slot &y = program.slots[ref_index(refs[ReshapeForward::kY])],
               &x = program.slots[ref_index(refs[ReshapeForward::kX])];
    ++all;
    in_place += y.tensor.offset == x.tensor.offset ? 1 : 0;
  }
  return in_place;
}

// In an evaluation no value is needed again later, so every reshape can be stored at the address of
// its input.
TEST(RearrangedNet, AReshapeTakesThePlaceOfWhatItReads) {
  const PlannedRun run = plan_run(recipe_of(DType::kF32), network(DType::kF32), "optimal", 0);
  size_t all = 0;
  EXPECT_EQ(reshapes_in_place(run.planned.plan.program(ProgramId::kEvaluate), all), 4u);
  EXPECT_EQ(all, 4u);
  size_t of_training = 0;
  EXPECT_GT(reshapes_in_place(run.planned.plan.program(ProgramId::kMicroFirst), of_training), 4u)
      << "of " << of_training;
}

}  // namespace
}  // namespace reprise
