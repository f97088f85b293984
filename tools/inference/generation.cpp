// See generation.h.
#include "tools/inference/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/rng.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

constexpr uint64_t kGenerationKey = 0x67656e6572617465u;  // draws apart from those of training

void require(const Status& status) {
  if (!status.ok()) throw UserError(std::string("generating failed: ") + status.message);
}

int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int32_t draw(const std::vector<float>& logits, const GenerationOptions& options, uint64_t drawn) {
  if (options.temperature == 0) return likeliest(logits);
  const double most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - most) / options.temperature); };
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

std::vector<int32_t> generate_tokens(Trainer& trainer, const std::vector<int32_t>& prompt, const GenerationOptions& options,
                                     const std::function<bool(int32_t)>& see) {
  const GenerationLimits limits = generation_limits(*trainer.plan);
  if (limits.positions == 0) throw UserError(std::string(trainer.plan->name) + ": the plan has no program that generates: its model has learned positions, or its arena no room for the caches");
  if (prompt.size() >= limits.positions) {
    throw UserError("the prompt has " + std::to_string(prompt.size()) + " tokens; the plan's caches have room for " + std::to_string(limits.positions) +
                    ", prompt and answer together");
  }
  std::vector<float> logits(limits.vocabulary);
  uint64_t position = 0;
  for (; position < prompt.size(); position += std::min<uint64_t>(limits.tokens, prompt.size() - position)) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(limits.tokens, prompt.size() - position));
    require(generate(trainer, prompt.data() + position, count, position, logits.data()));
  }
  std::vector<int32_t> answer;
  while (answer.size() < options.tokens) {
    for (const int32_t id : options.never) logits[static_cast<size_t>(id)] = -std::numeric_limits<float>::infinity();
    const int32_t token = draw(logits, options, answer.size());
    if (std::find(options.stop.begin(), options.stop.end(), token) != options.stop.end()) break;
    answer.push_back(token);
    if ((see && !see(token)) || position + 1 >= limits.positions) break;
    require(generate(trainer, &token, 1, position++, logits.data()));
  }
  return answer;
}

}  // namespace reprise
