// Operands of a convolution that lie in chunks (chunk_source.h): chunks of channels of pixels under a window, of pixels under each tap, and of taps.
// Here as the twin of conv_source.h. A thread divides once, for its first chunk: then it walks, by additions and comparisons.
//
// Places are counted in chunks of 16 bytes from a tensor's start, in 32 bits; chunks_fit in conv_rules.h says that they do.
#pragma once

#include "cuda/channel_norm.h"
#include "cuda/conv_source.h"
#include "cuda/tile_mma.h"

namespace reprise {

template <typename Stored>
__device__ const Stored* chunk_at(const Stored* x, int32_t place) {
  return x + int64_t{place} * kPackWidth<Stored>;
}

// relu(norm(x)) of a chunk's channels, as it would be stored.
template <uint32_t kElements>
struct NormedChunk {
  ChannelNorm<kElements> norm;

  __device__ float of(uint32_t bits, uint32_t channel) const {
    const float y = norm.of(std::bit_cast<float>(bits), channel);
    return y <= 0.0f ? 0.0f : y;  // NaN passes
  }
  __device__ void apply(uint32_t (&words)[4]) const {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if constexpr (kElements == 4) words[i] = std::bit_cast<uint32_t>(of(words[i], i));
      else words[i] = round_to_bf16_pair(of(words[i] << 16, 2 * i), of(words[i] & 0xffff0000u, 2 * i + 1));
    }
  }
};

// A conversion of x's chunks by NormedChunk, or none.
template <bool kNormed>
struct ChunkNorm {
  static constexpr bool kConverts = kNormed;
};
template <>
struct ChunkNorm<true> {
  static constexpr bool kConverts = true;
  InputNorm norm;

  // The lanes of a warp take kAcross chunks that follow each other, lane l that of number l % kAcross. Of bf16 each lane reads its share of their
  // channels from memory, in the order of lanes, and has the rest from others: `told` is the chunk in which its share lies, told_of() its number.
  // Of f32 that is its own chunk, whose channels are half as many.
  template <uint32_t kAcross>
  static constexpr uint32_t kShare = 8 * kAcross / kWarpLanes;
  template <uint32_t kElements, uint32_t kAcross>
  __device__ static uint32_t told_of() {
    return kElements == 4 ? lane_index() % kAcross : lane_index() * kShare<kAcross> / 8;
  }
  template <uint32_t kElements, uint32_t kAcross>
  __device__ NormedChunk<kElements> of_warp(uint32_t told) const {
    if constexpr (kElements == 4) return {of_channels<4>(told)};
    else return of_shares<kAcross>(told);
  }
  template <uint32_t kAcross>
  __device__ NormedChunk<8> of_shares(uint32_t told) const {
    constexpr uint32_t kEach = kShare<kAcross>;
    const ChannelNorm<kEach> share(norm.mean, norm.rstd, norm.gamma, norm.beta, uint64_t{told} * 8 + lane_index() * kEach % 8);
    NormedChunk<8> whole;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const auto of = [&](const Pack<kEach>& pack) {
        return kEach == 8
                   ? pack.at[i % kEach]
                   : __shfl_sync(kAllLanes, pack.at[i % kEach], static_cast<int>((lane_index() % kAcross * 8 + i) / kEach));
      };
      whole.norm.mean.at[i] = of(share.mean), whole.norm.scale.at[i] = of(share.scale), whole.norm.shift.at[i] = of(share.shift);
    }
    return whole;
  }
  template <uint32_t kWidth>
  __device__ ChannelNorm<kWidth> of_channels(uint32_t chunk) const {
    return {norm.mean, norm.rstd, norm.gamma, norm.beta, uint64_t{chunk} * kWidth};
  }
};

// Whether each chunk of the slabs that wait for their conversion is inside: the lowest bits are those of the next one.
template <uint32_t kTurns>
class InsideBits {
 public:
  __device__ void add(uint32_t turn, bool inside) { latest_ |= uint32_t{inside} << turn; }
  __device__ void next_slab(uint32_t waiting) {
    bits_ |= latest_ << waiting * kTurns;
    latest_ = 0;
  }
  __device__ bool at(uint32_t turn) const { return (bits_ >> turn & 1u) != 0; }
  __device__ void drop_slab() { bits_ >>= kTurns; }

 private:
  static_assert(kTurns * (SquareMmaTile::kStages - 1) <= 32);
  uint32_t bits_ = 0, latest_ = 0;
};

// index: a pixel of a window's outputs. depth: a tap and a channel of the pixel that it reads. x is read so, and dy for dx:
// a line of taps goes `direction` along the input, from the pixel origin + step * output on.
template <bool kNormed, typename Stored>
struct WindowChunks : ChunkNorm<kNormed> {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = true;
  struct Line {  // a dimension
    uint32_t inputs, outputs, taps, step;
    int32_t origin;
  };
  const Stored* x;  // [N, lines.inputs, columns.inputs, chunks * kElements]
  Line lines, columns;
  int32_t direction;
  uint32_t chunks;   // of a pixel
  uint32_t count;    // of outputs

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const WindowChunks& source, uint64_t index, uint64_t depth, uint64_t)
        : source_(source), chunk_(static_cast<uint32_t>(depth / kElements) % source.chunks) {
      if constexpr (kNormed) {
        const uint32_t first = static_cast<uint32_t>(depth / kElements) - lane_index() % kSlabChunks;  // of the warp
        told_ = (first + source.template told_of<kElements, kSlabChunks>()) % source.chunks;
      }
      const uint32_t tap = static_cast<uint32_t>(depth / kElements) / source.chunks;
      const uint32_t across = static_cast<uint32_t>(most(1, source.columns.taps));  // no tap, no slab
      line_ = tap / across, column_ = tap % across;
      set_tap();
      const int32_t width = static_cast<int32_t>(source.columns.inputs), chunks = static_cast<int32_t>(source.chunks);
      moved_ = source.direction * (static_cast<int32_t>(line_) * width + static_cast<int32_t>(column_)) * chunks + static_cast<int32_t>(chunk_);
      REPRISE_UNROLL
      for (uint32_t turn = 0; turn < kTurns; ++turn) set_pixel(turn, static_cast<uint32_t>(index) + turn * kStep);
    }
    __device__ Chunk<Stored> take(uint32_t turn) {
      const bool inside = (outside_[turn] & tap_) == 0;
      if constexpr (kNormed) inside_.add(turn, inside);
      return {chunk_at(source_.x, pixel_[turn] + moved_), inside};
    }
    __device__ void next_slab([[maybe_unused]] uint32_t waiting) {
      if constexpr (kNormed) inside_.next_slab(waiting);
      chunk_ += kSlabChunks;
      moved_ += kSlabChunks;
      while (chunk_ >= source_.chunks) next_tap();
    }

    __device__ ChannelNorm<kElements> norm() const { return source_.template of_channels<kElements>(chunk_); }
    __device__ NormedChunk<kElements> conversion() const { return source_.template of_warp<kElements, kSlabChunks>(told_); }
    __device__ bool is_inside(uint32_t turn) const { return inside_.at(turn); }
    __device__ void end_conversion() {
      inside_.drop_slab();
      for (told_ += kSlabChunks; told_ >= source_.chunks;) told_ -= source_.chunks;
    }

   private:
    static constexpr uint32_t kSlabChunks = kSlab / kElements, kNoTap = 1u << 31;

    // A bit for the line and one for the column of the tap; behind the last tap the bit that every pixel has.
    __device__ void set_tap() {
      tap_ = line_ < source_.lines.taps ? 1u << line_ | 1u << (source_.lines.taps + column_) : kNoTap;
    }
    // Forwards the next pixel's channels follow those of this one.
    __device__ void next_tap() {
      const int32_t chunks = static_cast<int32_t>(source_.chunks), taps = static_cast<int32_t>(source_.columns.taps);
      chunk_ -= source_.chunks;
      moved_ += (source_.direction - 1) * chunks;
      if (++column_ == source_.columns.taps) {
        column_ = 0;
        ++line_;
        moved_ += source_.direction * (static_cast<int32_t>(source_.columns.inputs) - taps) * chunks;
      }
      set_tap();
    }
    __device__ static uint32_t outside_of(const Line& line, int32_t first, int32_t direction) {
      uint32_t bits = 0;
      for (uint32_t tap = 0; tap < line.taps; ++tap) {
        bits |= uint32_t{static_cast<uint32_t>(first + direction * static_cast<int32_t>(tap)) >= line.inputs} << tap;
      }
      return bits;
    }
    __device__ void set_pixel(uint32_t turn, uint32_t index) {
      const Line &lines = source_.lines, &columns = source_.columns;
      const uint32_t row = index / columns.outputs, n = row / lines.outputs;
      const int32_t y = lines.origin + static_cast<int32_t>(row % lines.outputs * lines.step);
      const int32_t x = columns.origin + static_cast<int32_t>(index % columns.outputs * columns.step);
      const int32_t height = static_cast<int32_t>(lines.inputs), width = static_cast<int32_t>(columns.inputs);
      pixel_[turn] = ((static_cast<int32_t>(n) * height + y) * width + x) * static_cast<int32_t>(source_.chunks);
      outside_[turn] = kNoTap | outside_of(lines, y, source_.direction) | outside_of(columns, x, source_.direction) << lines.taps;
      if (index >= source_.count) outside_[turn] = 0xffffffffu, pixel_[turn] = 0;
    }

    const WindowChunks& source_;
    uint32_t chunk_, line_, column_, tap_;
    int32_t moved_;             // from a pixel's place to that of the tap's pixel and the thread's channels
    int32_t pixel_[kTurns];     // where the first tap of each output reads
    uint32_t outside_[kTurns];  // a bit for each line of taps that reads outside, then for each column
    uint32_t told_ = 0;         // of the slab that is converted next: the chunk whose norm this lane reads
    InsideBits<kTurns> inside_;
  };
};

// index: a tap and a channel. depth: an output pixel.
template <bool kNormed, typename Stored>
struct TapChunks : ChunkNorm<kNormed> {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = false, kNeedsRegisters = true;
  const Stored* x;
  ConvShape shape;
  uint32_t chunks;  // of a pixel
  uint32_t count;   // of taps' channels

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const TapChunks& source, uint64_t index, uint64_t depth, uint64_t end) : source_(source) {
      const ConvShape& s = source.shape;
      const uint32_t flat = static_cast<uint32_t>(index / kElements), tap = flat / source.chunks;
      chunk_ = flat % source.chunks;
      if constexpr (kNormed) {
        told_ = (flat - lane_index() % kAcross + source.template told_of<kElements, kAcross>()) % source.chunks;
      }
      first_line_ = static_cast<int32_t>(tap / s.window.kernel_w) - s.window.pad_top;
      first_column_ = static_cast<int32_t>(tap % s.window.kernel_w) - s.window.pad_left;
      left_ = index < source.count ? static_cast<int32_t>(end - depth) : 0;
      const uint32_t output = static_cast<uint32_t>(depth), n = output / s.Q / s.P;
      q_ = output % s.Q, p_ = output / s.Q % s.P;
      place_ = place_of(n, p_ * s.window.stride_h, q_ * s.window.stride_w) + place_of(0, first_line_, first_column_) + static_cast<int32_t>(chunk_);
      step_q_ = kStep % s.Q, step_p_ = kStep / s.Q % s.P;
      step_place_ = place_of(kStep / s.Q / s.P, step_p_ * s.window.stride_h, step_q_ * s.window.stride_w);
    }
    __device__ Chunk<Stored> take(uint32_t turn) {
      const ConvShape& s = source_.shape;
      const uint32_t line = p_ * s.window.stride_h + first_line_, column = q_ * s.window.stride_w + first_column_;  // below 0: huge
      const Chunk<Stored> chunk = {chunk_at(source_.x, place_),
                                   static_cast<int32_t>(turn * kStep) < left_ && line < s.H && column < s.W};
      if constexpr (kNormed) inside_.add(turn, chunk.inside);
      step();
      return chunk;
    }
    __device__ void next_slab([[maybe_unused]] uint32_t waiting) {
      if constexpr (kNormed) inside_.next_slab(waiting);
      left_ -= kSlab;
    }

    __device__ ChannelNorm<kElements> norm() const { return source_.template of_channels<kElements>(chunk_); }
    __device__ NormedChunk<kElements> conversion() const { return source_.template of_warp<kElements, kAcross>(told_); }
    __device__ bool is_inside(uint32_t turn) const { return inside_.at(turn); }
    __device__ void end_conversion() { inside_.drop_slab(); }

   private:
    static constexpr uint32_t kAcross = SquareMmaTile::kThreads / kStep;  // of tensor cores' tiles

    __device__ int32_t place_of(uint32_t n, uint32_t line, uint32_t column) const {
      return static_cast<int32_t>(((n * source_.shape.H + line) * source_.shape.W + column) * source_.chunks);
    }
    __device__ void step() {
      const ConvShape& s = source_.shape;
      place_ += step_place_;
      q_ += step_q_;
      if (q_ >= s.Q) {
        q_ -= s.Q;
        ++p_;
        place_ += place_of(0, s.window.stride_h, 0u - s.Q * s.window.stride_w);
      }
      p_ += step_p_;
      if (p_ >= s.P) {
        p_ -= s.P;
        place_ += place_of(1, 0u - s.P * s.window.stride_h, 0);
      }
    }

    const TapChunks& source_;
    uint32_t chunk_, q_, p_, step_q_, step_p_;
    int32_t first_line_, first_column_;  // of the input, that the tap reads for output 0
    int32_t left_;                       // of the depth
    int32_t place_, step_place_;
    uint32_t told_ = 0;  // the chunk whose norm this lane reads
    InsideBits<kTurns> inside_;
  };
};

// index: an input channel. depth: a tap of the phase and an output channel. Taps of a phase are a stride apart: windows are not dilated here.
template <typename Stored>
struct PhaseTapChunks {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = false, kConverts = false;
  const Stored* w;  // [K,R,S,C]
  ConvShape shape;
  ConvPhases phases;

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const PhaseTapChunks& source, uint64_t index, uint64_t depth, uint64_t end) : source_(source) {
      const ConvShape& s = source.shape;
      const uint32_t tap = static_cast<uint32_t>(depth) / s.K, across = static_cast<uint32_t>(most(1, source.phases.columns.taps));
      chunks_ = static_cast<int32_t>(s.C / kElements);
      output_chunks_ = s.window.kernel_h * s.window.kernel_w * chunks_;
      k_ = static_cast<uint32_t>(depth) % s.K;
      column_ = tap % across;
      const uint32_t r = source.phases.rows.tap + s.window.stride_h * (tap / across), t = source.phases.columns.tap + s.window.stride_w * column_;
      place_ = static_cast<int32_t>(k_) * output_chunks_ + static_cast<int32_t>(r * s.window.kernel_w + t) * chunks_ +
               static_cast<int32_t>(index / kElements);
      left_ = index < s.C ? static_cast<int32_t>(end - depth) : 0;
    }
    __device__ Chunk<Stored> take(uint32_t turn) {
      const Chunk<Stored> chunk = {chunk_at(source_.w, place_), static_cast<int32_t>(turn * kStep) < left_};
      k_ += kStep;
      place_ += kStep * output_chunks_;
      while (k_ >= source_.shape.K) next_tap();
      return chunk;
    }
    __device__ void next_slab(uint32_t) { left_ -= kSlab; }

   private:
    __device__ void next_tap() {
      const WindowAttribute& window = source_.shape.window;
      const int32_t across = static_cast<int32_t>(source_.phases.columns.taps);
      k_ -= source_.shape.K;
      place_ += window.stride_w * chunks_ - static_cast<int32_t>(source_.shape.K) * output_chunks_;
      if (++column_ == source_.phases.columns.taps) {
        column_ = 0;
        place_ += (window.stride_h * window.kernel_w - window.stride_w * across) * chunks_;
      }
    }

    const PhaseTapChunks& source_;
    int32_t chunks_, output_chunks_, place_, left_;
    uint32_t k_, column_;
  };
};

}  // namespace reprise
