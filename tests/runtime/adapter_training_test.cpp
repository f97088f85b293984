// Tests adapters, also with different ranks for different layers, together with modules that are
// trained in full. They must be correct in State, in a snapshot, in PEFT's folder, and in a merged
// model. The merged model must compute what the trained net computed at the end of the training.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/snapshots/adapter_files.h"
#include "tools/run/snapshots/export_snapshot.h"
#include "tools/run/snapshots/snapshot.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A bound recipe that starts with the weights of its model.
class Session : public BoundRecipe {
 public:
  explicit Session(const Recipe& recipe, const std::string& strategy = "none", double share = -1)
      : BoundRecipe(recipe, strategy, share) {
    read_initial_weights(trainer, *open_model_weights(recipe, published_weights(recipe)), {});
  }

  // Trains `steps` steps and returns their losses. If `norm` is not null, it receives the norm of
  // the last step's gradient.
  std::vector<double> train(int steps, double* norm = nullptr) {
    const auto data = open_dataset(recipe(), Split::kTraining);
    const BatchSource source = source_of(*data);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      StepReport report;
      EXPECT_TRUE(train_step(trainer, source, report).ok());
      losses.push_back(report.loss);
      if (norm != nullptr) *norm = static_cast<double>(report.gradient_norm);
    }
    EXPECT_EQ(measure(trainer), plan().arena_bytes);
    return losses;
  }
  // Returns the bytes of every tensor of State, by name.
  std::map<std::string, std::vector<unsigned char>> values() const {
    std::map<std::string, std::vector<unsigned char>> all;
    for (uint32_t i = kFirstTrained; i < plan().state.count; ++i)
      all[plan().state[i].name] = bytes_at(trainer, trainer.state_tensor(i), plan().state[i].tensor.used_bytes());
    return all;
  }
  DType type_of(const std::string& name) const { return state(name).tensor.dtype; }
};

class AdapterTraining : public ::testing::Test {
 protected:
  AdapterTraining() { fs::copy_file("tests/golden/weights/llama.gguf", base()); }
  std::string at(const std::string& name) const { return folder_.file(name); }
  std::string base() const { return at("base.gguf"); }

  static json lora() {
    return {{"r", 2},
            {"alpha", 4},
            {"rank_pattern", {{"down_proj", 5}}},
            {"alpha_pattern", {{"self_attn.q_proj", 6}}},
            {"modules_to_save", {"lm_head", "norm"}}};
  }
  // Returns the recipe. `change` changes its key "lora", and `more` adds keys. The model's head is
  // tied to its embeddings.
  Recipe recipe(const json& change = json::object(), const json& more = json::object()) const {
    json value = {{"name", "adapters"},
                  {"model", {{"gguf", base()}}},
                  {"data", {{"kind", "synthetic"}}},
                  {"batch", 2},
                  {"sequence", 13},
                  {"steps", 4},
                  {"seed", 5},
                  {"lora", lora()},
                  {"optimizer", {{"name", "adamw"}, {"lr", 0.01}}}};
    value["lora"].merge_patch(change);
    value.merge_patch(more);
    return parse_recipe(value.dump(), "recipe.json", "/");
  }
  void save(Session& run, const Recipe& of, const std::string& name = "snapshot") const {
    SnapshotDirectory folder(at(name), snapshot_folder());
    SnapshotFacts facts;
    facts.base = sum_base(*open_weights(base()));
    save_snapshot(run.trainer, of, facts, folder);
  }

  TemporaryFolder folder_;
  const std::string table_ = "model.embed_tokens.weight", norm_ = "model.norm.weight";
};

TEST_F(AdapterTraining, ModulesToSaveTrainAndTheRestStaysAsItIs) {
  const Recipe of = recipe();
  Session run(of), tight(of, "optimal", 0.0);
  EXPECT_EQ(run.type_of(table_), DType::kF32) << "Q8_0 in the file, but it trains";
  EXPECT_EQ(Session(recipe({{"modules_to_save", nullptr}})).type_of(table_), DType::kQ8_0);
  const auto before = run.values();
  const std::vector<double> losses = run.train(4);
  EXPECT_EQ(tight.train(4), losses);
  EXPECT_EQ(tight.values(), run.values());
  const auto after = run.values();
  for (const StateTensor& state : run.trainer.plan->state) {
    if (state.kind != StateKind::kParameter) continue;
    const bool trains = is_adapter(state.name) || state.name == table_ || state.name == norm_;
    EXPECT_EQ(after.at(state.name) != before.at(state.name), trains) << state.name;
  }
}

// A gradient step with learning rate lr lowers the loss by lr * |g|^2, to first order. |g| must
// include the adapters, the table of embeddings and the norm, so the test compares both sides.
TEST_F(AdapterTraining, TheGradientOfWholeModulesIsTheLosss) {
  constexpr double kLr = 1e-5;
  for (const json& modules :
       {json{"embed_tokens", "norm"}, json{"mlp.up_proj"}, json{"self_attn.o_proj", "input_layernorm"}}) {
    Session session(recipe({{"modules_to_save", modules}, {"rank_pattern", {{"v_proj", 5}}}},
                           {{"optimizer", {{"name", "sgd"}, {"lr", kLr}}}, {"data", {{"shuffle", false}}}}));
    const double before = session.loss();
    double norm = 0;
    session.train(1, &norm);
    const double fall = kLr * norm * norm;
    EXPECT_NEAR(before - session.loss(), fall, 0.05 * fall) << modules;
  }
}

// With DoRA, training starts with the outputs of the base. It trains A, B and the magnitudes of the
// weight's rows. The bits must be equal under every schedule, with a base in blocks or in bf16, and
// with activations in f32 or bf16.
TEST_F(AdapterTraining, ADoraStartsAsTheBaseAndTrainsWithTheSameBits) {
  for (const json& more :
       {json::object(), json{{"weights", {{"frozen", "bf16"}}}}, json{{"weights", {{"frozen", "q4_0"}}}},
        json{{"dtype", "bf16"}}, json{{"accumulate", 2}, {"trained", {{"storage", "bf16"}}}}}) {
    SCOPED_TRACE(more.dump());
    const Recipe of = recipe({{"dora", true}, {"modules_to_save", nullptr}}, more);
    Session run(of), tight(of, "optimal", 0.0);
    Session plain(recipe({{"modules_to_save", nullptr}}, more));
    const double first = run.loss();
    EXPECT_NEAR(first, plain.loss(), (of.dtype == Recipe::Dtype::kBf16 ? 1e-3 : 1e-7) * first)
        << "factors are 1 and B is 0";
    const auto before = run.values();
    const std::vector<double> losses = run.train(4);
    EXPECT_EQ(tight.train(4), losses);
    EXPECT_EQ(tight.values(), run.values());
    EXPECT_NE(run.loss(), first);
    const auto after = run.values();
    size_t magnitudes = 0;
    for (const StateTensor& state : run.trainer.plan->state) {
      if (state.kind != StateKind::kParameter) continue;
      EXPECT_EQ(after.at(state.name) != before.at(state.name), is_adapter(state.name)) << state.name;
      magnitudes += std::string_view(state.name).ends_with(kMagnitude) ? 1 : 0;
    }
    EXPECT_EQ(magnitudes, 7u);
  }
}

// DoRA treats the norms as constants. So what it computes for A and B is not the gradient of the
// loss, but its gradient of the magnitudes is.
TEST_F(AdapterTraining, TheGradientOfMagnitudesIsTheLosss) {
  constexpr double kLr = 1e-4;
  Recipe of = recipe({{"dora", true}, {"modules_to_save", nullptr}},
                     {{"optimizer", {{"name", "sgd"}, {"lr", kLr}}}, {"data", {{"shuffle", false}}}});
  Session session(of);
  const auto before = session.values();
  const double loss = session.loss();
  session.train(1);
  double squares = 0;
  for (uint32_t i = 0; i < session.trainer.plan->state.count; ++i) {
    const StateTensor& state = session.trainer.plan->state[i];
    if (state.kind != StateKind::kParameter || !is_adapter(state.name)) continue;
    const std::vector<unsigned char> was = before.at(state.name), is = session.values().at(state.name);
    if (!std::string_view(state.name).ends_with(kMagnitude)) {  // restores all except the magnitudes, so A and B
      ASSERT_TRUE(session.trainer.write(session.trainer.state_tensor(i), was.data(), was.size()).ok());
      continue;
    }
    for (size_t at = 0; at < was.size(); at += sizeof(float)) {
      float old = 0, now = 0;
      std::memcpy(&old, was.data() + at, sizeof old);
      std::memcpy(&now, is.data() + at, sizeof now);
      squares += std::pow((static_cast<double>(now) - static_cast<double>(old)) / kLr, 2);
    }
  }
  const double fall = kLr * squares;
  ASSERT_GT(fall, 0);
  EXPECT_NEAR(loss - session.loss(), fall, 0.1 * fall);
}

TEST_F(AdapterTraining, ADoraGoesThroughSnapshotPeftAndMerge) {
  const Recipe of = recipe({{"dora", true}});
  Session run(of), untrained(of);
  run.train(4);
  save(run, of);
  Session second(of);
  const DataFingerprint data;
  resume_snapshot(second.trainer, of, &data, at("snapshot"));
  EXPECT_EQ(second.loss(), run.loss());
  for (const ExportForm form : {ExportForm::kMerged, ExportForm::kMergedGguf}) {
    const std::string to = at(form == ExportForm::kMerged ? "merged" : "merged.gguf");
    export_snapshot(of, {.snapshot = at("snapshot"), .form = form, .to = to});
    Recipe plain = recipe(json::object(), {{"lora", nullptr}});
    plain.place = {};
    (form == ExportForm::kMerged ? plain.place.huggingface : plain.place.gguf) = to;
    EXPECT_NEAR(Session(plain).loss(), run.loss(), 1e-5 * std::abs(run.loss()));
  }
  EXPECT_GT(std::abs(run.loss() - untrained.loss()), 0.01);
  {
    SnapshotDirectory peft(at("peft"), adapter_folder(of));
    save_adapter(run.trainer, of, peft);
  }
  Session again(of);
  (void)load_adapter(again.trainer, of, at("peft"));
  EXPECT_EQ(again.loss(), run.loss());
  EXPECT_EQ(again.train(1).size(), 1u);
  const Recipe other = recipe();
  Session lora(other);
  expect_user_error([&] { (void)load_adapter(lora.trainer, other, at("peft")); },
                    {"adapter_config.json: use_dora: is true", "\"dora\" false"});
  expect_user_error([&] { resume_snapshot(lora.trainer, other, &data, at("snapshot")); },
                    {"recipe.lora.dora: trained with true"});
  const Recipe alone = recipe({{"dora", true}, {"modules_to_save", nullptr}});
  Session small(alone);
  save(small, alone, "alone");
  expect_user_error(
      [&] { export_snapshot(alone, {.snapshot = at("alone"), .form = ExportForm::kAdapterGguf, .to = at("a.gguf")}); },
      {"is of a DoRA", "GGUF"});
  expect_user_error([&] { (void)load_adapter(small.trainer, alone, base()); }, {base(), "holds no DoRA"});
}

// A snapshot must contain everything that is trained, so that a resumed run continues with the same
// bits.
TEST_F(AdapterTraining, ASnapshotHoldsThemAndFitsNoOtherRecipe) {
  const Recipe of = recipe();
  Session whole(of), first(of);
  const std::vector<double> losses = whole.train(4);
  std::vector<double> halves = first.train(2);
  save(first, of);
  std::set<std::string> expected;
  for (uint32_t i = kFirstTrained; i < first.trainer.plan->state.count; ++i) {
    const StateTensor& state = first.trainer.plan->state[i];
    if (state.kind == StateKind::kParameter && is_adapter(state.name)) expected.insert(state.name);
  }
  expected.insert({table_, norm_});
  const std::vector<std::string> names = open_weights(at("snapshot/model.safetensors"))->names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
  Session second(of);
  const DataFingerprint data;
  resume_snapshot(second.trainer, of, &data, at("snapshot"));
  for (const double loss : second.train(2)) halves.push_back(loss);
  EXPECT_EQ(halves, losses);
  EXPECT_EQ(second.values(), whole.values());
  const auto refused = [&](const json& change, std::initializer_list<std::string> fragments) {
    const Recipe other = recipe(change);
    Session run(other);
    expect_user_error([&] { resume_snapshot(run.trainer, other, &data, at("snapshot")); }, fragments);
    expect_user_error([&] { export_snapshot(other, {.snapshot = at("snapshot"), .to = at("out")}); }, fragments);
    EXPECT_FALSE(fs::exists(at("out")));
  };
  const std::string file = at("snapshot") + "/training.json";
  refused({{"modules_to_save", nullptr}},
          {file, "recipe.lora.modules_to_save: trained with [\"lm_head\",\"norm\"]", "the recipe says none"});
  refused({{"modules_to_save", {"norm"}}}, {file, "recipe.lora.modules_to_save", "[\"norm\"]"});
  refused({{"rank_pattern", {{"down_proj", 4}}}},
          {file, "recipe.lora.rank_pattern.down_proj: trained with 5", "the recipe says 4"});
  const Recipe other_alpha = recipe({{"alpha_pattern", {{"self_attn.q_proj", 8}}}});
  expect_user_error([&] { export_snapshot(other_alpha, {.snapshot = at("snapshot"), .to = at("out")}); },
                    {file, "recipe.lora.alpha_pattern.self_attn.q_proj: trained with 6", "the recipe says 8"});
  // The order of the module names must have no effect.
  const Recipe changed = recipe({{"modules_to_save", {"norm", "lm_head"}}});
  Session again(changed);
  EXPECT_NO_THROW(resume_snapshot(again.trainer, changed, &data, at("snapshot")));
}

// A snapshot must store 8-bit moments, and moments and weights in bf16, without change. A run that
// stores moments as another type must not resume from it.
TEST_F(AdapterTraining, ASnapshotHoldsSmallStates) {
  const json modules = {{"modules_to_save", {"embed_tokens"}}, {"r", 150}}, bf16 = {{"trained", {{"storage", "bf16"}}}};
  for (const char* states : {"8bit", "bf16"}) {
    json more = bf16;
    more["optimizer"] = {{"states", states}};
    const Recipe of = recipe(modules, more);
    Session whole(of), first(of, "optimal", 0.0), second(of);
    EXPECT_EQ(whole.type_of(table_), DType::kBf16);
    const DType codes = states == std::string("8bit") ? DType::kDynamic8Square : DType::kBf16;
    EXPECT_EQ(whole.type_of("second_moment.model.layers.0.self_attn.q_proj.lora_A.weight"), codes);
    const std::vector<double> losses = whole.train(4);
    std::vector<double> halves = first.train(2);
    save(first, of, states);
    const DataFingerprint data;
    resume_snapshot(second.trainer, of, &data, at(states));
    for (const double loss : second.train(2)) halves.push_back(loss);
    EXPECT_EQ(halves, losses) << states;
    EXPECT_EQ(second.values(), whole.values()) << states;
    const Recipe other = recipe(modules, bf16);
    Session plain(other);
    expect_user_error([&] { resume_snapshot(plain.trainer, other, &data, at(states)); }, {"optimizer.states", states});
  }
}

// LoRA+ gives B another learning rate than A. B starts at zero. So after one step of gradient
// descent, the B of two runs must differ exactly by the ratio.
TEST_F(AdapterTraining, RatesOfTheTwoMatricesDifferByTheRatio) {
  const json sgd = {{"optimizer", {{"name", "sgd"}, {"lr", 0.01}, {"weight_decay", 0}}}};
  Session one(recipe(json::object(), sgd)), four(recipe({{"lr_ratio", 4}}, sgd));
  one.train(1), four.train(1);
  const auto plain = one.values(), faster = four.values();
  size_t compared = 0;
  for (const auto& [name, bytes] : plain) {
    const bool is_up = name.ends_with(".lora_B.weight");
    for (size_t i = 0; is_adapter(name) && i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
      float a, b;
      std::memcpy(&a, &bytes[i], sizeof a), std::memcpy(&b, &faster.at(name)[i], sizeof b);
      ASSERT_EQ(b, is_up ? 4 * a : a) << name;
      compared += is_up && a != 0;
    }
  }
  EXPECT_GT(compared, 100u);
}

TEST_F(AdapterTraining, PeftsFolderGoesInAgainAndTrainsOn) {
  const Recipe of = recipe();
  Session run(of);
  run.train(4);
  {
    SnapshotDirectory peft(at("peft"), adapter_folder(of));
    save_adapter(run.trainer, of, peft);
  }
  Session again(of);
  EXPECT_NE(again.loss(), run.loss());
  (void)load_adapter(again.trainer, of, at("peft"));
  EXPECT_EQ(again.loss(), run.loss());
  EXPECT_LT(again.train(2).front(), run.loss() + 0.5);
  const auto refused = [&](const json& change, std::initializer_list<std::string> fragments) {
    const Recipe other = recipe(change);
    Session into(other);
    const auto before = into.values();
    expect_user_error([&] { (void)load_adapter(into.trainer, other, at("peft")); }, fragments);
    EXPECT_TRUE(into.values() == before) << "nothing is changed";
  };
  refused({{"modules_to_save", {"norm"}}},
          {"adapter_model.safetensors", table_,
           "was trained whole, which the recipe's lora.modules_to_save does not name"});
  refused({{"modules_to_save", {"norm", "lm_head", "mlp.up_proj"}}},
          {"adapter_model.safetensors", "up_proj.lora_A", "no adapter there"});
  refused({{"modules_to_save", {"norm", "lm_head", "input_layernorm"}}},
          {"adapter_model.safetensors", "input_layernorm.weight", "missing"});
  refused({{"rank_pattern", {{"down_proj", 4}}}},
          {"adapter_config.json: rank_pattern: is 5", "has 4 for \"model.layers.0.mlp.down_proj\""});
  refused({{"rank_pattern", {{"down_proj", 5}, {"up_proj", 4}}}},
          {"adapter_config.json: r: is 2", "has 4 for \"model.layers.0.mlp.up_proj\""});
  refused({{"alpha_pattern", {{"self_attn.q_proj", 7}}}},
          {"adapter_config.json: alpha_pattern: is another scale: alpha 6", "alpha 7"});
}

// llama.cpp's format has one alpha for all layers. If a layer has another alpha, its B is
// multiplied by a factor. If this factor is exact, B is read back unchanged. Otherwise the result
// is equal up to rounding.
TEST_F(AdapterTraining, AGgufAdapterGoesInAgainAndTrainsOn) {
  for (const double alpha : {8.0, 6.0}) {
    const Recipe of = recipe({{"modules_to_save", nullptr}, {"alpha_pattern", {{"self_attn.q_proj", alpha}}}});
    Session session(of), again(of);
    session.train(4);
    save(session, of);
    const ExportReport report =
        export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kAdapterGguf, .to = at("a.gguf")});
    EXPECT_NE(report.what.find(alpha == 8 ? "exactly" : "rounded once"), std::string::npos) << report.what;
    EXPECT_NE(again.loss(), session.loss());
    const std::string said = load_adapter(again.trainer, of, at("a.gguf"));
    EXPECT_NE(said.find("B of 1 layers multiplied"), std::string::npos) << said;
    EXPECT_NEAR(again.loss(), session.loss(), alpha == 8 ? 0 : 1e-6 * session.loss());
    EXPECT_EQ(again.train(1).size(), 1u);
    const Recipe other = recipe({{"modules_to_save", nullptr}, {"rank_pattern", {{"down_proj", 4}}}});
    Session narrow(other);
    expect_user_error([&] { (void)load_adapter(narrow.trainer, other, at("a.gguf")); },
                      {"a.gguf: rank_pattern: is 5", "has 4 for \"model.layers.0.mlp.down_proj\""});
    const Recipe fewer = recipe(
        {{"modules_to_save", nullptr}, {"rank_pattern", nullptr}, {"alpha_pattern", nullptr}, {"targets", {"q_proj"}}});
    Session few(fewer);
    expect_user_error([&] { (void)load_adapter(few.trainer, fewer, at("a.gguf")); }, {"a.gguf", "has 2 for"});
  }
  // A recipe that also trains modules in full must refuse this file, which cannot contain them.
  const Recipe with_modules = recipe();
  Session into(with_modules);
  expect_user_error([&] { (void)load_adapter(into.trainer, with_modules, at("a.gguf")); }, {"a.gguf", "missing"});
}

// PEFT stores the head and the embeddings of a tied model separately. If the two differ, or if one
// is missing, the folder must be refused.
TEST_F(AdapterTraining, TablesOfATiedModelMustBeOne) {
  const Recipe of = recipe({{"modules_to_save", {"embed_tokens"}}});
  Session run(of);
  run.train(1);
  {
    SnapshotDirectory peft(at("peft"), adapter_folder(of));
    save_adapter(run.trainer, of, peft);
  }
  const std::string head = "base_model.model.lm_head.weight";
  const auto rewrite = [&](const std::string& leave_out, float change_head) {
    const auto from = open_weights(at("peft/adapter_model.safetensors"));
    SafetensorsWriter writer(at("changed"));
    const auto elements = [&](const std::string& name) { return from->find(name)->bytes / sizeof(float); };
    std::vector<std::string> names = from->names();
    std::erase(names, leave_out);
    for (const std::string& name : names) writer.declare(name, StoredType::kF32, from->find(name)->shape);
    for (const std::string& name : names) {
      std::vector<float> numbers(elements(name));
      from->read(name, 0, numbers.size(), numbers.data());
      if (name == head) numbers.back() += change_head;
      writer.write(numbers.data(), numbers.size() * sizeof(float));
    }
    writer.finish();
    fs::create_directories(at("other"));
    fs::copy_file(at("peft/adapter_config.json"), at("other/adapter_config.json"),
                  fs::copy_options::overwrite_existing);
    fs::rename(at("changed"), at("other/adapter_model.safetensors"));
  };
  Session again(of);
  rewrite("", 0);
  EXPECT_EQ(load_adapter(again.trainer, of, at("other")), "");
  rewrite("", 1);
  expect_user_error([&] { (void)load_adapter(again.trainer, of, at("other")); },
                    {"other/adapter_model.safetensors", "lm_head.weight", "differs from the embeddings",
                     "tie_word_embeddings"});
  rewrite(head, 0);
  expect_user_error([&] { (void)load_adapter(again.trainer, of, at("other")); },
                    {"other/adapter_model.safetensors", table_, "without the other of head and embeddings"});
  rewrite("base_model.model." + table_, 0);
  expect_user_error([&] { (void)load_adapter(again.trainer, of, at("other")); },
                    {"other/adapter_model.safetensors", "lm_head.weight", "without the other"});
}

// The merged file must compute what the trained net computes.
TEST_F(AdapterTraining, AMergedModelComputesWhatWasTrained) {
  const Recipe of = recipe();
  Session run(of);
  const double untrained = run.loss();
  run.train(4);
  save(run, of);
  for (const ExportForm form : {ExportForm::kMerged, ExportForm::kMergedGguf}) {
    const std::string to = at(form == ExportForm::kMerged ? "merged" : "merged.gguf");
    export_snapshot(of, {.snapshot = at("snapshot"), .form = form, .to = to});
    Recipe plain = recipe(json::object(), {{"lora", nullptr}});
    plain.place = {};
    (form == ExportForm::kMerged ? plain.place.huggingface : plain.place.gguf) = to;
    Session merged(plain);
    EXPECT_NEAR(merged.loss(), run.loss(), 1e-5 * std::abs(run.loss()));
    EXPECT_GT(std::abs(run.loss() - untrained), 0.01);
  }
  export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kAdapter, .to = at("peft")});
  Session again(of);
  (void)load_adapter(again.trainer, of, at("peft"));
  EXPECT_EQ(again.loss(), run.loss());
  expect_user_error(
      [&] { export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kAdapterGguf, .to = at("a.gguf")}); },
      {"snapshot/model.safetensors", "embed_tokens", "trained whole", "llama.cpp"});
  EXPECT_FALSE(fs::exists(at("a.gguf")));
}

// A tensor that was drawn from the seed is in no file of the base. So a merged model can contain it
// only if it was trained in full.
TEST_F(AdapterTraining, ATensorThatIsSkippedMustBeTrainedWholeToBeMerged) {
  const Recipe of =
      recipe({{"modules_to_save", {"norm"}}}, {{"init", {{"from", base()}, {"skip", {"model.norm.weight"}}}}});
  Session session(of);
  session.train(2);
  save(session, of);
  export_snapshot(of, {.snapshot = at("snapshot"), .form = ExportForm::kMergedGguf, .to = at("m.gguf")});
  Recipe plain = recipe({}, {{"lora", nullptr}});
  plain.place.gguf = at("m.gguf");
  EXPECT_NEAR(Session(plain).loss(), session.loss(), 1e-5 * session.loss());
  const Recipe others =
      recipe({{"modules_to_save", {"norm"}}}, {{"init", {{"from", base()}, {"skip", {"*norm.weight"}}}}});
  save(session, others);
  const ExportRequest request = {.snapshot = at("snapshot"), .form = ExportForm::kMergedGguf, .to = at("n.gguf")};
  expect_user_error([&] { export_snapshot(others, request); },
                    {at("snapshot"), "trained beside weights that no file has whole"});
}

}  // namespace
}  // namespace reprise
