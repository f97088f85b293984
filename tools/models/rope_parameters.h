// How a decoder's rotary positions are scaled to longer texts: Hugging Face's "rope_parameters", and the table of frequencies they mean.
// Here because every family of decoders has them, and each type is a formula of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace reprise {

class JsonFields;

struct RopeParameters {
  enum class Type { kDefault, kLinear, kDynamic, kYarn, kLongrope, kLlama3, kDivisors };
  Type type = Type::kDefault;
  double theta = 10000;
  double partial = 1;                          // the share of a head's channels that turn
  std::optional<double> factor;                // how much longer texts may be than `original`
  int original = 0;                            // the length that the model was first trained with; 0: max_position_embeddings
  std::optional<double> attention_factor;      // yarn, longrope: on q and k alike
  double beta_fast = 32, beta_slow = 1;        // yarn
  double mscale = 0, mscale_all_dim = 0;       // yarn; 0: not given
  bool truncate = true;                        // yarn
  double low_freq_factor = 1, high_freq_factor = 4;    // llama3
  std::vector<double> short_factor, long_factor;       // longrope: a divisor for each pair of channels
  std::vector<double> divisors;                        // kDivisors: the same, as a GGUF file has them
  bool operator==(const RopeParameters&) const = default;

  // From a config's "rope_parameters", or "rope_theta" and "rope_scaling" of older ones. `theta`: the family's default. Throws UserError:
  // an unknown type is named, and so are two forms that contradict each other.
  static RopeParameters read(const JsonFields& config, double theta);
  // The same of a config whose layers with a window turn by parameters of their own, `local`: "rope_parameters" has an object for each type of
  // layer; older configs have "rope_local_base_freq" beside the fields of the others.
  static RopeParameters read_two(const JsonFields& config, double theta, double local_theta, RopeParameters& local);
  nlohmann::json write() const;  // "rope_parameters"
};

// Gives a config with "rope_parameters", which transformers 5 reads, the fields that transformers 4 reads, too; `divisors`, which neither
// knows, become the longrope that computes the same.
void write_rope_for_transformers(nlohmann::json& config);

// What turns a head of q or k: pair i by position * frequencies[i], and the result is multiplied by `scale`.
struct RopeTable {
  std::vector<float> frequencies;  // of half the channels that turn
  float scale = 1;
};

// For heads of `head` channels in a model for `longest` positions that is trained on texts of `sequence`. Computed in f32 step by step as
// transformers does (5.x, modeling_rope_utils), so that its bits are met. Formulas: Su et al. 2021; linear, Chen et al. 2023
// (2306.15595); dynamic and yarn, Peng et al. 2023 (2309.00071); longrope, Ding et al. 2024 (2402.13753); llama3, Meta's release.
RopeTable rope_table(const RopeParameters& rope, int head, int longest, int sequence);

// Channels of a head that turn; even.
int rotary_channels(const RopeParameters& rope, int head);

}  // namespace reprise
