// Operands of a convolution in chunks (chunk_source.h): pixels under a window (WindowChunks),
// pixels under each tap (TapChunks), and weights (PhaseTapChunks). The sources in conv_source.h
// read the same operands element by element. A thread divides only to find its first chunk. It
// finds later chunks by additions and comparisons.
//
// A place is the index of a chunk from a tensor's start, in 32 bits; conv_chunks_fit() in
// conv_rules.h ensures that it fits.
#pragma once

#include "cuda/conv/conv_source.h"
#include "cuda/gemm/tile_mma.h"
#include "cuda/norm/channel_norm.h"

namespace reprise {

template <typename Stored>
__device__ const Stored* chunk_at(const Stored* x, int32_t place) {
  return x + int64_t{place} * kPackWidth<Stored>;
}

// Computes relu(norm(x)) for the channels of one chunk, rounded to the type in which x is stored.
template <uint32_t kElements>
struct NormedChunk {
  ChannelNorm<kElements> norm;

  __device__ float of(uint32_t bits, uint32_t channel) const {
    const float y = norm.of(std::bit_cast<float>(bits), channel);
    return y <= 0.0f ? 0.0f : y;  // NaN stays NaN
  }
  __device__ void apply(uint32_t (&words)[4]) const {
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if constexpr (kElements == 4) words[i] = std::bit_cast<uint32_t>(of(words[i], i));
      else words[i] = round_to_bf16_pair(of(words[i] << 16, 2 * i), of(words[i] & 0xffff0000u, 2 * i + 1));
    }
  }
};

// Base of sources of x. If kNormed, chunks are converted by NormedChunk; otherwise they are not
// converted.
template <bool kNormed>
struct ChunkNorm {
  static constexpr bool kConverts = kNormed;
};
template <>
struct ChunkNorm<true> {
  static constexpr bool kConverts = true;
  InputNorm norm;

  // The lanes of a warp load kAcross consecutive chunks; lane l loads chunk l % kAcross. In bf16,
  // each lane reads the norm's parameters of only kShare channels from memory. It gets the other
  // channels of its chunk from other lanes. `told` is the index of the chunk whose parameters the
  // lane reads. told_of() is the index of that chunk among the kAcross chunks. In f32, a lane reads
  // all parameters of its own chunk.
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
    const ChannelNorm<kEach> share(norm.mean, norm.rstd, norm.gamma, norm.beta,
                                   uint64_t{told} * 8 + lane_index() * kEach % 8);
    NormedChunk<8> whole;
    REPRISE_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      const auto of = [&](const Pack<kEach>& pack) {
        return kEach == 8 ? pack.at[i % kEach]
                          : __shfl_sync(kAllLanes, pack.at[i % kEach],
                                        static_cast<int>((lane_index() % kAcross * 8 + i) / kEach));
      };
      whole.norm.mean.at[i] = of(share.mean), whole.norm.scale.at[i] = of(share.scale),
      whole.norm.shift.at[i] = of(share.shift);
    }
    return whole;
  }
  template <uint32_t kWidth>
  __device__ ChannelNorm<kWidth> of_channels(uint32_t chunk) const {
    return {norm.mean, norm.rstd, norm.gamma, norm.beta, uint64_t{chunk} * kWidth};
  }
};

// A queue with a bit for each chunk of the slabs that are not yet converted. A bit is set if the
// chunk is inside the tensor. The slab that is converted next has the lowest bits.
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

// Pixels under a window. An index is an output pixel; a depth is a tap and a channel of the pixel
// that the tap reads. Used for x, and for dy to compute dx. In each dimension, tap t of an output
// reads pixel origin + step * output + direction * t.
template <bool kNormed, typename Stored>
struct WindowChunks : ChunkNorm<kNormed> {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = true;
  struct Line {  // one dimension of the window
    uint32_t inputs, outputs, taps, step;
    int32_t origin;
  };
  const Stored* x;  // [N, lines.inputs, columns.inputs, chunks * kElements]
  Line lines, columns;
  int32_t direction;
  uint32_t chunks;   // chunks of one pixel
  uint32_t count;    // output pixels

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const WindowChunks& source, uint64_t index, uint64_t depth, uint64_t)
        : source_(source), chunk_(static_cast<uint32_t>(depth / kElements) % source.chunks) {
      if constexpr (kNormed) {
        // First chunk of the warp.
        const uint32_t first = static_cast<uint32_t>(depth / kElements) - lane_index() % kSlabChunks;
        told_ = (first + source.template told_of<kElements, kSlabChunks>()) % source.chunks;
      }
      const uint32_t tap = static_cast<uint32_t>(depth / kElements) / source.chunks;
      const uint32_t across = static_cast<uint32_t>(maximum(1, source.columns.taps));  // taps can be 0
      line_ = tap / across, column_ = tap % across;
      set_tap();
      const int32_t width = static_cast<int32_t>(source.columns.inputs), chunks = static_cast<int32_t>(source.chunks);
      moved_ = source.direction * (static_cast<int32_t>(line_) * width + static_cast<int32_t>(column_)) * chunks +
               static_cast<int32_t>(chunk_);
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
    __device__ NormedChunk<kElements> conversion() const {
      return source_.template of_warp<kElements, kSlabChunks>(told_);
    }
    __device__ bool is_inside(uint32_t turn) const { return inside_.at(turn); }
    __device__ void end_conversion() {
      inside_.drop_slab();
      for (told_ += kSlabChunks; told_ >= source_.chunks;) told_ -= source_.chunks;
    }

   private:
    static constexpr uint32_t kSlabChunks = kSlab / kElements, kNoTap = 1u << 31;

    // Sets tap_ to the two bits of the tap's line and column in outside_. After the last tap, sets
    // kNoTap, which is set in outside_ of every pixel.
    __device__ void set_tap() {
      tap_ = line_ < source_.lines.taps ? 1u << line_ | 1u << (source_.lines.taps + column_) : kNoTap;
    }
    // Moves to the next tap. With direction 1, the channels of the next tap's pixel directly follow
    // the channels of this tap's pixel.
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
      outside_[turn] =
          kNoTap | outside_of(lines, y, source_.direction) | outside_of(columns, x, source_.direction) << lines.taps;
      if (index >= source_.count) outside_[turn] = 0xffffffffu, pixel_[turn] = 0;
    }

    const WindowChunks& source_;
    uint32_t chunk_, line_, column_, tap_;
    int32_t moved_;             // chunks from pixel_[turn] to the chunk that the thread loads next
    int32_t pixel_[kTurns];     // index of the first chunk of the pixel that the output's first tap reads
    uint32_t outside_[kTurns];  // bits of lines of taps, then of columns of taps; set if the line or column is outside
    uint32_t told_ = 0;         // the chunk whose norm this lane reads for the next slab to convert
    InsideBits<kTurns> inside_;
  };
};

// Pixels under each tap. An index is a tap and a channel; a depth is an output pixel.
template <bool kNormed, typename Stored>
struct TapChunks : ChunkNorm<kNormed> {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = false, kNeedsRegisters = true;
  const Stored* x;
  ConvShape shape;
  uint32_t chunks;  // chunks of one pixel
  uint32_t count;   // number of indices: taps times channels

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
      place_ = place_of(n, p_ * s.window.stride_h, q_ * s.window.stride_w) + place_of(0, first_line_, first_column_) +
               static_cast<int32_t>(chunk_);
      step_q_ = kStep % s.Q, step_p_ = kStep / s.Q % s.P;
      step_place_ = place_of(kStep / s.Q / s.P, step_p_ * s.window.stride_h, step_q_ * s.window.stride_w);
    }
    __device__ Chunk<Stored> take(uint32_t turn) {
      const ConvShape& s = source_.shape;
      // A coordinate below 0 wraps to a huge number, so one comparison tests both ends.
      const uint32_t line = p_ * s.window.stride_h + first_line_, column = q_ * s.window.stride_w + first_column_;
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
    static constexpr uint32_t kAcross = SquareMmaTile::kThreads / kStep;  // chunks across a slab, for tensor-core tiles

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
    int32_t first_line_, first_column_;  // input line and column that the tap reads for output 0
    int32_t left_;                       // depths from the slab's first depth to the end; 0 if the index is outside
    int32_t place_, step_place_;
    uint32_t told_ = 0;  // the chunk whose norm this lane reads for all slabs
    InsideBits<kTurns> inside_;
  };
};

// Weights of a phase as an operand x[index][depth] (chunk_source.h). The index is an input channel.
// The depth is tap * K + output channel, where `tap` counts the taps of the phase. These taps are
// one stride apart, because convolutions with dilation do not use chunks.
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
      const uint32_t tap = static_cast<uint32_t>(depth) / s.K,
                     across = static_cast<uint32_t>(maximum(1, source.phases.columns.taps));
      chunks_ = static_cast<int32_t>(s.C / kElements);
      output_chunks_ = s.window.kernel_h * s.window.kernel_w * chunks_;
      k_ = static_cast<uint32_t>(depth) % s.K;
      column_ = tap % across;
      const uint32_t r = source.phases.rows.tap + s.window.stride_h * (tap / across),
                     t = source.phases.columns.tap + s.window.stride_w * column_;
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
