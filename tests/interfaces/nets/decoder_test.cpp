// Tests the families of decoders: which fields of a config.json are read, which are refused by
// name, and which parameters the network then has. Other people write such a config. So every field
// must be applied or refused, and never ignored.
#include "tools/plan/models/decoder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/json_fields.h"
#include "tools/plan/recipes/recipe_graph.h"

namespace reprise {
namespace {

using nlohmann::json;
using Type = RopeParameters::Type;

json small(const std::string& family) {
  return {{"family", family},         {"vocab_size", 50},       {"hidden_size", 24},
          {"intermediate_size", 40},  {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"head_dim", 8},          {"max_position_embeddings", 64}};
}

Recipe recipe_with(const json& model, const json& more = json::object()) {
  json recipe = {{"model", model}, {"batch", 2}, {"sequence", 16}};
  recipe.update(more);
  return parse_recipe(recipe.dump(), "some.json", "/base");
}

template <typename Model>
Model model_with(const json& changes) {
  json fields = small(Model::kFamily);
  fields.merge_patch(changes);
  return std::get<Model>(recipe_with(fields).model);
}

std::map<std::string, std::vector<uint64_t>> parameters_of(const Recipe& recipe) {
  std::map<std::string, std::vector<uint64_t>> shapes;
  for (const Value& value : build_model(recipe).values) {
    if (value.kind == ValueKind::kParameter)
      shapes[value.name] = std::vector<uint64_t>(value.tensor.shape, value.tensor.shape + value.tensor.rank);
  }
  return shapes;
}

TEST(Decoder, BothFormsOfRotaryParametersAreRead) {
  const auto older =
      model_with<LlamaModel>({{"rope_theta", 500000}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}});
  EXPECT_EQ(older.rope.type, Type::kLinear);
  EXPECT_EQ(older.rope.theta, 500000);
  EXPECT_EQ(older.rope.factor, 4);
  const auto newer =
      model_with<LlamaModel>({{"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 500000}, {"factor", 4}}}});
  EXPECT_EQ(older, newer);
  EXPECT_EQ(model_with<Qwen3Model>(json::object()).rope.theta, 10000);
}

// A published config must not rotate only a part of the channels. transformers 4 refuses such a
// config, and transformers 5 rotates all channels, so the two would be different models.
TEST(Decoder, APublishedModelRotatesAllChannels) {
  TemporaryFolder folder;
  json config = small("llama");
  config.erase("family");
  config.update({{"model_type", "llama"}, {"partial_rotary_factor", 0.5}});
  std::ofstream(folder.file("config.json")) << config.dump();
  const std::string recipe = json{{"model", {{"huggingface", folder.path()}}}, {"batch", 1}, {"sequence", 8}}.dump();
  expect_user_error([&] { parse_recipe(recipe, "r.json", "/"); },
                    {folder.file("config.json"), "partial_rotary_factor", "all channels of a llama"});
}

TEST(Decoder, ParametersForEachTypeOfLayerAreRefused) {
  const json nested = {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}}};
  expect_user_error(
      [&] {
        model_with<Qwen3Model>({{"rope_parameters", nested}});
      },
      {"rope_parameters.full_attention", "each type of layer"});
}

TEST(Decoder, FormsThatContradictEachOtherAreRefused) {
  const json linear = {{"rope_type", "linear"}, {"factor", 4}}, faster = {{"rope_type", "linear"}, {"factor", 2}};
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 16}};
  const auto expect_refusal = [](const json& fields, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { model_with<LlamaModel>(fields); }, fragments);
  };
  expect_refusal({{"rope_scaling", linear}, {"rope_parameters", faster}},
                 {"model.rope_scaling", "contradicts \"rope_parameters\""});
  expect_refusal({{"rope_theta", 500000}, {"rope_parameters", {{"rope_theta", 10000}}}},
                 {"model.rope_theta", "500000", "10000", "transformers 4"});
  expect_refusal({{"original_max_position_embeddings", 32}, {"rope_parameters", yarn}},
                 {"model.original_max_position_embeddings", "32", "16"});
  expect_refusal({{"partial_rotary_factor", 0.5}, {"rope_parameters", {{"partial_rotary_factor", 1.0}}}},
                 {"model.partial_rotary_factor", "0.5"});
  expect_refusal({{"rope_parameters", {{"rope_type", "yarn"}}}}, {"model.rope_parameters.factor: missing", "yarn"});
  // transformers 4 and transformers 5 look for these fields in different places.
  expect_refusal({{"rope_scaling", {{"type", "linear"}, {"rope_type", "dynamic"}, {"factor", 4}}}},
                 {"model.rope_scaling.type", "contradicts"});
  expect_refusal({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 500000}}}},
                 {"model.rope_scaling.rope_theta", "beside rope_scaling"});
  expect_refusal({{"original_max_position_embeddings", 16}, {"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}}},
                 {"model.original_max_position_embeddings", "transformers 4"});
  const json factors = {1, 1, 1.5, 2};
  expect_refusal({{"rope_scaling",
                   {{"rope_type", "longrope"},
                    {"short_factor", factors},
                    {"long_factor", factors},
                    {"original_max_position_embeddings", 16}}}},
                 {"model.rope_scaling.original_max_position_embeddings", "beside rope_scaling too"});
  expect_refusal({{"original_max_position_embeddings", 16},
                  {"rope_scaling",
                   {{"rope_type", "longrope"}, {"short_factor", factors}, {"long_factor", factors}, {"factor", 3}}}},
                 {"model.rope_scaling.factor", "max_position_embeddings / original_max_position_embeddings"});
  expect_refusal({{"is_causal", false}}, {"model.is_causal"});
  const auto both =
      model_with<LlamaModel>({{"rope_theta", 9},
                              {"rope_scaling", linear},
                              {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 9}}}});
  EXPECT_EQ(both.rope.theta, 9);
  EXPECT_EQ(both.rope.factor, 4);
  const auto outside =
      model_with<LlamaModel>({{"partial_rotary_factor", 0.5}, {"original_max_position_embeddings", 32}});
  EXPECT_EQ(outside.rope.partial, 0.5);
  EXPECT_EQ(outside.rope.original, 32);
}

// transformers 4 reads rope_theta and rope_scaling of a config.json, and transformers 5 reads
// rope_parameters. Both must give the same network.
TEST(Decoder, ConfigsAreWrittenForBothGenerations) {
  const json longrope = {{"rope_type", "longrope"},
                         {"rope_theta", 7},
                         {"short_factor", {1, 1, 1.5, 2}},
                         {"long_factor", {1, 2, 3, 4}},
                         {"original_max_position_embeddings", 32}};
  const json ropes[] = {{{"rope_theta", 100000}},
                        {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 5e5}},
                        {{"rope_type", "dynamic"}, {"factor", 2}},
                        {{"rope_type", "yarn"}, {"factor", 4}, {"rope_theta", 1e6}},
                        {{"rope_type", "llama3"}, {"factor", 8}},
                        {{"rope_theta", 5}, {"partial_rotary_factor", 0.5}},
                        {{"rope_type", "divisors"}, {"rope_theta", 11}, {"divisors", {1, 2, 3, 4.5}}},
                        longrope};
  for (const json& rope : ropes) {
    json fields = small("llama");
    fields["rope_parameters"] = rope;
    const Model model = recipe_with(fields).model;
    json config = model_config(model);
    EXPECT_EQ(config["rope_theta"], std::get<LlamaModel>(model).rope.theta) << rope;
    EXPECT_EQ(config["rope_scaling"].is_null(), !rope.contains("rope_type")) << rope;
    EXPECT_FALSE(config["rope_scaling"].contains("rope_theta")) << rope;
    EXPECT_EQ(config.value("partial_rotary_factor", 1.0), std::get<LlamaModel>(model).rope.partial) << rope;
    json older = config;
    older.erase("rope_parameters");
    json newer = config;
    for (const char* key : {"rope_scaling", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings"})
      newer.erase(key);
    const auto table_of = [](json read) {
      read["family"] = "llama";
      const auto again = std::get<LlamaModel>(recipe_with(read).model);
      const RopeTable table = rope_table(again.rope, again.head_dim, again.max_position_embeddings, 16);
      return std::pair(table.frequencies, table.scale);
    };
    const auto expected = table_of(fields);
    EXPECT_EQ(table_of(config), expected) << rope;
    EXPECT_EQ(table_of(older), expected) << rope;
    EXPECT_EQ(table_of(newer), expected) << rope;
    const std::string type = config["rope_parameters"]["rope_type"];
    EXPECT_EQ(config["rope_scaling"].contains("original_max_position_embeddings"),
              type == "longrope" || type == "llama3" || type == "yarn")
        << rope;
  }
  json fields = small("llama");
  fields["rope_parameters"] = longrope;
  EXPECT_EQ(model_config(recipe_with(fields).model)["original_max_position_embeddings"], 32)
      << "transformers 4 looks for longrope's outside";
}

// Returns the divisors that llama.cpp's converter writes into rope_freqs.weight, in f32. They are
// computed here from the formula of Meta's release.
std::vector<double> converted_divisors(double theta, int channels, float factor, float low, float high,
                                       float original) {
  std::vector<double> divisors;
  for (int i = 0; i < channels; i += 2) {
    const float frequency =
        1.0f / static_cast<float>(std::pow(theta, static_cast<float>(i) / static_cast<float>(channels)));
    const float wave = static_cast<float>(2 * M_PI) / frequency;
    if (wave < original / high) {
      divisors.push_back(1);
    } else if (wave > original / low) {
      divisors.push_back(static_cast<double>(factor));
    } else {
      const float smooth = (original / wave - low) / (high - low);
      divisors.push_back(static_cast<double>(1 / ((1 - smooth) / factor + smooth)));
    }
  }
  return divisors;
}

TEST(Decoder, ALlama3IsRecognisedByItsDivisors) {
  const struct {
    double theta;
    int channels;
    float factor, low, high, original;
  } cases[] = {{500000, 128, 8, 1, 4, 8192},   // Llama 3.1
               {500000, 64, 32, 1, 4, 8192},   // Llama 3.2 1B
               {500000, 128, 32, 1, 4, 8192},  // Llama 3.2 3B
               {500, 16, 8, 1, 4, 64},         // one pair is between the two limits
               {10000, 8, 8, 1, 4, 8192},      // no wavelength is long enough for the full factor
               {10000, 16, 16, 1, 4, 16384},   // two pairs are between the limits, and no pair has the full factor
               {1e6, 96, 2.5f, 1, 6, 4096}};
  for (const auto& each : cases) {
    RopeParameters divisors;
    divisors.type = RopeParameters::Type::kDivisors;
    divisors.theta = each.theta;
    divisors.divisors = converted_divisors(each.theta, each.channels, each.factor, each.low, each.high, each.original);
    SCOPED_TRACE(json(divisors.divisors).dump());
    const std::optional<RopeParameters> llama3 = llama3_of_divisors(divisors);
    ASSERT_TRUE(llama3);
    EXPECT_EQ(llama3->type, RopeParameters::Type::kLlama3);
    EXPECT_EQ(llama3->factor, static_cast<double>(each.factor));
    EXPECT_EQ(llama3->low_freq_factor, static_cast<double>(each.low));
    EXPECT_EQ(llama3->high_freq_factor, static_cast<double>(each.high));
    EXPECT_EQ(llama3->original, static_cast<int>(each.original));
    EXPECT_TRUE(llama3->divisors.empty());
    // If one divisor is changed, the divisors must not be recognised as Llama 3's. Cases with only
    // one or two divisors other than 1 are omitted, because some factor fits them.
    for (size_t i = 0; i < divisors.divisors.size() && each.factor != 16 && each.channels > 8; i += 3) {
      RopeParameters other = divisors;
      other.divisors[i] *= 1.001;
      EXPECT_FALSE(llama3_of_divisors(other)) << i;
    }
  }
  // The divisors were made with unusual frequency factors. A file that states its original length
  // must give these factors. A file without the length must give factors in the same proportion.
  RopeParameters rope;
  rope.type = RopeParameters::Type::kDivisors;
  rope.theta = 500000;
  rope.divisors = converted_divisors(500000, 128, 8, 2, 10, 8192);
  rope.original = 8192;
  EXPECT_EQ(llama3_of_divisors(rope)->low_freq_factor, 2);
  EXPECT_EQ(llama3_of_divisors(rope)->high_freq_factor, 10);
  rope.original = 0;
  EXPECT_EQ(llama3_of_divisors(rope)->low_freq_factor, 1);
  EXPECT_EQ(llama3_of_divisors(rope)->high_freq_factor, 5);
  EXPECT_EQ(llama3_of_divisors(rope)->original, 4096);
  json fields = small("llama");
  fields["rope_parameters"] = {{"rope_type", "divisors"},
                               {"rope_theta", 10000},
                               {"divisors", converted_divisors(10000, 8, 8, 1, 4, 8192)}};
  const json written = model_config(recipe_with(fields).model);
  EXPECT_EQ(written["rope_parameters"]["rope_type"], "llama3") << written;
  EXPECT_EQ(written["rope_scaling"]["original_max_position_embeddings"], 8192) << written;
}

// transformers 5 refuses an integer where it expects a float, and 16.0 where it expects an integer.
TEST(Decoder, NumbersAreWrittenInTheTypesThatTransformersTakes) {
  for (const char* family : {"gemma2", "gemma3"}) {
    json fields = small(family);
    fields.update({{"query_pre_attn_scalar", 16.0},
                   {"attn_logit_softcapping", 50},
                   {"final_logit_softcapping", 30},
                   {"rms_norm_eps", 1e-6},
                   {"initializer_range", 1}});
    const json config = model_config(recipe_with(fields).model);
    EXPECT_TRUE(config["query_pre_attn_scalar"].is_number_integer()) << config;
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "rms_norm_eps", "initializer_range"})
      EXPECT_TRUE(config[key].is_number_float()) << key;
    for (const char* key : {"sliding_window", "head_dim", "hidden_size", "max_position_embeddings"})
      EXPECT_TRUE(config[key].is_number_integer()) << key;
    fields["query_pre_attn_scalar"] = 12.5;
    EXPECT_EQ(model_config(recipe_with(fields).model)["query_pre_attn_scalar"], 12.5);
  }
}

TEST(Decoder, APlanSaysWhichFactorsOfALongropeAreUsed) {
  json fields = small("llama");
  fields["rope_parameters"] = {{"rope_type", "longrope"},
                               {"short_factor", {1, 1, 1.5, 2}},
                               {"long_factor", {1, 2, 3, 4}},
                               {"original_max_position_embeddings", 32}};
  const Model model = recipe_with(fields).model;
  EXPECT_EQ(rope_factors_text(model, 32).find(
                "short_factor, as the sequence of 32 is within original_max_position_embeddings, 32"),
            0u)
      << rope_factors_text(model, 32);
  EXPECT_EQ(rope_factors_text(model, 33).find(
                "long_factor for samples of every length, as the sequence of 33 is above"),
            0u)
      << rope_factors_text(model, 33);
  EXPECT_EQ(rope_factors_text(recipe_with(small("llama")).model, 33), "");
}

TEST(Decoder, WhatIsReadIsWrittenAndReadBack) {
  const json yarn = {{"rope_type", "yarn"},   {"rope_theta", 1e6},
                     {"factor", 4},           {"original_max_position_embeddings", 32},
                     {"beta_fast", 16},       {"mscale", 0.7},
                     {"mscale_all_dim", 0.9}, {"truncate", false}};
  const json longrope = {{"rope_type", "longrope"},
                         {"short_factor", {1, 1, 1.5, 2}},
                         {"long_factor", {1, 2, 3, 4}},
                         {"original_max_position_embeddings", 32}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8},
                       {"low_freq_factor", 1},
                       {"high_freq_factor", 4},
                       {"original_max_position_embeddings", 32}};
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    for (const json& rope : {yarn, longrope, llama3, json{{"rope_type", "dynamic"}, {"factor", 2}},
                             json{{"rope_theta", 5}, {"partial_rotary_factor", 0.5}}}) {
      json model = small(family);
      model["rope_parameters"] = rope;
      model["tie_word_embeddings"] = true;
      const Recipe recipe = recipe_with(model);
      EXPECT_EQ(parse_recipe(canonical_recipe(recipe), "some.json", "/"), recipe) << family << " " << rope;
    }
  }
}

TEST(Decoder, ParametersOfEachFamily) {
  using Shape = std::vector<uint64_t>;
  const auto llama = parameters_of(recipe_with(small("llama")));
  EXPECT_EQ(llama.at("model.embed_tokens.weight"), (Shape{50, 24}));
  EXPECT_EQ(llama.at("lm_head.weight"), (Shape{50, 24}));
  EXPECT_EQ(llama.at("model.norm.weight"), (Shape{24}));
  EXPECT_EQ(llama.at("model.layers.1.self_attn.q_proj.weight"), (Shape{32, 24}));
  EXPECT_EQ(llama.at("model.layers.1.self_attn.k_proj.weight"), (Shape{16, 24}));
  EXPECT_EQ(llama.at("model.layers.1.self_attn.o_proj.weight"), (Shape{24, 32}));
  EXPECT_EQ(llama.at("model.layers.0.mlp.down_proj.weight"), (Shape{24, 40}));
  EXPECT_EQ(llama.size(), 3u + 2 * 9);  // no biases
  json tied = small("llama");
  tied.update({{"tie_word_embeddings", true}, {"attention_bias", true}, {"mlp_bias", true}});
  const auto biased = parameters_of(recipe_with(tied));
  EXPECT_EQ(biased.count("lm_head.weight"), 0u);
  EXPECT_EQ(biased.at("model.layers.0.self_attn.o_proj.bias"), (Shape{24}));
  EXPECT_EQ(biased.size(), 2u + 2 * (9 + 4 + 3));
  const auto qwen2 = parameters_of(recipe_with(small("qwen2")));
  EXPECT_EQ(qwen2.at("model.layers.0.self_attn.v_proj.bias"), (Shape{16}));
  EXPECT_EQ(qwen2.count("model.layers.0.self_attn.o_proj.bias"), 0u);
  const auto qwen3 = parameters_of(recipe_with(small("qwen3")));
  EXPECT_EQ(qwen3.at("model.layers.0.self_attn.q_norm.weight"), (Shape{8}));
  EXPECT_EQ(qwen3.count("model.layers.0.self_attn.v_norm.weight"), 0u);
  EXPECT_EQ(model_with<Qwen3Model>({{"head_dim", nullptr}}).head_dim, 128);
  EXPECT_EQ(model_with<LlamaModel>({{"head_dim", nullptr}}).head_dim, 6);
}

// Targets and patterns match the end of a layer's name, in whole parts between dots. They may
// contain * and ?.
TEST(Decoder, AdaptersHaveTheRanksAndScalesOfTheirLayers) {
  const json lora = {{"r", 2},
                     {"alpha", 4},
                     {"targets", {"v_proj", "layers.1.self_attn.?_proj", "0.mlp.*"}},
                     {"rank_pattern", {{"v_proj", 3}, {"1.self_attn.v_proj", 5}, {"up*", 4}}},
                     {"alpha_pattern", {{"up_proj", 16}}}};
  const auto with = [&](const json& change) {
    json changed = lora;
    changed.merge_patch(change);
    return recipe_with(small("llama"), {{"lora", changed}});
  };
  const Graph graph = build_model(with(json::object()));
  std::map<std::string, std::pair<uint32_t, float>> adapters;  // rank and scale, by layer
  for (const Node& node : graph.nodes) {
    if (node.low_rank == kNoNode) continue;
    const Node& down = graph.nodes[node.low_rank];
    adapters[node.name.substr(13)] = {graph.tensor(down.parameters[0]).shape[0],
                                      graph.attributes.of<LinearAttribute>()[down.attribute].scale};
    EXPECT_EQ(graph.tensor(node.parameters[2]).shape[1], adapters[node.name.substr(13)].first);
  }
  const std::map<std::string, std::pair<uint32_t, float>> expected = {{"0.self_attn.v_proj", {3, 4 / 3.0f}},
                                                                      {"1.self_attn.q_proj", {2, 2}},
                                                                      {"1.self_attn.k_proj", {2, 2}},
                                                                      {"1.self_attn.v_proj", {5, 4 / 5.0f}},
                                                                      {"1.self_attn.o_proj", {2, 2}},
                                                                      {"0.mlp.gate_proj", {2, 2}},
                                                                      {"0.mlp.up_proj", {4, 4}},
                                                                      {"0.mlp.down_proj", {2, 2}}};
  EXPECT_EQ(adapters, expected);
  for (const Value& value : graph.values)
    EXPECT_EQ(value.trainable, value.kind == ValueKind::kParameter && is_adapter(value.name)) << value.name;
  const Graph stable = build_model(with({{"rslora", true}}));
  for (const Node& node : stable.nodes) {
    if (node.name != "model.layers.0.mlp.up_proj.lora_A") continue;
    EXPECT_EQ(stable.attributes.of<LinearAttribute>()[node.attribute].scale, 8) << "alpha 16 over the root of rank 4";
  }
  const auto refused = [&](const json& change, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { build_model(with(change)); }, fragments);
  };
  refused({{"targets", {"v_proj", "layers.2.*"}}},
          {"lora.targets[1]", "\"layers.2.*\" is no linear layer or convolution of one group of the model, which has",
           "\"up_proj\""});
  refused({{"targets", {"proj"}}}, {"lora.targets[0]", "\"proj\""});
  refused({{"rank_pattern", {{"query", 3}}}},
          {"lora.rank_pattern.query", "matches no layer with an adapter", "\"q_proj\""});
  refused({{"alpha_pattern", {{"0.self_attn.q_proj", 3}}}},
          {"lora.alpha_pattern.0.self_attn.q_proj", "matches no layer with an adapter"});
}

// A module to save is trained directly and gets no adapter. A head that is tied to the embeddings
// is one table under either name.
TEST(Decoder, ModulesToSaveTrainWhole) {
  const auto graph_of = [](const json& modules, bool tied, const json& more = json::object()) {
    json model = small("llama"), lora = {{"r", 2}, {"modules_to_save", modules}};
    model["tie_word_embeddings"] = tied;
    lora.update(more);
    return build_model(recipe_with(model, {{"lora", lora}}));
  };
  const auto whole = [](const Graph& graph) {
    std::set<std::string> names;
    for (const Value& value : graph.values) {
      if (value.trainable && !is_adapter(value.name)) names.insert(value.name);
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(whole(graph_of({"lm_head"}, false)), (Names{"lm_head.weight"}));
  for (const char* name : {"lm_head", "embed_tokens", "model.embed_tokens"})
    EXPECT_EQ(whole(graph_of({name}, true)), (Names{"model.embed_tokens.weight"})) << name;
  EXPECT_EQ(whole(graph_of({"norm", "layers.1.*_layernorm"}, false)),
            (Names{"model.norm.weight", "model.layers.1.input_layernorm.weight",
                   "model.layers.1.post_attention_layernorm.weight"}));
  const Graph mlp = graph_of({"layers.1.mlp"}, false);
  EXPECT_EQ(whole(mlp), (Names{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
                               "model.layers.1.mlp.down_proj.weight"}));
  for (const Value& value : mlp.values)
    EXPECT_FALSE(is_adapter(value.name) && value.name.find("1.mlp") != std::string::npos) << value.name;
  expect_user_error(
      [&] {
        graph_of({"lm_head", "classifier"}, false);
      },
      {"lora.modules_to_save[1]", "\"classifier\" is no module of the model", "\"lm_head\""});
  expect_user_error([&] { graph_of({"head"}, true); }, {"lora.modules_to_save[0]", "\"embed_tokens\"", "\"lm_head\""});
  expect_user_error(
      [&] {
        graph_of({"self_attn"}, false, {{"targets", {"down_proj", "q_proj"}}});
      },
      {"lora.targets[1]", "\"q_proj\" is trained whole by lora.modules_to_save"});
  expect_user_error([&] { graph_of({"layers"}, false); }, {"lora.modules_to_save", "leaves no layer an adapter"});
  expect_user_error(
      [&] {
        graph_of({"mlp"}, false, {{"rank_pattern", {{"up_proj", 4}}}});
      },
      {"lora.rank_pattern.up_proj", "matches no layer with an adapter", "\"q_proj\""});
}

// If a config omits a field, the field has the default of its family in transformers.
TEST(Decoder, DefaultsAreThoseOfTheFamilies) {
  EXPECT_EQ(model_with<MistralModel>(json::object()).sliding_window, 4096);
  EXPECT_EQ(model_with<MistralModel>({{"sliding_window", 7}}).sliding_window, 7);
  const json no_window = json::parse(
      R"({"family": "mistral", "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
                                         "num_attention_heads": 4, "max_position_embeddings": 64, "sliding_window": null})");
  EXPECT_EQ(std::get<MistralModel>(recipe_with(no_window).model).sliding_window, 0);
  EXPECT_EQ(model_with<Phi3Model>(json::object()).sliding_window, 0);
  const auto smollm3 = model_with<SmolLm3Model>({{"num_hidden_layers", 5}, {"pretraining_tp", 2}});
  EXPECT_EQ(smollm3.no_rope_layers, (std::vector<int>{1, 1, 1, 0, 1}));
  EXPECT_EQ(smollm3.rope.theta, 2e6);
  EXPECT_TRUE(smollm3.tie_word_embeddings);
  EXPECT_EQ(model_with<SmolLm3Model>({{"no_rope_layer_interval", 2}, {"num_hidden_layers", 3}}).no_rope_layers,
            (std::vector<int>{1, 0, 1}));
  const auto gemma2 = model_with<Gemma2Model>({{"num_hidden_layers", 3}});
  EXPECT_EQ(gemma2.windowed, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(std::pair(gemma2.attn_logit_softcapping, gemma2.final_logit_softcapping), std::pair(50.0, 30.0));
  EXPECT_EQ(gemma2.query_pre_attn_scalar, 256);
  const auto gemma3 = model_with<Gemma3Model>({{"num_hidden_layers", 7}});
  EXPECT_EQ(gemma3.windowed, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_EQ(std::pair(gemma3.rope.theta, gemma3.local_rope.theta), std::pair(1e6, 1e4));
  EXPECT_EQ(gemma3.final_logit_softcapping, 0);
  EXPECT_EQ(model_with<Gemma3Model>({{"sliding_window_pattern", 2}}).windowed, (std::vector<bool>{true, false}));
  EXPECT_EQ(model_with<Gemma3Model>({{"rope_theta", 50},
                                     {"rope_local_base_freq", 9},
                                     {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}})
                .local_rope.theta,
            9);
}

// The config is like those of Llama 2 and TinyLlama: it has older fields, some of which are absent
// or null.
TEST(Decoder, ConfigsOfLlama2AreRead) {
  const json published = json::parse(
      R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096,
      "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
      "num_hidden_layers": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "tie_word_embeddings": false,
      "torch_dtype": "float16", "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000, "family": "llama"})");
  const auto llama2 = std::get<LlamaModel>(recipe_with(published).model);
  EXPECT_EQ(llama2.num_key_value_heads, 32);
  EXPECT_EQ(llama2.head_dim, 128);
  EXPECT_EQ(llama2.rope.theta, 10000);
  json tiny = published;
  tiny.update({{"hidden_size", 2048},
               {"intermediate_size", 5632},
               {"num_hidden_layers", 22},
               {"num_key_value_heads", 4},
               {"max_position_embeddings", 2048}});
  const auto tiny_llama = std::get<LlamaModel>(recipe_with(tiny).model);
  EXPECT_EQ(tiny_llama.head_dim, 64);
  EXPECT_EQ(tiny_llama.num_key_value_heads, 4);
}

// The layers of each family have Hugging Face's names.
TEST(Decoder, FusedLayersAndNormsOfTheFamilies) {
  using Shape = std::vector<uint64_t>;
  const auto phi3 = parameters_of(recipe_with(small("phi3"), {{"lora", {{"r", 2}, {"targets", "all-linear"}}}}));
  EXPECT_EQ(phi3.at("model.layers.1.self_attn.qkv_proj.weight"), (Shape{64, 24}));
  EXPECT_EQ(phi3.at("model.layers.1.mlp.gate_up_proj.weight"), (Shape{80, 24}));
  EXPECT_EQ(phi3.at("model.layers.1.mlp.gate_up_proj.lora_B.weight"), (Shape{80, 2}));
  EXPECT_EQ(phi3.count("model.layers.1.self_attn.q_proj.weight"), 0u);
  const auto gemma3 = parameters_of(recipe_with(small("gemma3")));
  for (const char* norm :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    EXPECT_EQ(gemma3.at(std::string("model.layers.0.") + norm + ".weight"), (Shape{24})) << norm;
  }
  EXPECT_EQ(gemma3.at("model.layers.0.self_attn.k_norm.weight"), (Shape{8}));
  EXPECT_EQ(gemma3.count("lm_head.weight"), 0u);
  EXPECT_EQ(parameters_of(recipe_with(small("gemma2"))).count("model.layers.0.self_attn.k_norm.weight"), 0u);
}

// Every field of a family can be read back from the canonical recipe. A written config has the
// fields of transformers 4.
TEST(Decoder, FieldsOfTheFamiliesAreWrittenAndReadBack) {
  const std::pair<const char*, json> cases[] = {
      {"mistral", {{"sliding_window", 9}}},
      {"smollm3", {{"no_rope_layers", {0, 1}}}},
      {"phi3", {{"sliding_window", 5}, {"partial_rotary_factor", 0.5}}},
      {"gemma2",
       {{"attn_logit_softcapping", 7},
        {"query_pre_attn_scalar", 12},
        {"layer_types", {"full_attention", "sliding_attention"}}}},
      {"gemma3",
       {{"rope_theta", 70}, {"rope_local_base_freq", 11}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8}}}}}};
  for (const auto& [family, change] : cases) {
    json model = small(family);
    model.update(change);
    const Recipe recipe = recipe_with(model);
    EXPECT_EQ(parse_recipe(canonical_recipe(recipe), "some.json", "/"), recipe) << family;
    json config = model_config(recipe.model);
    config["family"] = family;
    EXPECT_EQ(recipe_with(config).model, recipe.model) << family << " " << config;
    if (!config.contains("rope_parameters")) continue;
    config.erase("rope_parameters");
    EXPECT_EQ(recipe_with(config).model, recipe.model) << "as transformers 4 reads it: " << family << " " << config;
  }
}

TEST(Decoder, EveryHalfOfABlockIsALink) {
  EXPECT_EQ(build_model(recipe_with(small("qwen3"))).boundaries.size(), 1u + 2 * 2);
}

TEST(Decoder, VariantsAreRefusedByName) {
  const struct {
    const char* family;
    json change;
    const char* words;
  } cases[] = {
      {"qwen2", {{"use_sliding_window", true}}, "model.use_sliding_window: is not available"},
      {"llama", {{"sliding_window", 4096}}, "model.sliding_window: is not available"},
      {"smollm3", {{"use_sliding_window", true}}, "model.use_sliding_window: is not available"},
      {"mistral",
       {{"layer_types", {"sliding_attention", "full_attention"}}},
       "model.layer_types: must be \"sliding_attention\" everywhere"},
      {"mistral", {{"sliding_window", 0}}, "model.sliding_window"},
      {"smollm3", {{"no_rope_layers", {1}}}, "model.no_rope_layers: must have a number for each of the 2 blocks"},
      {"smollm3", {{"no_rope_layers", {1, 2}}}, "model.no_rope_layers"},
      {"phi3", {{"resid_pdrop", 0.1}}, "model.resid_pdrop: must be 0"},
      {"gemma2", {{"hidden_activation", "gelu"}}, "model.hidden_activation: must be \"gelu_pytorch_tanh\""},
      {"gemma2", {{"layer_types", {"full_attention"}}}, "model.layer_types: must have a word for each of the 2 blocks"},
      {"gemma3", {{"layer_types", {"full_attention", "chunked_attention"}}}, "\"chunked_attention\""},
      {"gemma3", {{"use_bidirectional_attention", true}}, "model.use_bidirectional_attention: must be false"},
      {"gemma3",
       {{"rope_local_base_freq", 5},
        {"rope_parameters", {{"full_attention", {{"rope_theta", 100}}}, {"sliding_attention", {{"rope_theta", 7}}}}}},
       "model.rope_local_base_freq"},
      {"qwen3",
       {{"layer_types", {"full_attention", "sliding_attention"}}},
       "model.layer_types: must be \"full_attention\""},
      {"qwen3", {{"num_experts", 128}}, "a mixture of experts"},
      {"llama", {{"num_local_experts", 8}}, "a mixture of experts"},
      {"llama", {{"rope_scaling", {{"rope_type", "mrope"}, {"factor", 2}}}}, "model.rope_scaling.rope_type: must be"},
      {"llama", {{"rope_parameters", {{"rope_type", "linear"}}}}, "model.rope_parameters.factor: missing"},
      {"llama",
       {{"rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}}},
       "for each of the 4 pairs"},
      {"llama", {{"hidden_act", "gelu"}}, "model.hidden_act: must be \"silu\""},
      {"llama", {{"num_key_value_heads", 3}}, "model.num_key_value_heads: must divide"},
      {"llama", {{"head_dim", 7}}, "even number of channels"},
      {"llama", {{"head_dim", 512}}, "model.head_dim: must be at most 256"},
      {"llama", {{"quantization_config", {{"quant_method", "gptq"}}}}, "model.quantization_config: is not available"},
      {"llama", {{"max_position_embeddings", 8}}, "sequence: must be at most the model's max_position_embeddings (8)"},
  };
  for (const auto& c : cases) {
    json model = small(c.family);
    model.merge_patch(c.change);
    expect_user_error([&] { recipe_with(model); }, {c.words});
  }
  EXPECT_EQ(model_with<Qwen2Model>({{"use_sliding_window", false}, {"sliding_window", 4096}}).num_hidden_layers, 2);
}

// ---- the table of frequencies, as transformers 5.23's modeling_rope_utils computes it ----

TEST(RopeTable, Default) {
  RopeParameters rope;
  EXPECT_EQ(rope_table(rope, 8, 64, 16).frequencies, (std::vector<float>{1.0f, 0.1f, 0.01f, 0.001f}));
  rope.partial = 0.5;
  EXPECT_EQ(rope_table(rope, 8, 64, 16).frequencies.size(), 2u);
}

TEST(RopeTable, LinearDividesAndDynamicWaitsForLongerTexts) {
  RopeParameters rope;
  rope.factor = 4;
  rope.type = Type::kLinear;
  EXPECT_EQ(rope_table(rope, 8, 64, 16).frequencies, (std::vector<float>{0.25f, 0.1f / 4, 0.01f / 4, 0.001f / 4}));
  rope.type = Type::kDynamic;
  EXPECT_EQ(rope_table(rope, 8, 64, 64).frequencies, rope_table({}, 8, 64, 64).frequencies);
}

TEST(RopeTable, DivisorsOfEachPair) {
  RopeParameters rope;
  rope.type = Type::kDivisors;
  rope.divisors = {1, 2, 4, 8};
  EXPECT_EQ(rope_table(rope, 8, 64, 16).frequencies, (std::vector<float>{1.0f, 0.05f, 0.0025f, 0.000125f}));
}

}  // namespace
}  // namespace reprise
