// See run_words.h.
#include "tools/run/training/run_words.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include "tools/files/io/shell_word.h"
#include "tools/run/inference/answer.h"

namespace reprise {

std::string passes_text(double passes) {
  char text[40];
  std::snprintf(text, sizeof text, passes < 9.95 ? "%.2g" : "%.0f", passes);
  return std::string(text) + (std::string(text) == "1" ? " pass" : " passes");
}

std::string duration_text(double seconds) {
  char text[40];
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (seconds < 59.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (whole < 3600) {
    std::snprintf(text, sizeof text, "%u min %u s", static_cast<uint32_t>(whole / 60),
                  static_cast<uint32_t>(whole % 60));
  } else {
    std::snprintf(text, sizeof text, "%llu h %u min", static_cast<unsigned long long>(whole / 3600),
                  static_cast<uint32_t>(whole % 3600 / 60));
  }
  return text;
}

namespace {

// Returns the option with which a user can try the trained model; "" if the program has none.
std::string use_of(const Recipe& recipe, const Plan& plan, bool evaluates) {
  using Kind = DataSource::Kind;
  const Kind kind = recipe.data.kind;
  if (can_answer(recipe, plan))
    return kind == Kind::kChat || kind == Kind::kPreferences ? "--chat" : "--prompt \"...\"";
  const ModelDescription::Input input = describe_model(recipe.model).input;
  if (input == ModelDescription::Input::kTexts && (kind == Kind::kTexts || kind == Kind::kCsv)) return "--predict FILE";
  const bool has_pictures =
      kind == Kind::kIdx || kind == Kind::kImageFolder || kind == Kind::kMaskFolder || kind == Kind::kCsv;
  return has_pictures && input == ModelDescription::Input::kImages ? "--predict PICTURE"
         : evaluates                                               ? "--evaluate"
                                                                   : "";
}

}  // namespace

std::string next_command(const ProgramOptions& options, const Recipe& recipe, const Plan& plan,
                         const std::string& adapter, bool evaluates) {
  const std::string use = use_of(recipe, plan, evaluates);
  if (use.empty() || (options.save.empty() && adapter.empty())) return "";
  return options.command +
         (options.save.empty() ? " --init-adapter " + shell_word(adapter) : " --resume " + shell_word(options.save)) +
         " " + use;
}

std::string continuing_command(const ProgramOptions& options) {
  if (options.save.empty()) return "";
  std::string line = options.command;
  bool continues = false, skips = false;
  for (const std::string& word : options.arguments) {
    const std::string option = word.substr(0, word.find('='));
    const bool is_left_out = option == "--resume" || option == "--plan";  // the new command contains --plan already
    const bool was_value = skips;
    skips = is_left_out && option == word;
    if (was_value || is_left_out || word == "--overwrite") continue;
    continues = continues || word == "--continue";
    line += " " + shell_word(word);
  }
  return line + (continues ? "" : " --continue");
}

}  // namespace reprise
