// Tests that the bits of a document's results depend neither on the other documents nor on whether
// the document fills the whole sequence. Also tests that padding can be a document. These tests are
// needed because the kernels skip a tile of keys if no query of the current tile of queries may
// attend to the tile of keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <vector>

#include "lib/cpu/cpu_kernels.h"
#include "lib/cpu/cpu_rules.h"
#include "tests/ops/random_floats.h"
#include "tests/ports/test_machine.h"
#include "tests/ports/test_workers.h"

namespace reprise::test {
namespace {

constexpr uint32_t kT = 330, kHeads = 4, kKvHeads = 2, kD = 8, kC = kHeads * kD, kW = (kHeads + 2 * kKvHeads) * kD;

template <typename Stored>
struct Sequence {
  std::vector<Stored> qkv, y, dy, dqkv;
  std::vector<float> lse;
  std::vector<int32_t> starts;  // document start of each position; empty if there are no documents
  uint32_t causal;

  Sequence(std::vector<int32_t> documents, uint32_t sees_the_past_alone, uint32_t seed = 1)
      : y(kT * kC), dqkv(kT * kW), lse(kHeads * kT), starts(std::move(documents)), causal(sees_the_past_alone) {
    const std::vector<float> values = random_floats(kT * kW, seed), gradients = random_floats(kT * kC, seed + 1);
    qkv.assign(values.begin(), values.end());
    dy.assign(gradients.begin(), gradients.end());
  }
  void run() { ASSERT_EQ(fault_of_run().code, DataFault::kNone); }
  StepFault fault_of_run() {
    const TestWorkers two(2);
    StepScalars scalars{};
    const KernelContext context{.workers = &two.workers(), .machine = test_backend().machine, .scalars = &scalars};
    const AttentionAttribute attention{
        .heads = kHeads, .kv_heads = kKvHeads, .dropout = 0.25f, .stream = 3, .causal = causal};
    const int32_t* given = starts.empty() ? nullptr : starts.data();
    EXPECT_TRUE(cpu_attention_forward<Stored>(context, {y.data(), lse.data(), qkv.data(), given, &scalars, nullptr, 0,
                                                        1, kT, kC, attention})
                    .ok());
    const Tensor y_like{.dtype = kStoredAs<Stored>, .rank = 3, .shape = {1, kT, kC, 1}},
        lse_like{.rank = 3, .shape = {1, kHeads, kT, 1}};
    std::vector<float> scratch(attention_backward_scratch_bytes(y_like, lse_like, attention) / sizeof(float));
    EXPECT_TRUE(cpu_attention_backward<Stored>(context, {dqkv.data(), qkv.data(), y.data(), lse.data(), dy.data(),
                                                         given, &scalars, scratch.data(),
                                                         scratch.size() * sizeof(float), 1, kT, kC, attention})
                    .ok());
    return scalars.fault;
  }
  // Copies q, k, v and dy of position `t` from another sequence.
  void copy_position(const Sequence& other, uint32_t t) {
    std::copy_n(&other.qkv[t * kW], kW, &qkv[t * kW]);
    std::copy_n(&other.dy[t * kC], kC, &dy[t * kC]);
  }
};

// Returns the start of each position's document, for consecutive documents of these lengths.
std::vector<int32_t> starts_of(const std::vector<uint32_t>& lengths) {
  std::vector<int32_t> starts;
  for (const uint32_t length : lengths) starts.insert(starts.end(), length, static_cast<int32_t>(starts.size()));
  return starts;
}

template <typename Stored>
void expect_same(const Sequence<Stored>& a, const Sequence<Stored>& b, uint32_t first, uint32_t end) {
  const auto same = [&](const std::vector<Stored>& left, const std::vector<Stored>& right, uint32_t columns,
                        const char* what) {
    for (uint32_t i = first * columns; i < end * columns; ++i) {
      ASSERT_EQ(float{left[i]}, float{right[i]})
          << what << " of position " << i / columns << ", column " << i % columns;
    }
  };
  same(a.y, b.y, kC, "y");
  same(a.dqkv, b.dqkv, kW, "dqkv");
  for (uint32_t h = 0; h < kHeads; ++h) {
    for (uint32_t t = first; t < end; ++t)
      ASSERT_EQ(a.lse[h * kT + t], b.lse[h * kT + t]) << "lse of head " << h << ", position " << t;
  }
}

template <typename Stored>
class AttentionDocuments : public ::testing::Test {};
using Storages = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AttentionDocuments, Storages);

TYPED_TEST(AttentionDocuments, OneDocumentIsNone) {
  for (const uint32_t causal : {1u, 0u}) {
    Sequence<TypeParam> none({}, causal), one(starts_of({kT}), causal);
    none.run(), one.run();
    expect_same(none, one, 0, kT);
  }
}

// The document in the middle keeps its data and its position. The data and the lengths of the
// documents before and after it change. The results of the document in the middle must have the
// same bits.
TYPED_TEST(AttentionDocuments, KeepTheirBitsWhateverStandsAroundThem) {
  for (const uint32_t causal : {1u, 0u}) {
    for (const uint32_t first : {3u, 64u, 70u, 130u}) {
      for (const uint32_t length : {1u, 20u, 64u, 150u}) {
        const uint32_t rest = kT - first - length;
        Sequence<TypeParam> here(starts_of({first, length, rest}), causal),
            there(starts_of({first - 1, 1, length, rest - 1, 1}), causal, 7);
        for (uint32_t t = first; t < first + length; ++t) there.copy_position(here, t);
        here.run(), there.run();
        expect_same(here, there, first, first + length);
        if (this->HasFatalFailure()) FAIL() << "causal " << causal << ", from " << first << ", " << length << " long";
      }
    }
  }
}

// A text is padded to the length of its batch. Nothing uses the output of the padding, so its
// gradient is zero. The padding must not change the results of the text.
TYPED_TEST(AttentionDocuments, PaddingIsADocumentThatNobodySees) {
  for (const uint32_t length : {1u, 63u, 64u, 200u, kT - 1}) {
    Sequence<TypeParam> text(starts_of({length, kT - length}), 0), other(starts_of({length, kT - length}), 0, 7);
    for (uint32_t t = 0; t < length; ++t) other.copy_position(text, t);
    for (Sequence<TypeParam>* each : {&text, &other}) {
      std::fill(each->dy.begin() + length * kC, each->dy.end(), 0.0f);
      each->run();
      for (const TypeParam y : each->y) ASSERT_TRUE(std::isfinite(float{y})) << length;
      for (uint32_t i = length * kW; i < kT * kW; ++i)
        ASSERT_EQ(float{each->dqkv[i]}, 0) << length << ", position " << i / kW;
    }
    expect_same(text, other, 0, length);
    if (this->HasFatalFailure()) FAIL() << length << " long";
  }
}

// Attention that is not causal must find the end of each document. So it must report a fault if a
// document begins before the previous document has ended. Causal attention must accept such
// documents.
TYPED_TEST(AttentionDocuments, FollowOneAnotherWhereAttentionIsNotCausal) {
  std::vector<int32_t> starts = starts_of({100, kT - 100});
  starts[170] = 40;
  Sequence<TypeParam> causal(starts, 1), full(starts, 0);
  EXPECT_EQ(causal.fault_of_run().code, DataFault::kNone);
  const StepFault fault = full.fault_of_run();
  EXPECT_EQ(fault.code, DataFault::kDocument);
  EXPECT_EQ(fault.position, 170u);
}

}  // namespace
}  // namespace reprise::test
