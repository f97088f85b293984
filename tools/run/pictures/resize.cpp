// Resizes an image of bytes: one pass along the rows, one along the columns. This is done here
// because stb_image only decodes.
#include "tools/run/pictures/resize.h"

#include <cmath>

namespace reprise {
namespace {

// The source pixels, along one side, from which one target pixel is computed, and their weights.
struct ResizeTaps {
  int first = 0;               // source pixel that weights[0] belongs to
  std::vector<float> weights;  // the sum of the weights is 1
};

std::vector<ResizeTaps> taps_along(int from, int to) {
  const double scale = double(from) / to, radius = std::max(scale, 1.0);
  std::vector<ResizeTaps> all(static_cast<size_t>(to));
  for (int i = 0; i < to; ++i) {
    ResizeTaps& taps = all[static_cast<size_t>(i)];
    const double center = (i + 0.5) * scale;
    taps.first = std::max(0, static_cast<int>(std::floor(center - radius)));
    const int last = std::min(from - 1, static_cast<int>(std::ceil(center + radius)));
    double sum = 0;
    for (int s = taps.first; s <= last; ++s) {
      const double weight = std::max(0.0, 1 - std::fabs(s + 0.5 - center) / radius);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight = static_cast<float>(weight / sum);
  }
  return all;
}

}  // namespace

void resize_image(const ImageShape& from, const uint8_t* source, const ImageShape& to, uint8_t* target) {
  const size_t channels = static_cast<size_t>(from.channels);
  const size_t from_row = static_cast<size_t>(from.width) * channels, to_row = static_cast<size_t>(to.width) * channels;
  const std::vector<ResizeTaps> columns = taps_along(from.width, to.width), rows = taps_along(from.height, to.height);
  size_t maximum = 0;  // maximum number of source rows for one target row
  for (const ResizeTaps& row : rows) maximum = std::max(maximum, row.weights.size());
  // Ring of rows [maximum, to.width, C]: row y of the source is at y % maximum
  std::vector<float> narrow(maximum * to_row);
  const auto narrow_row = [&](size_t y) { return narrow.data() + y % maximum * to_row; };
  size_t done = 0;  // source rows before this one are in `narrow`, or are not needed
  for (size_t y = 0; y < rows.size(); ++y) {
    const auto first = static_cast<size_t>(rows[y].first);
    for (done = std::max(done, first); done < first + rows[y].weights.size(); ++done) {
      for (size_t x = 0; x < columns.size(); ++x) {
        for (size_t c = 0; c < channels; ++c) {
          float sum = 0;
          for (size_t k = 0; k < columns[x].weights.size(); ++k) {
            sum += columns[x].weights[k] *
                   source[done * from_row + (static_cast<size_t>(columns[x].first) + k) * channels + c];
          }
          narrow_row(done)[x * channels + c] = sum;
        }
      }
    }
    for (size_t i = 0; i < to_row; ++i) {
      float sum = 0;
      for (size_t k = 0; k < rows[y].weights.size(); ++k) sum += rows[y].weights[k] * narrow_row(first + k)[i];
      target[y * to_row + i] = static_cast<uint8_t>(std::lround(std::min(255.0f, std::max(0.0f, sum))));
    }
  }
}

}  // namespace reprise
