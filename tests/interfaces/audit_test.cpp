// Tests a plan's manifest and the commands that use it: rows, diff, gate, prices, trace, boards.
// Each figure is compared with another computation: from the rows themselves, or from plans that
// are really made.
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "tests/interfaces/command_line.h"
#include "tests/interfaces/trace_processor.h"
#include "tools/files/io/text.h"

namespace reprise::test {
namespace {

json gpt_json() {
  return json::parse(
      R"({"name": "tg", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 3, "n_head": 2,
    "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}, "data": {"kind": "synthetic"}, "batch": 2, "accumulate": 2, "steps": 4,
    "optimizer": {"name": "adamw", "lr": 0.001}})");
}

json llama_json() {
  return json::parse(
      R"({"name": "tl", "model": {"family": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}, "data": {"kind": "synthetic"}, "batch": 2, "sequence": 16, "steps": 4,
    "optimizer": {"name": "adamw", "lr": 0.001}})");
}

class Audit : public CommandLine {
 protected:
  // Returns a budget one third of the way from the smallest budget that fits to the bytes of a plan
  // that stores everything.
  uint64_t middle_budget(const std::string& file) {
    const json fit = json_answer({"fit", file, "--budget", "1TiB", "--json"});
    const uint64_t minimum = fit["smallest_budget"], maximum = fit["planned_bytes"];
    return minimum + (maximum - minimum) / 3;
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
  void expect_prices_are_differences(const std::string& file, const std::vector<std::string>& options,
                                     const char* costs);
  std::vector<std::string> recipes() {
    return {budgeted(recipe_json(), "rn"), budgeted(gpt_json(), "tg"), budgeted(llama_json(), "tl")};
  }
};

// Requires that each slot is live from the first row that reads or writes it to the last one. Slots
// that the host fills must be live from row 0 on. Caches are not checked, nor are the last rows in
// the program generate.
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

// peak_bytes must be the largest sum of slots that are live in one row of micro_first. For each
// program, the audit's text must show such a sum and the fragmentation. The test computes them from
// the slots alone.
TEST_F(Audit, PeakBytesAreWhatLivesAtOneRow) {
  for (const std::string& file : recipes()) {
    const json manifest = plan({file}, "p");
    ASSERT_TRUE(manifest.is_object()) << file;
    const ProcessResult text = reprise_command({"audit", folder_.file("p/manifest.json")});
    ASSERT_EQ(text.status, 0) << text.err;
    for (const json& program : manifest["programs"]) {
      uint64_t maximum = 0, max_row = 0, end = 0;
      for (uint64_t row = 0; row < program["rows"].size(); ++row) {
        uint64_t live = 0;
        for (const json& slot : manifest["slots"]) {
          if (slot["program"] != program["name"]) continue;
          end = std::max(end, slot["offset"].get<uint64_t>() + slot["bytes"].get<uint64_t>());
          if (slot["first_row"] <= row && row <= slot["last_row"]) live += slot["bytes"].get<uint64_t>();
        }
        if (live > maximum) maximum = live, max_row = row;
      }
      EXPECT_EQ(program["bytes"], end) << program["name"];
      if (program["name"] == "micro_first") {
        EXPECT_EQ(manifest["peak_bytes"], maximum) << file;
      }
      if (end == 0) continue;
      const std::string line = "\n" + program["name"].get<std::string>() + ": " + bytes_text(end) + " = " +
                               bytes_text(maximum) + " live at row " + std::to_string(max_row) + " + " +
                               bytes_text(end - maximum) + " fragmentation\n";
      EXPECT_NE(text.out.find(line), std::string::npos) << "wanted" << line << "in " << text.out.substr(0, 2000);
    }
  }
}

// The first run of each link's forward has the stage "forward", and later runs have "recomputed".
// There are later runs if and only if the plan has extra work.
TEST_F(Audit, StagesTellRecomputationFromTheFirstForward) {
  for (const std::string& file : recipes()) {
    for (const bool all : {false, true}) {
      const json manifest = all ? plan({file, "--schedule", "none", "--budget", "1GiB"}, "p") : plan({file}, "p");
      const json& rows = manifest["programs"][0]["rows"];
      std::map<std::string, int> forwards;
      size_t recomputed = 0;
      for (const json& row : rows) {
        if (row["stage"] == "forward")
          ++forwards[row["op"].get<std::string>() + row["pass"].get<std::string>() + row["link"].get<std::string>() +
                     row["writes"].dump()];
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
      {[](json& m) { m["programs"][0]["bytes"] = m["programs"][0]["live_bytes"].get<uint64_t>() - 256; }, "bytes"},
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

// Each rank sends each gradient of a micro-batch once to every other rank. `sent_bytes` is the
// number of bytes that the rows send to one other rank, without the padding of slots.
TEST_F(Audit, AManifestOfRanksSaysWhatIsSent) {
  EXPECT_FALSE(plan({recipe()}, "p").contains("ranks"));
  json value = recipe_json();
  value["accumulate"] = 3;
  const std::string file = recipe(value, "ranks.json");
  const json manifest = plan({file, "--ranks", "4"}, "p");
  ASSERT_TRUE(manifest.is_object());
  std::map<std::string, uint64_t> used;  // key: program and slot
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
      if (row["pass"] == "start")
        started += program["times"].get<uint64_t>() *
                   used.at(program["name"].get<std::string>() + row["writes"][0].get<std::string>().substr(5));
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

// Tensors that only one rank stores have the same addresses in every rank. The manifest must be
// read back without an error.
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
  const auto kept = std::find_if(manifest["state"].begin(), manifest["state"].end(),
                                 [](const json& tensor) { return tensor.contains("keeper"); });
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
    EXPECT_EQ(keys_of(rows[r]), (std::set<std::string>{"row", "op", "synopsis", "link", "stage", "why", "reads",
                                                       "writes", "live_bytes", "seconds"}));
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
  EXPECT_EQ(diff["peak"]["a"].get<uint64_t>() + sum(diff["peak"]["only_b"]),
            diff["peak"]["b"].get<uint64_t>() + sum(diff["peak"]["only_a"]));
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
  EXPECT_EQ(reprise_command(with({"--max-growth", "1000", "--max-growth", "state=0", "--max-growth", "work=0"})).status,
            0)
      << "less work than the baseline";
  expect_refusal({"audit", baseline, "--gate", baseline, "--max-growth", "seconds=1"}, 1, {"seconds", "--profile"});
  expect_refusal(with({"--max-growth", "nosuch=1"}), 2, {"nosuch", "micro_first"});
  expect_refusal(with({"--max-growth", "state=much"}), 2, {"--max-growth", "state=much"});
  const ProcessResult table = reprise_command(with({"--markdown", "--max-growth", "2"}));
  EXPECT_EQ(table.status, 3);
  EXPECT_TRUE(table.is_one_line_with({"--gate", "grown from"})) << table.err;
  EXPECT_NE(table.out.find("| **total** |"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("**fails**"), std::string::npos) << table.out;
  for (const std::string& line : {std::string("| state |"), std::string("| work |")})
    EXPECT_NE(table.out.find(line), std::string::npos) << table.out;
}

// One command makes the manifest of a gate and renews it. The manifest must not contain a path,
// wherever the recipe and its data are.
TEST_F(Audit, RenewMakesTheManifestOfAGate) {
  const auto recipe_at = [this](const std::string& folder) {
    json value = gpt_json();
    std::filesystem::create_directories(folder_.file(folder));
    write_text(folder_.file(folder + "/words.txt"), std::string(4000, 'w'));
    value["data"] = {{"kind", "text"}, {"path", "words.txt"}};
    value["model"]["vocab_size"] = 256;
    return recipe(value, folder + "/net.json");
  };
  const std::string here = recipe_at("here"), there = recipe_at("there/below"),
                    gate = folder_.file("net-manifest.json"), other = folder_.file("other.json");
  expect_refusal({"audit", here, "--gate", gate}, 1, {"net-manifest.json", "--renew"});
  const ProcessResult made = reprise_command({"audit", here, "--gate", gate, "--renew"});
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_NE(made.out.find("net-manifest.json: tg has "), std::string::npos) << made.out;
  EXPECT_EQ(made.out.find("before"), std::string::npos) << made.out;
  EXPECT_EQ(file_text(gate).find("\"/"), std::string::npos)
      << "a path from / in " << json::parse(file_text(gate))["recipe"];
  EXPECT_EQ(file_text(gate).find(folder_.file("")), std::string::npos);
  EXPECT_EQ(json::parse(file_text(gate))["recipe"]["data"]["path"], "words.txt");
  ASSERT_EQ(reprise_command({"audit", there, "--gate", other, "--renew"}).status, 0);
  json here_json = json::parse(file_text(gate));
  here_json["plan_hash"] = json::parse(file_text(other))["plan_hash"];
  EXPECT_EQ(here_json, json::parse(file_text(other))) << "equal but for the hash, in which the recipe's paths count";
  EXPECT_EQ(reprise_command({"audit", there, "--gate", gate}).status, 0);
  const std::vector<std::string> larger = {"audit", here, "--schedule", "none", "--budget", "1GiB", "--gate", gate};
  std::vector<std::string> smaller = {"audit", here, "--budget", std::to_string(middle_budget(here)), "--gate", gate};
  smaller.push_back("--renew");
  const ProcessResult renewed = reprise_command(smaller);
  EXPECT_EQ(renewed.status, 0) << renewed.err;
  EXPECT_NE(renewed.out.find(", before "), std::string::npos) << renewed.out;
  EXPECT_EQ(reprise_command(larger).status, 3);
  for (const char* option : {"--json", "--markdown"})
    expect_refusal({"audit", here, "--gate", gate, "--renew", option}, 2, {"--renew", option});
  expect_refusal({"audit", here, "--renew"}, 2, {"--renew", "--gate"});
  write_text(other, "a letter");
  expect_refusal({"audit", here, "--gate", other, "--renew"}, 1, {"other.json"});
  EXPECT_EQ(file_text(other), "a letter");
}

// Checks the prices of twenty slots of a recipe. Each price must be the difference of the manifest
// field `costs` between two plans.
void Audit::expect_prices_are_differences(const std::string& file, const std::vector<std::string>& options,
                                          const char* costs) {
  const auto command = [&](std::vector<std::string> words) {
    return words.insert(words.end(), options.begin(), options.end()), words;
  };
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
    const json less =
        bytes < budget ? plan(command({file, "--budget", std::to_string(budget - bytes)}), "less") : json();
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
    const std::string name =
        program["name"].get<std::string>() + (times == 1 ? "" : ", " + std::to_string(times) + " times a step");
    ASSERT_EQ(figures.count(name), 1u) << name;
    EXPECT_EQ(figures.at(name)["slices"], program["rows"].size()) << name;
    EXPECT_EQ(figures.at(name)["most"], program["live_bytes"]) << name;
    EXPECT_EQ(figures.at(name)["overlaps"], 0) << name;
  }
}

TEST_F(Audit, BoardsBoundTheStep) {
  int boards = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tools/boards")) {
    if (json::parse(file_text(entry.path().string())).contains("flash_bytes")) continue;  // a test below covers chips
    const json answer = json_answer({"fit", recipe(), "--board", entry.path().string(), "--json"});
    EXPECT_EQ(answer["fits"], true);
    EXPECT_GT(answer["board"]["least_seconds"], 0);
    const json& board = answer["board"];
    EXPECT_EQ(board["room_bytes"],
              board["usable_bytes"].get<uint64_t>() - board["host_share"]["bytes"].get<uint64_t>());
    const json file = json::parse(file_text(entry.path().string()));
    const bool has_card = file["processors"].contains("cuda");
    EXPECT_EQ(board["backend"], has_card ? "cuda" : "cpu");
    EXPECT_EQ(board["reserve_bytes"], file["processors"][board["backend"]]["reserve_bytes"]);
    EXPECT_EQ(board.contains("beside"), has_card);
    // The answers for the card and for the processor must equal those for recipes that name the
    // backend.
    for (const char* backend : {"cpu", "cuda"}) {
      if (!has_card) break;
      json value = recipe_json();
      value["backend"] = backend;
      const json named = json_answer({"fit", recipe(value, "named.json"), "--board", entry.path().string(), "--json"});
      const json& shown = backend == board["backend"] ? board : board["beside"];
      EXPECT_EQ(named["board"]["backend"], backend);
      for (const char* key : {"room_bytes", "least_seconds", "bound"})
        EXPECT_EQ(shown[key], named["board"][key]) << backend << " " << key;
      EXPECT_EQ(backend == board["backend"] ? answer["planned_bytes"] : board["beside"]["planned_bytes"],
                named["planned_bytes"])
          << backend;
    }
    EXPECT_TRUE(has_keys(file["sources"], {"usable_bytes", "reserve_bytes", "flops", "bytes_per_second"}))
        << entry.path();
    ++boards;
    EXPECT_EQ(json_answer({"fit", recipe(), "--board", entry.path().stem(), "--json"}), answer) << "by name";
  }
  EXPECT_GE(boards, 5);
  expect_refusal({"fit", recipe(), "--board", "orin"}, 1,
                 {"--board orin", "agx-orin-64gb, laptop-16gb, mps2-an386, mps2-an500, orin-nano-8gb"});
  const std::string text = reprise_command({"fit", recipe(), "--board", "orin-nano-8gb"}).out;
  for (const char* words : {"Jetson Orin Nano 8 GB (Super mode), its card: ", "on its processor ", "limited by      ",
                            "the room of Jetson Orin Nano"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  const std::string limited = reprise_command({"fit", recipe(), "--board", "orin-nano-8gb", "--budget", "1GiB"}).out;
  EXPECT_NE(limited.find("1.00 GiB: --budget limits; Jetson Orin Nano 8 GB (Super mode) has room for "),
            std::string::npos)
      << limited;
  // The table of `fit` uses the board's memory and the board's rates, too.
  const json table = json_answer({"fit", recipe(), "--board", "orin-nano-8gb", "--table", "--json"});
  EXPECT_EQ(table["budget"],
            json_answer({"fit", recipe(), "--board", "orin-nano-8gb", "--json"})["board"]["room_bytes"]);
  EXPECT_NE(table["seconds_rest_on"].get<std::string>().find("the rates of Jetson Orin Nano"), std::string::npos);
  for (const json& row : table["table"]) {
    if (row["batch"] != 4) continue;
    EXPECT_EQ(row["seconds"],
              json_answer({"fit", recipe(), "--board", "orin-nano-8gb", "--json"})["board"]["least_seconds"]);
  }
  // Computed by hand: a row takes the longer of two times, one for its flops and one for its bytes.
  const json board = {{"name", "b"},
                      {"usable_bytes", 1 << 20},
                      {"processors",
                       {{"cpu",
                         {{"reserve_bytes", 0}, {"f32_flops", 1e9}, {"bf16_flops", 1e9}, {"bytes_per_second", 1e9}}}}}};
  const std::string file = folder_.file("board.json");
  write_text(file, board.dump());
  const json manifest = plan({recipe(), "--budget", "1MiB"}, "p");
  double seconds = 0;
  for (const json& program : manifest["programs"]) {
    for (const json& row : program["rows"])
      seconds +=
          program["times"].get<double>() * std::max(row["flops"].get<double>(), row["bytes"].get<double>()) / 1e9;
  }
  EXPECT_NEAR(json_answer({"fit", recipe(), "--board", file, "--json"})["board"]["least_seconds"], seconds,
              1e-9 * seconds);
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

// On a microcontroller, stack and data count in addition to the arena. Code, plan and weights count
// as flash.
TEST_F(Audit, ChipsHoldStackAndDataAndFlash) {
  const std::string net = "tools/recipes/small/ds-cnn.json", file = folder_.file("chip.json");
  int chips = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tools/boards")) {
    const json chip = json::parse(file_text(entry.path().string()));
    if (!chip.contains("flash_bytes")) continue;
    EXPECT_TRUE(has_keys(chip["sources"],
                         {"usable_bytes", "flash_bytes", "reserve_bytes", "code_bytes", "flops", "bytes_per_second"}))
        << entry.path();
    ++chips;
  }
  EXPECT_GE(chips, 4);
  expect_refusal({"fit", net, "--board", "stm32f746"}, 3,
                 {"does not fit", "STM32F746 has 315.0 KiB for an arena", "(fits)"});
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
  // The memory suffices if it has exactly the needed bytes, and not with one byte less.
  json chip = json::parse(file_text("tools/boards/stm32f746.json"));
  const uint64_t minimum = answer["smallest_budget"].get<uint64_t>() + bytes("stack_bytes") + bytes("data_bytes");
  const auto fits = [&](const char* key, uint64_t value) {
    json changed = chip;
    changed[key] = value;
    write_text(file, changed.dump());
    return reprise_command({"fit", small, "--board", file}).status;
  };
  EXPECT_EQ(fits("usable_bytes", minimum), 0);
  EXPECT_EQ(fits("usable_bytes", minimum - 1), 3);
  const uint64_t flash = bytes("code_bytes") + bytes("plan_bytes") + bytes("weights_bytes");
  EXPECT_EQ(fits("flash_bytes", flash), 0);
  EXPECT_EQ(fits("flash_bytes", flash / 2), 3);
  expect_refusal({"fit", small, "--board", file}, 3,
                 {"released.json", "code of", "a plan of", "weights of", "of flash that STM32F746 has"});
  EXPECT_EQ(fits("ram_bytes", bytes("stack_bytes") + bytes("data_bytes")), 0);
  EXPECT_EQ(fits("ram_bytes", bytes("stack_bytes") + bytes("data_bytes") - 1), 3);
  expect_refusal({"fit", small, "--board", file}, 3,
                 {"released.json", "a stack of 3.75 KiB", "data of 5.00 KiB", "of RAM that STM32F746 has"});
  chip["processors"]["cpu"].erase("code_bytes");
  write_text(file, chip.dump());
  expect_refusal({"fit", small, "--board", file}, 1, {"chip.json", "code_bytes"});
}

// The project's recipe for the STM32F746 must fit this chip unchanged. Each change that `fit`
// proposes for another recipe must fit, or not fit, as the proposal states.
TEST_F(Audit, ARecipeFitsTheSmallestChipAsShipped) {
  const json shipped =
      json_answer({"fit", "tools/recipes/small/ds-cnn-stm32f746.json", "--board", "stm32f746", "--json"});
  EXPECT_EQ(shipped["fits"], true);
  EXPECT_FALSE(shipped.contains("core")) << "the recipe says \"small\" itself";
  const json refused = json_answer({"fit", "tools/recipes/small/ds-cnn.json", "--board", "stm32f746", "--json"}, 3);
  int fitting = 0;
  for (const json& each : refused["proposals"]) {
    json value = json::parse(file_text("tools/recipes/small/ds-cnn.json"), nullptr, true, true);
    for (const auto& [key, other] : each["change"].items()) value[key] = other;
    const json again = json_answer({"fit", recipe(value, "changed.json"), "--board", "stm32f746", "--json"},
                                   each["fits"] == true ? 0 : 3);
    EXPECT_EQ(again["smallest_budget"], each["smallest_budget"]) << each;
    fitting += each["fits"] == true;
  }
  EXPECT_GE(fitting, 1) << refused;
}

// A microcontroller is planned with the kernels of the small core, whatever the recipe names. One
// line must report this.
TEST_F(Audit, ChipsTakeTheSmallCoreByThemselves) {
  json value = recipe_json();
  const json large = json_answer({"fit", recipe(value), "--board", "mps2-an500", "--json"});
  const std::string said = reprise_command({"fit", recipe(value), "--board", "mps2-an500"}).out;
  value["core"] = "small";
  const std::string small = recipe(value, "small.json");
  json own = json_answer({"fit", small, "--board", "mps2-an500", "--json"});
  EXPECT_EQ(reprise_command({"fit", small, "--board", "mps2-an500"}).out.find("planned with"), std::string::npos);
  EXPECT_NE(said.find("planned with \"core\": \"small\""), std::string::npos) << said;
  EXPECT_EQ(large["core"], "small");
  own["core"] = "small";
  EXPECT_EQ(large, own);
  expect_refusal({"fit", recipe(), "--board", "stm32f746"}, 3, {"does not fit", "planned with \"core\": \"small\""});
  for (const char* core : {"large", "small"}) {  // `make run-board` passes the core to plan
    json given = recipe_json();
    given["core"] = core;
    const ProcessResult plan = reprise_command({"plan", recipe(given), "--core", "small", "-o", folder_.file(core)});
    EXPECT_EQ(plan.status, 0) << plan.err;
    EXPECT_EQ(plan.err.find("planned with") != std::string::npos, std::string(core) == "large") << plan.err;
  }
  EXPECT_EQ(file_text(folder_.file("large/plan.h")), file_text(folder_.file("small/plan.h")));
}

}  // namespace
}  // namespace reprise::test
