// Hugging Face's "rope_parameters", which scale a decoder's rotary positions to longer texts, and
// the table of frequencies that follows from them. Every family of decoders has them. Each type has
// its own formula.
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
  double partial = 1;                          // the share of a head's channels that are rotated
  std::optional<double> factor;                // factor by which texts may be longer than `original`
  int original = 0;                            // length of the model's first training; 0: max_position_embeddings
  std::optional<double> attention_factor;      // yarn, longrope: multiplies q and k
  double beta_fast = 32, beta_slow = 1;        // yarn: rotations in `original` tokens where the ramp begins and ends
  double mscale = 0, mscale_all_dim = 0;       // yarn: weights in the default of attention_factor; 0: not given
  bool truncate = true;                        // yarn: true if both ends of the ramp are rounded to whole pairs
  // llama3: `original` / the longest blended wavelength; `original` / the shortest one.
  double low_freq_factor = 1, high_freq_factor = 4;
  std::vector<double> short_factor, long_factor;       // longrope: a divisor for each pair of channels
  std::vector<double> divisors;                        // kDivisors: a divisor for each pair, as a GGUF file has them
  bool operator==(const RopeParameters&) const = default;

  // Reads a config's "rope_parameters", or "rope_theta" and "rope_scaling" of older configs.
  // `theta`: the family's default. Throws UserError for an unknown type, and for two forms that
  // contradict each other.
  static RopeParameters read(const JsonFields& config, double theta);
  // Reads a config whose layers with a window have parameters of their own, `local`.
  // "rope_parameters" then has an object for each type of layer; older configs have
  // "rope_local_base_freq" in addition to the other fields.
  static RopeParameters read_two(const JsonFields& config, double theta, double local_theta, RopeParameters& local);
  nlohmann::json write() const;  // Returns the "rope_parameters".
};

// Returns the llama3 parameters from which the divisors of a GGUF's rope_freqs.weight were made.
// Returns nothing if `rope` has no divisors or rotates only a part of each head. Also returns
// nothing if no llama3 parameters are found that give every divisor with an error below 1e-5. Only
// the ratios of `original` and the frequency factors matter. So the low factor is set to 1 if the
// file does not state `original`.
std::optional<RopeParameters> llama3_of_divisors(const RopeParameters& rope);

// Adds the fields that transformers 4 reads to a config with "rope_parameters", which transformers
// 5 reads. Neither version can read `divisors`. They are written as llama3 if they were made from
// llama3 parameters, and otherwise as a longrope that computes the same rotations.
void write_rope_for_transformers(nlohmann::json& config);

// The rotation of a head of q or k. Pair i is rotated by position * frequencies[i] radians, and the
// result is multiplied by `scale`.
struct RopeTable {
  std::vector<float> frequencies;  // one for each pair of rotated channels
  float scale = 1;
};

// Returns the table for heads of `head` channels. The model has `longest` positions, and is trained
// on texts of `sequence` tokens. Each step is computed in f32 as in transformers (5.x,
// modeling_rope_utils), so that the bits are equal. Formulas: Su et al. 2021; linear, Chen et al.
// 2023 (2306.15595); dynamic and yarn, Peng et al. 2023 (2309.00071); longrope, Ding et al. 2024
// (2402.13753); llama3, Meta's release.
RopeTable rope_table(const RopeParameters& rope, int head, int longest, int sequence);

// Returns a text that states which longrope factors apply to all samples in a training on texts of
// `sequence` tokens, and how transformers differs. Returns "" for other types.
std::string longrope_text(const RopeParameters& rope, int longest, int sequence);

// Returns the number of a head's channels that are rotated, which is even.
int rotary_channels(const RopeParameters& rope, int head);

}  // namespace reprise
