// `reprise chat`: what a model reads of one conversation, and what it would learn from it.
// Here so that a template, and what it makes of data, can be looked at before a training.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/chat/chat_tokens.h"
#include "tools/commands/command.h"
#include "tools/commands/model_argument.h"
#include "tools/formats/output_file.h"
#include "tools/formats/record_file.h"
#include "tools/progress/shown_output.h"

namespace reprise {
namespace {

struct ChatArguments {
  std::string model, sample;
  TrainOn train_on = TrainOn::kAssistant;
  bool json = false;
};

int run_chat(const ChatArguments& arguments) {
  const ChatModel model(model_of_argument(arguments.model));
  const ChatTokens tokens = model.tokens_of(parse_json_record(read_file(arguments.sample), arguments.sample), arguments.train_on, arguments.sample);
  if (arguments.json) {
    print_json({{"text", tokens.text}, {"ids", tokens.ids}, {"labels", tokens.labels}});
  } else {
    pass_exact_output();
    std::cout << tokens.text;
  }
  return 0;
}

}  // namespace

Command add_chat(OptionParser& app) {
  const auto arguments = std::make_shared<ChatArguments>();
  OptionParser* parser = app.add_subcommand("chat", "what a model reads of a conversation, and what it learns from it");
  parser->add_option("MODEL", arguments->model, "a model's folder, a GGUF file, or a recipe that names one")->required();
  parser->add_option("FILE", arguments->sample, "one sample, as a line of a JSONL file has it")->required();
  parser->add_flag("--json", arguments->json, "one JSON value on stdout, {\"text\", \"ids\", \"labels\"}; else the text");
  return {parser, [arguments] { return run_chat(*arguments); }};
}

}  // namespace reprise
