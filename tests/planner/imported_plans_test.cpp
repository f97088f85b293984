// Tests that a net imported from a file of torch has the same plan as the recipe of its family:
// equal bytes, work, links and rows at any budget. An imported net with additional nodes would also
// train, but with more memory or time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "tests/interfaces/expect_user_error.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/planner.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

using nlohmann::json;

struct ImportedPlan {
  const char* file;  // path below tests/golden
  json family;
};

json gpt2(int positions) {
  return {{"family", "gpt2"}, {"vocab_size", 31}, {"n_positions", positions}, {"n_embd", 16},   {"n_layer", 2},
          {"n_head", 2},      {"resid_pdrop", 0}, {"embd_pdrop", 0},          {"attn_pdrop", 0}};
}

// Returns the files of tests/parity/make_onnx_goldens.py, make_pt2_goldens.py and
// make_net_goldens.py. torch's newer exporter stores the first 12 of a model's 20 positions as a
// separate tensor. It also folds batch-norms, which makes a net that differs from the family's.
// resnet.unfolded.onnx was exported without this optimisation.
std::vector<ImportedPlan> imported_plans() {
  const json basic = {
      {"family", "resnet"}, {"units", {1, 1, 1}}, {"width", 4}, {"classes", 10}, {"image", {16, 16, 3}}};
  const json bottleneck = {{"family", "resnet"}, {"block", "bottleneck"}, {"units", {1, 2, 1}},
                           {"width", 4},         {"classes", 5},          {"image", {16, 16, 3}}};
  return {{"onnx/resnet.onnx", basic},
          {"pt2/resnet_training.pt2", basic},
          {"nets/resnet.old.onnx", bottleneck},
          {"nets/resnet.unfolded.onnx", bottleneck},
          {"nets/resnet.pt2", bottleneck},
          {"nets/gpt2.old.onnx", gpt2(20)},
          {"nets/gpt2.new.onnx", gpt2(12)},
          {"nets/gpt2.pt2", gpt2(20)},
          {"nets/plain_gpt2.old.onnx", gpt2(20)},
          {"nets/plain_gpt2.new.onnx", gpt2(12)},
          {"nets/plain_gpt2.pt2", gpt2(20)}};
}

// Requires that everything on which a schedule depends is equal, so that the plans are equal at
// every budget.
void expect_same_chain(const Chain& imported, const Chain& family) {
  EXPECT_EQ(imported.input_bytes, family.input_bytes);
  ASSERT_EQ(imported.links.size(), family.links.size());
  for (size_t n = 0; n < imported.links.size(); ++n) {
    SCOPED_TRACE(family.links[n].name);
    const Link &a = imported.links[n], &b = family.links[n];
    EXPECT_EQ(a.forward_cost, b.forward_cost);
    EXPECT_EQ(a.boundary_bytes, b.boundary_bytes);
    EXPECT_EQ(a.forward_scratch_bytes, b.forward_scratch_bytes);
    EXPECT_TRUE(a.tapes == b.tapes);
    EXPECT_TRUE(a.residues == b.residues);
  }
}

// Requires that both plans have equal bytes, equal work and equal rows.
void expect_same_plan(const SolvedModel& imported, const SolvedModel& family) {
  const PlannedModel ours = plan_model(imported, request_of(imported)), theirs = plan_model(family, request_of(family));
  ASSERT_TRUE(ours.fits && theirs.fits);
  EXPECT_EQ(ours.plan.arena_bytes, theirs.plan.arena_bytes);
  EXPECT_EQ(ours.plan.state_bytes, theirs.plan.state_bytes);
  EXPECT_EQ(ours.plan.carried_bytes, theirs.plan.carried_bytes);
  EXPECT_EQ(ours.plan.worker_stack_bytes, theirs.plan.worker_stack_bytes);
  EXPECT_EQ(ours.packed_bytes, theirs.packed_bytes);
  EXPECT_EQ(ours.move_bytes, theirs.move_bytes);
  EXPECT_EQ(ours.extra_forward_cost, theirs.extra_forward_cost);
  for (size_t p = 0; p < kProgramCount; ++p) {
    const OwnedProgram &a = ours.plan.programs[p], &b = theirs.plan.programs[p];
    EXPECT_EQ(a.bytes, b.bytes);
    ASSERT_EQ(a.rows.size(), b.rows.size());
    for (size_t r = 0; r < a.rows.size(); ++r)
      EXPECT_EQ(std::pair(a.rows[r].op, a.rows[r].pass), std::pair(b.rows[r].op, b.rows[r].pass)) << p << " " << r;
  }
}

class ImportedPlans : public ::testing::TestWithParam<ImportedPlan> {};

TEST_P(ImportedPlans, AreThoseOfTheFamily) {
  const TemporaryFolder folder;
  const ImportReport report =
      import_net({std::string("tests/golden/") + GetParam().file, folder.file("net.json"), {}, {}, "", ""});
  ASSERT_TRUE(report.refused.empty()) << json(report.refused).dump(1);
  json recipe = json::parse(read_file(folder.file("net.json")));
  const Recipe of_file = read_recipe(folder.file("net.json"));
  recipe["model"] = GetParam().family;
  recipe.erase("init");
  Recipe of_family = parse_recipe(recipe.dump(), "family.json", "/");
  of_family.sequence = of_file.sequence;
  SolvedModel imported = solve_model(of_file), family = solve_model(of_family);
  EXPECT_EQ(imported.forward_backward_cost, family.forward_backward_cost);
  expect_same_chain(imported.chain, family.chain);
  EXPECT_EQ(imported.store_all_bytes, family.store_all_bytes);
  const uint64_t all = family.store_all_bytes, minimum = smallest_budget(family, request_of(family));
  EXPECT_EQ(smallest_budget(imported, request_of(imported)), minimum);
  ASSERT_LT(minimum, all);
  for (const uint64_t budget : {all, minimum + (all - minimum) / 2, minimum + (all - minimum) / 4, minimum}) {
    SCOPED_TRACE(budget);
    imported.recipe.budget_bytes = family.recipe.budget_bytes = budget;
    expect_same_plan(imported, family);
  }
  EXPECT_GT(plan_model(family, request_of(family)).extra_forward_cost, 0)
      << "the smallest plan recomputes nothing, so that its work says nothing";
}

INSTANTIATE_TEST_SUITE_P(Goldens, ImportedPlans, ::testing::ValuesIn(imported_plans()), [](const auto& info) {
  std::string name = info.param.file;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// If an importer left these extra nodes in a net, the plan would change. So the previous test would
// detect it.
TEST(ImportedPlansSee, ANodeThatAFamilyHasNot) {
  const TemporaryFolder folder;
  import_net({"tests/golden/nets/gpt2.old.onnx", folder.file("net.json"), {}, {}, "", ""});
  const json graph = json::parse(read_file(folder.file("net.graph.json")));
  const auto bytes_of = [&](const json& changed) {
    write_file(folder.file("net.graph.json"), changed.dump());
    const SolvedModel model = solve_model(read_recipe(folder.file("net.json")));
    return std::pair(model.store_all_bytes, model.forward_backward_cost);
  };
  const auto right = bytes_of(graph);
  json apart = graph, untied = graph;
  for (json& node : apart["nodes"]) {  // adds the positions in a separate node
    if (node["op"] != "embedding") continue;
    const json positions = node["inputs"][1], name = node["name"];
    node["inputs"] = {"tokens"};
    EXPECT_EQ(apart["nodes"][0]["op"], "learned");
    apart["nodes"][0]["shape"] = {12, 16};
    for (json& reader : apart["nodes"]) {
      for (json& input : reader["inputs"]) input = input == name ? json("sum") : input;
    }
    apart["nodes"].insert(apart["nodes"].begin() + 2,
                          json({{"op", "add"}, {"name", "sum"}, {"inputs", {name, positions}}}));
    break;
  }
  untied.erase("tied");
  EXPECT_NE(bytes_of(apart), right);
  EXPECT_NE(bytes_of(untied), right);
}

}  // namespace
}  // namespace reprise::test
