// Code that all image sets share: the shape, the loop over a micro-batch, normalisation and
// augmentation. The kinds of image sets (idx, folders, tensors, synthetic) differ only in the
// source of a pixel.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <vector>

#include "lib/bf16.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/sample_order.h"

namespace reprise {

struct ImageShape {
  int height, width, channels;
  uint64_t values() const {
    return static_cast<uint64_t>(height) * static_cast<uint64_t>(width) * static_cast<uint64_t>(channels);
  }
};

ImageShape image_shape(const Recipe& recipe);
int class_count(const Recipe& recipe);

// The form of one sample's labels. The shape is [height, width, number of labels of a pixel] for
// label maps, otherwise [1, 1, number of labels].
struct LabelForm {
  DType stored;
  ImageShape shape;
  uint64_t count() const { return shape.values(); }
  uint64_t bytes() const { return stored_bytes(stored, count()); }
  // Returns how many of a sample's labels are not ignored (is_labelled); weight()
  // returns the sum of their class weights.
  uint64_t labelled(const void* labels) const;
  double weight(const void* labels, const std::vector<double>& class_weights) const;
};
LabelForm label_form(const Recipe& recipe);
// The range of a number that the net learns; `words` describes the range in messages.
struct TargetRange {
  float low, high;
  const char* words;
  bool has(float number) const { return number >= low && number <= high; }
};
TargetRange target_range(const Recipe& recipe);
// Returns the labels of a sample without labels: all are ignored.
std::vector<unsigned char> labels_of_none(const LabelForm& form);

// Returns the weight of a label, rounded to f32 as in the plan's table. It is 0 for kIgnoredLabel,
// and 1 if classes have no weights.
inline double class_weight(const std::vector<double>& weights, int32_t label) {
  if (label == kIgnoredLabel) return 0;
  return weights.empty() ? 1 : static_cast<double>(static_cast<float>(weights[static_cast<size_t>(label)]));
}

// A table for each channel: byte of a pixel -> (byte / 255 - mean) / std, computed in f32 like
// torchvision.
class PixelTable {
 public:
  explicit PixelTable(const Recipe& recipe);
  float operator()(int channel, uint8_t byte) const { return values_[static_cast<size_t>(channel)][byte]; }

 private:
  std::vector<std::array<float, 256>> values_;  // [channel][byte]
};

// Writes one image, [H, W, C], and applies its augmentation. pixel(row, column, channel) returns a
// value of the image; padding(channel) returns the value outside the image.
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

// Gives the micro-batches of an image set. Its buffer has the images of one sample in the recipe's
// "dtype".
class ImageWalk {
 public:
  ImageWalk(const Recipe& recipe, Split split, uint64_t size)
      : recipe_(recipe),
        split_(split),
        inputs_(static_cast<uint64_t>(describe_model(recipe.model).inputs_of_sample())),
        order_(recipe, split, size),
        form_(label_form(recipe)),
        none_(labels_of_none(form_)),
        labels_(form_.bytes()) {
    const uint64_t values = inputs_ * image_shape(recipe).values();
    if (recipe.dtype == Recipe::Dtype::kBf16) {
      narrow_.resize(values);
    } else {
      wide_.resize(values);
    }
  }

  // Gives a micro-batch to `sink`; returns the number of real samples. Calls write_image_of(n,
  // augmentation, image), which writes image n, as float or Bf16. write_image_of returns the label
  // of the sample: a class as int32_t, or the address of labels (null if there are none). Image n
  // is sample n. For pairs, sample n has the images 2n and 2n + 1; each is augmented separately,
  // and the call for image 2n returns the labels. If an image is flipped, its label map is flipped,
  // too.
  template <typename WriteImage>
  uint64_t fill(uint64_t step, uint64_t micro, BatchSink& sink, const WriteImage& write_image_of) {
    return narrow_.empty() ? fill_from(wide_, step, micro, sink, write_image_of)
                           : fill_from(narrow_, step, micro, sink, write_image_of);
  }

  const SampleOrder& order() const { return order_; }

  const void* none() const { return none_.data(); }  // returns the labels of a sample without labels

 private:
  template <typename Stored, typename WriteImage>
  uint64_t fill_from(std::vector<Stored>& images, uint64_t step, uint64_t micro, BatchSink& sink,
                     const WriteImage& write_image_of) {
    uint64_t real = 0;
    for (uint64_t b = 0; b < static_cast<uint64_t>(recipe_.batch); ++b) {
      const std::optional<uint64_t> sample = order_.sample_at(step, micro, b);
      const void* labels = none_.data();
      int32_t label = kIgnoredLabel;
      for (uint64_t i = 0; sample && i < inputs_; ++i) {
        const Augmentation augmentation =
            split_ == Split::kTraining ? augmentation_at(recipe_.data, recipe_.seed, step, micro, b * inputs_ + i)
                                       : Augmentation{};
        Stored* image = images.data() + i * (images.size() / inputs_);
        if constexpr (std::is_same_v<decltype(write_image_of(*sample, augmentation, image)), int32_t>) {
          label = write_image_of(*sample * inputs_ + i, augmentation, image);
          labels = &label;
        } else if (const void* written = write_image_of(*sample * inputs_ + i, augmentation, image);
                   written != nullptr && i == 0) {
          labels = augmentation.flip ? flipped(written) : written;
        }
      }
      if (!sample) std::fill(images.begin(), images.end(), Stored(0.0f));
      real += sample.has_value();
      sink.add(images.data(), images.size() * sizeof(Stored), labels, form_.count());
    }
    return real;
  }

  // Returns the label map flipped left to right, in labels_.
  const void* flipped(const void* labels);

  Recipe recipe_;
  Split split_;
  uint64_t inputs_;  // number of images in a sample
  SampleOrder order_;
  LabelForm form_;
  // none_: labels that are all ignored; labels_: a flipped label map of one sample
  std::vector<unsigned char> none_, labels_;
  std::vector<float> wide_;   // images of one sample; empty if the dtype is bf16
  std::vector<Bf16> narrow_;  // images of one sample; empty unless the dtype is bf16
};

// Adds a warning if the augmentation of the training moves the contents of pictures while the
// learned numbers in `columns` stay unchanged.
void warn_of_places(const Recipe& recipe, Split split, const std::vector<std::string>& columns,
                    std::vector<std::string>& warnings);

// Throws UserError with the file, the sample and the range if the label is not a class of the
// model.
void require_label(const std::string& file, uint64_t sample, int64_t label, int classes);

}  // namespace reprise
