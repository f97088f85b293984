// A source of images of uniform noise with one label each, for networks without a recipe. The
// images are the same in every step, so that a small network can memorise them.
#pragma once

#include <random>
#include <vector>

#include "lib/batch.h"
#include "lib/bf16.h"

namespace reprise {

template <uint32_t kSamples, uint32_t kNumbers, int32_t kClasses>
BatchSource random_images() {
  return {nullptr, [](void*, uint64_t, uint32_t, BatchSink& sink) {
            std::mt19937 random(3);
            std::uniform_real_distribution<float> uniform(-1, 1);
            std::vector<float> pixels(size_t{kSamples} * kNumbers);
            for (float& pixel : pixels) pixel = uniform(random);
            const std::vector<Bf16> rounded(pixels.begin(), pixels.end());
            int32_t labels[kSamples];
            for (uint32_t n = 0; n < kSamples; ++n) labels[n] = static_cast<int32_t>(2 + 2 * n + n / 2) % kClasses;
            const bool is_f32 = sink.input_bytes() == pixels.size() * sizeof(float);
            sink.add(is_f32 ? static_cast<const void*>(pixels.data()) : rounded.data(), sink.input_bytes(), labels,
                     kSamples);
            return ok_status();
          }};
}

}  // namespace reprise
