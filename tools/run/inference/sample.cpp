// Runs the evaluation program once for each byte, and uses only the first sequence of the batch.
// The logits at its last position predict the next byte.
#include "tools/run/inference/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/rng.h"
#include "tools/run/inference/logits.h"

namespace reprise {

namespace {

class Sampler {
 public:
  Sampler(Trainer& trainer, const std::string& prompt, double temperature)
      : trainer_(trainer),
        program_(trainer.plan->program(ProgramId::kEvaluate)),
        text_(prompt),
        temperature_(temperature),
        reader_(trainer,
                [this](uint64_t, int32_t, std::vector<double>& logits) { text_ += static_cast<char>(draw(logits)); }) {}

  Status run(uint32_t count) {
    const BatchSource source = {this, [](void* self, uint64_t, uint32_t, BatchSink& sink) {
                                  static_cast<Sampler*>(self)->fill(sink);
                                  return ok_status();
                                }};
    Status status = ok_status();
    for (drawn_ = 0; drawn_ < count && status.ok(); ++drawn_) {
      EvaluationReport unused;
      status = evaluate(trainer_, source, 1, unused);
      if (status.ok()) status = reader_.status();
    }
    return status;
  }

  const std::string& text() const { return text_; }

 private:
  const Tensor& input_tensor() const { return program_.slots[program_.input].tensor; }

  // Writes the end of the text as the first sequence. Other sequences and unused positions are 0.
  void fill(BatchSink& sink) {
    const size_t B = input_tensor().shape[0], T = input_tensor().shape[1], used = std::min(T, text_.size());
    std::vector<int32_t> tokens(T, 0);
    const std::vector<int32_t> none(T, kIgnoredLabel);
    for (size_t t = 0; t < used; ++t) tokens[t] = static_cast<unsigned char>(text_[text_.size() - used + t]);
    for (size_t b = 0; b < B; ++b) {
      sink.add(tokens.data(), T * sizeof(int32_t), none.data(), T);
      std::fill(tokens.begin(), tokens.end(), 0);
    }
    reader_.visit_only(used - 1);
  }

  uint32_t draw(std::vector<double>& logits) const {
    const double maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double& logit : logits) sum += logit = std::exp((logit - maximum) / temperature_);
    double u = sum * (philox(trainer_.plan->seed, 0x5a3b1eull, drawn_).word[0] + 0.5) / 4294967296.0;
    for (uint32_t v = 0; v < logits.size(); ++v) {
      if (u < logits[v]) return v;
      u -= logits[v];
    }
    return static_cast<uint32_t>(logits.size() - 1);
  }

  Trainer& trainer_;
  const Program& program_;
  std::string text_;
  const double temperature_;
  uint32_t drawn_ = 0;
  LogitsReader reader_;
};

}  // namespace

Status sample_bytes(Trainer& trainer, const std::string& prompt, uint32_t count, double temperature,
                    std::string& text) {
  Sampler sampler(trainer, prompt, temperature);
  REPRISE_RETURN_IF_ERROR(sampler.run(count));
  text = sampler.text();
  return ok_status();
}

}  // namespace reprise
