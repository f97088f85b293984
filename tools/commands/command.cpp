// What several subcommands share.
#include "tools/commands/command.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "tools/formats/text.h"

namespace reprise {

uint64_t disk_bytes_of(const std::string& text) { return text == "0" ? 0 : parse_bytes(text, "--disk"); }

void print_json(const nlohmann::json& json) { std::cout << json.dump(1) << "\n"; }

}  // namespace reprise
