// Packs samples into rows of one length by first fit: each sample, in order, goes into the first
// row with enough space. Without packing, rows with one short sample would be mostly padding.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

// Which samples are in which row.
struct PackedRows {
  std::vector<uint32_t> samples;  // indices of samples, row after row; ascending within a row
  std::vector<uint64_t> begins;   // row r has samples[begins[r]] to samples[begins[r + 1] - 1]
  uint64_t size() const { return begins.size() - 1; }
};

// Returns the rows. The lengths must be from 1 to `row_length`. Takes O(n log n) steps; the result
// depends only on the lengths.
PackedRows pack_first_fit(const std::vector<uint32_t>& lengths, uint32_t row_length);

// Returns rows with one sample each.
PackedRows one_in_a_row(uint32_t samples);

}  // namespace reprise
