// Embedding of tokens and positions: cases, data, reference and slope.
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// `positions` may be null.
Array embedding_forward(const Array& tokens_in, const Array& table_in, const Array* positions) {
  const auto tokens = view<2>(tokens_in), table = view<2>(table_in);
  Array y_out = zeros({tokens.shape(0), tokens.shape(1), table.shape(1)});
  auto y = view<3>(y_out);
  for (size_t b = 0; b < y.shape(0); ++b)
    for (size_t t = 0; t < y.shape(1); ++t)
      for (size_t c = 0; c < y.shape(2); ++c) {
        y(b, t, c) = table(static_cast<size_t>(tokens(b, t)), c) + (positions != nullptr ? (*positions)(t, c) : 0.0);
      }
  return y_out;
}
Array embedding_backward_table(const Array& tokens_in, const Array& dy_in, size_t V) {
  const auto tokens = view<2>(tokens_in);
  const auto dy = view<3>(dy_in);
  Array dtable_out = zeros({V, dy.shape(2)});
  auto dtable = view<2>(dtable_out);
  for (size_t b = 0; b < dy.shape(0); ++b)
    for (size_t t = 0; t < dy.shape(1); ++t)
      for (size_t c = 0; c < dy.shape(2); ++c) dtable(static_cast<size_t>(tokens(b, t)), c) += dy(b, t, c);
  return dtable_out;
}
Array embedding_backward_positions(const Array& dy, size_t L) {
  Array dpositions = zeros({L, dy.shape(2)});
  xt::view(dpositions, xt::range(size_t{0}, dy.shape(1)), xt::all()) = xt::sum(dy, {0});
  return dpositions;
}

// ---- cases ----

void add_embedding(CaseTable& table, uint32_t B, uint32_t T, uint32_t C, uint32_t V, uint32_t L) {
  const auto y = shaped({B, T, C}), tokens = shaped({B, T}, DType::kI32), words = shaped({V, C}), positions = shaped({L, C});
  const std::string tag = "b" + str(B) + "_t" + str(T) + "_c" + str(C) + "_v" + str(V) + "_l" + str(L);
  table.add(Op::kEmbedding, Pass::kForward, tag, {y, tokens, words, positions});
  table.add(Op::kEmbedding, Pass::kForward, tag + "_no_positions", {y, tokens, words, {}});
  table.add(Op::kEmbedding, Pass::kForward, tag + "_bad_low", {y, tokens, words, positions}).data = CaseValues::kBadLow;
  table.add(Op::kEmbedding, Pass::kForward, tag + "_bad_high", {y, tokens, words, {}}).data = CaseValues::kBadHigh;
  table.add(Op::kEmbedding, Pass::kBackward, tag, {words, positions, tokens, y});
  table.again_accumulating(0b11);
  table.again_accumulating(0b01, "_dtable_only");
  table.add(Op::kEmbedding, Pass::kBackward, tag + "_no_positions", {words, {}, tokens, y});
  table.again_accumulating(0b01);
  table.add(Op::kEmbedding, Pass::kBackward, tag + "_frozen_table", {{}, positions, tokens, y});
  table.again_accumulating(0b10);
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_embedding(table, 1, 1, 1, 1, 1);
  add_embedding(table, 2, 5, 7, 11, 8);
  add_embedding(table, 3, 33, 17, 5, 33);            // tokens repeat often
  add_embedding(table, 2, 9, 64, 300, 16);           // most rows are named by no token
  add_embedding(table, 4, 21, 131, 40, 21);
  table.again_with_weights("b2_t5_c7_v11_l8", kEveryWeight);
  table.again_with_weights("b4_t21_c131_v40_l21", kEveryWeight);
  add_embedding(table, 2, 7, 672, 9, 12);            // more channels than the CPU decodes at once
  table.again_with_weights("b2_t7_c672_v9_l12", kEveryWeight);
  add_embedding(table, 1, 4, 768, 5, 4);             // the same in blocks of 256
  table.again_with_weights("b1_t4_c768_v5_l4", kEveryWeight);
  const auto y = shaped({2, 5, 20}), tokens = shaped({2, 5}, DType::kI32);
  for (const DType words : {DType::kF32, DType::kBf16}) {
    const DType places = words == DType::kF32 ? DType::kBf16 : DType::kF32;
    table.add(Op::kEmbedding, Pass::kForward, std::string("b2_t5_c20_v9_l6_") + dtype_info(words).name + "_table",
              {y, tokens, shaped({9, 20}, words), shaped({6, 20}, places)});
  }
}

// ---- data ----

constexpr uint32_t kFrozenVocabulary = 5;  // where no table says how large it is

void fit_data(CaseDraft& draft) {
  const KernelCase& c = draft.c;
  const uint32_t tokens = c.pass == Pass::kForward ? 1 : 2, table = c.pass == Pass::kForward ? 2 : 0;
  const uint32_t V = c.has(table) ? c.tensor(table).shape[0] : kFrozenVocabulary;
  for (double& token : draft.value(tokens)) token = static_cast<double>(draft.random.below(V));
  if (!c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kToken;
  draft.data.bad_position = c.tensor(tokens).elements() * 2 / 3;
  draft.value(tokens).flat(draft.data.bad_position) = c.data == CaseValues::kBadLow ? -1.0 : V;
}

// ---- results ----

void expect(Oracle& o) {
  if (o.c.pass == Pass::kForward) return o.expect(0, rounded(embedding_forward(o.value(1), o.value(2), o.optional(3))));
  const Array &tokens = o.value(2), &dy = o.value(3), size = magnitudes(dy);
  const double rows = o.dimension(2, 0) * o.dimension(2, 1);
  if (o.c.has(0)) {
    const size_t V = o.c.tensor(0).shape[0];
    o.expect(0, {embedding_backward_table(tokens, dy, V), embedding_backward_table(tokens, size, V), rows});
  }
  if (o.c.has(1)) {
    const size_t L = o.c.tensor(1).shape[0];
    o.expect(1, {embedding_backward_positions(dy, L), embedding_backward_positions(size, L), rows});
  }
}

// ---- slope ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  const std::vector<Array>& v = data.values;
  if (!c.has(0)) {
    return {{random_like(c.tensor(1), c.id)}, {1}, [&](const auto& at) {
              return dot(v[3], embedding_forward(v[2], zeros({kFrozenVocabulary, c.tensor(3).shape[2]}), &at[0]));
            }};
  }
  Differentiable both{{random_like(c.tensor(0), c.id)}, {0}, [&](const auto& at) {
                        return dot(v[3], embedding_forward(v[2], at[0], at.size() > 1 ? &at[1] : nullptr));
                      }};
  if (c.has(1)) both.variables.push_back(random_like(c.tensor(1), c.id)), both.outputs.push_back(1);
  return both;
}

constexpr Op kFamilyOps[] = {Op::kEmbedding};

}  // namespace

extern constinit const OpFamily kEmbeddingFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable};

}  // namespace reprise::test
