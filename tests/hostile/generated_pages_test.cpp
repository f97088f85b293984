// Tests that names stay plain text in output for a browser, a viewer or a code review: the audit's
// page, its Markdown, and a trace.
#include <gtest/gtest.h>

#include "tests/interfaces/command_line.h"

namespace reprise::test {
namespace {

constexpr const char* kName =
    "</script><script>planted()</script><!-- \"><img src=x onerror=planted()> | [a](b) ]]>&amp;";

json hostile_net() {
  json recipe = json::parse(R"({"name": "net", "model": {"family": "net", "image": [4, 4, 2], "nodes": [
    {"op": "conv", "name": "c", "channels": 2, "kernel": 1}, {"op": "global_pool", "name": "p"}, {"op": "loss_head", "name": "f", "classes": 2}]},
    "data": {"kind": "synthetic"}, "batch": 2, "steps": 2, "optimizer": {"name": "sgd", "lr": 0.1}})");
  recipe["model"]["nodes"][0]["name"] = kName;
  return recipe;
}

TEST_F(CommandLine, NamesAreTextsInThePageAndTheTrace) {
  const ProcessResult audit = reprise_command(
      {"audit", recipe(hostile_net()), "--html", folder_.file("page.html"), "--trace", folder_.file("trace.json")});
  ASSERT_EQ(audit.status, 0) << audit.err;
  const std::string page = file_text(folder_.file("page.html"));
  EXPECT_GT(page.size(), 10000u);
  EXPECT_EQ(page.find("planted"), std::string::npos);
  EXPECT_TRUE(json::accept(file_text(folder_.file("trace.json"))));
}

TEST_F(CommandLine, NamesOfAManifestAreTextsInMarkdown) {
  ASSERT_EQ(reprise_command({"plan", recipe(hostile_net()), "-o", folder_.file("p")}).status, 0);
  json manifest = json::parse(file_text(folder_.file("p/manifest.json")));
  manifest["recipe"]["name"] = std::string(kName) + "\n\n# planted";
  write_text(folder_.file("hostile.json"), manifest.dump());
  const ProcessResult table = reprise_command({"audit", folder_.file("hostile.json"), "--gate",
                                               folder_.file("p/manifest.json"), "--max-growth", "5", "--markdown"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("| **total** |"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find_first_of("<>&()#\""), std::string::npos) << table.out;
}

}  // namespace
}  // namespace reprise::test
