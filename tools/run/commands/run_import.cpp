// `reprise import`: makes a recipe for a net from another framework.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/run/commands/command.h"
#include "tools/run/nets/import_net.h"

namespace reprise {
namespace {

struct ImportOptions {
  std::string file, output, data, tokenizer, loss, model_output, check;
  std::vector<std::string> inputs, freeze, train;
  int classes = 0;
  bool json = false, untie = false;
};

// Parses the argument of --input, for example "NAME=1,3,224,224".
std::pair<std::string, std::vector<uint64_t>> read_input(const std::string& text) {
  const auto refuse = [&]() -> UserError {
    return UserError("--input: must be NAME=SHAPE, as x=1,3,224,224, not " + json_shown(text), UserError::kUsage);
  };
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) throw refuse();
  std::vector<uint64_t> shape;
  for (size_t at = equals + 1; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string number = text.substr(at, end - at);
    if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos ||
        number == "0")
      throw refuse();
    shape.push_back(std::stoull(number));
    at = end + 1;
  }
  return {text.substr(0, equals), shape};
}

ImportOrder order_of(const ImportOptions& options, const Port& port) {
  ImportOrder order;
  order.check = options.check;
  order.port = &port;
  order.file = options.file;
  order.recipe =
      !options.output.empty() ? options.output : std::filesystem::path(options.file).stem().string() + ".json";
  order.request.classes = options.classes;
  for (const std::string& input : options.inputs) order.request.inputs.insert(read_input(input));
  order.freeze = options.freeze;
  order.request.train = options.train;
  order.request.untie = options.untie;
  order.request.output = options.model_output;
  if (!options.loss.empty()) order.request.loss = options.loss + "_loss";
  order.tokenizer = options.tokenizer;
  if (options.data.empty()) return order;
  const size_t equals = options.data.find('=');
  order.data_kind = options.data.substr(0, equals);
  if (equals != std::string::npos) order.data_path = options.data.substr(equals + 1);
  return order;
}

int run_import(const ImportOptions& options, const Port& port) {
  if (!options.check.empty() && options.classes > 0)
    throw UserError("--check: cannot go with --classes, whose layer is new", UserError::kUsage);
  const ImportReport report = import_net(order_of(options, port));
  if (options.json) print_json(import_json(report));
  constexpr size_t kMaxLines = 20;
  const size_t lines = report.refused.size();
  for (size_t n = 0; n < std::min(lines, kMaxLines); ++n)
    std::cerr << UserError(options.file + ": " + report.refused[n]).what() << "\n";
  if (lines > kMaxLines)
    std::cerr << UserError(options.file).what() << ": and " << lines - kMaxLines
              << " refusals more, which --json lists\n";
  if (!report.refused.empty()) return UserError::kBadInput;
  if (!options.json) std::cout << import_text(report);
  return 0;
}

}  // namespace

Command add_import(OptionParser& app, const Port& port) {
  const auto options = std::make_shared<ImportOptions>();
  OptionParser* parser =
      app.add_subcommand("import", "make a recipe of a net from elsewhere: its forward is read, its backward derived");
  parser->add_option("FILE", options->file, "an ONNX model, opset 11 or later, or a .pt2 of torch.export")->required();
  parser
      ->add_option(
          "-o,--output", options->output,
          "the recipe to write, NET.json; NET.graph.json and NET.safetensors go beside it; default: FILE's name here")
      ->check(not_empty());
  parser->add_option("--classes", options->classes, "a new last layer for so many classes, drawn from the seed")
      ->check(integer_from(2, 1000000000));
  parser->add_option("--freeze", options->freeze, "patterns of parameters that are not trained; may be given again");
  parser->add_option("--train", options->train,
                     "patterns of parameters that are trained although import would freeze them; may be given again");
  parser->add_flag("--untie", options->untie, "parameters that share a tensor of the file get each its own");
  parser->add_option("--input", options->inputs, "NAME=SHAPE, as x=1,3,224,224, of an input whose size is open");
  parser->add_option("--model-output", options->model_output,
                     "of a model that has several outputs, the one that is computed and judged");
  parser
      ->add_option("--loss", options->loss,
                   "what the model writes is judged by: class, mse, l1, huber or binary; of pairs: infonce, cosine or "
                   "similarity; without it, it must end in a classifier's linear layer")
      ->one_of({"class", "mse", "l1", "huber", "binary", "infonce", "cosine", "similarity"});
  parser
      ->add_option("--data", options->data,
                   "KIND=PATH, as image_folder=my/pictures, for the recipe; default: synthetic")
      ->check(not_empty());
  parser
      ->add_option(
          "--check", options->check,
          "a safetensors file of inputs and outputs under the model's names, or a folder of ONNX's test data: what is "
          "imported must compute the same")
      ->check(not_empty());
  parser
      ->add_option(
          "--tokenizer", options->tokenizer,
          "of a net of texts and its data: a folder with tokenizer.json or vocab.txt, or such a file; default: FILE's "
          "folder, where it has one")
      ->check(not_empty());
  parser->add_flag("--json", options->json, "print what was made, or all that is refused, as JSON");
  return {parser, [options, &port] { return run_import(*options, port); }};
}

}  // namespace reprise
