// Reads and writes numbers of State that are not all f32 (lib/state_format.h). A block of threads
// processes one block of numbers, each thread one element. All updates use this file. The
// counterpart of lib/cpu/state_blocks.h.
#pragma once

#include "cuda/grid.h"
#include "cuda/reduce.h"
#include "lib/plan.h"
#include "lib/state_format.h"

namespace reprise {

static_assert(kStateBlock == kBlockThreads && kStateDraws == kWarpLanes);

// The numbers that the 8-bit codes represent, with and without a sign. The host's compiler computes
// the tables, and each launch passes them as a parameter.
struct DynamicMaps {
  float with_sign[kDynamicCodes], without[kDynamicCodes];
};
constexpr DynamicMaps make_dynamic_maps() {
  DynamicMaps maps = {};
  for (uint32_t c = 0; c < kDynamicCodes; ++c)
    maps.with_sign[c] = dynamic_number(c, true), maps.without[c] = dynamic_number(c, false);
  return maps;
}
inline constexpr DynamicMaps kDynamicMaps = make_dynamic_maps();

// Layout of the shared memory, as offsets in floats: both maps, the largest number of each warp,
// and the random words of three parts (RoundedPart).
constexpr uint32_t kStateWarps = kStateBlock / kWarpLanes, kStateParts = 3;
constexpr uint32_t kMapsAt = 0, kLargestAt = 2 * kDynamicCodes, kDrawsAt = kLargestAt + kStateWarps,
                   kStateShared = kDrawsAt + kStateParts * 4 * kStateDraws;

// Returns the address of numbers that are stored as f32; null if there are none.
__device__ inline float* plain_numbers(const StateNumbers& numbers) { return static_cast<float*>(numbers.data); }

// Reads and writes blocks of numbers. `shared` has kStateShared floats. All threads of the block
// must make every call.
template <typename Shared>
class StateBlocks {
 public:
  __device__ StateBlocks(Shared& shared, const DynamicMaps& maps, const StateRounding& rounding)
      : shared_(shared), rounding_(rounding) {
    shared_[kMapsAt + threadIdx.x] = maps.with_sign[threadIdx.x];
    shared_[kMapsAt + kDynamicCodes + threadIdx.x] = maps.without[threadIdx.x];
  }

  // Prepares for a block of numbers; must be called before the block's first read or write. Warp k
  // draws the random words of part k if bit k of `drawn` is set.
  __device__ void start(uint64_t block, uint32_t drawn) {
    __syncthreads();
    if (warp_index() >= kStateParts || (drawn >> warp_index() & 1u) == 0) return;
    const PhiloxBlock draw = state_draw(rounding_, static_cast<RoundedPart>(warp_index()), block, lane_index());
    REPRISE_UNROLL
    for (uint32_t w = 0; w < 4; ++w)
      shared_[draw_at(warp_index(), w, lane_index())] = std::bit_cast<float>(draw.word[w]);
  }
  // Waits until all threads see what start() has written.
  __device__ void settle() { __syncthreads(); }

  __device__ float read(const StateNumbers& numbers, uint64_t block, bool is_there) const {
    if (!is_there) return 0;
    const uint64_t i = block * kStateBlock + threadIdx.x;
    if (numbers.type == DType::kBf16) return static_cast<const Bf16*>(numbers.data)[i];
    if (numbers.type == DType::kF32) return plain_numbers(numbers)[i];
    const DynamicBlock& from = static_cast<const DynamicBlock*>(numbers.data)[block];
    return shared_[map_of(numbers.type) + from.codes[threadIdx.x]] * from.largest;
  }
  __device__ void write(const StateNumbers& numbers, RoundedPart part, uint64_t block, bool is_there, float number) {
    const uint64_t i = block * kStateBlock + threadIdx.x;
    if (has_dynamic_codes(numbers.type)) return write_code(numbers, block, is_there ? number : 0);
    if (!is_there) return;
    if (numbers.type == DType::kBf16) {
      const uint32_t half = warp_index();  // thread t uses half t / 32 of draw t % 32 (state_format.h)
      const uint32_t word =
          std::bit_cast<uint32_t>(float{shared_[draw_at(static_cast<uint32_t>(part), half / 2, lane_index())]});
      static_cast<Bf16*>(numbers.data)[i].bits = round_randomly(number, half_of_word(word, half));
    } else {
      plain_numbers(numbers)[i] = number;
    }
  }

 private:
  __device__ static uint32_t draw_at(uint32_t part, uint32_t word, uint32_t draw) {
    return kDrawsAt + (part * 4 + word) * kStateDraws + draw;
  }
  __device__ static uint32_t map_of(DType type) { return type == DType::kDynamic8 ? kMapsAt : kMapsAt + kDynamicCodes; }

  __device__ void write_code(const StateNumbers& numbers, uint64_t block, float number) {
    const bool has_sign = numbers.type == DType::kDynamic8;
    const float own = warp_max(number < 0 ? -number : number);
    if (lane_index() == 0) shared_[kLargestAt + warp_index()] = own;
    __syncthreads();
    float largest = 0;
    for (uint32_t w = 0; w < kStateWarps; ++w)
      largest = shared_[kLargestAt + w] > largest ? shared_[kLargestAt + w] : largest;
    const float share = number / (largest > 0 ? largest : 1.0f);
    const uint32_t map = map_of(numbers.type);
    uint32_t code = 0;
    for (uint32_t half = kDynamicCodes / 2; half > 0; half /= 2) {
      const uint32_t below = map + code + half - 1;
      code += dynamic_middle(shared_[below], shared_[below + 1]) < share ? half : 0;
    }
    DynamicBlock& to = static_cast<DynamicBlock*>(numbers.data)[block];
    to.codes[threadIdx.x] = static_cast<uint8_t>(has_sign ? keep_sign(code, share) : code);
    if (threadIdx.x == 0) to.largest = largest;
    __syncthreads();
  }

  Shared& shared_;
  const StateRounding rounding_;
};

// Returns the bit of `part` for start(): set if the numbers are bf16, because bf16 is rounded at
// random.
__device__ inline uint32_t drawn_bit(const StateNumbers& numbers, RoundedPart part) {
  return uint32_t{numbers.type == DType::kBf16} << static_cast<uint32_t>(part);
}
__device__ inline StateRounding rounding_of(const StepScalars& scalars, uint32_t stream) {
  return {.seed = scalars.seed, .step = scalars.step, .stream = stream};
}

}  // namespace reprise
