// Finds which bytes of a rendered conversation are learned: the replies of the assistant, each
// after its generation prompt. A template may write a reply differently once other messages follow.
// The learned text must be the text that the model generates when it is asked for the reply.
#pragma once

#include <string>
#include <vector>

#include "tools/files/chat/chat_template.h"
#include "tools/files/chat/conversation.h"
#include "tools/files/chat/reading_notes.h"
#include "tools/files/chat/train_on.h"
#include "tools/files/tokenizer/tokenizer.h"

namespace reprise {

using ByteRanges = std::vector<ByteRange>;  // ascending, without overlap

// A rendered text and its learned bytes.
struct LearnedText {
  MarkedText text;
  ByteRanges learned;
};

// Finds the learned bytes of one conversation.
class LearnedTexts {
 public:
  LearnedTexts(const ChatTemplate& chat, const Tokenizer& tokenizer, const Conversation& conversation);

  // Returns the texts to learn from. The last is the whole conversation. Before it are beginnings
  // of the conversation, each ending with a reply that the whole text writes differently. If
  // nothing of the whole text is learned, only the beginnings are returned. Throws UserError if the
  // template writes nothing of a learned reply that says something, if the assistant's part cannot
  // be determined, or if there are too many messages.
  std::vector<LearnedText> find(TrainOn train_on) const;
  // Returns the prompt with its generation prompt, followed by everything that the template writes
  // after it for the whole conversation. All bytes after the generation prompt are learned.
  LearnedText behind_prompt() const;

  // Adds to `notes` the parts of the conversation that do not change the texts. Throws UserError if
  // the template omits a message that says something, but writes a later message. Assistant
  // messages that are not learned may be omitted. Also throws UserError if too many keys must be
  // tested.
  void note_unused(const std::vector<LearnedText>& texts, ReadingNotes& notes) const;

  // Returns the index of the message to which a part with this origin belongs; the number of
  // messages if the origin is not a part.
  size_t message_of(TextOrigin origin) const;

 private:
  // A rendered text, and where the answer to one generation prompt begins in it.
  struct Prompted {
    MarkedText text;
    size_t begin;  // offset of the first byte after the generation prompt
  };
  Prompted prompted(size_t prompt, size_t count) const;
  Prompted first_of_all(const MarkedText& whole) const;
  ByteRanges all_but_unlearned(const MarkedText& whole) const;
  ByteRanges marked(const RenderedChat& whole) const;
  std::vector<LearnedText> by_replies(MarkedText whole) const;
  size_t end_in(const MarkedText& text, const Prompted& reply, size_t message) const;
  bool is_learned(size_t message) const;
  bool says_something(size_t message) const;
  ByteRange bytes_of(const MarkedText& text, size_t first, size_t end) const;
  std::string signature(const nlohmann::ordered_json& variables) const;
  [[noreturn]] void refuse_prefix(size_t count) const;

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  const Conversation& conversation_;
  const nlohmann::ordered_json& messages_;
  const std::vector<MessagePart> parts_;
};

}  // namespace reprise
