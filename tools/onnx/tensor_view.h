// How a value of a model lies in what a node of our net writes.
// Here because a model moves axes about at no cost (Transpose, Reshape, Squeeze), where a net would have to move numbers. Most of these
// moves only say how the same numbers are read, and none has to be made before an op needs its input in another order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

// A run of the numbers' order, as a digit of a number: memory is the digits from the outermost to the innermost.
struct Factor {
  int id;
  int64_t size;
};

//   images   model [N, C, H, W]       memory N H W C      axes {N} {C} {H} {W}
//   tokens   model [N, H W, C]        memory N H W C      axes {N} {H W} {C}     by Reshape and Transpose: nothing has moved
//   heads    model [N, 3, T, D]       memory N T 3 D      axes {N} {3} {T} {D}   of what a linear layer wrote as [N, T, 3 D]
struct TensorView {
  static constexpr int kBatch = 0;  // the id of the batch's factor, always the first in memory and never cut

  std::string node;                    // that writes it
  std::vector<int64_t> written;        // the shape that it writes, batch first
  std::vector<Factor> memory;          // of one element more than 1 each, but for the batch's
  std::vector<std::vector<int>> axes;  // of the model's value: ids of the factors of each, outermost first; none where the axis is 1

  // Of a value that has these axes, in this order in memory (indices of axes, the batch's first).
  static TensorView of(const std::string& node, const std::vector<int64_t>& shape, const std::vector<size_t>& order,
                       const std::vector<int64_t>& written);

  int64_t size(int id) const;
  int64_t axis_size(size_t axis) const;
  std::vector<int64_t> shape() const;
  std::vector<int> ids() const;  // of all axes, in the model's order

  // The same numbers read otherwise. Of a shape that cuts a factor where it cannot be cut: nothing.
  TensorView transposed(const std::vector<size_t>& order) const;
  std::optional<TensorView> reshaped(const std::vector<int64_t>& shape) const;

  TensorView of_one_sample() const;                // without the batch's factor, as a constant's is
  TensorView by(const std::string& writer) const;  // another node's value of the same layout
  bool is_laid_as(const TensorView& other) const;  // the same axes of the same memory, whoever writes it
  bool is_same(const TensorView& other) const { return node == other.node && is_laid_as(other); }  // the same numbers of the same node
  int fresh_id() const;                            // that no factor has
  void cut(int id, int64_t outer);                 // a factor as two, the outer of this size
  size_t place(int id) const;                      // in memory
};

}  // namespace reprise
