// Writes a link's calls and shapes as a text, by which equal links share one solution.
// Attributes that change neither shapes, prices nor scratch are not part of the signature. Each
// call keeps its own attribute in a transfer, because a random stream belongs to one node.
#include "tools/plan/graph/link_signature.h"

#include <map>
#include <set>
#include <sstream>

#include "lib/assert.h"

namespace reprise {

namespace {

class SolutionCopy {
 public:
  SolutionCopy(const LinkBody& from, LinkBody& to, const std::vector<ValueId>& from_values,
               const std::vector<ValueId>& to_values) {
    REPRISE_ASSERT(from_values.size() == to_values.size() && from.forward.size() == to.forward.size() &&
                       from.backward.size() == to.backward.size(),
                   "links of equal signature have as many values and calls");
    for (size_t i = 0; i < from_values.size(); ++i) value_.emplace(from_values[i], to_values[i]);
    value_[kNoValue] = kNoValue;
    for (size_t i = 0; i < from.forward.size(); ++i) add_call(from.forward[i], to.forward[i]);
    for (size_t i = 0; i < from.backward.size(); ++i) add_call(from.backward[i], to.backward[i]);
    to.forward_price = from.forward_price;
    to.advance = arranged(from.advance);
    for (TapeChoice tape : from.tapes) {
      for (ValueId& v : tape.kept) v = value_.at(v);
      tape.forward = arranged(tape.forward);
      tape.backward = arranged(tape.backward);
      to.tapes.push_back(std::move(tape));
    }
    for (ResidueChoice residue : from.residues) {
      for (ValueId& v : residue.kept) v = value_.at(v);
      residue.lay = arranged(residue.lay);
      residue.later = arranged(residue.later);
      for (ArrangedCalls& record : residue.records) record = arranged(record);
      to.residues.push_back(std::move(residue));
    }
    to.forward_scratch_bytes = from.forward_scratch_bytes;
    to.truncated = from.truncated;
  }

 private:
  using Key = std::pair<std::vector<ValueId>, std::pair<Op, Pass>>;
  static Key key(const Call& call) { return {call.arguments, {call.op, call.pass}}; }
  void add_call(const Call& from, const Call& to) {
    call_.emplace(key(from), to);
    if (const auto again = repeated(from)) call_.emplace(key(*again), *repeated(to));
  }

  ArrangedCalls arranged(ArrangedCalls calls) const {
    for (Call& call : calls.calls) call = call_.at(key(call));
    for (ArrangedCalls::Buffer& buffer : calls.buffers) {
      for (ValueId& v : buffer.values) v = value_.at(v);
      buffer.host = value_.at(buffer.host);
    }
    return calls;
  }

  std::map<ValueId, ValueId> value_;
  std::map<Key, Call> call_;
};

}  // namespace

std::vector<ValueId> appearing_values(const LinkBody& link) {
  std::vector<ValueId> order = {link.input, link.output, link.d_input, link.d_output};
  std::set<ValueId> seen(order.begin(), order.end());
  for (const auto* calls : {&link.forward, &link.backward}) {
    for (const Call& call : *calls) {
      for (const ValueId v : call.arguments) {
        if (v != kNoValue && seen.insert(v).second) order.push_back(v);
      }
    }
  }
  return order;
}

std::string signature_of(const Graph& graph, const LinkBody& link, const std::vector<ValueId>& order) {
  std::map<ValueId, size_t> index;
  std::ostringstream text;
  for (size_t i = 0; i < order.size(); ++i) {
    index.emplace(order[i], i);
    if (order[i] == kNoValue) {
      text << "none;";
      continue;
    }
    const Value& value = graph.values[order[i]];
    text << static_cast<int>(value.kind) << ',' << static_cast<int>(value.tensor.dtype);
    for (const uint32_t d : value.tensor.shape) text << ',' << d;
    text << ';';
  }
  for (const auto* calls : {&link.forward, &link.backward}) {
    for (const Call& call : *calls) {
      text << static_cast<int>(call.op) << ':' << static_cast<int>(call.pass) << ':'
           << (kernel_info(call.op, call.pass).attribute_is_cost ? call.attribute : 0) << ':' << int{call.accumulate}
           << ':' << int{call.once};
      for (const ValueId v : call.arguments) text << ' ' << (v == kNoValue ? -1 : static_cast<int>(index.at(v)));
      text << '|';
    }
    text << '/';
  }
  return text.str();
}

void transfer_solution(const LinkBody& from, LinkBody& to, const std::vector<ValueId>& from_values,
                       const std::vector<ValueId>& to_values) {
  SolutionCopy(from, to, from_values, to_values);
}

}  // namespace reprise
