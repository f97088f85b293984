// Packs samples into rows of one length, first fit: each sample in its order goes into the first row that has room for it.
// Here because rows that hold one short sample each are mostly padding.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

struct PackedRows {
  std::vector<uint32_t> samples;  // by row, in a row in the order in which they came
  std::vector<uint64_t> begins;   // row r holds samples[begins[r]] to samples[begins[r + 1]], the last excluded
  uint64_t size() const { return begins.size() - 1; }
};

// Each length is from 1 to `row_length`. In n log n steps; a function of the lengths alone.
PackedRows pack_first_fit(const std::vector<uint32_t>& lengths, uint32_t row_length);

// A row for each sample.
PackedRows one_in_a_row(uint32_t samples);

}  // namespace reprise
