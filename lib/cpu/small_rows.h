// Rows of a map as a small core's convolution reads them: as f32, normalised where asked, between zeros, the last few rows of a walk and no more.
// Here so that no loop over taps knows of borders, of storage or of norms.
//
//   zeros |  row 4 of the map  | zeros        a walk down the map writes row 5 over row 2
//   zeros |  row 2             | zeros
//   zeros |  row 3             | zeros
#pragma once

#include <cstring>
#include <type_traits>

#include "lib/cpu/conv_small_rules.h"

namespace reprise {

template <typename Stored>
class SmallRows {
 public:
  // `room` has shape.floats(); null where rows may be read where they lie: all channels of a map of f32, of which nothing beyond is read.
  SmallRows(const Stored* map, const InputNorm& norm, const SmallRowsShape& shape, float* room)
      : map_(map), norm_(norm), shape_(shape), room_(room), row_floats_(static_cast<size_t>(shape.row_floats())), left_floats_(size_t{shape.left} * shape.C) {
    if (room_ != nullptr) std::memset(room_ + shape_.kept * row_floats_, 0, kSmallColumns * sizeof(float));
  }

  // Channels from `first` on; of fewer than shape.C the others are zeros.
  void begin(uint32_t image, uint32_t first = 0) {
    image_ = map_ + size_t{image} * shape_.H * shape_.W * shape_.pixel;
    first_ = first;
    channels_ = static_cast<uint32_t>(smaller(shape_.C, shape_.pixel - first));
    next_ = kNone;
  }
  // Makes rows [first, last] ready, some of which may lie outside of the map; `first` never goes back.
  void reach(int32_t first, int32_t last) {
    if (room_ == nullptr) return;
    if (next_ < first) next_ = first;
    for (; next_ <= last; ++next_) fill(next_);
  }
  // The channels of column 0 of a row that is ready.
  const float* at(int32_t row) const {
    if (room_ != nullptr) return slot(row) + left_floats_;
    if constexpr (std::is_same_v<Stored, float>) return image_ + static_cast<size_t>(row) * shape_.W * shape_.pixel;
    return nullptr;
  }

 private:
  static constexpr int32_t kNone = -0x7fffffff;

  float* slot(int32_t row) const {
    const int32_t kept = static_cast<int32_t>(shape_.kept), place = row % kept;
    return room_ + static_cast<size_t>(place < 0 ? place + kept : place) * row_floats_;
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
      if (norm_.mean == nullptr && shape_.C == shape_.pixel) return static_cast<void>(std::memcpy(to, from, size_t{shape_.W} * shape_.C * sizeof *to));
    }
    for (uint32_t c = 0; c < shape_.C; ++c) copy_channel(to + c, from + c, c);
  }
  // relu(norm(x)) as conv_source.h has it.
  void copy_channel(float* to, const Stored* from, uint32_t c) const {
    const size_t each = shape_.C, from_each = shape_.pixel;
    if (c >= channels_) {
      for (uint32_t left = shape_.W; left > 0; --left, to += each) *to = 0.0f;
    } else if (norm_.mean == nullptr) {
      for (uint32_t left = shape_.W; left > 0; --left, to += each, from += from_each) *to = *from;
    } else {
      const float mean = norm_.mean[first_ + c], scale = norm_.rstd[first_ + c] * norm_.gamma[first_ + c], shift = norm_.beta[first_ + c];
      for (uint32_t left = shape_.W; left > 0; --left, to += each, from += from_each) {
        const float y = (static_cast<float>(*from) - mean) * scale + shift;
        *to = y <= 0.0f ? 0.0f : y;
      }
    }
  }

  const Stored *map_, *image_ = nullptr;
  InputNorm norm_;
  SmallRowsShape shape_;
  float* room_;
  size_t row_floats_, left_floats_;  // of the shape, kept because every tap of every tile asks for a place
  uint32_t first_ = 0, channels_ = 0;
  int32_t next_ = kNone;  // the first row that is not ready
};

}  // namespace reprise
