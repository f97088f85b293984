// Answers prompts: `--prompt` of a training program, and the recipe's "prompts" before and after a
// training. The model's own tokenizer converts text to tokens and back. A model without a tokenizer
// reads and writes bytes.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/files/chat/chat_tokens.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/inference/generation.h"
#include "tools/run/session/compiled_plan.h"
#include "tools/run/session/program_options.h"

namespace reprise {

// Answers prompts with the weights of a trainer.
class Answerer {
 public:
  // Opens the tokenizer and the chat template of the recipe's model. If the recipe trains on
  // conversations, a prompt is a user's message; otherwise the answer continues the prompt's text.
  // Throws UserError if the model has no tokenizer and does not read bytes.
  explicit Answerer(const Recipe& recipe);

  // Returns the ids with which the model is asked for the next message after `messages`, as its
  // chat template writes them. Throws UserError if the model has no chat template.
  std::vector<int32_t> ids_of(const nlohmann::ordered_json& messages) const;

  struct Answer {
    std::string text;
    std::vector<int32_t> tokens;
  };
  // Generates an answer that continues `ids`. The caches already contain the first `known` ids.
  Answer go_on(Trainer& trainer, const std::vector<int32_t>& ids, const GenerationOptions& options,
               const std::function<void(const std::string&)>& see = {}, uint64_t known = 0) const;

  // Returns the answer to a prompt. If `see` is set, it is called with pieces of the text. Each
  // piece has whole characters; only the last one may end within a character.
  std::string answer(Trainer& trainer, const std::string& prompt, const GenerationOptions& options,
                     const std::function<void(const std::string&)>& see = {}) const;

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt) const;
  std::string text_of(const std::vector<int32_t>& tokens) const;

  const std::string name_;
  const bool converses_, reads_control_;
  std::unique_ptr<ChatModel> model_;  // null if the model reads bytes
  std::vector<int32_t> never_;        // ids of the model that its tokenizer does not have
};

// True if the plan can generate, and the recipe names the files of a model or its model reads
// bytes.
bool can_answer(const Recipe& recipe, const Plan& plan);

// Returns the command line's options for generation. `tokens` is the maximum length unless the
// command line gives one.
GenerationOptions generation_of(const ProgramOptions& options, uint32_t tokens);

// Runs `--prompt`: prints the answer on stdout while it is generated. Returns the exit status.
int answer_prompt(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
