// The inner loops of a small core's products: sums of three lines by eight columns that stay in registers while their depths pass.
// Here so that convolutions and linear layers, forward and backward, are one loop: what differs is where a and b lie.
//
// Every sum is one chain of fused multiply-adds in the order of its depths, whatever the processor has: a Cortex-M7 adds one by one, Helium four
// columns at a time, x86-64 eight. So the bits are the same on all of them, and however the depths are cut into parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

constexpr uint32_t kSmallLines = 3, kSmallColumns = 8;

// Depths of both operands, one after another; the next part goes on from its sums. Of b, kSmallColumns floats are read at each depth.
struct SmallPart {
  const float *a, *b;
};
struct SmallParts {
  const SmallPart* parts;
  uint32_t count, depths;  // of each part
  bool first = false;      // sums begin at zero, whatever is there
};

// In these three, sums[i * kSmallColumns + j] is added to, i < lines <= kSmallLines.
// By lines: a[i * a_line + d] * b[d * kSmallColumns + j]. A packed panel is such a b.
void add_by_lines(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line);
// By depths: a[d * a_depth + i] * b[d * b_depth + j].
void add_by_depths(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_depth, ptrdiff_t b_depth);
// By channels, each of which has products of its own: a[d * a_depth + i * a_line + j] * b[d * b_depth + j].
void add_by_channels(float* sums, uint32_t lines, const SmallParts& parts, ptrdiff_t a_line, ptrdiff_t a_depth, ptrdiff_t b_depth);

// Of one line, and columns as a matrix of weights has them: sums[j] += a[d] * b[j * b_column + d], all kSmallColumns of them.
void add_by_columns(float* sums, const float* a, const float* b, ptrdiff_t b_column, uint32_t depths);
// sums[j] += terms[j], all kSmallColumns of them.
void add_columns(float* sums, const float* terms);

}  // namespace reprise
