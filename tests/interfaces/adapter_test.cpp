// Tests adapters in the formats of PEFT and llama.cpp, and models with an adapter merged. Written
// files are read back and compared with a sum that this test computes in double. A matrix that is
// transposed, scaled twice or reordered would give a useless model without an error.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>

#include "lib/f16.h"
#include "tests/interfaces/expect_user_error.h"
#include "tools/files/adapters/gguf_adapter.h"
#include "tools/files/adapters/merged_weights.h"
#include "tools/files/adapters/peft_adapter.h"
#include "tools/files/adapters/peft_pattern.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/export_model.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/tied_head.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::string kGoldens = "tests/golden/weights/";

uint64_t elements_of(const WeightSource& source, const std::string& name) {
  uint64_t elements = 1;
  for (const uint64_t dimension : source.find(name)->shape) elements *= dimension;
  return elements;
}

std::vector<float> values_of(const WeightSource& source, const std::string& name, uint64_t piece = 1 << 20) {
  std::vector<float> values(elements_of(source, name));
  for (uint64_t at = 0; at < values.size(); at += piece)
    source.read(name, at, std::min<uint64_t>(piece, values.size() - at), values.data() + at);
  return values;
}

struct Matrix {
  std::string name;
  uint64_t rows, columns;
};

// Writes a safetensors file of random f32 matrices, as a snapshot stores them. Returns the opened
// file.
std::shared_ptr<const WeightSource> random_matrices(const std::string& path, const std::vector<Matrix>& matrices) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 0.3f);
  SafetensorsWriter writer(path);
  for (const Matrix& matrix : matrices) writer.declare(matrix.name, StoredType::kF32, {matrix.rows, matrix.columns});
  for (const Matrix& matrix : matrices) {
    for (uint64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      const float number = normal(random);
      writer.write(&number, sizeof number);
    }
  }
  writer.finish();
  return open_weights(path);
}

struct Layer {
  std::string name;
  uint64_t in, out;
};

// One model of tests/golden/weights, and its layers that get an adapter of rank 3.
struct Case {
  const char* architecture;
  std::vector<Layer> layers;
  bool fan_in_fan_out = false;
};
const Case kCases[] = {
    {"llama",
     {{"model.layers.0.self_attn.q_proj", 32, 32},
      {"model.layers.0.self_attn.k_proj", 32, 16},
      {"model.layers.0.self_attn.v_proj", 32, 16},
      {"model.layers.0.mlp.down_proj", 64, 32}}},
    {"qwen2", {{"model.layers.0.self_attn.q_proj", 32, 32}, {"model.layers.0.mlp.up_proj", 32, 64}}},
    {"qwen3", {{"model.layers.0.self_attn.k_proj", 32, 32}, {"model.layers.0.self_attn.o_proj", 64, 32}}},
    {"smollm3", {{"model.layers.0.self_attn.q_proj", 32, 32}, {"model.layers.0.mlp.up_proj", 32, 64}}},
    {"phi3", {{"model.layers.0.self_attn.qkv_proj", 32, 64}, {"model.layers.0.mlp.gate_up_proj", 32, 128}}},
    {"gemma2", {{"model.layers.0.self_attn.v_proj", 32, 32}, {"model.layers.0.mlp.down_proj", 64, 32}}},
    {"gemma3", {{"model.layers.0.self_attn.q_proj", 32, 64}, {"model.layers.0.mlp.gate_proj", 32, 64}}},
    {"gpt2",
     {{"transformer.h.0.attn.c_attn", 32, 96},
      {"transformer.h.0.attn.c_proj", 32, 32},
      {"transformer.h.0.mlp.c_proj", 64, 32}},
     true},
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.architecture; }

class AdapterOf : public ::testing::TestWithParam<Case> {
 protected:
  static constexpr uint64_t kRank = 3;
  Adapter adapter(bool rslora = false) {
    std::vector<Matrix> matrices;
    for (const Layer& layer : GetParam().layers) {
      matrices.push_back({layer.name + ".lora_A.weight", kRank, layer.in});
      matrices.push_back({layer.name + ".lora_B.weight", layer.out, kRank});
    }
    const LoraSettings settings = {.r = kRank, .alpha = 5, .dropout = 0.25, .targets = {}, .rslora = rslora};
    return find_adapter(random_matrices(folder_.file("adapter.safetensors"), matrices), settings,
                        GetParam().fan_in_fan_out);
  }
  // Returns an adapter in which the first layer has rank 4 and alpha 20, and the second layer has
  // alpha 7.
  Adapter mixed_adapter(bool rslora) {
    std::vector<Matrix> matrices;
    const std::vector<Layer>& layers = GetParam().layers;
    for (const Layer& layer : layers) {
      const uint64_t rank = &layer == layers.data() ? 4 : kRank;
      matrices.push_back({layer.name + ".lora_A.weight", rank, layer.in});
      matrices.push_back({layer.name + ".lora_B.weight", layer.out, rank});
    }
    const LoraSettings settings = {.r = kRank,
                                   .alpha = 5,
                                   .dropout = 0,
                                   .targets = {},
                                   .rslora = rslora,
                                   .rank_pattern = {{layers[0].name.substr(layers[0].name.find('.') + 1), 4}},
                                   .alpha_pattern = {{layers[0].name, 20}, {layers[1].name, 7}}};
    return find_adapter(random_matrices(folder_.file("mixed.safetensors"), matrices), settings,
                        GetParam().fan_in_fan_out);
  }
  double mixed_scale(const Layer& layer, bool rslora) const {
    const std::vector<Layer>& layers = GetParam().layers;
    const double rank = layer.name == layers[0].name ? 4 : kRank, alpha = layer.name == layers[0].name   ? 20
                                                                          : layer.name == layers[1].name ? 7
                                                                                                         : 5;
    return alpha / (rslora ? std::sqrt(rank) : rank);
  }
  std::string gguf() const { return kGoldens + GetParam().architecture + ".gguf"; }
  TemporaryFolder folder_;
};

TEST_P(AdapterOf, GoesThroughPeftsForm) {
  for (const bool rslora : {false, true}) {
    const Adapter before = adapter(rslora);
    const std::string config = folder_.file("adapter_config.json"), weights = folder_.file("adapter_model.safetensors");
    write_peft_adapter(before, "the/base", {config, weights});
    const SafetensorsFile written_weights(weights);
    for (const auto& [name, tensor] : written_weights.tensors())
      EXPECT_TRUE(name.starts_with("base_model.model.")) << name;
    const json written = json::parse(read_file(config));
    EXPECT_EQ(written["fan_in_fan_out"], GetParam().fan_in_fan_out);
    EXPECT_EQ(written["base_model_name_or_path"], "the/base");
    const Adapter after = open_peft_adapter(folder_.path());
    LoraSettings expected = before.settings;
    expected.targets = written["target_modules"];
    EXPECT_EQ(after.settings, expected);
    EXPECT_EQ(after.fan_in_fan_out, before.fan_in_fan_out);
    ASSERT_EQ(after.layers.size(), GetParam().layers.size());
    for (size_t n = 0; n < after.layers.size(); ++n) {
      EXPECT_EQ(after.layers[n].name, before.layers[n].name);
      EXPECT_EQ(after.layers[n].in, before.layers[n].in);
      EXPECT_EQ(after.layers[n].out, before.layers[n].out);
      for (const std::string& name : {after.layers[n].down(), after.layers[n].up()})
        EXPECT_EQ(values_of(*after.weights, name), values_of(*before.weights, name));
    }
  }
}

TEST_P(AdapterOf, IsAddedToTheLayersOfItsModel) {
  for (const bool rslora : {false, true}) {
    const std::shared_ptr<const WeightSource> base = open_weights(gguf());
    const Adapter added = adapter(rslora);
    const auto merged = merge_adapter(base, added);
    EXPECT_EQ(merged->names(), base->names());
    std::set<std::string> changed;
    for (const Layer& layer : GetParam().layers) {
      const std::string name = layer.name + ".weight";
      changed.insert(name);
      const std::vector<float> before = values_of(*base, name), after = values_of(*merged, name);
      const std::vector<float> down = values_of(*added.weights, layer.name + ".lora_A.weight"),
                               up = values_of(*added.weights, layer.name + ".lora_B.weight");
      for (uint64_t o = 0; o < layer.out; ++o) {
        for (uint64_t i = 0; i < layer.in; ++i) {
          double sum = 0;
          for (uint64_t r = 0; r < kRank; ++r) sum += double{up[o * kRank + r]} * down[r * layer.in + i];
          const uint64_t at = GetParam().fan_in_fan_out ? i * layer.out + o : o * layer.in + i;
          const double expected = before[at] + sum * 5 / (rslora ? std::sqrt(3.0) : 3);
          EXPECT_NEAR(after[at], expected, 1e-6 * (1 + std::abs(expected))) << name << " " << o << " " << i;
        }
      }
      for (const uint64_t piece : {1, 7, 33})
        EXPECT_EQ(values_of(*merged, name, piece), after) << "in pieces of " << piece;
    }
    for (const std::string& name : base->names()) {
      if (changed.count(name) != 0) continue;
      EXPECT_EQ(values_of(*merged, name), values_of(*base, name)) << name;
    }
  }
}

// A layer with its own rank and alpha must have its own scale in a merged model, in PEFT's format
// and in llama.cpp's format.
TEST_P(AdapterOf, RanksAndAlphasOfSomeLayersHoldInEveryForm) {
  for (const bool rslora : {false, true}) {
    const Adapter mixed = mixed_adapter(rslora);
    const std::shared_ptr<const WeightSource> base = open_weights(gguf());
    const auto merged = merge_adapter(base, mixed);
    write_peft_adapter(mixed, "the/base",
                       {folder_.file("adapter_config.json"), folder_.file("adapter_model.safetensors")});
    const Adapter read = open_peft_adapter(folder_.path());
    const auto merged_again = merge_adapter(base, read);
    ASSERT_EQ(read.layers.size(), GetParam().layers.size());
    for (const Layer& layer : GetParam().layers) {
      EXPECT_EQ(read.settings.scale_of(layer.name), mixed.settings.scale_of(layer.name)) << layer.name;
      EXPECT_DOUBLE_EQ(mixed.settings.scale_of(layer.name), mixed_scale(layer, rslora));
      const std::string name = layer.name + ".weight";
      const std::vector<float> before = values_of(*base, name), after = values_of(*merged, name);
      EXPECT_EQ(values_of(*merged_again, name), after) << name;
      const std::vector<float> down = values_of(*mixed.weights, layer.name + ".lora_A.weight"),
                               up = values_of(*mixed.weights, layer.name + ".lora_B.weight");
      const uint64_t rank = down.size() / layer.in;
      for (uint64_t i = 0; i < after.size(); ++i) {
        const uint64_t o = GetParam().fan_in_fan_out ? i % layer.out : i / layer.in,
                       c = GetParam().fan_in_fan_out ? i / layer.out : i % layer.in;
        double sum = 0;
        for (uint64_t r = 0; r < rank; ++r) sum += double{up[o * rank + r]} * down[r * layer.in + c];
        ASSERT_NEAR(after[i], before[i] + sum * mixed_scale(layer, rslora), 1e-5) << name << " " << i;
      }
    }
  }
}

// The file has one alpha, the most common one. llama.cpp multiplies by alpha / rank. For a layer
// with another scale, B must therefore contain the remaining factor.
TEST_P(AdapterOf, AScaleThatAGgufCannotSayIsFoldedIntoB) {
  for (const bool rslora : {false, true}) {
    const Adapter mixed = mixed_adapter(rslora);
    const GgufFile like(gguf());
    const std::string merged_path = folder_.file("merged.gguf"), path = folder_.file("adapter.gguf");
    write_gguf_model(*merge_adapter(open_weights(gguf()), mixed), like, BlockType::kF32, merged_path);
    const FoldedScales folded = write_gguf_adapter(mixed, GetParam().architecture, gguf_heads(like).head, path);
    const GgufFile merged(merged_path), file(path);
    const double alpha = *file.number("adapter.lora.alpha");
    uint64_t layers = 0, rounded = 0;
    for (const Layer& layer : GetParam().layers) {
      const double factor = mixed_scale(layer, rslora) * (layer.name == GetParam().layers[0].name ? 4 : 3) / alpha;
      layers += std::abs(factor - 1) > 1e-6;
      rounded += std::abs(std::log2(factor) - std::round(std::log2(factor))) > 1e-6;
    }
    EXPECT_EQ(folded.layers, layers);
    EXPECT_EQ(folded.rounded, rounded);
    EXPECT_GE(folded.layers, 1u);
    for (const GgufTensor& tensor : like.tensors()) {
      const GgufTensor *down = file.find_tensor(tensor.name + ".lora_a"),
                       *up = file.find_tensor(tensor.name + ".lora_b");
      if (down == nullptr) continue;
      const uint64_t rank = down->shape[0], columns = tensor.shape[1];
      std::vector<float> a(down->elements()), b(up->elements()), before(tensor.elements()), after(before.size());
      file.read(*down, 0, a.size(), a.data());
      file.read(*up, 0, b.size(), b.data());
      like.read(tensor, 0, before.size(), before.data());
      merged.read(*merged.find_tensor(tensor.name), 0, after.size(), after.data());
      for (uint64_t i = 0; i < after.size(); ++i) {
        double sum = before[i];
        for (uint64_t r = 0; r < rank; ++r)
          sum += alpha / static_cast<double>(rank) * b[i / columns * rank + r] * a[r * columns + i % columns];
        ASSERT_NEAR(after[i], sum, 1e-5) << tensor.name << " " << i;
      }
    }
  }
}

// An adapter that was written as GGUF must be read back with Hugging Face's names and order. It
// must have the requested scales, whatever alpha the file has.
TEST_P(AdapterOf, ComesBackFromAGguf) {
  const uint64_t head = gguf_heads(GgufFile(gguf())).head;
  const std::string path = folder_.file("adapter.gguf");
  for (const bool rslora : {false, true}) {
    for (const Adapter& before : {adapter(rslora), mixed_adapter(rslora)}) {
      const FoldedScales folded = write_gguf_adapter(before, GetParam().architecture, head, path);
      LoraSettings other = before.settings;
      other.alpha *= 2;
      for (auto& [layer, alpha] : other.alpha_pattern) alpha *= 2;
      for (const LoraSettings& wanted : {before.settings, other}) {
        const GgufAdapter read = open_gguf_adapter(path, head, before.fan_in_fan_out, wanted);
        EXPECT_EQ(read.architecture, GetParam().architecture);
        ASSERT_EQ(read.adapter.layers.size(), before.layers.size());
        EXPECT_TRUE(wanted == other ? read.unfolded.layers > 0 : read.unfolded.layers == folded.layers)
            << read.unfolded.layers;
        for (const AdapterLayer& layer : before.layers) {
          EXPECT_EQ(read.adapter.settings.rank_of(layer.name), static_cast<int>(layer.rank));
          EXPECT_EQ(read.adapter.settings.scale_of(layer.name), wanted.scale_of(layer.name));
          EXPECT_EQ(values_of(*read.adapter.weights, layer.down()), values_of(*before.weights, layer.down()));
          const std::vector<float> is = values_of(*read.adapter.weights, layer.up(), 7),
                                   was = values_of(*before.weights, layer.up());
          const double half = wanted == other ? 0.5 : 1;
          for (uint64_t i = 0; i < is.size(); ++i)
            ASSERT_NEAR(is[i], was[i] * half, 2e-7 * std::abs(was[i])) << layer.name << " " << i;
        }
      }
    }
  }
}

TEST_P(AdapterOf, IsMergedIntoAGguf) {
  const std::shared_ptr<const WeightSource> base = open_weights(gguf());
  const GgufFile like(gguf());
  const auto merged = merge_adapter(base, adapter());
  const std::string path = folder_.file("merged.gguf");
  for (const BlockType type :
       {BlockType::kF32, BlockType::kF16, BlockType::kBf16, BlockType::kQ8_0, BlockType::kQ4_0}) {
    write_gguf_model(*merged, like, type, path);
    const GgufFile file(path);
    ASSERT_EQ(file.tensors().size(), like.tensors().size());
    for (size_t n = 0; n < like.tensors().size(); ++n) {
      EXPECT_EQ(file.tensors()[n].name, like.tensors()[n].name);
      EXPECT_EQ(file.tensors()[n].shape, like.tensors()[n].shape);
      EXPECT_EQ(file.tensors()[n].type, like.tensors()[n].shape.size() == 2 ? type : BlockType::kF32);
    }
    for (const auto& [key, value] : like.metadata()) EXPECT_EQ(file.find_value(key)->value, value.value) << key;
    const std::map<BlockType, uint64_t> file_types = {{BlockType::kF32, 0},
                                                      {BlockType::kF16, 1},
                                                      {BlockType::kQ8_0, 7},
                                                      {BlockType::kBf16, 32},
                                                      {BlockType::kQ4_0, 2}};
    EXPECT_EQ(file.unsigned_integer("general.file_type"), file_types.at(type));
    const auto again = open_weights(path);
    for (const std::string& name : merged->names()) {
      const std::vector<float> expected = values_of(*merged, name), got = values_of(*again, name);
      const double step = type == BlockType::kF32 || again->find(name)->type == "F32" ? 0
                          : type == BlockType::kF16                                   ? 0x1p-11
                          : type == BlockType::kBf16                                  ? 0x1p-8
                                                                                      : 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool in_blocks = again->find(name)->type == block_layout(type).name && block_layout(type).values > 1;
        const double bound =
            in_blocks ? (type == BlockType::kQ8_0 ? 0.06 : 1.2) : step * std::abs(expected[i]) + (step == 0 ? 0 : 1e-7);
        ASSERT_NEAR(got[i], expected[i], bound) << name << " " << i;
      }
    }
  }
}

// Compares with llama.cpp's sum, alpha / r * B A, over the rows of the file in their stored order.
TEST_P(AdapterOf, HasTheOrderOfItsGguf) {
  for (const bool rslora : {false, true}) {
    const Adapter added = adapter(rslora);
    const GgufFile like(gguf());
    const std::string merged_path = folder_.file("merged.gguf"), path = folder_.file("adapter.gguf");
    write_gguf_model(*merge_adapter(open_weights(gguf()), added), like, BlockType::kF32, merged_path);
    write_gguf_adapter(added, GetParam().architecture, gguf_heads(like).head, path);
    const GgufFile merged(merged_path), file(path);
    EXPECT_EQ(file.text("general.type"), "adapter");
    EXPECT_EQ(file.text("general.architecture"), GetParam().architecture);
    EXPECT_EQ(file.text("adapter.type"), "lora");
    EXPECT_EQ(file.find_value("adapter.lora.alpha")->type, GgufType::kF32);
    const double factor = *file.number("adapter.lora.alpha") / kRank;
    EXPECT_NEAR(factor, rslora ? 5 / std::sqrt(3.0) : 5.0 / 3, 1e-6);
    EXPECT_EQ(file.tensors().size(), 2 * GetParam().layers.size());
    uint64_t compared = 0;
    for (const GgufTensor& tensor : like.tensors()) {
      const GgufTensor *down = file.find_tensor(tensor.name + ".lora_a"),
                       *up = file.find_tensor(tensor.name + ".lora_b");
      ASSERT_EQ(down == nullptr, up == nullptr);
      if (down == nullptr) continue;
      ++compared;
      const uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
      ASSERT_EQ(down->shape, (std::vector<uint64_t>{kRank, columns}));
      ASSERT_EQ(up->shape, (std::vector<uint64_t>{rows, kRank}));
      std::vector<float> a(kRank * columns), b(rows * kRank), before(rows * columns), after(rows * columns);
      file.read(*down, 0, a.size(), a.data());
      file.read(*up, 0, b.size(), b.data());
      like.read(tensor, 0, before.size(), before.data());
      merged.read(*merged.find_tensor(tensor.name), 0, after.size(), after.data());
      for (uint64_t i = 0; i < after.size(); ++i) {
        double sum = before[i];
        for (uint64_t r = 0; r < kRank; ++r) sum += factor * b[i / columns * kRank + r] * a[r * columns + i % columns];
        ASSERT_NEAR(after[i], sum, 1e-6 * (1 + std::abs(sum))) << tensor.name << " " << i;
      }
    }
    EXPECT_EQ(compared, GetParam().layers.size());
  }
}

TEST_P(AdapterOf, IsMergedIntoSafetensors) {
  const auto merged = merge_adapter(open_weights(gguf()), adapter());
  const std::string path = folder_.file("model.safetensors");
  for (const auto& [type, name] :
       {std::pair{BlockType::kF32, "F32"}, {BlockType::kF16, "F16"}, {BlockType::kBf16, "BF16"}}) {
    write_safetensors_model(*merged, type, path);
    const auto again = open_weights(path);
    EXPECT_EQ(again->names(), merged->names());
    for (const std::string& tensor : again->names()) {
      EXPECT_EQ(again->find(tensor)->type, name);
      EXPECT_EQ(again->find(tensor)->shape, merged->find(tensor)->shape);
      std::vector<float> expected = values_of(*merged, tensor);
      for (float& number : expected)
        number = type == BlockType::kF16    ? f16_to_f32(f32_to_f16(number))
                 : type == BlockType::kBf16 ? float{Bf16(number)}
                                            : number;
      EXPECT_EQ(values_of(*again, tensor), expected) << tensor;
    }
    EXPECT_EQ(SafetensorsFile(path).metadata().at("format"), "pt");
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterOf, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.architecture); });

// Tensors that were trained directly (modules_to_save) keep their names in PEFT's format. In the
// merged model they replace the tensors of the base.
TEST(Adapter, ModulesToSaveGoThroughPeftAndIntoAMergedModel) {
  TemporaryFolder folder;
  const std::string q = "model.layers.0.self_attn.q_proj", norm = "model.layers.0.input_layernorm.weight",
                    table = "model.embed_tokens.weight";
  const auto put = [&](const Adapter& adapter) {
    write_peft_adapter(adapter, "", {folder.file("adapter_config.json"), folder.file("adapter_model.safetensors")});
    return json::parse(read_file(folder.file("adapter_config.json")));
  };
  const std::shared_ptr<const WeightSource> base = open_weights(kGoldens + "llama.gguf");
  ASSERT_EQ(base->find(kHead), nullptr) << "tied";
  const std::string state = folder.file("state");
  SafetensorsWriter writer(state);
  std::map<std::string, std::vector<uint64_t>> shapes = {{q + ".lora_A.weight", {2, 32}},
                                                         {q + ".lora_B.weight", {32, 2}},
                                                         {norm, {32}},
                                                         {table, base->find(table)->shape}};
  for (const auto& [name, shape] : shapes) writer.declare(name, StoredType::kF32, shape);
  for (const auto& [name, shape] : shapes) {
    for (uint64_t i = 0; i < std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>()); ++i) {
      const float number = 0.01f * static_cast<float>(i % 17) + static_cast<float>(name.size());
      writer.write(&number, sizeof number);
    }
  }
  writer.finish();
  const LoraSettings settings = {.r = 2,
                                 .alpha = 4,
                                 .dropout = 0,
                                 .targets = {"q_proj"},
                                 .rslora = false,
                                 .modules_to_save = {"embed_tokens", "input_layernorm"}};
  Adapter adapter = find_adapter(open_weights(state), settings, false);
  EXPECT_EQ(adapter.saved, (std::vector<std::string>{table, norm}));
  for (const bool tied : {false, true}) {
    adapter.is_tied = tied;
    const json config = put(adapter);
    json modules = {"model.embed_tokens", "model.layers.0.input_layernorm"};
    if (tied) modules.insert(modules.begin(), "lm_head");
    EXPECT_EQ(config["modules_to_save"], modules) << "whole names: PEFT takes whatever ends so";
    EXPECT_EQ(config.value("ensure_weight_tying", false), tied);
    const SafetensorsFile written(folder.file("adapter_model.safetensors"));
    EXPECT_EQ(written.tensors().size(), tied ? 5u : 4u);
    EXPECT_EQ(written.tensors().count("base_model.model." + norm), 1u);
    const Adapter again = open_peft_adapter(folder.path());
    for (const std::string& name : adapter.weights->names())
      EXPECT_EQ(values_of(*again.weights, name), values_of(*adapter.weights, name)) << name;
    ASSERT_EQ(again.weights->find(kHead) != nullptr, tied);
    EXPECT_FALSE(has_other_head(*again.weights));
  }
  const auto merged = merge_adapter(base, adapter);
  EXPECT_EQ(merged->names(), base->names());
  for (const std::string& name : {table, norm}) {
    EXPECT_EQ(values_of(*merged, name, 7), values_of(*adapter.weights, name));
    EXPECT_NE(values_of(*merged, name), values_of(*base, name));
  }
  const GgufFile like(kGoldens + "llama.gguf");
  write_gguf_model(*merged, like, BlockType::kF32, folder.file("m.gguf"));
  EXPECT_EQ(values_of(*open_weights(folder.file("m.gguf")), table), values_of(*adapter.weights, table));
  expect_user_error([&] { write_gguf_adapter(adapter, "llama", 8, folder.file("a.gguf")); },
                    {state, table, "trained whole", "llama.cpp refuses", "--adapter"});
  EXPECT_FALSE(fs::exists(folder.file("a.gguf")));
  // The base has a table with fewer rows, and no head.
  const auto grown =
      random_matrices(folder.file("y"),
                      {{q + ".lora_A.weight", 2, 32}, {q + ".lora_B.weight", 32, 2}, {table, 26, 32}, {kHead, 26, 32}});
  const auto with_more = merge_adapter(base, find_adapter(grown, settings, false));
  std::vector<std::string> names = base->names();
  names.insert(std::lower_bound(names.begin(), names.end(), kHead), kHead);
  EXPECT_EQ(with_more->names(), names);
  for (const std::string& name : {table, std::string(kHead)})
    EXPECT_EQ(values_of(*with_more, name), values_of(*grown, name));
}

TEST(Adapter, WhatIsNoWholeAdapterIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder.file("a");
  const auto refused = [&](const std::vector<Matrix>& matrices, std::initializer_list<std::string> fragments) {
    const auto source = random_matrices(path, matrices);
    expect_user_error(
        [&] { find_adapter(source, {.r = 2, .alpha = 1, .dropout = 0, .targets = {}, .rslora = false}, false); },
        fragments);
  };
  refused({{"w", 2, 2}}, {path, "has no adapter"});
  refused({{"x.lora_A.weight", 2, 4}}, {path, "\"x.lora_B.weight\"", "missing"});
  refused({{"x.lora_B.weight", 4, 2}}, {path, "\"x.lora_A.weight\"", "missing"});
  refused({{"x.lora_A.weight", 3, 4}, {"x.lora_B.weight", 4, 3}},
          {path, "\"x.lora_A.weight\"", "[3,4] and [4,3]", "rank 2"});
}

TEST(Adapter, OfAnotherModelIsRefused) {
  TemporaryFolder folder;
  const std::shared_ptr<const WeightSource> base = open_weights(kGoldens + "llama.gguf");
  const auto refused = [&](const std::string& layer, uint64_t in, uint64_t out,
                           std::initializer_list<std::string> fragments) {
    const auto source =
        random_matrices(folder.file("a"), {{layer + ".lora_A.weight", 2, in}, {layer + ".lora_B.weight", out, 2}});
    const Adapter adapter =
        find_adapter(source, {.r = 2, .alpha = 1, .dropout = 0, .targets = {}, .rslora = false}, false);
    expect_user_error(
        [&] {
          merge_adapter(base, adapter);
          write_gguf_adapter(adapter, "llama", 8, folder.file("a.gguf"));
        },
        fragments);
    EXPECT_FALSE(fs::exists(folder.file("a.gguf"))) << "nothing half-written";
  };
  refused("model.layers.1.self_attn.q_proj", 32, 32,
          {folder.file("a"), "model.layers.1.self_attn.q_proj", "another model", "has no tensor"});
  refused("model.layers.0.self_attn.q_proj", 32, 16,
          {folder.file("a"), "has it as [32,32], the adapter is for [16,32]"});
  const auto source = random_matrices(folder.file("b"), {{"model.layers.0.self_attn.w.lora_A.weight", 2, 4},
                                                         {"model.layers.0.self_attn.w.lora_B.weight", 4, 2}});
  const Adapter foreign =
      find_adapter(source, {.r = 2, .alpha = 1, .dropout = 0, .targets = {}, .rslora = false}, false);
  expect_user_error([&] { write_gguf_adapter(foreign, "llama", 8, folder.file("a.gguf")); },
                    {"self_attn.w", "no layer of the architecture \"llama\""});
  EXPECT_FALSE(fs::exists(folder.file("a.gguf")));
}

// Expects the results of Python's re.match(rf"(.*\.)?({key})$", name).
TEST(PeftPattern, MatchesAsPythonsExpressionsDo) {
  const std::string q = "model.layers.10.self_attn.q_proj";
  const struct {
    const char* expression;
    std::string name;
    bool matches;
  } cases[] = {{"q_proj", q, true},
               {"proj", q, false},
               {"self_attn.q_proj", q, true},
               {"self_attn\\.q_proj", q, true},
               {"elf_attn.q_proj", q, false},
               {"model.layers.10.self_attn.q_proj", q, true},
               {"^model.layers.10.self_attn.q_proj$", q, true},
               {"^self_attn.q_proj", q, false},
               {"layers.1.self_attn.q_proj", q, false},
               {"layers.1..self_attn.q_proj", q, true},
               {".*q_proj", q, true},
               {".*\\.k_proj", q, false},
               {"layers\\.\\d+\\.self_attn\\.(q|k)_proj", q, true},
               {"layers\\.[0-9]\\.self_attn\\.(q|k)_proj", q, false},
               {"layers.(9|10|11).*.(v|q)_proj", q, true},
               {"layers.(9|11).*.(v|q)_proj", q, false},
               {"layers.10?0*.self_attn.q_proj", q, true},
               {"q_proj.*", "model.q_proj.inner", true},
               {"lm_head", "lm_head", true},
               {"head", "lm_head", false}};
  for (const auto& [expression, name, matches] : cases) {
    const auto pattern = PeftPattern::parse(expression);
    ASSERT_TRUE(pattern.has_value()) << expression;
    EXPECT_EQ(pattern->matches(name), matches) << expression << " " << name;
  }
  for (const char* other : {"", "a|b", "(?:a|b)", "(a|b)*", "((a)|b)", "[a-z]", "a{2}", "a(?=b)", "\\w", "a\\", "a**",
                            "*a", "(a", "a$b", "a b", "\\(a)", "(|a)"}) {
    EXPECT_FALSE(PeftPattern::parse(other).has_value()) << other;
  }
}

// PEFT uses the first key of the file that matches a layer, whatever the key's length.
TEST(PeftAdapter, TheFirstKeyOfAPatternThatMatchesCounts) {
  TemporaryFolder folder;
  std::vector<Matrix> matrices;
  const std::pair<const char*, uint64_t> ranks[] = {{"a.q", 3}, {"a.k", 4}, {"b.q", 3},
                                                    {"b.k", 2}, {"q", 3},   {"c.q", 3}};
  for (const auto& [name, rank] : ranks) {
    matrices.push_back({std::string("base_model.model.") + name + ".lora_A.weight", rank, 4});
    matrices.push_back({std::string("base_model.model.") + name + ".lora_B.weight", 4, rank});
  }
  random_matrices(folder.file("adapter_model.safetensors"), matrices);
  const auto read = [&](const std::string& patterns) {
    std::ofstream(folder.file("adapter_config.json"))
        << R"({"r": 2, "lora_alpha": 6, "target_modules": ["q", "k"], )" + patterns + "}";
    return open_peft_adapter(folder.path());
  };
  const Adapter adapter =
      read(R"x("rank_pattern": {"q": 3, "a.q": 4, "a\\.(k|v)": 4}, "alpha_pattern": {"^b.q": 12, "b.*": 8})x");
  for (const auto& [name, rank] : ranks) EXPECT_EQ(adapter.settings.rank_of(name), static_cast<int>(rank)) << name;
  EXPECT_EQ(adapter.settings.scale_of("a.q"), 2);
  EXPECT_EQ(adapter.settings.scale_of("b.q"), 4);
  EXPECT_EQ(adapter.settings.scale_of("b.k"), 4);
  // Keys are written as complete names. A name precedes every shorter name with which it ends.
  write_peft_adapter(adapter, "", {folder.file("c.json"), folder.file("w")});
  const nlohmann::ordered_json written = nlohmann::ordered_json::parse(read_file(folder.file("c.json")));
  EXPECT_EQ(written["rank_pattern"].dump(), R"({"a.k":4,"q":3})");
  EXPECT_EQ(written["alpha_pattern"].dump(), R"({"b.k":8.0,"b.q":12.0})");
  const std::string config = folder.file("adapter_config.json");
  expect_user_error([&] { read(R"("rank_pattern": {"a|b": 4})"); },
                    {config, "rank_pattern.a|b", "regular expression that is not taken"});
  expect_user_error([&] { read(R"("alpha_pattern": {"[ab].q": 4})"); }, {config, "alpha_pattern.[ab].q", "not taken"});
  expect_user_error([&] { read(R"("rank_pattern": {"q": "4"})"); }, {config, "rank_pattern.q", "must be"});
  expect_user_error([&] { read(R"("rank_pattern": {"q": 4})"); }, {"adapter_model.safetensors", "which is not rank"});
}

TEST(GgufAdapter, WhatIsNoneOfLinearLayersIsRefusedByName) {
  TemporaryFolder folder;
  const std::string path = folder.file("a.gguf");
  const LoraSettings wanted = {.r = 2, .alpha = 4, .dropout = 0, .targets = {}, .rslora = false};
  struct File {
    std::string type = "adapter", adapter = "lora", architecture = "llama";
    double alpha = 4;
    std::vector<std::pair<std::string, std::vector<uint64_t>>> tensors = {{"blk.0.ffn_down.weight.lora_a", {2, 64}},
                                                                          {"blk.0.ffn_down.weight.lora_b", {32, 2}}};
    const char* key = nullptr;
  };
  const auto open = [&](const File& file) {
    GgufWriter writer(path);
    writer.add("general.type", {GgufType::kString, {}, file.type});
    writer.add("general.architecture", {GgufType::kString, {}, file.architecture});
    writer.add("adapter.type", {GgufType::kString, {}, file.adapter});
    writer.add("adapter.lora.alpha", {GgufType::kF32, {}, file.alpha});
    if (file.key != nullptr) writer.add(file.key, {GgufType::kU32, {}, 1u});
    for (const auto& [name, shape] : file.tensors) writer.declare(name, BlockType::kF32, shape);
    for (const auto& [name, shape] : file.tensors) {
      const std::vector<float> ones(std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>()), 1);
      writer.write(ones.data(), ones.size() * sizeof(float));
    }
    writer.finish();
    return open_gguf_adapter(path, 8, false, wanted);
  };
  File good;
  EXPECT_EQ(open(good).unfolded.layers, 0u);
  good.alpha = 0;  // for alpha 0 llama.cpp adds B A without a scale
  const GgufAdapter plain = open(good);
  EXPECT_EQ(plain.unfolded.layers, 1u);
  EXPECT_EQ(values_of(*plain.adapter.weights, "model.layers.0.mlp.down_proj.lora_B.weight")[0], 0.5f)
      << "of the scale 4 / 2";
  const auto refused = [&](const File& file, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open(file); }, fragments);
  };
  refused({.type = "model"}, {path, "general.type", "\"model\"", "must be \"adapter\""});
  refused({.adapter = "control"}, {path, "adapter.type", "must be \"lora\""});
  refused({.alpha = -1}, {path, "adapter.lora.alpha"});
  refused({.key = "adapter.alora.invocation_tokens"}, {path, "adapter.alora.invocation_tokens", "not supported"});
  refused({.architecture = "mamba"}, {path, "blk.0.ffn_down.weight.lora_a", "\"mamba\""});
  refused({.tensors = {{"blk.0.attn_norm.weight", {32}}}}, {path, "blk.0.attn_norm.weight", "none of an adapter"});
  refused({.tensors = {{"blk.0.attn_qkv.weight.lora_a", {2, 32}}}}, {path, "blk.0.attn_qkv.weight.lora_a", "no layer"});
  refused({.tensors = {{"blk.0.attn_q.weight.lora_b", {12, 2}}}},
          {path, "blk.0.attn_q.weight.lora_b", "no whole heads of 8"});
  refused({.tensors = {{"blk.0.ffn_down.weight.lora_a", {2, 64}}}},
          {path, "model.layers.0.mlp.down_proj.lora_B.weight", "missing"});
  refused({.tensors = {{"blk.0.ffn_down.weight.lora_a", {2, 64}}, {"blk.0.ffn_down.weight.lora_b", {32, 3}}}},
          {path, "down_proj", "not rank 2"});
}

TEST(PeftAdapter, WhatIsNoPlainLoraIsRefusedByName) {
  TemporaryFolder folder;
  const std::string config = folder.file("adapter_config.json");
  random_matrices(folder.file("adapter_model.safetensors"),
                  {{"base_model.model.x.lora_A.weight", 2, 4}, {"base_model.model.x.lora_B.weight", 4, 2}});
  const auto put = [&](const std::string& text) { std::ofstream(config) << text; };
  // A config as PEFT 0.21 writes it, with fields that have no effect.
  const std::string good =
      R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null, "bias": "none",
    "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true, "layer_replication": null, "loftq_config": {}, "lora_alpha": 8,
    "lora_bias": false, "lora_dropout": 0.0, "megatron_config": null, "modules_to_save": null, "peft_type": "LORA", "r": 2, "rank_pattern": {},
    "target_modules": ["x"], "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_dora": false,
    "use_qalora": false, "use_rslora": true})";
  put(good);
  const Adapter adapter = open_peft_adapter(folder.path());
  EXPECT_EQ(adapter.settings, (LoraSettings{.r = 2, .alpha = 8, .dropout = 0, .targets = {"x"}, .rslora = true}));
  EXPECT_EQ(adapter.weights->names(), (std::vector<std::string>{"x.lora_A.weight", "x.lora_B.weight"}));
  const auto refused = [&](const json& change, std::initializer_list<std::string> fragments) {
    json changed = json::parse(good);
    changed.update(change);
    put(changed.dump());
    expect_user_error([&] { open_peft_adapter(folder.path()); }, fragments);
  };
  refused({{"peft_type", "LOHA"}}, {config, "peft_type", "LOHA"});
  refused({{"use_dora", true}}, {"adapter_model.safetensors", "x.lora_magnitude_vector", "missing"});
  refused({{"bias", "all"}}, {config, "bias", "\"all\" is not supported"});
  refused({{"rank_pattern", {{"x", 4}}}}, {"adapter_model.safetensors", "rank 4"});
  refused({{"alpha_pattern", {{"x", -4}}}}, {config, "alpha_pattern.x"});
  refused({{"modules_to_save", "lm_head"}}, {config, "modules_to_save", "must be"});
  refused({{"kasa_config", {{"beta", 1}}}}, {config, "kasa_config"});
  // These initialisations change the weights of the base, and PEFT changes them again when it loads
  // the adapter.
  for (const char* init : {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga", "to come"}) {
    refused({{"init_lora_weights", init}}, {config, "init_lora_weights", init, "changes the base's weights"});
  }
  for (const json& init : {json("gaussian"), json("eva"), json("orthogonal"), json(false), json()}) {
    json changed = json::parse(good);
    changed["init_lora_weights"] = init;
    put(changed.dump());
    EXPECT_NO_THROW(open_peft_adapter(folder.path())) << init;
  }
  refused({{"r", 0}}, {config, "r"});
  refused({{"r", 4}}, {"adapter_model.safetensors", "rank 4"});
  refused({{"lora_alpha", -1}}, {config, "lora_alpha"});
  put("{}");
  expect_user_error([&] { open_peft_adapter(folder.path()); }, {config, "r", "rank"});
  put("[]");
  expect_user_error([&] { open_peft_adapter(folder.path()); }, {config});
  put(good);
  random_matrices(folder.file("adapter_model.safetensors"), {{"base_model.model.x.lora_embedding_A", 2, 4}});
  expect_user_error([&] { open_peft_adapter(folder.path()); },
                    {"adapter_model.safetensors", "lora_embedding_A", "none of a LoRA"});
  // A tensor that was trained directly must be in the config's modules_to_save.
  const Matrix head = {"base_model.model.lm_head.weight", 3, 4};
  random_matrices(folder.file("adapter_model.safetensors"),
                  {{"base_model.model.x.lora_A.weight", 2, 4}, {"base_model.model.x.lora_B.weight", 4, 2}, head});
  expect_user_error([&] { open_peft_adapter(folder.path()); },
                    {"adapter_model.safetensors", head.name, "none of a LoRA", "modules_to_save"});
  json with_head = json::parse(good);
  with_head["modules_to_save"] = {"head"};  // the end of the tensor's name, which PEFT allows
  put(with_head.dump());
  EXPECT_EQ(open_peft_adapter(folder.path()).saved, (std::vector<std::string>{"lm_head.weight"}));
  json with_tie = json::parse(good);  // PEFT 0.21 saves this if embeddings and head are tied
  with_tie.update({{"modules_to_save", {"embed_tokens"}}, {"ensure_weight_tying", true}});
  put(with_tie.dump());
  EXPECT_EQ(open_peft_adapter(folder.path()).saved, (std::vector<std::string>{"lm_head.weight"}));
}

// The magnitudes of DoRA are stored under the name that PEFT 0.21 gives them, which does not end in
// ".weight".
TEST(PeftAdapter, ADorasMagnitudesGoThroughItsForm) {
  TemporaryFolder folder;
  const std::string config = folder.file("adapter_config.json"), file = folder.file("adapter_model.safetensors"),
                    x = "base_model.model.x.";
  const auto put = [&](bool dora, std::initializer_list<std::pair<std::string, std::vector<uint64_t>>> tensors) {
    std::ofstream(config) << json{
        {"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 8}, {"use_dora", dora}, {"target_modules", {"x"}}};
    SafetensorsWriter writer(file);
    for (const auto& [name, shape] : tensors) writer.declare(x + name, StoredType::kF32, shape);
    float number = 1;
    for (const auto& [name, shape] : tensors) {
      std::vector<float> numbers(shape[0] * (shape.size() == 2 ? shape[1] : 1));
      for (float& each : numbers) each = number++ / 8;
      writer.write(numbers.data(), numbers.size() * sizeof(float));
    }
    writer.finish();
  };
  const std::pair<std::string, std::vector<uint64_t>> a = {"lora_A.weight", {2, 4}}, b = {"lora_B.weight", {3, 2}},
                                                      m = {"lora_magnitude_vector", {3}};
  put(true, {a, b, m});
  const Adapter adapter = open_peft_adapter(folder.path());
  EXPECT_TRUE(adapter.settings.dora);
  ASSERT_EQ(adapter.layers.size(), 1u);
  EXPECT_TRUE(adapter.saved.empty());
  const std::vector<float> magnitudes = read_magnitudes(*adapter.weights, adapter.layers[0]);
  EXPECT_EQ(magnitudes, (std::vector<float>{15.0f / 8, 16.0f / 8, 17.0f / 8}));
  TemporaryFolder again;
  write_peft_adapter(adapter, "base", {again.file("adapter_config.json"), again.file("adapter_model.safetensors")});
  EXPECT_EQ(json::parse(read_file(again.file("adapter_config.json"))).at("use_dora"), true);
  const auto written = open_weights(again.file("adapter_model.safetensors"));
  ASSERT_NE(written->find(x + "lora_magnitude_vector"), nullptr);
  EXPECT_EQ(written->find(x + "lora_magnitude_vector")->shape, (std::vector<uint64_t>{3}));
  const Adapter back = open_peft_adapter(again.path());
  EXPECT_EQ(back.settings, adapter.settings);
  EXPECT_EQ(read_magnitudes(*back.weights, back.layers[0]), magnitudes);
  expect_user_error([&] { write_gguf_adapter(adapter, "llama", 8, again.file("a.gguf")); },
                    {"is of a DoRA", "GGUF adapter cannot hold", "--merged"});
  const auto refused = [&](std::initializer_list<std::string> fragments) {
    expect_user_error([&] { open_peft_adapter(folder.path()); }, fragments);
  };
  put(true, {a, b, {"lora_magnitude_vector", {4}}});
  refused({"x.lora_magnitude_vector", "is F32 [4], must be [3]"});
  put(false, {a, b, m});
  refused({"x.lora_magnitude_vector", "is DoRA's, which the adapter's settings do not name"});
  put(true, {a, b, m, {"y.lora_magnitude_vector", {3}}});
  refused({"y.lora_magnitude_vector", "stands beside no adapter"});
}

// An export to Q4_K must store matrices as Q4_K if their rows are whole blocks of 256 numbers. The
// rows of ffn_down have 64 numbers, so this matrix must become Q5_0.
TEST(ExportModel, MatricesBecomeQ4KWhereTheirRowsAreWholeBlocks) {
  TemporaryFolder folder;
  const GgufFile golden(kGoldens + "llama.gguf");
  const std::map<std::string, uint64_t> sizes = {{"llama.embedding_length", 256},
                                                 {"llama.feed_forward_length", 64},
                                                 {"llama.rope.dimension_count", 64},
                                                 {"llama.attention.key_length", 64},
                                                 {"llama.attention.value_length", 64}};
  const auto rows_of = [](const std::string& name) -> std::vector<uint64_t> {
    if (name.find("norm") != std::string::npos) return {256};
    const bool is_kv = name.find("attn_k") != std::string::npos || name.find("attn_v") != std::string::npos;
    if (name.find("ffn_down") != std::string::npos) return {256, 64};
    return {is_kv                                    ? 128u
            : name.find("ffn") != std::string::npos  ? 64u
            : name.find("attn") != std::string::npos ? 256u
                                                     : 24u,
            256};
  };
  const std::string path = folder.file("wide.gguf");
  GgufWriter writer(path);
  for (auto [key, value] : golden.metadata()) {
    if (const auto size = sizes.find(key); size != sizes.end()) value.value = size->second;
    writer.add(key, value);
  }
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.3f);
  for (const GgufTensor& tensor : golden.tensors()) writer.declare(tensor.name, BlockType::kF32, rows_of(tensor.name));
  for (const GgufTensor& tensor : golden.tensors()) {
    const std::vector<uint64_t> shape = rows_of(tensor.name);
    for (uint64_t i = 0; i < std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>()); ++i) {
      const float number = normal(random);
      writer.write(&number, sizeof number);
    }
  }
  writer.finish();
  const auto weights = open_weights(path);
  const std::vector<WrittenTensor> written =
      write_gguf_model(*weights, GgufFile(path), BlockType::kQ4_K, folder.file("q4_k.gguf"));
  const GgufFile file(folder.file("q4_k.gguf"));
  EXPECT_EQ(file.unsigned_integer("general.file_type"), 14u);
  EXPECT_EQ(file.unsigned_integer("general.quantization_version"), 2u);
  for (const WrittenTensor& tensor : written) {
    const BlockType expected = tensor.name.find("norm") != std::string::npos ? BlockType::kF32
                               : tensor.name == "blk.0.ffn_down.weight"      ? BlockType::kQ5_0
                                                                             : BlockType::kQ4_K;
    EXPECT_EQ(tensor.type, expected) << tensor.name;
    EXPECT_EQ(file.find_tensor(tensor.name)->type, expected);
    EXPECT_EQ(tensor.rms > 0, expected != BlockType::kF32);
    EXPECT_LT(tensor.rms, 0.08) << "of normal numbers";
  }
  // A second export reads the blocks of the first. It must not round anything, and must write an
  // equal file.
  for (const WrittenTensor& tensor :
       write_gguf_model(*open_weights(file.path()), file, BlockType::kQ4_K, folder.file("again.gguf")))
    EXPECT_EQ(tensor.rms, 0) << tensor.name;
  EXPECT_EQ(read_file(folder.file("again.gguf")), read_file(file.path()));
}

TEST(ExportModel, NumbersBeyondTheTypeAreRefused) {
  TemporaryFolder folder;
  const auto write = [&](float number) {
    SafetensorsWriter writer(folder.file("w"));
    writer.declare("model.norm.weight", StoredType::kF32, {1});
    writer.write(&number, sizeof number);
    writer.finish();
    return open_weights(folder.file("w"));
  };
  const std::string out = folder.file("out");
  expect_user_error([&] { write_safetensors_model(*write(65505), BlockType::kF16, out); },
                    {folder.file("w"), "model.norm.weight", "65505", "range of F16"});
  EXPECT_FALSE(fs::exists(out)) << "nothing half-written";
  write_safetensors_model(*write(65505), BlockType::kBf16, out);
  expect_user_error([&] { write_safetensors_model(*write(NAN), BlockType::kF32, out); },
                    {"model.norm.weight", "finite"});
  expect_user_error([&] { write_safetensors_model(*write(INFINITY), BlockType::kBf16, out); },
                    {"model.norm.weight", "finite"});
}

TEST(ExportModel, WhatAModelLacksIsRefused) {
  TemporaryFolder folder;
  const auto lacking = random_matrices(folder.file("w"), {{"model.embed_tokens.weight", 24, 32}});
  const GgufFile like(kGoldens + "llama.gguf");
  expect_user_error([&] { write_gguf_model(*lacking, like, BlockType::kF32, folder.file("out")); },
                    {folder.file("w"), "missing", "llama.gguf has it"});
  const auto other = random_matrices(folder.file("w"), {{"model.embed_tokens.weight", 24, 16}});
  expect_user_error([&] { write_gguf_model(*other, like, BlockType::kF32, folder.file("out")); },
                    {folder.file("w"), "[24,16]", "[24,32]"});
  EXPECT_FALSE(fs::exists(folder.file("out")));
}

}  // namespace
}  // namespace reprise
