// Defines the options of program_options.h, with their help.
#include "tools/run/session/program_options.h"

#include <algorithm>

#include "tools/files/io/error.h"
#include "tools/files/io/output.h"
#include "tools/files/io/text.h"
#include "tools/run/session/command_line.h"

namespace reprise {

namespace {

OptionCheck a_value() {
  return [](std::string& text) { return text.empty() ? not_empty()(text) : not_an_option()(text); };
}

}  // namespace

void ProgramOptions::add_to(OptionParser& app, uint64_t disk_bytes, bool streams, uint32_t max_workers) {
  app.add_option("--plan", plan,
                 "run the plan of this file, as `reprise plan --binary` writes it, in place of the one that is "
                 "compiled in; it is proved first")
      ->check(a_value());
  app.add_option("--model", model,
                 "where the model's files are, in place of the recipe's path: a folder, a GGUF file, or an imported "
                 "net's weights")
      ->check(a_value());
  app.add_option("--data", data, "where the data are, in place of the recipe's data.path")->check(a_value());
  app.add_option("--eval-data", eval_data, "the same of data.eval_path")->check(a_value());
  app.add_option("--tokenizer", tokenizer, "the same of data.tokenizer")->check(a_value());
  Option* until =
      app.add_option("--steps", steps, "train until this step, resumed steps included; default: the recipe's")
          ->check(integer_from(1));
  app.add_option("--epochs", epochs, "train until so many passes over the data")
      ->check(integer_from(1, 1000000000))
      ->excludes(until);
  app.add_option("--log", log, "append a JSON line for each step and evaluation to this file")->check(a_value());
  app.add_option("--tensorboard", tensorboard,
                 "write an event file with the same figures into this folder, for TensorBoard")
      ->check(a_value());
  app.add_option("--trace", trace,
                 "write each row's time, beside the planned one, to this file, for chrome://tracing or Perfetto")
      ->check(a_value());
  app.add_option("--trace-steps", trace_steps,
                 "FIRST:LAST, the steps that --trace shows; default: the run's second to fourth")
      ->check(a_value());
  app.add_option("--manifest", manifest, "write the plan's manifest.json to this file, with what the run has measured")
      ->check(a_value());
  Option* start = app.add_option("--init", init, "start from these weights (safetensors)")->check(a_value());
  app.add_option("--init-skip", init_skip,
                 "a pattern of tensors that keep their initial values, as of a new head (fc.*); may be given again")
      ->allow_extra_args(false)
      ->check(a_value());
  app.add_option("--init-adapter", init_adapter,
                 "start from these adapters, a folder of PEFT or a GGUF file of llama.cpp, of a recipe with \"lora\"")
      ->check(a_value());
  app.add_option("--save", save,
                 "write snapshots to this folder: at the end, when a signal or an error ends the run, and every "
                 "--save-every steps")
      ->check(a_value());
  app.add_option("--adapter", adapter,
                 "folder of the adapter that a recipe with \"lora\" ends with; default: adapter, beside the program")
      ->check(a_value());
  app.add_option("--save-every", save_every, "between snapshots: so many steps, or a time as 90s, 10min or 2h")
      ->check(a_value());
  app.add_option("--keep", keep, "snapshots to keep: the last in DIR, those before it in DIR.step-N; default 1")
      ->check(integer_from(1, 1000000));
  app.add_flag("--keep-best", keep_best, "keep the best snapshot too, by evaluation, in DIR.best");
  Option* from = app.add_option("--resume", resume, "go on from this snapshot, or evaluate it, or predict with it")
                     ->excludes(start)
                     ->check(a_value());
  Option* goes_on = app.add_flag("--continue", go_on,
                                 "go on from the snapshot in --save's folder, where there is one, else begin: for a "
                                 "command that starts again "
                                 "after a power cut")
                        ->excludes(from);
  app.add_flag("--overwrite", overwrite,
               "begin although --save's folder holds a later snapshot of another run, and replace it")
      ->excludes(goes_on);
  app.add_flag("--evaluate", evaluate,
               "evaluate the weights of --resume, --init or the recipe's init.from, on stdout, and train nothing");
  app.add_option("--batches", batches, "micro-batches that --evaluate takes at most")->check(integer_from(1));
  app.add_flag("--per-class", per_class, "--evaluate: each class's accuracy too");
  app.add_option("--predict", predict,
                 "say what these pictures are, or all in these folders, or the texts in these files: classes, numbers "
                 "or vectors "
                 "on stdout; train nothing")
      ->check(a_value());
  app.add_option("--predict-to", predict_to,
                 "write that to FILE.csv or FILE.npy; of a net that writes maps to DIR, a PNG or npy for each picture")
      ->check(a_value());
  app.add_option(
         "--prompt", prompt,
         "go on with this text, on stdout, by the weights of --resume, --init or the recipe's model, and train nothing")
      ->check(not_empty());
  app.add_flag("--chat", chat,
               "converse by such weights: each line on stdin is answered on stdout, with all that was said before; "
               "train nothing");
  app.add_option("--system", system, "--chat: what the system says first")->check(not_empty());
  app.add_option("--tokens", tokens,
                 "--prompt, --chat: the longest answer; default 100, of --chat what the plan has room for")
      ->check(integer_from(1, 1000000));
  app.add_option("--temperature", temperature,
                 "--prompt, --chat: how far from the likeliest token one is drawn; default 0: never")
      ->between(0.0, 100.0);
  app.add_option("--top-k", top_k, "--prompt, --chat: draw from so many of the likeliest tokens; default: from all")
      ->check(integer_from(1, 1000000000));
  app.add_option(
         "--top-p", top_p,
         "--prompt, --chat: draw from the fewest likeliest tokens that have this probability together; default 1")
      ->between(0.0, 1.0);
  app.add_option("--seed", seed, "--prompt, --chat: of the draws")->check(integer_from(0));
  app.add_flag("--json", json, "--evaluate, --predict, --prompt: one JSON value on stdout; --chat: one a line");
  if (disk_bytes > 0) {
    app.add_option(
        "--disk", disk,
        "new file for the " + bytes_text(disk_bytes) +
            " that the plan keeps on disk, without a name as soon as it is made; default: beside the program");
  }
  if (streams) {
    app.add_option(
           "--streamed", streamed,
           "file of the weights that are streamed, made where it does not hold them; default: beside the program")
        ->check(a_value());
  }
  app.add_option(
         "--start-budget", start_budget,
         "of a recipe with \"budgets\": one of them, or its number from 0: the plan to begin in; default: the first")
      ->check(a_value());
  app.add_option("--control", control,
                 "a file or a FIFO whose last line says what to do: \"pause\", \"go\", and of a recipe with "
                 "\"budgets\" in which "
                 "plan to go on, as \"budget 3GiB\" or \"budget 1\"")
      ->check(a_value());
  Option* share = app.add_option("--pressure", pressure,
                                 "of such a recipe: per cent of the last 10 seconds in which something waited for "
                                 "memory (PSI): from then on the next smaller plan, and back when it is over")
                      ->between(0.1, 100.0);
  app.add_option("--pressure-file", pressure_file,
                 "--pressure: where it is read, as of a control group; default /proc/pressure/memory")
      ->check(a_value())
      ->needs(share);
  app.add_option("--threads", threads, "workers; default: one for each processor")
      ->check(integer_from(1, max_workers));
  app.add_flag("--eager", eager,
               "call row by row, and wait for each: slower on a card, whose steps are recorded otherwise, but an error "
               "names its row");
  app.add_flag(
      "--no-tune", no_tune,
      "take what is derived from the processor's caches, not what was measured of it (reprise tune); changes no bit");
  app.add_flag("--check-data", check_data, "decode every picture, name the broken ones, and train nothing");
  app.add_flag("--quiet", quiet, "print errors and warnings only");
}

namespace {

void refuse_without_effect(const ProgramOptions& o) {
  const char* mode = o.check_data         ? "--check-data"
                     : o.evaluate         ? "--evaluate"
                     : !o.predict.empty() ? "--predict"
                     : !o.prompt.empty()  ? "--prompt"
                     : o.chat             ? "--chat"
                                          : nullptr;
  if (mode == nullptr) return;
  const struct {
    bool given;
    const char* option;
    bool of_weights = false;  // true if the option has an effect in modes that only use weights
  } unheeded[] = {{o.steps != 0, "--steps"},
                  {o.epochs != 0, "--epochs"},
                  {!o.log.empty(), "--log"},
                  {!o.tensorboard.empty(), "--tensorboard"},
                  {!o.trace.empty(), "--trace"},
                  {!o.manifest.empty(), "--manifest"},
                  {!o.save.empty(), "--save"},
                  {!o.adapter.empty(), "--adapter", true},
                  {!o.init.empty(), "--init", true},
                  {!o.init_skip.empty(), "--init-skip", true},
                  {!o.init_adapter.empty(), "--init-adapter", true},
                  {!o.resume.empty(), "--resume", true},
                  {o.evaluate, "--evaluate", true},
                  {!o.predict.empty(), "--predict", true},
                  {!o.prompt.empty(), "--prompt", true},
                  {o.chat, "--chat", true},
                  {!o.control.empty(), "--control"},
                  {o.go_on, "--continue"},
                  {o.overwrite, "--overwrite"},
                  {o.pressure != 0, "--pressure"},
                  {!o.start_budget.empty(), "--start-budget", true},
                  {!o.disk.empty(), "--disk", true}};
  for (const auto& [given, option, of_weights] : unheeded) {
    if (!given || (of_weights && !o.check_data)) continue;
    throw UserError(std::string(option) + ": has no effect with " + mode + ", which trains nothing", UserError::kUsage);
  }
}

}  // namespace

TracedSteps parse_traced_steps(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string words[2] = {text.substr(0, colon), colon == std::string::npos ? text : text.substr(colon + 1)};
  uint64_t steps[2] = {};
  for (int i = 0; i < 2; ++i) {
    const bool digits =
        !words[i].empty() && words[i].size() <= 18 && words[i].find_first_not_of("0123456789") == std::string::npos;
    if (digits) steps[i] = std::stoull(words[i]);
  }
  if (steps[0] == 0 || steps[1] == 0)
    throw UserError("--trace-steps: must be FIRST:LAST, steps from 1 on, not \"" + text + "\"", UserError::kUsage);
  if (steps[1] < steps[0])
    throw UserError("--trace-steps: FIRST must not lie behind LAST, as it does in \"" + text + "\"", UserError::kUsage);
  return {steps[0], steps[1]};
}

SaveEvery parse_save_every(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const uint64_t count = digits > 0 && digits <= 18 ? std::stoull(text.substr(0, digits)) : 0;
  const std::string unit = text.substr(digits);
  const double seconds = unit == "s" ? 1 : unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (count == 0 || (seconds == 0 && !unit.empty())) {
    throw UserError("--save-every: must be a number of steps, of at least 1, or a time as 90s, 10min or 2h, not \"" +
                        text + "\"",
                    UserError::kUsage);
  }
  return unit.empty() ? SaveEvery{.steps = count} : SaveEvery{.seconds = seconds * static_cast<double>(count)};
}

std::vector<std::string> ProgramOptions::inputs() const {
  std::vector<std::string> inputs = predict;
  inputs.insert(inputs.end(),
                {plan, model, data, eval_data, tokenizer, init, init_adapter, resume, control, pressure_file});
  return inputs;
}

void ProgramOptions::check(size_t plans) const {
  const auto require = [](bool right, const char* line) {
    if (!right) throw UserError(line, UserError::kUsage);
  };
  refuse_without_effect(*this);
  require(plans > 1 || (start_budget.empty() && pressure == 0),
          "--start-budget, --pressure: the program has one plan alone; \"budgets\" in the recipe gives it several");
  require(trace_steps.empty() || !trace.empty(), "--trace-steps: needs --trace FILE");
  require_different({{"--trace", trace},
                     {"--manifest", manifest},
                     {"--log", log},
                     {"--streamed", streamed},
                     {"--disk", disk},
                     {"--save", save},
                     {"--adapter", adapter}});
  if (!trace_steps.empty()) parse_traced_steps(trace_steps);
  require(save_every.empty() || !save.empty(), "--save-every: needs --save DIR");
  if (!save_every.empty()) parse_save_every(save_every);
  require(!go_on || !save.empty(), "--continue: needs --save DIR");
  require(!overwrite || !save.empty(), "--overwrite: needs --save DIR");
  require(keep == 1 || !save.empty(), "--keep: needs --save DIR");
  require(init_skip.empty() || resume.empty(), "--init-skip: does not go with --resume, which takes all weights");
  require(init_adapter.empty() || resume.empty(),
          "--init-adapter: does not go with --resume, which takes the snapshot's adapters");
  require(!keep_best || !save.empty(), "--keep-best: needs --save DIR");
  require(!evaluate || predict.empty(), "--evaluate: does not go with --predict");
  require(prompt.empty() || (!evaluate && predict.empty()), "--prompt: does not go with --evaluate or --predict");
  require(!chat || (!evaluate && predict.empty() && prompt.empty()),
          "--chat: does not go with --evaluate, --predict or --prompt");
  require(chat || system.empty(), "--system: needs --chat");
  const bool draws = top_k != 0 || top_p < 1;
  require(!prompt.empty() || chat || (tokens == 0 && temperature == 0 && seed == 0 && !draws),
          "--tokens, --temperature, --top-k, --top-p, --seed: need --prompt or --chat");
  require(temperature > 0 || !draws,
          "--top-k, --top-p: need --temperature above 0: without it the likeliest token is taken");
  require(evaluate || batches == 0, "--batches: needs --evaluate");
  require(predict_to.empty() || !predict.empty(), "--predict-to: needs --predict");
  require(evaluate || !per_class, "--per-class: needs --evaluate");
  require(evaluate || !predict.empty() || !prompt.empty() || chat || !json,
          "--json: needs --evaluate, --predict, --prompt or --chat");
}

}  // namespace reprise
