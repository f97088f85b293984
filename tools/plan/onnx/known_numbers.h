// Numbers of a model that are known before it runs, and what its nodes compute from them. Exporters
// write the arithmetic of shapes as nodes (Shape, Gather, Concat, ...), and a Reshape needs its
// result.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/plan/onnx/node_reader.h"

namespace reprise {

struct KnownNumbers {
  std::vector<int64_t> shape;
  std::vector<double> numbers;  // row-major; integers below 2^53
  bool is_integer = false;
  // For is_rows(): the difference between a number and the number before it along the first axis.
  double each_row = 0;
  bool of_texts = false;  // True if the numbers depend on the mask of padding of made-up texts (text_probe.h).

  // Returns the numbers as integers, limited to +-2^53, because exporters write "to the end" as a
  // larger number.
  std::vector<int64_t> integers() const;
  // True if all numbers of the shape are known. Otherwise only the shape or the first row is known.
  bool is_whole() const;
  // True if `numbers` has only the first row, and each row is the one before plus each_row.
  bool is_rows() const;
};
// Maximum length of a list. A longer list is neither arithmetic of shapes nor a mask; it may be as
// long as an open batch.
constexpr uint64_t kMaxKnown = 1000000;
// Maximum length of a list of which only the first row is kept.
constexpr uint64_t kMaxRows = uint64_t{1} << 30;

KnownNumbers known_integers(const std::vector<int64_t>& numbers);

// Returns the node's output for these inputs (null: absent); nothing if the op is not part of the
// arithmetic of shapes, or if the inputs do not fit each other.
std::optional<KnownNumbers> computed(NodeReader& reader, const std::vector<const KnownNumbers*>& inputs);

// Returns the list concatenated with itself along the first axis.
KnownNumbers twice(const KnownNumbers& numbers);

// The indices that a Slice takes along an axis: `first`, first + step, ...; `count` of them.
struct SliceRange {
  int64_t first = 0, count = 0, step = 1;
};
// Returns the indices for a Slice's start, end and step, as ONNX counts them, along an axis of
// `size` elements.
SliceRange slice_range(int64_t start, int64_t end, int64_t step, int64_t size);

}  // namespace reprise
