// The tokenizer in a GGUF file's metadata, tokenizer.ggml.*: byte-level vocabularies ("gpt2") with one of four pre-tokenizers.
// The words for those are llama.cpp's (src/llama-vocab.cpp), as are the defaults that depend on them.
#include "tools/formats/error.h"
#include "tools/formats/gguf.h"
#include "tools/formats/json_text.h"
#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {
namespace {

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr char kTypes[] = "tokenizer.ggml.token_type";
constexpr char kMerges[] = "tokenizer.ggml.merges";
constexpr char kPre[] = "tokenizer.ggml.pre";

[[noreturn]] void refuse(const GgufFile& file, const std::string& key, const std::string& reason) {
  throw UserError(file.path() + ": " + key + ": " + reason);
}

void read_pre_tokenizer(const GgufFile& file, TokenizerFile& to) {
  const std::string word = file.text(kPre).value_or("");
  const auto is_one_of = [&](std::initializer_list<const char*> words) {
    for (const char* each : words) {
      if (word == each) return true;
    }
    return false;
  };
  if (is_one_of({"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de"})) {
    to.cuts = {{Cut::kGpt2}};
  } else if (is_one_of({"smollm", "starcoder", "refact", "codeshell"})) {
    to.cuts = {{Cut::kEachDigit}, {Cut::kGpt2}};
  } else if (is_one_of({"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"})) {
    to.cuts = {{Cut::kLlama3}};
    to.takes_whole_words = to.adds_bos = true;
  } else if (is_one_of({"qwen2", "deepseek-r1-qwen"})) {
    to.cuts = {{Cut::kQwen2}};
    to.composes = true;
  } else {
    refuse(file, kPre, (file.find_value(kPre) == nullptr ? "missing" : json_shown(word) + " is not supported") +
                           "; must be \"gpt-2\", \"smollm\", \"starcoder\", \"llama-bpe\" or \"qwen2\"");
  }
}

void read_tokens(const GgufFile& file, TokenizerFile& to) {
  enum { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused };
  const nlohmann::json *tokens = file.strings(kTokens), *types = file.integers(kTypes);
  if (tokens == nullptr || tokens->empty()) refuse(file, kTokens, "missing or empty");
  if (tokens->size() > kMostTokens) refuse(file, kTokens, std::to_string(tokens->size()) + " tokens; at most " + std::to_string(kMostTokens) + " are taken");
  if (types == nullptr) refuse(file, kTypes, "missing");
  if (types->size() != tokens->size()) {
    refuse(file, kTypes, "must have as many as tokens, " + std::to_string(tokens->size()) + ", not " + std::to_string(types->size()));
  }
  for (size_t id = 0; id < tokens->size(); ++id) {
    const auto type = (*types)[id].get<int64_t>();
    TokenKind kind = TokenKind::kNormal;
    if (type == kControl || type == kUnknown) {
      kind = TokenKind::kControl;
    } else if (type == kUserDefined || type == kUnused) {
      kind = TokenKind::kAdded;
    } else if (type != kNormal) {
      refuse(file, std::string(kTypes) + "[" + std::to_string(id) + "]", std::to_string(type) + " is not supported; must be 1 to 5");
    }
    to.tokens.push_back({(*tokens)[id].get<std::string>(), kind});
    if (kind == TokenKind::kNormal || type == kUnused) continue;  // an unused one stands in no text
    AddedToken added;
    added.id = static_cast<int32_t>(id);
    to.added.push_back(added);
  }
}

void read_merges(const GgufFile& file, TokenizerFile& to) {
  const nlohmann::json* merges = file.strings(kMerges);
  if (merges == nullptr) refuse(file, kMerges, "missing");
  to.merges_field = kMerges;
  for (const nlohmann::json& merge : *merges) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos) {
      refuse(file, std::string(kMerges) + "[" + std::to_string(to.merges.size()) + "]", "must be two tokens with a space between, not " + json_shown(merge));
    }
    to.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
}

std::optional<int32_t> read_id(const GgufFile& file, const char* key, const TokenizerFile& to) {
  const auto id = file.unsigned_integer(key);
  if (!id) return std::nullopt;
  if (*id >= to.tokens.size()) refuse(file, key, std::to_string(*id) + " is no id of the " + std::to_string(to.tokens.size()) + " tokens");
  return static_cast<int32_t>(*id);
}

}  // namespace

TokenizerFile read_tokenizer_gguf(const std::string& path) {
  const GgufFile file(path);
  TokenizerFile to;
  to.path = path;
  const auto model = file.text("tokenizer.ggml.model");
  if (model != "gpt2") {
    refuse(file, "tokenizer.ggml.model", (model ? json_shown(*model) + " is not supported" : std::string("missing")) + "; must be \"gpt2\", byte-level byte-pair encoding");
  }
  read_pre_tokenizer(file, to);
  read_tokens(file, to);
  read_merges(file, to);
  to.bos = read_id(file, "tokenizer.ggml.bos_token_id", to);
  to.eos = read_id(file, "tokenizer.ggml.eos_token_id", to);
  to.pad = read_id(file, "tokenizer.ggml.padding_token_id", to);
  to.adds_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(to.adds_bos);
  if (to.adds_bos && !to.bos) refuse(file, "tokenizer.ggml.bos_token_id", "missing, though texts begin with it");
  return to;
}

}  // namespace reprise
