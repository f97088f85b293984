// The inner loops of a small core's products: sums of three lines by eight columns that stay in
// registers while their depths are added. Forward and backward of convolutions and linear layers
// share these loops; they differ only in the layouts of a and b.
//
// Each sum is one chain of fused multiply-adds in the order of its depths. A Cortex-M7 adds one
// column at a time, Helium four, x86-64 eight. So the bits are equal on all processors, and do not
// depend on how the depths are cut into parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

constexpr uint32_t kSmallLines = 3, kSmallColumns = 8;

// Operands of one part of the depths. The next part continues the sums. The loops read
// kSmallColumns floats of b at each depth.
struct SmallPart {
  const float *a, *b;
};
struct SmallParts {
  const SmallPart* parts;
  uint32_t count, depths;  // number of parts; depths of each part
  bool first = false;      // true if the sums start at zero instead of their current values
};

// Adds the products a[i * a_line + d] * b[d * kSmallColumns + j] to sums[i * kSmallColumns + j],
// for i < lines <= kSmallLines. b is a packed panel.
void add_by_lines(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line);
// Adds the products a[d * a_depth + i] * b[d * b_depth + j] to the sums of add_by_lines().
void add_by_depths(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_depth, ptrdiff_t b_depth);
// Adds the products a[d * a_depth + i * a_line + j] * b[d * b_depth + j] to the sums of
// add_by_lines(): each channel j has its own operands.
void add_by_channels(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line, ptrdiff_t a_depth,
                     ptrdiff_t b_depth);

// Adds the products a[d] * b[j * b_column + d] to sums[j], for all kSmallColumns columns. This
// function is for one line, and for weights that are read in place.
void add_by_columns(float* sums, const float* a, const float* b, ptrdiff_t b_column, uint32_t depths);
// Computes sums[j] += terms[j], for all kSmallColumns columns.
void add_columns(float* sums, const float* terms);

}  // namespace reprise
