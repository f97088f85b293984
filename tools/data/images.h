// What all image sets share: the shape, the walk over a micro-batch, normalisation and augmentation.
// Here because idx, folders, tensors and synthetic images differ only in where a pixel comes from.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
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

// The labels of one sample: how they are stored, and how many, of maps [height, width, of each place], else [1, 1, count].
struct LabelForm {
  DType stored;
  ImageShape shape;
  uint64_t count() const { return shape.values(); }
  uint64_t bytes() const { return stored_bytes(stored, count()); }
  // How many of a sample's are labels (is_labelled), and what they count as by their classes' weights.
  uint64_t labelled(const void* labels) const;
  double weight(const void* labels, const std::vector<double>& class_weights) const;
};
LabelForm label_form(const Recipe& recipe);
// What a number that is learned may be, and that in words.
struct TargetRange {
  float low, high;
  const char* words;
  bool has(float number) const { return number >= low && number <= high; }
};
TargetRange target_range(const Recipe& recipe);
// Of a sample without any.
std::vector<unsigned char> labels_of_none(const LabelForm& form);

// What a label counts, in the bits that the plan's table has.
inline double class_weight(const std::vector<double>& weights, int32_t label) {
  if (label == kIgnoredLabel) return 0;
  return weights.empty() ? 1 : static_cast<double>(static_cast<float>(weights[static_cast<size_t>(label)]));
}

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

// Walks micro-batches through a buffer of one sample's images, stored as the recipe's dtype says.
class ImageWalk {
 public:
  ImageWalk(const Recipe& recipe, Split split, uint64_t size)
      : recipe_(recipe), split_(split), inputs_(static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample())), order_(recipe, split, size),
        form_(label_form(recipe)), none_(labels_of_none(form_)), labels_(form_.bytes()) {
    const uint64_t values = inputs_ * image_shape(recipe).values();
    if (recipe.dtype == Recipe::Dtype::kBf16) {
      narrow_.resize(values);
    } else {
      wide_.resize(values);
    }
  }

  // write_image_of(n, augmentation, image) writes image n, of float or Bf16, and returns the label of its sample: a class; or, whatever its labels are,
  // where they lie, and of none null. Image n is sample n; of pairs, sample n is the images 2n and 2n + 1, each augmented by itself, and the first
  // says its label. Maps are turned as their image is. Returns the number of real samples.
  template <typename WriteImage>
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink, const WriteImage& write_image_of) {
    return narrow_.empty() ? fill_from(wide_, step, micro, sink, write_image_of) : fill_from(narrow_, step, micro, sink, write_image_of);
  }

  const SampleOrder& order() const { return order_; }

  const void* none() const { return none_.data(); }  // the labels of a sample without any

 private:
  template <typename Stored, typename WriteImage>
  uint64_t fill_from(std::vector<Stored>& images, uint64_t step, uint64_t micro, BatchSink& sink, const WriteImage& write_image_of) {
    uint64_t real = 0;
    for (uint64_t b = 0; b < static_cast<uint64_t>(recipe_.batch); ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      const void* labels = none_.data();
      int32_t label = kIgnoredLabel;
      for (uint64_t i = 0; sample && i < inputs_; ++i) {
        const Augmentation augmentation = split_ == Split::kTraining ? augmentation_at(recipe_.data, recipe_.seed, step, micro, b * inputs_ + i) : Augmentation{};
        Stored* image = images.data() + i * (images.size() / inputs_);
        if constexpr (std::is_same_v<decltype(write_image_of(*sample, augmentation, image)), int32_t>) {
          label = write_image_of(*sample * inputs_ + i, augmentation, image);
          labels = &label;
        } else if (const void* written = write_image_of(*sample * inputs_ + i, augmentation, image); written != nullptr && i == 0) {
          labels = augmentation.flip ? flipped(written) : written;
        }
      }
      if (!sample) std::fill(images.begin(), images.end(), Stored(0.0f));
      real += sample.has_value();
      sink.add(images.data(), images.size() * sizeof(Stored), labels, form_.count());
    }
    return real;
  }

  const void* flipped(const void* labels);

  Recipe recipe_;
  Split split_;
  uint64_t inputs_;  // images of a sample
  SampleOrder order_;
  LabelForm form_;
  std::vector<unsigned char> none_, labels_;  // of a sample without labels; of one that is turned
  std::vector<float> wide_;   // one of the two
  std::vector<Bf16> narrow_;
};

// UserError naming the file, the sample and the range, where the label is no class of the model.
void require_label(const std::string& file, uint64_t sample, int64_t label, int classes);

}  // namespace reprise
