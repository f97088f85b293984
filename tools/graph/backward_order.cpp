// The orders of backward_order.h.
// dW and dX of one layer read the same dy and write different values, so either may go first.
#include "tools/graph/backward_order.h"

#include <algorithm>

namespace reprise {

namespace {

constexpr size_t kMostPairs = 4;  // a projection unit's convolutions: 16 orders

constexpr size_t kDy = 2;  // of {dw, x, dy}; dX has it as argument 1 of {dx, dy, w}

bool is_pair(const Call& weight, const Call& data) {
  return weight.pass == Pass::kBackwardWeight && data.pass == Pass::kBackwardData &&
         weight.arguments[kDy] == data.arguments[kDy - 1];
}

// Moves the dW call after the next dX of its layer. An update of the weight that dX reads comes later still.
void put_after(std::vector<Call>& calls, const Call& weight) {
  const auto at = std::find_if(calls.begin(), calls.end(), [&](const Call& call) { return call.arguments == weight.arguments && call.pass == weight.pass; });
  const auto data = std::find_if(at, calls.end(), [&](const Call& call) { return is_pair(weight, call); });
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
  const uint32_t all = (1u << std::min(weights.size(), kMostPairs)) - 1;
  for (uint32_t after = 0; after <= all; ++after) {
    orders.push_back(backward);
    for (size_t w = 0; w < weights.size(); ++w) {
      if ((after >> std::min(w, kMostPairs - 1) & 1u) != 0) put_after(orders.back(), weights[w]);
    }
  }
  return orders;
}

}  // namespace reprise
