// `reprise tokenize`: prints the ids of the text on stdin.
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/progress/long_work.h"
#include "tools/files/tokenizer/tokenizer.h"
#include "tools/run/commands/command.h"
#include "tools/run/commands/model_argument.h"

namespace reprise {
namespace {

struct TokenizeArguments {
  std::string model;
  bool special = false, json = false;
};

int run_tokenize(const TokenizeArguments& arguments) {
  const Tokenizer tokenizer(tokenizer_of_argument(arguments.model));
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const LongWork work("tokens of stdin");  // created after reading, because a user may type the text slowly
  const std::vector<int32_t> ids = tokenizer.encode(text, arguments.special);
  if (arguments.json) {
    print_json({{"ids", ids}});
    return 0;
  }
  for (size_t n = 0; n < ids.size(); ++n) std::cout << (n == 0 ? "" : " ") << ids[n];
  std::cout << "\n";
  return 0;
}

}  // namespace

Command add_tokenize(OptionParser& app) {
  const auto arguments = std::make_shared<TokenizeArguments>();
  OptionParser* parser = app.add_subcommand("tokenize", "the token ids of the text on stdin");
  parser
      ->add_option("MODEL", arguments->model,
                   "a model's folder, its tokenizer.json, a GGUF file, or a recipe that names one")
      ->required();
  parser->add_flag("--special", arguments->special, "read control tokens out of the text");
  parser->add_flag("--json", arguments->json,
                   "one JSON value on stdout, {\"ids\": [...]}; else the ids, spaces between");
  return {parser, [arguments] { return run_tokenize(*arguments); }};
}

}  // namespace reprise
