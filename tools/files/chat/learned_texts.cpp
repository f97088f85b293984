// Compares renderings of beginnings of a conversation, with and without the generation prompt.
#include "tools/files/chat/learned_texts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

constexpr size_t kMaxLookedAt = 100;  // maximum number of keys whose effect is tested; each needs two renderings

using Json = nlohmann::ordered_json;

// Maximum number of messages in a conversation whose replies are found by rendering. The messages
// before each reply are rendered, which takes quadratic time.
constexpr size_t kMaxMessages = 2000;

bool begins_with(const MarkedText& text, std::string_view beginning) {
  return std::string_view(text.bytes).starts_with(beginning);
}

bool is_blank(const std::string& text) { return without_space(text).end == 0; }

// True for a text, or a list of text parts, with a character that is not white space.
bool says_words(const Json& content) {
  if (content.is_string()) return !is_blank(content.get_ref<const std::string&>());
  return content.is_array() && std::any_of(content.begin(), content.end(), [](const Json& part) {
           return part.is_object() && part.contains("text") && part["text"].is_string() &&
                  !is_blank(part["text"].get_ref<const std::string&>());
         });
}

}  // namespace

LearnedTexts::LearnedTexts(const ChatTemplate& chat, const Tokenizer& tokenizer, const Conversation& conversation)
    : chat_(chat),
      tokenizer_(tokenizer),
      conversation_(conversation),
      messages_(conversation.variables.at("messages")),
      parts_(message_parts(messages_)) {}

std::vector<LearnedText> LearnedTexts::find(TrainOn train_on) const {
  if (train_on != TrainOn::kAll && !chat_.marks_generation() && messages_.size() > kMaxMessages) {
    throw UserError("has " + std::to_string(messages_.size()) + " messages; at most " + std::to_string(kMaxMessages) +
                    " are read of one conversation where the template does not mark what the assistant says; split it");
  }
  RenderedChat whole = chat_.render(conversation_.variables, false);
  if (train_on == TrainOn::kAll) {
    ByteRanges learned = all_but_unlearned(whole.text);
    return {{std::move(whole.text), std::move(learned)}};
  }
  if (chat_.marks_generation()) {
    ByteRanges learned = marked(whole);
    return {{std::move(whole.text), std::move(learned)}};
  }
  return by_replies(std::move(whole.text));
}

LearnedText LearnedTexts::behind_prompt() const {
  Prompted answer = prompted(conversation_.prompt_messages, messages_.size());
  const size_t end = answer.text.size();
  return {std::move(answer.text), {{answer.begin, end}}};
}

size_t LearnedTexts::message_of(TextOrigin origin) const {
  if (origin < TextOrigin::kFirstPart) return messages_.size();
  return parts_[static_cast<size_t>(origin) - static_cast<size_t>(TextOrigin::kFirstPart)].message;
}

bool LearnedTexts::is_learned(size_t message) const {
  if (message < conversation_.prompt_messages || messages_[message]["role"] != "assistant") return false;
  return conversation_.is_learned[message].value_or(true);
}

bool LearnedTexts::says_something(size_t message) const {
  const Json& one = messages_[message];
  return (one.contains("content") && says_words(one["content"])) || one.contains("tool_calls");
}

// Returns the range from the first to the last byte of messages [first, end); {size, 0} if they
// have no bytes.
ByteRange LearnedTexts::bytes_of(const MarkedText& text, size_t first, size_t end) const {
  ByteRange range{text.size(), 0};
  for (size_t at = 0; at < text.size(); ++at) {
    const size_t message = message_of(text.origin(at));
    if (message < first || message >= end) continue;
    if (range.end == 0) range.begin = at;
    range.end = at + 1;
  }
  return range;
}

// Returns all bytes except the bytes of messages that are marked as not learned.
ByteRanges LearnedTexts::all_but_unlearned(const MarkedText& whole) const {
  ByteRanges learned;
  const auto is_kept = [&](size_t at) {
    const size_t message = message_of(whole.origin(at));
    return message == messages_.size() || conversation_.is_learned[message].value_or(true);
  };
  for (size_t at = 0; at < whole.size(); ++at) {
    if (!is_kept(at)) continue;
    if (learned.empty() || learned.back().end != at) learned.push_back({at, at});
    learned.back().end = at + 1;
  }
  return learned;
}

// Returns the ranges that the template marks with {% generation %}, for learned messages. A range
// that contains no byte of a message belongs to the assistant's next message.
ByteRanges LearnedTexts::marked(const RenderedChat& whole) const {
  ByteRanges ranges;
  size_t next = 0;
  for (const ByteRange& range : whole.generated) {
    size_t message = messages_.size();
    for (size_t at = range.begin; at < range.end && message == messages_.size(); ++at)
      message = message_of(whole.text.origin(at));
    while (message == messages_.size() && next < messages_.size() && messages_[next]["role"] != "assistant") ++next;
    if (message == messages_.size()) message = next;
    next = message + 1;
    if (range.end > range.begin && message < messages_.size() && message >= conversation_.prompt_messages &&
        conversation_.is_learned[message].value_or(true))
      ranges.push_back(range);
  }
  return ranges;
}

std::vector<LearnedText> LearnedTexts::by_replies(MarkedText whole) const {
  std::vector<LearnedText> found(1);
  found[0].text = std::move(whole);
  for (size_t i = messages_.size(); i-- > conversation_.prompt_messages;) {
    if (!is_learned(i)) continue;
    Prompted reply = prompted(i, i + 1);
    ByteRange range{reply.begin, reply.text.size()};
    LearnedText* holder = nullptr;
    for (size_t n = found.size(); holder == nullptr && n-- > 0;) {
      range.end = end_in(found[n].text, reply, i);
      if (range.end > 0) holder = &found[n];
    }
    if (holder == nullptr) {
      range.end = reply.text.size();
      holder = &found.emplace_back(LearnedText{std::move(reply.text), {}});
    }
    const ByteRange said = bytes_of(holder->text, i, i + 1);
    if (says_something(i) && (said.end <= range.begin || said.begin >= range.end)) {
      throw UserError("messages[" + std::to_string(i) +
                      "]: the chat template writes nothing of it, so an empty answer would be learned");
    }
    if (range.begin < range.end) holder->learned.push_back(range);
  }
  if (found.size() > 1 && found[0].learned.empty()) found.erase(found.begin());
  std::reverse(found.begin(), found.end());
  for (LearnedText& text : found) std::reverse(text.learned.begin(), text.learned.end());
  return found;
}

// Returns where the reply ends in `text`, if `text` begins with the prompt and the reply; 0
// otherwise. Some templates (Phi-3's) end a conversation with a token that they write only if no
// generation prompt follows. In `text`, an earlier reply lacks this token. The reply ends where the
// renderings with and without a generation prompt begin to differ. If that is inside an added
// token, the reply ends before this token.
size_t LearnedTexts::end_in(const MarkedText& text, const Prompted& reply, size_t message) const {
  if (begins_with(text, reply.text.bytes)) return reply.text.size();
  if (!begins_with(text, std::string_view(reply.text.bytes).substr(0, reply.begin))) return 0;
  const std::string &whole = reply.text.bytes,
                    asked = chat_.render(conversation_.variables, true, message + 1).text.bytes;
  auto end =
      static_cast<size_t>(std::mismatch(whole.begin(), whole.end(), asked.begin(), asked.end()).first - whole.begin());
  for (const Tokenizer::Place& token : tokenizer_.find_added(whole)) {
    if (token.text_begin < end && token.text_end > end) end = token.text_begin;
  }
  const bool has_all = end >= bytes_of(reply.text, message, message + 1).end && end > reply.begin;
  return has_all && begins_with(text, std::string_view(whole).substr(0, end)) ? end : 0;
}

// Returns the text of the first `count` messages, and the offset after the generation prompt for
// message `prompt`. Usually the text begins with the text up to this prompt. Some templates
// (Mistral's) write an earlier message differently if an answer follows. The two texts must then
// agree after the earlier messages, and the result has these messages as in the prompt.
LearnedTexts::Prompted LearnedTexts::prompted(size_t prompt, size_t count) const {
  MarkedText whole = chat_.render(conversation_.variables, false, count).text;
  MarkedText asked;
  try {
    asked = chat_.render(conversation_.variables, true, prompt).text;
  } catch (const LimitError&) {
    throw;
  } catch (const UserError&) {
    if (prompt > 0) throw;
    return first_of_all(whole);
  }
  const size_t size = asked.size();
  if (begins_with(whole, asked.bytes)) return {std::move(whole), size};
  if (prompt == 0) return first_of_all(whole);
  const std::string behind = asked.bytes.substr(bytes_of(asked, 0, prompt).end);
  const size_t last = bytes_of(whole, 0, prompt).end;
  if (whole.bytes.compare(last, behind.size(), behind) != 0) refuse_prefix(prompt);
  asked.append(whole.piece(last + behind.size(), whole.size()));
  return {std::move(asked), size};
}

// Handles a conversation that begins with the assistant, if the template cannot write a prompt
// without messages. The message begins after the usual generation prompt if the text has it before
// the message's first byte, otherwise at that byte.
LearnedTexts::Prompted LearnedTexts::first_of_all(const MarkedText& whole) const {
  const size_t first = bytes_of(whole, 0, 1).begin;
  if (first == whole.size()) refuse_prefix(0);
  const std::string asked = chat_.render(conversation_.variables, true).text.bytes,
                    unasked = chat_.render(conversation_.variables, false).text.bytes;
  const std::string asks = asked.starts_with(unasked) ? asked.substr(unasked.size()) : "";
  const size_t at = asks.empty() ? std::string::npos : whole.bytes.substr(0, first).rfind(asks);
  return {whole, at == std::string::npos ? first : at + asks.size()};
}

void LearnedTexts::refuse_prefix(size_t count) const {
  throw UserError("the chat template writes the first " + std::to_string(count) + " of " +
                  std::to_string(messages_.size()) +
                  " messages otherwise when the others follow, or writes there what it leaves out of the answer, so "
                  "what the assistant says cannot be told from it; "
                  "mark it in the template with {% generation %}, or train on \"all\"");
}

// ---- parts without effect

// Returns what the template writes for the variables, with and without the generation prompt. "\1"
// stands for a rendering that the template refuses.
std::string LearnedTexts::signature(const Json& variables) const {
  std::string all;
  for (const bool asks : {false, true}) {
    try {
      all += chat_.render(variables, asks).text.bytes + '\0';
    } catch (const LimitError&) {
      throw;
    } catch (const UserError&) {
      all += "\1";
    }
  }
  return all;
}

void LearnedTexts::note_unused(const std::vector<LearnedText>& texts, ReadingNotes& notes) const {
  std::vector<bool> is_written(parts_.size()), is_message_written(messages_.size());
  bool are_tools_written = false;
  for (const LearnedText& text : texts) {
    for (const char32_t origin : text.text.origins) {
      const size_t part = origin - static_cast<size_t>(TextOrigin::kFirstPart);
      are_tools_written = are_tools_written || static_cast<TextOrigin>(origin) == TextOrigin::kTools;
      if (static_cast<TextOrigin>(origin) < TextOrigin::kFirstPart) continue;
      is_written[part] = true;
      is_message_written[parts_[part].message] = true;
    }
  }
  size_t last = messages_.size();  // only messages up to the last one that the template writes are checked
  while (last > 0 && !is_message_written[last - 1]) --last;
  for (size_t i = 0; i < last; ++i) {
    if (is_message_written[i] || !says_something(i) || (messages_[i]["role"] == "assistant" && !is_learned(i)))
      continue;
    throw UserError("messages[" + std::to_string(i) + "]: the chat template writes nothing of what the role " +
                    json_shown(nlohmann::json(messages_[i]["role"])) +
                    " says; give it a role that the template knows, such as \"system\" or \"user\", or leave it out");
  }
  std::map<std::string, bool> is_key_written;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const Json& value = messages_[parts_[part].message][parts_[part].key];
    const bool is_said = parts_[part].key == "content" ? says_words(value) : value != "";
    if (is_message_written[parts_[part].message] && !is_written[part] && is_said &&
        (parts_[part].key == "content" || parts_[part].key == "tool_calls")) {
      notes.unused.insert(json_shown("messages[]." + parts_[part].key));
    } else if (is_said) {
      is_key_written[parts_[part].key] = is_key_written[parts_[part].key] || is_written[part];
    }
  }
  std::string with;
  size_t looked_at = 0;
  const auto note = [&](const std::string& what, const Json& without) {
    if (++looked_at > kMaxLookedAt) {
      throw UserError("has more than " + std::to_string(kMaxLookedAt) +
                      " keys that the chat template may not read; leave out those that mean nothing");
    }
    if (with.empty()) with = signature(conversation_.variables);
    if (signature(without) == with) notes.unused.insert(what);
  };
  for (const auto& [key, written] : is_key_written) {
    if (written || key == "content" || key == "tool_calls") continue;
    Json without = conversation_.variables;
    for (Json& message : without["messages"]) message.erase(key);
    note(json_shown("messages[]." + key), without);
  }
  if (conversation_.variables.contains("tools") && !are_tools_written) {
    Json without = conversation_.variables;
    without.erase("tools");
    note("\"tools\"", without);
  }
  if (!conversation_.variables.contains("chat_template_kwargs")) return;
  for (const auto& [key, value] : conversation_.variables["chat_template_kwargs"].items()) {
    Json without = conversation_.variables;
    without["chat_template_kwargs"].erase(key);
    note(json_shown("chat_template_kwargs." + key), without);
  }
}

}  // namespace reprise
