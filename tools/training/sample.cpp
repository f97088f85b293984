// One forward of the evaluation program for every byte; only the first sequence of the batch is used.
// Before the loss head runs, the hidden state of the last position gives the logits of the next byte.
#include "tools/training/sample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/rng.h"

namespace reprise {

namespace {

class Sampler {
 public:
  Sampler(Trainer& trainer, const std::string& prompt, double temperature)
      : trainer_(trainer), program_(trainer.plan->program(ProgramId::kEvaluate)), text_(prompt), temperature_(temperature) {}

  Status run(uint32_t count) {
    const RowObserver observer = trainer_.observer;
    trainer_.observer = {this, [](void* self, ProgramId, uint32_t row) { static_cast<Sampler*>(self)->before_row(row); }, nullptr};
    const BatchSource source = {this, [](void* self, uint64_t, uint32_t, BatchSink& sink) {
                                  static_cast<Sampler*>(self)->fill(sink);
                                  return ok_status();
                                }};
    Status status = ok_status();
    for (drawn_ = 0; drawn_ < count && status.ok(); ++drawn_) {
      EvaluationReport unused;
      status = evaluate(trainer_, source, 1, unused);
      if (status.ok()) status = read_;
    }
    trainer_.observer = observer;
    return status;
  }

  const std::string& text() const { return text_; }

 private:
  const Tensor& input_tensor() const { return program_.slots[program_.input].tensor; }

  // The end of the text as the first sequence; the others, and what it leaves free, are zeros.
  void fill(BatchSink& sink) {
    const size_t B = input_tensor().shape[0], T = input_tensor().shape[1], used = std::min(T, text_.size());
    std::vector<int32_t> tokens(T, 0);
    const std::vector<int32_t> none(T, kIgnoredLabel);
    for (size_t t = 0; t < used; ++t) tokens[t] = static_cast<unsigned char>(text_[text_.size() - used + t]);
    for (size_t b = 0; b < B; ++b) {
      sink.add(tokens.data(), T * sizeof(int32_t), none.data(), T);
      std::fill(tokens.begin(), tokens.end(), 0);
    }
    position_ = used - 1;
  }

  void before_row(uint32_t r) {
    const Row& row = program_.rows[r];
    if (row.op != Op::kLossHead) return;
    const Ref hidden = program_.arguments[row.first_argument + 1], weight = program_.arguments[row.first_argument + 2];
    const Tensor& x = program_.slots[ref_index(hidden)].tensor;
    const Tensor& w = trainer_.plan->state[ref_index(weight)].tensor;
    const uint32_t C = w.shape[1], V = w.shape[0];
    const ArenaAddress last = trainer_.region(Region::kProgram) + x.offset + stored_bytes(x.dtype, position_ * C);
    const std::vector<float> state = numbers_at(last, x.dtype, C);
    const std::vector<float> table = numbers_at(trainer_.state_tensor(ref_index(weight)), w.dtype, uint64_t{V} * C);
    if (!read_.ok()) return;
    std::vector<double> logits(V);
    for (uint32_t v = 0; v < V; ++v) {
      for (uint32_t c = 0; c < C; ++c) logits[v] += static_cast<double>(state[c]) * static_cast<double>(table[v * C + c]);
    }
    text_ += static_cast<char>(draw(logits));
  }

  // f32 or bf16.
  std::vector<float> numbers_at(ArenaAddress from, DType dtype, uint64_t count) {
    return dtype == DType::kBf16 ? read_as<Bf16>(from, count) : read_as<float>(from, count);
  }
  template <typename Stored>
  std::vector<float> read_as(ArenaAddress from, uint64_t count) {
    std::vector<Stored> numbers(count);
    if (read_.ok()) read_ = trainer_.read(numbers.data(), from, count * sizeof(Stored));
    return std::vector<float>(numbers.begin(), numbers.end());
  }

  uint32_t draw(std::vector<double>& logits) const {
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double& logit : logits) sum += logit = std::exp((logit - most) / temperature_);
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
  size_t position_ = 0;
  uint32_t drawn_ = 0;
  Status read_;  // what the arena answered
};

}  // namespace

Status sample_bytes(Trainer& trainer, const std::string& prompt, uint32_t count, double temperature, std::string& text) {
  Sampler sampler(trainer, prompt, temperature);
  REPRISE_RETURN_IF_ERROR(sampler.run(count));
  text = sampler.text();
  return ok_status();
}

}  // namespace reprise
