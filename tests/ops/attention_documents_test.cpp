// What starts of documents may not change: the bits of any other document, nor those of a sequence that is one document.
// Here because the kernels skip tiles of keys that all documents of a tile of queries leave out.
#include <gtest/gtest.h>

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
  std::vector<int32_t> starts;  // empty: none are given

  Sequence(std::vector<int32_t> documents, uint32_t seed = 1) : y(kT * kC), dqkv(kT * kW), lse(kHeads * kT), starts(std::move(documents)) {
    const std::vector<float> values = random_floats(kT * kW, seed), gradients = random_floats(kT * kC, seed + 1);
    qkv.assign(values.begin(), values.end());
    dy.assign(gradients.begin(), gradients.end());
  }
  void run() {
    const TestWorkers two(2);
    StepScalars scalars{};
    const KernelContext context{.workers = &two.workers(), .machine = test_backend().machine, .scalars = &scalars};
    const AttentionAttribute attention{kHeads, kKvHeads, 0.25f, 3};
    const int32_t* given = starts.empty() ? nullptr : starts.data();
    ASSERT_TRUE(cpu_attention_forward<Stored>(context, {y.data(), lse.data(), qkv.data(), given, &scalars, nullptr, 0, 1, kT, kC, attention}).ok());
    std::vector<float> scratch(attention_delta_bytes(kHeads * kT) / sizeof(float) + kHeads * kT * kD);
    ASSERT_TRUE(cpu_attention_backward<Stored>(context, {dqkv.data(), qkv.data(), y.data(), lse.data(), dy.data(), given, &scalars, scratch.data(),
                                                         scratch.size() * sizeof(float), 1, kT, kC, attention}).ok());
    ASSERT_EQ(scalars.fault.code, DataFault::kNone);
  }
  // q, k, v and dy of position t as another sequence has them.
  void copy_position(const Sequence& other, uint32_t t) {
    std::copy_n(&other.qkv[t * kW], kW, &qkv[t * kW]);
    std::copy_n(&other.dy[t * kC], kC, &dy[t * kC]);
  }
};

// Documents of these lengths, one after another.
std::vector<int32_t> starts_of(const std::vector<uint32_t>& lengths) {
  std::vector<int32_t> starts;
  for (const uint32_t length : lengths) starts.insert(starts.end(), length, static_cast<int32_t>(starts.size()));
  return starts;
}

template <typename Stored>
void expect_same(const Sequence<Stored>& a, const Sequence<Stored>& b, uint32_t first, uint32_t end) {
  const auto same = [&](const std::vector<Stored>& left, const std::vector<Stored>& right, uint32_t columns, const char* what) {
    for (uint32_t i = first * columns; i < end * columns; ++i) {
      ASSERT_EQ(float{left[i]}, float{right[i]}) << what << " of position " << i / columns << ", column " << i % columns;
    }
  };
  same(a.y, b.y, kC, "y");
  same(a.dqkv, b.dqkv, kW, "dqkv");
  for (uint32_t h = 0; h < kHeads; ++h) {
    for (uint32_t t = first; t < end; ++t) ASSERT_EQ(a.lse[h * kT + t], b.lse[h * kT + t]) << "lse of head " << h << ", position " << t;
  }
}

template <typename Stored>
class AttentionDocuments : public ::testing::Test {};
using Storages = ::testing::Types<float, Bf16>;
TYPED_TEST_SUITE(AttentionDocuments, Storages);

TYPED_TEST(AttentionDocuments, OneDocumentIsNone) {
  Sequence<TypeParam> none({}), one(starts_of({kT}));
  none.run(), one.run();
  expect_same(none, one, 0, kT);
}

// The document in the middle stays, in the same place; what lies around it, and where that is cut, changes.
TYPED_TEST(AttentionDocuments, KeepTheirBitsWhateverStandsAroundThem) {
  for (const uint32_t first : {3u, 64u, 70u, 130u}) {
    for (const uint32_t length : {1u, 20u, 64u, 150u}) {
      const uint32_t rest = kT - first - length;
      Sequence<TypeParam> here(starts_of({first, length, rest})), there(starts_of({first - 1, 1, length, rest - 1, 1}), 7);
      for (uint32_t t = first; t < first + length; ++t) there.copy_position(here, t);
      here.run(), there.run();
      expect_same(here, there, first, first + length);
      if (this->HasFatalFailure()) FAIL() << "from " << first << ", " << length << " long";
    }
  }
}

}  // namespace
}  // namespace reprise::test
