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
  // `room` has shape.floats(); null where rows may be read where they lie (small_in_place).
  SmallRows(const Stored* map, const InputNorm& norm, const SmallRowsShape& shape, float* room) : map_(map), norm_(norm), shape_(shape), room_(room) {
    if (room_ != nullptr) std::memset(room_ + shape_.kept * shape_.row_floats(), 0, kSmallColumns * sizeof(float));
  }

  void begin(uint32_t image) {
    image_ = map_ + size_t{image} * shape_.H * shape_.W * shape_.C;
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
    if (room_ != nullptr) return slot(row) + size_t{shape_.left} * shape_.C;
    if constexpr (std::is_same_v<Stored, float>) return image_ + static_cast<size_t>(row) * shape_.W * shape_.C;
    return nullptr;
  }

 private:
  static constexpr int32_t kNone = -0x7fffffff;

  float* slot(int32_t row) const {
    const int32_t kept = static_cast<int32_t>(shape_.kept), place = row % kept;
    return room_ + static_cast<size_t>(place < 0 ? place + kept : place) * shape_.row_floats();
  }
  void fill(int32_t row) const {
    float* to = slot(row);
    if (row < 0 || row >= static_cast<int32_t>(shape_.H)) {
      std::memset(to, 0, shape_.row_floats() * sizeof *to);
      return;
    }
    std::memset(to, 0, size_t{shape_.left} * shape_.C * sizeof *to);
    to += size_t{shape_.left} * shape_.C;
    const Stored* from = image_ + static_cast<size_t>(row) * shape_.W * shape_.C;
    if (norm_.mean != nullptr) normalise(to, from);
    else copy(to, from);
    std::memset(to + size_t{shape_.W} * shape_.C, 0, size_t{shape_.right} * shape_.C * sizeof *to);
  }
  void copy(float* to, const Stored* from) const {
    const size_t floats = size_t{shape_.W} * shape_.C;
    if constexpr (std::is_same_v<Stored, float>) std::memcpy(to, from, floats * sizeof *to);
    else for (size_t i = 0; i < floats; ++i) to[i] = from[i];
  }
  // As conv_source.h has it, channel by channel.
  void normalise(float* to, const Stored* from) const {
    const uint32_t C = shape_.C;
    for (uint32_t c = 0; c < C; ++c) {
      const float mean = norm_.mean[c], scale = norm_.rstd[c] * norm_.gamma[c], shift = norm_.beta[c];
      for (size_t i = c; i < size_t{shape_.W} * C; i += C) {
        const float y = (static_cast<float>(from[i]) - mean) * scale + shift;
        to[i] = y <= 0.0f ? 0.0f : y;
      }
    }
  }

  const Stored *map_, *image_ = nullptr;
  InputNorm norm_;
  SmallRowsShape shape_;
  float* room_;
  int32_t next_ = kNone;  // the first row that is not ready
};

}  // namespace reprise
