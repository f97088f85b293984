// Functions that several subcommands share; see command.h.
#include "tools/run/commands/command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/files/io/text.h"

namespace reprise {

uint64_t spill_bytes_of(const std::string& text, const char* option) {
  return text == "0" ? 0 : parse_bytes(text, option);
}

void print_json(const nlohmann::json& json) {
  std::cout << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace reprise
