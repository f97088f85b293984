// `reprise kernels`: prints what every kernel computes, its arguments, the backends that have it,
// and the scratch and stack of a call.
#include <iostream>
#include <memory>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/plan/audit/kernels_text.h"
#include "tools/run/commands/command.h"

namespace reprise {

namespace {

struct KernelsOptions {
  std::string name, activations = "f32", weights = "f32";
  std::vector<std::string> sizes, without;
  bool json = false;
};

DType dtype_of(const std::string& option, const std::string& name, Storage storage) {
  std::vector<std::string> known;
  for (uint32_t i = 0; i < kDTypeCount; ++i) {
    if (!may_store(storage, static_cast<DType>(i))) continue;
    known.push_back(kDTypes[i].name);
    if (name == kDTypes[i].name) return static_cast<DType>(i);
  }
  throw UserError("kernels: " + option + ": must be " + either_of(known) + ", not " + json_shown(name),
                  UserError::kUsage);
}

int run(const KernelsOptions& options) {
  const DType activations = dtype_of("--dtype", options.activations, Storage::kActivation);
  const DType weights = dtype_of("--weights", options.weights, Storage::kWeight);
  const std::vector<uint32_t> kernels = kernels_named(options.name);
  const bool priced = !options.sizes.empty();
  if (priced && kernels.size() != 1)
    throw UserError("kernels: sizes are of one kernel: give its whole name, as in linear.forward", UserError::kUsage);
  nlohmann::json answer = nlohmann::json::array();
  for (const uint32_t kernel : kernels) {
    if (!priced) answer.push_back(kernel_json(kernel, nullptr));
    if (!priced) continue;
    const SizedCall call = KernelSizes(kOps[kernel], options.sizes).call(activations, weights, options.without);
    answer.push_back(kernel_json(kernel, &call));
  }
  if (options.json) {
    print_json(answer);
  } else {
    std::cout << (options.name.empty() ? kernel_lines(answer) : kernel_pages(answer));
  }
  return 0;
}

}  // namespace

Command add_kernels(OptionParser& app) {
  const auto options = std::make_shared<KernelsOptions>();
  OptionParser* parser =
      app.add_subcommand("kernels", "every kernel: what it computes, its arguments, who has it, its scratch and stack");
  parser->add_option("NAME", options->name, "a kernel, as linear.forward, or all of an op, as linear");
  Option* sizes =
      parser->add_option("SIZE", options->sizes,
                         "NAME=NUMBER: letters of the shapes and fields of the attribute, as in M=64 C=128 K=10");
  parser->add_option("--dtype", options->activations, "how activations are stored: f32 or bf16")
      ->capture_default_str()
      ->needs(sizes);
  parser->add_option("--weights", options->weights, "how matrices of parameters are stored")
      ->capture_default_str()
      ->needs(sizes);
  parser
      ->add_option("--without", options->without,
                   "an optional argument that the call has not; may be given several times")
      ->needs(sizes);
  parser->add_flag("--json", options->json, "one JSON value on stdout");
  return {parser, [options] { return run(*options); }};
}

}  // namespace reprise
