// `reprise chat`: shows what a model reads of one conversation, and which tokens a training would
// teach. Templates and their effect on data can thus be inspected before a training.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/chat/chat_tokens.h"
#include "tools/files/formats/record_file.h"
#include "tools/files/io/output_file.h"
#include "tools/files/progress/shown_output.h"
#include "tools/run/commands/command.h"
#include "tools/run/commands/model_argument.h"

namespace reprise {
namespace {

struct ChatArguments {
  std::string model, sample;
  TrainOn train_on = TrainOn::kAssistant;
  bool json = false;
};

int run_chat(const ChatArguments& arguments) {
  ChatSettings settings;
  const ModelFiles files = model_of_argument(arguments.model, &settings);
  const ChatModel model(files, settings);
  const ChatRecord record = model.read(parse_json_record(read_file(arguments.sample), arguments.sample),
                                       arguments.train_on, arguments.sample);
  const ChatTokens tokens = joined(record.samples);
  NoteCounts notes;
  notes.add(record.notes, record.samples.size(), arguments.sample);
  for (const std::string& line : notes.warnings(arguments.sample)) warn(line);
  if (arguments.json) {
    nlohmann::json begins = nlohmann::json::array();
    for (size_t n = 0, at = 0; n < record.samples.size(); at += record.samples[n++].ids.size()) begins.push_back(at);
    print_json({{"text", tokens.text}, {"ids", tokens.ids}, {"labels", tokens.labels}, {"begins", begins}});
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
  parser->add_option("MODEL", arguments->model, "a model's folder, a GGUF file, or a recipe that names one")
      ->required();
  parser->add_option("FILE", arguments->sample, "one sample, as a line of a JSONL file has it")->required();
  parser->add_flag("--json", arguments->json,
                   "one JSON value on stdout, {\"text\", \"ids\", \"labels\", \"begins\"}; else the text");
  return {parser, [arguments] { return run_chat(*arguments); }};
}

}  // namespace reprise
