// First fit with a binary tree whose leaves are the rows. Each node stores the maximum free length
// of the rows below it.
#include "tools/run/texts/first_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace reprise {
namespace {

class SpaceTree {
 public:
  // Creates `rows` empty rows of length `space`. As many rows as samples are enough.
  SpaceTree(size_t rows, uint32_t space)
      : leaves_(std::bit_ceil(std::max<size_t>(rows, 1))), most_(2 * leaves_, space) {}

  // Finds the first row with `length` free positions, occupies them and returns the row.
  size_t take(uint32_t length) {
    size_t node = 1;
    while (node < leaves_) {
      node *= 2;
      if (most_[node] < length) ++node;
    }
    const size_t row = node - leaves_;
    most_[node] -= length;
    while (node /= 2) most_[node] = std::max(most_[2 * node], most_[2 * node + 1]);
    return row;
  }

 private:
  size_t leaves_;
  std::vector<uint32_t> most_;  // maximum free length below each node; node n has the children 2n and 2n + 1
};

}  // namespace

PackedRows pack_first_fit(const std::vector<uint32_t>& lengths, uint32_t row_length) {
  SpaceTree spaces(lengths.size(), row_length);
  std::vector<uint32_t> row_of(lengths.size());
  size_t rows = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    row_of[i] = static_cast<uint32_t>(spaces.take(lengths[i]));
    rows = std::max<size_t>(rows, row_of[i] + size_t{1});
  }
  PackedRows packed;
  packed.begins.assign(rows + 1, 0);
  for (const uint32_t row : row_of) ++packed.begins[row + 1];
  std::partial_sum(packed.begins.begin(), packed.begins.end(), packed.begins.begin());
  std::vector<uint64_t> next(packed.begins.begin(), packed.begins.end() - 1);
  packed.samples.resize(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) packed.samples[next[row_of[i]]++] = static_cast<uint32_t>(i);
  return packed;
}

PackedRows one_in_a_row(uint32_t samples) {
  PackedRows packed;
  packed.samples.resize(samples);
  std::iota(packed.samples.begin(), packed.samples.end(), 0u);
  packed.begins.resize(size_t{samples} + 1);
  std::iota(packed.begins.begin(), packed.begins.end(), uint64_t{0});
  return packed;
}

}  // namespace reprise
