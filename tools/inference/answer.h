// Answers to prompts: `--prompt` of a training program, and the recipe's "prompts" before and after a training.
// Here because text becomes tokens and tokens text by the model's own tokenizer, or byte by byte where it has none.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
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

  // The ids with which the model is asked to say what follows the messages, as its chat template writes them. Throws UserError where it has
  // none.
  std::vector<int32_t> ids_of(const nlohmann::ordered_json& messages) const;

  struct Answer {
    std::string text;
    std::vector<int32_t> tokens;
  };
  // Goes on with ids, of which the caches hold the first `known`.
  Answer go_on(Trainer& trainer, const std::vector<int32_t>& ids, const GenerationOptions& options, const std::function<void(const std::string&)>& see = {},
               uint64_t known = 0) const;

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

// How the command line wants answers drawn; `tokens`: the longest answer where it does not say.
GenerationOptions generation_of(const ProgramOptions& options, uint32_t tokens);

// `--prompt`: the answer on stdout, as it is drawn. Answers the exit status.
int answer_prompt(const CompiledPlan& compiled, const ProgramOptions& options);

}  // namespace reprise
