// See plan_diff.h. A value that is computed several times has one slot each time. The diff collects
// these slots under the value's name.
#include "tools/plan/audit/plan_diff.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/text.h"

namespace reprise {

using nlohmann::json;

namespace {

json heading(const json& manifest) {
  json head = {{"name", manifest["recipe"]["name"]}};
  for (const char* key : {"plan_hash", "planned_bytes", "strategy", "predicted_seconds", "extra_forward_cost"})
    head[key] = manifest[key];
  return head;
}

json diff_regions(const json& a, const json& b) {
  std::map<std::string, std::pair<json, json>> bytes;
  std::vector<std::string> order;
  const auto take = [&](const json& manifest, json std::pair<json, json>::*side) {
    for (const json& region : manifest["regions"]) {
      const std::string name = region["name"].get<std::string>();
      if (bytes.count(name) == 0) order.push_back(name);
      bytes[name].*side = region["planned_bytes"];
    }
  };
  take(a, &std::pair<json, json>::first);
  take(b, &std::pair<json, json>::second);
  json regions = json::array();
  for (const std::string& name : order)
    regions.push_back({{"name", name}, {"a", bytes[name].first}, {"b", bytes[name].second}});
  return regions;
}

// All slots with one name in one program, which plan_diff() compares as one entry.
struct Place {
  std::vector<const json*> slots;

  uint64_t bytes() const {
    uint64_t maximum = 0;
    for (const json* slot : slots) maximum = std::max(maximum, slot->at("bytes").get<uint64_t>());
    return maximum;
  }
  uint64_t rows() const {
    uint64_t sum = 0;
    for (const json* slot : slots)
      sum += slot->at("last_row").get<uint64_t>() - slot->at("first_row").get<uint64_t>() + 1;
    return sum;
  }
  json all(const char* key) const {
    json list = json::array();
    for (const json* slot : slots) list.push_back(slot->at(key));
    return list;
  }
};
using Places = std::map<std::pair<std::string, std::string>, Place>;

Places places_of(const json& manifest) {
  Places places;
  for (const json& slot : manifest["slots"])
    places[{slot["program"].get<std::string>(), slot["name"].get<std::string>()}].slots.push_back(&slot);
  return places;
}

// Returns the most important change between the slots of one name in the two plans; null if there
// is none.
const char* change_of(const Place& a, const Place& b) {
  if (a.slots.empty()) return "appeared";
  if (b.slots.empty()) return "vanished";
  if (a.bytes() != b.bytes()) return a.bytes() < b.bytes() ? "grew" : "shrank";
  if (a.slots.size() != b.slots.size()) return a.slots.size() < b.slots.size() ? "more_often" : "less_often";
  if (a.rows() != b.rows()) return a.rows() < b.rows() ? "lives_longer" : "lives_shorter";
  return a.all("offset") != b.all("offset") ? "moved" : nullptr;
}

json diff_slots(const json& a, const json& b) {
  Places old = places_of(a), fresh = places_of(b);
  Places all = old;
  all.insert(fresh.begin(), fresh.end());
  json slots = json::array();
  for (const auto& [key, place] : all) {
    const Place &before = old[key], &after = fresh[key];
    const char* change = change_of(before, after);
    if (change == nullptr) continue;
    slots.push_back({{"program", key.first},
                     {"name", key.second},
                     {"change", change},
                     {"a", before.all("id")},
                     {"b", after.all("id")},
                     {"bytes_a", before.bytes()},
                     {"bytes_b", after.bytes()}});
  }
  std::stable_sort(slots.begin(), slots.end(), [](const json& left, const json& right) {
    const auto maximum = [](const json& slot) {
      return std::max(slot["bytes_a"].get<uint64_t>(), slot["bytes_b"].get<uint64_t>());
    };
    return maximum(left) > maximum(right);
  });
  return slots;
}

// Returns the slots of `peak` without those that `other` has, too. Slots are matched by name and
// bytes. If `peak` has more of them than `other`, only the surplus is returned.
json only_in(const json& peak, const json& other) {
  std::map<std::pair<std::string, uint64_t>, int> there;
  for (const json& slot : other["live"]) ++there[{slot["name"].get<std::string>(), slot["bytes"].get<uint64_t>()}];
  json only = json::array();
  for (const json& slot : peak["live"]) {
    if (there[{slot["name"].get<std::string>(), slot["bytes"].get<uint64_t>()}]-- <= 0)
      only.push_back({{"name", slot["name"]}, {"bytes", slot["bytes"]}});
  }
  return only;
}

std::string size(const json& bytes) { return bytes.is_null() ? "none" : bytes_text(bytes.get<uint64_t>()); }

std::string head_text(const json& head) {
  char work[64];
  std::snprintf(work, sizeof work, "%.1f%% of extra work", 100 * head["extra_forward_cost"].get<double>());
  std::string text = shown_key(head["name"]) + " " + shown_key(head["plan_hash"]) + " (" + shown_key(head["strategy"]) +
                     "): " + size(head["planned_bytes"]) + ", " + work;
  if (head["predicted_seconds"].is_number()) {
    std::snprintf(work, sizeof work, ", %.4g s a step", head["predicted_seconds"].get<double>());
    text += work;
  }
  return text;
}

std::string plural(size_t count, const char* word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

}  // namespace

json plan_diff(const json& a, const json& b) {
  const json peak = {{"a", a["peak"]["bytes"]},
                     {"b", b["peak"]["bytes"]},
                     {"only_a", only_in(a["peak"], b["peak"])},
                     {"only_b", only_in(b["peak"], a["peak"])}};
  return {{"a", heading(a)},
          {"b", heading(b)},
          {"regions", diff_regions(a, b)},
          {"slots", diff_slots(a, b)},
          {"peak", peak}};
}

std::string plan_diff_text(const json& diff) {
  std::ostringstream text;
  text << "a  " << head_text(diff["a"]) << "\nb  " << head_text(diff["b"])
       << "\n\nregion                  a             b\n";
  char line[128];
  for (const json& region : diff["regions"]) {
    std::snprintf(line, sizeof line, "%-12.60s %12s  %12s\n", shown_key(region["name"]).c_str(),
                  size(region["a"]).c_str(), size(region["b"]).c_str());
    text << line;
  }
  text << "\npeak of micro_first: " << size(diff["peak"]["a"]) << " in a, " << size(diff["peak"]["b"]) << " in b\n";
  for (const char* side : {"a", "b"}) {
    for (const json& slot : diff["peak"][std::string("only_") + side]) {
      std::snprintf(line, sizeof line, "  only in %s %12s  ", side, size(slot["bytes"]).c_str());
      text << line << shown_key(slot["name"]) << "\n";
    }
  }
  text << "\n"
       << (diff["slots"].empty() ? "no slot has changed\n"
                                 : "slots that changed (bytes in a, in b, change, program, name)\n");
  for (const json& slot : diff["slots"]) {
    std::snprintf(line, sizeof line, "%12s %12s  %-13s %-11s ", size(slot["bytes_a"]).c_str(),
                  size(slot["bytes_b"]).c_str(), slot["change"].get<std::string>().c_str(),
                  shown_key(slot["program"]).substr(0, 20).c_str());
    text << line << shown_key(slot["name"]) << " (" << plural(slot["a"].size(), "slot") << ", " << slot["b"].size()
         << " in b)\n";
  }
  return text.str();
}

}  // namespace reprise
