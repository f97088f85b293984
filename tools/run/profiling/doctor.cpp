// Implements `reprise doctor`. It only reads the port and system files.
#include "tools/run/profiling/doctor.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lib/reprise.h"
#include "tools/files/io/text.h"
#include "tools/plan/costs/board.h"
#include "tools/run/profiling/tuning_report.h"
#include "tools/run/session/board_state.h"

namespace reprise {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

uint32_t usable_processors() {
  cpu_set_t mine;
  return ::sched_getaffinity(0, sizeof mine, &mine) == 0 ? static_cast<uint32_t>(CPU_COUNT(&mine)) : 1;
}

namespace {

constexpr uint32_t kSmallCardMultiprocessors = 16;  // a card with more is large, as for "card": "large" in a recipe

std::string version_text(uint32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

nlohmann::json json_of(const CardReport& card) {
  nlohmann::json json = {{"problem", card.problem.empty() ? nlohmann::json() : nlohmann::json(card.problem)}};
  if (card.name.empty()) return json;
  json.update({{"name", card.name},
               {"architecture", "sm_" + std::to_string(card.architecture)},
               {"multiprocessors", card.multiprocessors},
               {"size", card.multiprocessors > kSmallCardMultiprocessors ? "large" : "small"},
               {"driver_cuda", version_text(card.driver_version)},
               {"integrated", card.is_integrated},
               {"free_bytes", card.free_bytes},
               {"total_bytes", card.total_bytes},
               {"room_bytes", card.space_bytes}});
  if (card.host.usable_bytes != 0) json["host_share"] = host_share_json(card.host);
  return json;
}

std::string text_of(const CardReport& card) {
  if (card.name.empty()) return "none can be used: " + card.problem;
  std::string text = card.name + ", sm_" + std::to_string(card.architecture) + ", " +
                     std::to_string(card.multiprocessors) + " multiprocessors, driver of CUDA " +
                     version_text(card.driver_version);
  if (!card.problem.empty()) return text + "; cannot be used: " + card.problem;
  if (card.multiprocessors > kSmallCardMultiprocessors) text += " (a recipe says \"card\": \"large\")";
  text += "; " + bytes_text(card.free_bytes) + " free of " + bytes_text(card.total_bytes);
  if (card.is_integrated) text += ", shared with the processor: " + std::string(host_share_text(card.host).text);
  text += ", an arena may take " + bytes_text(card.space_bytes);
  return card.is_integrated ? text + "; where the driver refuses memory that is free, a reboot joins its pieces" : text;
}

}  // namespace

int print_doctor(const Port& port, const CardReport& card, bool json) {
  Backend backend;
  const Status kernels = port.open_backend("cpu", &backend);
  const bool tunes = kernels.ok() && port.tune_backend != nullptr;
  const uint32_t workers = usable_processors();
  const nlohmann::json tuned =
      tunes ? tuning_json(port.tune_backend({.count = workers}, TuningMode::kLook), workers) : nlohmann::json();
  const BoardState board = read_board_state();
  const nlohmann::json report = {{"processor", processor_name()},
                                 {"processors", usable_processors()},
                                 {"kernel_set", kernels.ok() ? backend.kernel_set : kernels.message},
                                 {"tuning", tuned},
                                 {"memory_bytes", board.memory_bytes},
                                 {"available_bytes", board.available_bytes},
                                 {"swap_free_bytes", board.swap_free_bytes},
                                 {"board", json_of(board)},
                                 {"cuda_device",
                                  ::access("/dev/nvidia0", F_OK) == 0 || ::access("/dev/nvhost-gpu", F_OK) == 0},
                                 {"card", json_of(card)}};
  if (json) {
    std::cout << report.dump(1) << "\n";
  } else {
    std::cout << "processor     " << report["processor"].get<std::string>() << ", " << report["processors"]
              << " usable\n"
              << "kernels       " << report["kernel_set"].get<std::string>() << "\n"
              << "tuning        " << (tunes ? tuning_text(tuned) : "none on this board")
              << (tunes && tuned["problem"].is_string()
                      ? "; the file " + tuned["file"].get<std::string>() + " " + tuned["problem"].get<std::string>()
                      : "")
              << "\n"
              << "memory        " << bytes_text(report["memory_bytes"].get<uint64_t>()) << ", available "
              << bytes_text(report["available_bytes"].get<uint64_t>()) << "\n"
              << "board         " << text_of(board) << "\n"
              << "CUDA card     " << text_of(card) << "\n"
              << "A budget may be at most what is available, less what the data set takes in host memory; on a card, "
                 "what an arena may take there.\n";
  }
  return kernels.ok() ? 0 : 1;
}

}  // namespace reprise
