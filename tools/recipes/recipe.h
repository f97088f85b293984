// The recipe: one JSON file that says what to train, on what data, with which optimizer, inside which budget.
// Every key is checked here, once, so that nothing behind this door meets an unknown field or an impossible shape.
// The recipe stands above the models, whose families read and write their own fields, and below everything that plans or trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "tools/chat/train_on.h"
#include "tools/formats/text.h"
#include "tools/models/models.h"
#include "tools/weights/lora_settings.h"

namespace reprise {

struct DataSource {
  // kNone: the recipe has no "data". It can be planned, not trained.
  enum class Kind {
    kNone,
    kIdx,
    kImageFolder,
    kTensors,
    kTokens,
    kText,
    kChat,
    kPreferences,
    kSynthetic,
    kCsv,
    kMaskFolder,
    kTexts
  };
  Kind kind = Kind::kNone;
  std::string path, eval_path;  // absolute, or empty where not given
  bool shuffle = true;
  std::vector<double> mean, std;  // of pixels/255; empty, one number, or one for each channel
  bool flip = false;              // horizontal, one sample in two
  int crop = 0;                   // pixels of zero padding before a random crop back to the image's size
  int token_bytes = 2;            // 2 | 4, for kTokens
  std::string tokenizer;          // absolute: a folder or file, of which nets of texts read kCsv and kTexts
  std::vector<std::string> columns;  // of kCsv and kTexts: those that are read, the sample's first; {}: all
  enum class Broken { kRefuse, kSkip };
  Broken broken = Broken::kRefuse;  // a picture that cannot be decoded, for kImageFolder
  bool pack = false;                // several samples in a row, each a document of its own, for kChat and kPreferences
  TrainOn train_on = TrainOn::kAssistant;  // for kChat
  enum class TooLong { kRefuse, kCut };
  TooLong too_long = TooLong::kRefuse;  // a sample of more tokens than "sequence", for kChat
  enum class Bad { kRefuse, kSkip };
  Bad bad = Bad::kRefuse;  // a record that cannot be trained on, for kChat and kPreferences
  double held_out = 0;     // the share of the training set that is kept for evaluation; 0: none
  bool operator==(const DataSource&) const = default;
};

// Every kind's word in a recipe, which inputs of models it can feed, and of images and texts which of their losses.
struct DataKind {
  const char* word;
  DataSource::Kind kind;
  bool images, tokens;
  bool classes = true, numbers = false, maps = false;  // numbers: and labels that are true or false
  bool texts = false;

  bool feeds(ModelDescription::Target target) const {
    using Target = ModelDescription::Target;
    return target == Target::kClass ? classes : target == Target::kClassMap ? maps : numbers;
  }
};
constexpr DataKind kDataKinds[] = {
    {"idx", DataSource::Kind::kIdx, true, false},
    {"image_folder", DataSource::Kind::kImageFolder, true, false},
    {"tensors", DataSource::Kind::kTensors, true, false, true, true, true, true},
    {"csv", DataSource::Kind::kCsv, true, false, true, true, false, true},
    {"mask_folder", DataSource::Kind::kMaskFolder, true, false, false, false, true},
    {"tokens", DataSource::Kind::kTokens, false, true},
    {"text", DataSource::Kind::kText, false, true},
    {"chat", DataSource::Kind::kChat, false, true},
    {"preferences", DataSource::Kind::kPreferences, false, true},
    {"texts", DataSource::Kind::kTexts, false, false, true, true, false, true},
    {"synthetic", DataSource::Kind::kSynthetic, true, true, true, true, true, true},
};

// Whether samples are what people and the model say in turn.
inline bool holds_conversations(const DataSource& data) { return data.kind == DataSource::Kind::kChat; }

// torch.optim's definitions and defaults, where torch has the optimizer.
struct OptimizerRecipe {
  Op update = Op::kSgd;            // the op whose rows update the weights; with `small` its word is the recipe's "name"
  bool small = false;              // AdaLomo of Adafactor's, APOLLO-Mini of APOLLO's
  double lr = 1e-3;
  double momentum = 0;             // sgd; muon
  bool nesterov = false;           // sgd; muon
  double beta1 = 0.9, beta2 = 0.999;  // adamw, apollo, and what muon leaves to adamw; lion: 0.9 and 0.99
  double eps = 1e-8;               // adamw, apollo, muon; adafactor: added to the means of squares
  double weight_decay = 0;         // default: 0, but 0.01 for adamw, 0.1 for muon
  bool offload = false;            // moments lie in memory of the host
  DType states = DType::kF32;      // sgd, adamw, lion, muon: how moments are stored; or kBf16, or kDynamic8 for "8bit"
  double decay_power = 0.8, least_scale = 1e-3, clip_threshold = 1;  // adafactor, adalomo
  uint64_t rank = 256, period = 200;  // apollo; apollo_mini has rank 1
  double scale = 1;                // apollo; 128 for apollo_mini
  bool matches_adamw = false;      // muon: "adjust"
  std::optional<double> adamw_lr;  // muon; none: lr
  std::vector<std::string> no_decay;  // patterns of parameter names, see matches_pattern
  bool operator==(const OptimizerRecipe&) const = default;
};

// The factor on the optimizer's lr at step s (from 0), w = warmup_steps:
//   s < w        (s + 1) / w, in every kind
//   kConstant    1
//   kStep        gamma ^ (number of milestones <= s)
//   kCosine      (1 + cos(pi * min(1, (s - w) / (steps - w)))) / 2
struct LrSchedule {
  enum class Kind { kConstant, kStep, kCosine };
  Kind kind = Kind::kConstant;
  uint64_t warmup_steps = 0;
  uint64_t steps = 0;                // kCosine: where it reaches 0; default the recipe's "steps". 0 = not given
  std::vector<uint64_t> milestones;  // kStep: rising
  double gamma = 0.1;                // kStep
  bool operator==(const LrSchedule&) const = default;
};

// Weights that a training starts from, which may be another net's in part.
struct InitialWeights {
  bool random = false;            // the seed's, although the model's folder may hold some
  std::string from;               // a file (safetensors); empty: the seed's, or those of the model's folder
  std::vector<std::string> skip;  // patterns of tensors that keep their initial values
  bool allow_missing = false;     // so do those that the file has not
  bool operator==(const InitialWeights&) const = default;
};

// When a training ends that learns nothing more.
struct EarlyStopping {
  uint64_t patience = 0;  // evaluations in turn whose loss is no less than the least before them
  bool operator==(const EarlyStopping&) const = default;
};

// A step that several processes take together, each on micro-batches of its own: rank r runs numbers r, r + ranks, r + 2 ranks ... of the step's.
// Flat: gradients are added in the order of these numbers, so that the bits do not depend on how many ranks there are. Two levels: each rank adds
// its own first, and then all ranks' sums in the order of the ranks, so that they go over the network once a step.
struct ParallelRecipe {
  int ranks = 1;
  bool two_levels = false;
  bool shard_optimizer = false;  // each rank keeps moments of a part of the parameters, updates these and sends them to all
  bool shard_weights = false;  // each rank holds a slice of every streamed weight, and loads come from the ranks
  double timeout = 60;  // seconds without a word from another rank, after which it counts as lost
  bool operator==(const ParallelRecipe&) const = default;
};

// How what is not trained lies in memory.
struct WeightsRecipe {
  enum class Stream { kNone, kAll, kByPlan };
  std::optional<DType> frozen;  // what frozen matrices become while they are read; none: they stay as the model's file stores them
  bool embedding_from_file = false;  // the embeddings' rows of a micro-batch's tokens are read from that file, and the others not at all
  Stream stream = Stream::kNone;  // which of them come from a file each time that they are wanted: kByPlan lets the planner choose
  bool operator==(const WeightsRecipe&) const = default;
};

// How what is trained lies in memory.
struct TrainedRecipe {
  DType storage = DType::kF32;  // of matrices; or kBf16, rounded at random at each update
  bool operator==(const TrainedRecipe&) const = default;
};

// "schedule": "optimal" is short for {"strategy": "optimal"}.
struct ScheduleRecipe {
  std::string strategy = "optimal";  // one of schedule.h's strategy_names()
  int k = 0;                         // every-k, sqrt, chen-recursive: links in a segment. 0 = not given
  int slots = 0;                     // revolve: checkpoints, the input's included. 0 = the cheapest number that fits
  std::string policy;                // policy: its name
  bool residues = true;              // optimal, h-revolve: false is Rotor's class
  uint64_t disk_bytes = 0, host_bytes = 0;  // h-revolve, multistage: "disk" or "host", what may lie there at once. 0 = none
  std::optional<double> write_cost, read_cost;  // of a byte to and from there, in flop equivalents (cost.h); a profile's seconds replace them

  // Of the second level, which is one of the two.
  uint64_t spill_bytes() const { return host_bytes > 0 ? host_bytes : disk_bytes; }
  bool operator==(const ScheduleRecipe&) const = default;
};

struct Recipe {
  enum class Dtype { kF32, kBf16 };
  enum class BackendChoice { kCpu, kCuda, kAuto };
  std::string name;  // letters, digits, '.', '_', '-'; default: the file's name without its ending
  Model model;       // required
  ModelPlace place;  // of the model's files, where it has some
  DataSource data;
  int batch = 0;      // samples in one micro-batch; required
  int sequence = 0;   // tokens in one sample; default the model's longest; 0 for image models
  int accumulate = 1;  // micro-batches in one step
  Dtype dtype = Dtype::kF32;
  OptimizerRecipe optimizer;
  LrSchedule lr_schedule;
  std::optional<PreferenceAttribute> loss;  // of pairs of answers; none: of each label
  std::optional<double> clip_norm;
  bool gradient_release = false;
  InitialWeights init;
  std::vector<std::string> freeze;  // patterns of parameter names, see matches_pattern
  WeightsRecipe weights;
  TrainedRecipe trained;
  std::optional<LoraSettings> lora;  // the model's own parameters are frozen, and adapters trained beside its linear layers
  std::optional<uint64_t> evaluate_every;  // steps; 0: no evaluation at all; absent: one at the end, but of synthetic data none
  uint64_t evaluate_batches = 0;           // micro-batches of an evaluation at most; 0: the whole set
  bool evaluate_first = false;             // before the first step, too
  std::optional<EarlyStopping> early_stopping;
  std::optional<ParallelRecipe> parallel;
  std::vector<std::string> prompts;        // of language models: answered before the first step and after the last
  int answer_tokens = 60;                  // of such an answer, at most
  uint64_t steps = 0;               // 0 = not given: the command line must say
  ScheduleRecipe schedule;
  std::optional<uint64_t> budget_bytes;              // the whole arena
  std::vector<uint64_t> budgets;                     // of the whole arena too: a plan for each, of which budget_bytes is the first
  std::optional<uint64_t> feature_map_budget_bytes;  // boundaries, tapes, residues, activation gradients; never both
  uint64_t seed = 0;
  BackendChoice backend = BackendChoice::kCpu;
  enum class CoreSize { kSmall, kLarge };
  CoreSize core = CoreSize::kLarge;
  enum class CardSize { kSmall, kLarge };
  CardSize card = CardSize::kSmall;
  enum class Math { kF32, kTf32, kBf16x3 };
  Math math = Math::kF32;  // how a card multiplies what is stored as f32

  int ranks() const { return parallel ? parallel->ranks : 1; }
  // Of one step, in all ranks.
  int micro_batches() const { return accumulate * ranks(); }
  // What a plan's second level is, where it has one.
  SpillLevel spill_level() const { return schedule.host_bytes > 0 || optimizer.offload ? SpillLevel::kHost : SpillLevel::kDisk; }
  bool operator==(const Recipe&) const = default;
};

// Reads a recipe's text. `file` is the name that messages use, and the default of "name"; relative paths in the
// recipe resolve against `folder`. Throws UserError: file, dotted field path, what would be right.
Recipe parse_recipe(const std::string& text, const std::string& file, const std::string& folder);
Recipe read_recipe(const std::string& path);
// The same, and `rules` get what refuses, with file and place, what is found wrong in the recipe later.
Recipe read_recipe(const std::string& path, RecipeRules& rules);

// The recipe with another model in place of its own, whose files need not be there: a folder as Hugging Face has it, a GGUF file, or another recipe
// (.json), of which it takes "model" and "init". Of its own "init" nothing is kept. It is for planning: the kind of data is left out, which may ask
// for a tokenizer that a shape alone has not, and a sequence that is too long for the model is the model's longest.
Recipe read_recipe_of_model(const std::string& path, const std::string& model, RecipeRules& rules);

// What no single field can say: combinations that cannot be. parse_recipe has called it; a program that changes a
// recipe afterwards (--budget, --schedule) calls it again. Throws UserError.
void check_recipe(const Recipe& recipe, const RecipeRules& rules);

// As many plans as a program may have.
constexpr size_t kMostBudgets = 8;

// The recipe of each of its plans: one for each of "budgets", with that "budget"; else the recipe itself.
std::vector<Recipe> recipes_of_plans(const Recipe& recipe);

// Returns the files and folders that the recipe names: data, tokenizer, weights and model. Some may be "".
std::vector<std::string> inputs_of(const Recipe& recipe);

// One micro-batch of the recipe, as its model builds it.
MicroBatch micro_batch_of(const Recipe& recipe);

// Whether pairs of answers are judged beside what another model says of them: the one that the training begins with, its adapter left out.
bool has_reference(const Recipe& recipe);

// The published weights of the recipe's model, from which training starts, as open_weights() takes them; "" where there are none, or the
// recipe asks for the seed's.
std::string published_weights(const Recipe& recipe);

// Why a training that is given no other weights cannot start from the model's place; "" where it can, or where the recipe says from what:
// "init", or a family by fields, whose weights are the seed's.
std::string missing_weights(const Recipe& recipe);

// "cpu", "cuda" or "auto".
const char* backend_word(Recipe::BackendChoice backend);

// JSON with sorted keys, absolute paths and every default written out; parse_recipe reads it back to an equal Recipe,
// needing no other file.
std::string canonical_recipe(const Recipe& recipe);

}  // namespace reprise
