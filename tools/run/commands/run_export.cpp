// `reprise export`: writes a snapshot in the formats of other programs.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/files/formats/json_fields.h"
#include "tools/files/io/error.h"
#include "tools/run/commands/command.h"
#include "tools/run/snapshots/export_snapshot.h"

namespace reprise {
namespace {

constexpr Word<BlockType> kTypes[] = {{"f32", BlockType::kF32},   {"f16", BlockType::kF16},
                                      {"bf16", BlockType::kBf16}, {"q8_0", BlockType::kQ8_0},
                                      {"q4_0", BlockType::kQ4_0}, {"q4_k", BlockType::kQ4_K}};

struct ExportOptions {
  std::string recipe, snapshot, adapter, adapter_gguf, merged, merged_gguf, onnx, type, base;
  bool json = false;
};

// Returns the request. Throws unless exactly one of the forms is given.
ExportRequest request_of(const ExportOptions& options) {
  const std::pair<const std::string&, ExportForm> forms[] = {{options.adapter, ExportForm::kAdapter},
                                                             {options.adapter_gguf, ExportForm::kAdapterGguf},
                                                             {options.merged, ExportForm::kMerged},
                                                             {options.merged_gguf, ExportForm::kMergedGguf},
                                                             {options.onnx, ExportForm::kOnnx}};
  ExportRequest request;
  request.snapshot = options.snapshot;
  request.inputs = {options.recipe};
  for (const auto& [to, form] : forms) {
    if (to.empty()) continue;
    request.to = to;
    request.form = form;
  }
  const bool is_merged = request.form == ExportForm::kMerged || request.form == ExportForm::kMergedGguf;
  if (!options.type.empty() && !is_merged)
    throw UserError("--type: is for --merged and --merged-gguf; an adapter is F32", UserError::kUsage);
  if (!options.base.empty() && !is_merged)
    throw UserError("--base: is for --merged and --merged-gguf; an adapter is written without its base",
                    UserError::kUsage);
  request.base = options.base;
  for (const auto& [word, type] : kTypes) {
    if (options.type == word) request.type = type;
  }
  return request;
}

}  // namespace

Command add_export(OptionParser& app) {
  const auto options = std::make_shared<ExportOptions>();
  OptionParser* parser = app.add_subcommand("export", "write a snapshot as other programs read it");
  parser->add_option("RECIPE", options->recipe, "the recipe that the snapshot was saved from")->required();
  parser->add_option("--snapshot", options->snapshot, "the folder that --save wrote")->required();
  OptionParser* form = parser->add_option_group("what is written, one of");
  form->add_option("--adapter", options->adapter, "a folder of PEFT: the adapter");
  form->add_option("--adapter-gguf", options->adapter_gguf, "a file of llama.cpp: the adapter");
  form->add_option("--merged", options->merged, "a folder of Hugging Face: the model, an adapter merged");
  form->add_option("--merged-gguf", options->merged_gguf, "a file of llama.cpp: the same");
  form->add_option("--onnx", options->onnx, "the ONNX file that the net was imported from, with the trained weights");
  form->require_option(1);
  parser
      ->add_option("--type", options->type,
                   "how the merged model stores its numbers: f32 (default), f16, bf16; of a GGUF also q8_0, q4_0, q4_k")
      ->one_of({"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"});
  parser
      ->add_option(
          "--base", options->base,
          "weights that the adapter is merged into: a file or folder; default: those that it was trained beside")
      ->check(not_empty());
  parser->add_flag("--json", options->json, "print what was written, and each tensor's error, as JSON");
  return {parser, [options] {
            const ExportReport report = export_snapshot(read_recipe(options->recipe), request_of(*options));
            std::cout << (options->json
                              ? export_json(report).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                                    "\n"
                              : export_text(report));
            return 0;
          }};
}

}  // namespace reprise
