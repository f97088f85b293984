// The recipe: one JSON file that states what to train, on which data, with which optimizer and
// within which budget. Keys are checked when a recipe is read, so that later code need not check
// for unknown fields and impossible shapes. The recipe uses the models, whose families read and
// write their own fields. All code that plans or trains uses the recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/plan.h"
#include "tools/files/adapters/lora_settings.h"
#include "tools/files/chat/chat_settings.h"
#include "tools/files/chat/train_on.h"
#include "tools/files/io/text.h"
#include "tools/plan/models/models.h"

namespace reprise {

struct DataSource {
  // kNone: the recipe has no "data". Such a recipe can be planned but not trained.
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
  std::string path, eval_path;  // absolute, or empty if not given
  bool shuffle = true;
  // Mean and standard deviation of pixels / 255: one number for all channels, or one for each
  // channel. Empty if not given.
  std::vector<double> mean, std;
  bool flip = false;              // true: mirrors half of the samples from left to right
  int crop = 0;                   // pixels of zero padding before a random crop back to the image's size
  int token_bytes = 2;            // kTokens: bytes of a token in the file, 2 or 4
  std::string tokenizer;          // absolute: a folder or file, for nets of texts with kCsv and kTexts
  std::vector<std::string> columns;  // kCsv and kTexts: the columns that are read, a sample's inputs first; {}: all
  // kMaskFolder: for each class, in order, the value of its pixels in the masks. {}: the pixels of
  // class i have the value i.
  std::vector<int> mask_values;
  enum class Broken { kRefuse, kSkip };
  Broken broken = Broken::kRefuse;         // kImageFolder: what to do with a picture that cannot be decoded
  bool pack = false;  // kChat and kPreferences: true puts several samples into a row, each its own document
  TrainOn train_on = TrainOn::kAssistant;  // kChat: the messages that are learned
  enum class TooLong { kRefuse, kCut };
  TooLong too_long = TooLong::kRefuse;  // kChat: what to do with a sample of more tokens than "sequence"
  enum class Bad { kRefuse, kSkip };
  Bad bad = Bad::kRefuse;  // kChat and kPreferences: what to do with a record that cannot be trained on
  ChatSettings chat = {};  // kChat and kPreferences: settings; kText uses only control_tokens
  double held_out = 0;     // fraction of the training set that is kept for evaluation; 0: none
  bool operator==(const DataSource&) const = default;
};

// One kind of data: its word in a recipe, the inputs of models that it can feed and, for images and
// texts, the targets that it can provide.
struct DataKind {
  const char* word;
  DataSource::Kind kind;
  bool images, tokens;
  bool classes = true, numbers = false, maps = false;  // numbers: also labels that are true or false
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

// True if samples are conversations between people and the model.
inline bool holds_conversations(const DataSource& data) { return data.kind == DataSource::Kind::kChat; }

// The optimizer, with torch.optim's definition and defaults if torch has it.
struct OptimizerRecipe {
  Op update = Op::kSgd;  // The op whose rows update the weights. The recipe's "name" sets `update` and `small`.
  bool small = false;    // true: AdaLomo instead of Adafactor, APOLLO-Mini instead of APOLLO
  double lr = 1e-3;
  double momentum = 0;             // sgd, muon: factor of the moment in each step
  bool nesterov = false;           // sgd, muon: true for Nesterov's momentum
  // Betas of adamw, apollo, lion and of muon's parameters that AdamW updates: the shares of the
  // running means that a step keeps. In lion the defaults are 0.9 and 0.99.
  double beta1 = 0.9, beta2 = 0.999;
  // adamw, apollo: added to the root of the second moment. adafactor: added to the means of
  // squares. muon: the minimum norm.
  double eps = 1e-8;
  double weight_decay = 0;         // default: 0, but 0.01 for adamw, 0.1 for muon
  bool offload = false;            // moments are stored in memory of the host
  // sgd, adamw, lion, muon: the type of stored moments, kF32, kBf16, or kDynamic8 for "8bit".
  DType states = DType::kF32;
  double decay_power = 0.8, min_scale = 1e-3, clip_threshold = 1;  // parameters of adafactor and adalomo
  uint64_t rank = 256, period = 200;  // apollo: rank of a projection, steps between projections; apollo_mini: rank 1
  double scale = 1;  // apollo: the square root of `scale` multiplies the update; apollo_mini: 128 by default
  bool matches_adamw = false;      // muon: true if "adjust" is "match_rms_adamw"
  std::optional<double> adamw_lr;  // muon: for the parameters that AdamW updates; unset: lr
  std::vector<std::string> no_decay;  // patterns of parameter names, see matches_pattern
  bool operator==(const OptimizerRecipe&) const = default;
};

// The factor on the optimizer's lr at step s (from 0), with w = warmup_steps:
//   s < w        (s + 1) / w, in every kind
//   kConstant    1
//   kStep        gamma ^ (number of milestones <= s)
//   kCosine      (1 + cos(pi * min(1, (s - w) / (steps - w)))) / 2
struct LrSchedule {
  enum class Kind { kConstant, kStep, kCosine };
  Kind kind = Kind::kConstant;
  uint64_t warmup_steps = 0;
  // kCosine: the step at which the factor reaches 0; by default the recipe's "steps". 0: not given.
  uint64_t steps = 0;
  std::optional<double> epochs;      // kCosine: replaces `steps`; the training program computes the number of steps
  std::vector<uint64_t> milestones;  // kStep: steps, in increasing order
  double gamma = 0.1;                // kStep
  bool operator==(const LrSchedule&) const = default;
};

// The weights that a training starts from. A part of them may come from another net.
struct InitialWeights {
  bool random = false;            // true: drawn from the seed, even if the model's folder has weights
  std::string from;  // A file (safetensors). Empty: the weights of the model's folder, or weights drawn from the seed.
  std::vector<std::string> skip;  // patterns of tensors that keep their initial values
  bool allow_missing = false;     // true: tensors that the file does not have keep their initial values, too
  bool operator==(const InitialWeights&) const = default;
};

// When a training ends because it no longer improves.
struct EarlyStopping {
  uint64_t patience = 0;  // number of consecutive evaluations without a new minimum of the loss
  bool operator==(const EarlyStopping&) const = default;
};

// A step that several processes run together, each on its own micro-batches: rank r runs
// micro-batches r, r + ranks, r + 2 ranks ... of the step.
// Flat: gradients are added in the order of the micro-batches, so that the bits do not depend on
// the number of ranks.
// Two levels: each rank adds its own gradients first, and then the ranks' sums are added in the
// order of the ranks. So gradients cross the network once a step.
struct ParallelRecipe {
  int ranks = 1;
  bool two_levels = false;
  // Each rank stores the moments of a part of the parameters, updates this part, and sends it to
  // all ranks.
  bool shard_optimizer = false;
  // Each rank stores a slice of every streamed weight. To load a weight, a rank gets its slices
  // from all ranks.
  bool shard_weights = false;
  double timeout = 60;  // seconds without a message from another rank, after which it counts as lost
  bool operator==(const ParallelRecipe&) const = default;
};

// How weights that are not trained are stored in memory.
struct WeightsRecipe {
  enum class Stream { kNone, kAll, kByPlan };
  // The type that frozen matrices get when they are read; unset: the type in the model's file.
  std::optional<DType> frozen;
  // True: only the rows of a micro-batch's tokens are read from the model's file of embeddings,
  // when they are needed.
  bool embedding_from_file = false;
  // The frozen weights that are read from a file each time they are needed. kByPlan: the planner
  // chooses them.
  Stream stream = Stream::kNone;
  bool operator==(const WeightsRecipe&) const = default;
};

// How weights that are trained are stored in memory.
struct TrainedRecipe {
  DType storage = DType::kF32;  // type of matrices: kF32, or kBf16, rounded at random at each update
  bool operator==(const TrainedRecipe&) const = default;
};

// The recipe's "schedule"; "optimal" is short for {"strategy": "optimal"}.
struct ScheduleRecipe {
  std::string strategy = "optimal";  // a name in strategy_names() (schedule.h), or "policy"
  int k = 0;  // every-k: links per segment; sqrt: segments; chen-recursive: boundaries per level. 0 = not given
  int slots = 0;  // revolve: number of checkpoints, the input included; 0 = the cheapest number that fits
  std::string policy;                // name of the policy, if the strategy is "policy"
  bool residues = true;              // optimal, h-revolve: false excludes residues, as in Rotor
  // h-revolve, multistage: maximum bytes on disk ("disk") or in the host's memory ("host") at once.
  // 0 = none.
  uint64_t disk_bytes = 0, host_bytes = 0;
  // Cost of a byte that is written to or read from the second level, in flop equivalents (cost.h).
  // A profile's seconds replace it.
  std::optional<double> write_cost, read_cost;

  // Returns the bytes of the second level, which is either disk or memory of the host.
  uint64_t spill_bytes() const { return host_bytes > 0 ? host_bytes : disk_bytes; }
  bool operator==(const ScheduleRecipe&) const = default;
};

struct Recipe {
  enum class Dtype { kF32, kBf16 };
  enum class BackendChoice { kCpu, kCuda, kAuto };
  std::string name;  // letters, digits, '.', '_', '-'; default: the file's name without its extension
  Model model;       // the network; required
  ModelPlace place;  // location of the model's files, if there are any
  DataSource data;
  int batch = 0;      // samples in one micro-batch; required
  int sequence = 0;   // tokens in one sample; default the model's longest; 0 for image models
  int accumulate = 1;  // micro-batches in one step
  Dtype dtype = Dtype::kF32;
  OptimizerRecipe optimizer;
  LrSchedule lr_schedule;
  // The loss that compares the two answers of a pair; unset: the model's own loss.
  std::optional<PreferenceAttribute> loss;
  std::optional<double> clip_norm;
  bool gradient_release = false;
  InitialWeights init;
  std::vector<std::string> freeze;  // patterns of parameter names, see matches_pattern
  WeightsRecipe weights;
  TrainedRecipe trained;
  // Adapters of layers are trained, and the model's own parameters are frozen; unset: no adapters.
  std::optional<LoraSettings> lora;
  // Steps between evaluations; 0: none at all; unset: one at the end, except for synthetic data.
  std::optional<uint64_t> evaluate_every;
  uint64_t evaluate_batches = 0;  // maximum micro-batches of an evaluation; 0: the whole set
  bool evaluate_first = false;    // true: also evaluates before the first step
  std::optional<EarlyStopping> early_stopping;
  std::optional<ParallelRecipe> parallel;
  std::vector<std::string> prompts;  // texts that a language model answers before the first step and after the last
  int answer_tokens = 60;            // maximum length of such an answer
  uint64_t steps = 0;                // 0: not given; then `epochs` or the command line must give the length
  std::optional<double> epochs;     // passes over the training set; used instead of `steps`
  ScheduleRecipe schedule;
  std::optional<uint64_t> budget_bytes;              // bytes of the whole arena; unset: no such budget
  std::vector<uint64_t> budgets;  // Bytes of the whole arena, one plan for each. The first is also budget_bytes.
  // Budget for boundaries, tapes, residues and activation gradients, in bytes; not together with
  // budget_bytes.
  std::optional<uint64_t> feature_map_budget_bytes;
  uint64_t seed = 0;
  BackendChoice backend = BackendChoice::kCpu;
  enum class CoreSize { kSmall, kLarge };
  CoreSize core = CoreSize::kLarge;
  enum class CardSize { kSmall, kLarge };
  CardSize card = CardSize::kSmall;
  enum class Math { kF32, kTf32, kBf16x3 };
  Math math = Math::kF32;  // how a card multiplies matrices of f32

  int ranks() const { return parallel ? parallel->ranks : 1; }
  // Returns the micro-batches of one step, in all ranks.
  int micro_batches() const { return accumulate * ranks(); }
  // Returns the second level of a plan that has one.
  SpillLevel spill_level() const {
    return schedule.host_bytes > 0 || optimizer.offload ? SpillLevel::kHost : SpillLevel::kDisk;
  }
  bool operator==(const Recipe&) const = default;
};

// Reads a recipe's text. `file` is the name for messages, and the default of "name". Relative paths
// in the recipe resolve against `folder`. Throws UserError with the file, the dotted path of the
// field, and what would be right.
Recipe parse_recipe(const std::string& text, const std::string& file, const std::string& folder);
Recipe read_recipe(const std::string& path);
// Reads a recipe, and sets `rules` so that a later error can name the file, the line and the
// column.
Recipe read_recipe(const std::string& path, RecipeRules& rules);

// Reads a recipe with another model in place of its own, whose files need not exist. The other
// model is a folder in Hugging Face's layout, a GGUF file, or another recipe (.json), which gives
// "model" and "init". The recipe's own "init" is dropped. The result is only for planning. It has
// no kind of data, because data could need a tokenizer that the model does not have. A sequence
// that is too long becomes the model's longest.
Recipe read_recipe_of_model(const std::string& path, const std::string& model, RecipeRules& rules);

// Checks combinations of fields. parse_recipe() has called it; a program that changes a recipe
// afterwards (--budget, --schedule) must call it again. Throws UserError.
void check_recipe(const Recipe& recipe, const RecipeRules& rules);

// Maximum number of plans in a program.
constexpr size_t kMaxBudgets = 8;

// Returns the recipe of each plan: one for each of "budgets", with that "budget"; otherwise the
// recipe itself.
std::vector<Recipe> recipes_of_plans(const Recipe& recipe);

// Returns the files and folders that the recipe names: data, tokenizer, weights and model.
std::vector<std::string> inputs_of(const Recipe& recipe);
// Returns a canonical recipe, as JSON, in which each file and folder has only its own name, without
// the folders above it.
nlohmann::json without_places(nlohmann::json canonical);

// Returns the size of one micro-batch of the recipe, as build_model() takes it.
MicroBatch micro_batch_of(const Recipe& recipe);

// A file or folder that a recipe names: its key, its path, and the program's option that gives
// another path.
struct NamedFile {
  std::string key, path, option;
};
std::vector<NamedFile> named_files(const Recipe& recipe);

// True if pairs of answers are judged relative to another model: the model from which the training
// starts, without its adapter.
bool has_reference(const Recipe& recipe);

// Returns the published weights of the recipe's model, from which training starts, for
// open_weights(). Returns "" if there are none, or if the recipe asks for weights from the seed.
std::string published_weights(const Recipe& recipe);

// Returns the reason why a training without other weights cannot start from the model's files.
// Returns "" if it can. Also returns "" if the recipe states its weights: by "init", or by a
// family's fields, for which weights are drawn from the seed.
std::string missing_weights(const Recipe& recipe);

// Returns "cpu", "cuda" or "auto".
const char* backend_word(Recipe::BackendChoice backend);

// Returns the recipe as JSON with sorted keys, absolute paths and every default written out.
// parse_recipe() reads it back to an equal Recipe, without any other file.
std::string canonical_recipe(const Recipe& recipe);

}  // namespace reprise
