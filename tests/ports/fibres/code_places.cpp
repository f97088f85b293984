// Looks up the source lines of code places with addr2line.
#include "tests/ports/fibres/code_places.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

extern "C" const char __executable_start;  // defined by the linker

namespace reprise::fibre {
namespace {

constexpr char kMark[] = " at code 0x";

// Returns the path from the folder of the project on, for example "cuda/gemm/pack.h:35" for
// "/home/x/reprise/cuda/gemm/pack.h:35 (discriminator 2)". Returns "" for a line of the fibres' own
// code.
std::string short_line(const std::string& line) {
  size_t begin = std::string::npos;
  for (const char* folder : {"/cuda/", "/lib/", "/tests/"}) {
    const size_t at = line.rfind(folder);
    if (at != std::string::npos && (begin == std::string::npos || at < begin)) begin = at;
  }
  const size_t end = std::min(line.find(' '), line.size());
  const std::string text = begin == std::string::npos ? line.substr(0, end) : line.substr(begin + 1, end - begin - 1);
  return text.starts_with("tests/ports/fibres/cuda_fibre") && text.find(".cu:") == std::string::npos &&
                 text.find("_test.cpp") == std::string::npos
             ? ""
             : text;
}

// Returns the text for a place. `lines` are its source lines, from the innermost inlined function
// outwards.
std::string line_of(const std::vector<std::string>& lines) {
  std::string text, last;
  for (const std::string& line : lines) {
    const std::string each = short_line(line);
    if (each.empty()) continue;
    if (text.empty()) text = each;
    last = each;
    if (each.find(".cu:") != std::string::npos) break;
  }
  return text == last ? text : text + " of " + last;
}

std::map<std::string, std::string> lines_of(const std::vector<std::string>& places) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  std::string command =
      "addr2line -a -i -e '" + std::string(program, length > 0 ? static_cast<size_t>(length) : 0) + "'";
  for (const std::string& place : places) command += " 0x" + place;
  std::map<std::string, std::string> known;
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return known;
  std::vector<std::vector<std::string>> found;
  char line[4096];
  while (std::fgets(line, sizeof line, output) != nullptr) {
    std::string text(line);
    text.resize(text.find_last_not_of('\n') + 1);
    if (text.starts_with("0x")) found.emplace_back();
    else if (!found.empty()) found.back().push_back(text);
  }
  pclose(output);
  for (size_t i = 0; i < found.size() && i < places.size(); ++i) known[places[i]] = line_of(found[i]);
  return known;
}

}  // namespace

// Subtracts 1, because `code` is the return address of a call, and another line may begin there.
uint32_t place_of(const void* code) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(code) - reinterpret_cast<uintptr_t>(&__executable_start) -
                               1);
}

std::string code_text(uint32_t place) {
  if (place == 0) return "";
  std::ostringstream text;
  text << kMark << std::hex << place;
  return text.str();
}

std::vector<std::string> with_lines(std::vector<std::string> texts) {
  constexpr size_t kSkip = sizeof kMark - 1;
  const auto digits_behind = [&](const std::string& text, size_t at) {
    return text.substr(at + kSkip,
                       std::min(text.find_first_not_of("0123456789abcdef", at + kSkip), text.size()) - at - kSkip);
  };
  std::set<std::string> places;
  for (const std::string& text : texts) {
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + kSkip))
      places.insert(digits_behind(text, at));
  }
  if (places.empty()) return texts;
  const std::map<std::string, std::string> known = lines_of({places.begin(), places.end()});
  for (std::string& text : texts) {
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + 1)) {
      const std::string digits = digits_behind(text, at);
      const auto found = known.find(digits);
      if (found != known.end()) text.replace(at, kSkip + digits.size(), " at " + found->second);
    }
  }
  return texts;
}

}  // namespace reprise::fibre
