// One sample of conversation data as the ids that a model reads, and which of them it learns.
// Here because what is tokenised how, and what is learned, must be the same in `reprise chat`, in training and in answers.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/chat/chat_template.h"
#include "tools/chat/train_on.h"
#include "tools/tokenizer/tokenizer.h"
#include "tools/weights/model_files.h"

namespace reprise {

struct ChatTokens {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;  // each token's own id, or kIgnoredLabel where nothing is learned; not shifted
};

// A prompt and an answer to it as a model reads them, and where the answer begins: at 1 at least, because nothing foretells the first token.
struct AnswerTokens {
  std::vector<int32_t> ids;
  size_t begin = 0;
};

// How a model reads conversations: its tokenizer and its chat template.
class ChatModel {
 public:
  // Throws UserError where it has no tokenizer that can be read. A model without a chat template reads
  // texts alone.
  explicit ChatModel(const ModelFiles& files);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // The sample is an object as read_conversation takes it; `place` begins every refusal. Tokens of control come from the template alone: what
  // a message says is text. The template says which tokens begin a conversation; a plain text gets bos where the tokenizer adds it, and
  // eos at its end. Labels: {% generation %} of the template where it has that; else from where the template, given the
  // messages before, asks the assistant to speak, to where it ends when it is given the assistant's message too. Both must be beginnings of
  // the whole text. Throws UserError, also where nothing is learned.
  ChatTokens tokens_of(const nlohmann::ordered_json& sample, TrainOn train_on, const std::string& place) const;

  // A prompt with one of its answers, both lists of messages, or both texts. Lists: the answer is what the template writes behind what asks for it.
  // Texts: they stand side by side, eos behind them; the answer begins where the tokens of both part from those of the prompt alone. Throws
  // UserError that begins with `place`, also where nothing is left of the answer.
  AnswerTokens answer_tokens(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer, const std::string& place) const;

  // The ids with which the model is asked to answer.
  std::vector<int32_t> prompt_ids(const nlohmann::ordered_json& messages) const;

 private:
  std::string path_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;  // null: the model has none
};

}  // namespace reprise
