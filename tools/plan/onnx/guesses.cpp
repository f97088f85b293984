// See guesses.h.
#include "tools/plan/onnx/guesses.h"

#include <algorithm>
#include <cmath>

namespace reprise {
namespace {

bool are_all_alike(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](float number) { return number == numbers[0]; });
}

bool are_whole(const std::vector<float>& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](float number) { return number == std::round(number); });
}

// True if every column continues along the rows as a wave, a line or a power does: x[t-1] + x[t+1]
// is a constant times x[t].
bool are_waves(const std::vector<float>& numbers, size_t rows, size_t columns) {
  constexpr size_t kMinRows = 5;
  if (rows < kMinRows) return false;
  bool moves = false;
  for (size_t c = 0; c < columns; ++c) {
    const auto at = [&](size_t t) { return static_cast<double>(numbers[t * columns + c]); };
    size_t largest = 1;
    double scale = 0;
    for (size_t t = 0; t < rows; ++t) {
      scale = std::max(scale, std::abs(at(t)));
      if (t > 0 && t + 1 < rows && std::abs(at(t)) > std::abs(at(largest))) largest = t;
      moves = moves || at(t) != at(0);
    }
    if (at(largest) == 0) continue;
    const double times = (at(largest - 1) + at(largest + 1)) / at(largest);
    for (size_t t = 1; t + 1 < rows; ++t) {
      if (std::abs(at(t - 1) + at(t + 1) - times * at(t)) > 1e-4 * scale) return false;
    }
  }
  return moves;
}

// True if the squares of each row add up to half of its length, as those of sines next to their
// cosines do. Rows of zeros, as a class token has, are skipped. Requires at least four other rows,
// and numbers that are not all whole.
bool are_sines_and_cosines(const std::vector<float>& numbers, size_t rows, size_t columns) {
  if (rows < 4 || columns < 2 || columns % 2 != 0) return false;
  size_t suiting = 0;
  for (size_t t = 0; t < rows; ++t) {
    double squares = 0;
    for (size_t c = 0; c < columns; ++c) squares += std::pow(static_cast<double>(numbers[t * columns + c]), 2);
    if (squares == 0) continue;
    if (std::abs(squares - static_cast<double>(columns) / 2) > 1e-3 * static_cast<double>(columns)) return false;
    ++suiting;
  }
  return suiting >= 4 && !are_whole(numbers);
}

}  // namespace

std::optional<Finding> guess_of_table(const std::vector<float>& numbers, const std::vector<int64_t>& shape) {
  constexpr size_t kMin = 8;
  if (numbers.size() < kMin || are_all_alike(numbers)) return std::nullopt;
  if (are_whole(numbers)) return Finding::kWhole;
  size_t columns = 1, sides = 0;  // the last side above 1, if there are two such sides or more; else 1
  for (const int64_t d : shape) sides += d > 1 ? 1 : 0;
  for (size_t n = shape.size(); n-- > 0 && columns == 1 && sides > 1;) columns = static_cast<size_t>(shape[n]);
  const size_t rows = numbers.size() / columns;
  if (sides > 2) return std::nullopt;
  if (are_waves(numbers, rows, columns) || are_sines_and_cosines(numbers, rows, columns)) return Finding::kWaves;
  return std::nullopt;
}

bool is_fixed_filter(const std::vector<float>& numbers, const std::vector<int64_t>& shape) {
  if (shape.size() < 3 || shape[0] < 1 || numbers.empty()) return false;
  const size_t filters = static_cast<size_t>(shape[0]), each = numbers.size() / filters;
  size_t window = 1;
  for (size_t n = 2; n < shape.size(); ++n) window *= static_cast<size_t>(shape[n]);
  if (window < 2 || numbers.size() < 4) return false;
  const bool is_flat = are_all_alike(numbers);
  if (are_whole(numbers) && !is_flat) return true;
  bool is_one = filters > 1 && !is_flat;
  for (size_t n = each; n < numbers.size() && is_one; ++n) is_one = numbers[n] == numbers[n - each];
  if (is_one) return true;
  if (each != window) return false;
  for (size_t f = 0; f < filters; ++f) {
    double sum = 0;
    for (size_t n = 0; n < window; ++n) {
      sum += static_cast<double>(numbers[f * window + n]);
      if (numbers[f * window + n] != numbers[f * window + window - 1 - n]) return false;
    }
    if (std::abs(sum - 1) > 1e-5) return false;
  }
  return true;
}

}  // namespace reprise
