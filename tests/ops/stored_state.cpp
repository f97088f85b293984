// See stored_state.h.
#include "tests/ops/stored_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace reprise::test {
namespace {

constexpr size_t kBlock = 256, kBlockBytes = 260;

// Returns the 256 numbers of the map: 0, 1 and seven decades. The decade that ends at 10^-d has
// 2^(6-d) numbers of each sign, or twice as many if there is no sign. Before scaling by 10^-d, they
// are the midpoints of equal steps from 0.1 to 1.
std::vector<double> make_map(bool has_sign) {
  std::vector<double> map = {0, 1};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = (1 << decade) * (has_sign ? 1 : 2);
    for (int part = 0; part < parts; ++part) {
      const double mean = 0.1 + 0.9 * (part + 0.5) / parts, number = mean * std::pow(10.0, decade - 6);
      map.push_back(number);
      if (has_sign) map.push_back(-number);
    }
  }
  std::sort(map.begin(), map.end());
  return map;
}

size_t nearest(const std::vector<double>& map, double share) {
  size_t best = 0;
  for (size_t c = 1; c < map.size(); ++c) best = std::abs(map[c] - share) < std::abs(map[best] - share) ? c : best;
  return best;
}

bool has_sign(DType type) { return type == DType::kDynamic8; }

// Calls visit(block, first element, count, largest magnitude) for each block.
template <typename Visit>
void for_each_block(const ref::Array& values, const Visit& visit) {
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const size_t count = std::min(kBlock, values.size() - first);
    double largest = 0;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values.flat(first + i)));
    visit(first / kBlock, first, count, largest);
  }
}

double share_of(double value, double largest) { return largest > 0 ? value / largest : 0; }

}  // namespace

const std::vector<double>& dynamic_map(bool has_sign) {
  static const std::vector<double> with = make_map(true), without = make_map(false);
  return has_sign ? with : without;
}

void write_stored_state(DType type, const ref::Array& values, unsigned char* out) {
  const std::vector<double>& map = dynamic_map(has_sign(type));
  for_each_block(values, [&](size_t block, size_t first, size_t count, double largest) {
    unsigned char* at = out + block * kBlockBytes;
    const float scale = static_cast<float>(largest);
    std::memcpy(at, &scale, sizeof scale);
    for (size_t i = 0; i < kBlock; ++i) {
      at[4 + i] = static_cast<unsigned char>(nearest(map, i < count ? share_of(values.flat(first + i), largest) : 0));
    }
  });
}

std::vector<double> read_stored_state(DType type, const std::vector<unsigned char>& bytes) {
  const std::vector<double>& map = dynamic_map(has_sign(type));
  std::vector<double> values;
  for (size_t at = 0; at + kBlockBytes <= bytes.size(); at += kBlockBytes) {
    float scale;
    std::memcpy(&scale, &bytes[at], sizeof scale);
    for (size_t i = 0; i < kBlock; ++i)
      values.push_back(static_cast<double>(static_cast<float>(map[bytes[at + 4 + i]]) * scale));
  }
  return values;
}

// The map contains 1 but not -1. If a block's largest magnitude belonged to a negative value, each
// rounding would make the value smaller. So such a value is made positive first.
void round_stored_state(DType type, ref::Array& values) {
  for_each_block(ref::Array(values), [&](size_t, size_t first, size_t count, double largest) {
    for (size_t i = first; i < first + count; ++i)
      values.flat(i) = values.flat(i) == -largest ? largest : values.flat(i);
  });
  std::vector<unsigned char> bytes((values.size() + kBlock - 1) / kBlock * kBlockBytes);
  write_stored_state(type, values, bytes.data());
  const std::vector<double> rounded = read_stored_state(type, bytes);
  std::copy_n(rounded.begin(), values.size(), values.begin());
}

std::string code_difference(const std::string& name, DType type, const ref::Expected& expected,
                            const std::vector<unsigned char>& bytes) {
  const std::vector<double>& map = dynamic_map(has_sign(type));
  std::string fault;
  for_each_block(expected.value, [&](size_t block, size_t first, size_t count, double largest) {
    const unsigned char* at = &bytes[block * kBlockBytes];
    float scale;
    std::memcpy(&scale, at, sizeof scale);
    const bool exact = expected.terms == 0;
    const double tolerance = exact ? 0 : largest * 1e-5 + 1e-38;
    if (!(std::abs(static_cast<double>(scale) - largest) <= tolerance) && fault.empty()) {
      fault = name + ": block " + std::to_string(block) + " has the largest magnitude " + std::to_string(scale) +
              ", expected " + std::to_string(largest) + "; ";
    }
    for (size_t i = 0; i < count && fault.empty(); ++i) {
      const double want = share_of(expected.value.flat(first + i), largest);
      const int code = at[4 + i], right = static_cast<int>(nearest(map, want));
      const bool keeps_sign =
          !has_sign(type) || std::abs(want) < 1e-6 || (map[static_cast<size_t>(code)] > 0) == (want > 0);
      if (std::abs(code - right) <= (exact ? 0 : 1) && keeps_sign) continue;
      fault = name + "[" + std::to_string(first + i) + "] has code " + std::to_string(code) + ", expected " +
              std::to_string(right) + "; ";
    }
  });
  return fault;
}

}  // namespace reprise::test
