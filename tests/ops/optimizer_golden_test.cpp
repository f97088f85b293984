// Compares the optimizers with the implementations of their publishers: torch's Adafactor and Muon,
// the packages of APOLLO and AdaLomo, and bitsandbytes' 8-bit AdamW.
// tests/parity/make_optimizer_goldens.py documents the runs, which are five steps on one matrix.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/update/matrix_update_rules.h"
#include "tests/ops/script_numbers.h"
#include "tests/ops/stored_state.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

constexpr uint32_t kSteps = 5, kSeed = 7, kStream = 3;
using Floats = std::vector<float>;

std::map<std::string, std::string> goldens() {
  std::ifstream file("tests/golden/optimizers.txt");
  std::map<std::string, std::string> lines;
  std::string name, rest;
  while (file >> name && std::getline(file, rest)) lines[name] = rest.substr(1);
  return lines;
}
Floats golden(const std::string& name) {
  std::istringstream words(goldens().at(name));
  Floats floats;
  for (std::string word; words >> word;) floats.push_back(std::strtof(word.c_str(), nullptr));
  return floats;
}
std::vector<unsigned char> golden_bytes(const std::string& name) {
  const std::string hex = goldens().at(name);
  std::vector<unsigned char> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes.push_back(static_cast<unsigned char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

struct Shape2 {
  const char* tag;
  uint64_t rows, columns;
  size_t count() const { return rows * columns; }
};
constexpr Shape2 kShapes[] = {{"wide", 12, 30}, {"tall", 30, 12}};

// Runs step(context, parameters, gradient, scalars) for each step. The parameters start as in the
// script.
template <typename Step>
Floats train(size_t count, float learning_rate, const Step& step) {
  Floats parameters = script_numbers(count, 1, 1);
  for (uint32_t s = 0; s < kSteps; ++s) {
    StepScalars scalars{};
    scalars.seed = kSeed, scalars.step = s, scalars.learning_rate = learning_rate, scalars.clip_factor = 1;
    const TestWorkers hands(1);
    const KernelContext context{.workers = &hands.workers(), .machine = test_backend().machine};
    const Floats gradient = script_numbers(count, 100 + s, 0.25f);
    EXPECT_TRUE(step(context, parameters, gradient, scalars).ok());
  }
  return parameters;
}

// Returns how far `got` is from `want`, as a fraction of the distance that training moved `want`
// from the start.
double apart(const Floats& got, const Floats& want) {
  const Floats start = script_numbers(want.size(), 1, 1);
  double difference = 0, moved = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    moved += std::pow(static_cast<double>(want[i]) - static_cast<double>(start[i]), 2);
  }
  return std::sqrt(difference / moved);
}

Floats adafactor(const Shape2& shape, bool adalomo) {
  Floats row(shape.rows), column(shape.columns);
  std::vector<unsigned char> scratch(adafactor_scratch({shape.rows, shape.columns}, true).bytes);
  return train(shape.count(), 0.05f, [&](const KernelContext& context, Floats& p, const Floats& g, const StepScalars& s) {
    return cpu_adafactor_update(context, {.parameters = p.data(), .row = row.data(), .column = column.data(), .gradients = g.data(), .scalars = &s,
                                          .scratch = scratch.data(), .scratch_bytes = scratch.size(), .rows = shape.rows, .columns = shape.columns,
                                          .weight_decay = 0.1f, .decay_power = 0.8, .epsilon = 1e-30f, .min_scale = 1e-3f, .clip = 1, .rate = 1,
                                          .adalomo = adalomo, .stream = kStream});
  });
}

TEST(OptimizerGoldens, AdafactorIsTorchs) {
  for (const Shape2& shape : kShapes) EXPECT_LT(apart(adafactor(shape, false), golden(std::string("adafactor.") + shape.tag)), 1e-5) << shape.tag;
}
TEST(OptimizerGoldens, AdaLomoIsItsAuthors) {
  for (const Shape2& shape : kShapes) EXPECT_LT(apart(adafactor(shape, true), golden(std::string("adalomo.") + shape.tag)), 1e-5) << shape.tag;
}

Floats apollo(const Shape2& shape, bool mini) {
  const uint32_t rank = mini ? 1 : 4;
  const contract::MatrixShape matrix = {shape.rows, shape.columns};
  Floats m(matrix.longer() * rank), v(m.size()), growth(1);
  std::vector<unsigned char> scratch(apollo_scratch(matrix, rank, CpuSize::kLarge).bytes);
  return train(shape.count(), 0.01f, [&](const KernelContext& context, Floats& p, const Floats& g, const StepScalars& s) {
    return cpu_apollo_update(context, {.parameters = p.data(), .first_moments = m.data(), .second_moments = v.data(), .growth = growth.data(),
                                       .gradients = g.data(), .scalars = &s, .scratch = scratch.data(), .scratch_bytes = scratch.size(),
                                       .rows = shape.rows, .columns = shape.columns, .rank = rank, .weight_decay = 0, .beta1 = 0.9, .beta2 = 0.999,
                                       .epsilon = 1e-6f, .scale = mini ? 128.0f : 1.0f, .rate = 1, .by_tensor = mini, .period = 200, .stream = kStream});
  });
}
TEST(OptimizerGoldens, ApolloIsItsAuthorsOnOurProjection) {
  for (const Shape2& shape : kShapes) {
    EXPECT_LT(apart(apollo(shape, false), golden(std::string("apollo.") + shape.tag)), 1e-5) << shape.tag;
    EXPECT_LT(apart(apollo(shape, true), golden(std::string("apollo_mini.") + shape.tag)), 1e-5) << shape.tag;
  }
}

// torch computes Newton-Schulz steps in bf16, this library in f32. Each of torch's five steps
// rounds with a relative error of up to 2^-9, and each following step enlarges this error. So
// results may differ by 2%.
TEST(OptimizerGoldens, MuonIsTorchsUpToItsRounding) {
  for (const Shape2& shape : kShapes) {
    Floats momenta(shape.count());
    std::vector<unsigned char> scratch(muon_scratch({shape.rows, shape.columns}, CpuSize::kLarge).bytes);
    const float rate = std::sqrt(std::max(1.0f, static_cast<float>(shape.rows) / static_cast<float>(shape.columns)));
    const Floats got = train(shape.count(), 0.02f, [&](const KernelContext& context, Floats& p, const Floats& g, const StepScalars& s) {
      return cpu_muon_update(context, {.parameters = p.data(), .momenta = momenta.data(), .gradients = g.data(), .scalars = &s,
                                       .scratch = scratch.data(), .scratch_bytes = scratch.size(), .rows = shape.rows, .columns = shape.columns,
                                       .weight_decay = 0.1f, .momentum = 0.95f, .epsilon = 1e-7f, .rate = rate, .nesterov = true, .stream = kStream});
    });
    EXPECT_LT(apart(got, golden(std::string("muon.") + shape.tag)), 0.02) << shape.tag;
  }
}

// Result of compare_codes(). `other`: number of codes that differ from those of bitsandbytes.
// `far`: number of these codes that differ by more than one. Codes of numbers below kTinyShare of a
// block's largest number never count as far. For such numbers the CPU encoder of bitsandbytes does
// not choose the nearest code, unlike its encoder for cards.
constexpr float kTinyShare = 1e-4f;
struct CodeDifferences {
  size_t other = 0, far = 0;
};
CodeDifferences compare_codes(const std::vector<DynamicBlock>& blocks, const std::string& name, const std::string& place, size_t count) {
  const std::vector<unsigned char> codes = golden_bytes(name + "codes" + place);
  const Floats largest = golden(name + "largest" + place);
  EXPECT_EQ(codes.size(), count);
  CodeDifferences found;
  for (size_t i = 0; i < codes.size(); ++i) {
    const DynamicBlock& block = blocks[i / 256];
    EXPECT_NEAR(block.largest, largest[i / 256], largest[i / 256] * 1e-5f) << name << i;
    const int apart = std::abs(static_cast<int>(block.codes[i % 256]) - static_cast<int>(codes[i]));
    const bool is_tiny = std::abs(dynamic_number(codes[i], place == "1")) < kTinyShare;
    found.other += apart > 0, found.far += apart > 1 && !is_tiny;
  }
  return found;
}

// After one step from equal codes, each code must be within one of bitsandbytes' code. After more
// steps a few codes may differ by more, because numbers near zero whose codes differed move apart.
TEST(OptimizerGoldens, CodesOfAdamWAreBitsandbytes) {
  constexpr size_t kCount = 64 * 70, kBlocks = (kCount + 255) / 256;
  for (const uint32_t steps : {1u, kSteps}) {
    std::vector<DynamicBlock> m(kBlocks), v(kBlocks);
    for (DynamicBlock& block : m) block.largest = 0, std::memset(block.codes, static_cast<int>(kDynamicZero), sizeof block.codes);
    for (DynamicBlock& block : v) block.largest = 0, std::memset(block.codes, 0, sizeof block.codes);
    const Floats got = train(kCount, 0.01f, [&](const KernelContext& context, Floats& p, const Floats& g, const StepScalars& s) {
      if (s.step >= steps) return ok_status();
      return cpu_adamw_update(context, {.parameters = p.data(), .first_moments = {m.data(), DType::kDynamic8},
                                        .second_moments = {v.data(), DType::kDynamic8Square}, .gradients = g.data(), .scalars = &s, .n = kCount,
                                        .weight_decay = 0, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8f, .rate = 1, .stream = kStream});
    });
    const std::string name = "adamw8bit." + std::to_string(steps) + ".";
    for (const CodeDifferences& found : {compare_codes(m, name, "1", kCount), compare_codes(v, name, "2", kCount)}) {
      EXPECT_LE(found.far, steps == 1 ? 0 : kCount / 500) << name;
      EXPECT_LE(found.other, kCount / 50) << name;
    }
    for (const bool first : {true, false}) {
      const Floats map = golden(name + (first ? "map1" : "map2"));
      for (uint32_t c = 0; c < kDynamicCodes; ++c) EXPECT_NEAR(dynamic_number(c, first), map[c], std::abs(map[c]) * 3e-7f) << c;
    }
    const Floats want = golden(name + "parameters");
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i])));
    EXPECT_LT(worst, steps == 1 ? 1e-6 : 1e-3) << name << ": a step is 0.01 at most";
  }
}

}  // namespace
}  // namespace reprise::test
