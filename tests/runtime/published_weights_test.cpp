// Tests the training of a checkpoint that was published in BF16. Frozen weights stay BF16 in State,
// which halves their bytes; trained weights become f32. Losses, gradients and trained weights must
// have the bits of a training from the same numbers in f32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <ostream>
#include <set>

#include "lib/f16.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/stored_bytes.h"
#include "tests/judges/replay.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/formats/ggml_blocks.h"
#include "tools/files/weights/quantised_weights.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/inference/logits.h"
#include "tools/run/snapshots/initial_weights.h"
#include "tools/run/snapshots/state_tensors.h"

namespace reprise {
namespace {

class Session : public BoundRecipe {
 public:
  using BoundRecipe::BoundRecipe;

  // Trains `steps` steps. Returns the loss and the gradient norm of each step, then the loss of an
  // evaluation.
  std::vector<double> train(int steps) {
    const auto data = open_dataset(recipe(), Split::kTraining);
    const BatchSource source = source_of(*data);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      StepReport report;
      EXPECT_TRUE(train_step(trainer, source, report).ok());
      losses.push_back(report.loss);
      losses.push_back(static_cast<double>(report.gradient_norm));
    }
    EXPECT_EQ(measure(trainer), plan().arena_bytes);
    EvaluationReport evaluation;
    EXPECT_TRUE(evaluate(trainer, source, 1, evaluation).ok());
    losses.push_back(evaluation.loss);
    return losses;
  }
  // Returns every parameter, moment and buffer as f32.
  std::map<std::string, std::vector<float>> values() const {
    std::map<std::string, std::vector<float>> all;
    for (uint32_t i = kFirstTrained; i < plan().state.count; ++i) {
      const Tensor& tensor = plan().state[i].tensor;
      std::vector<float>& numbers = all[plan().state[i].name];
      if (tensor.dtype == DType::kF32) numbers = floats_of(trainer, i);
      if (tensor.dtype == DType::kF16) {
        const auto bytes = bytes_at(trainer, trainer.state_tensor(i), tensor.used_bytes());
        numbers.resize(tensor.elements());
        dequantise_blocks(BlockType::kF16, bytes.data(), numbers.size(), numbers.data());
      }
      if (tensor.dtype != DType::kBf16) continue;
      std::vector<Bf16> stored(tensor.elements());
      std::memcpy(stored.data(), bytes_at(trainer, trainer.state_tensor(i), tensor.used_bytes()).data(),
                  tensor.used_bytes());
      numbers.assign(stored.begin(), stored.end());
    }
    return all;
  }
  void load(const std::string& path) { read_state(trainer, *open_weights(path), StatePart::kModel); }
  void save(const std::string& path) const { write_state(trainer, path, StatePart::kModel, {}); }
};

// Writes the tensors of a file with every F32 number rounded to bf16 and stored as `type`. GPT-2's
// tensors get the names of the published files.
void write_rounded(const std::string& from, const std::string& to, StoredType type) {
  const SafetensorsFile file(from);
  SafetensorsWriter writer(to);
  const auto published = [](std::string name) { return name.starts_with("transformer.") ? name.substr(12) : name; };
  for (const auto& [name, tensor] : file.tensors())
    writer.declare(published(name), tensor.type == StoredType::kF32 ? type : tensor.type, tensor.shape);
  for (const auto& [name, tensor] : file.tensors()) {
    const std::vector<unsigned char> bytes = stored_bytes(file, tensor);
    if (tensor.type != StoredType::kF32) {
      writer.write(bytes.data(), bytes.size());
      continue;
    }
    std::vector<float> wide(tensor.bytes / sizeof(float));
    std::memcpy(wide.data(), bytes.data(), bytes.size());
    const std::vector<Bf16> narrow(wide.begin(), wide.end());
    wide.assign(narrow.begin(), narrow.end());
    std::vector<uint16_t> halves;
    for (const float value : wide) halves.push_back(f32_to_f16(value));
    if (type == StoredType::kF16) {  // a bf16 number may be too large or too small to be exact in f16
      writer.write(halves.data(), halves.size() * sizeof(uint16_t));
    } else {
      type == StoredType::kBf16 ? writer.write(narrow.data(), narrow.size() * sizeof(Bf16))
                                : writer.write(wide.data(), tensor.bytes);
    }
  }
  writer.finish();
}

// Writes the tensors of a file as F32. Matrices whose rows are whole blocks of `format` first get
// the numbers that these blocks would represent.
void widen_file(const std::string& from, const std::string& to, DType format = DType::kF32) {
  const auto source = open_weights(from);
  SafetensorsWriter writer(to);
  const auto is_float = [&](const std::string& name) { return source->find(name)->exact != DType::kI64; };
  const auto round = [format](const StoredWeight& weight, std::vector<float>& numbers) {
    const std::optional<DType> own =
        weight.shape.size() == 2 ? quantised_format(format, weight.shape[1]) : std::nullopt;
    if (!own) return;
    const uint64_t blocks = numbers.size() / dtype_info(*own).block_elements;
    std::vector<unsigned char> bytes(stored_bytes(*own, numbers.size()));
    quantise_blocks(*block_type_of(*own), numbers.data(), blocks, bytes.data());
    dequantise_blocks(*block_type_of(*own), bytes.data(), blocks, numbers.data());
  };
  for (const std::string& name : source->names())
    writer.declare(name, is_float(name) ? StoredType::kF32 : StoredType::kI64, source->find(name)->shape);
  for (const std::string& name : source->names()) {
    uint64_t elements = 1;
    for (const uint64_t dimension : source->find(name)->shape) elements *= dimension;
    std::vector<float> floats(elements);
    std::vector<int64_t> integers(elements);
    is_float(name) ? source->read(name, 0, elements, floats.data()) : source->read(name, 0, elements, integers.data());
    round(*source->find(name), floats);
    is_float(name) ? writer.write(floats.data(), elements * sizeof(float))
                   : writer.write(integers.data(), elements * sizeof(int64_t));
  }
  writer.finish();
}

struct Net {
  const char* name;
  std::string model, rest, freeze;
  std::vector<std::string> kept;  // names of the matrices that are frozen
};

const Net kNets[] = {
    {"gpt2",
     R"("family": "gpt2", "vocab_size": 61, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2)",
     R"("batch": 2, "accumulate": 2)",
     R"(["*wte.weight", "*wpe.weight", "*ln_1*", "*c_attn*", "*c_fc.weight", "*h.0.mlp.c_proj.weight"])",
     {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.attn.c_attn.weight",
      "transformer.h.1.attn.c_attn.weight", "transformer.h.0.mlp.c_fc.weight", "transformer.h.1.mlp.c_fc.weight",
      "transformer.h.0.mlp.c_proj.weight"}},
    {"resnet",
     R"("family": "resnet", "block": "bottleneck", "units": [1, 1, 1], "width": 8, "classes": 5, "image": [13, 12, 3])",
     R"("batch": 3)",
     R"(["*conv2.weight", "layer2.*conv3.weight", "*downsample.0.weight", "fc.*"])",
     {"layer1.0.conv2.weight", "layer2.0.conv2.weight", "layer3.0.conv2.weight", "layer2.0.conv3.weight",
      "layer1.0.downsample.0.weight", "layer2.0.downsample.0.weight", "layer3.0.downsample.0.weight", "fc.weight"}},
};

void PrintTo(const Net& net, std::ostream* out) { *out << net.name; }

class PublishedWeights : public ::testing::TestWithParam<Net> {
 protected:
  // Writes two folders with the same numbers: one has a model.safetensors of BF16, the other one of
  // F32.
  void SetUp() override {
    for (const std::string& folder : {narrow(), wide()}) std::filesystem::create_directory(folder);
    Session drawn(recipe("", "f32"));
    drawn.save(folder_.file("drawn"));
    write_rounded(folder_.file("drawn"), narrow() + "/model.safetensors", StoredType::kBf16);
    write_rounded(folder_.file("drawn"), wide() + "/model.safetensors", StoredType::kF32);
  }
  static std::map<std::string, std::vector<float>> parameters(const Session& session) {
    std::map<std::string, std::vector<float>> all = session.values();
    std::erase_if(all, [](const auto& entry) { return entry.first.starts_with("momentum."); });
    return all;
  }
  static bool is_kept(const std::string& name) {
    return std::find(GetParam().kept.begin(), GetParam().kept.end(), name) != GetParam().kept.end();
  }
  std::string narrow() const { return folder_.file("narrow"); }
  std::string wide() const { return folder_.file("wide"); }
  std::string weights(const std::string& folder) const { return folder + "/model.safetensors"; }

  Recipe recipe(const std::string& folder, const std::string& dtype, bool freezes = true) const {
    const Net& net = GetParam();
    Recipe recipe = recipe_from("{\"name\": \"published\", \"model\": {" + net.model + "}, " + net.rest +
                                R"(, "dtype": ")" + dtype +
                                R"(", "data": {"kind": "synthetic"}, "steps": 4, "seed": 3, "evaluate_every": 2,
                       "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}, "freeze": )" +
                                (freezes ? net.freeze : "[]") + "}");
    recipe.place.huggingface = folder;
    return recipe;
  }
  TemporaryFolder folder_;
};

TEST_P(PublishedWeights, FrozenMatricesTakeHalfTheBytes) {
  const Session kept(recipe(narrow(), "f32")), widened(recipe(wide(), "f32")), trained(recipe(narrow(), "f32", false));
  uint64_t saved = 0;
  for (const StateTensor& state : kept.plan().state) {
    const Tensor& before = widened.state(state.name).tensor;
    EXPECT_EQ(state.tensor.dtype, is_kept(state.name) ? DType::kBf16 : before.dtype) << state.name;
    if (is_kept(state.name)) saved += align_up(4 * state.tensor.elements()) - align_up(2 * state.tensor.elements());
  }
  EXPECT_GT(saved, 0u);
  EXPECT_EQ(kept.plan().state_bytes + saved, widened.plan().state_bytes);
  for (const StateTensor& state : trained.plan().state)
    EXPECT_NE(state.tensor.dtype, DType::kBf16) << state.name << ": what trains is f32";
}

TEST_P(PublishedWeights, TrainAsTheSameNumbersInF32Do) {
  for (const char* dtype : {"f32", "bf16"}) {
    Session widened(recipe(wide(), dtype));
    widened.load(weights(wide()));
    const auto start = widened.values();
    const std::vector<double> losses = widened.train(4);
    for (const auto& [strategy, share] : {std::pair{"none", -1.0}, std::pair{"optimal", 0.0}}) {
      Session kept(recipe(narrow(), dtype), strategy, share);
      kept.load(weights(narrow()));
      EXPECT_EQ(kept.values(), start) << "a BF16 file is loaded exactly";
      EXPECT_EQ(kept.train(4), losses) << dtype << " " << strategy;
      EXPECT_EQ(kept.values(), widened.values()) << dtype << " " << strategy;
    }
  }
}

// F16 weights stay F16 in State if all kernels that read them accept F16; a convolution does not.
// The training must have the bits of the same numbers in f32.
TEST_P(PublishedWeights, HalvesStayAsTheyAre) {
  const std::string folder = folder_.file("halves"), widened_folder = folder_.file("widened");
  for (const std::string& each : {folder, widened_folder}) std::filesystem::create_directory(each);
  write_rounded(folder_.file("drawn"), weights(folder), StoredType::kF16);
  widen_file(weights(folder), weights(widened_folder));
  for (const char* dtype : {"f32", "bf16"}) {
    Session kept(recipe(folder, dtype), "optimal", 0.0), widened(recipe(widened_folder, dtype));
    uint64_t halves = 0;
    for (const StateTensor& state : kept.plan().state) {
      const bool stays = is_kept(state.name) && state.tensor.rank == 2;
      EXPECT_EQ(state.tensor.dtype == DType::kF16, stays) << state.name;
      halves += stays ? 1 : 0;
    }
    EXPECT_GT(halves, 0u);
    EXPECT_LT(kept.plan().state_bytes, widened.plan().state_bytes);
    kept.load(weights(folder));
    widened.load(weights(widened_folder));
    EXPECT_EQ(kept.values(), widened.values());
    EXPECT_EQ(kept.train(4), widened.train(4)) << dtype;
    EXPECT_EQ(kept.values(), widened.values()) << dtype;
    kept.save(folder_.file("saved"));
    Session again(recipe(folder, dtype));
    again.load(folder_.file("saved"));
    EXPECT_EQ(parameters(again), parameters(kept));
    expect_user_error([&] { again.load(weights(widened_folder)); }, {"must be F16"});
  }
}

TEST_P(PublishedWeights, SnapshotsKeepThemBitForBit) {
  Session kept(recipe(narrow(), "f32"));
  kept.load(weights(narrow()));
  kept.train(2);
  kept.save(folder_.file("snapshot"));
  const SafetensorsFile published(weights(narrow())), saved(folder_.file("snapshot"));
  for (const std::string& name : GetParam().kept) {
    const std::string there = name.starts_with("transformer.") ? name.substr(12) : name;
    const StoredTensor& before = published.tensors().at(there);
    const StoredTensor& after = saved.find(name, StoredType::kBf16, before.shape);
    EXPECT_EQ(stored_bytes(published, before), stored_bytes(saved, after)) << name;
  }
  for (const auto& [name, tensor] : saved.tensors()) {
    EXPECT_EQ(tensor.type == StoredType::kBf16, is_kept(name)) << name;
  }
  Session again(recipe(narrow(), "f32"));
  again.load(folder_.file("snapshot"));
  EXPECT_EQ(parameters(again), parameters(kept));
  Session widened(recipe(wide(), "f32"));
  widened.load(folder_.file("snapshot"));
  EXPECT_EQ(parameters(widened), parameters(kept)) << "into f32 it is widened";
}

TEST_P(PublishedWeights, AreDrawnAsF32AndRounded) {
  const Session kept(recipe(narrow(), "f32")), widened(recipe(wide(), "f32"));
  auto expected = widened.values();
  for (const std::string& name : GetParam().kept) {
    for (float& value : expected.at(name)) value = Bf16(value);
  }
  EXPECT_EQ(kept.values(), expected);
}

TEST_P(PublishedWeights, RefuseToLoseBitsOfAnF32File) {
  Session kept(recipe(narrow(), "f32"));
  const auto before = kept.values();
  expect_user_error([&] { kept.load(weights(wide())); }, {weights(wide()), "tensor", "F32", "must be BF16"});
  EXPECT_EQ(kept.values(), before);
}

// A file is truncated between its opening and its reading, as another program may do. Tests files
// whose BF16 is kept, whose BF16 is widened, and whose numbers are F32.
TEST_P(PublishedWeights, ThatBecomeShorterWhileTheyAreReadAreRefused) {
  for (const std::string& folder : {narrow(), wide()}) {
    Session session(recipe(wide(), "f32"));
    const uint64_t whole = std::filesystem::file_size(weights(folder));
    for (const uint64_t cut : {uint64_t{1}, whole / 4, whole / 2}) {
      const std::string path = folder_.file("cut");
      std::filesystem::copy_file(weights(folder), path, std::filesystem::copy_options::overwrite_existing);
      const auto file = open_weights(path);
      std::filesystem::resize_file(path, whole - cut);
      expect_user_error([&] { read_state(session.trainer, *file, StatePart::kModel); },
                        {path, "has become shorter while it was in use"});
    }
  }
  Session kept(recipe(narrow(), "f32"));
  const auto file = open_weights(weights(narrow()));
  std::filesystem::resize_file(weights(narrow()), std::filesystem::file_size(weights(narrow())) / 2);
  expect_user_error([&] { read_state(kept.trainer, *file, StatePart::kModel); },
                    {weights(narrow()), "has become shorter"});
}

TEST_P(PublishedWeights, PlansComputeWhatTheNetworkSays) {
  for (const char* dtype : {"f32", "bf16"}) {
    const Recipe of = recipe(narrow(), dtype);
    const testing::ReplayVerdict verdict =
        testing::Replay(build_stored_model(of, backend_of(of)), of).judge(Session(of, "optimal", 0.2).plan());
    EXPECT_TRUE(verdict.ok) << verdict.text();
  }
}

// Returns the logits of the first micro-batch of an evaluation, in the form in which the host reads
// them.
std::vector<double> logits_of(Session& session) {
  std::vector<double> all;
  LogitsReader reader(session.trainer, [&](uint64_t, int32_t, std::vector<double>& logits) {
    all.insert(all.end(), logits.begin(), logits.end());
  });
  session.train(0);
  EXPECT_TRUE(reader.status().ok());
  return all;
}

// Tests adapters on a base in GGUF. Weights that kernels can read in blocks stay in blocks. The
// training must have the bits of the same numbers in f32.
class QuantisedBase : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantisedBase, TrainsAsTheSameNumbersInF32Do) {
  const TemporaryFolder folder;
  const std::string gguf =
      std::filesystem::absolute(std::string("tests/golden/weights/") + GetParam() + ".gguf").string();
  widen_file(gguf, folder.file("model.safetensors"));
  for (const char* dtype : {"f32", "bf16"}) {
    Recipe in_blocks = recipe_from("{\"name\": \"blocks\", \"model\": {\"gguf\": \"" + gguf + "\"}, \"dtype\": \"" +
                                   dtype + R"(", "data": {"kind": "synthetic"},
        "batch": 2, "sequence": 13, "steps": 4, "seed": 5, "evaluate_every": 2, "lora": {"r": 3, "alpha": 6}, "optimizer": {"name": "adamw", "lr": 0.01}})");
    Recipe in_f32 = in_blocks;
    in_f32.place = {};
    in_f32.place.huggingface = folder.path();
    const auto losses_of = [](Session& session, const std::string& weights) {
      read_initial_weights(session.trainer, *open_weights(weights), {});
      return session.train(4);
    };
    Session kept(in_blocks, "optimal", 0.0), widened(in_f32);
    std::set<DType> formats;
    for (const StateTensor& state : kept.plan().state) formats.insert(state.tensor.dtype);
    for (const DType format : {DType::kQ8_0, DType::kBf16})
      EXPECT_EQ(formats.count(format), 1u) << dtype_info(format).name;
    EXPECT_EQ(formats.count(DType::kF16), GetParam() == std::string("gpt2") ? 0u : 1u)
        << "its matrix of halves stands transposed in the file";
    EXPECT_LT(kept.plan().state_bytes, widened.plan().state_bytes);
    EXPECT_EQ(losses_of(kept, gguf), losses_of(widened, folder.file("model.safetensors"))) << dtype;
    const auto adapters = [](const Session& session) {
      std::map<std::string, std::vector<float>> all = session.values();
      std::erase_if(all, [](const auto& entry) { return !is_adapter(entry.first); });
      return all;
    };
    EXPECT_EQ(adapters(kept), adapters(widened)) << dtype;
    const std::vector<double> logits = logits_of(kept);
    EXPECT_EQ(logits, logits_of(widened)) << dtype;
    EXPECT_FALSE(logits.empty());
    expect_user_error([&] { read_initial_weights(kept.trainer, *open_weights(folder.file("model.safetensors")), {}); },
                      {"must be Q8_0"});
    expect_user_error(
        [&] {
          read_initial_weights(kept.trainer, *open_weights(gguf), {.skip = {"*embed_tokens.weight", "*wte.weight"}});
        },
        {"init.skip"});
  }
}

// If a recipe quantises the weights of a folder while they are read, training must use the numbers
// of the resulting blocks.
TEST(QuantisedOnTheWay, TrainsAsTheNumbersOfItsBlocksDo) {
  const TemporaryFolder source, rounded;
  const std::string gguf = std::filesystem::absolute("tests/golden/weights/llama.gguf").string();
  widen_file(gguf, source.file("model.safetensors"));
  const auto recipe_of = [&](const std::string& folder, const std::string& frozen) {
    Recipe recipe = recipe_from("{\"name\": \"blocks\", \"model\": {\"gguf\": \"" + gguf +
                                R"("}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 13,
        "steps": 4, "seed": 5, "lora": {"r": 3}, "weights": {"frozen": ")" +
                                frozen + R"("}, "optimizer": {"name": "adamw", "lr": 0.01}})");
    recipe.place = {};
    recipe.place.huggingface = folder;
    return recipe;
  };
  const auto losses_of = [](Session& session, const Recipe& recipe) {
    read_initial_weights(session.trainer, *open_model_weights(recipe, published_weights(recipe)), {});
    return session.train(4);
  };
  for (const DType format : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kNF4, DType::kNF4Double,
                             DType::kQ8_0, DType::kF16, DType::kBf16}) {
    widen_file(gguf, rounded.file("model.safetensors"), format);
    const Recipe quantised = recipe_of(source.path(), dtype_info(format).name),
                 plain = recipe_of(rounded.path(), "f32");
    Session kept(quantised), wide(plain);
    EXPECT_LT(kept.plan().state_bytes, wide.plan().state_bytes);
    EXPECT_EQ(losses_of(kept, quantised), losses_of(wide, plain)) << dtype_info(format).name;
    expect_user_error([&] { read_initial_weights(kept.trainer, *open_weights(published_weights(quantised)), {}); },
                      {"must be", "weights"});
  }
}

// Weights are drawn from the seed and quantised, without any file. If rows are not whole blocks of
// NF4_DOUBLE, they are stored as NF4.
TEST(QuantisedOnTheWay, WeightsOfTheSeedTrainInBlocks) {
  const auto recipe_of = [](const std::string& frozen, int hidden) {
    return recipe_from(R"({"name": "drawn", "model": {"family": "llama", "vocab_size": 96, "hidden_size": )" +
                       std::to_string(hidden) + R"(,
        "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": true}, "init": "random",
        "data": {"kind": "synthetic"}, "batch": 2, "sequence": 13, "steps": 4, "seed": 5, "lora": {"r": 3}, "weights": {"frozen": ")" +
                       frozen + R"("},
        "optimizer": {"name": "adamw", "lr": 0.01}})");
  };
  using Counts = std::map<DType, int>;
  const auto counts_of = [&](const std::string& frozen, int hidden) {
    Session kept(recipe_of(frozen, hidden)), wide(recipe_of("f32", hidden));
    draw_stored_weights(kept.trainer);
    Counts counts;
    for (uint32_t i = 0; i < kept.plan().state.count; ++i) {
      const Tensor& tensor = kept.plan().state[i].tensor;
      const DTypeInfo& block = dtype_info(tensor.dtype);
      if (block.block_elements == 1) continue;
      ++counts[tensor.dtype];
      std::vector<unsigned char> bytes(tensor.used_bytes()), expected(tensor.used_bytes());
      std::vector<float> drawn(tensor.elements());
      EXPECT_TRUE(kept.trainer.read(bytes.data(), kept.trainer.state_tensor(i), bytes.size()).ok());
      EXPECT_TRUE(wide.trainer.read(drawn.data(), wide.trainer.state_tensor(i), drawn.size() * sizeof(float)).ok());
      quantise_blocks(*block_type_of(tensor.dtype), drawn.data(), drawn.size() / block.block_elements, expected.data());
      EXPECT_EQ(bytes, expected) << kept.plan().state[i].name;
    }
    for (const double loss : kept.train(4)) EXPECT_TRUE(std::isfinite(loss));
    return counts;
  };
  EXPECT_EQ(counts_of("q4_0", 64), (Counts{{DType::kQ4_0, 15}})) << "seven layers of each block, and the embeddings";
  EXPECT_EQ(counts_of("nf4_double", 512), (Counts{{DType::kNF4Double, 13}, {DType::kNF4, 2}}))
      << "rows of 192 are those of the down projections";
}

INSTANTIATE_TEST_SUITE_P(Architectures, QuantisedBase, ::testing::Values("llama", "qwen2", "qwen3", "gpt2"),
                         [](const auto& info) { return info.param; });

INSTANTIATE_TEST_SUITE_P(Nets, PublishedWeights, ::testing::ValuesIn(kNets),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace reprise
