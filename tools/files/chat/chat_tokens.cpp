// Renders a conversation, finds which bytes are learned, and tokenises it. Control tokens come from
// the template's own text; the settings may also allow them in the assistant's text.
#include "tools/files/chat/chat_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/plan.h"  // kIgnoredLabel
#include "tools/files/chat/conversation.h"
#include "tools/files/chat/learned_texts.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string> text_of_token(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  if (!id) return std::nullopt;
  return tokenizer.token(*id);
}

bool touches(const ByteRanges& ranges, size_t begin, size_t end) {
  const auto after =
      std::partition_point(ranges.begin(), ranges.end(), [&](const ByteRange& range) { return range.end <= begin; });
  return after != ranges.end() && after->begin < end;
}

// Tokenises a text that the caller adds in parts. A token is learned if at least one of its bytes
// is learned.
class LabelledTokens {
 public:
  LabelledTokens(const Tokenizer& tokenizer, const std::string& text, const ByteRanges& learned)
      : tokenizer_(tokenizer), text_(text), learned_(learned) {}

  // Adds an added token. It is learned if one of its own bytes is learned; the bytes of white space
  // around it do not count.
  void add_token(const Tokenizer::Place& token) { add(token.id, touches(learned_, token.text_begin, token.text_end)); }

  // Adds bytes [begin, end) of the text, which contain no control tokens.
  void add_text(size_t begin, size_t end) {
    if (begin == end) return;
    const std::vector<int32_t> ids = ids_of(begin, end);
    const size_t bytes = tokenizer_.bytes_of(ids).size();
    // Converts an offset in the text to an offset in the bytes of the tokens. The tokenizer may
    // change the text (normal form C, a space before it). The result is then the number of bytes in
    // the tokens of all text before the offset.
    const auto place = [&](size_t at) -> size_t {
      if (at <= begin) return 0;
      if (at >= end) return bytes;
      if (bytes == end - begin) return at - begin;
      return tokenizer_.bytes_of(ids_of(begin, at)).size();
    };
    ByteRanges learned;
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

  ChatTokens take() && { return {text_, std::move(ids_), std::move(labels_), false}; }

 private:
  std::vector<int32_t> ids_of(size_t begin, size_t end) const {
    return tokenizer_.encode(std::string_view(text_).substr(begin, end - begin), false,
                             begin == 0 ? TextPlace::kBegins : TextPlace::kBehindToken);
  }

  void add(int32_t id, bool is_learned) {
    ids_.push_back(id);
    labels_.push_back(is_learned ? id : kIgnoredLabel);
  }

  const Tokenizer& tokenizer_;
  const std::string& text_;
  const ByteRanges& learned_;
  std::vector<int32_t> ids_, labels_;
};

// Returns the control tokens in a rendered text. The template must have written a control token;
// only its inner bytes may be a message's role. If `reads`, a control token that the template does
// not write in this conversation may also be in the assistant's text. All other spellings of a
// control token are read as plain text and counted in `notes`.
std::vector<Tokenizer::Place> control_tokens(const Tokenizer& tokenizer, const MarkedText& text,
                                             const LearnedTexts& texts, const nlohmann::ordered_json& messages,
                                             bool reads, ReadingNotes& notes) {
  const auto all_are = [&](size_t begin, size_t end, const auto& is) {
    for (size_t at = begin; at < end; ++at) {
      if (!is(text.origin(at))) return false;
    }
    return true;
  };
  const auto writes_template = [&](size_t begin, size_t end, int32_t) {
    const bool has_ends = text.origin(begin) == TextOrigin::kTemplate && text.origin(end - 1) == TextOrigin::kTemplate;
    return has_ends && all_are(begin, end, [](TextOrigin origin) {
             return origin == TextOrigin::kTemplate || origin == TextOrigin::kRole;
           });
  };
  std::vector<Tokenizer::Place> places = tokenizer.find_control(text.bytes, writes_template);
  const std::vector<Tokenizer::Place> spelled = tokenizer.find_control(text.bytes);
  if (spelled.size() == places.size()) return places;
  std::set<int32_t> of_template;
  for (const Tokenizer::Place& place : places) of_template.insert(place.id);
  const auto says_assistant = [&](TextOrigin origin) {
    const size_t message = texts.message_of(origin);
    return message < messages.size() && messages[message]["role"] == "assistant";
  };
  if (reads) {
    places = tokenizer.find_control(text.bytes, [&](size_t begin, size_t end, int32_t id) {
      return writes_template(begin, end, id) || (of_template.count(id) == 0 && all_are(begin, end, says_assistant));
    });
  }
  auto place = places.begin();
  for (const Tokenizer::Place& one : spelled) {
    while (place != places.end() && place->text_begin < one.text_begin) ++place;
    if (place == places.end() || place->text_begin != one.text_begin)
      ++notes.letters[json_shown(tokenizer.token(one.id))];
  }
  return places;
}

// Tokenises a rendered text. The text between two control tokens is tokenised at once, even if it
// consists of text of the template and text of the sample. Inference does the same.
ChatTokens tokenize_rendered(const Tokenizer& tokenizer, const LearnedText& text,
                             const std::vector<Tokenizer::Place>& control) {
  LabelledTokens tokens(tokenizer, text.text.bytes, text.learned);
  size_t done = 0;
  for (const Tokenizer::Place& token : control) {
    tokens.add_text(done, token.begin);
    tokens.add_token(token);
    done = token.end;
  }
  tokens.add_text(done, text.text.size());
  return std::move(tokens).take();
}

// Chooses the form in which the template gets the arguments of tool calls. Arguments that the
// sample gives as JSON in a text, as in OpenAI's format, stay texts if the template writes texts
// unchanged. Otherwise the template gets objects. If the template refuses the objects, it gets
// texts with JSON.
class CallArguments {
 public:
  CallArguments(const ChatTemplate& chat, Json& variables) : chat_(chat), variables_(variables) {
    for (Json& message : variables["messages"]) {
      if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) continue;
      for (Json& call : message["tool_calls"]) {
        Json* const holder = !call.is_object()                                           ? nullptr
                             : call.contains("function") && call["function"].is_object() ? &call["function"]
                                                                                         : &call;
        if (holder == nullptr || !holder->contains("arguments")) continue;
        Json& arguments = (*holder)["arguments"];
        Json object = arguments.is_string() ? json_in_text(arguments.get_ref<const std::string&>()) : arguments;
        if (!object.is_object()) continue;
        has_texts_ = has_texts_ || arguments.is_string();
        given_.push_back(arguments);
        objects_.push_back(std::move(object));
        places_.push_back(&arguments);
      }
    }
  }

  void settle() {
    if (places_.empty() || (has_texts_ && writes_texts() && take(given_))) return;
    if (take(objects_)) return;
    std::vector<Json> texts;
    for (size_t i = 0; i < places_.size(); ++i)
      texts.push_back(given_[i].is_string() ? given_[i] : Json(text_of(objects_[i])));
    if (!take(texts)) take(objects_);
  }

 private:
  // Sets the arguments. Returns false if the template refuses the conversation with them, or writes
  // nothing.
  bool take(const std::vector<Json>& arguments) {
    for (size_t i = 0; i < places_.size(); ++i) *places_[i] = arguments[i];
    return !rendered().empty();
  }

  bool writes_texts() {
    const std::string asked = R"({"reprise": "asks"})";
    for (Json* const place : places_) *place = asked;
    const std::string text = rendered();
    return text.find(asked) != std::string::npos;
  }

  std::string rendered() const {
    try {
      return chat_.render(variables_, false).text.bytes;
    } catch (const LimitError&) {
      throw;
    } catch (const UserError&) {
      return "";
    }
  }

  static std::string text_of(const Json& object) {
    TemplateBudget budget;
    return json_text_of(TemplateValue::of_json(object, budget), -1, budget).as_text()->bytes;
  }

  const ChatTemplate& chat_;
  Json& variables_;
  std::vector<Json*> places_;
  std::vector<Json> given_, objects_;
  bool has_texts_ = false;
};

bool says_flags(const Conversation& conversation) {
  return std::any_of(conversation.is_learned.begin(), conversation.is_learned.end(),
                     [](const std::optional<bool>& flag) { return flag.has_value(); });
}

}  // namespace

ChatModel::ChatModel(const ModelFiles& files, const ChatSettings& settings)
    : path_(files.path()),
      settings_(settings),
      sources_(files.chat_templates()),
      tokenizer_(std::make_unique<Tokenizer>(files.tokenizer())) {
  if (!settings_.template_name.empty() && sources_.count(settings_.template_name) == 0) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources_) names.push_back(name);
    throw UserError(path_ + ": has no chat template " + json_shown(settings_.template_name) + " (data.chat_template)" +
                    (names.empty() ? "" : ", but " + quoted_list(names)));
  }
  const std::string usual = settings_.template_name.empty() ? kDefaultTemplate : settings_.template_name;
  ends_ = find_answer_ends(files, *tokenizer_, sources_.count(usual) > 0 ? &template_of(usual) : nullptr);
}

// Returns a template. It is parsed on first use, because a model may have unsupported templates
// that no record needs.
const ChatTemplate& ChatModel::template_of(const std::string& name) const {
  std::unique_ptr<ChatTemplate>& held = templates_[name];
  if (held) return *held;
  ChatTemplate::SpecialTexts specials{.bos = text_of_token(*tokenizer_, tokenizer_->bos()),
                                      .eos = text_of_token(*tokenizer_, tokenizer_->eos()),
                                      .pad = text_of_token(*tokenizer_, tokenizer_->pad())};
  const std::string shown = name == kDefaultTemplate ? "" : " " + json_shown(name);
  held = std::make_unique<ChatTemplate>(sources_.at(name), path_ + ": chat template" + shown, std::move(specials));
  return *held;
}

// Returns the template that the settings name. If they name none, returns the template that
// transformers would choose.
const ChatTemplate& ChatModel::template_for(const Json& variables) const {
  if (!settings_.template_name.empty()) return template_of(settings_.template_name);
  if (sources_.empty())
    throw UserError(path_ + " has no chat template; its conversations would need one in chat_template.jinja");
  if (variables.contains("tools") && sources_.count("tool_use") > 0) return template_of("tool_use");
  if (sources_.count(kDefaultTemplate) > 0) return template_of(kDefaultTemplate);
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) names.push_back(name);
  throw UserError(path_ + ": none of its chat templates is named \"default\", but " + quoted_list(names) +
                  "; choose one by data.chat_template");
}

// Completes the variables of a conversation and returns its template. A variable of the recipe is
// used unless the record has one with this name. Message parts and call arguments are converted to
// the form that the template reads.
const ChatTemplate& ChatModel::prepare(Json& variables) const {
  if (!settings_.template_kwargs.empty()) {
    Json kwargs = parse_ordered_json(settings_.template_kwargs, "data.chat_template_kwargs");
    if (variables.contains("chat_template_kwargs")) kwargs.update(variables["chat_template_kwargs"]);
    variables["chat_template_kwargs"] = std::move(kwargs);
  }
  const ChatTemplate& chat = template_for(variables);
  if (!chat.takes_parts()) join_text_parts(variables["messages"]);
  CallArguments(chat, variables).settle();
  return chat;
}

// Returns the tokens of a plain text. If `ends`, the token that ends texts is appended, if it is
// known and the text does not already end with it.
ChatTokens ChatModel::tokens_of_text(const std::string& text, bool ends, ReadingNotes& notes) const {
  ChatTokens tokens{text, {}, {}, true};
  const bool reads = settings_.control_tokens;
  for (const Tokenizer::Place& place : reads ? std::vector<Tokenizer::Place>{} : tokenizer_->find_control(text))
    ++notes.letters[json_shown(tokenizer_->token(place.id))];
  tokens.ids = tokenizer_->encode(text, reads);
  const std::optional<int32_t> bos = tokenizer_->bos(), end = ends_.of_text();
  if (tokenizer_->adds_bos() && bos && (!reads || tokens.ids.empty() || tokens.ids.front() != *bos))
    tokens.ids.insert(tokens.ids.begin(), *bos);
  if (ends && end && (!reads || tokens.ids.empty() || tokens.ids.back() != *end)) tokens.ids.push_back(*end);
  tokens.labels = tokens.ids;
  return tokens;
}

ChatRecord ChatModel::read(const Json& sample, TrainOn train_on, const std::string& place) const {
  ChatRecord record;
  Conversation conversation = read_conversation(sample, place);
  record.notes.unused = std::move(conversation.unused);
  try {
    if (conversation.is_text) {
      record.samples.push_back(tokens_of_text(conversation.text, true, record.notes));
      return record;
    }
    const ChatTemplate& chat = prepare(conversation.variables);
    const LearnedTexts finder(chat, *tokenizer_, conversation);
    const std::vector<LearnedText> texts = finder.find(train_on);
    finder.note_unused(texts, record.notes);
    for (const LearnedText& text : texts) {
      ReadingNotes of_text;
      const auto control = control_tokens(*tokenizer_, text.text, finder, conversation.variables["messages"],
                                          settings_.control_tokens, of_text);
      record.samples.push_back(tokenize_rendered(*tokenizer_, text, control));
      record.notes.letters = std::move(of_text.letters);  // keeps the notes of the last text, which is the longest
    }
    const auto learns = [](const ChatTokens& tokens) {
      return std::any_of(tokens.labels.begin(), tokens.labels.end(),
                         [](int32_t label) { return label != kIgnoredLabel; });
    };
    if (std::none_of(record.samples.begin(), record.samples.end(), learns)) {
      throw UserError(train_on == TrainOn::kAll
                          ? "the sample has no tokens"
                          : "nothing is learned from it: no message of the assistant" +
                                std::string(says_flags(conversation) ? " that is to be learned" : ""));
    }
    return record;
  } catch (const LimitError& error) {
    throw LimitError(place + ": " + error.what());
  } catch (const UserError& error) {
    throw UserError(place + ": " + error.what());
  }
}

AnswerTokens ChatModel::answer_tokens(const Json& prompt, const Json& answer, const Json& record,
                                      const std::string& place, ReadingNotes& notes) const {
  try {
    AnswerTokens tokens;
    if (prompt.is_string()) {
      tokens = continue_text(prompt.get<std::string>(), answer.get<std::string>(), notes);
    } else {
      Conversation conversation = read_conversation({{"prompt", prompt}, {"completion", answer}}, "");
      add_template_variables(record, "", conversation);
      const ChatTemplate& chat = prepare(conversation.variables);
      const LearnedTexts finder(chat, *tokenizer_, conversation);
      const LearnedText text = finder.behind_prompt();
      notes.unused.insert(conversation.unused.begin(), conversation.unused.end());
      finder.note_unused({text}, notes);
      const ChatTokens all =
          tokenize_rendered(*tokenizer_, text,
                            control_tokens(*tokenizer_, text.text, finder, conversation.variables["messages"],
                                           settings_.control_tokens, notes));
      tokens.ids = all.ids;
      while (tokens.begin < all.labels.size() && all.labels[tokens.begin] == kIgnoredLabel) ++tokens.begin;
    }
    tokens.begin = std::max<size_t>(tokens.begin, 1);
    if (tokens.begin >= tokens.ids.size()) throw UserError("the answer has no tokens");
    return tokens;
  } catch (const LimitError& error) {
    throw LimitError(place + ": " + error.what());
  } catch (const UserError& error) {
    const std::string reason = error.what();
    throw UserError(place + ": " + (reason.starts_with(": ") ? reason.substr(2) : reason));
  }
}

// Tokenises a prompt and an answer that are plain texts.
AnswerTokens ChatModel::continue_text(const std::string& prompt, const std::string& answer, ReadingNotes& notes) const {
  ReadingNotes of_prompt;
  std::vector<int32_t> alone = tokens_of_text(prompt, false, of_prompt).ids,
                       both = tokens_of_text(prompt + answer, true, notes).ids;
  const auto parting = std::mismatch(alone.begin(), alone.end(), both.begin(), both.end()).second;
  const auto begin = static_cast<size_t>(parting - both.begin());
  return {std::move(both), begin};
}

std::vector<int32_t> ChatModel::prompt_ids(const Json& messages) const {
  Conversation conversation;
  conversation.variables = {{"messages", messages}};
  const ChatTemplate& chat = prepare(conversation.variables);
  const LearnedTexts finder(chat, *tokenizer_, conversation);
  const LearnedText text{chat.render(conversation.variables, true).text, {}};
  ReadingNotes ignored;
  return tokenize_rendered(*tokenizer_, text,
                           control_tokens(*tokenizer_, text.text, finder, conversation.variables["messages"],
                                          settings_.control_tokens, ignored))
      .ids;
}

ChatTokens joined(const std::vector<ChatTokens>& samples) {
  ChatTokens all;
  for (const ChatTokens& one : samples) {
    all.text += one.text;
    all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
    all.labels.insert(all.labels.end(), one.labels.begin(), one.labels.end());
  }
  return all;
}

}  // namespace reprise
