// What all image sets share: the shape, the walk over a micro-batch, normalisation and augmentation.
// Here because idx, folders, tensors and synthetic images differ only in where a pixel comes from.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
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

// Walks micro-batches through a buffer of one image, stored as the recipe's dtype says.
class ImageWalk {
 public:
  ImageWalk(const Recipe& recipe, Split split, uint64_t size)
      : recipe_(recipe), split_(split), order_(recipe, split, size) {
    const uint64_t values = image_shape(recipe).values();
    if (recipe.dtype == Recipe::Dtype::kBf16) {
      narrow_.resize(values);
    } else {
      wide_.resize(values);
    }
  }

  // write_sample(sample, augmentation, image) writes one sample, of float or Bf16, and returns its label. Returns the number of real
  // samples.
  template <typename WriteSample>
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink, const WriteSample& write_sample) {
    return narrow_.empty() ? fill_from(wide_, step, micro, sink, write_sample) : fill_from(narrow_, step, micro, sink, write_sample);
  }

  std::optional<uint64_t> sample_at(uint64_t step, uint64_t micro, uint64_t b) const { return order_.sample_at(step, micro, b); }

 private:
  template <typename Stored, typename WriteSample>
  uint64_t fill_from(std::vector<Stored>& image, uint64_t step, uint64_t micro, BatchSink& sink, const WriteSample& write_sample) {
    uint64_t real = 0;
    for (uint64_t b = 0; b < static_cast<uint64_t>(recipe_.batch); ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      int32_t label = kIgnoredLabel;
      if (sample) {
        const bool augmented = split_ == Split::kTraining;
        label = write_sample(*sample, augmented ? augmentation_at(recipe_.data, recipe_.seed, step, micro, b) : Augmentation{}, image.data());
        ++real;
      } else {
        std::fill(image.begin(), image.end(), Stored(0.0f));
      }
      sink.add(image.data(), image.size() * sizeof(Stored), &label, 1);
    }
    return real;
  }

  Recipe recipe_;
  Split split_;
  SampleOrder order_;
  std::vector<float> wide_;   // one of the two
  std::vector<Bf16> narrow_;
};

// UserError naming the file, the sample and the range, where the label is no class of the model.
void require_label(const std::string& file, uint64_t sample, int64_t label, int classes);

}  // namespace reprise
