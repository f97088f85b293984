// Reads and proves schedules of other programs (given_schedule.h).
#include "tools/plan/schedule/given_schedule.h"

#include <algorithm>
#include <charconv>
#include <cctype>
#include <climits>

#include "tools/files/formats/json_fields.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/shown_text.h"

namespace reprise {
namespace {

constexpr const char* kBlanks = " \t\r\n\v\f";
constexpr size_t kMaxActions = 10'000'000;  // maximum actions in a file, and after conversion

// Returns the file, number, line and text of an action, for an error message.
std::string place_of_action(const std::string& path, size_t line, size_t number, const std::string& text) {
  return path + ": action " + std::to_string(number) + " (line " + std::to_string(line) + ", " + shown_text(text, 100) +
         ")";
}

Action action_from_json(const std::string& text, const std::string& place) {
  const nlohmann::json value = parse_json(text, place);
  const JsonFields fields(value, {place}, "");
  constexpr Word<ActionKind> kKinds[] = {{"advance", ActionKind::kAdvance},   {"record", ActionKind::kRecord},
                                         {"backward", ActionKind::kBackward}, {"drop", ActionKind::kDrop},
                                         {"write", ActionKind::kWrite},       {"read", ActionKind::kRead}};
  Action action;
  fields.read_required_choice("action", action.kind, kKinds);
  const auto place_in = [&fields](const char* key) {
    return static_cast<int>(fields.integer_in(key, fields.at(key), 0, INT_MAX - 1));
  };
  switch (action.kind) {
    case ActionKind::kAdvance:
      fields.allow_only({"action", "first", "last", "residue_mode"});
      if (fields.has("residue_mode") && fields.at("residue_mode") != -1) action.choice = place_in("residue_mode");
      action.first = place_in("first");
      action.last = place_in("last");
      break;
    case ActionKind::kRecord:
      fields.allow_only({"action", "link", "tape"});
      action.choice = 0;
      fields.read("tape", action.choice, 0, INT_MAX - 1);
      action.first = place_in("link");
      break;
    case ActionKind::kBackward:
      fields.allow_only({"action", "link"});
      action.first = place_in("link");
      break;
    default:
      fields.allow_only({"action", "boundary"});
      action.first = place_in("boundary");
  }
  return action;
}

// A call as Python prints it, `Name(argument, ...)`. Arguments are words, numbers, and enumerators
// such as "StorageType.RAM" or "<StorageType.RAM: 0>".
struct PythonCall {
  std::string name;
  std::vector<std::string> arguments;
};

PythonCall python_call(const std::string& text, const std::string& place) {
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open ||
      text.find_first_not_of(" \t\r", close + 1) != std::string::npos) {
    throw UserError(place +
                    ": is neither a JSON object nor an action of checkpoint_schedules, such as Reverse(3, 2, True)");
  }
  PythonCall call = {text.substr(0, open), {}};
  std::string argument;
  const auto finish = [&] {
    if (const size_t dot = argument.find("StorageType."); dot != std::string::npos) {
      argument = argument.substr(dot + 12);
      argument = argument.substr(0, argument.find_first_of(":>"));
    }
    if (!argument.empty()) call.arguments.push_back(argument);
    argument.clear();
  };
  for (size_t at = open + 1; at < close; ++at) {
    if (text[at] == ',') finish();
    else if (!std::isspace(static_cast<unsigned char>(text[at]))) argument += text[at];
  }
  finish();
  return call;
}

// Converts the actions of checkpoint_schedules. In that package a forward works on a state of its
// own, in addition to the checkpoints. Here the state is the boundary that the latest advance,
// record or read left. The boundary is dropped when another state replaces it.
class PythonSchedule {
 public:
  PythonSchedule(const Chain& chain, GivenSchedule& to)
      : chain_(chain),
        to_(to),
        is_kept_(static_cast<size_t>(chain.length()) + 1, false),
        is_live_(is_kept_),
        is_tape_(is_kept_),
        is_ready_(is_kept_) {
    is_kept_[0] = is_live_[0] = true;
  }

  void add(const std::string& text, const std::string& place) {
    const PythonCall call = python_call(text, place);
    place_ = place;
    if (call.name == "Forward") {
      require(call, 5);
      forward(step(call, 0), step(call, 1), truth(call, 2), truth(call, 3), storage(call, 4));
    } else if (call.name == "Reverse") {
      require(call, 3);
      reverse(step(call, 0), step(call, 1), truth(call, 2));
    } else if (call.name == "Copy" || call.name == "Move") {
      require(call, 3);
      bring(step(call, 0), storage(call, 1), storage(call, 2), call.name == "Move");
    } else if (call.name != "EndForward" && call.name != "EndReverse") {
      throw UserError(place + ": must be Forward, Reverse, Copy, Move, EndForward or EndReverse");
    }
  }

 private:
  void require(const PythonCall& call, size_t arguments) const {
    if (call.arguments.size() == arguments) return;
    throw UserError(place_ + ": takes " + std::to_string(arguments) + " arguments, not " +
                    std::to_string(call.arguments.size()));
  }
  int step(const PythonCall& call, size_t n) const {
    const std::string& text = call.arguments[n];
    if (text == "sys.maxsize") return chain_.length();
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > chain_.length()) {
      throw UserError(place_ + ": must name steps from 0 to " + std::to_string(chain_.length()) +
                      ", the chain's number of links, not " + shown_text(text, 40));
    }
    return value;
  }
  bool truth(const PythonCall& call, size_t n) const {
    if (call.arguments[n] == "True" || call.arguments[n] == "False") return call.arguments[n] == "True";
    throw UserError(place_ + ": must have True or False in the place of " + shown_text(call.arguments[n], 40));
  }
  std::string storage(const PythonCall& call, size_t n) const {
    const std::string& word = call.arguments[n];
    if (word == "RAM" || word == "DISK" || word == "WORK" || word == "NONE") return word;
    throw UserError(place_ + ": must have StorageType.RAM, DISK, WORK or NONE in the place of " + shown_text(word, 40));
  }

  void emit(ActionKind kind, int first, int last = 0, int choice = -1) {
    to_.actions.push_back({.kind = kind, .first = first, .last = last, .choice = choice});
    to_.numbers.push_back(to_.texts.size() - 1);
    if (to_.actions.size() > kMaxActions)
      throw UserError(place_ + ": the schedule is of more than " + std::to_string(kMaxActions) + " actions");
  }
  void drop(int boundary) {
    if (boundary <= 0 || !is_live_[static_cast<size_t>(boundary)]) return;
    emit(ActionKind::kDrop, boundary);
    is_live_[static_cast<size_t>(boundary)] = is_kept_[static_cast<size_t>(boundary)] = false;
  }
  // Ends the use of boundary work_ by forwards: drops the boundary unless it is a checkpoint, and
  // clears work_.
  void leave() {
    if (work_ > 0 && !is_kept_[static_cast<size_t>(work_)]) drop(work_);
    work_ = -1;
  }

  void forward(int n0, int n1, bool stores_state, bool stores_tapes, const std::string& storage) {
    if (n1 <= n0) throw UserError(place_ + ": advances from step " + std::to_string(n0) + " to " + std::to_string(n1));
    if (work_ != n0) {
      throw UserError(
          place_ + ": goes on from step " + std::to_string(n0) + ", and " +
          (work_ < 0 ? "no state was brought" : "the state that it has is that of step " + std::to_string(work_)));
    }
    if (stores_state && n0 > 0) {
      if (storage == "DISK") emit(ActionKind::kWrite, n0);
      else is_kept_[static_cast<size_t>(n0)] = true;
    }
    if (stores_tapes) {
      for (int link = n0; link < n1; ++link) {
        emit(ActionKind::kRecord, link, 0, 0);
        is_tape_[static_cast<size_t>(link)] = true;
        is_ready_[static_cast<size_t>(link)] = storage == "WORK";
      }
      work_ = n1;
      return;
    }
    emit(ActionKind::kAdvance, n0, n1);
    if (!is_kept_[static_cast<size_t>(n0)]) drop(n0);
    is_live_[static_cast<size_t>(n1)] = true;
    work_ = n1;
  }

  void reverse(int n1, int n0, bool frees) {
    if (n1 <= n0) throw UserError(place_ + ": goes back from step " + std::to_string(n1) + " to " + std::to_string(n0));
    if (!frees)
      throw UserError(place_ +
                      ": keeps what a backward has read, which has no place here: a tape ends with its backward");
    leave();
    for (int link = n1; link-- > n0;) {
      if (is_tape_[static_cast<size_t>(link)] && !is_ready_[static_cast<size_t>(link)]) {
        throw UserError(place_ + ": reads what step " + std::to_string(link) +
                        " has stored, which no Copy or Move has brought");
      }
      emit(ActionKind::kBackward, link);
      is_tape_[static_cast<size_t>(link)] = false;
      drop(link);
    }
  }

  void bring(int n, const std::string& from, const std::string& to, bool moves) {
    if (to == "NONE") {
      if (from == "RAM" && work_ != n) drop(n);
      return;
    }
    if (work_ >= 0 && work_ != n) leave();
    if (n < chain_.length() && is_tape_[static_cast<size_t>(n)]) {  // the tape is in memory; nothing is copied
      is_ready_[static_cast<size_t>(n)] = true;
      return;
    }
    if (from == "DISK" && n > 0) {
      emit(ActionKind::kRead, n);
      is_live_[static_cast<size_t>(n)] = true;
    } else if (!is_kept_[static_cast<size_t>(n)]) {
      throw UserError(place_ + ": takes step " + std::to_string(n) + " from memory, where no forward has stored it");
    }
    if (n > 0) is_kept_[static_cast<size_t>(n)] = to == "RAM" || (from == "RAM" && !moves);
    work_ = n;
  }

  const Chain& chain_;
  GivenSchedule& to_;
  std::vector<bool> is_kept_;  // boundaries that are checkpoints in memory
  std::vector<bool> is_live_;  // boundaries in memory that are not part of a tape
  std::vector<bool> is_tape_;  // links whose tape is live
  std::vector<bool> is_ready_; // links whose tape a backward may read: stored in WORK, or brought there by Copy or Move
  int work_ = 0;               // the boundary at which the next forward begins; -1: none
  std::string place_;
};

}  // namespace

GivenSchedule read_given_schedule(const std::string& path, const Chain& chain) {
  const std::string text = read_file(path);
  GivenSchedule schedule;
  PythonSchedule python(chain, schedule);
  const size_t first = text.find_first_not_of(kBlanks);
  const bool is_json = first < text.size() && text[first] == '{';
  size_t line = 0;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string own = text.substr(at, end - at);
    at = end + 1;
    own.erase(0, std::min(own.find_first_not_of(kBlanks), own.size()));
    if (own.empty()) continue;
    own.erase(own.find_last_not_of(kBlanks) + 1);
    schedule.texts.push_back(own);
    schedule.lines.push_back(line + 1);
    if (schedule.texts.size() > kMaxActions)
      throw UserError(path + ": has more than " + std::to_string(kMaxActions) + " actions");
    const std::string place = place_of_action(path, line + 1, schedule.texts.size() - 1, own);
    if (is_json) {
      schedule.actions.push_back(action_from_json(own, place));
      schedule.numbers.push_back(schedule.texts.size() - 1);
    } else {
      python.add(own, place);
    }
  }
  if (schedule.texts.empty())
    throw UserError(path + ": has no actions; one JSON object a line, as `reprise schedule --actions` writes them");
  return schedule;
}

Simulation prove_given_schedule(const std::string& path, const Chain& chain, const GivenSchedule& schedule,
                                const DiskLevel& disk) {
  const Simulation walked = simulate(chain, schedule.actions, disk);
  if (walked.valid) return walked;
  const bool at_end = walked.fault_action == schedule.actions.size();
  const size_t number = at_end ? schedule.texts.size() - 1 : schedule.numbers[walked.fault_action];
  throw UserError(place_of_action(path, schedule.lines[number], number, schedule.texts[number]) + ": " +
                  (at_end ? "is the last, and " : "") + walked.fault);
}

}  // namespace reprise
