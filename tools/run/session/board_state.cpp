// See board_state.h. The files are described in proc(5) and in Linux's Documentation/ABI/testing:
// sysfs-devices-system-cpu, sysfs-class-devfreq and sysfs-class-thermal. The files of nvpmodel are
// described in the Jetson Linux Developer Guide, "Power Mode Controls".
#include "tools/run/session/board_state.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tools/files/io/text.h"

namespace reprise {

namespace {

namespace fs = std::filesystem;

// Returns the first line of a small file; "" if it cannot be read.
std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<uint64_t> number_of(const fs::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Returns the entries of a folder whose names begin with `beginning`, sorted. Returns none if the
// folder does not exist.
std::vector<fs::path> entries(const fs::path& folder, const std::string& beginning) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(beginning)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void take_most(std::optional<uint64_t>& maximum, std::optional<uint64_t> value, uint64_t unit) {
  if (value) maximum = std::max(maximum.value_or(0), *value * unit);
}

uint64_t meminfo(const std::string& root, const std::string& field) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name, rest;
  uint64_t kibibytes = 0;
  while (file >> name >> kibibytes) {
    std::getline(file, rest);
    if (name == field + ":") return kibibytes * 1024;
  }
  return 0;
}

bool swaps_to_memory(const std::string& root) {
  std::ifstream file(root + "/proc/swaps");
  for (std::string line; std::getline(file, line);) {
    if (line.find("/zram") != std::string::npos) return true;
  }
  return false;
}

// Returns the power mode as "number (name)". One file has the number, "pmode:0002"; another has the
// name: "< POWER_MODEL ID=2 NAME=15W >".
std::string power_mode(const std::string& root) {
  const std::string status = line_of(root + "/var/lib/nvpmodel/status");
  const size_t digits = status.find_first_of("0123456789");
  if (!status.starts_with("pmode:") || digits == std::string::npos) return "";
  const std::string number = std::to_string(std::strtoul(status.c_str() + digits, nullptr, 10));
  std::ifstream modes(root + "/etc/nvpmodel.conf");
  for (std::string line; std::getline(modes, line);) {
    std::istringstream words(line);
    std::string word, id, name;
    while (words >> word) {
      if (word.starts_with("ID=")) id = word.substr(3);
      if (word.starts_with("NAME=")) name = word.substr(5);
    }
    if (line.find("POWER_MODEL") != std::string::npos && id == number && !name.empty())
      return number + " (" + name + ")";
  }
  return number;
}

std::string clock_text(uint64_t hz) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f GHz", static_cast<double>(hz) * 1e-9);
  return text;
}

std::string heat_text(double degrees) {
  char text[32];
  std::snprintf(text, sizeof text, "hottest %.0f C", degrees);
  return text;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// True if both values are set and differ by at least a twentieth of the larger one.
bool differ(const std::optional<uint64_t>& a, const std::optional<uint64_t>& b) {
  if (!a || !b) return false;
  const uint64_t larger = std::max(*a, *b);
  return (larger - std::min(*a, *b)) * 20 >= larger && larger > 0;
}

}  // namespace

BoardState read_board_state(const std::string& root) {
  BoardState state;
  state.memory_bytes = meminfo(root, "MemTotal");
  state.available_bytes = meminfo(root, "MemAvailable");
  state.swap_bytes = meminfo(root, "SwapTotal");
  state.swap_free_bytes = meminfo(root, "SwapFree");
  state.swaps_to_memory = swaps_to_memory(root);
  const std::string adjustment = line_of(root + "/proc/self/oom_score_adj");
  state.oom_score_adjustment = adjustment.empty() ? 0 : std::atoi(adjustment.c_str());
  state.power_mode = power_mode(root);
  for (const fs::path& policy : entries(root + "/sys/devices/system/cpu/cpufreq", "policy")) {
    take_most(state.processor_hz, number_of(policy / "scaling_max_freq"), 1000);
    take_most(state.processor_most_hz, number_of(policy / "cpuinfo_max_freq"), 1000);
  }
  for (const fs::path& device : entries(root + "/sys/class/devfreq", "")) {
    const std::string name = device.filename();
    // The names are those of Orin with JetPack 6, Orin with JetPack 5, and Xavier, in this order.
    const bool is_card = name.ends_with(".gpu") || name.ends_with(".ga10b") || name.ends_with(".gv11b");
    if (is_card) take_most(state.card_hz, number_of(device / "max_freq"), 1);
  }
  for (const fs::path& zone : entries(root + "/sys/class/thermal", "thermal_zone")) {
    const std::string millidegrees = line_of(zone / "temp");
    if (millidegrees.empty()) continue;
    const double degrees = std::atof(millidegrees.c_str()) * 1e-3;
    if (degrees > -100 && degrees < 200) state.hottest = std::max(state.hottest.value_or(degrees), degrees);
  }
  for (const fs::path& device : entries(root + "/sys/class/thermal", "cooling_device")) {
    const std::string type = line_of(device / "type");
    const bool holds_clocks = type.find("throttle") != std::string::npos || type.starts_with("Processor") ||
                              type.starts_with("cpufreq") || type.starts_with("devfreq");
    if (holds_clocks && number_of(device / "cur_state").value_or(0) > 0) state.throttled_by.push_back(type);
  }
  return state;
}

nlohmann::json json_of(const BoardState& s) {
  const auto or_null = [](const auto& value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  return {{"swap_bytes", s.swap_bytes},
          {"swap_free_bytes", s.swap_free_bytes},
          {"swaps_to_memory", s.swaps_to_memory},
          {"oom_score_adj", s.oom_score_adjustment},
          {"power_mode", s.power_mode.empty() ? nlohmann::json() : nlohmann::json(s.power_mode)},
          {"processor_hz", or_null(s.processor_hz)},
          {"processor_most_hz", or_null(s.processor_most_hz)},
          {"card_hz", or_null(s.card_hz)},
          {"hottest_celsius", or_null(s.hottest)},
          {"throttled_by", s.throttled_by}};
}

std::string text_of(const BoardState& s) {
  std::string text =
      s.swap_bytes == 0 ? "no swap" : "swap " + bytes_text(s.swap_bytes) + ", free " + bytes_text(s.swap_free_bytes);
  if (s.swaps_to_memory) text += " (zram, which takes memory itself)";
  text += "; oom_score_adj " + std::to_string(s.oom_score_adjustment);
  if (!s.power_mode.empty()) text += "; power mode " + s.power_mode;
  if (s.processor_hz)
    text += "; processor up to " + clock_text(*s.processor_hz) +
            (s.processor_most_hz ? " of " + clock_text(*s.processor_most_hz) : "");
  if (s.card_hz) text += "; card up to " + clock_text(*s.card_hz);
  if (s.hottest) text += "; " + heat_text(*s.hottest);
  if (!s.throttled_by.empty()) text += "; throttled by " + joined(s.throttled_by);
  return text;
}

std::string change_of(const BoardState& before, const BoardState& now) {
  std::vector<std::string> changes;
  if (before.power_mode != now.power_mode)
    changes.push_back("power mode " + now.power_mode + ", was " + before.power_mode);
  if (differ(before.processor_hz, now.processor_hz))
    changes.push_back("processor up to " + clock_text(*now.processor_hz) + ", was " + clock_text(*before.processor_hz));
  if (differ(before.card_hz, now.card_hz))
    changes.push_back("card up to " + clock_text(*now.card_hz) + ", was " + clock_text(*before.card_hz));
  if (before.throttled_by != now.throttled_by)
    changes.push_back(now.throttled_by.empty() ? "throttled no more" : "throttled by " + joined(now.throttled_by));
  if (!changes.empty() && now.hottest) changes.push_back(heat_text(*now.hottest));
  std::string text;
  for (const std::string& change : changes) text += (text.empty() ? "" : "; ") + change;
  return text;
}

}  // namespace reprise
