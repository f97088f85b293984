// The interface of a family of models. Data, training and recipes ask for facts, not for a family's
// own fields. A family is a struct of its recipe fields, in one header and one source of this
// folder, and one line in models.h. It has
//   static constexpr const char* kFamily             the word after "family" in a recipe
//   static constexpr HuggingFaceNames kHuggingFace
//   static F read(const JsonFields&)                 checks each field by itself; throws UserError
//   static nlohmann::json example()                  fields of a small model, without the family
//   nlohmann::json write() const                     every field; read() returns an equal F
//   ModelDescription describe() const
//   void check(const RecipeRules&, MicroBatch) const checks fields together; throws UserError
//   void build(Graph&, MicroBatch) const             input, labels, layers and loss
//   bool operator==
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

// Maximum blocks of a net, or of one of its stages. A plan of more blocks would take gigabytes and
// many minutes to prove.
constexpr int kMaxBlocks = 10000;

// The names under which nodes of a net read the images, the tokens of texts, or the tokens' types
// (net.h).
constexpr const char* kNetImages = "images";
constexpr const char* kNetTokens = "tokens";
// A token's type is the number of the text in its row to which the token belongs.
constexpr const char* kNetTypes = "types";

class Graph;
class JsonFields;

// The facts about a model that other modules may use.
struct ModelDescription {
  // kTokens: a sample is a window of a long text, and each token is predicted from the earlier
  // tokens. kTexts: a sample is a complete text.
  enum class Input { kImages, kTokens, kTexts };
  // The target that the loss needs for a sample. kClass: a class (for tokens, the next token).
  // kNumbers: numbers. kLabels: labels that are true or false. kClassMap: a class for each position
  // of a map. The other targets are for samples that are pairs of inputs. kPair: no label, because
  // the two inputs belong together; kAlike: whether the inputs are similar; kSimilarity: how
  // similar they are.
  enum class Target { kClass, kNumbers, kLabels, kClassMap, kPair, kAlike, kSimilarity };
  Input input = Input::kImages;
  Target target = Target::kClass;
  int image_height = 0, image_width = 0, image_channels = 0;  // pixels and channels of an image, if `input` is kImages
  int classes = 0;  // kImages: number of classes of a sample, or of each position of a map
  // kImages: the shape of a sample that the loss reads, [K], or [H,W,K] for maps; empty for a loss
  // head.
  std::vector<uint32_t> output = {};
  std::vector<double> class_weights = {};  // for each class, the weight of its labels; empty: all are 1
  int vocabulary = 0;                      // kTokens and kTexts: number of different tokens
  int longest_sequence = 0;                // kTokens: maximum tokens of a sample
  bool one_length = false;                 // kTokens: true if no sample is shorter than longest_sequence
  int text_length = 0;                     // kTexts: tokens to which each text is cut or padded
  int pad = 0;                             // kTexts: the token that pads a text
  int token_types = 0;                     // kTexts: the number of types of tokens; 0: the net reads none
  bool input_major = false;                // weights of linear layers are [in, out] (Hugging Face's Conv1D)
  bool packs = false;                      // kTokens: positions can restart within a sample

  bool has_pairs() const {
    return target == Target::kPair || target == Target::kAlike || target == Target::kSimilarity;
  }
  // Returns the number of consecutive rows of the net that belong to one sample.
  int inputs_of_sample() const { return has_pairs() ? 2 : 1; }
};

// Reads a family's "image", which is required: [height, width, channels] in pixels.
std::array<int, 3> read_image_size(const JsonFields& fields);

struct MicroBatch {
  int samples;   // samples of a micro-batch; a sample that is a pair takes two rows of the net
  int sequence;  // tokens in a sample; 0 for images
  bool documents = false;  // true: a sample may contain several texts, which do not see each other
  int pairs = 0;           // pairs of answers that are compared; 0: the loss has no pairs
};

// The names that transformers' config.json uses for models with the fields and weights of this
// family; null if transformers has no such model.
struct HuggingFaceNames {
  const char* model_type = nullptr;
  const char* architecture = nullptr;
  bool rotates_part = false;  // true: configs may rotate only a part of a head's channels
};

// Refuses invalid recipes in one line, which names the recipe's file and field, or the option that
// replaced the field.
struct RecipeRules {
  std::string file;
  std::string text = {};                            // text of the file; if set, a refusal names line and column
  std::map<std::string, std::string> options = {};  // key: a field; entry: the option that replaced it, such as "--k"
  void require(bool condition, const std::string& field, const std::string& reason) const;
  // Refuses a tensor of more than 2^40 elements: up to that size every product of bytes is below
  // 2^64.
  void require_elements(double elements, const std::string& field, const std::string& tensor) const;
};

}  // namespace reprise
