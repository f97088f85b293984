// Converts samples of conversation data to the token ids that a model reads, and states which of
// them are learned. `reprise chat`, training and generation must tokenise in the same way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/files/chat/answer_ends.h"
#include "tools/files/chat/chat_settings.h"
#include "tools/files/chat/chat_template.h"
#include "tools/files/chat/reading_notes.h"
#include "tools/files/chat/train_on.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/files/weights/model_files.h"

namespace reprise {

// The tokens of one sample.
struct ChatTokens {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<int32_t> labels;  // a token's own id, not shifted, or kIgnoredLabel if it is not learned
  bool is_text = false;         // true for a plain text that is a whole sample
};

// A prompt with its answer as token ids. `begin` is the index at which the answer begins. It is at
// least 1, because no token precedes index 0 from which that token could be predicted.
struct AnswerTokens {
  std::vector<int32_t> ids;
  size_t begin = 0;
};

// The samples of a record. There are several if the template changes earlier replies once other
// messages follow (learned_texts.h).
struct ChatRecord {
  std::vector<ChatTokens> samples;
  ReadingNotes notes;
};
// Returns the tokens of all samples, concatenated to one sample.
ChatTokens joined(const std::vector<ChatTokens>& samples);

// Converts conversations to tokens with a model's tokenizer and chat templates.
class ChatModel {
 public:
  // Opens the tokenizer and finds the end tokens. Throws UserError if the tokenizer cannot be read,
  // or if the model lacks the template that the settings name. A model without a chat template can
  // read only plain texts.
  explicit ChatModel(const ModelFiles& files, const ChatSettings& settings = {});

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const AnswerEnds& ends() const { return ends_; }

  // Returns the samples of a record, an object that read_conversation() accepts. `place` begins
  // error messages. Throws UserError, also if nothing is learned.
  // In messages, control tokens come from the template. If the settings allow it, they also come
  // from the assistant's text, except those that the template itself writes in this conversation.
  // No bos is added to a conversation; the template writes it. A plain text gets bos if the
  // tokenizer adds it, and the token that ends texts (AnswerEnds) if it is known. Neither is added
  // if the text already has it.
  // The learned bytes are those in {% generation %} if the template has it. Otherwise they are
  // those from the end of the generation prompt (add_generation_prompt) to the end that the
  // template writes for the assistant's message.
  ChatRecord read(const nlohmann::ordered_json& sample, TrainOn train_on, const std::string& place) const;

  // Returns the tokens of a prompt with one of its answers. Both are lists of messages, or both are
  // texts. With lists, `record` may have "tools" and "chat_template_kwargs". Throws UserError that
  // begins with `place`, also if the answer has no tokens.
  // With lists, the answer is all that the template writes after the generation prompt. Texts are
  // concatenated, followed by the token that ends texts. The answer begins at the first token that
  // differs from the tokens of the prompt alone.
  AnswerTokens answer_tokens(const nlohmann::ordered_json& prompt, const nlohmann::ordered_json& answer,
                             const nlohmann::ordered_json& record, const std::string& place, ReadingNotes& notes) const;

  // Returns the tokens of the messages and the generation prompt, after which the model generates.
  std::vector<int32_t> prompt_ids(const nlohmann::ordered_json& messages) const;

 private:
  const ChatTemplate& template_of(const std::string& name) const;
  const ChatTemplate& template_for(const nlohmann::ordered_json& variables) const;
  const ChatTemplate& prepare(nlohmann::ordered_json& variables) const;
  ChatTokens tokens_of_text(const std::string& text, bool ends, ReadingNotes& notes) const;
  AnswerTokens continue_text(const std::string& prompt, const std::string& answer, ReadingNotes& notes) const;

  std::string path_;
  ChatSettings settings_;
  std::map<std::string, std::string> sources_;  // name of a template -> its source
  std::unique_ptr<Tokenizer> tokenizer_;
  mutable std::map<std::string, std::unique_ptr<ChatTemplate>> templates_;  // parsed on first use
  AnswerEnds ends_;
};

}  // namespace reprise
