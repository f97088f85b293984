// The files of a published language model: a folder in Hugging Face's layout, or one GGUF file.
// Gives config, weights, tokenizer and chat template in one form for both.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

struct NewTokens;
struct TokenizerFile;

constexpr const char *kChatTemplate = "chat template", *kDefaultTemplate = "default",
                     *kGgufTokenizer = "tokenizer.ggml";
constexpr const char* kMoreTemplates = "additional_chat_templates";  // name of a folder with files NAME.jinja

// The absolute path of a published model. At most one of `huggingface` (a folder in Hugging Face's
// layout) and `gguf` (a file) is set; both are "" if a recipe names no model.
struct ModelPlace {
  std::string huggingface, gguf;
  std::vector<std::string> new_tokens = {};  // tokens to add to the model's vocabulary (new_tokens.h)
  std::string hub_name = {};  // the model's name on the Hugging Face Hub; "" if the recipe does not state it
  const std::string& path() const { return gguf.empty() ? huggingface : gguf; }
  bool operator==(const ModelPlace&) const = default;
};

// The open files of one model.
class ModelFiles {
 public:
  // Opens a folder, or a .gguf file. Throws UserError if the path is neither.
  static ModelFiles open(const std::string& path);
  static ModelFiles open(const ModelPlace& place);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return is_gguf_; }

  // Returns Hugging Face's config.json: the folder's, or a config made from the GGUF's metadata.
  // Throws UserError.
  nlohmann::json config() const;
  // Returns the path of the file that config() reads, for messages.
  std::string config_path() const { return is_gguf_ ? path_ : path_ + "/config.json"; }

  bool has_tokenizer() const;
  // Returns the tokenizer with the new tokens. If `made` is given, it receives the ids of the new
  // tokens. Throws UserError.
  TokenizerFile tokenizer(NewTokens* made = nullptr) const;

  // Returns the model's Jinja templates, which turn a conversation into text, by name; a template
  // without a name has the key kDefaultTemplate. A folder has them in chat_template.jinja and
  // additional_chat_templates/NAME.jinja. If there are none of these, or no default among them,
  // chat_template of tokenizer_config.json is used. A GGUF has them in tokenizer.chat_template and
  // tokenizer.chat_template.NAME. Empty if the model has none.
  std::map<std::string, std::string> chat_templates() const;

  // Returns checksums that identify the model's chat templates and tokenizer. A template's key is
  // kChatTemplate, followed by its name if it is not the default. A GGUF's tokenizer has the key
  // kGgufTokenizer. A folder's tokenizer has the keys "tokenizer.json", "tokenizer_config.json" and
  // "special_tokens_map.json". The checksums of the last two cover only their bos, eos and pad
  // tokens and add_bos_token.
  std::map<std::string, std::string> text_sums() const;

 private:
  std::string path_;
  std::vector<std::string> new_tokens_;
  bool is_gguf_ = false;
};

// Returns the path that open_weights() needs for a folder of Hugging Face: its model.safetensors,
// or the folder itself if it has an index of several files. Returns "" if it has neither.
std::string folder_weights(const std::string& folder);

// Returns the sorted names of the folder's files that end like weight files, for example ".bin" or
// ".gguf". A message lists them if the folder has no weights that can be read.
std::vector<std::string> other_weight_files(const std::string& folder);

}  // namespace reprise
