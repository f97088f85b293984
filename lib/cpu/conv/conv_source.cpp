// See conv_source.h. One loop, built once for each vector level, serves all kernels of a
// convolution.
#include "lib/cpu/conv/conv_source.h"

#include <cstring>
#include <type_traits>

namespace reprise {
namespace {

// Reads kVectors vectors of channels, from channel `at` on, of each of the `count` pixels.
template <bool kNormalises, int kLanes, int kVectors, typename To, typename Stored>
REPRISE_INLINE void read_strip(To* to, uint64_t step, const Stored* const* pixels, uint32_t count,
                               const InputNorm& norm, uint32_t c, uint32_t at) {
  using Vector = typename VectorOf<kLanes>::type;
  [[maybe_unused]] ChannelNorm<kLanes> norms[kVectors];
  if constexpr (kNormalises) {
    for (int j = 0; j < kVectors; ++j) norms[j].read(norm, c + at + static_cast<uint32_t>(j * kLanes));
  }
  to += at;
  for (uint32_t i = 0; i < count; ++i, to += step) {
    if constexpr (!kNormalises && std::is_same_v<To, Stored>) {
      constexpr size_t kBytes = kVectors * kLanes * sizeof(Stored);
      if (pixels[i] != nullptr) std::memcpy(to, pixels[i] + at, kBytes);
      else std::memset(to, 0, kBytes);
      continue;
    }
    Vector x[kVectors] = {};
    if (pixels[i] != nullptr) {
      for (int j = 0; j < kVectors; ++j) {
        read_vector<kLanes>(x[j], pixels[i] + at + j * kLanes);
        if constexpr (!kNormalises) continue;
        norms[j].apply(x[j]);
        cut_negative<kLanes>(x[j]);
      }
    }
    for (int j = 0; j < kVectors; ++j) write_vector<kLanes>(to + j * kLanes, x[j]);
  }
}

template <bool kNormalises, int kLanes, typename To, typename Stored>
REPRISE_INLINE void read_strips(To* to, uint64_t step, const Stored* const* pixels, uint32_t count,
                                const InputNorm& norm, uint32_t c, uint32_t channels) {
  constexpr int kVectors = kLanes == 16 ? 2 : 4;
  uint32_t at = 0;
  for (; at + kVectors * kLanes <= channels; at += kVectors * kLanes)
    read_strip<kNormalises, kLanes, kVectors>(to, step, pixels, count, norm, c, at);
  for (; at + kLanes <= channels; at += kLanes)
    read_strip<kNormalises, kLanes, 1>(to, step, pixels, count, norm, c, at);
  if (at == channels) return;
  // The vector for the last channels overlaps channels that are already read. If there are fewer
  // than kLanes channels, no vector fits, and they are read one by one.
  if (channels >= kLanes)
    return read_strip<kNormalises, kLanes, 1>(to, step, pixels, count, norm, c, channels - kLanes);
  for (; at < channels; ++at) read_strip<kNormalises, 1, 1>(to, step, pixels, count, norm, c, at);
}

template <int kLanes, typename To, typename Stored>
REPRISE_INLINE void read_pixels_body(To* to, uint64_t step, const Stored* const* pixels, uint32_t count,
                                     const InputNorm& norm, uint32_t c, uint32_t channels) {
  if (norm.mean != nullptr) return read_strips<true, kLanes>(to, step, pixels, count, norm, c, channels);
  read_strips<false, kLanes>(to, step, pixels, count, norm, c, channels);
}
REPRISE_LEVELS_OF(REPRISE_LISTED(template <typename To, typename Stored>), read_at_level, read_pixels_body<kLanes>,
                  (To * to, uint64_t step, const Stored* const* pixels, uint32_t count, const InputNorm& norm,
                   uint32_t c, uint32_t channels),
                  (to, step, pixels, count, norm, c, channels))

}  // namespace

template <typename To, typename Stored>
void read_pixels(VectorLevel level, To* to, uint64_t step, const Stored* const* pixels, uint32_t count,
                 const InputNorm& norm, uint32_t c, uint32_t channels) {
  read_at_level(level, to, step, pixels, count, norm, c, channels);
}
template void read_pixels(VectorLevel, float*, uint64_t, const float* const*, uint32_t, const InputNorm&, uint32_t,
                          uint32_t);
template void read_pixels(VectorLevel, float*, uint64_t, const Bf16* const*, uint32_t, const InputNorm&, uint32_t,
                          uint32_t);
template void read_pixels(VectorLevel, Bf16*, uint64_t, const Bf16* const*, uint32_t, const InputNorm&, uint32_t,
                          uint32_t);

}  // namespace reprise
