// The tokens that end an answer of a model, as its files and its chat template define them.
// Generation stops at these tokens, training teaches one of them at the end of a text, and exports
// name them. All three must use the same tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/files/chat/chat_template.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/model_files.h"

namespace reprise {

// The ends of a model's answers.
struct AnswerEnds {
  // Ids, each once. Their order: the tokenizer's eos; the ids in generation_config.json and
  // config.json, or eot and eom of a GGUF; the id in special_tokens_map.json; of_reply.
  std::vector<int32_t> tokens;
  std::optional<int32_t> of_reply;  // the first added token that the chat template writes after a reply
  bool is_learned = true;  // false: the template has {% generation %}, but of_reply is outside it and is not learned
  // Returns the token that a training appends to a plain text that is a whole sample; nothing if no
  // end is known.
  std::optional<int32_t> of_text() const {
    return tokens.empty() ? std::nullopt : std::optional<int32_t>(tokens.front());
  }
};

// Returns the ends. `chat` is null if the model has no template. Ids that the tokenizer does not
// have are left out. An id in config.json is also left out if it is an ordinary word of the
// vocabulary, because transformers writes a default eos_token_id there. Throws UserError that names
// file and field if an id is not a number.
AnswerEnds find_answer_ends(const ModelFiles& files, const Tokenizer& tokenizer, const ChatTemplate* chat);

// Opens the tokenizer and the template, then finds the ends. A template that cannot be read
// contributes no end. Throws UserError if the tokenizer cannot be read.
AnswerEnds find_answer_ends(const ModelFiles& files);

// Returns the "eos_token_id" of an exported config. It lists the ends that `config` (a config.json
// or generation_config.json) already names, in its order, then the others. One end is a number,
// several are a list. If there is no end, returns the value that `config` has.
nlohmann::json eos_ids_with(const nlohmann::json& config, const AnswerEnds& ends);

// True if other programs that run the model's own files stop at this token. Transformers uses
// generation_config.json, or config.json if generation_config.json names no end; llama.cpp uses
// eos, eot and eom of a GGUF.
bool stops_at(const ModelFiles& files, int32_t token);

// Returns the reason why these ends are wrong for a training on conversations. Either the template
// writes no token after a reply, or this token is not learned. Returns "" if they are right.
std::string fault_of_reply_end(const AnswerEnds& ends, const Tokenizer& tokenizer);

// Returns a message that texts are learned without an end token, and where the user can name one.
std::string no_text_end(const ModelFiles& files);

}  // namespace reprise
