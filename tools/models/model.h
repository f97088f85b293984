// What a family of models gives, so that data, training and recipes ask for facts and never for a family's own fields.
// A family is a struct of its recipe fields, in one header and one source of this folder, and one line in models.h. It has
//   static constexpr const char* kFamily           the word after "family" in a recipe
//   static constexpr HuggingFaceNames kHuggingFace
//   static F read(const JsonFields&)               checks every field by itself; throws UserError
//   static nlohmann::json example()                fields of a small model, without the family, for people to start from
//   nlohmann::json write() const                   every field, which read() reads back to an equal F
//   ModelDescription describe() const
//   void check(const RecipeRules&, MicroBatch) const   what no single field can say; throws UserError
//   void build(Graph&, MicroBatch) const           input, labels, layers and loss
//   bool operator==
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

// Blocks of a net, or of one of its stages: the plan of more would take gigabytes to prove and many minutes.
constexpr int kMostBlocks = 10000;

// What a node of a net that reads the pictures, or the tokens of the texts or their types, names (net.h).
constexpr const char* kNetImages = "images";
constexpr const char* kNetTokens = "tokens";
constexpr const char* kNetTypes = "types";  // to which text of its row each token belongs

class Graph;
class JsonFields;

// What everybody may know of a model.
struct ModelDescription {
  // Tokens are a window of a long text, each of which is learned from those before it; texts stand for themselves, each a sample.
  enum class Input { kImages, kTokens, kTexts };
  // What its loss wants of a sample: a class (of tokens each its next one), numbers, labels that are true or false, or a class for each place of a map.
  // Of pairs, whose samples are two inputs each: nothing but the pair, whether they are alike, or how alike they are.
  enum class Target { kClass, kNumbers, kLabels, kClassMap, kPair, kAlike, kSimilarity };
  Input input = Input::kImages;
  Target target = Target::kClass;
  int image_height = 0, image_width = 0, image_channels = 0;  // of images
  int classes = 0;                                            // of images, and of the places of maps
  std::vector<uint32_t> output = {};                          // of images: what the loss reads of a sample, [K], or of maps [H,W,K]; {} of a head
  std::vector<double> class_weights = {};                     // what a label of each class counts; {}: 1
  int vocabulary = 0;                                         // of tokens and texts
  int longest_sequence = 0;                                   // of tokens: the most in one sample
  bool one_length = false;                                    // of tokens: no sample is shorter
  int text_length = 0;                                        // of texts: tokens of each, which is cut or padded to them
  int pad = 0;                                                // of texts: the token behind their end
  int token_types = 0;                                        // of texts: the types of tokens that it tells apart; 0: it reads none
  bool input_major = false;                                   // linear layers' weights are [in, out] (Hugging Face's Conv1D)
  bool packs = false;                                         // of tokens: positions can start anew within a sample

  bool has_pairs() const { return target == Target::kPair || target == Target::kAlike || target == Target::kSimilarity; }
  int inputs_of_sample() const { return has_pairs() ? 2 : 1; }  // rows of the net that one after the other are a sample
};

// A family's "image", required: [height, width, channels] in pixels.
std::array<int, 3> read_image_size(const JsonFields& fields);

struct MicroBatch {
  int samples;   // of pairs each is two rows of the net
  int sequence;  // tokens in a sample; 0 for images
  bool documents = false;  // a sample may hold several texts, which do not see each other
  int pairs = 0;           // of answers that are judged; 0: each label is learned
};

// How transformers' config.json names a model whose fields and weights are laid out like ours; null where it has none such.
struct HuggingFaceNames {
  const char* model_type = nullptr;
  const char* architecture = nullptr;
  bool turns_part = false;  // its configs may say that a part of a head's channels turns
};

// Refuses what cannot be, in one line that names the recipe's file and the field, or the option that has taken the field's place.
struct RecipeRules {
  std::string file;
  std::string text = {};                            // the file's: where given, a refusal names line and column
  std::map<std::string, std::string> options = {};  // by field: what the command line has given in its place, as "--k"
  void require(bool condition, const std::string& field, const std::string& reason) const;
  // A tensor of more than 2^40 elements is refused: up to there every product of bytes stays below 2^64.
  void require_elements(double elements, const std::string& field, const std::string& tensor) const;
};

}  // namespace reprise
