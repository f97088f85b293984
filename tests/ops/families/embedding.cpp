// Embedding of tokens and positions: cases, data, reference and gradient check.
#include "lib/cpu/cpu_kernels.h"
#include "tests/ops/op_family.h"

namespace reprise::test {
namespace {

using namespace ref;

// ---- the reference ----

// Returns y. `positions` is null if there is no table of positions.
Array embedding_forward(const Array& tokens_in, const Array& table_in, const Array* positions, double scale) {
  const auto tokens = view<2>(tokens_in), table = view<2>(table_in);
  Array y_out = zeros({tokens.shape(0), tokens.shape(1), table.shape(1)});
  auto y = view<3>(y_out);
  for (size_t b = 0; b < y.shape(0); ++b)
    for (size_t t = 0; t < y.shape(1); ++t)
      for (size_t c = 0; c < y.shape(2); ++c) {
        y(b, t, c) =
            scale * table(static_cast<size_t>(tokens(b, t)), c) + (positions != nullptr ? (*positions)(t, c) : 0.0);
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

void add_embedding(CaseTable& table, uint32_t B, uint32_t T, uint32_t C, uint32_t V, uint32_t L, float scale = 1) {
  const auto y = shaped({B, T, C}), tokens = shaped({B, T}, DType::kI32), words = shaped({V, C}),
             positions = shaped({L, C});
  const std::string tag =
      "b" + str(B) + "_t" + str(T) + "_c" + str(C) + "_v" + str(V) + "_l" + str(L) + (scale == 1 ? "" : "_scaled");
  const EmbeddingAttribute attribute{scale};
  const std::optional<Tensor> none;
  const auto forward = [&](const char* name, const std::optional<Tensor>& places) -> KernelCase& {
    using A = EmbeddingForward;
    return table.add<A>(tag + name, {{A::kY, y}, {A::kTokens, tokens}, {A::kTable, words}, {A::kPositions, places}},
                        attribute);
  };
  using A = EmbeddingBackward;
  const auto backward = [&](const char* name, const std::optional<Tensor>& dtable,
                            const std::optional<Tensor>& dpositions) {
    table.add<A>(tag + name, {{A::kDtable, dtable}, {A::kDpositions, dpositions}, {A::kTokens, tokens}, {A::kDy, y}},
                 attribute);
  };
  forward("", positions);
  forward("_no_positions", none);
  forward("_bad_low", positions).data = CaseValues::kBadLow;
  forward("_bad_high", none).data = CaseValues::kBadHigh;
  backward("", words, positions);
  table.again_accumulating({A::kDtable, A::kDpositions});
  table.again_accumulating({A::kDtable}, "_dtable_only");
  backward("_no_positions", words, none);
  table.again_accumulating({A::kDtable});
  backward("_frozen_table", none, positions);
  table.again_accumulating({A::kDpositions});
}

void add_cases(CaseTable& table) {
  if (table.is_bench()) return;
  add_embedding(table, 1, 1, 1, 1, 1);
  add_embedding(table, 2, 5, 7, 11, 8);
  add_embedding(table, 3, 33, 17, 5, 33);            // tokens are repeated often
  add_embedding(table, 2, 9, 64, 300, 16);           // most rows of the table have no token
  add_embedding(table, 4, 21, 131, 40, 21);
  table.again_with_weights("b2_t5_c7_v11_l8", kEveryWeight);
  table.again_with_weights("b4_t21_c131_v40_l21", kEveryWeight);
  add_embedding(table, 2, 7, 672, 9, 12);            // more channels than the CPU decodes at once
  table.again_with_weights("b2_t7_c672_v9_l12", kEveryWeight);
  add_embedding(table, 1, 4, 768, 5, 4);             // more channels than are decoded at once, for blocks of 256
  table.again_with_weights("b1_t4_c768_v5_l4", kEveryWeight);
  add_embedding(table, 1, 3, 1024, 4, 3);            // more channels than are decoded at once, for blocks of 512
  table.again_with_weights("b1_t3_c1024_v4_l3", weight_format(DType::kNF4Double));
  add_embedding(table, 2, 9, 36, 20, 9, 6.25f);
  const auto y = shaped({2, 5, 20}), tokens = shaped({2, 5}, DType::kI32);
  for (const DType words : {DType::kF32, DType::kBf16}) {
    const DType places = words == DType::kF32 ? DType::kBf16 : DType::kF32;
    using A = EmbeddingForward;
    table.add<A>(std::string("b2_t5_c20_v9_l6_") + dtype_info(words).name + "_table",
                 {{A::kY, y},
                  {A::kTokens, tokens},
                  {A::kTable, shaped({9, 20}, words)},
                  {A::kPositions, shaped({6, 20}, places)}},
                 EmbeddingAttribute{});
  }
}

// ---- data ----

constexpr uint32_t kFrozenVocabulary = 5;  // number of tokens if the case has no table

// Draws tokens below the number of rows of `table`. A case with a bad index gets one bad token.
void draw_tokens(CaseDraft& draft, uint32_t tokens, uint32_t table) {
  const KernelCase& c = draft.c;
  const uint32_t V = c.has(table) ? c.tensor(table).shape[0] : kFrozenVocabulary;
  for (double& token : draft.value(tokens)) token = static_cast<double>(draft.random.below(V));
  if (!c.expects_bad_index()) return;
  draft.data.bad_data = DataFault::kToken;
  draft.data.bad_position = c.tensor(tokens).elements() * 2 / 3;
  draft.value(tokens).flat(draft.data.bad_position) = c.data == CaseValues::kBadLow ? -1.0 : V;
}
void fit_data(CaseDraft& draft) {
  using Forward = EmbeddingForward;
  using Backward = EmbeddingBackward;
  if (draft.c.pass == Pass::kForward) return draw_tokens(draft, Forward::kTokens, Forward::kTable);
  draw_tokens(draft, Backward::kTokens, Backward::kDtable);
}

// ---- results ----

void expect_forward(Oracle& o) {
  using A = EmbeddingForward;
  const double scale = static_cast<double>(o.c.as<EmbeddingAttribute>().scale);
  const Array y = embedding_forward(o.value(A::kTokens), o.value(A::kTable), o.optional(A::kPositions), scale);
  if (scale == 1) return o.expect(A::kY, rounded(y));
  const Array places = o.c.has(A::kPositions) ? magnitudes(o.value(A::kPositions)) : Array();
  o.expect(A::kY, {y,
                   embedding_forward(o.value(A::kTokens), magnitudes(o.value(A::kTable)),
                                     o.c.has(A::kPositions) ? &places : nullptr, scale),
                   2});
}
void expect_backward(Oracle& o) {
  using A = EmbeddingBackward;
  const Array &tokens = o.value(A::kTokens), &dy = o.value(A::kDy), size = magnitudes(dy);
  const auto rows = static_cast<double>(tokens.size());
  if (o.c.has(A::kDtable)) {
    const size_t V = o.c.tensor(A::kDtable).shape[0];
    const double scale = static_cast<double>(o.c.as<EmbeddingAttribute>().scale);
    o.expect(A::kDtable, {scale * embedding_backward_table(tokens, dy, V),
                          scale * embedding_backward_table(tokens, size, V), rows});
  }
  if (o.c.has(A::kDpositions)) {
    const size_t L = o.c.tensor(A::kDpositions).shape[0];
    o.expect(A::kDpositions, {embedding_backward_positions(dy, L), embedding_backward_positions(size, L), rows});
  }
}
void expect(Oracle& o) { o.c.pass == Pass::kForward ? expect_forward(o) : expect_backward(o); }

// ---- gradient check ----

Differentiable differentiable(const KernelCase& c, CaseData& data) {
  using A = EmbeddingBackward;
  const Array &tokens = data.values[A::kTokens], &dy = data.values[A::kDy];
  if (!c.has(A::kDtable)) {
    return {
        {random_like(c.tensor(A::kDpositions), c.id)}, {A::kDpositions}, [&](const auto& at) {
          return dot(dy, embedding_forward(tokens, zeros({kFrozenVocabulary, c.tensor(A::kDy).shape[2]}), &at[0], 1));
        }};
  }
  Differentiable both{{random_like(c.tensor(A::kDtable), c.id)},
                      {A::kDtable},
                      [&, scale = static_cast<double>(c.as<EmbeddingAttribute>().scale)](const auto& at) {
                        return dot(dy, embedding_forward(tokens, at[0], at.size() > 1 ? &at[1] : nullptr, scale));
                      }};
  if (c.has(A::kDpositions))
    both.variables.push_back(random_like(c.tensor(A::kDpositions), c.id)), both.outputs.push_back(A::kDpositions);
  return both;
}

// ---- wrong kernels ----

constexpr WrongKernel kWrongKernels[] = {
    wrong_kernel<EmbeddingForward, [](const KernelContext& k, const EmbeddingForwardArgsOf<float>& a) {
      EmbeddingForwardArgsOf<float> plain = a;
      plain.scale = 1;
      return cpu_embedding_forward(k, plain);
    }>("embedding_without_its_scale"),
    wrong_kernel<EmbeddingBackward, [](const KernelContext& k, const EmbeddingBackwardArgsOf<float>& a) {
      EmbeddingBackwardArgsOf<float> plain = a;
      plain.scale = 1;
      return cpu_embedding_backward(k, plain);
    }>("embedding_gradient_without_its_scale"),
};

constexpr Op kFamilyOps[] = {Op::kEmbedding};

}  // namespace

extern constinit const OpFamily kEmbeddingFamily = {
    .ops = kFamilyOps, .add_cases = add_cases, .fit_data = fit_data, .expect = expect, .differentiable = differentiable,
    .wrong_kernels = kWrongKernels};

}  // namespace reprise::test
