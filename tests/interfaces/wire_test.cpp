// Tests the costs of transfers between ranks: `profile --peers` and `compare --ranks`. The tests
// cover the way from the output of a measuring program to the time of a step on more boards. A
// shell's `cat` replaces the processes of MPI here; peers_mpi_test.sh runs MPI.
#include <cmath>

#include "tests/interfaces/command_line.h"
#include "tools/run/profiling/measure_wire.h"

namespace reprise::test {
namespace {

// Returns the output of peers_mpi if a transfer of n bytes takes `seconds(n)`.
template <typename Seconds>
json printed(uint64_t ranks, const Seconds& seconds) {
  json shares = json::array();
  for (const uint64_t bytes : {64, 1024, 65536, 1 << 20, 16 << 20})
    shares.push_back({{"bytes", bytes}, {"seconds", seconds(bytes)}});
  return {{"ranks", ranks}, {"broadcasts", json::array()}, {"shares", shares}};
}

TEST(WireFit, FindsTheLineOfATensor) {
  for (const uint64_t ranks : {2, 3, 8}) {
    const Wire wire =
        wire_of(printed(ranks, [&](uint64_t bytes) { return (ranks - 1) * (2e-4 + 8.5e-9 * bytes); }).dump(), "mpirun");
    EXPECT_EQ(wire.ranks, ranks);
    EXPECT_NEAR(wire.message_seconds, 2e-4, 1e-12);
    EXPECT_NEAR(wire.byte_seconds, 8.5e-9, 1e-17);
  }
}

TEST(WireFit, NoPriceIsNegative) {
  const Wire falling = wire_of(printed(2, [](uint64_t bytes) { return 1 / (1.0 + bytes); }).dump(), "mpirun");
  EXPECT_EQ(falling.byte_seconds, 0);
  EXPECT_GT(falling.message_seconds, 0);
  const Wire steep = wire_of(printed(2, [](uint64_t bytes) { return 1e-12 * std::pow(bytes, 2.0); }).dump(), "mpirun");
  EXPECT_EQ(steep.message_seconds, 0);
  EXPECT_GT(steep.byte_seconds, 0);
}

TEST(WireFit, WhatIsNotThatLineIsRefused) {
  const auto refused = [](const std::string& text, std::initializer_list<std::string> words) {
    expect_user_error([&] { (void)wire_of(text, "mpi \"x\"\n"); }, words);
  };
  refused("", {"--peers", "mpi", "peers_mpi"});
  refused("hello\n", {"peers_mpi", "hello"});
  refused("[]", {"object"});
  refused("{}", {"ranks"});
  json line = printed(2, [](uint64_t) { return 1.0; });
  refused(line.dump() + line.dump(), {"peers_mpi"});
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{
           {"ranks", 1}, {"ranks", "two"}, {"shares", 5}, {"shares", json::array()}}) {
    json other = line;
    other[key] = value;
    refused(other.dump(), {key});
  }
  line["shares"][1]["seconds"] = 0;
  refused(line.dump(), {"shares[1].seconds"});
}

class WireInterfaces : public CommandLine {
 protected:
  // Writes `line` to a file, and returns a command that prints the file.
  std::string peers(const json& line) {
    write_text(folder_.file("line.json"), line.dump() + "\n");
    return "cat '" + folder_.file("line.json") + "'";
  }
  std::string profiled(const std::string& recipe, const std::string& command) {
    const std::string file = folder_.file("profile.json");
    const ProcessResult result = reprise_command({"profile", recipe, "-o", file, "--threads", "1", "--peers", command});
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_NE(result.err.find("measured with 2 ranks"), std::string::npos) << result.err;
    return file;
  }
};

TEST_F(WireInterfaces, ACommandThatFailsIsOneLineAndNoProfile) {
  const std::string file = recipe(), output = folder_.file("profile.json");
  expect_refusal({"profile", file, "-o", output, "--peers", "exit 5"}, 1,
                 {"--peers", "exit 5", "status 5", "peers_mpi"});
  expect_refusal({"profile", file, "-o", output, "--peers", "kill -9 $$"}, 1, {"--peers", "a signal"});
  expect_refusal({"profile", file, "-o", output, "--peers", "echo hello"}, 1, {"--peers", "echo hello", "hello"});
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST_F(WireInterfaces, AProfileHasTheWireAndRanksAreCompared) {
  json value = recipe_json();
  value["accumulate"] = 2;
  value["parallel"] = {{"ranks", 2}};
  const std::string file = recipe(value),
                    profile = profiled(file, peers(printed(2, [](uint64_t bytes) { return 1e-3 + 1e-8 * bytes; })));
  const json measured = json::parse(file_text(profile));
  EXPECT_EQ(measured["wire_ranks"], 2);
  EXPECT_NEAR(measured["wire_message_seconds"].get<double>(), 1e-3, 1e-9);
  EXPECT_NEAR(measured["wire_byte_seconds"].get<double>(), 1e-8, 1e-14);
  const ProcessResult result = reprise_command({"compare", file, "--ranks", "1,2,8", "--profile", profile, "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const json answer = json::parse(result.out);
  EXPECT_EQ(answer["wire"]["ranks"], 2);
  ASSERT_EQ(answer["rows"].size(), 3u);
  double before = 2;
  for (const json& row : answer["rows"]) {
    EXPECT_EQ(row["feasible"], true) << row;
    EXPECT_EQ(row["received_bytes"], row["sent_bytes"].get<uint64_t>() * (row["ranks"].get<uint64_t>() - 1)) << row;
    EXPECT_NEAR(row["samples_per_second"].get<double>(),
                4 * 2 * row["ranks"].get<double>() / row["step_seconds"].get<double>(), 1e-6)
        << row;
    EXPECT_LE(row["efficiency"], before) << row;
    EXPECT_GE(row["step_seconds"], row["waited_seconds"]) << row;
    before = row["efficiency"];
  }
  EXPECT_EQ(answer["rows"][0]["efficiency"], 1);
  EXPECT_EQ(answer["rows"][0]["wire_seconds"], 0);
  EXPECT_EQ(answer["rows"][1]["sent_bytes"], answer["rows"][2]["sent_bytes"]);
  const std::string text =
      reprise_command({"compare", file, "--ranks", "8,64", "--profile", profile, "--budget", "300KiB"}).out;
  EXPECT_NE(text.find("does not fit"), std::string::npos) << text;
  EXPECT_NE(reprise_command({"compare", file, "--ranks", "1,4", "--profile", profile}).out.find("100.0%"),
            std::string::npos);
  const json manifest = json::parse(reprise_command({"audit", file, "--profile", profile, "--json"}).out);
  EXPECT_EQ(manifest["predicted_seconds"], answer["rows"][1]["step_seconds"])
      << "a plan's seconds are those of its step on the wire";
}

// The two-level order sends once in a step. Sharded state needs additional transfers. A single rank
// transfers nothing.
TEST_F(WireInterfaces, OrdersAndPartsAreCompared) {
  json value = recipe_json();
  value["accumulate"] = 4;
  value["clip_norm"] = 1.0;
  value["parallel"] = {{"ranks", 2}};
  const std::string flat = recipe(value, "flat.json"),
                    profile = profiled(flat, peers(printed(2, [](uint64_t bytes) { return 1e-3 + 1e-8 * bytes; })));
  const auto compared = [&](const char* key, const json& setting) {
    json other = value;
    other["parallel"][key] = setting;
    const ProcessResult result =
        reprise_command({"compare", recipe(other, "other.json"), "--ranks", "1,4", "--profile", profile, "--json"});
    EXPECT_EQ(result.status, 0) << result.err;
    return json::parse(result.out)["rows"];
  };
  const json one = compared("order", "flat"), two = compared("order", "two-level"),
             parts = compared("shard_optimizer", true);
  EXPECT_EQ(one[1]["order"], "flat");
  EXPECT_EQ(two[1]["order"], "two-level");
  EXPECT_LT(two[1]["sent_bytes"].get<double>(), 0.5 * one[1]["sent_bytes"].get<double>())
      << "statistics are sent each time";
  EXPECT_LT(two[1]["step_seconds"], one[1]["step_seconds"]);
  EXPECT_GT(parts[1]["received_bytes"], one[1]["received_bytes"]) << "parameters come as well";
  for (const json& rows : {one, two, parts}) EXPECT_EQ(rows[0]["received_bytes"], 0);
  value["parallel"]["shard_optimizer"] = true;
  const ProcessResult audited =
      reprise_command({"audit", recipe(value), "--ranks", "4", "--profile", profile, "--json"});
  ASSERT_EQ(audited.status, 0) << audited.err;
  EXPECT_EQ(json::parse(audited.out)["predicted_seconds"], parts[1]["step_seconds"])
      << "spreads have no seconds of their own";
}

TEST_F(WireInterfaces, RanksThatAreNoneAreRefused) {
  json value = recipe_json();
  const std::string file = recipe(value),
                    profile = profiled(file, peers(printed(2, [](uint64_t bytes) { return 1e-3 + 1e-8 * bytes; })));
  for (const char* const ranks : {"0", "65", "x", "1,,2", "1,", ",1", "-1", "1 2", "99999999999"}) {
    expect_refusal({"compare", file, std::string("--ranks=") + ranks, "--profile", profile}, 1, {"--ranks", "1 to 64"});
  }
  expect_refusal({"compare", file, "--ranks", "1,2"}, 2, {"--ranks", "--profile"});
  expect_refusal({"compare", file, "--ranks", "1,2", "--sweep", "--profile", profile}, 2, {"--ranks"});
  json without = json::parse(file_text(profile));
  for (const char* const key : {"wire_ranks", "wire_message_seconds", "wire_byte_seconds"}) without.erase(key);
  write_text(folder_.file("without.json"), without.dump());
  const ProcessResult result =
      reprise_command({"compare", file, "--ranks", "1,2", "--profile", folder_.file("without.json")});
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.err.find("--peers"), std::string::npos) << result.err;
  value["gradient_release"] = true;
  expect_refusal({"compare", recipe(value), "--ranks", "1,2", "--profile", profile}, 1,
                 {"gradient_release", "parallel"});
}

}  // namespace
}  // namespace reprise::test
