// Numbers of a model that are known before it runs, and what its nodes compute from them.
// Here because exporters write the arithmetic of shapes as nodes (Shape, Gather, Concat, ...), which must be done before a Reshape is read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tools/onnx/node_reader.h"

namespace reprise {

struct KnownNumbers {
  std::vector<int64_t> shape;
  std::vector<double> numbers;  // row-major; integers below 2^53
  bool is_integer = false;
  double each_row = 0;  // of rows: how much more the numbers of a place along the first axis are than those of the place before
  bool of_texts = false;  // true of made-up texts alone (text_probe.h): it depends on the mask of padding

  std::vector<int64_t> integers() const;  // those beyond 2^53, with which exporters say "to the end", are that
  bool is_whole() const;                  // false: only the shape is known, or the rows
  bool is_rows() const;                   // a list as long as the batch, of which `numbers` are those of the first place
};
constexpr uint64_t kMostKnown = 1000000;  // a longer list is neither arithmetic of shapes nor a mask; one as long as an open batch is longer
constexpr uint64_t kMostRows = uint64_t{1} << 30;

KnownNumbers known_integers(const std::vector<int64_t>& numbers);

// What the node writes when its inputs (null: absent) are these; nothing where the op is not one of the arithmetic of shapes, or they do
// not suit each other.
std::optional<KnownNumbers> computed(NodeReader& reader, const std::vector<const KnownNumbers*>& inputs);

// The same numbers twice, along the first axis.
KnownNumbers twice(const KnownNumbers& numbers);

// first, end and step of a Slice along an axis of so many places, as ONNX counts them; the number of places in `count`.
struct SliceRange {
  int64_t first = 0, count = 0, step = 1;
};
SliceRange slice_range(int64_t start, int64_t end, int64_t step, int64_t size);

}  // namespace reprise
