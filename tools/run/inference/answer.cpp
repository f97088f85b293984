// See answer.h.
#include "tools/run/inference/answer.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/files/io/error.h"
#include "tools/files/io/shown_text.h"
#include "tools/files/tokenizer/characters.h"
#include "tools/run/session/session.h"
#include "tools/run/session/stop_signal.h"

namespace reprise {
namespace {

bool reads_bytes(const Recipe& recipe) {
  return recipe.place.path().empty() && describe_model(recipe.model).vocabulary == 256;
}

}  // namespace

Answerer::Answerer(const Recipe& recipe)
    : name_(recipe.name),
      converses_(holds_conversations(recipe.data)),
      reads_control_(recipe.data.chat.control_tokens) {
  if (reads_bytes(recipe)) return;
  if (recipe.place.path().empty()) {
    throw UserError(recipe.name +
                    ": model: has no tokenizer, so it can answer no text; give \"huggingface\" or \"gguf\", or a model "
                    "of 256 tokens, which reads bytes");
  }
  model_ = std::make_unique<ChatModel>(ModelFiles::open(recipe.place), recipe.data.chat);
  for (int32_t id = 0; id < describe_model(recipe.model).vocabulary; ++id) {
    if (!model_->tokenizer().has_token(id)) never_.push_back(id);
  }
}

std::vector<int32_t> Answerer::tokens_of(const std::string& prompt) const {
  if (model_ == nullptr) {
    std::vector<int32_t> bytes;
    for (const char c : prompt) bytes.push_back(static_cast<unsigned char>(c));
    return bytes;
  }
  if (const size_t at = first_byte_not_utf8(prompt); at != std::string::npos)
    throw UserError(name_ + ": --prompt: not UTF-8 at byte " + std::to_string(at));
  if (converses_) return model_->prompt_ids(nlohmann::ordered_json::array({{{"role", "user"}, {"content", prompt}}}));
  const Tokenizer& tokenizer = model_->tokenizer();
  std::vector<int32_t> tokens = tokenizer.encode(prompt, reads_control_);
  if (tokenizer.adds_bos() && (!reads_control_ || tokens.empty() || tokens.front() != *tokenizer.bos()))
    tokens.insert(tokens.begin(), *tokenizer.bos());
  return tokens;
}

std::string Answerer::text_of(const std::vector<int32_t>& tokens) const {
  if (model_ != nullptr) return model_->tokenizer().bytes_of(tokens);
  return std::string(tokens.begin(), tokens.end());
}

std::string Answerer::answer(Trainer& trainer, const std::string& prompt, const GenerationOptions& options,
                             const std::function<void(const std::string&)>& see) const {
  const std::vector<int32_t> tokens = tokens_of(prompt);
  if (tokens.empty())
    throw UserError(name_ + ": --prompt, prompts: must not be empty: an answer goes on with something");
  return go_on(trainer, tokens, options, see).text;
}

std::vector<int32_t> Answerer::ids_of(const nlohmann::ordered_json& messages) const {
  if (model_ == nullptr)
    throw UserError(name_ + ": --chat: the model has no chat template; give \"huggingface\" or \"gguf\"");
  return model_->prompt_ids(messages);
}

Answerer::Answer Answerer::go_on(Trainer& trainer, const std::vector<int32_t>& ids, const GenerationOptions& options,
                                 const std::function<void(const std::string&)>& see, uint64_t known) const {
  GenerationOptions with_end = options;
  with_end.never = never_;
  if (model_ != nullptr)
    with_end.stop.insert(with_end.stop.end(), model_->ends().tokens.begin(), model_->ends().tokens.end());
  std::string held;
  const auto show = [&](int32_t token) {
    held += text_of({token});
    const size_t whole = held.size() - unfinished_bytes(held);
    if (see && whole > 0) see(held.substr(0, whole));
    held.erase(0, whole);
    return true;
  };
  const std::vector<int32_t> tokens = generate_tokens(trainer, ids, with_end, show, known);
  if (see && !held.empty()) see(held);
  return {text_of(tokens), tokens};
}

bool can_answer(const Recipe& recipe, const Plan& plan) {
  return generation_limits(plan).positions > 0 && (reads_bytes(recipe) || !recipe.place.path().empty());
}

GenerationOptions generation_of(const ProgramOptions& options, uint32_t tokens) {
  return {.tokens = options.tokens == 0 ? tokens : static_cast<uint32_t>(options.tokens),
          .temperature = options.temperature,
          .top_k = static_cast<uint32_t>(options.top_k),
          .top_p = options.top_p,
          .seed = options.seed,
          .drawn = 0,
          .stop = {},
          .never = {},
          .stops = [] { return stop_signal() != 0; }};
}

int answer_prompt(const CompiledPlan& compiled, const ProgramOptions& options) {
  Session session(compiled, options);
  show_untrained(session);
  const Doing doing(Activity::kAnswering);
  const Answerer answerer(session.recipe());
  const GenerationOptions generation = generation_of(options, 100);
  const auto show = [&](const std::string& piece) {
    if (!options.json) std::cout << piece << std::flush;
  };
  const std::string text = answerer.answer(session.trainer(), options.prompt, generation, show);
  if (options.json) {
    std::cout << nlohmann::json{{"prompt", options.prompt}, {"text", text}}.dump(
                     -1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << "\n";
  }
  return stop_signal() == 0 ? 0 : 128 + stop_signal();
}

}  // namespace reprise
