// See tuning_report.h.
#include "tools/run/profiling/tuning_report.h"

namespace reprise {

nlohmann::json tuning_json(const Tuning& tuning, uint32_t workers) {
  const auto text_or_null = [](const char* text) { return text[0] == 0 ? nlohmann::json() : nlohmann::json(text); };
  nlohmann::json numbers;
  for (uint32_t i = 0; i < tuning.count; ++i) numbers[tuning.numbers[i].name] = tuning.numbers[i].value;
  return {{"measured", tuning.taken},
          {"file", text_or_null(tuning.file)},
          {"problem", text_or_null(tuning.problem)},
          {"workers", workers},
          {"numbers", numbers}};
}

std::string tuning_text(const nlohmann::json& tuning) {
  std::string text = tuning["measured"].get<bool>() ? "measured for " : "derived, not measured, for ";
  text += std::to_string(tuning["workers"].get<uint32_t>()) + " workers:";
  for (const auto& [name, number] : tuning["numbers"].items()) {
    const uint32_t value = number.get<uint32_t>();
    text += " " + name + " " + (value == ~0u ? "never" : std::to_string(value));
  }
  return text;
}

}  // namespace reprise
