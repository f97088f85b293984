// Tests build/reprise as scripts use it (tools/COMMANDS.md): every subcommand, its JSON, its exit
// status, its refusals. Only results are written to stdout; everything else is on stderr. A refusal
// is exactly one line. This test runs the program and must not link the code that it tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "lib/plan.h"
#include "tests/interfaces/command_line.h"
#include "tools/files/io/text.h"

namespace reprise::test {
namespace {

using nlohmann::json;

TEST_F(CommandLine, PlanWritesTheSameBytesTwice) {
  for (const char* name : {"a", "b/c"}) {
    const ProcessResult result = reprise_command({"plan", recipe(), "-o", folder_.file(name)});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("planned peak"), std::string::npos) << result.err;
  }
  for (const char* file : {"/plan.h", "/manifest.json"}) {
    EXPECT_EQ(file_text(folder_.file("a") + file), file_text(folder_.file("b/c") + file)) << file;
    EXPECT_NE(file_text(folder_.file("a") + file), "") << file;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("a/plan.h.tmp")));
}

void expect_canonical(const json& value, const std::string& path) {
  for (const auto& [key, inner] : value.items()) {
    EXPECT_EQ(key.find("seconds") == std::string::npos || inner.is_null(), true)
        << path << key << ": a manifest holds no times";
    if (inner.is_object()) expect_canonical(inner, path + key + ".");
  }
}

TEST_F(CommandLine, ManifestHasItsFields) {
  ASSERT_EQ(reprise_command({"plan", recipe(), "-o", folder_.file("p")}).status, 0);
  const std::string text = file_text(folder_.file("p/manifest.json"));
  const json manifest = json::parse(text);
  EXPECT_TRUE(has_keys(manifest, {"format", "recipe", "plan_hash", "regions", "slots", "peak", "outside", "measured"}));
  EXPECT_EQ(manifest.dump(1) + "\n", text) << "keys must be sorted";
  expect_canonical(manifest, "");
  EXPECT_TRUE(has_keys(manifest["peak"], {"row", "live"}));
  ASSERT_FALSE(manifest["regions"].empty());
  for (const json& region : manifest["regions"]) {
    EXPECT_EQ(keys_of(region), (std::set<std::string>{"name", "capacity_bytes", "planned_bytes", "high_water_row"}));
    EXPECT_LE(region["planned_bytes"], region["capacity_bytes"]);
  }
  ASSERT_FALSE(manifest["slots"].empty());
  for (const json& slot : manifest["slots"]) {
    EXPECT_TRUE(
        has_keys(slot, {"id", "name", "layer", "kind", "dtype", "shape", "bytes", "offset", "first_row", "last_row"}))
        << slot;
    EXPECT_LE(slot["first_row"], slot["last_row"]) << slot;
    EXPECT_EQ(slot["offset"].get<uint64_t>() % 256, 0u) << slot;
  }
}

TEST_F(CommandLine, AuditOfRecipeAndOfManifestAgree) {
  ASSERT_EQ(reprise_command({"plan", recipe(), "-o", folder_.file("p")}).status, 0);
  const std::string manifest = folder_.file("p/manifest.json");
  EXPECT_EQ(json_answer({"audit", recipe(), "--json"}), json_answer({"audit", manifest, "--json"}));
  const ProcessResult text = reprise_command({"audit", recipe()}), again = reprise_command({"audit", manifest});
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.out, again.out);
  EXPECT_EQ(text.err, "");
  for (const char* fragment : {"region", "peak of micro_first", "slots"})
    EXPECT_NE(text.out.find(fragment), std::string::npos) << fragment;
  write_text(folder_.file("no.json"), R"({"plan_hash": 1, "slots": 2})");
  expect_refusal({"audit", folder_.file("no.json"), "--json"}, 1, {"no.json", "manifest"});
  expect_refusal({"audit", recipe(), "--budget", "1KiB", "--json"}, 3, {"rn", "smallest budget"});
}

TEST_F(CommandLine, AuditGateHoldsThePlanToItsBaseline) {
  const std::string smallest = json_answer({"fit", recipe(), "--budget", "1GiB", "--json"})["smallest_budget"].dump();
  ASSERT_EQ(reprise_command(
                {"plan", recipe(), "--schedule", "optimal", "--budget", smallest, "-o", folder_.file("small")})
                .status,
            0);
  const std::string baseline = folder_.file("small/manifest.json");
  EXPECT_EQ(reprise_command({"audit", baseline, "--gate", baseline}).status, 0);
  EXPECT_EQ(
      reprise_command({"audit", recipe(), "--schedule", "none", "--gate", baseline, "--max-growth", "1000"}).status, 0);
  expect_refusal({"audit", recipe(), "--schedule", "none", "--gate", baseline, "--max-growth", "1"}, 3,
                 {"--gate", "grown from"});
  expect_refusal({"audit", recipe(), "--gate", recipe()}, 1, {"--gate", "manifest"});
  const json outgrown = json_answer({"audit", recipe(), "--schedule", "none", "--gate", baseline, "--json"}, 3);
  EXPECT_EQ(outgrown["strategy"], "none") << "one JSON value on stdout, also where the status is 3";
  for (const auto& option :
       std::vector<std::vector<std::string>>{{"--budget", "1MiB"}, {"--schedule", "sqrt"}, {"--profile", "nosuch"}}) {
    expect_refusal({"audit", baseline, option[0], option[1]}, 2,
                   {"manifest.json", option[0], "no effect on a manifest"});
  }
  expect_refusal({"audit", recipe(), "--max-growth", "5"}, 2, {"--max-growth", "--gate"});
  expect_refusal({"audit", recipe(), "--gate", baseline, "--max-growth", "-1"}, 2,
                 {"--max-growth", "at least 0", "-1"});
  expect_refusal({"plan", recipe(), "-o", recipe()}, 1, {"recipe.json", "is a file", "folder"});
}

TEST_F(CommandLine, FitNamesTheSmallestBudgetThatFits) {
  const std::set<std::string> fields = {"fits", "smallest_budget", "smaller_budgets", "planned_bytes",
                                        "predicted_seconds"};
  for (const std::string schedule : {"optimal", "sqrt", "revolve", "every-k", "none", "chen"}) {
    const json enough = json_answer({"fit", recipe(), "--budget", "1GiB", "--schedule", schedule, "--json"});
    EXPECT_EQ(keys_of(enough), fields);
    EXPECT_EQ(enough["fits"], true) << schedule;
    EXPECT_TRUE(enough["predicted_seconds"].is_null());
    const uint64_t smallest = enough["smallest_budget"];
    const json minimum =
        json_answer({"fit", recipe(), "--budget", std::to_string(smallest), "--strategy", schedule, "--json"});
    EXPECT_EQ(minimum["fits"], true) << schedule;
    EXPECT_LE(minimum["planned_bytes"], smallest) << schedule;
    EXPECT_EQ(minimum["smaller_budgets"], json::array()) << schedule;
    uint64_t before = enough["planned_bytes"];
    for (const json& smaller : enough["smaller_budgets"]) {
      const json again =
          json_answer({"fit", recipe(), "--budget", smaller["budget"].dump(), "--strategy", schedule, "--json"});
      EXPECT_LE(again["planned_bytes"], smaller["budget"]) << schedule;
      EXPECT_LT(smaller["budget"], before) << schedule;
      before = smaller["budget"];
    }
    EXPECT_LE(before, std::max(smallest, minimum["planned_bytes"].get<uint64_t>()))
        << schedule << ": the last is the smallest";
    EXPECT_TRUE(schedule != "optimal" || enough["smaller_budgets"].size() == 3) << enough;
    const ProcessResult less = reprise_command(
        {"fit", recipe(), "--budget", std::to_string(smallest - 256), "--schedule", schedule, "--json"});
    EXPECT_EQ(less.status, 3) << schedule;
    EXPECT_TRUE(less.is_one_line_with({"rn", "budget", std::to_string(smallest), "live"})) << less.err;
    const json answer = json::parse(less.out);
    std::set<std::string> refused = fields;
    refused.insert("proposals");
    EXPECT_EQ(keys_of(answer), refused);
    EXPECT_EQ(answer["fits"], false) << schedule;
    EXPECT_EQ(answer["smallest_budget"], smallest) << schedule;
    EXPECT_TRUE(answer["planned_bytes"].is_null());
  }
  expect_refusal({"plan", recipe(), "--budget", "1KiB", "-o", folder_.file("p")}, 3, {"rn", "smallest budget"});
  EXPECT_FALSE(std::filesystem::exists(folder_.file("p"))) << "a plan that does not fit leaves nothing";
  expect_refusal({"fit", recipe(), "--budget", ""}, 1, {"--budget", "\"\""});
  expect_refusal({"chain", recipe(), "-o", ""}, 2, {"--output", "must not be empty"});
}

TEST_F(CommandLine, ATableOfWhichNothingFitsNamesTheSmallestBudget) {
  const ProcessResult result = reprise_command({"fit", recipe(), "--budget", "1KiB", "--table", "--json"});
  EXPECT_EQ(result.status, 3);
  const json smallest = json::parse(result.out).at("smallest");
  EXPECT_EQ(smallest["batch"], 1);
  EXPECT_TRUE(result.is_one_line_with(
      {"rn: budget", "nothing of the table fits", smallest["budget"].dump() + " bytes", "of batch 1"}))
      << result.err;
  const auto status_at = [&](uint64_t budget) {
    return reprise_command({"fit", recipe(), "--budget", std::to_string(budget), "--table"}).status;
  };
  EXPECT_EQ(status_at(smallest["budget"]), 0);
  EXPECT_EQ(status_at(smallest["budget"].get<uint64_t>() - 256), 3);
  EXPECT_FALSE(json_answer({"fit", recipe(), "--budget", "1GiB", "--table", "--json"}).contains("smallest"));
}

// Each row of the table states the longest sequence and the largest batch that fit. `fit` must
// refuse 64 more tokens, or one more sample.
TEST_F(CommandLine, ATableSaysHowFarEachWayToStoreGoes) {
  json small = {{"name", "small"},
                {"model",
                 {{"family", "llama"},
                  {"vocab_size", 128},
                  {"hidden_size", 64},
                  {"intermediate_size", 128},
                  {"num_hidden_layers", 2},
                  {"num_attention_heads", 2},
                  {"num_key_value_heads", 1},
                  {"max_position_embeddings", 1024},
                  {"rms_norm_eps", 1e-5},
                  {"rope_theta", 10000.0}}},
                {"init", "random"},
                {"data", {{"kind", "synthetic"}}},
                {"batch", 2},
                {"sequence", 64},
                {"lora", {{"r", 8}, {"targets", {"q_proj"}}}},
                {"optimizer", {{"name", "adamw"}}},
                {"budget", 900000}};  // few adapters, because more would take longer to solve
  const auto written = [&](const json& recipe) {
    write_text(folder_.file("r.json"), recipe.dump());
    return folder_.file("r.json");
  };
  const json table = json_answer({"fit", written(small), "--table", "--json"}), &rows = table.at("storage");
  ASSERT_EQ(rows.size(), 12u);  // 3 formats (as stored, Q8_0, Q4_0), streamed or not, moments in f32 or 8 bits
  for (size_t r = 0; r < rows.size(); r += 4) {  // tests every fourth row, because each is a separate plan
    const json& row = rows[r];
    json chosen = small;
    chosen["weights"] = {{"frozen", row.at("frozen")}, {"stream", row.at("stream")}};
    chosen["optimizer"]["states"] = row.at("states");
    const auto status_at = [&](uint64_t batch, uint64_t sequence) {
      chosen["batch"] = batch, chosen["sequence"] = sequence;
      return batch == 0 || sequence == 0 ? 0 : reprise_command({"fit", written(chosen)}).status;
    };
    const uint64_t sequence = row.at("sequence"), batch = row.at("batch");
    EXPECT_EQ(status_at(1, sequence), 0) << row;
    EXPECT_EQ(status_at(1, sequence + 64), 3) << row;
    EXPECT_EQ(status_at(batch, 64), 0) << row;
    EXPECT_EQ(status_at(batch + 1, 64), 3) << row;
    const auto status_within = [&](uint64_t budget) {
      return reprise_command({"fit", folder_.file("r.json"), "--budget", std::to_string(budget)}).status;
    };
    const uint64_t smallest = row.at("smallest_budget");
    EXPECT_EQ(status_at(1, 64), smallest <= small.at("budget") ? 0 : 3) << row;
    EXPECT_EQ(status_within(smallest), 0) << row;
    EXPECT_EQ(status_within(smallest - 256), 3) << row;
    // The bytes of the row's plan must be those of a recipe with the row's choices and the original
    // batch and sequence.
    chosen["batch"] = 2, chosen["sequence"] = 64;
    const ProcessResult own = reprise_command({"fit", written(chosen), "--json"});
    EXPECT_EQ(own.status, row.at("planned_bytes").is_null() ? 3 : 0) << row;
    EXPECT_EQ(json::parse(own.out)["planned_bytes"], row.at("planned_bytes")) << row;
    EXPECT_EQ(row.at("seconds").is_number(), row.at("planned_bytes").is_number()) << row;
  }
  EXPECT_NE(table.at("seconds_rest_on").get<std::string>().find("assumed 320 GFLOP/s"), std::string::npos);
  for (const json& row : table.at("table")) {
    EXPECT_EQ(row.at("seconds").is_number(), row.at("fits") == true) << row;
    EXPECT_EQ(row.at("smallest_budget").is_number(), row.at("fits") == false) << row;
    if (row.at("fits") == false) {
      EXPECT_GT(row.at("smallest_budget"), 900000) << row;
    }
  }
  EXPECT_GT(rows[11].at("sequence"), rows[0].at("sequence")) << "streamed in 8 bits, beside all in memory in f32";
}

// Each row of the table of several models must equal the row in the table of a recipe that names
// only the row's model.
TEST_F(CommandLine, ATableOfModelsHasARowForEachChoiceOfEach) {
  const std::string weights = std::filesystem::absolute("tests/golden/weights/llama.gguf"),
                    folder = std::filesystem::absolute("tests/golden/lm_parity/models/llama_linear");
  const json shape = {{"family", "qwen2"},        {"vocab_size", 64},
                      {"hidden_size", 32},        {"intermediate_size", 64},
                      {"num_hidden_layers", 2},   {"num_attention_heads", 2},
                      {"num_key_value_heads", 1}, {"max_position_embeddings", 96},
                      {"rms_norm_eps", 1e-6}};
  const json base = {{"name", "base"},
                     {"batch", 1},
                     {"sequence", 80},
                     {"lora", {{"r", 2}, {"targets", {"q_proj"}}}},
                     {"optimizer", {{"name", "sgd"}}},
                     {"budget", 400000}};
  const auto with = [&](const json& model, const json& rest) {
    json value = base;
    value["model"] = model;
    value.update(rest);
    return value;
  };
  const std::string own =
      recipe(with(shape, {{"init", "random"}, {"sequence", 32}, {"optimizer", {{"name", "adamw"}}}}), "shape.json");
  const json data = {{"kind", "chat"}, {"path", "no"}};  // the shape has no tokenizer for this data
  const std::string rest =
      recipe(with({{"gguf", "no.gguf"}}, {{"init", {{"from", "no"}}}, {"data", data}}), "base.json");
  const json answer = json_answer({"fit", rest, "--table", "--json", "--models", weights, folder, own});
  EXPECT_EQ(keys_of(answer), (std::set<std::string>{"budget", "models", "seconds_rest_on"}));
  EXPECT_EQ(answer.at("budget"), 400000);
  const json& models = answer.at("models");
  ASSERT_EQ(models.size(), 3u);
  const int sequences[] = {16, 64, 80};  // 80, or the model's maximum if that is smaller
  const json recipes[] = {with({{"gguf", weights}}, {{"sequence", 16}}),
                          with({{"huggingface", folder}}, {{"sequence", 64}}), with(shape, {{"init", "random"}})};
  for (size_t m = 0; m < models.size(); ++m) {
    EXPECT_EQ(models[m].at("model"), (std::vector<std::string>{weights, folder, own})[m]);
    EXPECT_TRUE(models[m].at("reason").is_null()) << models[m];
    EXPECT_EQ(models[m].at("sequence"), sequences[m]);
    EXPECT_EQ(models[m].at("storage"),
              json_answer({"fit", recipe(recipes[m], "one.json"), "--table", "--json"}).at("storage"))
        << models[m].at("model");
  }
  EXPECT_EQ(models[2].at("storage")[0].at("sequence"), 96) << "all that the model takes, no multiple of 64";
}

// A model that cannot be planned must not stop the other models.
TEST_F(CommandLine, ATableOfModelsSaysWhyOneIsNotThere) {
  const std::string weights = "tests/golden/weights/llama.gguf", broken = folder_.file("broken.gguf");
  write_text(broken, "GGUG");
  const json base = {{"name", "base"},
                     {"model", {{"gguf", "no.gguf"}}},
                     {"batch", 1},
                     {"lora", {{"r", 2}, {"targets", {"q_proj"}}}},
                     {"optimizer", {{"name", "adafactor"}}},
                     {"budget", 400000}};
  const ProcessResult result = reprise_command({"fit", recipe(base), "--table", "--json", "--models", broken, weights,
                                                folder_.file("nosuch"), recipe(recipe_json(), "images.json")});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find(broken), std::string::npos) << result.err;
  const json models = json::parse(result.out).at("models");
  ASSERT_EQ(models.size(), 4u);
  const char* reasons[] = {"broken.gguf: must be a model", nullptr, "nosuch: cannot be opened",
                           "is no linear layer or convolution"};
  for (size_t m = 0; m < models.size(); ++m) {
    EXPECT_EQ(models[m].at("storage").empty(), reasons[m] != nullptr) << models[m];
    EXPECT_NE(models[m].at("reason").dump().find(reasons[m] != nullptr ? reasons[m] : "null"), std::string::npos)
        << models[m];
  }
  const ProcessResult text = reprise_command({"fit", recipe(base), "--table", "--models", broken, weights});
  EXPECT_EQ(text.status, 1);
  for (const char* words : {"must be a model", "as_stored", "longest T"})
    EXPECT_NE(text.out.find(words), std::string::npos) << words << text.out;

  const std::vector<std::string> too_little = {"fit",      recipe(base), "--table",  "--json",
                                               "--budget", "20000",      "--models", weights};
  const json none = json_answer(too_little, 3).at("models")[0];
  const uint64_t smallest = none.at("storage")[0].at("smallest_budget");
  EXPECT_NE(none.at("reason").get<std::string>().find("smallest budget"), std::string::npos) << none;
  EXPECT_GT(smallest, 20000u);
  json unbounded = base;
  unbounded.erase("budget");
  expect_refusal({"fit", recipe(unbounded), "--table", "--models", weights}, 1,
                 {"recipe.json", "budget", "--table needs one"});
  expect_refusal({"fit", recipe(base), "--models", weights}, 2, {"--models", "--table"});
}

// A refusal lists changes that need less memory. Each figure must equal what the changed recipe
// needs.
TEST_F(CommandLine, ARefusalProposesWhatHelps) {
  json large = recipe_json();
  large["batch"] = 16;
  const uint64_t minimum = json_answer({"fit", recipe(large), "--budget", "1GiB", "--json"})["smallest_budget"];
  std::set<std::string> changed;
  for (const uint64_t budget : {minimum - 256, minimum / 2, uint64_t{1024}}) {
    const std::string bytes = std::to_string(budget);
    const json answer = json_answer({"fit", recipe(large), "--budget", bytes, "--json"}, 3);
    ASSERT_GE(answer["proposals"].size(), 4u) << answer;
    const std::string line = reprise_command({"fit", recipe(large), "--budget", bytes}).err;
    EXPECT_EQ(reprise_command({"plan", recipe(large), "--budget", bytes, "-o", folder_.file("none")}).err, line)
        << "plan says the same";
    bool one_fits = false;
    for (const json& each : answer["proposals"]) {
      EXPECT_LT(each["smallest_budget"], minimum) << each;
      EXPECT_EQ(each["fits"], each["smallest_budget"] <= budget) << each;
      one_fits |= each["fits"] == true;
      json value = large;
      for (const auto& [key, other] : each["change"].items()) value[key] = other, changed.insert(key);
      const json again = json_answer({"fit", recipe(value, "changed.json"), "--budget", bytes, "--json"},
                                     each["fits"] == true ? 0 : 3);
      EXPECT_EQ(again["smallest_budget"], each["smallest_budget"]) << each;
      EXPECT_NE(line.find(bytes_text(each["smallest_budget"])), std::string::npos) << line;
    }
    EXPECT_EQ(one_fits, budget > 1024);
    EXPECT_EQ(line.find("(fits)") != std::string::npos, one_fits) << line;
  }
  EXPECT_EQ(changed, (std::set<std::string>{"batch", "dtype", "gradient_release", "optimizer"}));
  json released = recipe_json();
  released["gradient_release"] = true;
  EXPECT_EQ(reprise_command({"fit", recipe(released), "--budget", "1KiB"}).err.find("gradient_release"),
            std::string::npos);
}

TEST_F(CommandLine, FeatureMapBudget) {
  json value = recipe_json();
  value["feature_map_budget"] = "64MiB";
  const uint64_t smallest = json_answer({"fit", recipe(value), "--json"})["smallest_budget"];
  value["feature_map_budget"] = smallest;
  EXPECT_EQ(json_answer({"fit", recipe(value), "--json"})["fits"], true);
  const json rows = json_answer({"compare", recipe(value), "--json"})["rows"];
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                          [](const json& row) { return row["strategy"] == "optimal" && row["feasible"] == true; }));
  value["feature_map_budget"] = smallest - 256;
  const ProcessResult less = reprise_command({"fit", recipe(value), "--json"});
  EXPECT_EQ(less.status, 3);
  EXPECT_TRUE(less.is_one_line_with({"feature_map_budget", std::to_string(smallest)})) << less.err;
  EXPECT_EQ(json_answer({"fit", recipe(value), "--budget", "1GiB", "--json"})["fits"], true)
      << "--budget takes the place of feature_map_budget";
  value["budget"] = 1 << 20;
  expect_refusal({"fit", recipe(value)}, 1, {"recipe.json", "feature_map_budget"});
}

TEST_F(CommandLine, CompareListsEveryStrategy) {
  const json answer = json_answer({"compare", recipe(), "--budget", "700KiB", "--json"});
  EXPECT_EQ(keys_of(answer), (std::set<std::string>{"budget", "rows"}));
  EXPECT_EQ(answer["budget"], 700 << 10);
  std::set<std::string> strategies;
  for (const json& row : answer["rows"]) {
    EXPECT_TRUE(has_keys(row, {"strategy", "feasible", "peak_bytes", "packed_bytes", "extra_forward_cost",
                               "predicted_seconds"}))
        << row;
    strategies.insert(row["strategy"].get<std::string>());
    if (row["feasible"] == false) continue;
    EXPECT_LE(row["packed_bytes"], 700 << 10) << row;
    EXPECT_GE(row["packed_bytes"], row["peak_bytes"]) << row;
    EXPECT_GE(row["extra_forward_cost"], 0) << row;
  }
  for (const json& row : answer["rows"]) {
    const bool disk = row["strategy"] == "h-revolve" || row["strategy"] == "multistage";
    EXPECT_EQ(has_keys(row, {"disk_bytes", "disk_budget_bytes"}), disk) << row;
  }
  for (const char* strategy : {"none", "every-k", "sqrt", "revolve", "multistage", "h-revolve", "optimal"})
    EXPECT_EQ(strategies.count(strategy), 1u) << strategy;
  EXPECT_NE(reprise_command({"compare", recipe()}).out.find("optimal"), std::string::npos);
}

// The text below the table must explain a column, and recommend the strategy and the disk bytes of
// a row. A plan with these options must have the row's extra cost.
TEST_F(CommandLine, CompareExplainsItsColumnsAndTheDisk) {
  json value = recipe_json();
  value["model"]["units"] = {9, 9, 9};
  const std::string file = recipe(value);
  const std::string minimum =
      std::to_string(json_answer({"fit", file, "--budget", "1GiB", "--json"})["smallest_budget"].get<uint64_t>());
  const json rows = json_answer({"compare", file, "--budget", minimum, "--json"})["rows"];
  const auto row = std::find_if(rows.begin(), rows.end(), [](const json& each) {
    return each.value("disk_is_assumed", false) && each["feasible"] == true && each["disk_bytes"] > 0;
  });
  ASSERT_TRUE(row != rows.end()) << rows;
  const std::string strategy = (*row)["strategy"], bytes = std::to_string((*row)["disk_bytes"].get<uint64_t>());
  const std::string text = reprise_command({"compare", file, "--budget", minimum}).out;
  for (const std::string& words :
       {std::string("packed: the size of the arena"), "--schedule " + strategy + " --disk " + bytes + "`"}) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
  const ProcessResult plan = reprise_command(
      {"plan", file, "--budget", minimum, "--schedule", strategy, "--disk", bytes, "-o", folder_.file("advised")});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(json::parse(file_text(folder_.file("advised/manifest.json")))["extra_forward_cost"],
            (*row)["extra_forward_cost"]);
  EXPECT_NE(reprise_command({"compare", file, "--budget", "1KiB"}).out.find("reprise fit"), std::string::npos);
}

// A strategy that does not fit reports the budget that it needs. It must have a plan at this
// budget, and none with one byte less.
TEST_F(CommandLine, CompareSaysWhatAStrategyNeeds) {
  const std::string chain = folder_.file("chain.json");
  ASSERT_EQ(reprise_command({"chain", recipe(), "-o", chain}).status, 0);
  for (const std::string& file : {recipe(), chain}) {
    const json rows = json_answer({"compare", file, "--budget", "1KiB", "--json"})["rows"];
    const std::string text = reprise_command({"compare", file, "--budget", "1KiB"}).out;
    EXPECT_EQ(text.find("does not fit"), std::string::npos) << text;
    EXPECT_EQ(rows.size(), file == chain ? 9u : 13u);
    for (const json& row : rows) {
      ASSERT_TRUE(row["smallest_budget"].is_number()) << row;
      const uint64_t minimum = row["smallest_budget"];
      EXPECT_NE(text.find("needs " + bytes_text(minimum)), std::string::npos) << text;
      const auto at = [&](uint64_t budget) {
        const json again = json_answer({"compare", file, "--budget", std::to_string(budget), "--json"})["rows"];
        return *std::find_if(again.begin(), again.end(), [&](const json& other) {
          return other["strategy"] == row["strategy"] && other.value("policy", "") == row.value("policy", "");
        });
      };
      EXPECT_EQ(at(minimum)["feasible"], true) << row;
      EXPECT_LE(at(minimum)["packed_bytes"], minimum) << row;
      EXPECT_EQ(at(minimum)["smallest_budget"], nullptr);
      EXPECT_EQ(at(minimum - 1)["feasible"], false) << row;
    }
  }
}

// A policy does not keep a value that no backward row reads. So no policy needs more memory than
// storing everything.
TEST_F(CommandLine, NoPolicyTakesMoreThanStoringEverything) {
  const json rows = json_answer({"compare", "tools/recipes/tiny-gpt.json", "--budget", "1GiB", "--json"})["rows"];
  EXPECT_EQ(rows[0]["strategy"], "none");
  int policies = 0;
  for (const json& row : rows) {
    if (!row.contains("policy")) continue;
    ++policies;
    EXPECT_LE(row["peak_bytes"], rows[0]["peak_bytes"]) << row;
    if (row["policy"] == "attention-core") { EXPECT_LT(row["peak_bytes"], rows[0]["peak_bytes"]) << row; }
  }
  EXPECT_EQ(policies, 4);
}

// The rows for a chain file must equal the answers of `schedule` for each strategy.
TEST_F(CommandLine, CompareTakesChainFiles) {
  const std::string chain = folder_.file("chain.json");
  ASSERT_EQ(reprise_command({"chain", recipe(), "-o", chain}).status, 0);
  const json all = json_answer({"compare", chain, "--json"});
  for (const uint64_t budget : {all["budget"].get<uint64_t>(), all["budget"].get<uint64_t>() * 3 / 4}) {
    for (const json& row : json_answer({"compare", chain, "--budget", std::to_string(budget), "--json"})["rows"]) {
      const ProcessResult one = reprise_command(
          {"schedule", chain, "--memory", std::to_string(budget), "--strategy", row["strategy"], "--json"});
      const json answer = json::parse(one.out);
      EXPECT_EQ(row["feasible"], answer["feasible"]) << row;
      EXPECT_EQ(row["peak_bytes"], answer["peak_bytes"]) << row;
      EXPECT_EQ(row["packed_bytes"], answer["packed_bytes"]) << row;
    }
  }
  const json rows = json_answer({"compare", chain, "--json"})["rows"];
  EXPECT_EQ(rows[0]["strategy"], "none");
  EXPECT_EQ(rows[0]["extra_forward_cost"], 0);
  EXPECT_NE(reprise_command({"compare", chain}).out.find("policies are left out"), std::string::npos);
  expect_refusal({"compare", chain, "--sweep"}, 2, {"chain.json", "--sweep"});
  json broken = json::parse(file_text(chain));
  broken["links"][0].erase("tapes");
  write_text(folder_.file("broken.json"), broken.dump());
  expect_refusal({"compare", folder_.file("broken.json")}, 1, {"broken.json", "links[0]", "tapes"});
}

// The actions that `schedule --actions` writes must pass `schedule --check` with the same figures.
// The planner's tests contain mutants of schedules.
TEST_F(CommandLine, CheckProvesAndPricesASchedule) {
  const std::string chain = folder_.file("chain.json"), actions = folder_.file("actions.jsonl");
  ASSERT_EQ(reprise_command({"chain", recipe(), "-o", chain}).status, 0);
  const std::string minimum = json_answer({"schedule", chain, "--memory", "1GiB", "--json"})["smallest_memory"].dump();
  const json planned = json_answer({"schedule", chain, "--memory", minimum, "--actions", actions, "--json"});
  const json checked = json_answer({"schedule", chain, "--check", actions, "--memory", minimum, "--json"});
  EXPECT_EQ(keys_of(checked), (std::set<std::string>{"valid", "feasible", "actions", "makespan", "extra_forward_cost",
                                                     "peak_bytes", "packed_bytes", "move_bytes", "disk_bytes"}));
  EXPECT_EQ(checked["valid"], true);
  for (const char* key : {"feasible", "makespan", "peak_bytes", "packed_bytes", "move_bytes", "disk_bytes"})
    EXPECT_EQ(checked[key], planned[key]) << key;
  const json rows = json_answer({"compare", chain, "--budget", minimum, "--json"})["rows"];
  const json& optimal =
      *std::find_if(rows.begin(), rows.end(), [](const json& row) { return row["strategy"] == "optimal"; });
  EXPECT_EQ(checked["extra_forward_cost"], optimal["extra_forward_cost"]);
  const ProcessResult above = reprise_command(
      {"schedule", chain, "--check", actions, "--memory", std::to_string(std::stoull(minimum) - 1), "--json"});
  EXPECT_EQ(above.status, 3);
  EXPECT_TRUE(above.is_one_line_with({"actions.jsonl", "--memory"})) << above.err;
  EXPECT_EQ(json::parse(above.out)["feasible"], false);
  std::string text = file_text(actions);
  text.erase(0, text.find('\n') + 1);
  write_text(folder_.file("cut.jsonl"), text);
  expect_refusal({"schedule", chain, "--check", folder_.file("cut.jsonl")}, 1,
                 {"cut.jsonl: action 0 (line 1, ", "which is not live"});
  expect_refusal({"schedule", chain, "--check", folder_.file("nosuch.jsonl")}, 1, {"nosuch.jsonl"});
  expect_refusal({"schedule", chain, "--check", actions, "--strategy", "none"}, 2, {"--check", "--strategy"});
}

TEST_F(CommandLine, ChainGoesRoundToSchedule) {
  const std::string chain = folder_.file("chain.json");
  const ProcessResult written = reprise_command({"chain", recipe(), "-o", chain});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, "");
  json value = json::parse(file_text(chain));
  EXPECT_EQ(value["written_by"], "reprise chain") << "a file has the mark by which it may be replaced";
  value.erase("written_by");
  EXPECT_EQ(json::parse(reprise_command({"chain", recipe()}).out), value);
  EXPECT_EQ(keys_of(value), (std::set<std::string>{"input_bytes", "links"}));
  for (const json& link : value["links"]) {
    EXPECT_EQ(keys_of(link), (std::set<std::string>{"name", "forward_cost", "boundary_bytes", "forward_scratch_bytes",
                                                    "tapes", "residues"}));
  }
  EXPECT_EQ(value["links"].back()["boundary_bytes"], 0);
  const std::string actions = folder_.file("actions.jsonl");
  const json answer = json_answer({"schedule", chain, "--memory", "1MiB", "--actions", actions, "--json"});
  EXPECT_TRUE(has_keys(answer, {"feasible", "makespan", "peak_bytes", "packed_bytes", "move_bytes", "solve_seconds"}));
  EXPECT_EQ(answer["packed_bytes"], answer["peak_bytes"]);
  EXPECT_NE(file_text(actions), "");
  const uint64_t smallest = answer["smallest_memory"];
  const ProcessResult less = reprise_command({"schedule", chain, "--memory", std::to_string(smallest - 1), "--json"});
  EXPECT_EQ(less.status, 3);
  EXPECT_EQ(json::parse(less.out)["feasible"], false);
  EXPECT_TRUE(less.is_one_line_with({"chain.json", "--memory", std::to_string(smallest)})) << less.err;
  EXPECT_EQ(json_answer({"schedule", chain, "--memory", std::to_string(smallest), "--json"})["feasible"], true);
}

TEST_F(CommandLine, ADiskUnderTheMemory) {
  json value = recipe_json();
  value["model"]["units"] = {3, 3, 3};
  const std::string chain = folder_.file("chain.json"), actions = folder_.file("actions.jsonl");
  EXPECT_EQ(reprise_command({"chain", recipe(value), "-o", chain}).status, 0);
  const std::string minimum =
      std::to_string(json_answer({"schedule", chain, "--memory", "1GiB", "--json"})["smallest_memory"].get<uint64_t>());
  const json without = json_answer({"schedule", chain, "--memory", minimum, "--strategy", "h-revolve", "--json"});
  const json with = json_answer({"schedule", chain, "--memory", minimum, "--strategy", "h-revolve", "--disk", "1MiB",
                                 "--write-cost", "0.1", "--read-cost", "0.1", "--actions", actions, "--json"});
  EXPECT_EQ(without["disk_bytes"], 0);
  EXPECT_GT(with["disk_bytes"], 0);
  EXPECT_LT(with["makespan"], without["makespan"]);
  EXPECT_EQ(with["packed_bytes"], with["peak_bytes"]);
  EXPECT_NE(file_text(actions).find("{\"action\":\"read\",\"boundary\":"), std::string::npos) << file_text(actions);
  expect_refusal({"schedule", chain, "--memory", minimum, "--disk", "1MiB"}, 1, {"disk", "\"optimal\""});
  expect_refusal({"schedule", chain, "--memory", minimum, "--strategy", "h-revolve", "--read-cost", "1"}, 2,
                 {"--read-cost", "--disk"});
  expect_refusal({"schedule", chain, "--memory", minimum, "--strategy", "h-revolve", "--disk", "1MiB", "--write-cost",
                  "-1"},
                 1, {"--write-cost"});
  value["schedule"] = {{"strategy", "h-revolve"}, {"disk", "1MiB"}, {"write_cost", 0.1}, {"read_cost", 0.1}};
  value["budget"] = json_answer({"fit", recipe(value), "--budget", "1GiB", "--json"})["smallest_budget"];
  EXPECT_EQ(reprise_command({"plan", recipe(value), "-o", folder_.file("out")}).status, 0);
  const json manifest = json::parse(file_text(folder_.file("out/manifest.json")));
  EXPECT_EQ(manifest["regions"].back()["name"], "disk");
  EXPECT_GT(manifest["regions"].back()["planned_bytes"], 0);
  EXPECT_FALSE(manifest["disk"].empty());
  EXPECT_NE(reprise_command({"audit", folder_.file("out/manifest.json")}).out.find("blocks on disk"),
            std::string::npos);
  EXPECT_EQ(json_answer({"schedule", chain, "--memory", minimum, "--strategy", "h-revolve", "--disk", "0",
                         "--json"})["disk_bytes"],
            0);
  expect_refusal({"plan", recipe(value), "--schedule", "optimal", "--disk", "1MiB", "-o", folder_.file("out")}, 1,
                 {"--disk: "});
}

TEST_F(CommandLine, MemoryOfTheHostIsASecondLevelToo) {
  json value = recipe_json();
  value["model"]["units"] = {3, 3, 3};
  value["schedule"] = {{"strategy", "h-revolve"}, {"host", "1MiB"}, {"write_cost", 0.1}, {"read_cost", 0.1}};
  value["budget"] = json_answer({"fit", recipe(value), "--budget", "1GiB", "--json"})["smallest_budget"];
  const uint64_t fitted = json_answer({"fit", recipe(value), "--json"})["host_bytes"];
  const ProcessResult planned = reprise_command({"plan", recipe(value), "-o", folder_.file("out")});
  EXPECT_EQ(planned.status, 0) << planned.err;
  EXPECT_NE((planned.out + planned.err).find("on the host"), std::string::npos) << planned.out;
  EXPECT_NE((planned.out + planned.err).find("nothing is saved"), std::string::npos) << "a CPU's memory is the host's";
  json manifest = json::parse(file_text(folder_.file("out/manifest.json")));
  EXPECT_EQ(manifest["regions"].back()["name"], "host");
  EXPECT_EQ(manifest["regions"].back()["planned_bytes"], fitted);
  EXPECT_GT(fitted, 0u);
  EXPECT_FALSE(manifest["host"].empty());
  EXPECT_FALSE(manifest.contains("disk"));
  EXPECT_NE(reprise_command({"audit", folder_.file("out/manifest.json")}).out.find("blocks on the host"),
            std::string::npos);
  EXPECT_NE(reprise_command({"rows", folder_.file("out/manifest.json")}).out.find("host:layer"), std::string::npos);
  EXPECT_EQ(reprise_command({"audit", folder_.file("out/manifest.json"), "--html", folder_.file("page.html")}).status,
            0);
  manifest["disk"] = manifest["host"];
  write_text(folder_.file("both.json"), manifest.dump());
  expect_refusal({"audit", folder_.file("both.json")}, 1, {"both.json: host", "one of the two"});
  expect_refusal({"plan", recipe(value), "--disk", "1MiB", "-o", folder_.file("out")}, 1,
                 {"schedule.host", "one of the two"});
  expect_refusal({"fit", recipe(value), "--board", "tools/boards/raspberry-pi-5-8gb.json"}, 1,
                 {"schedule.host", "Raspberry", "one memory"});
  value["schedule"] = {{"strategy", "policy"}, {"policy", "offload:layer1.*,layr2.0"}, {"host", "1MiB"}};
  expect_refusal({"plan", recipe(value), "--budget", "1GiB", "-o", folder_.file("out")}, 1,
                 {"schedule.policy", "\"layr2.0\"", "layer1.0"});
}

TEST_F(CommandLine, UnitChains) {
  const auto revolve = [&](const char* steps, const char* slots) {
    return json_answer({"schedule", "--steps", steps, "--slots", slots, "--strategy", "revolve", "--json"})
        .value("extra_forwards", -1);
  };
  EXPECT_EQ(revolve("10", "3"), 15);
  EXPECT_EQ(revolve("1000", "10"), 3636);
  EXPECT_EQ(json_answer({"schedule", "--steps", "10", "--ram", "1", "--disk", "1", "--write-cost", "2", "--read-cost",
                         "2", "--strategy", "h-revolve", "--json"})["makespan"],
            37);
}

TEST_F(CommandLine, Pack) {
  const std::string problem = "tests/data/minimalloc/A.1048576.csv", packed = folder_.file("out.csv");
  const json answer = json_answer({"pack", problem, "--capacity", "1048576", "-o", packed, "--json"});
  EXPECT_TRUE(has_keys(answer, {"feasible", "packed", "lower_bound", "seconds"}));
  EXPECT_EQ(answer["feasible"], true);
  EXPECT_LE(answer["packed"], 1048576);
  EXPECT_NE(file_text(packed).find("offset"), std::string::npos);
  write_text(folder_.file("two.csv"), "id,lower,upper,size\na,0,2,6\nb,1,3,6\n");
  const ProcessResult tight = reprise_command({"pack", folder_.file("two.csv"), "--capacity", "11", "--json"});
  EXPECT_EQ(tight.status, 3) << tight.err;
  EXPECT_EQ(json::parse(tight.out)["feasible"], false);
  expect_refusal({"pack", folder_.file("none.csv")}, 1, {"none.csv"});
  expect_refusal({"pack", problem, "-o", "/dev/full"}, 1, {"/dev/full"});
  expect_refusal({"pack", problem, "--capacity", "0"}, 2, {"--capacity"});
}

TEST_F(CommandLine, Doctor) {
  const json answer = json_answer({"doctor", "--json"});
  EXPECT_TRUE(has_keys(answer, {"processor", "processors", "kernel_set", "memory_bytes", "available_bytes",
                                "swap_free_bytes", "board", "cuda_device"}));
  EXPECT_TRUE(has_keys(answer["board"], {"swap_bytes", "oom_score_adj", "power_mode", "throttled_by"}));
  EXPECT_GE(answer["processors"], 1);
  const ProcessResult text = reprise_command({"doctor"});
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find(answer["kernel_set"].get<std::string>()), std::string::npos);
}

TEST_F(CommandLine, TokenizeAndDetokenize) {
  write_text(folder_.file("tokenizer.json"), R"({"added_tokens": [{"id": 4, "content": "<s>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"]}})");
  const auto piped = [&](const std::string& input, const std::string& arguments) {
    write_text(folder_.file("input"), input);
    return run({"/bin/sh", "-c", build_folder() + "/reprise " + arguments + " <" + folder_.file("input")});
  };
  const std::string model = " " + folder_.path();
  EXPECT_EQ(json::parse(piped("ab a<s>", "tokenize --json" + model).out), (json{{"ids", {2, 3, 0}}}));
  EXPECT_EQ(json::parse(piped("ab a<s>", "tokenize --json --special" + model).out), (json{{"ids", {2, 3, 0, 4}}}));
  EXPECT_EQ(piped("ab a<s>", "tokenize --special" + model).out, "2 3 0 4\n");
  EXPECT_EQ(piped("", "tokenize" + model).out, "\n");
  for (const char* ids : {"[2, 3, 0, 4]", R"({"ids": [2, 3, 0, 4]})", "2 3 0 4\n"}) {
    EXPECT_EQ(json::parse(piped(ids, "detokenize --json" + model).out), (json{{"text", "ab a<s>"}})) << ids;
    EXPECT_EQ(piped(ids, "detokenize" + model).out, "ab a<s>") << ids;
  }
  const struct {
    std::string input, command, word;
  } refused[] = {{"a\xff", "tokenize", "byte 1"},
                 {"[7]", "detokenize", "id 7"},
                 {"[-1]", "detokenize", "-1"},
                 {"[1", "detokenize", "JSON"},
                 {"\"a\"", "detokenize", "list of ids"}};
  for (const auto& [input, command, word] : refused) {
    const ProcessResult result = piped(input, command + model);
    EXPECT_EQ(result.status, 1) << input;
    EXPECT_TRUE(result.is_one_line_with({word})) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST_F(CommandLine, NameAndHelp) {
  EXPECT_EQ(reprise_command({"name", recipe()}).out, "rn\n");
  const std::string help = reprise_command({"--help"}).out;
  for (const char* command : {"plan", "fit", "compare", "chain", "schedule", "pack", "audit", "doctor", "name",
                              "recipe", "parameters", "tokenize", "detokenize", "rows", "kernels"}) {
    EXPECT_NE(help.find(std::string("\n  ") + command), std::string::npos) << command;
    const ProcessResult own = reprise_command({command, "--help"});
    EXPECT_EQ(own.status, 0) << command;
    EXPECT_EQ(own.err, "") << command;
    EXPECT_NE(own.out.find("Usage: reprise " + std::string(command)), std::string::npos) << own.out;
  }
}

TEST_F(CommandLine, UsageErrorsExitWithTwo) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "subcommand"},
      {{"frob"}, "frob"},
      {{"plan"}, "RECIPE"},
      {{"plan", recipe()}, "--output"},
      {{"fit", recipe(), "--nope"}, "--nope"},
      {{"fit", recipe(), "--budget"}, "--budget"},
      {{"fit", recipe(), "extra"}, "extra"},
      {{"fit", recipe(), "--k", "0"}, "--k"},
      {{"fit", recipe(), "--k", "x"}, "--k"},
      {{"schedule"}, "CHAIN"},
      {{"schedule", "c.json"}, "--memory"},
      {{"schedule", "c.json", "--steps", "4"}, "--steps"},
      {{"schedule", "--steps", "-1", "--slots", "3"}, "--steps"},
      {{"schedule", "--steps", "5", "--slots", "-1", "--strategy", "revolve"}, "--slots"},
      {{"schedule", "--steps", "5", "--strategy", "revolve"}, "--slots"},
      {{"schedule", "c.json", "--memory", "1", "--unit", "-5"}, "--unit"},
      {{"name"}, "RECIPE"},
      {{"doctor", "x"}, "x"}};
  for (const auto& [arguments, fragment] : cases) expect_refusal(arguments, 2, {fragment});
}

TEST_F(CommandLine, NothingIsWrittenOverAnInputOrAForeignFile) {
  const std::string file = recipe(), text = file_text(file);
  std::filesystem::create_symlink(file, folder_.file("link.json"));
  for (const std::string& same : {file, folder_.file("link.json")}) {
    expect_refusal({"chain", file, "-o", same}, 1, {same, "the input itself"});
    expect_refusal({"compare", file, "--sweep", "--svg", same}, 1, {same, "the input itself"});
    expect_refusal({"profile", file, "-o", same}, 1, {same, "the input itself"});
  }
  EXPECT_EQ(file_text(file), text);
  EXPECT_EQ(reprise_command({"chain", file, "-o", folder_.file("chain.json")}).status, 0);
  const std::string chain = file_text(folder_.file("chain.json"));
  expect_refusal({"schedule", folder_.file("chain.json"), "--memory", "1GiB", "--actions", folder_.file("chain.json")},
                 1, {"chain.json", "the input itself"});
  expect_refusal({"profile", file, "-o", folder_.file("chain.json")}, 1, {"chain.json"});
  EXPECT_EQ(file_text(folder_.file("chain.json")), chain);
  write_text(folder_.file("p.csv"), "id,lower,upper,size\n0,0,2,4\n");
  expect_refusal({"pack", folder_.file("p.csv"), "-o", folder_.file("p.csv")}, 1, {"p.csv", "the input itself"});
  write_text(folder_.file("out.csv.tmp"), "years");
  EXPECT_EQ(reprise_command({"pack", folder_.file("p.csv"), "-o", folder_.file("out.csv")}).status, 0);
  EXPECT_EQ(file_text(folder_.file("out.csv.tmp")), "years");
}

TEST_F(CommandLine, BytesAreCheckedLoudly) {
  for (const char* budget : {"0", "9223372036854775808", "7XB", "-1", "1.5", "", "1e6", "0x10", " 5MiB", "5  MiB"}) {
    expect_refusal({"fit", recipe(), std::string("--budget=") + budget}, *budget == 0 ? 2 : 1, {"--budget"});
    expect_refusal({"schedule", "c.json", std::string("--memory=") + budget}, *budget == 0 ? 2 : 1,
                   {*budget == 0 ? "--memory" : ""});
    if (*budget == 0) continue;
    json value = recipe_json();
    value["budget"] = budget;
    expect_refusal({"fit", recipe(value)}, 1, {"recipe.json", "budget"});
  }
  EXPECT_EQ(json_answer({"fit", recipe(), "--budget", "9223372036854775807", "--json"})["fits"], true);
  EXPECT_EQ(json_answer({"fit", recipe(), "--budget", "7 GiB", "--json"})["fits"], true);
  expect_refusal({"fit", recipe()}, 1, {"recipe.json", "budget"});
}

// Planning for a card does not need a card, because the backend's rules suffice.
TEST_F(CommandLine, PlansForCudaOnAnyMachine) {
  json value = recipe_json();
  value["backend"] = "cuda";
  const ProcessResult plan = reprise_command({"plan", recipe(value), "-o", folder_.file("p")});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_EQ(plan.err.find("has no kernel yet"), std::string::npos) << plan.err;
  const std::string header = file_text(folder_.file("p/plan.h"));
  EXPECT_NE(header.find("#include \"cuda/cuda_rules.h\""), std::string::npos);
  EXPECT_NE(header.find("(kPlan, kCudaRules)"), std::string::npos);
  expect_refusal({"profile", recipe(value), "-o", folder_.file("profile.json")}, 1, {"recipe.json", "backend", "cpu"});
}

// "auto" makes a plan for each backend from one recipe. Each plan has its own namespace, so one
// program can contain both.
TEST_F(CommandLine, PlansForTheCpuAndForACard) {
  json value = recipe_json();
  value["backend"] = "auto";
  const std::string file = recipe(value);
  const ProcessResult plan = reprise_command({"plan", file, "-o", folder_.file("p")});
  ASSERT_EQ(plan.status, 0) << plan.err;
  const std::string cpu = file_text(folder_.file("p/plan.h")), card = file_text(folder_.file("p/cuda/plan.h"));
  EXPECT_NE(cpu.find("namespace reprise::generated {"), std::string::npos);
  EXPECT_NE(cpu.find("(kPlan, kCpuRules)"), std::string::npos);
  EXPECT_NE(card.find("namespace reprise::generated_cuda {"), std::string::npos);
  EXPECT_NE(card.find("(kPlan, kCudaRules)"), std::string::npos);
  EXPECT_NE(file_text(folder_.file("p/cuda/manifest.json")), "");
  for (const char* backend : {"cpu", "cuda", "auto"}) {
    value["backend"] = backend;
    EXPECT_EQ(reprise_command({"name", "--backend", recipe(value)}).out, std::string(backend) + "\n");
  }
}

// `reprise train` also checks the arguments of the training program. It does this before it plans
// or compiles.
TEST_F(CommandLine, TrainNamesItsArgumentsAndTheProgramsApart) {
  const ProcessResult help = reprise_command({"train", "--help"});
  EXPECT_EQ(help.status, 0) << help.err;
  const size_t behind = help.out.find("options of the training program");
  ASSERT_NE(behind, std::string::npos) << help.out;
  for (const char* option : {"--budget", "--profile"}) EXPECT_LT(help.out.find(option), behind) << option;
  for (const char* option : {"--steps", "--save", "--resume", "--evaluate", "--quiet"}) {
    EXPECT_NE(help.out.find(option, behind), std::string::npos) << option;
  }
  const std::string file = recipe();
  const auto refuses = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
    arguments.insert(arguments.begin(), {"train", file});
    ProcessOptions options;
    options.environment = {"XDG_CACHE_HOME=" + folder_.file("cache")};
    const ProcessResult result = reprise_command(arguments, options);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_TRUE(result.is_one_line_with(words)) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_.file("cache")));
  };
  refuses({"--nope"}, {"reprise train: ", "--nope", "see reprise train --help"});
  refuses({"--stepz", "3"}, {"not expected: --stepz 3; see reprise train --help"});
  refuses({"--steps", "none"}, {"reprise train: ", "--steps", "see reprise train --help"});
  refuses({"--steps", "2", "--budget", "1GiB"},
          {"--budget: must stand before --steps", "training program", "see reprise train --help"});
  refuses({"--save", "--quiet"}, {"--save: needs a value before --quiet"});
  refuses({"--check-data", "--steps", "2"}, {"--steps: has no effect with --check-data"});
}

TEST_F(CommandLine, SlipsOfTheFingerAreAnsweredWithWhatWasMeant) {
  const std::string file = recipe();
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"paln", file}, "did you mean plan?"},
      {{"trian", file}, "did you mean train?"},
      {{"fti", file}, "did you mean fit?"},
      {{"--verison"}, "did you mean --version?"},
      {{"fit", file, "--bugdet", "1GiB"}, "did you mean --budget?"},
      {{"fit", file, "--borad=stm32f746"}, "did you mean --board?"},
      {{"audit", file, "--max-grwoth", "1", "--markdwon"}, "did you mean --max-growth?; did you mean --markdown?"},
      {{"export", file, "--snapshto", "s", "--adapter", "a"},
       "not expected: --snapshto s; see reprise export --help; did you mean --snapshot?"},
      {{"schedule", "--steps", "4", "--strateggy", "sqrt", "--memory", "9"}, "did you mean --strategy?"},
      {{"train", file, "--stesp", "3"}, "did you mean --steps?"},
      {{"train", file, "--bugdet", "1GiB"}, "did you mean --budget?"},
      {{"export", file, "--snapshot", "s", "--merged-gguf", "g", "--type", "q4k"}, "did you mean q4_k?"}};
  for (const auto& [arguments, words] : cases) {
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, 2) << words;
    EXPECT_TRUE(result.is_one_line_with({words})) << result.err;
  }
  EXPECT_EQ(reprise_command({"fit", file, "--colour"}).err.find("did you mean"), std::string::npos)
      << "nothing is near";
  EXPECT_EQ(reprise_command({"quantise", file}).err.find("did you mean"), std::string::npos);
}

TEST_F(CommandLine, TheVersionIsThePackages) {
  const std::string package = file_text("lib/reprise.pc.in");
  const size_t at = package.find("Version: ") + 9;
  const std::string version = package.substr(at, package.find('\n', at) - at);
  const ProcessResult result = reprise_command({"--version"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out, "reprise: reprise " + version + ", plan format " + std::to_string(kPlanFormat) + "\n");
}

TEST_F(CommandLine, ExportsOptionsOfAMergeGoWithAMerge) {
  const std::string file = recipe();
  const auto refuses = [&](std::vector<std::string> arguments, const std::vector<std::string>& words) {
    arguments.insert(arguments.begin(), {"export", file, "--snapshot", folder_.file("s")});
    expect_refusal(arguments, 2, words);
  };
  refuses({"--adapter", folder_.file("a"), "--base", folder_.file("w")}, {"--base: is for --merged and --merged-gguf"});
  refuses({"--adapter-gguf", folder_.file("a"), "--type", "q4_k"}, {"--type: is for --merged and --merged-gguf"});
  refuses({"--merged-gguf", folder_.file("a"), "--type", "q4_1"}, {"--type", "q4_0", "q4_k"});
}

TEST_F(CommandLine, BadRecipes) {
  const auto expect = [&](const char* pointer, const json& bad, const std::vector<std::string>& fragments) {
    json value = recipe_json();
    value[json::json_pointer(pointer)] = bad;
    expect_refusal({"plan", recipe(value), "-o", folder_.file("p")}, 1, fragments);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("p"))) << pointer;
  };
  expect("/batchs", 4, {"recipe.json", "batchs", "batch"});
  expect("/model/widht", 4, {"recipe.json", "model.widht", "width"});
  expect("/batch", "four", {"recipe.json", "batch"});
  expect("/batch", 0, {"recipe.json", "batch"});
  expect("/batch", 4.5, {"recipe.json", "batch"});
  expect("/model/units", "3", {"recipe.json", "model.units"});
  expect("/model/units", json::array({1}), {"recipe.json", "model.units"});
  expect("/model/image", json::array({0, 12, 3}), {"recipe.json", "model.image"});
  expect("/model/image", json::array({12, 12}), {"recipe.json", "model.image"});
  expect("/model/family", "vgg", {"recipe.json", "model.family"});
  expect("/batch", 2000000000, {"recipe.json", "batch"});
  expect("/optimizer/lr", -1, {"recipe.json", "optimizer.lr"});
  expect("/optimizer/betas", json::array({0.9, 0.99}), {"recipe.json", "optimizer.betas"});
  expect("/schedule", "optimum", {"recipe.json", "schedule", "optimal"});
  expect("/dtype", "f16", {"recipe.json", "dtype"});
  expect("/backend", "gpu", {"recipe.json", "backend", "cuda"});
  expect("/freeze", json::array({"conv1.*", "nothing*"}), {"recipe.json: freeze[1]: ", "nothing*", "(line 1, column "});
  expect("/freeze", json::array({"*"}), {"recipe.json: freeze: ", "leave one", "(line 1, column "});
  expect("/optimizer/no_decay", json::array({"nothing*"}),
         {"recipe.json: optimizer.no_decay[0]: ", "nothing*", "(line 1, column "});
  expect("/init", {{"from", "w.safetensors"}, {"skip", {"head.*"}}},
         {"recipe.json: init.skip[0]: ", "head.*", "matches no tensor", "(line 1, column "});
  expect("/lora", json::object(), {"recipe.json", "lora"});
  expect("/sequence", 5, {"recipe.json", "sequence"});
  expect("/data", {{"kind", "text"}, {"path", "x"}}, {"recipe.json", "data.kind"});
  expect("/name", "../evil", {"recipe.json", "name"});
  json gpt = {{"model", {{"family", "gpt2"}, {"n_embd", 10}, {"n_head", 3}}},
              {"batch", 1},
              {"data", {{"kind", "synthetic"}}}};
  expect_refusal({"plan", recipe(gpt), "-o", folder_.file("p")}, 1, {"recipe.json", "n_head"});
  const std::string good = recipe();
  const std::pair<std::vector<std::string>, std::string> options[] = {{{"--strategy", "best"},
                                                                       "--strategy: must be one of"},
                                                                      {{"--strategy", "policy"}, "--policy: missing"},
                                                                      {{"--policy", "dots"}, "--policy: goes with"}};
  for (const auto& [option, words] : options) {
    std::vector<std::string> arguments = {"plan", good, "-o", folder_.file("p")};
    arguments.insert(arguments.end(), option.begin(), option.end());
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(result.is_one_line_with({words})) << result.err;
    EXPECT_EQ(result.err.find("recipe.json"), std::string::npos) << "the recipe is not to blame: " << result.err;
  }
  gpt["model"] = {{"huggingface", folder_.file("nowhere")}};
  expect_refusal({"plan", recipe(gpt), "-o", folder_.file("p")}, 1,
                 {"recipe.json", "model.huggingface", "config.json"});
  for (const char* text : {"", "{", "[]", "{\"batch\": 4", "\xff\xfe"}) {
    write_text(folder_.file("bad.json"), text);
    expect_refusal({"plan", folder_.file("bad.json"), "-o", folder_.file("p")}, 1, {"bad.json"});
  }
  expect_refusal({"plan", folder_.file("absent.json"), "-o", folder_.file("p")}, 1, {"absent.json"});
  expect_refusal({"plan", folder_.path(), "-o", folder_.file("p")}, 1, {folder_.path()});
}

TEST_F(CommandLine, OutputThatCannotBeWritten) {
  expect_refusal({"plan", recipe(), "-o", "/proc/reprise/p"}, 1, {"/proc/reprise"});
  expect_refusal({"plan", recipe(), "-o", "/dev/null"}, 1, {"/dev/null"});
  expect_refusal({"plan", recipe(), "-o", ""}, 1, {"--output"});
  expect_refusal({"chain", recipe(), "-o", "/dev/full"}, 1, {"/dev/full"});
  ProcessOptions full_disk;
  full_disk.largest_file_bytes = 8192;
  full_disk.environment = {"LC_ALL=C"};
  const ProcessResult result = reprise_command({"plan", recipe(), "-o", folder_.file("p")}, full_disk);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(result.is_one_line_with({"manifest.json", "written"})) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder_.file("p"))) << "nothing half-written";
  const ProcessResult redirected =
      run({"/bin/sh", "-c", build_folder() + "/reprise chain " + recipe() + " >/dev/full"});
  EXPECT_EQ(redirected.status, 1);
  EXPECT_TRUE(redirected.is_one_line_with({"stdout"})) << redirected.err;
}

}  // namespace
}  // namespace reprise::test
