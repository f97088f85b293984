// See dialogue.h. Earlier messages stay in the prompt. They also stay in the caches up to the first
// token that the chat template now writes differently.
#include "tools/run/inference/dialogue.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/progress/shown_output.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/run/inference/answer.h"
#include "tools/run/session/session.h"

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

class Dialogue {
 public:
  Dialogue(Session& session, const ProgramOptions& options)
      : session_(session), options_(options), answerer_(session.recipe()), limits_(require_generation(session.plan())),
        drawing_(generation_of(options, static_cast<uint32_t>(limits_.positions))) {
    begin();
  }

  void run(std::istream& in) {
    const bool asks = !options_.quiet && ::isatty(STDIN_FILENO) == 1;
    if (asks) std::cerr << "A line is what you say; /new begins anew, and the end of the input (Ctrl-D) ends it.\n";
    for (std::string line;;) {
      if (asks) std::cerr << "> " << std::flush;
      if (!std::getline(in, line)) break;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line == "/new") {
        begin();
      } else if (!line.empty()) {
        take_turn(line);
      }
    }
    if (asks) std::cerr << "\n";
  }

 private:
  void begin() {
    messages_ = Json::array();
    if (!options_.system.empty()) add("system", options_.system);
  }

  // Appends a message. Bytes that are not UTF-8, for example of an incomplete last character,
  // become U+FFFD.
  void add(const char* role, const std::string& content) {
    const std::string whole = Json(content).dump(-1, ' ', false, Json::error_handler_t::replace);
    messages_.push_back({{"role", role}, {"content", Json::parse(whole)}});
  }

  void take_turn(const std::string& said) {
    if (const size_t at = first_byte_not_utf8(said); at != std::string::npos) {
      throw UserError(session_.recipe().name + ": --chat: what was said is not UTF-8 at byte " + std::to_string(at));
    }
    add("user", said);
    const std::vector<int32_t> ids = ids_that_fit();
    if (ids.empty()) return;
    const Answerer::Answer answer = answerer_.go_on(
        session_.trainer(), ids, drawing_, [this](const std::string& piece) { show(piece); }, known_of(ids));
    drawing_.drawn += answer.tokens.size() + 1;  // one more for the token that ended the answer
    held_ = ids;
    held_.insert(held_.end(), answer.tokens.begin(), answer.tokens.end());
    // Drops the answer's last token: the caches lack it if the answer was ended early, for example
    // by a signal.
    held_.resize(held_.size() - !answer.tokens.empty());
    add("assistant", answer.text);
    show_end(said, answer.text);
    const bool is_full = ids.size() + answer.tokens.size() >= limits_.positions;
    if (is_full)
      warn("the answer ends where the plan's room for " + std::to_string(limits_.positions) + " tokens is full");
    if (!is_full && answer.tokens.size() == drawing_.tokens)
      warn("the answer ends after " + std::to_string(drawing_.tokens) + " tokens (--tokens)");
  }

  // Returns the ids of the conversation. Drops the oldest messages if less than an eighth of the
  // plan's positions would remain for the answer. If the last message alone does not fit, drops it
  // and returns no ids.
  std::vector<int32_t> ids_that_fit() {
    const size_t first = options_.system.empty() ? 0 : 1;
    size_t left_out = 0;
    std::vector<int32_t> ids = answerer_.ids_of(messages_);
    while (ids.size() + limits_.positions / 8 > limits_.positions && messages_.size() > first + 1) {
      messages_.erase(messages_.begin() + static_cast<ptrdiff_t>(first),
                      messages_.begin() + static_cast<ptrdiff_t>(first) + 2);
      left_out += 2;
      ids = answerer_.ids_of(messages_);
    }
    const std::string space = "the plan's room for " + std::to_string(limits_.positions) + " tokens";
    if (left_out > 0)
      warn("the conversation is longer than " + space + ": its " + std::to_string(left_out) +
           " oldest messages are left out from here on");
    if (ids.size() < limits_.positions) return ids;
    warn("what you said is not answered: with it the prompt has " + std::to_string(ids.size()) + " tokens, more than " +
         space + " holds beside an answer; say less, or plan with a longer \"sequence\"");
    messages_.erase(messages_.end() - 1);
    return {};
  }

  // Returns how many of the first ids are already in the caches. The last id does not count: it is
  // computed again, because it predicts the answer.
  uint64_t known_of(const std::vector<int32_t>& ids) const {
    const auto same =
        static_cast<uint64_t>(std::mismatch(held_.begin(), held_.end(), ids.begin(), ids.end()).first - held_.begin());
    return std::min<uint64_t>(same, ids.size() - 1);
  }

  void show(const std::string& piece) const {
    if (!options_.json) std::cout << piece << std::flush;
  }

  void show_end(const std::string& said, const std::string& text) const {
    if (options_.json)
      std::cout << nlohmann::json{{"prompt", said}, {"text", text}}.dump(-1, ' ', false,
                                                                         nlohmann::json::error_handler_t::replace);
    std::cout << "\n" << std::flush;
  }


  Session& session_;
  const ProgramOptions& options_;
  const Answerer answerer_;
  const GenerationLimits limits_;
  GenerationOptions drawing_;
  Json messages_;
  std::vector<int32_t> held_;  // the tokens in the caches, from position 0
};

}  // namespace

int converse(const CompiledPlan& compiled, const ProgramOptions& options, std::istream& in) {
  Session session(compiled, options);
  show_untrained(session);
  Dialogue(session, options).run(in);
  return 0;
}

}  // namespace reprise
