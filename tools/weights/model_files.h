// The files of a published language model: a folder as Hugging Face has it, or one GGUF file.
// Here so that whoever needs the config, the weights, the tokenizer or the chat template asks one place and never for the kind of file.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace reprise {

struct NewTokens;
struct TokenizerFile;

constexpr const char *kChatTemplate = "chat template", *kGgufTokenizer = "tokenizer.ggml";

// Where a published model lies, absolute: a folder as Hugging Face has it, or one GGUF file; both empty where a recipe names none.
struct ModelPlace {
  std::string huggingface, gguf;
  std::vector<std::string> new_tokens = {};  // that are added to its vocabulary (new_tokens.h)
  const std::string& path() const { return gguf.empty() ? huggingface : gguf; }
  bool operator==(const ModelPlace&) const = default;
};

class ModelFiles {
 public:
  // A folder, or a .gguf file. Throws UserError where it is neither.
  static ModelFiles open(const std::string& path);
  static ModelFiles open(const ModelPlace& place);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return is_gguf_; }

  // As Hugging Face's config.json: the folder's, or made of the GGUF's metadata. Throws UserError.
  nlohmann::json config() const;
  // For messages: where config() comes from.
  std::string config_path() const { return is_gguf_ ? path_ : path_ + "/config.json"; }

  bool has_tokenizer() const;
  // With the new tokens; `made`, where given, gets what they are. Throws UserError.
  TokenizerFile tokenizer(NewTokens* made = nullptr) const;

  // The Jinja text that turns a conversation into the model's text: chat_template.jinja of the folder, else chat_template of its
  // tokenizer_config.json; tokenizer.chat_template of the GGUF. Empty where the model has none.
  std::string chat_template() const;

  // Checksums by which the texts of the model are known again: kChatTemplate, and of its tokenizer kGgufTokenizer, or "tokenizer.json" and
  // what "tokenizer_config.json" says of the tokens that begin and end a text.
  std::map<std::string, std::string> text_sums() const;

 private:
  std::string path_;
  std::vector<std::string> new_tokens_;
  bool is_gguf_ = false;
};

// What open_weights() takes of a folder of Hugging Face: its model.safetensors, or the folder itself where it has an index of several
// files; "" where it has neither.
std::string folder_weights(const std::string& folder);

// Names of the files in a folder that hold weights in a form that is not read from there: what a person may take for the model's.
std::vector<std::string> other_weight_files(const std::string& folder);

}  // namespace reprise
