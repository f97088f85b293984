// A low-rank adapter (LoRA, Hu et al. 2021): for some linear layers W [out, in] of a model, matrices A [r, in] and B [out, r], by which
// the layer becomes V = W + scale * B A; and of DoRA (Liu et al. 2024) magnitudes m [out], by which each row of V gets the length m.
// Here so that training's state, PEFT's folders and llama.cpp's files are one thing to whoever merges or writes an adapter.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/weights/lora_settings.h"
#include "tools/weights/weight_source.h"

namespace reprise {

struct AdapterLayer {
  std::string name;  // the layer's, without ".weight"
  uint64_t in = 0, out = 0, rank = 0;
  std::vector<uint64_t> window = {};  // of a convolution: channels and kernel, whose product `in` is
  std::string down() const { return name + ".lora_A.weight"; }  // [r, in], or [r, channels, kernel]
  std::string up() const { return name + ".lora_B.weight"; }    // [out, r], or [out, r, 1, 1]
  std::string magnitude() const { return name + ".lora_magnitude_vector"; }  // [out], of DoRA
};

struct Adapter {
  LoraSettings settings;
  bool fan_in_fan_out = false;                  // the model keeps these layers as [in, out]: GPT-2's Conv1D
  std::shared_ptr<const WeightSource> weights;  // has down() and up() of every layer, of DoRA magnitude(), and may have more
  std::vector<AdapterLayer> layers;             // by name
  std::vector<std::string> saved;               // names of tensors that were trained whole: modules_to_save
  bool is_tied = false;                         // the model's head is its embeddings, which may be among `saved`
  bool is_of_language = true;                   // the model is a language model
};

// Every layer of which the weights have matrices "NAME.lora_A.weight" and "NAME.lora_B.weight"; their other tensors are saved ones.
// Throws UserError naming file and tensor where one of the two is missing, is no matrix of floats, or has another rank than the settings
// say; where magnitudes are missing of DoRA, are there without it, or are no vector of floats as long as B; and where there is no
// adapter.
Adapter find_adapter(std::shared_ptr<const WeightSource> weights, const LoraSettings& settings, bool fan_in_fan_out);

// The names of the layers of which there are matrices A.
std::vector<std::string> adapted_layers(const WeightSource& weights);

// Whether a tensor is one of an adapter's.
bool is_adapter_tensor(const std::string& name);

// A matrix of the adapter, whole: it is thin.
std::vector<float> read_matrix(const WeightSource& weights, const std::string& name);

// The magnitudes of a layer of DoRA.
std::vector<float> read_magnitudes(const WeightSource& weights, const AdapterLayer& layer);

}  // namespace reprise
