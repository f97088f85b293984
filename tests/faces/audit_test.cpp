// What a plan's manifest says, and what is made of it: rows, diff, gate, prices, trace, boards.
// Each figure is compared with another way to it: with the rows themselves, or with plans that are really made.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "tests/faces/command_line.h"
#include "tests/faces/trace_processor.h"

namespace reprise::test {
namespace {

json gpt_json() {
  return json::parse(R"({"name": "tg", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 3, "n_head": 2,
    "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, "data": {"kind": "synthetic"}, "batch": 2, "accumulate": 2, "steps": 4,
    "optimizer": {"name": "adamw", "lr": 0.001}})");
}

json llama_json() {
  return json::parse(R"({"name": "tl", "model": {"family": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 16, "steps": 4,
    "optimizer": {"name": "adamw", "lr": 0.001}})");
}

class Audit : public CommandLine {
 protected:
  // Of a budget between the smallest and what storing everything takes.
  uint64_t middle_budget(const std::string& file) {
    const json fit = json_answer({"fit", file, "--budget", "1TiB", "--json"});
    const uint64_t least = fit["smallest_budget"], most = fit["planned_bytes"];
    return least + (most - least) / 3;
  }
  std::string budgeted(json value, const std::string& name) {
    const std::string file = recipe(value, name + ".json");
    value["budget"] = middle_budget(file);
    return recipe(value, name + ".json");
  }
  json plan(const std::vector<std::string>& options, const std::string& folder) {
    std::vector<std::string> command = {"plan", "-o", folder_.file(folder)};
    command.insert(command.end(), options.begin(), options.end());
    const ProcessResult result = reprise_command(command);
    if (result.status != 0) return nullptr;
    return json::parse(file_text(folder_.file(folder) + "/manifest.json"));
  }
  void expect_prices_are_differences(const std::string& file, const std::vector<std::string>& options, const char* costs);
  std::vector<std::string> recipes() { return {budgeted(recipe_json(), "rn"), budgeted(gpt_json(), "tg"), budgeted(llama_json(), "tl")}; }
};

// A slot lives from the first row that touches it to the last, and what the host fills from the first row on.
void expect_lives_are_those_of_the_rows(const json& manifest) {
  for (const json& program : manifest["programs"]) {
    std::map<std::string, std::pair<size_t, size_t>> touched;
    for (size_t r = 0; r < program["rows"].size(); ++r) {
      json all = program["rows"][r]["reads"];
      all.insert(all.end(), program["rows"][r]["writes"].begin(), program["rows"][r]["writes"].end());
      if (!program["rows"][r]["scratch"].is_null()) all.push_back(program["rows"][r]["scratch"]);
      for (const json& reference : all) touched.insert({reference, {r, r}}).first->second.second = r;
    }
    for (const json& slot : manifest["slots"]) {
      if (slot["program"] != program["name"] || slot["kind"] == "cache") continue;
      const auto life = touched.at("slot:" + slot["id"].dump());
      const bool staged = slot["kind"] == "input" || slot["kind"] == "label";
      EXPECT_EQ(slot["first_row"], staged ? 0 : life.first) << slot;
      if (program["name"] != "generate") {
        EXPECT_EQ(slot["last_row"], life.second) << slot;
      }
    }
  }
}

TEST_F(Audit, RowsSayWhatTheSlotsLiveBy) {
  for (const std::string& file : recipes()) {
    const json manifest = plan({file}, "p");
    ASSERT_TRUE(manifest.is_object()) << file;
    EXPECT_EQ(manifest["manifest_version"], 2);
    expect_lives_are_those_of_the_rows(manifest);
  }
}

// Each link's forward runs once as such; whatever runs again is called recomputed, and there is some exactly where there is extra work.
TEST_F(Audit, StagesTellRecomputationFromTheFirstForward) {
  for (const std::string& file : recipes()) {
    for (const bool all : {false, true}) {
      const json manifest = all ? plan({file, "--schedule", "none", "--budget", "1GiB"}, "p") : plan({file}, "p");
      const json& rows = manifest["programs"][0]["rows"];
      std::map<std::string, int> forwards;
      size_t recomputed = 0;
      for (const json& row : rows) {
        if (row["stage"] == "forward") ++forwards[row["op"].get<std::string>() + row["pass"].get<std::string>() + row["link"].get<std::string>() + row["writes"].dump()];
        recomputed += row["stage"] == "recomputed" ? 1 : 0;
        EXPECT_LT(row["action"], manifest["actions"].size());
      }
      for (const auto& [row, count] : forwards) EXPECT_EQ(count, 1) << row;
      EXPECT_EQ(recomputed > 0, manifest["extra_forward_cost"].get<double>() > 1e-9) << file << all;
    }
  }
}

TEST_F(Audit, ManifestsThatAreNoneAreRefusedInOneLine) {
  const json good = plan({recipe()}, "p");
  const std::string file = folder_.file("bad.json");
  const std::vector<std::pair<std::function<void(json&)>, std::string>> edits = {
      {[](json& m) { m.erase("manifest_version"); }, "manifest_version"},
      {[](json& m) { m["manifest_version"] = 3; }, "manifest_version"},
      {[](json& m) { m.erase("programs"); }, "programs"},
      {[](json& m) { m["planned_bytes"] = m["planned_bytes"].get<uint64_t>() + 1; }, "planned_bytes"},
      {[](json& m) { m["planned_bytes"] = "much"; }, "planned_bytes"},
      {[](json& m) { m["slots"][3]["bytes"] = uint64_t{1} << 60; }, "slots[3].bytes"},
      {[](json& m) { m["slots"][3]["bytes"] = m["slots"][3]["bytes"].get<uint64_t>() + 256; }, "bytes"},
      {[](json& m) { m["slots"][3]["first_row"] = 100000; }, "slots[3].last_row"},
      {[](json& m) { m["slots"][3]["id"] = 4; }, "slots[3].id"},
      {[](json& m) { m["slots"][3]["program"] = "micro_last"; }, "slots[3].program"},
      {[](json& m) { m["slots"].erase(3); }, "slots[3].id"},
      {[](json& m) { m["state"][1]["offset"] = 7; }, "state[1].offset"},
      {[](json& m) { m["regions"][0]["planned_bytes"] = 5; }, "regions[0].planned_bytes"},
      {[](json& m) { m["peak"]["row"] = 0; }, "peak.bytes"},
      {[](json& m) { m["peak"]["live"][0]["bytes"] = 1; }, "peak.live[0].id"},
      {[](json& m) { m["rows"] = 1; }, "rows"},
      {[](json& m) { m["programs"][0]["rows"][2]["live_bytes"] = 1; }, "rows[2].live_bytes"},
      {[](json& m) { m["programs"][0]["rows"][2]["stage"] = "sideways"; }, "rows[2].stage"},
      {[](json& m) { m["programs"][0]["rows"][2]["reads"] = {"slot:99999"}; }, "rows[2].reads"},
      {[](json& m) { m["programs"][0]["rows"][2]["reads"] = {"slot:"}; }, "rows[2].reads"},
      {[](json& m) { m["programs"][0]["rows"][2]["reads"] = {7}; }, "rows[2].reads"},
      {[](json& m) { m["programs"][0]["rows"][2]["action"] = 4096; }, "rows[2].action"},
      {[](json& m) { m["programs"][0]["live_bytes"] = 1; }, "live_bytes"},
      {[](json& m) { m["actions"] = "none"; }, "actions"},
      {[](json& m) { m["links"][0] = 5; }, "links"},
      {[](json& m) { m["recipe"] = 5; }, "recipe"},
      {[](json& m) { m["measured"] = 5; }, "measured"},
      {[](json& m) { m["measured"]["steps"] = -1; }, "measured.steps"},
      {[](json& m) { m["measured"]["step_seconds"] = "long"; }, "measured.step_seconds"},
      {[](json& m) { m["measured"]["regions"] = {{{"name", "state"}}}; }, "measured.regions[0].high_water_bytes"},
      {[](json& m) { m["measured"]["stacks"] = {{{"worker", 0}, {"bytes", 1.5}}}; }, "measured.stacks[0].bytes"},
  };
  for (const auto& [edit, field] : edits) {
    json bad = good;
    edit(bad);
    write_text(file, bad.dump());
    for (const char* command : {"audit", "rows"}) expect_refusal({command, file}, 1, {"bad.json", field});
    expect_refusal({"audit", recipe(), "--gate", file}, 1, {"bad.json", field});
  }
  const std::string whole = good.dump();
  for (const double share : {0.1, 0.5, 0.99}) {
    write_text(file, whole.substr(0, static_cast<size_t>(share * static_cast<double>(whole.size()))));
    expect_refusal({"audit", file}, 1, {"bad.json"});
    expect_refusal({"audit", recipe(), "--diff", file}, 1, {"bad.json"});
  }
}

// Each gradient of a micro-batch goes once from a rank to every other: as many bytes as its rows start for one of them, without the slots' padding.
TEST_F(Audit, AManifestOfRanksSaysWhatIsSent) {
  EXPECT_FALSE(plan({recipe()}, "p").contains("ranks"));
  json value = recipe_json();
  value["accumulate"] = 3;
  const std::string file = recipe(value, "ranks.json");
  const json manifest = plan({file, "--ranks", "4"}, "p");
  ASSERT_TRUE(manifest.is_object());
  std::map<std::string, uint64_t> used;  // by program and slot
  for (const json& slot : manifest["slots"]) {
    uint64_t bytes = slot["dtype"] == "f32" ? 4 : 0;
    for (const json& dimension : slot["shape"]) bytes *= dimension.get<uint64_t>();
    used[slot["program"].get<std::string>() + slot["id"].dump()] = bytes;
  }
  uint64_t started = 0, flights = 0;
  for (const json& program : manifest["programs"]) {
    for (const json& row : program["rows"]) {
      if (row["op"] != "share") continue;
      EXPECT_EQ(row["stage"], "transfer");
      ++flights;
      if (row["pass"] == "start") started += program["times"].get<uint64_t>() * used.at(program["name"].get<std::string>() + row["writes"][0].get<std::string>().substr(5));
    }
  }
  EXPECT_GT(flights, 0u);
  EXPECT_EQ(manifest["ranks"], 4);
  EXPECT_EQ(4 * manifest["sent_bytes"].get<uint64_t>(), started);
  const std::vector<std::pair<std::function<void(json&)>, std::string>> edits = {
      {[](json& m) { m["ranks"] = 1; }, "ranks"},
      {[](json& m) { m.erase("ranks"); }, "ranks"},
      {[](json& m) { m.erase("sent_bytes"); }, "sent_bytes"},
      {[](json& m) { m["sent_bytes"] = 5 * m["sent_bytes"].get<uint64_t>(); }, "sent_bytes"},
      {[](json& m) { m["sent_bytes"] = "all"; }, "sent_bytes"}};
  for (const auto& [edit, field] : edits) {
    json bad = manifest;
    edit(bad);
    write_text(folder_.file("bad.json"), bad.dump());
    expect_refusal({"audit", folder_.file("bad.json")}, 1, {"bad.json", field});
  }
}

// What one rank alone keeps lies at the same addresses in each of them; the manifest is read back all the same.
TEST_F(Audit, AManifestOfRanksThatShareOutStateIsReadBack) {
  json value = gpt_json();
  value["parallel"] = {{"ranks", 3}, {"order", "two-level"}, {"shard_optimizer", true}};
  const json manifest = plan({recipe(value, "kept.json")}, "p");
  ASSERT_TRUE(manifest.is_object());
  EXPECT_EQ(json_answer({"audit", folder_.file("p/manifest.json"), "--json"}), manifest);
  json streamed = llama_json();
  streamed["weights"] = {{"stream", true}};
  streamed["lora"] = {{"r", 4}};
  streamed["parallel"] = {{"ranks", 2}, {"shard_weights", true}, {"shard_optimizer", true}};
  const json slices = plan({recipe(streamed, "slices.json")}, "slices");
  ASSERT_TRUE(slices.is_object());
  EXPECT_EQ(json_answer({"audit", folder_.file("slices/manifest.json"), "--json"}), slices);
  const auto kept = std::find_if(manifest["state"].begin(), manifest["state"].end(), [](const json& tensor) { return tensor.contains("keeper"); });
  ASSERT_TRUE(kept != manifest["state"].end());
  for (const char* const key : {"offset", "keeper"}) {
    json bad = manifest;
    json& tensor = bad["state"][static_cast<size_t>(kept - manifest["state"].begin())];
    tensor[key] = key == std::string("offset") ? json(tensor["offset"].get<uint64_t>() + 256) : json("all");
    write_text(folder_.file("bad.json"), bad.dump());
    expect_refusal({"audit", folder_.file("bad.json")}, 1, {"bad.json", "state[", key});
  }
}

TEST_F(Audit, RowsNameWhatTheyReadAndWrite) {
  const json manifest = plan({recipe()}, "p");
  const ProcessResult listed = reprise_command({"rows", recipe(), "--json"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  const json rows = json::parse(listed.out);
  ASSERT_EQ(rows.size(), manifest["programs"][0]["rows"].size());
  EXPECT_EQ(rows[0]["reads"][0], "images");
  EXPECT_EQ(rows[0]["op"], "conv.forward");
  EXPECT_EQ(rows[0]["synopsis"], "y = conv(x, w) + b; mean of y, rstd of y by channel");
  for (size_t r = 0; r < rows.size(); ++r) {
    EXPECT_EQ(keys_of(rows[r]), (std::set<std::string>{"row", "op", "synopsis", "link", "stage", "why", "reads", "writes", "live_bytes", "seconds"}));
    EXPECT_EQ(rows[r]["reads"].size(), manifest["programs"][0]["rows"][r]["reads"].size());
  }
  const ProcessResult text = reprise_command({"rows", folder_.file("p/manifest.json"), "--program", "update"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("sgd.update"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("g = clipped gradients"), std::string::npos) << text.out;
  expect_refusal({"rows", recipe(), "--program", "micro_add"}, 1, {"--program", "micro_first", "micro_add"});
}

TEST_F(Audit, DiffExplainsThePeak) {
  const std::string small = budgeted(recipe_json(), "rn");
  const json same = json_answer({"audit", small, "--diff", small, "--json"});
  EXPECT_TRUE(same["slots"].empty());
  ASSERT_TRUE(plan({small, "--schedule", "none", "--budget", "1GiB"}, "large").is_object());
  const json diff = json_answer({"audit", small, "--diff", folder_.file("large/manifest.json"), "--json"});
  EXPECT_EQ(keys_of(diff), (std::set<std::string>{"a", "b", "regions", "slots", "peak"}));
  EXPECT_FALSE(diff["slots"].empty());
  const auto sum = [](const json& list) {
    uint64_t bytes = 0;
    for (const json& slot : list) bytes += slot["bytes"].get<uint64_t>();
    return bytes;
  };
  EXPECT_EQ(diff["peak"]["a"].get<uint64_t>() + sum(diff["peak"]["only_b"]), diff["peak"]["b"].get<uint64_t>() + sum(diff["peak"]["only_a"]));
  EXPECT_GT(diff["a"]["extra_forward_cost"], diff["b"]["extra_forward_cost"]);
  std::set<std::string> changes;
  for (const json& slot : diff["slots"]) changes.insert(slot["change"].get<std::string>());
  EXPECT_EQ(changes.count("less_often") + changes.count("lives_longer"), 2u) << json(changes);
  const ProcessResult text = reprise_command({"audit", small, "--diff", folder_.file("large/manifest.json")});
  EXPECT_NE(text.out.find("peak of micro_first"), std::string::npos);
  expect_refusal({"audit", small, "--diff", folder_.file("nosuch.json")}, 1, {"nosuch.json"});
}

TEST_F(Audit, GateLimitsRegionsSecondsAndWork) {
  const std::string small = budgeted(recipe_json(), "rn");
  ASSERT_TRUE(plan({small}, "p").is_object());
  const std::string baseline = folder_.file("p/manifest.json");
  const std::vector<std::string> grown = {"audit", small, "--schedule", "none", "--budget", "1GiB", "--gate", baseline};
  const auto with = [&grown](const std::vector<std::string>& more) {
    std::vector<std::string> all = grown;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_EQ(reprise_command(with({"--max-growth", "1000"})).status, 0);
  expect_refusal(with({"--max-growth", "1000", "--max-growth", "micro_first=1"}), 3, {"micro_first", "grown from"});
  EXPECT_EQ(reprise_command(with({"--max-growth", "1000", "--max-growth", "state=0", "--max-growth", "work=0"})).status, 0) << "less work than the baseline";
  expect_refusal({"audit", baseline, "--gate", baseline, "--max-growth", "seconds=1"}, 1, {"seconds", "--profile"});
  expect_refusal(with({"--max-growth", "nosuch=1"}), 2, {"nosuch", "micro_first"});
  expect_refusal(with({"--max-growth", "state=much"}), 2, {"--max-growth", "state=much"});
  const ProcessResult table = reprise_command(with({"--markdown", "--max-growth", "2"}));
  EXPECT_EQ(table.status, 3);
  EXPECT_TRUE(table.is_one_line_with({"--gate", "grown from"})) << table.err;
  EXPECT_NE(table.out.find("| **total** |"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("**fails**"), std::string::npos) << table.out;
  for (const std::string& line : {std::string("| state |"), std::string("| work |")}) EXPECT_NE(table.out.find(line), std::string::npos) << table.out;
}

// Of twenty slots of a recipe; `costs` is the field of a manifest that the prices are differences of.
void Audit::expect_prices_are_differences(const std::string& file, const std::vector<std::string>& options, const char* costs) {
  const auto command = [&](std::vector<std::string> words) { return words.insert(words.end(), options.begin(), options.end()), words; };
  const json audit = json_answer(command({"audit", file, "--prices", "--json"}));
  const uint64_t budget = audit["budget_bytes"];
  std::map<uint64_t, json> price;
  for (const json& entry : audit["prices"]["by_bytes"]) price[entry["bytes"]] = entry;
  EXPECT_EQ(price.count(1 << 20), 1u);
  std::set<uint64_t> judged;
  int slots = 0, worth = 0;
  for (const json& slot : audit["slots"]) {
    const uint64_t bytes = slot["bytes"];
    if (slot["program"] != "micro_first" || slots++ >= 20 || !judged.insert(bytes).second) continue;
    ASSERT_EQ(price.count(bytes), 1u) << slot;
    const json less = bytes < budget ? plan(command({file, "--budget", std::to_string(budget - bytes)}), "less") : json();
    const json more = plan(command({file, "--budget", std::to_string(budget + bytes)}), "more");
    const double cost = audit[costs];
    ASSERT_EQ(price[bytes]["less"].is_null(), less.is_null()) << slot;
    if (!less.is_null()) { EXPECT_NEAR(price[bytes]["less"], less[costs].get<double>() - cost, 1e-12) << slot; }
    EXPECT_NEAR(price[bytes]["more"], cost - more[costs].get<double>(), 1e-12) << slot;
    worth += price[bytes]["more"].get<double>() > 0 ? 1 : 0;
  }
  EXPECT_GT(slots, 20);
  EXPECT_GT(worth, 0) << file;
}

TEST_F(Audit, PricesAreDifferencesOfRealPlans) {
  for (const std::string& file : recipes()) {
    expect_prices_are_differences(file, {}, "extra_forward_cost");
    const json audit = json_answer({"audit", file, "--prices", "--json"}), fit = json_answer({"fit", file, "--json"});
    EXPECT_EQ(audit["prices"]["unit"], "work");
    EXPECT_EQ(audit["smaller"]["budget"].get<uint64_t>() + 1, fit["smallest_budget"].get<uint64_t>());
  }
  ASSERT_TRUE(plan({recipe()}, "p").is_object());
  expect_refusal({"audit", folder_.file("p/manifest.json"), "--prices"}, 2, {"--prices", "recipe"});
}

TEST_F(Audit, PricesAreSecondsWithAProfile) {
  const std::string file = budgeted(llama_json(), "tl"), profile = folder_.file("profile.json");
  ASSERT_EQ(reprise_command({"profile", file, "-o", profile}).status, 0);
  expect_prices_are_differences(file, {"--profile", profile}, "predicted_seconds");
  EXPECT_EQ(json_answer({"audit", file, "--profile", profile, "--prices", "--json"})["prices"]["unit"], "seconds");
}

TEST_F(Audit, TraceHasASliceForEachRow) {
  const json manifest = plan({recipe()}, "p");
  const std::string file = folder_.file("trace.json");
  const ProcessResult result = reprise_command({"audit", recipe(), "--trace", file});
  ASSERT_EQ(result.status, 0) << result.err;
  const json trace = json::parse(file_text(file));
  std::map<uint64_t, std::vector<json>> slices;
  size_t counters = 0;
  double end = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") {
      EXPECT_NEAR(event["ts"], end, 1e-6 * (1 + end)) << "one after the other, in whole nanoseconds";
      end = event["ts"].get<double>() + event["dur"].get<double>();
      slices[event["pid"]].push_back(event);
    }
    if (event["ph"] == "C") ++counters;
  }
  size_t rows = 0;
  for (size_t p = 0; p < manifest["programs"].size(); ++p) {
    rows += manifest["programs"][p]["rows"].size();
    EXPECT_EQ(slices[p + 1].size(), manifest["programs"][p]["rows"].size());
  }
  EXPECT_EQ(counters, rows);
  expect_refusal({"audit", recipe(), "--trace", recipe()}, 1, {"recipe.json"});
}

TEST_F(Audit, PerfettoReadsTheTrace) {
  if (!trace_processor_missing().empty()) GTEST_SKIP() << trace_processor_missing();
  const std::string file = budgeted(gpt_json(), "tg");
  const json manifest = plan({file}, "p");
  ASSERT_EQ(reprise_command({"audit", file, "--trace", folder_.file("trace.json")}).status, 0);
  const std::map<std::string, json> figures = trace_figures(folder_.file("trace.json"));
  EXPECT_EQ(figures.size(), manifest["programs"].size());
  for (const json& program : manifest["programs"]) {
    const uint64_t times = program["times"];
    const std::string name = program["name"].get<std::string>() + (times == 1 ? "" : ", " + std::to_string(times) + " times a step");
    ASSERT_EQ(figures.count(name), 1u) << name;
    EXPECT_EQ(figures.at(name)["slices"], program["rows"].size()) << name;
    EXPECT_EQ(figures.at(name)["most"], program["live_bytes"]) << name;
    EXPECT_EQ(figures.at(name)["overlaps"], 0) << name;
  }
}

TEST_F(Audit, BoardsBoundTheStep) {
  int boards = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tools/boards")) {
    if (json::parse(file_text(entry.path().string())).contains("flash_bytes")) continue;  // a chip: the next test's
    const json answer = json_answer({"fit", recipe(), "--board", entry.path().string(), "--json"});
    EXPECT_EQ(answer["fits"], true);
    EXPECT_GT(answer["board"]["least_seconds"], 0);
    EXPECT_EQ(answer["board"]["room_bytes"], answer["board"]["usable_bytes"].get<uint64_t>() - answer["board"]["reserve_bytes"].get<uint64_t>());
    const json file = json::parse(file_text(entry.path().string()));
    EXPECT_TRUE(has_keys(file["sources"], {"usable_bytes", "reserve_bytes", "flops", "bytes_per_second"})) << entry.path();
    ++boards;
    EXPECT_EQ(json_answer({"fit", recipe(), "--board", entry.path().stem(), "--json"}), answer) << "by name";
  }
  EXPECT_GE(boards, 5);
  expect_refusal({"fit", recipe(), "--board", "orin"}, 1, {"--board orin", "agx-orin-64gb, laptop-16gb, mps2-an386, mps2-an500, orin-nano-8gb"});
  // By hand: a row's time is that of its flops or of its bytes.
  const json board = {{"name", "b"}, {"usable_bytes", 1 << 20}, {"processors", {{"cpu", {{"reserve_bytes", 0}, {"f32_flops", 1e9}, {"bf16_flops", 1e9}, {"bytes_per_second", 1e9}}}}}};
  const std::string file = folder_.file("board.json");
  write_text(file, board.dump());
  const json manifest = plan({recipe(), "--budget", "1MiB"}, "p");
  double seconds = 0;
  for (const json& program : manifest["programs"]) {
    for (const json& row : program["rows"]) seconds += program["times"].get<double>() * std::max(row["flops"].get<double>(), row["bytes"].get<double>()) / 1e9;
  }
  EXPECT_NEAR(json_answer({"fit", recipe(), "--board", file, "--json"})["board"]["least_seconds"], seconds, 1e-9 * seconds);
  json small = board;
  small["usable_bytes"] = 1024;
  write_text(file, small.dump());
  EXPECT_EQ(reprise_command({"fit", recipe(), "--board", file}).status, 3);
  write_text(file, "{}");
  expect_refusal({"fit", recipe(), "--board", file}, 1, {"board.json", "name"});
  json cuda = recipe_json();
  cuda["backend"] = "cuda";
  write_text(file, board.dump());
  expect_refusal({"fit", recipe(cuda, "cuda.json"), "--board", file}, 1, {"board.json", "processors", "cuda"});
}

// Of a microcontroller stack and data count beside the arena, and code, plan and weights in flash.
TEST_F(Audit, ChipsHoldStackAndDataAndFlash) {
  const std::string net = "tools/recipes/small/ds-cnn.json", file = folder_.file("chip.json");
  int chips = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tools/boards")) {
    const json chip = json::parse(file_text(entry.path().string()));
    if (!chip.contains("flash_bytes")) continue;
    EXPECT_TRUE(has_keys(chip["sources"], {"usable_bytes", "flash_bytes", "reserve_bytes", "code_bytes", "flops", "bytes_per_second"})) << entry.path();
    ++chips;
  }
  EXPECT_GE(chips, 4);
  expect_refusal({"fit", net, "--board", "stm32f746"}, 3, {"does not fit", "STM32F746 has 315.0 KiB for an arena"});
  const json shared = json_answer({"fit", net, "--board", "stm32h743", "--json"})["board"];
  EXPECT_EQ(shared["room_bytes"], 512 << 10) << "stack and data lie elsewhere";
  EXPECT_EQ(shared["ram_bytes"], 128 << 10);
  json released = json::parse(file_text(net), nullptr, true, true);
  released["optimizer"] = {{"name", "sgd"}, {"lr", 0.01}};
  released["gradient_release"] = true;
  const std::string small = recipe(released, "released.json");
  const json answer = json_answer({"fit", small, "--board", "stm32f746", "--json"}), &board = answer["board"];
  const auto bytes = [&board](const char* key) { return board[key].get<uint64_t>(); };
  EXPECT_EQ(bytes("room_bytes"), bytes("usable_bytes") - bytes("stack_bytes") - bytes("data_bytes"));
  EXPECT_LE(answer["planned_bytes"].get<uint64_t>(), bytes("room_bytes"));
  // To the byte, in a memory of just that size.
  json chip = json::parse(file_text("tools/boards/stm32f746.json"));
  const uint64_t least = answer["smallest_budget"].get<uint64_t>() + bytes("stack_bytes") + bytes("data_bytes");
  const auto fits = [&](const char* key, uint64_t value) {
    json changed = chip;
    changed[key] = value;
    write_text(file, changed.dump());
    return reprise_command({"fit", small, "--board", file}).status;
  };
  EXPECT_EQ(fits("usable_bytes", least), 0);
  EXPECT_EQ(fits("usable_bytes", least - 1), 3);
  const uint64_t flash = bytes("code_bytes") + bytes("plan_bytes") + bytes("weights_bytes");
  EXPECT_EQ(fits("flash_bytes", flash), 0);
  EXPECT_EQ(fits("flash_bytes", flash / 2), 3);
  expect_refusal({"fit", small, "--board", file}, 3, {"released.json", "code of", "a plan of", "weights of", "of flash that STM32F746 has"});
  EXPECT_EQ(fits("ram_bytes", bytes("stack_bytes") + bytes("data_bytes")), 0);
  EXPECT_EQ(fits("ram_bytes", bytes("stack_bytes") + bytes("data_bytes") - 1), 3);
  expect_refusal({"fit", small, "--board", file}, 3, {"released.json", "a stack of 3.75 KiB", "data of 5.00 KiB", "of RAM that STM32F746 has"});
  chip["processors"]["cpu"].erase("code_bytes");
  write_text(file, chip.dump());
  expect_refusal({"fit", small, "--board", file}, 1, {"chip.json", "code_bytes"});
}

}  // namespace
}  // namespace reprise::test
