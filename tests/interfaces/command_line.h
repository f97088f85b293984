// A fixture that runs build/reprise in a temporary folder and checks the results that
// tools/COMMANDS.md promises.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/process.h"

namespace reprise::test {

using nlohmann::json;

inline json recipe_json() {
  return json::parse(
      R"({"name": "rn", "model": {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar",
  "classes": 5, "image": [12, 12, 3]}, "data": {"kind": "synthetic"}, "batch": 4, "steps": 6,
  "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}})");
}

inline std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

inline bool has_keys(const json& object, const std::set<std::string>& wanted) {
  const std::set<std::string> keys = keys_of(object);
  return std::includes(keys.begin(), keys.end(), wanted.begin(), wanted.end());
}

class CommandLine : public ::testing::Test {
 protected:
  std::string recipe(const json& value, const std::string& name = "recipe.json") {
    write_text(folder_.file(name), value.dump());
    return folder_.file(name);
  }
  std::string recipe() { return recipe(recipe_json()); }

  // Runs the command, requires exit status `status`, and returns stdout, which must be one JSON
  // object. If `status` is 0, stderr must contain only progress lines.
  json json_answer(const std::vector<std::string>& arguments, int status = 0) {
    const ProcessResult result = reprise_command(arguments);
    EXPECT_EQ(result.status, status) << result.err;
    EXPECT_TRUE(status != 0 || without_progress(result.err).empty()) << result.err;
    const json answer = json::parse(result.out, nullptr, false);
    EXPECT_TRUE(answer.is_object()) << "stdout must be one JSON object: " << result.out;
    return answer;
  }

  // Runs the command. Requires exit status `status`, an empty stdout, and one line on stderr that
  // contains all `fragments`.
  void expect_refusal(const std::vector<std::string>& arguments, int status,
                      const std::vector<std::string>& fragments) {
    const ProcessResult result = reprise_command(arguments);
    std::string command;
    for (const std::string& argument : arguments) command += " " + argument;
    EXPECT_EQ(result.status, status) << command << ": " << result.err;
    EXPECT_EQ(result.out, "") << command;
    EXPECT_TRUE(result.is_one_line_with(fragments))
        << command << ": wanted one line with " << json(fragments) << ", got: " << result.err;
  }

  TemporaryFolder folder_;
};

}  // namespace reprise::test
