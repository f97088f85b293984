// Compares Philox4x32-10 with the published answers (Random123's kat_vectors), and tests how a
// mask's counter is composed. A recomputed dropout draws its mask again, so the numbers must never
// change.
#include "lib/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

#include "lib/cpu/pointwise/random_mask.h"

namespace reprise {
namespace {

std::vector<uint32_t> words(const PhiloxBlock& block) { return {block.word, block.word + 4}; }

TEST(Philox, KnownAnswerZeros) {
  EXPECT_EQ(words(philox(0, 0, 0)), (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, KnownAnswerOnes) {
  EXPECT_EQ(words(philox(~0ull, ~0ull, ~0ull)),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, KnownAnswerPi) {
  const uint64_t key = 0x299f31d0a4093822ull, high = 0x0370734413198a2eull, low = 0x85a308d3243f6a88ull;
  EXPECT_EQ(words(philox(key, high, low)), (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsAConstantExpression) {
  static_assert(philox(0, 0, 0).word[0] == 0x6627e8d5);
}

// Tests that a change of seed, step, micro-batch, stream or block changes the four random words.
TEST(PhiloxMask, EveryPartOfTheKeyCounts) {
  std::set<std::vector<uint32_t>> seen;
  for (const uint64_t seed : {1ull, 2ull, 1ull << 32}) {
    for (const uint32_t step : {0u, 1u, 70000u}) {
      for (const uint32_t micro_batch : {0u, 1u, 5u}) {
        for (const uint32_t stream : {0u, 1u, 255u, 256u, 70000u}) {
          for (const uint64_t block : {0ull, 1ull, 2ull, 1ull << 31, 1ull << 32, (1ull << 40) - 1}) {
            EXPECT_TRUE(seen.insert(words(philox_mask(seed, step, micro_batch, stream, block))).second)
                << seed << " " << step << " " << micro_batch << " " << stream << " " << block;
          }
        }
      }
    }
  }
}

TEST(PhiloxMask, CounterLayout) {
  EXPECT_EQ(words(philox_mask(7, 3, 2, 5, 11)), words(philox(7, 2ull << 32 | 3, 5ull << 40 | 11)));
}

template <int kLanes>
REPRISE_INLINE void draw_body(uint32_t* words, const StepScalars& scalars, uint32_t stream, uint64_t first_block) {
  draw_mask_words<kLanes>(words, scalars, stream, first_block);
}
REPRISE_VECTOR_LEVELS(draw, draw_body<kLanes>,
                      (uint32_t * words, const StepScalars& scalars, uint32_t stream, uint64_t first_block),
                      (words, scalars, stream, first_block))

// Compares the vectorised draw with philox_mask() at every vector level. The first blocks are
// chosen so that the block number carries into every part of the counter.
TEST(MaskWords, AreThoseOfPhiloxMask) {
  StepScalars scalars{};
  scalars.seed = 0xfedcba9876543210u;
  scalars.step = 0xfffffff0u;
  scalars.micro_batch = 0x80000001u;
  for (const VectorLevel level : {VectorLevel::kBaseline, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    if (level > best_vector_level()) continue;
    for (const uint32_t stream : {0u, 5u, 0xffffffu, 0xfedcba98u}) {
      for (const uint64_t first : {0ull, 3ull, (1ull << 32) - 7, 1ull << 39, (1ull << 40) - 9}) {
        std::array<uint32_t, kMaskWords> words{};
        draw(level, words.data(), scalars, stream, first);
        for (uint32_t i = 0; i < kMaskWords; ++i) {
          const PhiloxBlock block = philox_mask(scalars.seed, scalars.step, scalars.micro_batch, stream, first + i / 4);
          ASSERT_EQ(words[i], block.word[i % 4])
              << vector_level_name(level) << " " << stream << " " << first << " " << i;
        }
      }
    }
  }
}

TEST(DropoutThreshold, IsTheProbabilityTimesTwoToThe32) {
  EXPECT_EQ(dropout_threshold(0.0f), 0u);
  EXPECT_EQ(dropout_threshold(0.5f), 0x80000000u);
  EXPECT_EQ(dropout_threshold(0.25f), 0x40000000u);
}

TEST(DropoutThreshold, DropsTheSharePromised) {
  const uint32_t threshold = dropout_threshold(0.1f);
  int dropped = 0;
  const int blocks = 50000;
  for (int block = 0; block < blocks; ++block) {
    for (const uint32_t word : philox_mask(42, 0, 0, 1, static_cast<uint64_t>(block)).word) dropped += word < threshold;
  }
  const double share = dropped / (4.0 * blocks);
  EXPECT_NEAR(share, 0.1, 5 * 0.3 / 447.2);  // five standard deviations of a mean of 200,000 draws
}

}  // namespace
}  // namespace reprise
