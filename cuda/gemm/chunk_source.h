// Operands of a product that consist of whole chunks of 16 bytes: eight bf16 or four f32. Both
// tiles (tile_mma.h, tile_product.h) read such operands fastest. A thread computes the address of
// its next chunk by additions and comparisons, so nearly all of its instructions are left for
// products.
//
// A source of chunks has
//   kElements    elements of a chunk
//   kAlongDepth  true if a chunk is consecutive depths of one index; false if it is consecutive
//                indices of one depth
//   kNeedsRegisters  as in other sources (tile_source.h)
//   Walk         an iterator over the chunks that one thread loads: kTurns in each slab. They are
//                kStep rows of the slab (indices or depths) apart. The chunks of the next slab are
//                kSlab depths further. The constructor gets the index and the depth of the thread's
//                first chunk, and does all divisions. `end` is the depth at which the block's sum
//                ends.
//     take(turn)    returns the chunk of `turn`; called for turns 0, 1, ... in order. A chunk is
//                   either completely inside the operand or completely outside.
//     next_slab(waiting)   called after the turns of a slab; `waiting` is the number of earlier
//                          slabs that are loaded and not yet converted
//
// A source that must convert its stored numbers before they are multiplied has kConverts = true.
// For the f32 tile, its Walk also has
//     norm()        returns the conversion of the chunks that take() returns until the next slab
// For tensor cores, slabs wait in shared memory before they are converted. There, Walk also has
// these functions, which are called for each slab in order:
//     conversion()  returns the conversion of the next slab's chunks: apply(words) converts eight
//                   bf16 or four f32
//     is_inside(turn)   true if this thread's chunk of `turn` is inside the operand; a chunk that
//                       is outside is not converted and stays zero
//     end_conversion()  called after the slab is converted
#pragma once

#include "cuda/gemm/pack.h"

namespace reprise {

template <typename Stored>
struct Chunk {
  const Stored* from;
  bool inside;
};

// The operand x[index][depth]; rows are whole chunks.
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
      if (kTurns == 1 && rows_ == 0) left_ = 0;  // so that take() need only test left_
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

// The operand x[depth][index]; rows are whole chunks.
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
