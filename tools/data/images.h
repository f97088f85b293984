// What all image sets share: the shape, the walk over a micro-batch, normalisation and augmentation.
// Here because idx, folders, tensors and synthetic images differ only in where a pixel comes from.
// It must not know file formats.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "lib/bf16.h"
#include "tools/data/dataset.h"
#include "tools/data/sample_order.h"

namespace reprise {

struct ImageShape {
  int height, width, channels;
  uint64_t values() const {
    return static_cast<uint64_t>(height) * static_cast<uint64_t>(width) * static_cast<uint64_t>(channels);
  }
};

ImageShape image_shape(const Recipe& recipe);
int class_count(const Recipe& recipe);

// Byte of a pixel -> (byte / 255 - mean) / std of its channel, in f32 as torchvision computes it.
class PixelTable {
 public:
  explicit PixelTable(const Recipe& recipe);
  float operator()(int channel, uint8_t byte) const { return values_[static_cast<size_t>(channel)][byte]; }

 private:
  std::vector<std::array<float, 256>> values_;
};

// Writes one image, [H, W, C], through its augmentation. pixel(row, column, channel) gives a value inside the image,
// padding(channel) the value outside of it.
template <typename Stored, typename Pixel, typename Padding>
void write_image(const ImageShape& shape, const Augmentation& augmentation, const Pixel& pixel, const Padding& padding,
                 Stored* output) {
  for (int y = 0; y < shape.height; ++y) {
    const int row = y + augmentation.rows_down;
    for (int x = 0; x < shape.width; ++x) {
      const int column = (augmentation.flip ? shape.width - 1 - x : x) + augmentation.columns_right;
      const bool inside = row >= 0 && row < shape.height && column >= 0 && column < shape.width;
      for (int c = 0; c < shape.channels; ++c) *output++ = inside ? pixel(row, column, c) : padding(c);
    }
  }
}

// fill_images() below, for images stored in one way.
template <typename Stored, typename WriteSample>
uint64_t fill_stored_images(const Recipe& recipe, Split split, const SampleOrder& order, uint64_t step, uint64_t micro,
                            Stored* image, int32_t* labels, const WriteSample& write_sample) {
  const uint64_t batch = static_cast<uint64_t>(recipe.batch), values = image_shape(recipe).values();
  uint64_t real = 0;
  for (uint64_t b = 0; b < batch; ++b, image += values) {
    const std::optional<uint64_t> sample = order.sample_at(step, micro, b);
    if (!sample) {
      std::fill(image, image + values, Stored(0.0f));
      labels[b] = kIgnoredLabel;
      continue;
    }
    const bool augmented = split == Split::kTraining;
    labels[b] = write_sample(
        *sample, augmented ? augmentation_at(recipe.data, recipe.seed, step, micro, b) : Augmentation{}, image);
    ++real;
  }
  return real;
}

// Walks a micro-batch: write_sample(sample, augmentation, image) writes one sample, of float or Bf16 as the recipe's dtype says, and
// returns its label. Returns the number of real samples.
template <typename WriteSample>
uint64_t fill_images(const Recipe& recipe, Split split, const SampleOrder& order, uint64_t step, uint64_t micro,
                     void* input, int32_t* labels, const WriteSample& write_sample) {
  if (recipe.dtype == Recipe::Dtype::kBf16) {
    return fill_stored_images(recipe, split, order, step, micro, static_cast<Bf16*>(input), labels, write_sample);
  }
  return fill_stored_images(recipe, split, order, step, micro, static_cast<float*>(input), labels, write_sample);
}

// UserError naming the file, the sample and the range, where the label is no class of the model.
void require_label(const std::string& file, uint64_t sample, int64_t label, int classes);

}  // namespace reprise
