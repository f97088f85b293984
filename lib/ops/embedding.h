// The embedding: for each token, the row of a table that the token selects, plus the row of the
// token's position. Also the gradients of both tables.
#pragma once

#include "lib/row_call.h"

namespace reprise {

// y[b,t,:] = scale * table[tokens[b,t],:] + positions[t,:]. A token outside [0,V) is a fault
// (DataFault::kToken).
template <typename Stored>
struct EmbeddingForwardArgsOf {
  Stored* y;               // [B,T,C]
  const int32_t* tokens;  // [B,T]
  Weight table;           // [V,C]
  Weight positions;       // [L,C], L >= T, or null
  uint32_t B, T, C, V, L;
  float scale;
};
// The gradients of both tables. Rows are added in the order of the tokens, whatever the number of
// workers. If a gradient is overwritten, rows that no token selects become 0.
template <typename Stored>
struct EmbeddingBackwardArgsOf {
  float* dtable;      // [V,C] or null
  float* dpositions;  // [L,C] or null
  const int32_t* tokens;  // [B,T]
  const Stored* dy;  // [B,T,C]
  uint32_t B, T, C, V, L;
  float scale;
  bool accumulate_dtable, accumulate_dpositions;
};

namespace contract {
// Returns the fault of forward or backward; `table` and `positions` are indices of arguments.
constexpr Fault embedding_fault(const ShapedCall& c, const Tensor& y, const Tensor& tokens, uint32_t table,
                                uint32_t positions) {
  const uint64_t B = tokens.shape[0], T = tokens.shape[1], C = y.last_dimension();
  return shape::require(
      tokens.rank == 2 && y.rank == 3 && shape::is_shape(y, B, T, C, 1) &&
      (!c.has(table) || shape::is_matrix(c, table, c[table].shape[0], C)) &&
      (!c.has(positions) || (c[positions].shape[0] >= T && shape::is_matrix(c, positions, c[positions].shape[0], C))));
}
}  // namespace contract

struct EmbeddingForward {
  enum : uint32_t { kY, kTokens, kTable, kPositions, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::embedding_fault(c, c[kY], c[kTokens], kTable, kPositions);
  }
  static constexpr const char* kSynopsis = "y = attribute.scale table[tokens] + positions";
  static constexpr KernelInfo kInfo = {.op = Op::kEmbedding,
                                       .pass = Pass::kForward,
                                       .name = "embedding.forward",
                                       .attribute = kAttributeKind<EmbeddingAttribute>,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::act_out("y[B,T,C]"),
                                                     contract::in("tokens[B,T]", Storage::kI32),
                                                     contract::weight("table[V,C]"),
                                                     contract::optional(contract::weight("positions[L,C]"))},
                                       .shape_fault = fault};
  template <typename Stored>
  static EmbeddingForwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.y = c.pointer<Stored>(kY),
            .tokens = c.i32(kTokens),
            .table = c.weight(kTable),
            .positions = c.weight(kPositions),
            .B = c.dimension(kY, 0),
            .T = c.dimension(kY, 1),
            .C = c.dimension(kY, 2),
            .V = c.dimension(kTable, 0),
            .L = c.dimension(kPositions, 0),
            .scale = c.attribute<EmbeddingAttribute>().scale};
  }
};

struct EmbeddingBackward {
  enum : uint32_t { kDtable, kDpositions, kTokens, kDy, kArity };
  static constexpr Fault fault(const ShapedCall& c) {
    return contract::embedding_fault(c, c[kDy], c[kTokens], kDtable, kDpositions);
  }
  static constexpr const char* kSynopsis = "dtable[tokens] = attribute.scale sum of dy; dpositions = sum of dy over B";
  static constexpr KernelInfo kInfo = {.op = Op::kEmbedding,
                                       .pass = Pass::kBackward,
                                       .name = "embedding.backward",
                                       .attribute = kAttributeKind<EmbeddingAttribute>,
                                       .attribute_is_cost = false,
                                       .arguments = {contract::optional(contract::running_sum("dtable[V,C]")),
                                                     contract::optional(contract::running_sum("dpositions[L,C]")),
                                                     contract::in("tokens[B,T]", Storage::kI32),
                                                     contract::act_in("dy[B,T,C]")},
                                       .shape_fault = fault};
  template <typename Stored>
  static EmbeddingBackwardArgsOf<Stored> arguments(const RowCall& c) {
    return {.dtable = c.f32(kDtable),
            .dpositions = c.f32(kDpositions),
            .tokens = c.i32(kTokens),
            .dy = c.pointer<Stored>(kDy),
            .B = c.dimension(kDy, 0),
            .T = c.dimension(kDy, 1),
            .C = c.dimension(kDy, 2),
            .V = c.dimension(kDtable, 0),
            .L = c.dimension(kDpositions, 0),
            .scale = c.attribute<EmbeddingAttribute>().scale,
            .accumulate_dtable = c.adds(kDtable),
            .accumulate_dpositions = c.adds(kDpositions)};
  }
};

using EmbeddingKernels = TypeList<EmbeddingForward, EmbeddingBackward>;

}  // namespace reprise
