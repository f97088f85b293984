// See answer_ends.h.
#include "tools/files/chat/answer_ends.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tools/files/chat/chat_tokens.h"
#include "tools/files/formats/gguf.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/tokenizer/tokenizer_config.h"

namespace reprise {
namespace {

using nlohmann::json;

constexpr const char* kEosIds = "eos_token_id";

// Returns the ids of "eos_token_id": one id, or a list of ids.
std::vector<int64_t> ids_in(const json& config, const std::string& file) {
  if (!config.is_object() || !config.contains(kEosIds) || config[kEosIds].is_null()) return {};
  const json& given = config[kEosIds];
  std::vector<int64_t> ids;
  for (const json& id : given.is_array() ? given : json::array({given})) {
    if (!id.is_number_integer())
      throw UserError(file + ": " + kEosIds + ": must be a token's id, or a list of ids, not " + json_shown(id));
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

// Returns the id of the added token whose text is exactly `text`; nothing if there is none.
std::optional<int32_t> added_id(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<Tokenizer::Place> places = tokenizer.find_added(text);
  if (places.size() != 1 || places[0].begin != 0 || places[0].end != text.size()) return std::nullopt;
  return places[0].id;
}

class EndCollector {
 public:
  EndCollector(const Tokenizer& tokenizer, AnswerEnds& ends) : tokenizer_(tokenizer), ends_(ends) {}

  void add(std::optional<int64_t> id) {
    if (!id || *id < 0 || *id > INT32_MAX || !tokenizer_.has_token(static_cast<int32_t>(*id))) return;
    const auto token = static_cast<int32_t>(*id);
    if (std::find(ends_.tokens.begin(), ends_.tokens.end(), token) == ends_.tokens.end()) ends_.tokens.push_back(token);
  }
  void add_but_words(int64_t id) {
    if (id < 0 || id > INT32_MAX || !tokenizer_.has_token(static_cast<int32_t>(id))) return;
    const auto token = static_cast<int32_t>(id);
    if (tokenizer_.is_control(token) || added_id(tokenizer_, tokenizer_.token(token)) == token) add(token);
  }

 private:
  const Tokenizer& tokenizer_;
  AnswerEnds& ends_;
};

std::vector<int64_t> ids_in_gguf(const GgufFile& file) {
  std::vector<int64_t> ids;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = file.unsigned_integer(key); id && *id <= INT32_MAX) ids.push_back(static_cast<int64_t>(*id));
  }
  return ids;
}

std::vector<int64_t> ids_in_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? ids_in(parse_json(read_file(path), path), path)
                                                         : std::vector<int64_t>();
}

void add_folder_ends(const std::string& folder, const Tokenizer& tokenizer, EndCollector& ends) {
  for (const int64_t id : ids_in_file(folder + "/generation_config.json")) ends.add(id);
  for (const int64_t id : ids_in_file(folder + "/config.json")) ends.add_but_words(id);
  if (const auto text = TokenizerConfig(folder + "/tokenizer.json").token_of_map("eos_token"))
    ends.add(added_id(tokenizer, *text));
}

bool is_white(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

// Renders a question and a reply, and finds the first added token after the reply.
void find_reply_end(const ChatTemplate& chat, const Tokenizer& tokenizer, AnswerEnds& ends) {
  using Json = nlohmann::ordered_json;
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}});
  RenderedChat rendered;
  try {
    rendered = chat.render({{"messages", messages}}, false);
  } catch (const UserError&) {  // the template refuses this conversation
    return;
  }
  // The position after the last byte of the reply's content; 0 if the template writes none of it.
  const size_t behind = rendered.text.origins.rfind(static_cast<char32_t>(part_origin(1))) + 1;
  if (behind == 0) return;
  for (const Tokenizer::Place& place : tokenizer.find_added(rendered.text.bytes)) {
    if (place.begin < behind || is_white(tokenizer.token(place.id))) continue;
    const auto holds = [&](const ByteRange& range) { return range.begin <= place.begin && place.end <= range.end; };
    ends.of_reply = place.id;
    ends.is_learned =
        !chat.marks_generation() || std::any_of(rendered.generated.begin(), rendered.generated.end(), holds);
    return;
  }
}

}  // namespace

AnswerEnds find_answer_ends(const ModelFiles& files, const Tokenizer& tokenizer, const ChatTemplate* chat) {
  AnswerEnds ends;
  EndCollector collector(tokenizer, ends);
  collector.add(tokenizer.eos());
  if (files.is_gguf()) {
    for (const int64_t id : ids_in_gguf(GgufFile(files.path()))) collector.add(id);
  } else {
    add_folder_ends(files.path(), tokenizer, collector);
  }
  if (chat != nullptr) find_reply_end(*chat, tokenizer, ends);
  collector.add(ends.of_reply);
  return ends;
}

AnswerEnds find_answer_ends(const ModelFiles& files) {
  try {
    return ChatModel(files).ends();
  } catch (const UserError&) {
    return find_answer_ends(files, Tokenizer(files.tokenizer()), nullptr);
  }
}

json eos_ids_with(const json& config, const AnswerEnds& ends) {
  const json given = config.is_object() ? config.value(kEosIds, json()) : json();
  std::vector<int32_t> ids;
  const auto add = [&](int64_t id) {
    const bool is_end = std::find(ends.tokens.begin(), ends.tokens.end(), id) != ends.tokens.end();
    if (is_end && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  };
  for (const int64_t id : ids_in(config, "")) add(id);
  for (const int32_t id : ends.tokens) add(id);
  if (given == json(ids) || ids.empty()) return given;
  return ids.size() == 1 ? json(ids[0]) : json(ids);
}

bool stops_at(const ModelFiles& files, int32_t token) {
  std::vector<int64_t> ids;
  if (files.is_gguf()) {
    ids = ids_in_gguf(GgufFile(files.path()));
  } else if (ids = ids_in_file(files.path() + "/generation_config.json"); ids.empty()) {
    ids = ids_in_file(files.path() + "/config.json");
  }
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

std::string fault_of_reply_end(const AnswerEnds& ends, const Tokenizer& tokenizer) {
  if (!ends.of_reply)
    return "the chat template writes no token of the vocabulary behind a reply, so that answers learn no end: end a "
           "reply with a token, as eos_token";
  if (ends.is_learned) return "";
  return "the chat template has " + json_shown(tokenizer.token(*ends.of_reply)) +
         " behind its {% generation %}, so that no answer learns to end: " + "move {% endgeneration %} behind it";
}

std::string no_text_end(const ModelFiles& files) {
  return "texts are learned without an end, because " + files.path() + " names none: " +
         (files.is_gguf() ? "give the file a tokenizer.ggml.eos_token_id"
                          : "name one as eos_token in its tokenizer_config.json");
}

}  // namespace reprise
