// Tests recipes: every key and default of tools/FILES.md, and one clear line for every error. A
// recipe is the first file that a user writes, and errors in it are frequent.
#include "tools/plan/recipes/recipe.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

using nlohmann::json;

const char* const kResNet = R"({"model": {"family": "resnet", "image": [28, 28, 1]}, "batch": 4})";
const char* const kGpt = R"({"model": {"family": "gpt2"}, "batch": 2})";

Recipe parse(const std::string& text) { return parse_recipe(text, "some.json", "/base/folder"); }

// Returns the recipe `base`, changed by the JSON merge patch `patch`, in which null removes a key.
std::string patched(const char* base, const char* patch) {
  json value = json::parse(base);
  value.merge_patch(json::parse(patch));
  return value.dump();
}

TEST(Recipe, ResNetDefaults) {
  const Recipe recipe = parse(kResNet);
  const ResNetModel& model = std::get<ResNetModel>(recipe.model);
  EXPECT_EQ(model.block, ResNetModel::Block::kBasic);
  EXPECT_EQ(model.units, (std::vector<int>{3, 3, 3}));
  EXPECT_EQ(model.width, 16);
  EXPECT_EQ(model.stem, ResNetModel::Stem::kCifar);
  EXPECT_EQ(model.classes, 10);
  EXPECT_EQ(model.image_height, 28);
  EXPECT_EQ(model.image_channels, 1);
  EXPECT_EQ(recipe.name, "some");
  EXPECT_EQ(recipe.batch, 4);
  EXPECT_EQ(recipe.sequence, 0);
  EXPECT_EQ(recipe.accumulate, 1);
  EXPECT_EQ(recipe.data.kind, DataSource::Kind::kNone);
  EXPECT_TRUE(recipe.data.shuffle);
  EXPECT_EQ(recipe.optimizer.update, Op::kSgd);
  EXPECT_EQ(recipe.optimizer.lr, 1e-3);
  EXPECT_EQ(recipe.optimizer.weight_decay, 0);
  EXPECT_EQ(recipe.schedule.strategy, "optimal");
  EXPECT_FALSE(recipe.budget_bytes.has_value());
  EXPECT_FALSE(recipe.clip_norm.has_value());
  const Recipe imagenet =
      parse(patched(kResNet, R"({"model": {"stem": "imagenet", "units": [3, 4, 6, 3], "block": "bottleneck"}})"));
  EXPECT_EQ(std::get<ResNetModel>(imagenet.model).width, 64);
}

TEST(Recipe, Gpt2Defaults) {
  const Recipe recipe = parse(kGpt);
  const Gpt2Model& model = std::get<Gpt2Model>(recipe.model);
  EXPECT_EQ(model.vocab_size, 50257);
  EXPECT_EQ(model.n_positions, 1024);
  EXPECT_EQ(model.n_embd, 768);
  EXPECT_EQ(model.n_layer, 12);
  EXPECT_EQ(model.n_head, 12);
  EXPECT_EQ(model.n_inner, 3072);
  EXPECT_EQ(model.resid_pdrop, 0.1);
  EXPECT_EQ(model.embd_pdrop, 0.1);
  EXPECT_EQ(model.attn_pdrop, 0.1);
  EXPECT_EQ(model.layer_norm_epsilon, 1e-5);
  EXPECT_EQ(model.initializer_range, 0.02);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(recipe.sequence, 1024);
  const Recipe adam = parse(patched(
      kGpt,
      R"({"optimizer": {"name": "adamw"}, "model": {"hidden_size": 64, "num_attention_heads": 4, "n_inner": null, "torch_dtype": 1}})"));
  EXPECT_EQ(adam.optimizer.beta1, 0.9);
  EXPECT_EQ(adam.optimizer.beta2, 0.999);
  EXPECT_EQ(adam.optimizer.eps, 1e-8);
  EXPECT_EQ(adam.optimizer.weight_decay, 0.01);
  const Recipe lion = parse(patched(kGpt, R"({"optimizer": {"name": "lion"}})"));
  EXPECT_EQ(lion.optimizer.beta1, 0.9);
  EXPECT_EQ(lion.optimizer.beta2, 0.99);
  EXPECT_EQ(lion.optimizer.weight_decay, 0);
  EXPECT_EQ(std::get<Gpt2Model>(adam.model).n_embd, 64);
  EXPECT_EQ(std::get<Gpt2Model>(adam.model).n_inner, 256);
}

// A recipe with every key, none at its default.
const char* const kFullResNet =
    R"({"name": "full-1.x", "model": {"family": "resnet", "block": "bottleneck", "units": [1, 2, 3, 4],
  "width": 8, "stem": "imagenet", "classes": 7, "image": [64, 48, 3]}, "data": {"kind": "image_folder", "path": "train",
  "eval_path": "/elsewhere/val", "shuffle": false, "mean": [0.485, 0.456, 0.406], "std": 0.2251, "augment": {"flip": true, "crop": 4},
  "token_bytes": 4, "broken": "skip"}, "batch": 3, "accumulate": 5, "dtype": "bf16", "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9,
  "nesterov": true, "weight_decay": 5e-4, "no_decay": ["*.bias", "bn?.*"]}, "lr_schedule": {"kind": "step", "warmup_steps": 10,
  "milestones": [100, 200], "gamma": 0.3}, "clip_norm": 1.5, "freeze": ["conv1.*"], "evaluate_every": 50,
  "steps": 300, "schedule": {"strategy": "every-k", "k": 4, "residues": false}, "budget": "1.5GiB", "seed": 18446744073709551615, "backend": "auto", "card": "large"})";
const char* const kFullGpt =
    R"({"model": {"family": "gpt2", "vocab_size": 256, "n_positions": 128, "n_embd": 64, "n_layer": 3, "n_head": 2,
  "n_inner": 100, "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0, "embd_pdrop": 0.05, "attn_pdrop": 0.3, "layer_norm_epsilon": 1e-6,
  "initializer_range": 0.1, "tie_word_embeddings": false}, "data": {"kind": "tokens", "path": "../t.bin", "token_bytes": 4, "held_out": 0.125}, "batch": 1,
  "sequence": 100, "optimizer": {"name": "adamw", "lr": 3e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1},
  "lr_schedule": {"kind": "cosine", "warmup_steps": 3}, "gradient_release": true, "evaluate_every": 10, "early_stopping": {"patience": 3}, "steps": 40, "schedule": {"strategy": "multistage", "disk": "2GiB", "write_cost": 3.5, "read_cost": 0},
  "feature_map_budget": 123456789, "backend": "cuda", "math": "bf16x3", "lora": {"r": 4, "alpha": 16, "dropout": 0.05, "targets": ["c_attn", "mlp.c_fc"], "rslora": true,
  "rank_pattern": {"h.0.*": 9, "c_fc": 16, "h.1.mlp.c_fc": 25}, "alpha_pattern": {"h.2.attn.c_attn": 6},
  "modules_to_save": ["lm_head", "h.1.attn"]},
  "weights": {"frozen": "q8_0", "stream": "auto"}, "evaluate_first": true, "prompts": ["Once"], "answer_tokens": 7})";

// A training may be limited by epochs instead of steps. A cosine schedule ends with the training,
// unless the recipe gives another end.
TEST(Recipe, EpochsStandInPlaceOfSteps) {
  const auto with = [](const char* more) {
    return parse(R"({"model": {"family": "resnet", "units": [1, 1, 1], "image": [8, 8, 3]}, "batch": 2, )" +
                 std::string(more) + "}");
  };
  const Recipe both = with(R"("epochs": 2.5, "lr_schedule": {"kind": "cosine", "warmup_steps": 100})");
  EXPECT_EQ(both.epochs, 2.5);
  EXPECT_EQ(both.steps, 0u);
  EXPECT_EQ(both.lr_schedule.epochs, 2.5);
  EXPECT_EQ(both.lr_schedule.steps, 0u);
  const Recipe own = with(R"("epochs": 2, "lr_schedule": {"kind": "cosine", "steps": 9})");
  EXPECT_EQ(own.lr_schedule.steps, 9u);
  EXPECT_FALSE(own.lr_schedule.epochs);
  const Recipe passes = with(R"("steps": 7, "lr_schedule": {"kind": "cosine", "epochs": 3})");
  EXPECT_EQ(passes.lr_schedule.steps, 0u);
  EXPECT_EQ(passes.lr_schedule.epochs, 3);
  EXPECT_FALSE(with(R"("epochs": 2)").lr_schedule.epochs) << "a constant rate has no end";
  for (const Recipe& recipe : {both, own, passes})
    EXPECT_EQ(canonical_recipe(parse(canonical_recipe(recipe))), canonical_recipe(recipe));
}

TEST(Recipe, EveryKeyArrives) {
  const Recipe recipe = parse(kFullResNet);
  const ResNetModel& model = std::get<ResNetModel>(recipe.model);
  EXPECT_EQ(recipe.name, "full-1.x");
  EXPECT_EQ(model.block, ResNetModel::Block::kBottleneck);
  EXPECT_EQ(model.units, (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(model.width, 8);
  EXPECT_EQ(model.image_width, 48);
  EXPECT_EQ(recipe.data.path, "/base/folder/train");
  EXPECT_EQ(recipe.data.eval_path, "/elsewhere/val");
  EXPECT_FALSE(recipe.data.shuffle);
  EXPECT_EQ(recipe.data.mean.size(), 3u);
  EXPECT_EQ(recipe.data.std, (std::vector<double>{0.2251}));
  EXPECT_TRUE(recipe.data.flip);
  EXPECT_EQ(recipe.data.crop, 4);
  EXPECT_EQ(recipe.data.broken, DataSource::Broken::kSkip);
  EXPECT_EQ(recipe.accumulate, 5);
  EXPECT_EQ(recipe.dtype, Recipe::Dtype::kBf16);
  EXPECT_EQ(recipe.optimizer.no_decay, (std::vector<std::string>{"*.bias", "bn?.*"}));
  EXPECT_TRUE(recipe.optimizer.nesterov);
  EXPECT_EQ(recipe.lr_schedule.milestones, (std::vector<uint64_t>{100, 200}));
  EXPECT_EQ(recipe.clip_norm, 1.5);
  EXPECT_EQ(recipe.evaluate_every, 50u);
  EXPECT_EQ(recipe.schedule.k, 4);
  EXPECT_FALSE(recipe.schedule.residues);
  EXPECT_EQ(recipe.budget_bytes, uint64_t{3} << 29);
  EXPECT_EQ(recipe.seed, ~uint64_t{0});
  EXPECT_EQ(recipe.backend, Recipe::BackendChoice::kAuto);
  EXPECT_EQ(recipe.card, Recipe::CardSize::kLarge);

  const Recipe gpt = parse(kFullGpt);
  EXPECT_EQ(gpt.data.path, "/base/t.bin");
  EXPECT_EQ(gpt.sequence, 100);
  EXPECT_EQ(gpt.math, Recipe::Math::kBf16x3);
  EXPECT_EQ(gpt.optimizer.beta2, 0.95);
  EXPECT_EQ(gpt.lr_schedule.steps, 40u);  // by default the steps of the recipe
  EXPECT_TRUE(gpt.gradient_release);
  EXPECT_EQ(gpt.feature_map_budget_bytes, 123456789u);
  EXPECT_EQ(gpt.schedule.disk_bytes, uint64_t{2} << 30);
  EXPECT_EQ(gpt.schedule.write_cost, 3.5);
  EXPECT_EQ(gpt.schedule.read_cost, 0.0);
  EXPECT_EQ(std::get<Gpt2Model>(gpt.model).n_inner, 100);
  EXPECT_FALSE(std::get<Gpt2Model>(gpt.model).tie_word_embeddings);
  EXPECT_EQ(gpt.lora->r, 4);
  EXPECT_EQ(gpt.lora->scale_of("transformer.h.1.attn.c_attn"), 8);  // 16 / sqrt(4)
  EXPECT_EQ(gpt.lora->rank_of("transformer.h.0.attn.c_attn"), 9);
  EXPECT_EQ(gpt.lora->rank_of("transformer.h.0.mlp.c_fc"), 9) << "of several patterns the longest";
  EXPECT_EQ(gpt.lora->rank_of("transformer.h.1.mlp.c_fc"), 25);
  EXPECT_EQ(gpt.lora->rank_of("transformer.h.2.mlp.c_fc"), 16);
  EXPECT_EQ(gpt.lora->scale_of("transformer.h.1.mlp.c_fc"), 16 / 5.0) << "by the layer's own rank";
  EXPECT_EQ(gpt.lora->scale_of("transformer.h.2.attn.c_attn"), 3);
  EXPECT_TRUE(gpt.lora->saves_module("lm_head"));
  EXPECT_TRUE(gpt.lora->saves_module("transformer.h.1.attn.c_proj")) << "it lies in one that is named";
  EXPECT_FALSE(gpt.lora->saves_module("transformer.h.1.mlp.c_proj"));
  EXPECT_EQ(gpt.lora->dropout, 0.05);
  EXPECT_EQ(gpt.lora->targets, (std::vector<std::string>{"c_attn", "mlp.c_fc"}));
  EXPECT_EQ(gpt.weights.frozen, DType::kQ8_0);
  EXPECT_EQ(gpt.weights.stream, WeightsRecipe::Stream::kByPlan);
  EXPECT_TRUE(gpt.evaluate_first);
  EXPECT_EQ(gpt.prompts, (std::vector<std::string>{"Once"}));
  EXPECT_EQ(gpt.answer_tokens, 7);
  EXPECT_EQ(gpt.data.held_out, 0.125);
  EXPECT_EQ(gpt.early_stopping->patience, 3u);
  EXPECT_EQ(parse(R"({"model": {"family": "gpt2"}, "batch": 2, "lora": {"r": 6}})")
                .lora->scale_of("transformer.h.0.mlp.c_fc"),
            1);
  EXPECT_FALSE(parse(R"({"model": {"family": "gpt2"}, "batch": 2, "lora": null})").lora.has_value());
  const Recipe dora = parse(R"({"model": {"family": "gpt2"}, "batch": 2, "lora": {"r": 6, "dora": true}})");
  EXPECT_TRUE(dora.lora->dora);
  EXPECT_EQ(nlohmann::json::parse(canonical_recipe(dora)).at("lora").at("dora"), true);
}

Recipe with_optimizer(const std::string& optimizer, const std::string& more = "") {
  return parse(R"({"model": {"family": "gpt2"}, "batch": 2, "optimizer": )" + optimizer + more + "}");
}

// The parsed recipe must have the given settings and the defaults of optimizers with small states.
// The canonical text must read back as an equal recipe.
TEST(Recipe, OptimizersOfSmallStatesArrive) {
  EXPECT_EQ(with_optimizer(R"({"name": "adamw"})").optimizer.states, DType::kF32);
  EXPECT_EQ(with_optimizer(R"({"name": "adamw", "states": "bf16"})").optimizer.states, DType::kBf16);
  EXPECT_EQ(with_optimizer(R"({"name": "lion", "states": "8bit"})").optimizer.states, DType::kDynamic8);
  const OptimizerRecipe adafactor = with_optimizer(R"({"name": "adafactor", "clip_threshold": 2})").optimizer;
  EXPECT_EQ(adafactor.update, Op::kAdafactor);
  EXPECT_FALSE(adafactor.small);
  EXPECT_EQ(adafactor.lr, 0.01);
  EXPECT_EQ(adafactor.eps, 1e-30);
  EXPECT_EQ(adafactor.clip_threshold, 2);
  const Recipe adalomo = with_optimizer(R"({"name": "adalomo"})");
  EXPECT_TRUE(adalomo.optimizer.small && adalomo.gradient_release);
  EXPECT_EQ(with_optimizer(R"({"name": "apollo", "rank": 8})").optimizer.rank, 8u);
  const OptimizerRecipe mini = with_optimizer(R"({"name": "apollo_mini"})").optimizer;
  EXPECT_EQ(mini.update, Op::kApollo);
  EXPECT_EQ(mini.rank, 1u);
  EXPECT_EQ(mini.scale, 128);
  const OptimizerRecipe muon =
      with_optimizer(
          R"({"name": "muon", "lr": 0.02, "adamw_lr": 0.001, "adjust": "match_rms_adamw", "states": "8bit"})")
          .optimizer;
  EXPECT_TRUE(muon.nesterov && muon.matches_adamw);
  EXPECT_EQ(*muon.adamw_lr, 0.001);
  EXPECT_EQ(with_optimizer(R"({"name": "sgd"})", R"(, "trained": {"storage": "bf16"})").trained.storage, DType::kBf16);
  EXPECT_TRUE(with_optimizer(R"({"name": "muon", "offload": true})").optimizer.offload);
  for (const char* text :
       {R"({"name": "adamw", "states": "8bit"})", R"({"name": "adamw", "offload": true})",
        R"({"name": "adafactor", "least_scale": 0.01})", R"({"name": "adalomo", "decay_power": 0.5})",
        R"({"name": "apollo", "period": 3})", R"({"name": "apollo_mini", "scale": 2})",
        R"({"name": "muon", "momentum": 0.5, "adamw_lr": 0.1})"}) {
    const Recipe recipe = with_optimizer(text, R"(, "trained": {"storage": "bf16"}, "lora": {"r": 4, "lr_ratio": 16})");
    EXPECT_EQ(parse(canonical_recipe(recipe)), recipe) << text;
  }
}

TEST(Recipe, LossesOfPairsArrive) {
  const std::string model = R"({"model": {"family": "llama"}, "batch": 2, "sequence": 64, "loss": )";
  const Recipe dpo = parse(model + R"({"kind": "dpo"}})"),
               kto = parse(model + R"({"kind": "kto", "beta": 0.2, "undesirable_weight": 1.5}})");
  EXPECT_EQ(*dpo.loss, (PreferenceAttribute{.kind = static_cast<uint32_t>(PreferenceKind::kDpo), .beta = 0.1}));
  EXPECT_EQ(*kto.loss, (PreferenceAttribute{.kind = static_cast<uint32_t>(PreferenceKind::kKto),
                                            .beta = 0.2,
                                            .undesirable_weight = 1.5}));
  EXPECT_TRUE(has_reference(dpo));
  EXPECT_FALSE(has_reference(parse(model + R"({"kind": "orpo"}})")));
  EXPECT_EQ(micro_batch_of(dpo).pairs, 2);
  EXPECT_TRUE(micro_batch_of(dpo).documents);
  for (const Recipe& recipe : {dpo, kto})
    EXPECT_TRUE(parse(canonical_recipe(recipe)) == recipe) << canonical_recipe(recipe);
}

TEST(Recipe, CanonicalTextReadsBackEqual) {
  for (const char* text : {kResNet, kGpt, kFullResNet, kFullGpt}) {
    const Recipe recipe = parse(text);
    const std::string canonical = canonical_recipe(recipe);
    const Recipe again = parse_recipe(canonical, "other.json", "/quite/elsewhere");
    EXPECT_TRUE(again == recipe) << canonical;
    EXPECT_EQ(canonical_recipe(again), canonical);
  }
  const Recipe random = parse(R"({"model": {"family": "gpt2"}, "batch": 2, "init": "random"})");
  EXPECT_TRUE(random.init.random);
  EXPECT_TRUE(parse(canonical_recipe(random)) == random);
}

TEST(Recipe, RelativeFolderGivesAbsolutePaths) {
  const char* const text =
      R"({"model": {"family": "gpt2"}, "batch": 2, "data": {"kind": "text", "path": "a/../b.txt"}})";
  EXPECT_EQ(parse_recipe(text, "r.json", "").data.path, std::filesystem::current_path().string() + "/b.txt");
  EXPECT_EQ(parse_recipe(text, "r.json", "sub").data.path, std::filesystem::current_path().string() + "/sub/b.txt");
}

TEST(Recipe, FolderThatJsonCannotName) {
  const char* const text = R"({"model": {"family": "gpt2"}, "batch": 2, "data": {"kind": "text", "path": "b.txt"}})";
  const Recipe recipe = parse_recipe(text, "r.json", "/caf\xe9");
  expect_user_error([&] { canonical_recipe(recipe); }, {"r: ", "UTF-8"});
}

TEST(Recipe, HuggingFaceFolder) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("tiny"));
  write_file(
      folder.file("tiny/config.json"),
      R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 32, "n_head": 4, "n_layer": 2, "vocab_size": 300, "n_ctx": 64, "n_positions": 64})");
  write_file(folder.file("r.json"), R"({"model": {"huggingface": "tiny"}, "batch": 2})");
  const Recipe recipe = read_recipe(folder.file("r.json"));
  EXPECT_EQ(std::get<Gpt2Model>(recipe.model).n_embd, 32);
  EXPECT_EQ(recipe.place.huggingface, folder.file("tiny"));
  EXPECT_EQ(recipe.name, "r");
  EXPECT_EQ(recipe.sequence, 64);
  std::filesystem::remove_all(folder.file("tiny"));
  EXPECT_TRUE(parse(canonical_recipe(recipe)) == recipe) << "a canonical recipe needs no other file";

  expect_user_error([&] { read_recipe(folder.file("r.json")); }, {"r.json", "model.huggingface", "config.json"});
  std::filesystem::create_directory(folder.file("tiny"));
  write_file(folder.file("tiny/config.json"), R"({"model_type": "mamba"})");
  expect_user_error([&] { read_recipe(folder.file("r.json")); },
                    {"tiny/config.json", "model_type", "gpt2", "llama", "qwen3", "mamba"});
  write_file(folder.file("tiny/config.json"), R"({"model_type": "gpt2", "n_embd": "big"})");
  expect_user_error([&] { read_recipe(folder.file("r.json")); }, {"tiny/config.json", "n_embd", "integer", "big"});
}

TEST(Recipe, NoSuchFile) {
  expect_user_error([] { read_recipe("/nowhere/r.json"); }, {"/nowhere/r.json", "No such file"});
  expect_user_error([] { read_recipe("/tmp"); }, {"/tmp", "folder"});
}

struct BadRecipe {
  const char* id;
  const char* base;
  const char* patch;
  std::initializer_list<std::string> fragments;
};

// The patch makes `base` wrong in one place; null removes a key. The error must name the file, the
// field, and what would be correct.
const BadRecipe kBadRecipes[] = {
    {"unknown key",
     kResNet,
     R"({"optimiser": {}})",
     {"some.json: optimiser", "unknown", "\"optimizer\"?", "\"batch\""}},
    {"transposed letters", kResNet, R"({"bacth": 4})", {"some.json: bacth", "\"batch\"?"}},
    {"unknown nested key", kResNet, R"({"data": {"kind": "idx", "pth": "x"}})", {"data.pth", "\"path\"?"}},
    {"unknown far key", kResNet, R"({"zzzzzzzz": 1})", {"zzzzzzzz", "unknown", "allowed here"}},
    {"unknown model key", kResNet, R"({"model": {"depth": 20}})", {"model.depth", "unknown", "\"units\""}},
    {"unknown augment key",
     kResNet,
     R"({"data": {"kind": "synthetic", "augment": {"rotate": 1}}})",
     {"data.augment.rotate", "\"flip\""}},
    {"key of another optimizer",
     kResNet,
     R"({"optimizer": {"name": "sgd", "betas": [0, 0]}})",
     {"optimizer.betas", "\"momentum\""}},
    {"new tokens of a model without files",
     kGpt,
     R"({"model": {"new_tokens": ["<a>"]}})",
     {"some.json: model.new_tokens", "\"huggingface\"", "\"gguf\""}},
    {"new tokens of pictures",
     kResNet,
     R"({"model": {"new_tokens": ["<a>"]}})",
     {"some.json: model.new_tokens", "unknown"}},
    {"moments that are small anyway, on the host",
     kResNet,
     R"({"optimizer": {"name": "adafactor", "offload": true}})",
     {"optimizer.offload", "unknown"}},
    {"moments that a release would want within the backward",
     kResNet,
     R"({"optimizer": {"name": "adamw", "offload": true}, "gradient_release": true})",
     {"optimizer.offload", "gradient_release"}},
    {"states of another optimizer",
     kResNet,
     R"({"optimizer": {"name": "adafactor", "states": "8bit"}})",
     {"optimizer.states", "unknown"}},
    {"states that nobody has",
     kResNet,
     R"({"optimizer": {"name": "adamw", "states": "fp8"}})",
     {"optimizer.states", "\"8bit\""}},
    {"gradients kept by AdaLomo",
     kResNet,
     R"({"optimizer": {"name": "adalomo"}, "gradient_release": false})",
     {"gradient_release", "AdaLomo"}},
    {"weights stored so", kResNet, R"({"trained": {"storage": "f16"}})", {"trained.storage", "\"bf16\""}},
    {"a rank of nothing", kResNet, R"({"optimizer": {"name": "apollo", "rank": 0}})", {"optimizer.rank"}},
    {"disk of a strategy without",
     kResNet,
     R"({"schedule": {"strategy": "optimal", "disk": "1GiB"}})",
     {"schedule.disk", "h-revolve"}},
    {"host of a strategy without",
     kResNet,
     R"({"schedule": {"strategy": "revolve", "host": "1GiB"}})",
     {"schedule.host", "h-revolve"}},
    {"disk and host",
     kResNet,
     R"({"schedule": {"strategy": "h-revolve", "disk": "1GiB", "host": "1GiB"}})",
     {"schedule.host", "\"disk\"", "one of the two"}},
    {"a policy that offloads nowhere",
     kResNet,
     R"({"schedule": {"strategy": "policy", "policy": "offload:*"}})",
     {"schedule.host", "offload"}},
    {"a policy that offloads nothing",
     kResNet,
     R"({"schedule": {"strategy": "policy", "policy": "dots", "host": 5}})",
     {"schedule.host", "offload"}},
    {"disk that is no size",
     kResNet,
     R"({"schedule": {"strategy": "h-revolve", "disk": "7XB"}})",
     {"schedule.disk", "7XB"}},
    {"cost of no disk",
     kResNet,
     R"({"schedule": {"strategy": "h-revolve", "write_cost": 1}})",
     {"schedule.disk", "missing"}},
    {"negative cost",
     kResNet,
     R"({"schedule": {"strategy": "h-revolve", "disk": 5, "read_cost": -1}})",
     {"schedule.read_cost"}},
    {"unknown schedule key", kResNet, R"({"schedule": {"stratgy": "none"}})", {"schedule.stratgy", "\"strategy\"?"}},
    {"unknown lr key",
     kResNet,
     R"({"lr_schedule": {"kind": "step", "mile": [1]}})",
     {"lr_schedule.mile", "milestones"}},
    {"newline in a key", kResNet, R"({"a\nb": 1})", {"a\\nb", "unknown"}},
    {"model missing", kResNet, R"({"model": null})", {"model: missing", "family"}},
    {"family missing", kResNet, R"({"model": {"family": null}})", {"model.family: missing", "\"gpt2\""}},
    {"family not known", kGpt, R"({"model": {"family": "mamba"}})", {"model.family", "mamba", "llama", "gpt2"}},
    {"batch missing", kResNet, R"({"batch": null})", {"batch: missing", "micro-batch"}},
    {"batch zero", kResNet, R"({"batch": 0})", {"batch", "from 1", "0"}},
    {"batch negative", kResNet, R"({"batch": -3})", {"batch", "from 1", "-3"}},
    {"batch float", kResNet, R"({"batch": 4.0})", {"batch", "integer", "4.0"}},
    {"batch string", kResNet, R"({"batch": "4"})", {"batch", "integer", "\"4\""}},
    {"batch huge", kResNet, R"({"batch": 99999999999999999999999})", {"batch", "integer"}},
    {"batch beyond memory",
     kResNet,
     R"({"batch": 2147483647, "model": {"image": [65536, 65536, 3]}})",
     {"batch", "2^40"}},
    {"block", kResNet, R"({"model": {"block": "bottelneck"}})", {"model.block", "\"basic\"", "\"bottleneck\"?"}},
    {"two stages", kResNet, R"({"model": {"units": [3, 3]}})", {"model.units", "three or four"}},
    {"empty stage", kResNet, R"({"model": {"units": [3, 0, 3]}})", {"model.units", "from 1"}},
    {"units no list", kResNet, R"({"model": {"units": 3}})", {"model.units", "list"}},
    {"one class", kResNet, R"({"model": {"classes": 1}})", {"model.classes", "from 2"}},
    {"image missing", kResNet, R"({"model": {"image": null}})", {"model.image: missing", "[height, width, channels]"}},
    {"image of two", kResNet, R"({"model": {"image": [28, 28]}})", {"model.image", "[height, width, channels]"}},
    {"image of zero", kResNet, R"({"model": {"image": [0, 28, 1]}})", {"model.image", "from 1"}},
    {"image too small", kResNet, R"({"batch": 1, "model": {"image": [4, 4, 1]}})", {"model.image", "too small"}},
    {"heads", kGpt, R"({"model": {"n_embd": 100, "n_head": 12}})", {"model.n_embd", "multiple of n_head (12)", "100"}},
    {"wide heads", kGpt, R"({"model": {"n_embd": 1024, "n_head": 2}})", {"model.n_head", "256", "at least 4"}},
    {"alias contradicts", kGpt, R"({"model": {"n_embd": 96, "hidden_size": 48}})", {"model.hidden_size", "n_embd"}},
    {"dropout of one", kGpt, R"({"model": {"resid_pdrop": 1.0}})", {"model.resid_pdrop", "1 (excluded)"}},
    {"activation", kGpt, R"({"model": {"activation_function": "silu"}})", {"model.activation_function", "gelu_new"}},
    {"variant",
     kGpt,
     R"({"model": {"scale_attn_by_inverse_layer_idx": true}})",
     {"model.scale_attn_by_inverse_layer_idx", "false"}},
    {"sequence too long", kGpt, R"({"sequence": 2000})", {"sequence", "n_positions (1024)", "2000"}},
    {"sequence of images", kResNet, R"({"sequence": 8})", {"sequence", "language"}},
    {"data kind", kResNet, R"({"data": {"kind": "idx2", "path": "x"}})", {"data.kind", "\"idx\""}},
    {"data kind missing", kResNet, R"({"data": {"path": "x"}})", {"data.kind", "missing"}},
    {"data path missing", kResNet, R"({"data": {"kind": "idx"}})", {"data.path", "missing"}},
    {"data path empty", kResNet, R"({"data": {"kind": "idx", "path": ""}})", {"data.path"}},
    {"text for images", kResNet, R"({"data": {"kind": "text", "path": "x"}})", {"data.kind", "image model"}},
    {"images for text", kGpt, R"({"data": {"kind": "idx", "path": "x"}})", {"data.kind", "language model"}},
    {"crop of text", kGpt, R"({"data": {"kind": "text", "path": "x", "augment": {"crop": 1}}})", {"data", "augment"}},
    {"crop too large",
     kResNet,
     R"({"data": {"kind": "synthetic", "augment": {"crop": 28}}})",
     {"data.augment.crop", "28"}},
    {"flip no bool",
     kResNet,
     R"({"data": {"kind": "synthetic", "augment": {"flip": 1}}})",
     {"data.augment.flip", "true or false"}},
    {"mean of two",
     kResNet,
     R"({"data": {"kind": "idx", "path": "x", "mean": [0.1, 0.2]}})",
     {"data.mean", "1 channels"}},
    {"std zero", kResNet, R"({"data": {"kind": "idx", "path": "x", "std": 0}})", {"data.std", "above 0"}},
    {"mean of tensors",
     kResNet,
     R"({"data": {"kind": "tensors", "path": "x", "mean": 0}})",
     {"data.mean", "as they are"}},
    {"token bytes",
     kGpt,
     R"({"data": {"kind": "tokens", "path": "x", "token_bytes": 3}})",
     {"data.token_bytes", "2 or 4"}},
    {"broken",
     kResNet,
     R"({"data": {"kind": "image_folder", "path": "x", "broken": "skipp"}})",
     {"data.broken", "\"refuse\"", "\"skip\""}},
    {"broken of idx",
     kResNet,
     R"({"data": {"kind": "idx", "path": "x", "broken": "skip"}})",
     {"data.broken", "leave it out", "\"image_folder\""}},
    {"shuffle no bool",
     kGpt,
     R"({"data": {"kind": "text", "path": "x", "shuffle": "yes"}})",
     {"data.shuffle", "true or false", "yes"}},
    {"dtype", kResNet, R"({"dtype": "f16"})", {"dtype", "\"f32\"", "\"bf16\""}},
    {"optimizer name", kResNet, R"({"optimizer": {"name": "adam"}})", {"optimizer.name", "\"adamw\"?"}},
    {"optimizer name missing", kResNet, R"({"optimizer": {"lr": 1}})", {"optimizer.name", "missing"}},
    {"optimizer no object", kResNet, R"({"optimizer": "sgd"})", {"optimizer", "object", "string"}},
    {"lr negative", kResNet, R"({"optimizer": {"name": "sgd", "lr": -1}})", {"optimizer.lr", "at least 0", "-1"}},
    {"lr string", kResNet, R"({"optimizer": {"name": "sgd", "lr": "x"}})", {"optimizer.lr", "number"}},
    {"beta", kResNet, R"({"optimizer": {"name": "adamw", "betas": [0.9, 1]}})", {"optimizer.betas", "1 (excluded)"}},
    {"eps of lion", kResNet, R"({"optimizer": {"name": "lion", "eps": 1}})", {"optimizer.eps", "unknown", "\"betas\""}},
    {"betas of one", kResNet, R"({"optimizer": {"name": "adamw", "betas": [0.9]}})", {"optimizer.betas", "two"}},
    {"nesterov without momentum",
     kResNet,
     R"({"optimizer": {"name": "sgd", "nesterov": true}})",
     {"optimizer.nesterov", "momentum"}},
    {"no_decay of numbers",
     kResNet,
     R"({"optimizer": {"name": "sgd", "no_decay": [1]}})",
     {"optimizer.no_decay", "strings"}},
    {"milestones fall",
     kResNet,
     R"({"lr_schedule": {"kind": "step", "milestones": [5, 5]}})",
     {"lr_schedule.milestones", "rise"}},
    {"milestones missing", kResNet, R"({"lr_schedule": {"kind": "step"}})", {"lr_schedule.milestones", "missing"}},
    {"cosine without steps", kResNet, R"({"lr_schedule": {"kind": "cosine"}})", {"lr_schedule.steps", "missing"}},
    {"warm-up too long",
     kResNet,
     R"({"steps": 5, "lr_schedule": {"kind": "cosine", "warmup_steps": 5}})",
     {"lr_schedule.warmup_steps", "5 steps"}},
    {"clip zero", kResNet, R"({"clip_norm": 0})", {"clip_norm", "above 0"}},
    {"release with clip", kResNet, R"({"clip_norm": 1, "gradient_release": true})", {"gradient_release", "clip_norm"}},
    {"ranks without a number", kResNet, R"({"parallel": {}})", {"parallel.ranks", "processes"}},
    {"too many ranks", kResNet, R"({"parallel": {"ranks": 65}})", {"parallel.ranks", "64"}},
    {"no time for a rank", kResNet, R"({"parallel": {"ranks": 2, "timeout": 0}})", {"parallel.timeout"}},
    {"ranks and release",
     kResNet,
     R"({"parallel": {"ranks": 2}, "gradient_release": true})",
     {"gradient_release", "parallel"}},
    {"ranks of cards", kResNet, R"({"parallel": {"ranks": 2}, "backend": "cuda"})", {"parallel", "cpu"}},
    {"early stopping without evaluations",
     kResNet,
     R"({"early_stopping": {"patience": 1}})",
     {"early_stopping", "evaluate_every"}},
    {"early stopping without patience",
     kResNet,
     R"({"evaluate_every": 1, "early_stopping": {}})",
     {"early_stopping.patience", "evaluations"}},
    {"early stopping at once",
     kResNet,
     R"({"evaluate_every": 1, "early_stopping": {"patience": 0}})",
     {"early_stopping.patience"}},
    {"release with accumulate",
     kResNet,
     R"({"accumulate": 2, "gradient_release": true})",
     {"gradient_release", "accumulate"}},
    {"freeze", kResNet, R"({"freeze": "conv1"})", {"freeze", "list"}},
    {"lora's keys", kGpt, R"({"lora": {"rank": 8}})", {"lora.rank", "unknown key", "\"r\""}},
    {"lora without rank", kGpt, R"({"lora": {}})", {"lora.r", "missing"}},
    {"lora targets", kGpt, R"({"lora": {"r": 8, "targets": "every"}})", {"lora.targets", "all-linear", "every"}},
    {"a rank of a pattern",
     kGpt,
     R"({"lora": {"r": 8, "rank_pattern": {"c_fc": 0}}})",
     {"lora.rank_pattern.c_fc", "must be", "0"}},
    {"an alpha of a pattern",
     kGpt,
     R"({"lora": {"r": 8, "alpha_pattern": {"c_fc": "8"}}})",
     {"lora.alpha_pattern.c_fc", "must be", "8"}},
    {"ranks in a list", kGpt, R"({"lora": {"r": 8, "rank_pattern": [4]}})", {"lora.rank_pattern", "object"}},
    {"modules to save",
     kGpt,
     R"({"lora": {"r": 8, "modules_to_save": "lm_head"}})",
     {"lora.modules_to_save", "must be a list"}},
    {"no lora targets", kGpt, R"({"lora": {"r": 8, "targets": []}})", {"lora.targets", "one layer at least"}},
    {"DoRA with dropout",
     kGpt,
     R"({"lora": {"r": 8, "dora": true, "dropout": 0.1}})",
     {"lora.dora", "\"dropout\"", "must be false"}},
    {"DoRA's word", kGpt, R"({"lora": {"r": 8, "dora": "yes"}})", {"lora.dora", "must be"}},
    {"lora and freeze", kGpt, R"({"lora": {"r": 8}, "freeze": ["*wte*"]})", {"freeze", "lora"}},
    {"loss without a kind", kGpt, R"({"loss": {"beta": 0.1}})", {"loss.kind", "\"dpo\""}},
    {"a loss that nobody has", kGpt, R"({"loss": {"kind": "ppo"}})", {"loss.kind", "\"orpo\"", "ppo"}},
    {"beta of nothing", kGpt, R"({"loss": {"kind": "dpo", "beta": 0}})", {"loss.beta", "above 0"}},
    {"smoothing beyond half",
     kGpt,
     R"({"loss": {"kind": "dpo", "label_smoothing": 0.6}})",
     {"loss.label_smoothing", "0.5"}},
    {"smoothing of another loss",
     kGpt,
     R"({"loss": {"kind": "kto", "label_smoothing": 0.1}})",
     {"loss.label_smoothing", "\"dpo\""}},
    {"weights of another loss",
     kGpt,
     R"({"loss": {"kind": "orpo", "desirable_weight": 2}})",
     {"loss.desirable_weight", "\"kto\""}},
    {"loss of images", kResNet, R"({"loss": {"kind": "dpo"}})", {"loss", "language models"}},
    {"loss of a family without documents", kGpt, R"({"loss": {"kind": "dpo"}})", {"loss", "this family of models"}},
    {"weights of what trains", kGpt, R"({"weights": {"frozen": "f32"}})", {"weights.frozen", "nothing is frozen"}},
    {"weights' word", kGpt, R"({"lora": {"r": 8}, "weights": {"frozen": "q9"}})", {"weights.frozen", "q4_0", "q9"}},
    {"stream without lora", kGpt, R"({"freeze": ["*wte*"], "weights": {"stream": true}})", {"weights.stream", "lora"}},
    {"stream's word",
     kGpt,
     R"({"lora": {"r": 8}, "weights": {"stream": "always"}})",
     {"weights.stream", "auto", "always"}},
    {"blocks without lora",
     kGpt,
     R"({"freeze": ["*wte*"], "weights": {"frozen": "q4_0"}})",
     {"weights.frozen", "q4_0", "lora"}},
    {"init's word", kGpt, R"({"init": "zeros"})", {"init", "\"random\"", "zeros"}},
    {"init's kind", kGpt, R"({"init": 3})", {"init", "object"}},
    {"prompts of images", kResNet, R"({"prompts": ["hello"]})", {"prompts", "language models"}},
    {"steps zero", kResNet, R"({"steps": 0})", {"steps", "from 1"}},
    {"steps and epochs", kResNet, R"({"steps": 5, "epochs": 2})", {"epochs", "steps", "leave one out"}},
    {"no passes", kResNet, R"({"epochs": 0})", {"epochs", "from 0 (excluded)"}},
    {"a cosine of steps and epochs",
     kResNet,
     R"({"lr_schedule": {"kind": "cosine", "steps": 5, "epochs": 2}})",
     {"lr_schedule.epochs", "steps", "leave one out"}},
    {"strategy", kResNet, R"({"schedule": "optimum"})", {"schedule.strategy", "\"optimal\"?", "\"revolve\""}},
    {"schedule number", kResNet, R"({"schedule": 3})", {"schedule", "object"}},
    {"k zero", kResNet, R"({"schedule": {"strategy": "every-k", "k": 0}})", {"schedule.k", "from 1"}},
    {"two budgets",
     kResNet,
     R"({"budget": 1000, "feature_map_budget": 100})",
     {"feature_map_budget", "budget", "leave one out"}},
    {"budget and budgets",
     kResNet,
     R"({"budget": 1000, "budgets": [1000, 100]})",
     {"some.json: budgets", "budget", "leave one out"}},
    {"budgets of feature maps",
     kResNet,
     R"({"budgets": [1000, 100], "feature_map_budget": 100})",
     {"feature_map_budget", "leave one out"}},
    {"budgets alike", kResNet, R"({"budgets": ["1KiB", 2000, 1024]})", {"some.json: budgets", "1.00 KiB", "twice"}},
    {"budgets of one", kResNet, R"({"budgets": [1000]})", {"budgets", "2 to 8", "\"budget\""}},
    {"budgets of none", kResNet, R"({"budgets": []})", {"budgets", "2 to 8"}},
    {"budgets of nine", kResNet, R"({"budgets": [1, 2, 3, 4, 5, 6, 7, 8, 9]})", {"budgets", "2 to 8"}},
    {"budgets' unit", kResNet, R"({"budgets": ["7GiB", "7XB"]})", {"some.json: budgets", "GiB", "7XB"}},
    {"budgets' zero", kResNet, R"({"budgets": [7, 0]})", {"budgets", "from 1"}},
    {"budgets' kind", kResNet, R"({"budgets": "7GiB"})", {"budgets", "list"}},
    {"budgets' element", kResNet, R"({"budgets": [7, null]})", {"budgets", "512MiB"}},
    {"budget unit", kResNet, R"({"budget": "7XB"})", {"some.json: budget", "GiB", "7XB"}},
    {"budget float", kResNet, R"({"budget": 1.5})", {"budget", "integer"}},
    {"budget list", kResNet, R"({"budget": []})", {"budget", "512MiB"}},
    {"budget zero", kResNet, R"({"budget": 0})", {"budget", "from 1"}},
    {"seed negative", kResNet, R"({"seed": -1})", {"seed", "from 0"}},
    {"backend", kResNet, R"({"backend": "gpu"})", {"backend", "\"cuda\""}},
    {"core", kResNet, R"({"core": "tiny"})", {"core", "\"small\""}},
    {"core of a card", kResNet, R"({"core": "small", "backend": "cuda"})", {"core", "\"backend\": \"cpu\""}},
    {"card", kResNet, R"({"card": "huge"})", {"card", "\"large\""}},
    {"math", kResNet, R"({"math": "fp16", "backend": "cuda"})", {"math", "\"tf32\""}},
    {"math of a CPU",
     kResNet,
     R"({"math": "tf32"})",
     {"some.json: math", "\"tf32\"", "\"backend\": \"cuda\" or \"auto\""}},
    {"math of bf16",
     kResNet,
     R"({"math": "bf16x3", "backend": "cuda", "dtype": "bf16"})",
     {"some.json: math", "\"bf16x3\"", "leave it out"}},
    {"skip of nothing", kResNet, R"({"init": {"skip": ["fc.*"]}})", {"init.from", "missing"}},
    {"eps zero", kResNet, R"({"optimizer": {"name": "adamw", "eps": 0}})", {"optimizer.eps"}},
    {"eps large", kResNet, R"({"optimizer": {"name": "adamw", "eps": 2}})", {"optimizer.eps"}},
    {"momentum large", kResNet, R"({"optimizer": {"name": "sgd", "momentum": 1e7}})", {"optimizer.momentum"}},
    {"name", kResNet, R"({"name": "../etc"})", {"name", "letters", "../etc"}},
    {"name empty", kResNet, R"({"name": ""})", {"name", "letters"}},
};

TEST(Recipe, BadFieldsAreRefusedInOneLine) {
  for (const BadRecipe& bad : kBadRecipes) {
    SCOPED_TRACE(bad.id);
    expect_user_error([&] { parse(patched(bad.base, bad.patch)); }, {"some.json: "});
    expect_user_error([&] { parse(patched(bad.base, bad.patch)); }, bad.fragments);
  }
}

TEST(Recipe, BadTextIsRefusedInOneLine) {
  expect_user_error([] { parse(""); }, {"some.json", "line 1"});
  expect_user_error([] { parse("{\n  \"batch\": 1,\n}"); }, {"some.json", "line 3", "not JSON"});
  expect_user_error([] { parse(R"({"model": null, "batch": 1})"); }, {"some.json", "model", "object", "null"});
  expect_user_error([] { parse("[]"); }, {"some.json", "object", "list"});
  expect_user_error([] { parse("\"\xff\""); }, {"some.json", "not JSON"});
  expect_user_error([] { parse(R"({"batch": 1, "batch": 2})"); }, {"some.json", "\"batch\"", "twice"});
  expect_user_error([] { parse(R"({"optimizer": {"name": "sgd", "lr": 1e999}})"); }, {"some.json", "not JSON"});
  expect_user_error([] { parse(std::string(1000000, '[')); }, {"some.json", "deep"});
  expect_user_error([] { parse(std::string("{\"name\": \"a\0b\"}", 15)); }, {"some.json"});
}

// An error about a wrong number must name the line, the column and the field.
TEST(Recipe, RefusalsNameThePlace) {
  const std::string model = "{\n  \"model\": {\"family\": \"resnet\", \"image\": [28, 28, 1]},\n";
  const auto expect = [&](const std::string& rest, std::initializer_list<std::string> fragments) {
    expect_user_error([&] { parse(model + rest); }, fragments);
  };
  expect("  \"batch\": 4.5}", {"some.json: batch: ", "4.5", "(line 3, column 12)"});
  expect("  \"batch\":\n    99999999999999999999}", {"some.json: batch: ", "(line 4, column 5)"});
  expect("  \"batch\": 4, \"optimizer\": {\"name\": \"adamw\",\n\"betas\": [0.9, 1]}}",
         {"optimizer.betas: ", "(line 4, column 16)"});
  expect("  \"batch\": 4, \"budget\": \"7XB\"}", {"some.json: budget: ", "(line 3, column 25)"});
  expect("  \"batch\": 4, \"optimiser\": {}}", {"some.json: optimiser: ", "(line 3, column 28)"});
  expect("  \"batch\": 4,\n  \"batch\": 4}", {"some.json: ", "\"batch\" is given twice", "(line 4, column 12)"});
  expect("  \"batch\": 4, \"optimizer\": {\"name\": \"sgd\",\n \"lr\": 1e999}}",
         {"some.json: optimizer.lr: not JSON", "1e999", "(line 4, column 8)"});
  expect("  \"batch\": 4, \"clip_norm\": 1.}",
         {"some.json: clip_norm: not JSON", "invalid number", "(line 3, column "});
  // An error about several fields, or about a missing field, names the place of the field. If there
  // is no such place, it names the place of the object.
  expect("  \"batch\": 4, \"data\": {\"kind\": \"synthetic\",\n \"mean\": [1, 2]}}",
         {"some.json: data.mean: ", "list of 2", "(line 4, column 10)"});
  expect("  \"batch\": 4, \"schedule\": \"optimum\"}", {"some.json: schedule.strategy: ", "(line 3, column 27)"});
  expect("  \"batch\": 4, \"schedule\":\n {\"strategy\": \"optimum\"}}",
         {"some.json: schedule.strategy: ", "(line 4, column 15)"});
  expect("  \"batch\": 4, \"lr_schedule\": {\"kind\": \"step\"}}",
         {"lr_schedule.milestones: missing", "(line 3, column 30)"});
  expect("  \"batch\": 04}", {"some.json: batch: not JSON", "(line 3, column "});
  expect("  \"batch\": 4, \"model\": 5}", {"\"model\"", "twice", "(line 3, column 24)"});
}

// Two objects may contain the same key, also in a list. A comment is allowed where white space is.
TEST(Recipe, CommentsAndKeysOfTwoObjects) {
  const std::string text = R"(// a net
{"model": {"family": "resnet", /* height,
 width, channels */ "image": [28, 28, 1]}, "batch": 4, // samples
 "optimizer": {"name": "sgd"}, "name": "x"})";
  EXPECT_EQ(parse(text).name, "x");
  expect_user_error(
      [] {
        parse("{\"batch\": /* x */ // y\n /* z */ -1, \"model\": {\"family\": \"resnet\", \"image\": [28, 28, 1]}}");
      },
      {"batch", "-1", "(line 2, column 10)"});
  expect_user_error([] { parse("{\"batch\": /* 1"); }, {"not JSON"});
}

// Every prefix of a recipe, and every change of one byte, must give a recipe or a UserError.
TEST(Recipe, EveryPrefixAndEveryChangedByteIsHandled) {
  for (const std::string text : {kFullResNet, kFullGpt}) {
    for (size_t i = 0; i < text.size(); ++i) {
      for (const char c : {'\0', '"', '9', '}', '\xff'}) {
        std::string changed = text;
        changed[i] = c;
        for (const std::string& tried : {changed, text.substr(0, i)}) {
          try {
            parse(tried);
          } catch (const UserError& error) {
            ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << i << ": " << error.what();
          }
        }
      }
    }
  }
}

// There is a plan for each budget. A program starts with the plan of the first budget.
TEST(Recipe, SeveralBudgets) {
  const Recipe recipe = parse(patched(kResNet, R"({"budgets": ["1.5GiB", 1000, "2KiB"]})"));
  EXPECT_EQ(recipe.budgets, (std::vector<uint64_t>{uint64_t{3} << 29, 1000, 2048}));
  EXPECT_EQ(recipe.budget_bytes, uint64_t{3} << 29);
  const std::string text = canonical_recipe(recipe);
  EXPECT_EQ(text.find("\"budget\""), std::string::npos) << text;
  EXPECT_EQ(parse_recipe(text, "some.json", "/"), recipe);
  const std::vector<Recipe> each = recipes_of_plans(recipe);
  ASSERT_EQ(each.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(each[i].budget_bytes, recipe.budgets[i]);
    EXPECT_EQ(parse_recipe(canonical_recipe(each[i]), "some.json", "/"), each[i])
        << "a plan's own recipe has its budget alone";
    EXPECT_EQ(recipes_of_plans(each[i]), (std::vector<Recipe>{each[i]}));
  }
}

TEST(Recipe, CheckedAgainAfterACommandLineChange) {
  Recipe recipe = parse(patched(kResNet, R"({"budget": 5})"));
  check_recipe(recipe, {"f"});
  recipe.feature_map_budget_bytes = 7;
  expect_user_error([&] { check_recipe(recipe, {"f"}); }, {"f: feature_map_budget"});
  recipe.feature_map_budget_bytes.reset();
  recipe.schedule.strategy = "none at all";
  expect_user_error([&] { check_recipe(recipe, {"f"}); }, {"f: schedule.strategy"});
  expect_user_error(
      [&] {
        check_recipe(recipe, {"f", "{}", {{"schedule.strategy", "--strategy"}}});
      },
      {"--strategy: must be one of"});
}

TEST(Recipe, TheProjectsOwnAreGood) {
  int count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(__FILE__).parent_path() / "../../tools/recipes")) {
    if (entry.path().extension() != ".json") continue;
    const nlohmann::json model =
        nlohmann::json::parse(read_file(entry.path().string()), nullptr, true, true).at("model");
    // The Makefile could not always fetch the model.
    if (model.contains("gguf") &&
        !std::filesystem::exists(entry.path().parent_path() / model["gguf"].get<std::string>()))
      continue;
    SCOPED_TRACE(entry.path().string());
    EXPECT_EQ(read_recipe(entry.path().string()).name, entry.path().stem().string());
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(ParseBytes, Units) {
  EXPECT_EQ(parse_bytes("1"), 1u);
  EXPECT_EQ(parse_bytes("123B"), 123u);
  EXPECT_EQ(parse_bytes("7GiB"), uint64_t{7} << 30);
  EXPECT_EQ(parse_bytes("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(parse_bytes("64 MiB"), uint64_t{64} << 20);
  EXPECT_EQ(parse_bytes("1.5GiB"), uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes("0.1GiB"), 107374182u);
  EXPECT_EQ(parse_bytes("3KiB"), 3072u);
  EXPECT_EQ(parse_bytes("2TiB"), uint64_t{2} << 40);
  EXPECT_EQ(parse_bytes("700KB"), 700000u);
  EXPECT_EQ(parse_bytes("1.25MB"), 1250000u);
  EXPECT_EQ(parse_bytes("8GB"), 8000000000u);
  EXPECT_EQ(parse_bytes("1TB"), 1000000000000u);
  EXPECT_EQ(parse_bytes("9223372036854775807"), uint64_t{INT64_MAX});
  EXPECT_EQ(parse_bytes("00000000000000000000000042"), 42u);
}

TEST(ParseBytes, Refusals) {
  for (const char* text : {"",
                           "0",
                           "0GiB",
                           "-1",
                           "+1",
                           "7XB",
                           "GiB",
                           "7  GiB",
                           "7 ",
                           " 7GiB",
                           "7gib",
                           "1.5",
                           "1.GiB",
                           ".5GiB",
                           "1.2.3GiB",
                           "1e9",
                           "9223372036854775808",
                           "8388608TiB",
                           "99999999999999999999999999999999999999999999",
                           "0.0001KiB",
                           "7GiB ",
                           "nan"}) {
    SCOPED_TRACE(text);
    expect_user_error([&] { parse_bytes(text, "--budget"); }, {"--budget: ", "GiB", text});
  }
}

TEST(MatchesPattern, Globs) {
  EXPECT_TRUE(matches_pattern("*.bias", "layer1.0.bn1.bias"));
  EXPECT_TRUE(matches_pattern("conv1.weight", "conv1.weight"));
  EXPECT_TRUE(matches_pattern("layer?.*", "layer1.0.bn1.bias"));
  EXPECT_FALSE(matches_pattern("bias", "layer1.0.bn1.bias"));
  EXPECT_FALSE(matches_pattern("layer1", "layer1.0"));
}

}  // namespace
}  // namespace reprise
