// Tests what a training program measures: --manifest against the plan's own figures, and --trace.
// Each figure is compared with the plan, with the log, or with another program that reads the file.
// The nets are small. Their plans differ as much as possible: a tight budget, several
// micro-batches, a spill file.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "tests/interfaces/trace_processor.h"
#include "tests/runtime/programs/train_program.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json resnet() {
  return json::parse(
      R"({"name": "measured-resnet", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 4,
    "image": [8, 8, 1]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 6, "evaluate_every": 3, "seed": 5,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}})");
}

json gpt() {
  return json::parse(
      R"({"name": "measured-gpt", "model": {"family": "gpt2", "vocab_size": 64, "n_positions": 16, "n_embd": 16, "n_layer": 3, "n_head": 2},
    "data": {"kind": "synthetic"}, "batch": 2, "accumulate": 3, "steps": 6, "clip_norm": 1.0, "seed": 9, "optimizer": {"name": "adamw", "lr": 0.003}})");
}

json spilling(const std::string& name, const char* level) {
  json recipe =
      with(resnet(),
           {{"name", name},
            {"model", {{"units", {3, 3, 3}}}},
            {"schedule", {{"strategy", "h-revolve"}, {level, "1MiB"}, {"write_cost", 0.1}, {"read_cost", 0.1}}}});
  recipe["budget"] = smallest_budget(recipe);
  return recipe;
}

std::string resnet_stored() { return train_program("measured-stored", with(resnet(), {{"schedule", "none"}})); }
std::string resnet_tight() {
  return train_program("measured-tight", with(resnet(), {{"budget", smallest_budget(resnet())}}));
}
std::string gpt_tight() { return train_program("measured-gpt", with(gpt(), {{"budget", smallest_budget(gpt())}})); }
std::string resnet_spilling() { return train_program("measured-spill", spilling("measured-spill", "disk")); }
std::string resnet_on_host() { return train_program("measured-host", spilling("measured-host", "host")); }
std::vector<std::string> programs() {
  return {resnet_stored(), resnet_tight(), gpt_tight(), resnet_spilling(), resnet_on_host()};
}

json manifest_of(const std::string& program) {
  return json::parse(file_text(fs::path(program).parent_path() / "manifest.json"));
}

const json* program_named(const json& manifest, const std::string& name) {
  for (const json& program : manifest["programs"]) {
    if (program["name"] == name) return &program;
  }
  return nullptr;
}

// Returns the names of the programs of a step in order: "micro_first", "micro_add" once for each
// further micro-batch, "update".
std::vector<std::string> programs_of_step(const json& manifest) {
  std::vector<std::string> names;
  for (const json& program : manifest["programs"]) {
    for (uint64_t n = 0; n < program["times"]; ++n) names.push_back(program["name"]);
  }
  return names;
}

struct Slice {
  uint64_t queue;
  double start, seconds;
  json event;
};

// The parts of a trace that these tests read: the rows of each process in order, the steps, and the
// values of the counter of live bytes.
struct Trace {
  explicit Trace(const std::string& path) : all(json::parse(file_text(path))) {
    for (const json& event : all["traceEvents"]) {
      if (event["ph"] == "C") live.push_back(event["args"]["live bytes"]);
      if (event["ph"] != "X") continue;
      const Slice slice = {event["tid"], 1e-6 * event["ts"].get<double>(), 1e-6 * event["dur"].get<double>(), event};
      (event["cat"] == "step" ? steps : rows[event["pid"]]).push_back(slice);
    }
  }

  json all;
  std::vector<Slice> steps;
  std::map<uint64_t, std::vector<Slice>> rows;
  std::vector<uint64_t> live;
};

class MeasuredRun : public TrainProgram {
 protected:
  json measured_by(const std::string& program, Arguments arguments) {
    arguments.insert(arguments.end(), {"--manifest", at("m.json")});
    quietly(program, arguments);
    const json manifest = json::parse(file_text(at("m.json")));
    json before = manifest;
    before["measured"] = json::object();
    EXPECT_EQ(before, manifest_of(program)) << "the plan's part is the plan's";
    return manifest["measured"];
  }
  // Copies the program to a folder and writes `manifest` next to it; writes none if `manifest` is
  // null. Returns the path of the copy.
  std::string elsewhere(const std::string& program, const json& manifest) {
    fs::create_directories(at("elsewhere"));
    fs::copy(program, at("elsewhere/train"), fs::copy_options::overwrite_existing);
    if (!manifest.is_null()) write_text(at("elsewhere/manifest.json"), manifest.dump());
    return at("elsewhere/train");
  }
};

TEST_F(MeasuredRun, HighWaterIsThePlans) {
  for (const std::string& program : programs()) {
    const json manifest = manifest_of(program), measured = measured_by(program, {});
    std::map<std::string, uint64_t> high_water;
    for (const json& region : measured["regions"]) high_water[region["name"]] = region["high_water_bytes"];
    size_t planned = 0;
    for (const json& region : manifest["regions"]) {
      if (region["name"] == "disk") continue;
      if (region["name"] == "evaluate" && high_water.count("evaluate") == 0) continue;  // the recipe has no evaluation
      ++planned;
      ASSERT_EQ(high_water.count(region["name"]), 1u) << program << " " << region;
      EXPECT_EQ(high_water[region["name"]], region["planned_bytes"]) << program << " " << region["name"];
    }
    EXPECT_EQ(high_water.size(), planned) << measured["regions"];
  }
}

TEST_F(MeasuredRun, AuditShowsWhatWasMeasured) {
  measured_by(resnet_tight(), {});
  ProcessResult shown = reprise_command({"audit", at("m.json")});
  EXPECT_EQ(shown.status, 0) << shown.err;
  for (const char* words : {"measured in a run of 6 steps", "a step: ", "the whole process: "})
    EXPECT_NE(shown.out.find(words), std::string::npos) << words;
  EXPECT_EQ(shown.out.find("MORE THAN PLANNED"), std::string::npos);
  json manifest = json::parse(file_text(at("m.json")));
  manifest["measured"]["regions"][0]["high_water_bytes"] = manifest["regions"][0]["planned_bytes"].get<uint64_t>() + 1;
  write_text(at("more.json"), manifest.dump());
  shown = reprise_command({"audit", at("more.json")});
  EXPECT_NE(shown.out.find("MORE THAN PLANNED"), std::string::npos) << shown.out;
  EXPECT_EQ(reprise_command({"audit", (fs::path(resnet_tight()).parent_path() / "manifest.json").string()})
                .out.find("measured in"),
            std::string::npos);
}

TEST_F(MeasuredRun, TheProcessItsStacksItsHeapAndItsSteps) {
  for (const std::string& program : programs()) {
    fs::remove(at("log.jsonl"));
    const json manifest = manifest_of(program),
               measured = measured_by(program, {"--threads", "2", "--log", at("log.jsonl"), "--trace", at("t.json")});
    EXPECT_EQ(measured["steps"], 6);
    EXPECT_GT(measured["process_peak_bytes"], manifest["planned_bytes"]);
    std::vector<double> seconds;
    for (const json& line : read_log(at("log.jsonl")).lines) {
      if (line.contains("seconds") && line["step"] > 1) seconds.push_back(line["seconds"]);
    }
    std::sort(seconds.begin(), seconds.end());
    EXPECT_NEAR(measured["step_seconds"], seconds[2], 1e-5 + 1e-4 * seconds[2]) << "the median of steps 2 to 6";
#ifndef __SANITIZE_ADDRESS__
    EXPECT_EQ(measured["heap_calls_in_steps"], 0) << program;
    ASSERT_EQ(measured["stacks"].size(), 2u);
    uint64_t maximum = 0;
    for (size_t w = 0; w < 2; ++w) {
      EXPECT_EQ(measured["stacks"][w]["worker"], w);
      maximum = std::max<uint64_t>(maximum, measured["stacks"][w]["bytes"]);
    }
    EXPECT_EQ(measured["stack_bytes"], maximum);
    EXPECT_GT(maximum, 0u);
    EXPECT_LE(maximum, manifest["outside"]["worker_stack_bytes"]) << program;
#else
    EXPECT_FALSE(measured.contains("heap_calls_in_steps")) << "the sanitizers own malloc";
    EXPECT_FALSE(measured.contains("stacks"));
#endif
  }
}

TEST_F(MeasuredRun, TheSameBitsWhoeverLooks) {
  for (const std::string& program : {resnet_tight(), gpt_tight()}) {
    fs::remove(at("plain.jsonl"));
    quietly(program, {"--log", at("plain.jsonl"), "--save", at("plain"), "--overwrite"});
    for (const char* threads : {"1", "3"}) {
      fs::remove(at("seen.jsonl"));
      quietly(program, {"--log", at("seen.jsonl"), "--save", at("seen"), "--overwrite", "--threads", threads,
                        "--manifest", at("m.json"), "--trace", at("t.json"), "--trace-steps", "1:6"});
      EXPECT_EQ(read_log(at("plain.jsonl")).results(), read_log(at("seen.jsonl")).results()) << program;
      EXPECT_TRUE(snapshot_tensors(at("plain")) == snapshot_tensors(at("seen"))) << program;
      for (const json& line : read_log(at("seen.jsonl")).lines) {
        EXPECT_EQ(line.value("planned_bytes", 0), line.value("measured_bytes", 0)) << "though canaries were laid again";
      }
    }
  }
}

TEST_F(MeasuredRun, AResumedRunMeasuresItsOwnSteps) {
  quietly(gpt_tight(), {"--steps", "4", "--save", at("s")});
  const json measured =
      measured_by(gpt_tight(), {"--resume", at("s"), "--trace", at("t.json"), "--trace-steps", "5:6"});
  EXPECT_EQ(measured["steps"], 2);
  const Trace trace(at("t.json"));
  ASSERT_EQ(trace.steps.size(), 2u);
  EXPECT_EQ(trace.steps[0].event["args"]["step"], 5);
  EXPECT_EQ(trace.steps[1].event["name"], "step 6");
  expect_refusal(gpt_tight(), {"--resume", at("s"), "--trace", at("x"), "--trace-steps", "4:5"},
                 {"--trace-steps", "5:6", "4:5"}, 2);
  EXPECT_FALSE(fs::exists(at("x")));
}

TEST_F(MeasuredRun, WhatWasNotMeasuredIsAbsent) {
  quietly(gpt_tight(), {"--save", at("s")});
  const json nothing = measured_by(gpt_tight(), {"--resume", at("s")});
  for (const char* key : {"heap_calls_in_steps", "stacks", "stack_bytes", "step_seconds"})
    EXPECT_FALSE(nothing.contains(key)) << key;
}

TEST_F(MeasuredRun, AManifestThatIsNotThePlans) {
  json other = manifest_of(resnet_stored());
  expect_refusal(elsewhere(resnet_stored(), nullptr), {"--manifest", at("m.json")},
                 {at("elsewhere/manifest.json"), "--manifest", "missing"});
  other["plan_hash"] = manifest_of(resnet_tight())["plan_hash"];
  expect_refusal(elsewhere(resnet_stored(), other), {"--manifest", at("m.json")},
                 {at("elsewhere/manifest.json"), "plan_hash", other["plan_hash"],
                  manifest_of(resnet_stored())["plan_hash"]});
  for (const char* text : {"", "[]", "{\"plan_hash\": 7}", "{\"pl"}) {
    write_text(at("elsewhere/manifest.json"), text);
    expect_refusal(at("elsewhere/train"), {"--manifest", at("m.json")}, {at("elsewhere/manifest.json")});
  }
  EXPECT_FALSE(fs::exists(at("m.json")));
  // With "auto", the folder of the program has the manifest of one plan, and its folder cuda the
  // manifest of another plan. The program must find its own.
  fs::create_directories(at("elsewhere/cuda"));
  write_text(at("elsewhere/manifest.json"), other.dump());
  write_text(at("elsewhere/cuda/manifest.json"), manifest_of(resnet_stored()).dump());
  quietly(at("elsewhere/train"), {"--manifest", at("m.json")});
  EXPECT_EQ(json::parse(file_text(at("m.json")))["plan_hash"], manifest_of(resnet_stored())["plan_hash"]);
  fs::remove_all(at("elsewhere/cuda"));
  fs::remove(at("elsewhere/manifest.json"));
  quietly(at("elsewhere/train"), {"--trace", at("t.json")});  // a trace needs no manifest
  EXPECT_EQ(Trace(at("t.json")).steps.size(), 3u);
}

TEST_F(MeasuredRun, FilesThatCannotBeWritten) {
  fs::create_directories(at("folder"));
  const std::string text = R"({"written_by": "reprise trace"})";
  write_text(at("file"), text);
  for (const char* option : {"--trace", "--manifest"}) {
    expect_refusal(resnet_stored(), {option, at("folder"), "--save", at("s")}, {at("folder")});
    expect_refusal(resnet_stored(), {option, at("absent/file"), "--save", at("s")}, {at("absent/file")});
    expect_refusal(resnet_stored(), {option, at("s/file"), "--save", at("s")}, {at("s/file"), option, "replaced whole"},
                   2);
    expect_refusal(resnet_stored(), {option, at("x"), "--evaluate"}, {option, "--evaluate"}, 2);
    EXPECT_FALSE(fs::exists(at("s"))) << "nothing was trained";
    ProcessOptions full;
    full.largest_file_bytes = 100 << 10;  // more than a snapshot needs, but less than the trace
    full.environment = {"LC_ALL=C"};
    const ProcessResult result =
        train(resnet_stored(), {option, at("file"), "--trace-steps", "1:6", "--quiet", "--save", at("saved")}, full);
    if (std::string(option) == "--manifest") continue;
    EXPECT_EQ(result.status, 1);
    EXPECT_TRUE(result.is_one_line_with({at("file"), "File too large", at("saved")})) << result.err;
    EXPECT_EQ(file_text(at("file")), text) << "the old one stays";
    EXPECT_EQ(saved_step(at("saved")), 6u) << "and what was trained is saved";
    fs::remove_all(at("saved"));
  }
  for (const auto& entry : fs::directory_iterator(folder_.path()))
    EXPECT_EQ(entry.path().filename().string().find(".new-"), std::string::npos) << entry.path();
}

TEST_F(MeasuredRun, StepsThatCannotBeTraced) {
  const std::pair<const char*, const char*> cases[] = {{"0:3", "0:3"},     {"3:2", "FIRST"},
                                                       {"x", "x"},         {"1:9", "1:6"},
                                                       {"7", "1:6"},       {"-1:2", "-1"},
                                                       {"1:2:3", "1:2:3"}, {"1:99999999999999999999", "9999"},
                                                       {":", ":"},         {"2:", "2:"}};
  for (const auto& [steps, fragment] : cases)
    expect_refusal(resnet_stored(), {"--trace", at("t.json"), "--trace-steps", steps}, {"--trace-steps", fragment}, 2);
  expect_refusal(resnet_stored(), {"--trace-steps", "1:2"}, {"--trace-steps", "--trace"}, 2);
  expect_refusal(resnet_stored(), {"--trace", at("x"), "--manifest", at("x")}, {"--trace", "--manifest"}, 2);
  expect_refusal(resnet_stored(), {"--steps", "100000000", "--trace", at("t.json"), "--trace-steps", "1:100000000"},
                 {"--trace-steps", "at most"}, 2);
  EXPECT_FALSE(fs::exists(at("t.json")));
}

// Requires that the trace has the rows of the manifest in the order of the programs, on their
// queues. On each queue, a row must begin after the end of the previous row. All rows together must
// not take longer than the steps. The live bytes must be the planned ones.
void expect_trace_of(const Trace& trace, const json& manifest, size_t steps) {
  std::vector<json> rows;
  std::vector<uint64_t> live;
  for (size_t step = 0; step < steps; ++step) {
    for (const std::string& name : programs_of_step(manifest)) {
      for (const json& row : (*program_named(manifest, name))["rows"])
        rows.push_back(row), live.push_back(row["live_bytes"]);
      live.push_back(0);
    }
  }
  ASSERT_EQ(trace.steps.size(), steps);
  ASSERT_EQ(trace.rows.at(1).size(), rows.size());
  EXPECT_EQ(trace.live, live);
  std::map<uint64_t, double> ends;
  double sum = 0, whole = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const Slice& slice = trace.rows.at(1)[r];
    EXPECT_EQ(slice.queue, rows[r]["queue"]);
    EXPECT_EQ(slice.event["cat"], rows[r]["stage"]);
    EXPECT_EQ(slice.event["args"]["planned_seconds"], rows[r]["seconds"]);
    EXPECT_GE(slice.start, ends[slice.queue] - 1e-12);
    ends[slice.queue] = slice.start + slice.seconds;
    sum += slice.seconds;
  }
  for (const Slice& step : trace.steps) whole += step.seconds;
  EXPECT_LE(sum, whole + 1e-9);
  EXPECT_GT(sum, 0);
}

TEST_F(MeasuredRun, ATraceHasEachRowOfItsSteps) {
  for (const std::string& program : programs()) {
    quietly(program, {"--trace", at("t.json"), "--trace-steps", "2:4", "--threads", "2"});
    expect_trace_of(Trace(at("t.json")), manifest_of(program), 3);
    quietly(program, {"--trace", at("t.json")});
    EXPECT_EQ(Trace(at("t.json")).steps.size(), 3u) << "the second to the fourth";
    quietly(program, {"--trace", at("t.json"), "--trace-steps", "6"});
    expect_trace_of(Trace(at("t.json")), manifest_of(program), 1);
  }
}

TEST_F(MeasuredRun, PerfettoReadsTheSame) {
  if (!trace_processor_missing().empty()) GTEST_SKIP() << trace_processor_missing();
  for (const std::string& program : programs()) {
    quietly(program, {"--trace", at("t.json"), "--trace-steps", "2:4"});
    const json manifest = manifest_of(program),
               figures = trace_figures(at("t.json")).at("train " + manifest["recipe"]["name"].get<std::string>());
    uint64_t rows = 0, maximum = 0;
    for (const std::string& name : programs_of_step(manifest)) {
      rows += program_named(manifest, name)->at("rows").size();
      maximum = std::max<uint64_t>(maximum, program_named(manifest, name)->at("live_bytes"));
    }
    EXPECT_EQ(figures["slices"], 3 * rows) << program;
    EXPECT_EQ(figures["most"], maximum) << program;
    EXPECT_EQ(figures["overlaps"], 0) << program;
    EXPECT_EQ(figures["steps"]["n"], 3);
    EXPECT_LE(figures["seconds"], figures["steps"]["seconds"].get<double>() + 1e-9);
    std::map<std::string, uint64_t> stages;
    for (const std::string& name : programs_of_step(manifest)) {
      for (const json& row : program_named(manifest, name)->at("rows")) stages[row["stage"]] += 3;
    }
    EXPECT_EQ(figures["stages"], json(stages)) << program;
  }
}

// Returns the manifest with the predicted times of a machine that is `times` times slower.
json slower(json manifest, double times) {
  manifest["predicted_seconds"] = times * manifest["predicted_seconds"].get<double>();
  for (json& program : manifest["programs"]) {
    for (json& row : program["rows"]) {
      if (row["seconds"].is_number()) row["seconds"] = times * row["seconds"].get<double>();
    }
  }
  return manifest;
}

// Plans the recipe again with a measured profile. The plan stays the same, because its recipe
// demands the schedule "none". Only the predicted times in the manifest change.
TEST_F(MeasuredRun, MeasuredTimesStandBesidePlannedOnes) {
  const std::string recipe = (fs::path(resnet_stored()).parent_path() / "recipe.json").string();
  ASSERT_EQ(reprise_command({"profile", recipe, "-o", at("profile.json")}).status, 0);
  ASSERT_EQ(reprise_command({"plan", recipe, "--profile", at("profile.json"), "-o", at("priced")}).status, 0);
  for (const double times : {1.0, 1000.0}) {
    const json manifest = slower(json::parse(file_text(at("priced/manifest.json"))), times);
    quietly(elsewhere(resnet_stored(), manifest), {"--trace", at("t.json"), "--trace-steps", "2:3"});
    const Trace trace(at("t.json"));
    expect_trace_of(trace, manifest, 2);
    EXPECT_EQ(trace.steps[0].event["args"]["planned_seconds"], manifest["predicted_seconds"]);
    const std::vector<Slice>&measured = trace.rows.at(1), &planned = trace.rows.at(2);
    ASSERT_EQ(planned.size(), measured.size());
    double end = 0;
    for (size_t r = 0; r < planned.size(); ++r) {
      EXPECT_EQ(planned[r].event["name"], measured[r].event["name"]);
      EXPECT_NEAR(planned[r].seconds, measured[r].event["args"]["planned_seconds"], 2e-9);
      EXPECT_GE(planned[r].start, end - 1e-10) << "one after the other, also where a step took less than was planned";
      end = planned[r].start + planned[r].seconds;
    }
    EXPECT_NEAR(planned[planned.size() / 2].start,
                std::max(trace.steps[1].start,
                         planned[planned.size() / 2 - 1].start + planned[planned.size() / 2 - 1].seconds),
                1e-8);
    if (!trace_processor_missing().empty()) continue;
    const json figures = trace_figures(at("t.json")).at("planned");
    EXPECT_EQ(figures["slices"], planned.size());
    EXPECT_EQ(figures["overlaps"], 0);
  }
}

TEST_F(MeasuredRun, ARunThatEndsEarlyLeavesWholeFiles) {
  {
    Process process({resnet_stored(), "--steps", "100000000", "--trace", at("killed.json"), "--trace-steps", "1:1000",
                     "--manifest", at("killed-m.json"), "--quiet"});
    sleep_seconds(0.1);
    process.signal(SIGKILL);
    process.wait();
  }
  for (const std::string& name : {at("killed.json"), at("killed-m.json")}) {
    EXPECT_TRUE(!fs::exists(name) || json::accept(file_text(name))) << name;
  }
  Process process({resnet_stored(), "--steps", "100000000", "--trace", at("t.json"), "--trace-steps", "1:10000",
                   "--manifest", at("m.json"), "--log", at("log.jsonl"), "--quiet"});
  ASSERT_TRUE(await([&] { return file_text(at("log.jsonl")).find("\"step\": 5") != std::string::npos; }));
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().status, 128 + SIGTERM);
  const uint64_t steps = json::parse(file_text(at("m.json")))["measured"]["steps"];
  EXPECT_GE(steps, 5u);
  EXPECT_EQ(Trace(at("t.json")).steps.size(), steps) << "all that were done";
}

}  // namespace
}  // namespace reprise::test
