// Counts the flops of the matrix-like kernels and the bytes of all kernels. With these counts a
// plan can be made without a profile, and a measured time can be compared with the minimum work.
#include "tools/plan/graph/cost.h"

#include <algorithm>
#include <set>

namespace reprise {

namespace {

double bytes_of_element(const Tensor& tensor) {
  const DTypeInfo& type = dtype_info(tensor.dtype);
  return static_cast<double>(type.block_bytes) / type.block_elements;
}
double elements(const Tensor* tensor) { return tensor == nullptr ? 0 : static_cast<double>(tensor->elements()); }

// Returns the flops of `products` matrix products, each of 2 * C flops for each pair of positions.
// In causal attention, a position is paired with the positions of its window up to itself;
// otherwise with all positions. Each sequence counts as one document, because the documents are not
// known here.
double attention_flops(const KernelCall& call, double products, const AttributeTables& attributes) {
  const Tensor& y =
      call.pass == Pass::kForward ? *call.tensors[AttentionForward::kY] : *call.tensors[AttentionBackward::kY];
  const double B = y.shape[0], T = y.shape[1], C = y.shape[2];
  const AttentionAttribute& attention = attributes.of<AttentionAttribute>()[call.attribute];
  if (attention.causal == 0) return products * B * 2 * T * T * C;
  // Number of positions whose window does not reach the first position.
  const double before = attention.window == 0 ? 0 : std::max(0.0, T - attention.window);
  return products * B * (T * (T + 1) - before * (before + 1)) * C;
}

double matrix_flops(const KernelCall& call, const AttributeTables& attributes) {
  const auto& a = call.tensors;
  switch (call.op) {
    case Op::kConv:
    case Op::kNormConv: {  // each output element multiplies one row of w with the inputs of its group
      const Tensor* y = call.pass == Pass::kForward ? a[0] : call.pass == Pass::kBackwardData ? a[1] : a[2];
      const Tensor* w = call.pass == Pass::kForward ? a[4] : call.pass == Pass::kBackwardData ? a[2] : a[0];
      return 2 * elements(y) * elements(w) / w->shape[0];
    }
    case Op::kConvTranspose: {
      using A = ConvTransposeForward;
      return 2 * elements(a[A::kX]) * elements(a[A::kW]) / a[A::kW]->shape[0];
    }
    case Op::kLinear: {
      if (call.pass == Pass::kBackwardBias) return 0;
      const Tensor* w = call.pass == Pass::kBackwardWeight ? a[0] : a[2];
      const Tensor* x = call.pass == Pass::kBackwardData ? a[0] : a[1];
      const double adapter = call.pass == Pass::kForward ? elements(a[5]) : 0;
      return 2 * (elements(w) + adapter) * static_cast<double>(x->leading_elements());
    }
    case Op::kProduct: {
      using A = ProductForward;
      const contract::ProductSizes s =
          contract::product_sizes(*a[A::kC], *a[A::kA], attributes.of<ProductAttribute>()[call.attribute]);
      return 2.0 * static_cast<double>(s.B) * s.M * s.N * s.K;
    }
    case Op::kDora:
      return call.pass == Pass::kStatistics
                 ? 2 * elements(a[DoraNorms::kW]) * (static_cast<double>(a[DoraNorms::kA]->shape[0]) + 1)
                 : 0;
    case Op::kAttention: return attention_flops(call, call.pass == Pass::kForward ? 2 : 5, attributes);
    case Op::kLossHead: {
      const bool backward = call.pass == Pass::kBackward;
      const double rows = static_cast<double>(a[backward ? 4 : 1]->leading_elements());
      return (backward ? 6 : 2) * rows * elements(a[backward ? 5 : 2]);
    }
    // kContrast computes the cosine of each of B first vectors with each of B second vectors. The
    // backward also computes the gradients of both sides from the cosines.
    case Op::kPairLoss: {
      if (attributes.of<PairLossAttribute>()[call.attribute].kind != static_cast<uint32_t>(PairLossKind::kContrast))
        return 0;
      const bool backward = call.pass == Pass::kBackward;
      const Tensor* x = a[backward ? uint32_t{PairLossBackward::kX} : uint32_t{PairLossEvaluate::kX}];
      return (backward ? 3 : 1) * elements(x) * static_cast<double>(x->leading_elements()) / 2;
    }
    case Op::kApollo: return 2 * elements(a[0]) * static_cast<double>(a[1]->last_dimension());
    case Op::kMuon: {
      const contract::MatrixShape matrix = contract::matrix_of(*a[0]);
      const double side = static_cast<double>(matrix.shorter());
      return kMuonSteps * (2 * 2 * elements(a[0]) * side + 2 * side * side * side);
    }
    default: return 0;
  }
}

// Returns how many of the `size` elements along one dimension are read by at least one window. A
// stride longer than the window, or a dilation, leaves elements out.
double elements_under(const WindowSide& side, uint32_t size, uint32_t outputs) {
  if (side.stride <= side.kernel && side.dilation == 1) return size;
  std::set<uint64_t> met;
  for (uint64_t o = 0; o < outputs; ++o) {
    for (uint64_t t = 0; t < side.kernel; ++t) {
      const uint64_t place = o * side.stride + t * side.dilation;
      if (place >= side.pad && place - side.pad < size) met.insert(place);
    }
  }
  return static_cast<double>(met.size());
}

// Returns the number of elements of a convolution's argument that the call touches. For x these are
// only the elements under its windows.
double conv_elements(const KernelCall& call, size_t argument, const AttributeTables& attributes) {
  const Tensor& tensor = *call.tensors[argument];
  const size_t x = call.pass == Pass::kForward ? 3 : 1;
  if (call.pass == Pass::kBackwardData || argument != x) return elements(&tensor);
  const Tensor& y = *call.tensors[call.pass == Pass::kForward ? 0 : 2];
  const WindowAttribute& window = attributes.of<WindowAttribute>()[call.attribute];
  return elements(&tensor) / tensor.shape[1] / tensor.shape[2] *
         elements_under(window.rows(), tensor.shape[1], y.shape[1]) *
         elements_under(window.columns(), tensor.shape[2], y.shape[2]);
}

// Returns the number of elements of an argument that an embedding touches. The forward gathers a
// table's rows. The backward adds to rows, or overwrites the whole table, whose other rows become
// zero.
double embedding_elements(const KernelCall& call, size_t argument) {
  const Tensor* tensor = call.tensors[argument];
  const bool forward = call.pass == Pass::kForward;
  const bool is_tokens_table = argument == (forward ? 2 : 0), is_positions_table = argument == (forward ? 3 : 1);
  const bool overwrites = !forward && (call.accumulate >> argument & 1) == 0;
  if (tensor == nullptr || overwrites || !(is_tokens_table || is_positions_table)) return elements(tensor);
  const Tensor& tokens = *call.tensors[forward ? 1 : 2];
  const uint64_t rows = is_tokens_table ? tokens.elements() : tokens.shape[1];
  return static_cast<double>(std::min<uint64_t>(rows, tensor->shape[0])) * tensor->shape[1];
}

// Returns the number of elements of an argument that a columns or pad call touches. One argument is
// the complete tensor, the other a box in it. Only the elements of the box count, unless the call
// also clears the complete tensor outside the box.
double box_elements(const KernelCall& call, size_t argument) {
  const bool takes = (call.op == Op::kPad) == (call.pass == Pass::kBackward),
             clears = !takes && (call.accumulate & 1) == 0;
  const size_t whole = takes ? 1 : 0, part = 1 - whole;
  return elements(call.tensors[argument == whole && !clears ? part : argument]);
}

// Returns the number of elements of one argument that the call must read or write.
double touched_elements(const KernelCall& call, size_t argument, const AttributeTables& attributes) {
  const KernelInfo& info = kernel_info(call.op, call.pass);
  if (info.arguments[argument].group) {
    return static_cast<double>(group_of(attributes.pools(), info.attribute, call.attribute)->elements);
  }
  switch (call.op) {
    case Op::kConv:
    case Op::kNormConv: return conv_elements(call, argument, attributes);
    case Op::kEmbedding: return embedding_elements(call, argument);
    case Op::kColumns:
    case Op::kPad: return box_elements(call, argument);
    default: return elements(call.tensors[argument]);
  }
}

}  // namespace

CallCost kernel_cost(const KernelCall& call, const AttributeTables& attributes) {
  CallCost cost;
  // a transfer: its start counts the bytes of its first tensor, its wait nothing
  if (kernel_info(call.op, call.pass).asynchronous()) {
    if (call.pass == Pass::kStart) cost.bytes = static_cast<double>(call.tensors[0]->used_bytes());
    return cost;
  }
  cost.flops = matrix_flops(call, attributes);
  const KernelInfo& kernel = kernel_info(call.op, call.pass);
  for (size_t a = 0; a < call.tensors.size(); ++a) {
    if (call.tensors[a] == nullptr) continue;
    const bool read_and_written = kernel.arguments[a].role == Role::kUpdated || (call.accumulate >> a & 1) != 0;
    cost.bytes +=
        touched_elements(call, a, attributes) * bytes_of_element(*call.tensors[a]) * (read_and_written ? 2 : 1);
  }
  return cost;
}

CallCost call_cost(const Graph& graph, const Call& call) {
  return kernel_cost(kernel_call(graph, call), graph.attributes);
}

double call_price(const Graph& graph, const Call& call) {
  const CallCost cost = call_cost(graph, call);
  return cost.flops + kFlopsPerByte * cost.bytes;
}

}  // namespace reprise
