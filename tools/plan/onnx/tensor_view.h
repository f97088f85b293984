// The layout of a model's value in the output of a node of our net. A model moves axes at no cost
// (Transpose, Reshape, Squeeze), but a net would have to move numbers. Most moves only change how
// the same numbers are read; numbers move only if an op needs its input in another order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// One factor of a tensor's order in memory. The factors, from the outermost to the innermost, index
// memory as the digits of a number do.
struct Factor {
  int id;
  int64_t size;
};

// The layout of one value: the node that writes it, and the factors of memory that make up each
// axis.
//   images   model [N, C, H, W]   memory N H W C   axes {N} {C} {H} {W}
//   tokens   model [N, H W, C]    memory N H W C   axes {N} {H W} {C}     by Reshape and Transpose
//   heads    model [N, 3, T, D]   memory N T 3 D   axes {N} {3} {T} {D}   written as [N, T, 3 D]
struct TensorView {
  // The id of the batch's factor, which is the first in memory and is never split.
  static constexpr int kBatch = 0;

  std::string node;              // the node that writes the value
  std::vector<int64_t> written;  // the shape that the node writes, batch first
  std::vector<Factor> memory;    // outermost first; each has a size above 1, except the batch's
  // The ids of the factors of each axis of the model's value, outermost first; an axis of size 1
  // has no factors.
  std::vector<std::vector<int>> axes;

  // Returns the view of a value of this shape whose axes are in this order in memory. `order` has
  // indices of axes, the batch's first.
  static TensorView of(const std::string& node, const std::vector<int64_t>& shape, const std::vector<size_t>& order,
                       const std::vector<int64_t>& written);

  int64_t size(int id) const;
  int64_t axis_size(size_t axis) const;
  std::vector<int64_t> shape() const;
  std::vector<int> ids() const;  // Returns the ids of all axes, in the model's order.

  // Returns the same numbers with their axes in another order.
  TensorView transposed(const std::vector<size_t>& order) const;
  // Returns the same numbers in another shape; nothing if the shape would split a factor where it
  // cannot be split.
  std::optional<TensorView> reshaped(const std::vector<int64_t>& shape) const;

  TensorView of_one_sample() const;                // Returns the view without the batch's factor, as a constant has it.
  TensorView by(const std::string& writer) const;  // Returns the same layout as the output of another node.
  // True if both have the same axes of the same memory. The nodes that write them may differ.
  bool is_laid_as(const TensorView& other) const;
  // True if both are the same numbers of the same node.
  bool is_same(const TensorView& other) const { return node == other.node && is_laid_as(other); }
  int fresh_id() const;             // Returns an id that no factor has.
  void cut(int id, int64_t outer);  // Splits a factor in two, the outer one of this size.
  size_t place(int id) const;       // Returns the index of the factor in `memory`.
};

}  // namespace reprise
