// `reprise detokenize`: prints the text of the ids on stdin.
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/progress/shown_output.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/run/commands/command.h"
#include "tools/run/commands/model_argument.h"

namespace reprise {
namespace {

struct DetokenizeArguments {
  std::string model;
  bool json = false;
};

// Parses ids. Numbers with white space between them are accepted as a list, so that both output
// forms of tokenize can be read.
std::vector<int32_t> parse_ids(std::string text) {
  if (text.find_first_not_of("0123456789 \t\r\n") == std::string::npos) {
    std::string list;
    for (size_t at = 0; (at = text.find_first_not_of(" \t\r\n", at)) != std::string::npos;
         at = std::min(text.find_first_of(" \t\r\n", at), text.size())) {
      list += (list.empty() ? "" : ",") + text.substr(at, text.find_first_of(" \t\r\n", at) - at);
    }
    text = "[" + list + "]";
  }
  const nlohmann::json value = parse_json(text, "stdin");
  const nlohmann::json& list = value.is_object() && value.contains("ids") ? value["ids"] : value;
  if (!list.is_array())
    throw UserError("stdin: must be a list of ids, {\"ids\": [...]}, or ids with spaces between, not " +
                    json_shown(list));
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX)
      throw UserError("stdin: an id must be an integer of at least 0, not " + json_shown(id));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

int run_detokenize(const DetokenizeArguments& arguments) {
  const Tokenizer tokenizer(tokenizer_of_argument(arguments.model));
  const std::string text = tokenizer.decode(parse_ids(std::string(std::istreambuf_iterator<char>(std::cin), {})));
  if (arguments.json) {
    // JSON must be UTF-8, so that other bytes become U+FFFD.
    std::cout << nlohmann::json({{"text", text}}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << "\n";
  } else {
    pass_exact_output();
    std::cout << text;
  }
  return 0;
}

}  // namespace

Command add_detokenize(OptionParser& app) {
  const auto arguments = std::make_shared<DetokenizeArguments>();
  OptionParser* parser = app.add_subcommand("detokenize", "the text of the token ids on stdin");
  parser
      ->add_option("MODEL", arguments->model,
                   "a model's folder, its tokenizer.json, a GGUF file, or a recipe that names one")
      ->required();
  parser->add_flag("--json", arguments->json, "one JSON value on stdout, {\"text\": ...}; else the bytes as they are");
  return {parser, [arguments] { return run_detokenize(*arguments); }};
}

}  // namespace reprise
