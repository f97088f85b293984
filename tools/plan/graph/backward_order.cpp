// Implements backward_order.h: tries dW before and after dX of the same layer.
// dW and dX of one layer read the same dy and write different values, so either may go first.
#include "tools/plan/graph/backward_order.h"

#include <algorithm>

#include "lib/assert.h"

namespace reprise {

namespace {

// Maximum pairs of dW and dX whose order is chosen independently of other pairs. A ResNet unit with
// a projection has four pairs.
constexpr size_t kMaxPairs = 4;

constexpr size_t kDy = 2;  // argument index of dy in a dW call, {dw, x, dy}; in a dX call, {dx, dy, w}, the index is 1

bool is_pair(const Call& weight, const Call& data) {
  return weight.pass == Pass::kBackwardWeight && data.pass == Pass::kBackwardData &&
         weight.arguments[kDy] == data.arguments[kDy - 1];
}

// Moves the dW call directly after the next dX call of its layer. An update of the weight stays
// after both, because dX reads the weight.
void put_after(std::vector<Call>& calls, const Call& weight) {
  const auto at = std::find_if(calls.begin(), calls.end(), [&](const Call& call) {
    return call.arguments == weight.arguments && call.pass == weight.pass;
  });
  const auto data = std::find_if(at, calls.end(), [&](const Call& call) { return is_pair(weight, call); });
  REPRISE_ASSERT(data != calls.end(), "a weight's gradient precedes the data's gradient of its layer");
  std::rotate(at, at + 1, data + 1);
}

}  // namespace

std::vector<std::vector<Call>> backward_orders(const std::vector<Call>& backward) {
  std::vector<Call> weights;
  for (size_t c = 0; c < backward.size(); ++c) {
    const bool has_pair = std::any_of(backward.begin() + static_cast<std::ptrdiff_t>(c), backward.end(),
                                      [&](const Call& call) { return is_pair(backward[c], call); });
    if (has_pair) weights.push_back(backward[c]);
  }
  std::vector<std::vector<Call>> orders;
  const uint32_t all = (1u << std::min(weights.size(), kMaxPairs)) - 1;
  for (uint32_t after = 0; after <= all; ++after) {
    orders.push_back(backward);
    for (size_t w = 0; w < weights.size(); ++w) {
      if ((after >> std::min(w, kMaxPairs - 1) & 1u) != 0) put_after(orders.back(), weights[w]);
    }
  }
  return orders;
}

}  // namespace reprise
