// A low-rank adapter (LoRA, Hu et al. 2021) of a model. For some linear layers W [out, in] it has
// matrices A [r, in] and B [out, r]; the layer then computes with V = W + scale * B A. DoRA (Liu et
// al. 2024) adds magnitudes m [out]: row i of V is scaled to the length m[i]. Training's state,
// PEFT's folders and llama.cpp's files are all read into this form.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/files/adapters/lora_settings.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {

struct AdapterLayer {
  std::string name;  // the layer's name, without ".weight"
  uint64_t in = 0, out = 0, rank = 0;
  // For a convolution: [channels, kernel...], whose product is `in`. Empty for a linear layer.
  std::vector<uint64_t> window = {};
  std::string own_weight = "";  // the name of W; "" if the name is name + ".weight"
  std::string weight() const { return own_weight.empty() ? name + ".weight" : own_weight; }
  // Returns A's name. Its shape: [r, in] or [r, channels, kernel].
  std::string down() const { return name + ".lora_A.weight"; }
  // Returns B's name. Its shape: [out, r] or [out, r, 1, 1].
  std::string up() const { return name + ".lora_B.weight"; }
  // Returns the name of DoRA's magnitudes, whose shape is [out].
  std::string magnitude() const { return name + ".lora_magnitude_vector"; }
};

struct Adapter {
  LoraSettings settings;
  bool fan_in_fan_out = false;  // the model stores these layers as [in, out] (GPT-2's Conv1D)
  // Has down() and up() of every layer, and magnitude() if the adapter is a DoRA; may have more
  // tensors.
  std::shared_ptr<const WeightSource> weights;
  std::vector<AdapterLayer> layers;             // in the order of their names
  std::vector<std::string> saved;               // names of tensors trained without A and B (modules_to_save)
  bool is_tied = false;                         // true if the model's head is its embeddings, which may be in `saved`
  bool is_of_language = true;                   // false for a net that is not a language model
};

// Returns the adapter in these weights. A layer has two matrices, "NAME.lora_A.weight" and
// "NAME.lora_B.weight". All tensors that are no part of an adapter become `saved`. Throws UserError
// with file and tensor if a matrix is missing, is not a matrix of floats, or does not have the rank
// in the settings. Also throws UserError if a DoRA lacks magnitudes, if magnitudes exist without
// DoRA, or if they are not `out` floats. Also throws UserError if there is no adapter.
Adapter find_adapter(std::shared_ptr<const WeightSource> weights, const LoraSettings& settings, bool fan_in_fan_out);

// Returns the names of the layers that have a matrix A.
std::vector<std::string> adapted_layers(const WeightSource& weights);

// True if the name is that of a matrix A or B, or of magnitudes.
bool is_adapter_tensor(const std::string& name);

// Returns all numbers of a matrix A or B; these matrices are small.
std::vector<float> read_matrix(const WeightSource& weights, const std::string& name);

// Returns the magnitudes of a layer of DoRA.
std::vector<float> read_magnitudes(const WeightSource& weights, const AdapterLayer& layer);

}  // namespace reprise
