// Renders, finds what the assistant says, and tokenises with control tokens in the template's own text only.
#include "tools/chat/chat_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/plan.h"  // kIgnoredLabel
#include "tools/chat/conversation.h"
#include "tools/formats/error.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;
using Ranges = std::vector<ByteRange>;  // ascending, apart from each other

std::optional<std::string> text_of_token(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id) return std::nullopt;
  return tokenizer.token(*id);
}

bool touches(const Ranges& ranges, size_t begin, size_t end) {
  const auto after = std::partition_point(ranges.begin(), ranges.end(), [&](const ByteRange& range) { return range.end <= begin; });
  return after != ranges.end() && after->begin < end;
}

// Tokenises a text piece by piece. A token is learned where one of its bytes is.
class LabelledTokens {
 public:
  LabelledTokens(const Tokenizer& tokenizer, const std::string& text, const Ranges& learned) : tokenizer_(tokenizer), text_(text), learned_(learned) {}

  void add_token(size_t begin, size_t end, int32_t id) { add(id, touches(learned_, begin, end)); }

  // Text without control tokens.
  void add_text(size_t begin, size_t end) {
    if (begin == end) return;
    const std::vector<int32_t> ids = ids_of(begin, end);
    const size_t bytes = tokenizer_.bytes_of(ids).size();
    // Where the tokenizer has changed the text (NFC, a space before it), a place is where the tokens of what lies before it end.
    const auto place = [&](size_t at) -> size_t {
      if (at <= begin) return 0;
      if (at >= end) return bytes;
      if (bytes == end - begin) return at - begin;
      return tokenizer_.bytes_of(ids_of(begin, at)).size();
    };
    Ranges learned;
    for (const ByteRange& range : learned_) {
      if (range.begin < end && range.end > begin) learned.push_back({place(range.begin), place(range.end)});
    }
    size_t at = 0;
    for (const int32_t id : ids) {
      const size_t token_end = at + tokenizer_.token(id).size();
      add(id, touches(learned, at, token_end));
      at = token_end;
    }
  }

  ChatTokens take() && { return {text_, std::move(ids_), std::move(labels_)}; }

 private:
  std::vector<int32_t> ids_of(size_t begin, size_t end) const {
    return tokenizer_.encode(std::string_view(text_).substr(begin, end - begin), false, begin == 0 ? TextPlace::kBegins : TextPlace::kBehindToken);
  }

  void add(int32_t id, bool is_learned) {
    ids_.push_back(id);
    labels_.push_back(is_learned ? id : kIgnoredLabel);
  }

  const Tokenizer& tokenizer_;
  const std::string& text_;
  const Ranges& learned_;
  std::vector<int32_t> ids_, labels_;
};

// The text between control tokens is tokenised as one, whether the template or the sample wrote it, as it is at inference.
ChatTokens tokenize_rendered(const Tokenizer& tokenizer, const MarkedText& text, const Ranges& learned) {
  LabelledTokens tokens(tokenizer, text.bytes, learned);
  size_t done = 0;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin + 1;
    while (end < text.size() && text.origin(end) == text.origin(begin)) ++end;
    if (text.origin(begin) == TextOrigin::kTemplate) {
      for (const Tokenizer::Place& control : tokenizer.find_control(std::string_view(text.bytes).substr(begin, end - begin))) {
        tokens.add_text(done, begin + control.begin);
        tokens.add_token(begin + control.begin, begin + control.end, control.id);
        done = begin + control.end;
      }
    }
    begin = end;
  }
  tokens.add_text(done, text.size());
  return std::move(tokens).take();
}

// Finds what the assistant says in a rendered conversation.
class AssistantFinder {
 public:
  AssistantFinder(const ChatTemplate& chat, const Tokenizer& tokenizer, const Conversation& conversation, const RenderedChat& whole)
      : chat_(chat), tokenizer_(tokenizer), variables_(conversation.variables), prompt_messages_(conversation.prompt_messages), whole_(whole) {}

  Ranges find() const { return chat_.marks_generation() ? marked() : between_prefixes(); }
  // All behind the prompt.
  Ranges behind_prompt() const { return {{begin_of(prompt_messages_), whole_.text.size()}}; }

 private:
  // The template's own marks, but those of a prompt.
  Ranges marked() const {
    const size_t from = prompt_messages_ == 0 ? 0 : begin_of(prompt_messages_);
    Ranges ranges;
    for (const ByteRange& range : whole_.generated) {
      if (range.end > range.begin && range.begin >= from) ranges.push_back(range);
    }
    return ranges;
  }

  Ranges between_prefixes() const {
    const Json& messages = variables_["messages"];
    Ranges ranges;
    for (size_t i = prompt_messages_; i < messages.size(); ++i) {
      if (messages[i]["role"] != "assistant") continue;
      const ByteRange range{begin_of(i), end_of(i)};
      if (range.begin < range.end) ranges.push_back(range);
    }
    return ranges;
  }

  // The variables with the first messages alone.
  Json first_messages(size_t count) const {
    Json first = variables_;
    first["messages"] = Json::array();
    for (size_t i = 0; i < count; ++i) first["messages"].push_back(variables_["messages"][i]);
    return first;
  }

  bool begins_whole(const std::string& text) const { return whole_.text.bytes.compare(0, text.size(), text) == 0; }

  // Where message i begins: what asks for it must stand there, behind the messages before it.
  size_t begin_of(size_t i) const {
    const Json first = first_messages(i);
    const std::string asked = chat_.render(first, true).text.bytes;
    if (begins_whole(asked)) return asked.size();
    const std::string before = chat_.render(first, false).text.bytes;
    if (i == 0 || !asked.starts_with(before)) refuse_prefix(i);
    const std::string asks = asked.substr(before.size());
    const size_t end = end_of(i - 1);
    if (whole_.text.bytes.compare(end, asks.size(), asks) != 0) refuse_prefix(i);
    return end + asks.size();
  }

  // Where message i ends. Some templates (Phi-3's) write a last token behind every conversation that does not ask: then it ends where they
  // begin to write it or to ask, which is no place inside of an added token. Some templates (Qwen3's) leave thoughts out of a reply once
  // others follow. Then what the template writes behind the message's last byte, where nothing follows, must stand behind it in the whole too.
  size_t end_of(size_t i) const {
    const Json first = first_messages(i + 1);
    const std::string text = chat_.render(first, false).text.bytes;
    if (begins_whole(text)) return text.size();
    if (const size_t end = end_before_last(first, text); end > 0) return end;
    const size_t end_in_whole = end_of_marks(chat_.render(variables_, false, i).text), end_in_first = end_of_marks(chat_.render(first, false, i).text);
    const std::string behind = text.substr(end_in_first);
    if (end_in_whole == 0 || end_in_first == 0 || whole_.text.bytes.compare(end_in_whole, behind.size(), behind) != 0) refuse_prefix(i + 1);
    return end_in_whole + behind.size();
  }

  // Up to where a text is the same whether it ends or asks for more; 0 where that does not begin the whole, or lacks a byte of the message.
  size_t end_before_last(const Json& first, const std::string& text) const {
    const std::string asked = chat_.render(first, true).text.bytes;
    size_t end = static_cast<size_t>(std::mismatch(text.begin(), text.end(), asked.begin(), asked.end()).first - text.begin());
    for (const Tokenizer::Place& token : tokenizer_.find_added(text)) {
      if (token.begin < end && token.end > end) end = token.begin;
    }
    const size_t last = first["messages"].size() - 1;
    return end >= end_of_marks(chat_.render(first, false, last).text) && begins_whole(text.substr(0, end)) ? end : 0;
  }

  static size_t end_of_marks(const MarkedText& text) { return text.origins.rfind(static_cast<char>(TextOrigin::kMarked)) + 1; }

  [[noreturn]] void refuse_prefix(size_t count) const {
    throw UserError("the chat template writes the first " + std::to_string(count) + " of " + std::to_string(variables_["messages"].size()) +
                    " messages otherwise when the others follow, so what the assistant says cannot be told from it; mark it in the template with "
                    "{% generation %}, or train on \"all\"");
  }

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  const Json& variables_;
  const size_t prompt_messages_;
  const RenderedChat& whole_;
};

ChatTokens tokenize_text(const Tokenizer& tokenizer, const std::string& text) {
  ChatTokens tokens{text, {}, {}};
  if (tokenizer.adds_bos() && tokenizer.bos()) tokens.ids.push_back(*tokenizer.bos());
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
  if (tokenizer.eos()) tokens.ids.push_back(*tokenizer.eos());
  tokens.labels = tokens.ids;
  return tokens;
}

// Two texts side by side.
AnswerTokens continue_text(const Tokenizer& tokenizer, const std::string& prompt, const std::string& answer) {
  std::vector<int32_t> alone = tokenize_text(tokenizer, prompt).ids, both = tokenize_text(tokenizer, prompt + answer).ids;
  if (tokenizer.eos()) alone.pop_back();
  const auto parting = std::mismatch(alone.begin(), alone.end(), both.begin(), both.end()).second;
  const auto begin = static_cast<size_t>(parting - both.begin());
  return {std::move(both), begin};
}

}  // namespace

ChatModel::ChatModel(const ModelFiles& files) : path_(files.path()), tokenizer_(std::make_unique<Tokenizer>(files.tokenizer())) {
  const std::string source = files.chat_template();
  if (source.empty()) return;
  ChatTemplate::SpecialTexts specials{.bos = text_of_token(*tokenizer_, tokenizer_->bos()), .eos = text_of_token(*tokenizer_, tokenizer_->eos()),
                                      .pad = text_of_token(*tokenizer_, tokenizer_->pad())};
  template_ = std::make_unique<ChatTemplate>(source, path_ + ": chat template", std::move(specials));
}

ChatTokens ChatModel::tokens_of(const Json& sample, TrainOn train_on, const std::string& place) const {
  Conversation conversation = read_conversation(sample, place);
  try {
    if (conversation.is_text) return tokenize_text(*tokenizer_, conversation.text);
    if (!template_) throw UserError(path_ + " has no chat template; its conversations would need one in chat_template.jinja");
    if (!template_->takes_parts()) join_text_parts(conversation.variables["messages"]);
    const RenderedChat whole = template_->render(conversation.variables, false);
    const Ranges learned = train_on == TrainOn::kAll ? Ranges{{0, whole.text.size()}} : AssistantFinder(*template_, *tokenizer_, conversation, whole).find();
    ChatTokens tokens = tokenize_rendered(*tokenizer_, whole.text, learned);
    const bool learns = std::any_of(tokens.labels.begin(), tokens.labels.end(), [](int32_t label) { return label != kIgnoredLabel; });
    if (!learns) throw UserError(train_on == TrainOn::kAll ? "the sample has no tokens" : "nothing is learned from it: no message of the assistant");
    return tokens;
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

AnswerTokens ChatModel::answer_tokens(const Json& prompt, const Json& answer, const std::string& place) const {
  try {
    AnswerTokens tokens;
    if (prompt.is_string()) {
      tokens = continue_text(*tokenizer_, prompt.get<std::string>(), answer.get<std::string>());
    } else {
      Conversation conversation = read_conversation({{"prompt", prompt}, {"completion", answer}}, "");
      if (!template_) throw UserError(path_ + " has no chat template; its conversations would need one in chat_template.jinja");
      if (!template_->takes_parts()) join_text_parts(conversation.variables["messages"]);
      const RenderedChat whole = template_->render(conversation.variables, false);
      const ChatTokens all = tokenize_rendered(*tokenizer_, whole.text, AssistantFinder(*template_, *tokenizer_, conversation, whole).behind_prompt());
      tokens.ids = all.ids;
      while (tokens.begin < all.labels.size() && all.labels[tokens.begin] == kIgnoredLabel) ++tokens.begin;
    }
    tokens.begin = std::max<size_t>(tokens.begin, 1);
    if (tokens.begin >= tokens.ids.size()) throw UserError("the answer has no tokens");
    return tokens;
  } catch (const UserError& error) {
    const std::string reason = error.what();
    throw UserError(place + ": " + (reason.starts_with(": ") ? reason.substr(2) : reason));
  }
}

std::vector<int32_t> ChatModel::prompt_ids(const Json& messages) const {
  if (!template_) throw UserError(path_ + ": has no chat template");
  return tokenize_rendered(*tokenizer_, template_->render({{"messages", messages}}, true).text, {}).ids;
}

}  // namespace reprise
