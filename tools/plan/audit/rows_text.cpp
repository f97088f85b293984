// See rows_text.h.
#include "tools/plan/audit/rows_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/plan/audit/kernels_text.h"

namespace reprise {

using nlohmann::json;

namespace {

std::string link_name(const json& links, const json& index) {
  const size_t i = index.get<size_t>();
  return i < links.size() ? links[i].get<std::string>() : "the loss";
}

// Maps the references in one program to names.
class Names {
 public:
  Names(const json& manifest, const std::string& program) : manifest_(manifest) {
    for (const char* list : {"slots", "disk", "host"}) {
      if (!manifest.contains(list)) continue;
      for (const json& slot : manifest[list]) {
        if (slot["program"] == program) own_[list].push_back(&slot);
      }
    }
  }

  json of(const json& references) const {
    json names = json::array();
    for (const json& reference : references) names.push_back(name(reference.get<std::string>()));
    return names;
  }

 private:
  std::string name(const std::string& reference) const {
    const size_t colon = reference.find(':'), index = std::stoul(reference.substr(colon + 1));
    const std::string region = reference.substr(0, colon);
    if (region == "state" || region == "carried") return manifest_[region][index]["name"].get<std::string>();
    const std::string word = own_.at(region == "slot" ? "slots" : region)[index]->at("name").get<std::string>();
    return region == "slot" ? word : region + ":" + word;
  }

  const json& manifest_;
  std::map<std::string, std::vector<const json*>> own_;
};

std::string joined(const json& names) {
  std::string text;
  for (const json& name : names) text += (text.empty() ? "" : " ") + shown_key(name.get<std::string>());
  return text;
}

}  // namespace

std::string action_words(const json& action, const json& links) {
  const std::string kind = action["action"].get<std::string>();
  if (kind == "advance") {
    const std::string last = link_name(links, action["last"].get<int>() - 1);
    const int mode = action["residue_mode"].get<int>();
    return "advance " + link_name(links, action["first"]) + " to " + last +
           (mode < 0 ? "" : ", holding residue " + std::to_string(mode));
  }
  if (kind == "record") return "record " + link_name(links, action["link"]) + ", tape " + action["tape"].dump();
  if (kind == "backward") return "backward of " + link_name(links, action["link"]);
  return kind + " the input of " + link_name(links, action["boundary"]);
}

json named_rows(const json& manifest, const std::string& program) {
  std::vector<std::string> known;
  for (const json& each : manifest["programs"]) {
    known.push_back(each["name"].get<std::string>());
    if (known.back() != program) continue;
    const Names names(manifest, program);
    json rows = json::array();
    for (const json& row : each["rows"]) {
      const std::string why = row["action"].is_null()
                                  ? program
                                  : action_words(manifest["actions"][row["action"].get<size_t>()], manifest["links"]);
      const std::string op = row["op"].get<std::string>() + "." + row["pass"].get<std::string>();
      rows.push_back({{"row", rows.size()},
                      {"op", op},
                      {"synopsis", synopsis_of(op)},
                      {"link", row["link"]},
                      {"stage", row["stage"]},
                      {"why", why},
                      {"reads", names.of(row["reads"])},
                      {"writes", names.of(row["writes"])},
                      {"live_bytes", row["live_bytes"]},
                      {"seconds", row["seconds"]}});
    }
    return rows;
  }
  throw UserError("--program: must be " + either_of(known) + ", not " + json_shown(program));
}

std::string rows_text(const json& rows) {
  size_t widths[] = {2, 4};
  for (const json& row : rows) {
    widths[0] = std::min<size_t>(60, std::max(widths[0], row["op"].get_ref<const std::string&>().size()));
    widths[1] = std::min<size_t>(100, std::max(widths[1], row["link"].get_ref<const std::string&>().size()));
  }
  std::ostringstream text;
  char line[512];
  std::snprintf(line, sizeof line, "%6s  %-*s  %-*s  %-10s  %11s  writes <- reads  (why)  what\n", "row",
                static_cast<int>(widths[0]), "op", static_cast<int>(widths[1]), "link", "stage", "live");
  text << line;
  for (const json& row : rows) {
    std::snprintf(line, sizeof line, "%6s  %-*s  %-*.100s  %-10s  %11s  ", row["row"].dump().c_str(),
                  static_cast<int>(widths[0]), shown_key(row["op"]).substr(0, 60).c_str(), static_cast<int>(widths[1]),
                  shown_key(row["link"]).c_str(), row["stage"].get<std::string>().c_str(),
                  bytes_text(row["live_bytes"].get<uint64_t>()).c_str());
    text << line << joined(row["writes"]) << " <- " << joined(row["reads"]) << "  (" << shown_key(row["why"]) << ")  "
         << row["synopsis"].get<std::string>() << "\n";
  }
  return text.str();
}

}  // namespace reprise
