// Finds the lifetimes of values inside one list of calls, lets outputs use the bytes of inputs, and
// packs the scratch block. The scratch of a link is packed once for each distinct link (PLANNING
// 6).
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "lib/assert.h"
#include "tools/plan/graph/skips.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/layout/pack.h"

namespace reprise {

namespace {

class Arranger {
 public:
  Arranger(const Graph& graph, std::vector<Call> calls, const std::vector<ValueId>& placed, const BackendRules& rules)
      : graph_(graph), placed_(placed.begin(), placed.end()), rules_(rules) {
    result_.calls = std::move(calls);
  }

  ArrangedCalls run(const std::vector<ValueId>& hosts) {
    for (uint32_t i = 0; i < result_.calls.size(); ++i) {
      for (const ValueId v : result_.calls[i].arguments) {
        if (v != kNoValue) last_use_[v] = i;
      }
    }
    for (uint32_t i = 0; i < result_.calls.size(); ++i) place_outputs(i);
    for (uint32_t i = 0; i < result_.calls.size(); ++i) add_kernel_scratch(i);
    for (const ValueId host : hosts) fill_host(host);
    pack();
    return std::move(result_);
  }

 private:
  using Buffer = ArrangedCalls::Buffer;

  bool is_local(ValueId v) const {
    const ValueKind kind = graph_.values[v].kind;
    return (kind == ValueKind::kActivation || kind == ValueKind::kGradient) && placed_.count(v) == 0;
  }

  // Gives every local output of call i a buffer: that of an input whose last reader is this call,
  // if the kernel may work in place, else a new one.
  void place_outputs(uint32_t i) {
    const Call& call = result_.calls[i];
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    for (uint32_t a = 0; a < call.arguments.size(); ++a) {
      const ValueId v = call.arguments[a];
      if (v == kNoValue || kernel.arguments[a].role != Role::kInput) continue;
      REPRISE_ASSERT(!is_local(v) || buffer_of_.count(v) != 0,
                     "a call reads only placed values and those that an earlier call writes");
    }
    for (uint32_t a = 0; a < call.arguments.size(); ++a) {
      const ValueId v = call.arguments[a];
      if (v == kNoValue || kernel.arguments[a].role != Role::kOutput) continue;
      if (static_cast<int>(a) == kernel.in_place_output)
        join_in_place(call, i, v, call.arguments[static_cast<size_t>(kernel.in_place_input)]);
      if (kernel.moves) join_in_place(call, i, v, call.arguments[ReshapeForward::kX]);
      if (!is_local(v)) continue;
      if (buffer_of_.count(v) == 0) buffer_of_[v] = new_buffer(v, i);
      Buffer& buffer = result_.buffers[buffer_of_.at(v)];
      buffer.end_call = std::max(buffer.end_call, last_use_.at(v) + 1);
    }
  }

  // Lets y use the buffer of x if this call is the last reader of x. If y is stored outside the
  // scratch block, x uses the bytes of y instead and needs no scratch. This is not done if y is in
  // the header, because recomputing x would overwrite y.
  // A kernel that works in place needs one slot for x and y, and so equal shapes. A kernel with
  // KernelInfo::moves needs two overlapping slots of different shapes.
  void join_in_place(const Call& call, uint32_t i, ValueId y, ValueId x) {
    const auto found = buffer_of_.find(x);
    if (found == buffer_of_.end() || last_use_.at(x) != i) return;
    if (std::count(call.arguments.begin(), call.arguments.end(), x) != 1) return;
    if (graph_.tensor(x).bytes != graph_.tensor(y).bytes || buffer_of_.count(y) != 0) return;
    if (kernel_info(call.op, call.pass).moves == same_dimensions(graph_.tensor(x), graph_.tensor(y))) return;
    Buffer& buffer = result_.buffers[found->second];
    if (is_local(y)) {
      buffer.values.push_back(y);
      buffer_of_[y] = found->second;
    } else if (placed_.count(y) != 0 && !lives_in_header(graph_.values[y]) && buffer.bytes != 0) {
      buffer.values.push_back(y);
      buffer.bytes = 0;  // needs no scratch: x is stored in the bytes of y
    }
  }

  size_t new_buffer(ValueId v, uint32_t i) {
    Buffer buffer;
    buffer.values = {v};
    buffer.bytes = graph_.tensor(v).bytes;
    buffer.first_call = i;
    buffer.end_call = last_use_.at(v) + 1;
    result_.buffers.push_back(buffer);
    return result_.buffers.size() - 1;
  }

  void add_kernel_scratch(uint32_t i) {
    const Call& call = result_.calls[i];
    const uint64_t bytes = align_up(rules_.scratch_bytes(ShapedKernelCall(kernel_call(graph_, call), pools_).shaped()));
    result_.kernel_scratch.push_back(bytes == 0 ? -1 : static_cast<int>(result_.buffers.size()));
    if (bytes != 0) result_.buffers.push_back({{}, bytes, i, i + 1, 0, kNoValue});
  }

  // True if the last call that reads `host` works in place and writes the buffer's first value over
  // `host`.
  bool continues(ValueId host, const Buffer& buffer) const {
    const auto last = last_use_.find(host);
    if (last == last_use_.end() || last->second != buffer.first_call || buffer.values.empty()) return false;
    const Call& call = result_.calls[last->second];
    const KernelInfo& kernel = kernel_info(call.op, call.pass);
    return kernel.in_place_output >= 0 &&
           call.arguments[static_cast<size_t>(kernel.in_place_output)] == buffer.values.front() &&
           call.arguments[static_cast<size_t>(kernel.in_place_input)] == host &&
           std::count(call.arguments.begin(), call.arguments.end(), host) == 1 &&
           same_dimensions(graph_.tensor(host), graph_.tensor(buffer.values.front()));
  }

  // Lets buffers reuse the bytes of `host`, a value that is not needed after its last read. Tries
  // the largest buffers first; the lifetimes of the chosen buffers do not overlap. A buffer must be
  // written after the last read of `host`, or in place by the call that makes this read.
  void fill_host(ValueId host) {
    const auto last = last_use_.find(host);
    const uint32_t free_from = last == last_use_.end() ? 0 : last->second + 1;
    std::vector<size_t> order(result_.buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return result_.buffers[a].bytes > result_.buffers[b].bytes; });
    std::vector<const Buffer*> guests;
    for (const size_t b : order) {
      Buffer& buffer = result_.buffers[b];
      if (buffer.bytes == 0 || buffer.host != kNoValue || buffer.bytes > graph_.tensor(host).bytes) continue;
      const bool in_place = continues(host, buffer);
      if (!in_place && buffer.first_call < free_from) continue;
      const bool free = std::none_of(guests.begin(), guests.end(), [&buffer](const Buffer* guest) {
        return guest->first_call < buffer.end_call && buffer.first_call < guest->end_call;
      });
      if (!free) continue;
      buffer.host = host;
      if (in_place) buffer.values.insert(buffer.values.begin(), host);
      guests.push_back(&buffer);
    }
  }

  void pack() {
    std::vector<PackBuffer> problem;
    std::vector<size_t> index;
    for (size_t b = 0; b < result_.buffers.size(); ++b) {
      const Buffer& buffer = result_.buffers[b];
      if (buffer.bytes == 0 || buffer.host != kNoValue) continue;
      problem.push_back({buffer.first_call, buffer.end_call, buffer.bytes});
      index.push_back(b);
    }
    if (problem.empty()) return;
    PackOptions options;
    options.alignment = kAlignment;
    options.nodes = 2000;  // limit of the search: there are thousands of such problems, and few are hard
    const Packing packing = pack_buffers(problem, options);
    for (size_t i = 0; i < index.size(); ++i) result_.buffers[index[i]].offset = packing.offsets[i];
    result_.scratch_bytes = align_up(packing.packed_bytes);
  }

  const Graph& graph_;
  const std::set<ValueId> placed_;
  const BackendRules& rules_;
  const AttributePools pools_ = graph_.attributes.pools();
  std::map<ValueId, uint32_t> last_use_;
  std::map<ValueId, size_t> buffer_of_;
  ArrangedCalls result_;
};

}  // namespace

ArrangedCalls arrange_calls(const Graph& graph, std::vector<Call> calls, const std::vector<ValueId>& placed,
                            const BackendRules& rules, const std::vector<ValueId>& hosts) {
  return Arranger(graph, std::move(calls), placed, rules).run(hosts);
}

}  // namespace reprise
