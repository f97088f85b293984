// The rows of a map, the tensor that a small core's convolution reads. The last few rows that
// windows have reached are stored as f32, normalised if needed, with zeros around them. Loops over
// taps then need no code for borders, storage formats or norms.
#pragma once

#include <cstring>
#include <type_traits>

#include "lib/cpu/small/conv_small_rules.h"

namespace reprise {

template <typename Stored>
class SmallRows {
 public:
  // Binds a map to the buffer `space`, which has shape.floats(). If `space` is null, rows are read
  // in place. The map must then be f32 without a norm, and windows must read all its channels and
  // nothing outside it.
  SmallRows(const Stored* map, const InputNorm& norm, const SmallRowsShape& shape, float* space)
      : map_(map),
        norm_(norm),
        shape_(shape),
        space_(space),
        row_floats_(static_cast<size_t>(shape.row_floats())),
        left_floats_(size_t{shape.left} * shape.C) {
    if (space_ != nullptr) std::memset(space_ + shape_.kept * row_floats_, 0, kSmallColumns * sizeof(float));
  }

  // Starts with the channels of `image` from `first` on. Channels past the last one of the map are
  // zeros.
  void begin(uint32_t image, uint32_t first = 0) {
    image_ = map_ + size_t{image} * shape_.H * shape_.W * shape_.pixel;
    first_ = first;
    channels_ = static_cast<uint32_t>(smaller(shape_.C, shape_.pixel - first));
    next_ = kNone;
  }
  // Makes rows [first, last] available; some may be outside of the map. `first` must not decrease
  // until begin() is called again.
  void reach(int32_t first, int32_t last) {
    if (space_ == nullptr) return;
    if (next_ < first) next_ = first;
    for (; next_ <= last; ++next_) fill(next_);
  }
  // Returns the address of column 0 of a row that is available.
  const float* at(int32_t row) const {
    if (space_ != nullptr) return slot(row) + left_floats_;
    if constexpr (std::is_same_v<Stored, float>) return image_ + static_cast<size_t>(row) * shape_.W * shape_.pixel;
    return nullptr;
  }

 private:
  static constexpr int32_t kNone = -0x7fffffff;

  float* slot(int32_t row) const {
    const int32_t kept = static_cast<int32_t>(shape_.kept), place = row % kept;
    return space_ + static_cast<size_t>(place < 0 ? place + kept : place) * row_floats_;
  }
  void fill(int32_t row) const {
    float* to = slot(row);
    if (row < 0 || row >= static_cast<int32_t>(shape_.H)) {
      std::memset(to, 0, row_floats_ * sizeof *to);
      return;
    }
    const size_t floats = size_t{shape_.W} * shape_.C;
    std::memset(to, 0, left_floats_ * sizeof *to);
    copy(to + left_floats_, image_ + static_cast<size_t>(row) * shape_.W * shape_.pixel + first_);
    std::memset(to + left_floats_ + floats, 0, size_t{shape_.right} * shape_.C * sizeof *to);
  }
  void copy(float* to, const Stored* from) const {
    if constexpr (std::is_same_v<Stored, float>) {
      if (norm_.mean == nullptr && shape_.C == shape_.pixel)
        return static_cast<void>(std::memcpy(to, from, size_t{shape_.W} * shape_.C * sizeof *to));
    }
    for (uint32_t c = 0; c < shape_.C; ++c) copy_channel(to + c, from + c, c);
  }
  // Writes relu(norm(x)), or x if there is no norm, with the expression of conv_source.h.
  void copy_channel(float* to, const Stored* from, uint32_t c) const {
    const size_t each = shape_.C, from_each = shape_.pixel;
    if (c >= channels_) {
      for (uint32_t left = shape_.W; left > 0; --left, to += each) *to = 0.0f;
    } else if (norm_.mean == nullptr) {
      for (uint32_t left = shape_.W; left > 0; --left, to += each, from += from_each) *to = *from;
    } else {
      const float mean = norm_.mean[first_ + c], scale = norm_.rstd[first_ + c] * norm_.gamma[first_ + c],
                  shift = norm_.beta[first_ + c];
      for (uint32_t left = shape_.W; left > 0; --left, to += each, from += from_each) {
        const float y = (static_cast<float>(*from) - mean) * scale + shift;
        *to = y <= 0.0f ? 0.0f : y;
      }
    }
  }

  const Stored *map_, *image_ = nullptr;
  InputNorm norm_;
  SmallRowsShape shape_;
  float* space_;
  size_t row_floats_, left_floats_;  // derived from the shape; stored because every tap of every tile needs them
  uint32_t first_ = 0, channels_ = 0;
  int32_t next_ = kNone;  // the first row that is not available yet
};

}  // namespace reprise
