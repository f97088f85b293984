// See generation.h.
#include "tools/run/inference/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "lib/rng.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/long_work.h"

namespace reprise {
namespace {

// Makes these random numbers independent of the random numbers of the training
constexpr uint64_t kGenerationKey = 0x67656e6572617465u;

void require(const Status& status) {
  if (!status.ok()) throw UserError(std::string("generating failed: ") + status.message);
}

int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int32_t draw(std::vector<float>& logits, const GenerationOptions& options, uint64_t drawn) {
  if (options.temperature == 0) return likeliest(logits);
  keep_likeliest(logits, options);
  const double maximum = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  const auto weight = [&](float logit) {
    return std::exp((static_cast<double>(logit) - maximum) / options.temperature);
  };
  double sum = 0;
  for (const float logit : logits) sum += weight(logit);
  double u = sum * (philox(options.seed ^ kGenerationKey, 0, drawn).word[0] + 0.5) / 4294967296.0;
  for (size_t v = 0; v < logits.size(); ++v) {
    const double w = weight(logits[v]);
    if (u < w) return static_cast<int32_t>(v);
    u -= w;
  }
  return likeliest(logits);
}

}  // namespace

GenerationLimits require_generation(const Plan& plan) {
  const GenerationLimits limits = generation_limits(plan);
  if (limits.positions == 0)
    throw UserError(std::string(plan.name) +
                    ": the plan has no program that generates: its model has learned positions or attention that is "
                    "not causal, or its arena no room for the caches");
  return limits;
}

void keep_likeliest(std::vector<float>& logits, const GenerationOptions& options) {
  if (options.top_k == 0 && options.top_p >= 1) return;
  const auto is_less_likely = [&](uint32_t a, uint32_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::vector<uint32_t> heap(logits.size());
  std::iota(heap.begin(), heap.end(), 0u);
  std::make_heap(heap.begin(), heap.end(), is_less_likely);
  const size_t maximum = options.top_k == 0 ? logits.size() : std::min<size_t>(options.top_k, logits.size());
  const auto take = [&](size_t taken) {
    std::pop_heap(heap.begin(), heap.end() - static_cast<ptrdiff_t>(taken), is_less_likely);
    return heap[heap.size() - 1 - taken];
  };
  const double top = static_cast<double>(logits[heap.front()]);
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - top) / options.temperature); };
  double all = 0, kept = 0;  // sums over the `maximum` likeliest tokens
  if (maximum == logits.size()) {
    for (const float logit : logits) all += weight(logit);
  }
  std::vector<float> likely(logits.size(), -std::numeric_limits<float>::infinity());
  std::vector<uint32_t> ids;
  // With top_k, top_p is a share of the sum over the top_k tokens. This sum is known only after all
  // of them have been taken.
  for (size_t taken = 0; taken < maximum && (maximum < logits.size() || taken == 0 || kept < options.top_p * all);
       ++taken) {
    ids.push_back(take(taken));
    kept += weight(logits[ids.back()]);
  }
  if (maximum < logits.size()) all = kept;
  kept = 0;
  for (size_t i = 0; i < ids.size() && (i == 0 || kept < options.top_p * all); ++i) {
    likely[ids[i]] = logits[ids[i]];
    kept += weight(logits[ids[i]]);
  }
  logits.swap(likely);
}

std::vector<int32_t> generate_tokens(Trainer& trainer, const std::vector<int32_t>& prompt,
                                     const GenerationOptions& options, const std::function<bool(int32_t)>& see,
                                     uint64_t known) {
  const GenerationLimits limits = require_generation(*trainer.plan);
  if (prompt.size() >= limits.positions) {
    throw UserError("the prompt has " + std::to_string(prompt.size()) + " tokens; the plan's caches have room for " +
                    std::to_string(limits.positions) + ", prompt and answer together");
  }
  std::vector<float> logits(limits.vocabulary);
  uint64_t position = known;
  std::optional<LongWork> reading("reading the prompt");
  for (; position < prompt.size(); position += std::min<uint64_t>(limits.tokens, prompt.size() - position)) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(limits.tokens, prompt.size() - position));
    require(generate(trainer, prompt.data() + position, count, position, logits.data()));
    if (options.stops && options.stops()) return {};
    reading->done(static_cast<double>(position) / static_cast<double>(prompt.size()));
  }
  reading.reset();  // ends the progress display before the answer is shown
  std::vector<int32_t> answer;
  while (answer.size() < options.tokens) {
    for (const int32_t id : options.never) logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    const int32_t token = draw(logits, options, options.drawn + answer.size());
    if (std::find(options.stop.begin(), options.stop.end(), token) != options.stop.end()) break;
    answer.push_back(token);
    if ((see && !see(token)) || (options.stops && options.stops()) || position + 1 >= limits.positions) break;
    require(generate(trainer, &token, 1, position++, logits.data()));
  }
  return answer;
}

}  // namespace reprise
