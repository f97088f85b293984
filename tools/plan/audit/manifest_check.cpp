// Checks a manifest: refuses values that are not manifests or contradict themselves. Files may come
// from other versions, from incomplete downloads and from editors. All other code in this folder
// relies on this check.
#include <algorithm>
#include <map>
#include <set>

#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/audit/manifest.h"

namespace reprise {

using nlohmann::json;

namespace {

// The largest number up to which doubles, and so all JSON readers, represent every integer.
constexpr uint64_t kMax = uint64_t{1} << 53;

class ManifestCheck {
 public:
  ManifestCheck(const json& manifest, const std::string& file)
      : all_(manifest), file_(file), fields_(manifest, {file}, "") {}

  void check() {
    check_version();
    check_heading();
    Ends state = check_tensors("state");
    const Ends carried = check_tensors("carried");
    state.memory += shard_bytes();
    check_programs();
    check_slots("slots");
    if (fields_.has("disk") && fields_.has("host"))
      refuse("host", "stands beside disk: a plan spills to one of the two");
    for (const char* list : {"disk", "host"}) {
      if (fields_.has(list)) check_slots(list);
    }
    for (const json& program : all_["programs"]) check_rows(program);
    check_regions(state, carried);
    check_peak();
    check_ranks();
    check_measured();
    if (fields_.has("other_budgets")) check_other_budgets();
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const std::string& reason) const {
    throw UserError(file_ + ": " + field + ": " + reason);
  }

  uint64_t integer(const JsonFields& of, const std::string& key) const {
    return of.integer_in(key, of.at(key), 0, kMax);
  }
  void number_or_null(const JsonFields& of, const std::string& key) const {
    if (!of.at(key).is_null()) of.number_in(key, of.at(key), kAnyNumber);
  }
  std::string text(const JsonFields& of, const std::string& key) const {
    std::string found;
    of.at(key);
    of.read(key, found);
    return found;
  }

  void check_version() const {
    if (!fields_.has("manifest_version"))
      refuse("manifest_version", "missing: the manifest is of an older reprise; write it again with `reprise plan`");
    if (all_["manifest_version"] != kManifestVersion) {
      refuse("manifest_version", "is " + json_shown(all_["manifest_version"]) + ", and this reprise reads " +
                                     std::to_string(kManifestVersion) +
                                     "; write the manifest again with `reprise plan`");
    }
  }

  void check_heading() const {
    for (const char* key : {"planned_bytes", "store_all_bytes", "peak_bytes", "packed_bytes", "move_bytes", "rows"})
      integer(fields_, key);
    for (const char* key : {"extra_forward_cost", "predicted_seconds", "budget_bytes", "feature_map_budget_bytes"})
      number_or_null(fields_, key);
    for (const char* key : {"plan_hash", "strategy"}) text(fields_, key);
    for (const char* key : {"outside", "measured", "peak"}) fields_.object(key);
    text(fields_.object("recipe"), "name");
    for (const json& link : fields_.list_at("links")) {
      if (!link.is_string()) refuse("links", "must be a list of texts, not of " + json_shown(link));
    }
    for (size_t n = 0; n < fields_.list_at("actions").size(); ++n) text(fields_.element("actions", n), "action");
  }

  void check_tensor(const JsonFields& tensor) const {
    for (const char* key : {"name", "kind", "dtype"}) text(tensor, key);
    for (const char* key : {"bytes", "offset"}) integer(tensor, key);
    for (const json& dimension : tensor.list_at("shape")) tensor.integer_in("shape", dimension, 0, kMax);
  }

  // The end offsets, in bytes, of a list of tensors. `memory`: in the region. `file`: in the file
  // of streamed weights. `host`: in host memory.
  struct Ends {
    uint64_t memory = 0, file = 0, host = 0;
  };
  // Checks that tensors are adjacent. Tensors that only one rank stores follow the tensors of all
  // ranks; for each rank they begin at the same offset.
  Ends check_tensors(const std::string& list) const {
    Ends ends;
    std::map<uint64_t, uint64_t> kept;  // key: a rank; entry: end of the tensors that only this rank stores
    for (size_t n = 0; n < fields_.list_at(list).size(); ++n) {
      const JsonFields tensor = fields_.element(list, n);
      check_tensor(tensor);
      const std::string kind = text(tensor, "kind");
      uint64_t& common = kind == "streamed" ? ends.file : kind == "offloaded" ? ends.host : ends.memory;
      if (!tensor.has("keeper") && !kept.empty() && &common == &ends.memory)
        refuse(tensor.path_of("keeper"), "is missing: the tensors before it have one");
      uint64_t& end =
          tensor.has("keeper") ? kept.try_emplace(integer(tensor, "keeper"), ends.memory).first->second : common;
      if (integer(tensor, "offset") != end)
        refuse(tensor.path_of("offset"), "must be " + std::to_string(end) + ", where the tensor before it ends");
      end += integer(tensor, "bytes");
    }
    for (const auto& [owner, end] : kept) ends.memory = std::max(ends.memory, end);
    return ends;
  }

  // Returns the bytes of the region "shard", which follows State's tensors: the streamed weights
  // that a rank stores.
  uint64_t shard_bytes() const {
    for (size_t n = 0; n < fields_.list_at("regions").size(); ++n) {
      const JsonFields region = fields_.element("regions", n);
      if (text(region, "name") == "shard") return integer(region, "planned_bytes");
    }
    return 0;
  }

  void check_programs() {
    for (size_t n = 0; n < fields_.list_at("programs").size(); ++n) {
      const JsonFields program = fields_.element("programs", n);
      for (const char* key : {"times", "bytes", "live_bytes"}) integer(program, key);
      if (!programs_.insert({text(program, "name"), {&all_["programs"][n], {}, {}}}).second)
        refuse(program.path_of("name"), "is given twice");
      if (program.list_at("rows").empty()) refuse(program.path_of("rows"), "is empty");
    }
    if (programs_.empty()) refuse("programs", "is empty");
    if (all_["rows"] != all_["programs"][0]["rows"].size()) {
      refuse("rows", "is " + json_shown(all_["rows"]) + ", but programs[0].rows has " +
                         std::to_string(all_["programs"][0]["rows"].size()));
    }
  }

  // Checks the slots of the arena, or those of the second level. In each program they are in the
  // order of their ids.
  void check_slots(const std::string& list) {
    const bool spilled = list != "slots";
    for (size_t n = 0; n < fields_.list_at(list).size(); ++n) {
      const JsonFields slot = fields_.element(list, n);
      check_tensor(slot);
      text(slot, "layer");
      const auto program = programs_.find(text(slot, "program"));
      if (program == programs_.end()) refuse(slot.path_of("program"), "is none of programs");
      std::vector<const json*>& known = spilled ? program->second.spilled : program->second.slots;
      if (integer(slot, "id") != known.size())
        refuse(slot.path_of("id"), "must be " + std::to_string(known.size()) + ": ids count the slots of a program");
      known.push_back(&all_[list][n]);
      const uint64_t first = integer(slot, "first_row"), last = integer(slot, "last_row");
      if (first > last || last >= program->second.program->at("rows").size())
        refuse(slot.path_of("last_row"), "must be a row of its program, from first_row on");
      const uint64_t end = integer(slot, "offset") + integer(slot, "bytes");
      if (!spilled && end > program->second.program->at("bytes").get<uint64_t>())
        refuse(slot.path_of("bytes"), "ends behind its program's bytes");
    }
  }

  void check_rows(const json& program) {
    const Known& known = programs_.at(program["name"].get<std::string>());
    std::vector<uint64_t> live(program["rows"].size() + 1, 0);
    for (const json* slot : known.slots) {
      live[slot->at("first_row").get<uint64_t>()] += slot->at("bytes").get<uint64_t>();
      live[slot->at("last_row").get<uint64_t>() + 1] -= slot->at("bytes").get<uint64_t>();
    }
    uint64_t maximum = 0, now = 0;
    const std::string place = "programs." + program["name"].get<std::string>();
    for (size_t r = 0; r < program["rows"].size(); ++r) {
      const JsonFields row(program["rows"][r], {file_}, place + ".rows[" + std::to_string(r) + "]");
      check_row(row, known);
      now += live[r];
      if (integer(row, "live_bytes") != now)
        refuse(row.path_of("live_bytes"), "must be " + std::to_string(now) + ", the sum over the slots that live then");
      maximum = std::max(maximum, now);
    }
    if (program["live_bytes"] != maximum)
      refuse(place + ".live_bytes", "must be " + std::to_string(maximum) + ", the most of its rows");
    if (program["bytes"] < maximum) refuse(place + ".bytes", "must be at least live_bytes, " + std::to_string(maximum));
  }

  struct Known {
    const json* program = nullptr;
    std::vector<const json*> slots, spilled;
  };

  void check_row(const JsonFields& row, const Known& known) const {
    static const std::set<std::string> stages = {"forward", "recomputed", "backward", "update", "move", "transfer"};
    for (const char* key : {"op", "pass", "link"}) text(row, key);
    if (stages.count(text(row, "stage")) == 0)
      refuse(row.path_of("stage"), "is none of forward, recomputed, backward, update, move, transfer");
    for (const char* key : {"flops", "bytes", "seconds"}) number_or_null(row, key);
    integer(row, "queue");
    if (!row.at("action").is_null() && integer(row, "action") >= all_["actions"].size())
      refuse(row.path_of("action"), "is none of actions");
    for (const char* key : {"reads", "writes"}) {
      for (const json& reference : row.list_at(key)) check_reference(row, key, reference, known);
    }
    if (!row.at("scratch").is_null()) check_reference(row, "scratch", row.at("scratch"), known);
  }

  // Returns the bytes of the tensor that a reference names. The reference must have been checked.
  uint64_t bytes_of(const Known& known, const std::string& reference) const {
    const size_t colon = reference.find(':'), index = std::stoul(reference.substr(colon + 1));
    const std::string region = reference.substr(0, colon);
    if (region == "slot") return known.slots[index]->at("bytes").get<uint64_t>();
    if (region == "state" || region == "carried") return all_[region][index]["bytes"].get<uint64_t>();
    return known.spilled[index]->at("bytes").get<uint64_t>();
  }

  void check_reference(const JsonFields& row, const std::string& key, const json& reference, const Known& known) const {
    const std::string word = reference.is_string() ? reference.get<std::string>() : "";
    const size_t colon = word.find(':');
    const std::string digits = colon == std::string::npos ? "" : word.substr(colon + 1);
    const bool counts =
        !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos;
    const std::map<std::string, size_t> sizes = {{"slot", known.slots.size()},
                                                 {fields_.has("host") ? "host" : "disk", known.spilled.size()},
                                                 {"state", all_["state"].size()},
                                                 {"carried", all_["carried"].size()}};
    const auto size = sizes.find(word.substr(0, std::min(colon, word.size())));
    if (!counts || size == sizes.end() || std::stoul(digits) >= size->second) {
      refuse(row.path_of(key),
             "must name a slot, state, carried, disk or host that is there, as \"slot:0\" does, not " +
                 json_shown(reference));
    }
  }

  void check_regions(const Ends& state, const Ends& carried) const {
    uint64_t largest = 0;
    for (const auto& [name, known] : programs_) largest = std::max(largest, known.program->at("bytes").get<uint64_t>());
    const uint64_t planned_bytes = state.memory + carried.memory + largest;
    if (all_["planned_bytes"] != planned_bytes) {
      refuse("planned_bytes", "must be " + std::to_string(planned_bytes) +
                                  ", the bytes of state, of carried and of the largest program");
    }
    for (size_t n = 0; n < fields_.list_at("regions").size(); ++n) {
      const JsonFields region = fields_.element("regions", n);
      integer(region, "capacity_bytes");
      integer(region, "high_water_row");
      const std::string name = text(region, "name");
      const auto program = programs_.find(name);
      const uint64_t planned = program != programs_.end() ? program->second.program->at("bytes").get<uint64_t>()
                               : name == "state"          ? state.memory
                               : name == "streamed"       ? state.file
                               : name == "shard"          ? shard_bytes()
                                                          : carried.memory;
      if (name != "disk" && name != "host" && integer(region, "planned_bytes") != planned)
        refuse(region.path_of("planned_bytes"), "must be " + std::to_string(planned));
    }
  }

  void check_peak() const {
    const JsonFields peak = fields_.object("peak");
    const json& rows = all_["programs"][0]["rows"];
    const uint64_t row = integer(peak, "row");
    if (row >= rows.size() || rows[row]["live_bytes"] != peak.at("bytes"))
      refuse("peak.bytes", "must be the live_bytes of its row");
    const std::vector<const json*>& slots = programs_.at(all_["programs"][0]["name"].get<std::string>()).slots;
    for (size_t n = 0; n < peak.list_at("live").size(); ++n) {
      const JsonFields live = peak.element("live", n);
      const uint64_t id = integer(live, "id");
      if (id >= slots.size() || slots[id]->at("bytes") != live.at("bytes") ||
          slots[id]->at("name") != live.at("name")) {
        refuse(live.path_of("id"), "must be a slot of that name and size");
      }
    }
  }

  // Checks "ranks" and "sent_bytes". A plan for several ranks has both keys, and any other plan has
  // neither. A rank cannot send more bytes than its rows start to send.
  void check_ranks() const {
    if (!fields_.has("ranks") && !fields_.has("sent_bytes")) return;
    const uint64_t ranks = integer(fields_, "ranks"), sent = integer(fields_, "sent_bytes");
    if (ranks < 2) refuse("ranks", "must be at least 2; a plan for one has none");
    uint64_t started = 0;
    for (const auto& [name, known] : programs_) {
      for (const json& row : known.program->at("rows")) {
        if ((row["op"] != "share" && row["op"] != "spread") || row["pass"] != "start") continue;
        for (const json& written : row["writes"])
          started += known.program->at("times").get<uint64_t>() * bytes_of(known, written.get<std::string>());
      }
    }
    if (sent > started)
      refuse("sent_bytes", "must be at most " + std::to_string(started) + ", which is what the rows send");
  }

  // Checks the measured values; every key is optional. More measured than planned bytes are
  // accepted: they contradict the plan, not the file.
  void check_measured() const {
    const JsonFields measured = fields_.object("measured");
    for (const char* key : {"heap_calls_in_steps", "process_peak_bytes", "stack_bytes", "steps"}) {
      if (measured.has(key)) integer(measured, key);
    }
    if (measured.has("step_seconds")) measured.number_in("step_seconds", measured.at("step_seconds"), kAnyNumber);
    for (size_t n = 0; measured.has("regions") && n < measured.list_at("regions").size(); ++n) {
      text(measured.element("regions", n), "name");
      integer(measured.element("regions", n), "high_water_bytes");
    }
    for (size_t n = 0; measured.has("stacks") && n < measured.list_at("stacks").size(); ++n) {
      for (const char* key : {"worker", "bytes"}) integer(measured.element("stacks", n), key);
    }
  }

  // Checks the manifests of the program's other plans. None of them may list other plans. All plans
  // are of one training, so their State must be equal.
  void check_other_budgets() const {
    for (size_t n = 0; n < fields_.list_at("other_budgets").size(); ++n) {
      const JsonFields other = fields_.element("other_budgets", n);
      const json& manifest = all_["other_budgets"][n];
      if (other.has("other_budgets"))
        refuse(other.path_of("other_budgets"), "stands in the first plan's manifest alone");
      check_manifest(manifest, file_ + ": other_budgets[" + std::to_string(n) + "]");
      if (manifest["state"] != all_["state"]) refuse(other.path_of("state"), "must be the first plan's state");
    }
  }

  const json& all_;
  const std::string& file_;
  const JsonFields fields_;
  std::map<std::string, Known> programs_;
};

}  // namespace

bool is_manifest(const json& value) {
  return value.is_object() && value.contains("plan_hash") && value.contains("slots");
}

bool is_manifest_file(const std::string& path) {
  try {
    return is_manifest(json_or_discarded(read_file(path)));
  } catch (const UserError&) {
    return false;
  }
}

void check_manifest(const json& manifest, const std::string& file) { ManifestCheck(manifest, file).check(); }

json read_manifest(const std::string& path, const std::string& option) {
  json manifest = parse_json(read_file(path), path);
  if (!is_manifest(manifest))
    throw UserError(path + ": " + option + ": must be a manifest as `reprise plan` writes it");
  check_manifest(manifest, path);
  return manifest;
}

}  // namespace reprise
