// See metrics.h.
#include "tools/run/inference/metrics.h"

#include <cmath>
#include <cstdio>
#include <limits>

namespace reprise {
namespace {

using Target = ModelDescription::Target;

constexpr uint32_t kFew = 5;

double share_of(double part, double whole) {
  return whole == 0 ? std::numeric_limits<double>::quiet_NaN() : part / whole;
}

double mean_of(const std::vector<double>& numbers) {
  double sum = 0, count = 0;
  for (const double number : numbers) {
    if (!std::isnan(number)) sum += number, count += 1;
  }
  return share_of(sum, count);
}

}  // namespace

void Metrics::add(const NetOutputs& outputs) {
  if (model_.has_pairs()) return pairs_.add(outputs);
  if (tallies_.empty()) tallies_.resize(outputs.columns);
  if (model_.target == Target::kNumbers) return add_numbers(outputs);
  if (model_.target == Target::kLabels) return add_labels(outputs);
  add_classes(outputs);
}

void Metrics::add_numbers(const NetOutputs& outputs) {
  for (size_t i = 0; i < outputs.numbers.size(); ++i) {
    const auto distance = static_cast<double>(outputs.numbers[i]) - static_cast<double>(outputs.targets()[i]);
    if (!is_labelled(outputs.stored, outputs.targets(), i)) continue;
    distance_ += std::abs(distance), square_ += distance * distance, count_ += 1;
  }
}

void Metrics::add_labels(const NetOutputs& outputs) {
  for (size_t i = 0; i < outputs.numbers.size(); ++i) {
    if (!is_labelled(outputs.stored, outputs.targets(), i)) continue;
    Tally& tally = tallies_[i % outputs.columns];
    const bool said = outputs.numbers[i] > 0, is = outputs.targets()[i] > 0.5f;
    tally.both += said && is, tally.said += said, tally.is += is, tally.right += said == is, tally.judged += 1;
  }
}

void Metrics::add_classes(const NetOutputs& outputs) {
  for (uint64_t row = 0; row < outputs.rows; ++row) {
    const int32_t label = outputs.label(row);
    if (label < 0 || static_cast<uint32_t>(label) >= outputs.columns) continue;
    const float* numbers = outputs.numbers.data() + row * outputs.columns;
    const uint32_t said = outputs.likeliest(row), is = static_cast<uint32_t>(label);
    tallies_[said].said += 1, tallies_[is].is += 1, tallies_[is].both += said == is;
    uint32_t larger = 0;
    for (uint32_t c = 0; c < outputs.columns; ++c)
      larger += numbers[c] > numbers[is] || (numbers[c] == numbers[is] && c < is);
    among_five_ += larger < kFew, count_ += 1;
  }
}

std::vector<Metric> Metrics::recalls() const {
  static constexpr std::pair<const char*, uint64_t> kRecalls[] = {{"recall1", 1}, {"recall5", 5}, {"recall10", 10}};
  std::vector<uint64_t> maximum;
  for (const auto& [name, count] : kRecalls) {
    if (pairs_.pairs() > count) maximum.push_back(count);
  }
  std::vector<Metric> metrics;
  for (const double recall : pairs_.recalls(maximum)) metrics.push_back({kRecalls[metrics.size()].first, recall});
  return metrics;
}

std::vector<Metric> Metrics::values() const {
  std::vector<double> each, accuracies;
  for (const Tally& tally : tallies_) {
    each.push_back(model_.target == Target::kLabels ? share_of(2 * tally.both, tally.said + tally.is)
                                                    : share_of(tally.both, tally.said + tally.is - tally.both));
    accuracies.push_back(share_of(tally.right, tally.judged));
  }
  switch (model_.target) {
    case Target::kNumbers:
      return {{"mae", share_of(distance_, count_)}, {"rmse", std::sqrt(share_of(square_, count_))}};
    case Target::kLabels: return {{"f1", mean_of(each), accuracies, "label_accuracies"}};
    case Target::kClassMap: return {{"miou", mean_of(each), each, "ious"}};
    case Target::kPair:
    case Target::kAlike: return recalls();
    case Target::kSimilarity:
      return {{"correlation", pairs_.correlation()},
              {"mae", pairs_.mean_distance()},
              {"rmse", pairs_.root_mean_square()}};
    case Target::kClass: break;
  }
  if (model_.classes <= static_cast<int>(kFew)) return {};
  return {{"top5", share_of(among_five_, count_)}};
}

std::string metrics_text(const std::vector<Metric>& metrics) {
  std::string text;
  for (const Metric& metric : metrics) {
    char number[48];
    std::snprintf(number, sizeof number, "%.4g", metric.value);
    text += std::string(", ") + metric.name + " " + number;
  }
  return text;
}

}  // namespace reprise
