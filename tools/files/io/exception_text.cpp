// See exception_text.h.
#include "tools/files/io/exception_text.h"

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "tools/files/io/error.h"
#include "tools/files/io/shown_text.h"

namespace reprise {

std::string words_of(const std::exception& error) {
  if (const auto* user = dynamic_cast<const UserError*>(&error)) return user->what();
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return (file->path1().empty() ? "a path" : shown_text(file->path1().string())) + ": " + file->code().message();
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return system->code().message();
  // The library's text looks like "[json.exception.out_of_range.403] key 'x' not found".
  if (const auto* json = dynamic_cast<const nlohmann::json::exception*>(&error)) {
    constexpr int kNotUtf8 = 316;
    if (json->id == kNotUtf8) return "a path or a name is not UTF-8, which JSON must be; rename it";
    const std::string text = json->what();
    return "not the JSON that is expected: " + text.substr(text.find("] ") + 2);
  }
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                            dynamic_cast<const std::length_error*>(&error) != nullptr;
  if (lacks_memory) return "the memory does not suffice";
  return "a fault of this program; please report it with the command and its files";
}

}  // namespace reprise
