// Operands of a product that lie in whole chunks of 16 bytes, eight bf16 or four f32: what both tiles (tile_mma.h, tile_product.h) read fastest.
// Here because a thread that walks over its chunks by additions and comparisons leaves the tile nearly all of its instructions for products.
//
// A source of chunks says
//   kElements    of a chunk
//   kAlongDepth  whether a chunk is neighbours along the depth of one index, or neighbouring indices of one depth
//   kNeedsRegisters  as of other sources (tile_source.h)
//   Walk         how a thread goes over the chunks that it brings. Of each slab these are kTurns, kStep rows of the slab apart (indices,
//                or depths), and the next slab's are kSlab further along the depth. What divides is done once, when it is made
//                for the thread's first chunk; `end` is the depth that the block sums up to.
//     take(turn)    the chunk of that turn, to be called for turns 0, 1, ... in order; all of it is inside, or none
//     next_slab(waiting)   after the turns of a slab; so many slabs before it wait for their conversion
//
// A source that does not bring what is multiplied has a conversion: kConverts is true. Its walk says, for the tile of f32,
//     norm()        what is done to the chunks that take gives until the next slab
// and for tensor cores, whose slabs wait in shared memory, for each slab in order,
//     conversion()  what is done to the next slab's chunks: apply(words), to eight bf16 or four f32
//     is_inside(turn)   whether this thread's chunk of it is inside: what is not stays zero
//     end_conversion()
#pragma once

#include "cuda/pack.h"

namespace reprise {

template <typename Stored>
struct Chunk {
  const Stored* from;
  bool inside;
};

// x[index][depth], where rows are whole chunks.
template <typename Stored>
struct RowChunks {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = true, kConverts = false;
  const Stored* x;
  uint64_t count, stride;

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const RowChunks& source, uint64_t index, uint64_t depth, uint64_t end)
        : next_(source.x + index * source.stride + depth),
          step_(kStep * source.stride),
          left_(static_cast<int64_t>(end - depth)) {
      for (uint32_t turn = 0; turn < kTurns; ++turn) rows_ |= uint32_t{index + turn * kStep < source.count} << turn;
      if (kTurns == 1 && rows_ == 0) left_ = 0;  // then nothing else must be known of it
    }
    __device__ Chunk<Stored> take(uint32_t turn) const {
      return {next_ + turn * step_, left_ > 0 && (kTurns == 1 || (rows_ >> turn & 1u) != 0)};
    }
    __device__ void next_slab(uint32_t) {
      next_ += kSlab;
      left_ -= kSlab;
    }

   private:
    const Stored* next_;
    uint64_t step_;
    int64_t left_;
    uint32_t rows_ = 0;
  };
};

// x[depth][index].
template <typename Stored>
struct ColumnChunks {
  static constexpr uint32_t kElements = kPackWidth<Stored>;
  static constexpr bool kAlongDepth = false, kConverts = false;
  const Stored* x;
  uint64_t count, stride;

  template <uint32_t kTurns, uint32_t kStep, uint32_t kSlab>
  class Walk {
   public:
    __device__ Walk(const ColumnChunks& source, uint64_t index, uint64_t depth, uint64_t end)
        : next_(source.x + depth * source.stride + index),
          stride_(source.stride),
          left_(index < source.count ? static_cast<int64_t>(end - depth) : 0) {}
    __device__ Chunk<Stored> take(uint32_t turn) {
      const Chunk<Stored> chunk = {next_, left_ > turn * kStep};
      next_ += kStep * stride_;
      return chunk;
    }
    __device__ void next_slab(uint32_t) { left_ -= kSlab; }

   private:
    static_assert(kTurns * kStep == kSlab);
    const Stored* next_;
    uint64_t stride_;
    int64_t left_;
  };
};

}  // namespace reprise
