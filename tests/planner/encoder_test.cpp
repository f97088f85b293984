// Tests a network of encoder blocks (ViT, BERT), whose attention is not causal. Its gradients must
// be those of its loss, and every schedule must train it with the same bits. Samples are complete
// sequences or padded texts. Either each position has a class, or only the first one. No family of
// models contains such a network yet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/runtime/expect_gradients.h"

namespace reprise {
namespace {

using Numbers = std::vector<double>;

// Patches -> embedding -> one block (norm, q, k, v, attention, projection, sum, norm, MLP with
// GELU, sum) -> norm -> classes.
struct Encoder {
  static constexpr uint32_t kB = 2, kT = 5, kIn = 3, kC = 8, kHeads = 4, kD = kC / kHeads, kHidden = 6, kClasses = 3;
  static constexpr float kEpsilon = 1e-3f;

  uint32_t kv_heads = kHeads;
  // True: three linear layers compute q, k and v, and a rope with rotary = 0 joins them. False: one
  // layer computes all three.
  bool apart = false;
  // True: the first sample is a text of three positions and padding, and the second sample consists
  // of two texts.
  bool padded = false;
  // True: only the first position of each sample has a label, as with a class token.
  bool of_samples = false;
  float dropout = 0;

  Graph build(DType stored = DType::kF32) const {
    Graph g(stored);
    g.input = g.add_value("patches", ValueKind::kInput, {kB, kT, kIn});
    g.labels = g.add_value("labels", ValueKind::kLabels, of_samples ? Shape{kB} : Shape{kB, kT}, DType::kI32);
    if (padded) g.document_start = g.add_value("document_start", ValueKind::kInput, {kB, kT}, DType::kI32);
    const ValueId x = linear(g, g.input, "embed", kC);
    g.cut(x);
    const ValueId n = g.layer_norm(x, "norm1", kEpsilon);
    const ValueId mixed =
        g.attention(queries_keys_values(g, n), "core",
                    {.heads = kHeads, .kv_heads = kv_heads, .dropout = dropout, .stream = 0, .causal = 0},
                    g.document_start);
    const ValueId seen = g.add(x, linear(g, mixed, "proj", kC), "seen");
    g.cut(seen);
    const ValueId hidden = g.gelu(linear(g, g.layer_norm(seen, "norm2", kEpsilon), "fc1", kHidden), "gelu", false);
    ValueId y = g.add(seen, linear(g, hidden, "fc2", kC), "thought");
    g.cut(y);
    if (of_samples) y = g.reshape(g.slice(y, "first", 1, 0, 1), "of_samples", {kB, kC});
    g.loss_head(g.layer_norm(y, "norm3", kEpsilon), "head",
                g.parameter("head.weight", {kClasses, kC}, InitKind::kNormal, 0.5f), kNoValue);
    return g;
  }

  // Returns a source that gives the same batch in every step. Positions of padding have no label.
  static BatchSource source(const Encoder& encoder) {
    return {const_cast<Encoder*>(&encoder), [](void* self, uint64_t, uint32_t, BatchSink& sink) {
              const std::vector<float> all = patches();
              const std::vector<Bf16> rounded(all.begin(), all.end());
              const bool is_f32 = sink.input_bytes() == all.size() * sizeof(float);
              const Encoder& e = *static_cast<const Encoder*>(self);
              sink.add(is_f32 ? static_cast<const void*>(all.data()) : rounded.data(), sink.input_bytes(), e.labels(),
                       e.rows(), e.padded ? kStarts : nullptr);
              return ok_status();
            },
            [](void* self, uint64_t) {
              const Encoder& e = *static_cast<const Encoder*>(self);
              return uint64_t{2} * (e.rows() - std::count(e.labels(), e.labels() + e.rows(), kIgnoredLabel));
            }};
  }
  uint32_t rows() const { return of_samples ? kB : kB * kT; }  // number of positions with a label
  const int32_t* labels() const { return padded && !of_samples ? kPaddedLabels : kLabels; }
  static std::vector<float> patches() {
    std::mt19937 random(4);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> all(size_t{kB} * kT * kIn);
    for (float& each : all) each = uniform(random);
    return all;
  }
  static constexpr int32_t kLabels[] = {2, 0, 1, 1, 0, 2, 2, 1, 0, 1};
  static constexpr int32_t kPaddedLabels[] = {2, 0, 1, kIgnoredLabel, kIgnoredLabel, 2, 2, 1, 0, 1};
  static constexpr int32_t kStarts[] = {0, 0, 0, 3, 3, 0, 0, 2, 2, 2};

 private:
  static ValueId linear(Graph& g, ValueId x, const std::string& name, uint32_t out, bool bias = true) {
    return g.linear(x, name, out, false, bias, 0.5f);
  }
  ValueId queries_keys_values(Graph& g, ValueId x) const {
    if (!apart) return linear(g, x, "qkv", (kHeads + 2 * kv_heads) * kD);
    // k has no bias: it would add the same number to all scores of a query, so that its gradient
    // would be zero.
    const ValueId q = linear(g, x, "q", kC), k = linear(g, x, "k", kv_heads * kD, false),
                  v = linear(g, x, "v", kv_heads * kD);
    return g.rope(q, k, v, "side_by_side",
                  {.heads = kHeads, .kv_heads = kv_heads, .rotary = 0, .neighbours = 0, .theta = 10000},
                  g.document_start);
  }
};

// Computes the loss of this network in double.
class EncoderReference {
 public:
  EncoderReference(const Encoder& encoder, const ParametersInDouble& parameters)
      : encoder_(encoder), parameters_(parameters) {}

  double loss() const {
    const std::vector<float> patches = Encoder::patches();
    const Numbers x = linear(Numbers(patches.begin(), patches.end()), "embed"), n = norm(x, "norm1");
    const Numbers seen = sum(x, linear(attention(n), "proj"));
    Numbers hidden = linear(norm(seen, "norm2"), "fc1");
    for (double& h : hidden) h = h / 2 * (1 + std::erf(h / std::sqrt(2.0)));
    const Numbers z = norm(sum(seen, linear(hidden, "fc2")), "norm3");
    double total = 0, labelled = 0;
    for (size_t i = 0; i < encoder_.rows(); ++i) {
      const int32_t label = encoder_.labels()[i];
      const size_t row = encoder_.of_samples ? i * E::kT : i;
      if (label == kIgnoredLabel) continue;
      double logits[E::kClasses] = {}, exponentials = 0;
      for (size_t k = 0; k < E::kClasses; ++k) {
        for (size_t c = 0; c < E::kC; ++c)
          logits[k] += z[row * E::kC + c] * parameters_.at("head.weight")[k * E::kC + c];
        exponentials += std::exp(logits[k]);
      }
      total += std::log(exponentials) - logits[label];
      ++labelled;
    }
    return total / labelled;
  }

 private:
  using E = Encoder;
  static constexpr size_t kRows = size_t{E::kB} * E::kT;

  Numbers linear(const Numbers& x, const std::string& name) const {
    const Numbers& w = parameters_.at(name + ".weight");
    const auto bias = parameters_.find(name + ".bias");
    const size_t in = x.size() / kRows, out = w.size() / in;
    Numbers y(kRows * out);
    for (size_t i = 0; i < y.size(); ++i) {
      if (bias != parameters_.end()) y[i] = bias->second[i % out];
      for (size_t c = 0; c < in; ++c) y[i] += x[i / out * in + c] * w[i % out * in + c];
    }
    return y;
  }
  Numbers norm(const Numbers& x, const std::string& name) const {
    Numbers y(x.size());
    for (size_t row = 0; row < kRows; ++row) {
      double mean = 0, variance = 0;
      for (size_t c = 0; c < E::kC; ++c) mean += x[row * E::kC + c] / E::kC;
      for (size_t c = 0; c < E::kC; ++c) variance += (x[row * E::kC + c] - mean) * (x[row * E::kC + c] - mean) / E::kC;
      for (size_t c = 0; c < E::kC; ++c) {
        const double z = (x[row * E::kC + c] - mean) / std::sqrt(variance + static_cast<double>(E::kEpsilon));
        y[row * E::kC + c] = z * parameters_.at(name + ".weight")[c] + parameters_.at(name + ".bias")[c];
      }
    }
    return y;
  }
  static Numbers sum(Numbers a, const Numbers& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  }
  // Computes attention. The columns are q by head, then k by head, then v by head.
  Numbers attention(const Numbers& n) const {
    const size_t shared = encoder_.kv_heads * E::kD, group = E::kHeads / encoder_.kv_heads;
    const Numbers packed = encoder_.apart ? Numbers() : linear(n, "qkv");
    const auto part = [&](const char* name, size_t first, size_t columns) {
      if (encoder_.apart) return linear(n, name);
      Numbers of_qkv(kRows * columns);
      for (size_t i = 0; i < of_qkv.size(); ++i)
        of_qkv[i] = packed[i / columns * (E::kC + 2 * shared) + first + i % columns];
      return of_qkv;
    };
    const Numbers q = part("q", 0, E::kC), k = part("k", E::kC, shared), v = part("v", E::kC + shared, shared);
    Numbers y(kRows * E::kC);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t h = 0; h < E::kHeads; ++h) {
        const size_t b = row / E::kT, of_head = h / group * E::kD;
        double weights[E::kT] = {}, all = 0;
        for (size_t s = 0; s < E::kT; ++s) {
          const size_t key = b * E::kT + s;
          if (encoder_.padded && E::kStarts[key] != E::kStarts[row]) continue;
          double score = 0;
          for (size_t d = 0; d < E::kD; ++d) score += q[row * E::kC + h * E::kD + d] * k[key * shared + of_head + d];
          weights[s] = std::exp(score / std::sqrt(static_cast<double>(E::kD)));
          all += weights[s];
        }
        for (size_t s = 0; s < E::kT; ++s) {
          for (size_t d = 0; d < E::kD; ++d)
            y[row * E::kC + h * E::kD + d] += weights[s] / all * v[(b * E::kT + s) * shared + of_head + d];
        }
      }
    }
    return y;
  }

  const Encoder& encoder_;
  const ParametersInDouble& parameters_;
};

Recipe encoder_recipe(DType stored) {
  Recipe recipe;
  recipe.name = "encoder";
  recipe.accumulate = 2;
  recipe.clip_norm = 100;
  recipe.seed = 5;
  recipe.dtype = stored == DType::kBf16 ? Recipe::Dtype::kBf16 : Recipe::Dtype::kF32;
  recipe.optimizer.update = Op::kAdamW;
  recipe.optimizer.lr = 0.02;
  return recipe;
}

constexpr Encoder kWhole = {}, kPadded = {.padded = true}, kApart = {.kv_heads = 2, .apart = true, .padded = true},
                  kOfSamples = {.padded = true, .of_samples = true};

TEST(Encoder, GradientsAreThoseOfTheWholeNetwork) {
  for (const Encoder* encoder : {&kWhole, &kPadded, &kApart, &kOfSamples}) {
    SCOPED_TRACE(encoder == &kWhole    ? "whole"
                 : encoder == &kPadded ? "padded"
                 : encoder == &kApart  ? "q, k and v apart"
                                       : "a class for each sample");
    expect_gradients_of_the_loss(
        encoder_recipe(DType::kF32), encoder->build(), Encoder::source(*encoder),
        [encoder](const ParametersInDouble& parameters) { return EncoderReference(*encoder, parameters).loss(); },
        encoder->apart ? 20 : 17);
  }
}

TEST(Encoder, TrainsWithTheSameBitsUnderEverySchedule) {
  const Encoder dropped = {.padded = true, .dropout = 0.2f};
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    for (const Encoder* encoder : {&kWhole, &dropped, &kApart, &kOfSamples}) {
      expect_same_bits_under_every_schedule(encoder_recipe(stored), encoder->build(stored), Encoder::source(*encoder));
    }
  }
}

}  // namespace
}  // namespace reprise
