// Answers to prompts: `--prompt` of a training program, and the recipe's "prompts" before and after a training.
// Here because text becomes tokens and tokens text by the model's own tokenizer, or byte by byte where it has none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/chat/chat_tokens.h"
#include "tools/inference/generation.h"
#include "tools/recipes/recipe.h"
#include "tools/session/compiled_plan.h"
#include "tools/session/program_options.h"

namespace reprise {

class Answerer {
 public:
  // Opens the tokenizer of the recipe's model, and its chat template. Where the recipe trains on conversations, a prompt is what a user says;
  // else the answer goes on with its text. Throws UserError where the model has no tokenizer and does not read bytes either.
  explicit Answerer(const Recipe& recipe);

  // The answer's text; `see`, where given, gets it piece by piece, a character never in two.
  std::string answer(Trainer& trainer, const std::string& prompt, const GenerationOptions& options, const std::function<void(const std::string&)>& see = {}) const;

 private:
  std::vector<int32_t> tokens_of(const std::string& prompt) const;
  std::string text_of(const std::vector<int32_t>& tokens) const;

  const std::string name_;
  const bool converses_;
  std::unique_ptr<ChatModel> model_;  // null: bytes
  std::vector<int32_t> never_;        // ids that the model has and its tokenizer has not
};

// Whether the recipe's prompts can be answered by this plan.
bool can_answer(const Recipe& recipe, const Plan& plan);

// `--prompt`: the answer on stdout, as it is drawn. Answers the exit status.
int answer_prompt(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
