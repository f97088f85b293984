// Tests where a compiled program or a plan file finds the files of its recipe, on another machine
// than the one that made the plan.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/session/files_here.h"

namespace reprise::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kNet =
    R"("model": {"family": "resnet", "units": [1, 1, 1], "width": 4, "classes": 2, "image": [16, 16, 3]}, "batch": 2)";

// Returns the text of the usage error that `call` throws.
template <typename Call>
std::string usage_error(const Call& call) {
  try {
    call();
  } catch (const UserError& error) {
    EXPECT_EQ(error.status, UserError::kUsage);
    return error.what();
  }
  return "accepted";
}

class FilesHere : public ::testing::Test {
 protected:
  FilesHere() {
    fs::create_directories(folder_.file("board/flowers"));
    fs::create_directories(folder_.file("elsewhere/tulips"));
  }
  // Returns a recipe that was written on /other/machine, with the paths that a program on this
  // machine uses with `options`.
  json settled(const std::string& data, const ProgramOptions& options = {}) {
    const std::string recipe =
        canonical_recipe(parse_recipe("{" + std::string(kNet) + ", \"data\": " + data + "}", "net", "/other/machine"));
    said_.clear();
    return json::parse(recipe_with_files_here(recipe, "net", options, folder_.file("board"), said_));
  }
  static constexpr const char* kFlowers = R"({"kind": "image_folder", "path": "my/flowers"})";

  const TemporaryFolder folder_;
  std::vector<std::string> said_;
};

TEST_F(FilesHere, StandBesideTheProgram) {
  EXPECT_EQ(settled(kFlowers)["data"]["path"], folder_.file("board/flowers"));
  EXPECT_EQ(said_, std::vector<std::string>{"data.path: " + folder_.file("board/flowers") +
                                            ", because /other/machine/my/flowers is not here"});
  EXPECT_EQ(settled(R"({"kind": "image_folder", "path": "my/flowers/"})")["data"]["path"],
            folder_.file("board/flowers"));
}

TEST_F(FilesHere, StandWhereTheRecipeSaysWhereTheyAreThere) {
  const json data = {{"kind", "image_folder"}, {"path", folder_.file("elsewhere/tulips")}};
  EXPECT_EQ(settled(data.dump())["data"]["path"], data["path"]);
  EXPECT_TRUE(said_.empty());
}

TEST_F(FilesHere, StandWhereTheOptionsSay) {
  ProgramOptions options;
  options.data = folder_.file("elsewhere/tulips");
  EXPECT_EQ(settled(kFlowers, options)["data"]["path"], options.data);
  EXPECT_TRUE(said_.empty());
  options = {};
  options.eval_data = folder_.file("elsewhere/tulips");
  EXPECT_EQ(settled(R"({"kind": "image_folder", "path": "my/flowers", "eval_path": "my/test"})",
                    options)["data"]["eval_path"],
            options.eval_data);
  EXPECT_EQ(usage_error([&] { settled(kFlowers, options); }),
            "--eval-data: the recipe of net has no data.eval_path that it could stand for");
  options = {};
  options.data = "x";
  EXPECT_EQ(usage_error([&] { settled(R"({"kind": "synthetic"})", options); }),
            "--data: the recipe of net has no data.path that it could stand for");
  options = {};
  options.model = "x";
  EXPECT_EQ(usage_error([&] { settled(kFlowers, options); }),
            "--model: the recipe of net names no file of a model's; --init FILE starts from weights");
}

TEST_F(FilesHere, AreMissedByName) {
  const std::string roses = R"({"kind": "image_folder", "path": "my/roses"})";
  expect_user_error([&] { settled(roses); },
                    {"net: data.path: /other/machine/my/roses is not here", "beside the program", "--data PATH"});
  ProgramOptions options;
  options.prompt = "which reads no data";
  EXPECT_EQ(settled(roses, options)["data"]["path"], "/other/machine/my/roses");
}

TEST_F(FilesHere, MayBeAnImportedNetsWeights) {
  const std::string text =
      "{" + std::string(kNet) + R"(, "data": {"kind": "synthetic"}, "init": {"from": "net.safetensors"}})";
  const std::string recipe = canonical_recipe(parse_recipe(text, "net", "/other/machine"));
  ProgramOptions options;
  options.model = folder_.file("elsewhere/w.safetensors");
  EXPECT_EQ(json::parse(recipe_with_files_here(recipe, "net", options, folder_.file("board"), said_))["init"]["from"],
            options.model);
  EXPECT_EQ(named_files(parse_recipe(recipe, "net", "/"))[0].option, "--model");
}

}  // namespace
}  // namespace reprise::test
