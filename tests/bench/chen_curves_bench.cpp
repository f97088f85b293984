// Chen et al.'s figure: bytes of feature maps over the depth of the net, by their rungs and by ours.
// One command gives JSON, a table and a picture: chen_curves_bench OUT.json OUT.svg (`make chen-curves`).
// It must not train: every figure here is planned; chen_bench measures.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/planner/deep_resnet.h"
#include "tools/drawing/chart.h"
#include "tools/formats/error.h"
#include "tools/formats/output_file.h"
#include "tools/formats/text.h"
#include "tools/graph/fold.h"
#include "tools/graph/link.h"
#include "tools/recipes/recipe_graph.h"
#include "tools/schedule/schedule.h"

namespace reprise::bench {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kPapersExtra = 0.30;  // the extra time that the paper reports for its plan

// What every rung needs of one net: the paper's as it is written, ours folded. Kernels' scratch and parameters are left out, as in the paper.
struct Net {
  Graph graph;
  ChainBodies bodies;
  Chain chain;

  explicit Net(const Recipe& recipe, bool folds = false, const KeepRule& keep = {}) : graph(build_model(recipe)) {
    bodies = folds ? cut_into_folded_links(graph) : cut_into_links(graph);
    solve_links(graph, bodies.links, kNoScratch, convolution_flops, keep);
    chain = chain_of(graph, bodies.links);
  }

  // One forward and backward of the whole net as a single list.
  std::vector<Call> step() const {
    std::vector<Call> calls;
    for (const LinkBody& link : bodies.links) calls.insert(calls.end(), link.forward.begin(), link.forward.end());
    for (auto link = bodies.links.rbegin(); link != bodies.links.rend(); ++link) calls.insert(calls.end(), link->backward.begin(), link->backward.end());
    return calls;
  }

  bool is_feature_map(ValueId v) const {
    return v != kNoValue && (graph.values[v].kind == ValueKind::kActivation || graph.values[v].kind == ValueKind::kGradient);
  }

  // Every value and every gradient in memory of its own.
  uint64_t no_optimization() const {
    std::vector<bool> counted(graph.values.size(), false);
    uint64_t bytes = 0;
    for (const Call& call : step()) {
      for (const ValueId v : call.arguments) {
        if (!is_feature_map(v) || counted[v]) continue;
        counted[v] = true;
        bytes += graph.tensor(v).bytes;
      }
    }
    return bytes;
  }

  double forward_backward() const {
    double cost = 0;
    for (const Link& link : chain.links) cost += link.forward_cost + link.tapes[0].backward_cost;
    return cost;
  }
};

// In-place operations join values into one buffer; sharing packs the buffers by their lifetimes.
struct Joined {
  uint64_t all_bytes = 0, packed_bytes = 0;
};
Joined joined(const Net& net) {
  const ArrangedCalls arranged = arrange_calls(net.graph, net.step(), {}, kNoScratch);
  Joined result{.packed_bytes = arranged.scratch_bytes};
  for (const ArrangedCalls::Buffer& buffer : arranged.buffers) result.all_bytes += buffer.bytes;
  return result;
}

uint64_t least_memory(const Chain& chain, const std::string& strategy) {
  return make_schedule(chain, {.strategy = strategy, .memory_bytes = 0}).smallest_memory;
}

// The least memory, to 1%, at which `optimal` costs no more than the paper's plan.
uint64_t memory_at_papers_extra(const Net& net) {
  uint64_t low = least_memory(net.chain, "optimal"), high = make_schedule(net.chain, {.strategy = "none"}).peak_bytes;
  const double most = net.forward_backward() * (1 + kPapersExtra);
  while (high > low + low / 100) {
    const uint64_t middle = (low + high) / 2;
    const Schedule plan = make_schedule(net.chain, {.memory_bytes = middle});
    (plan.feasible && plan.makespan <= most ? high : low) = middle;
  }
  return high;
}

struct Rung {
  const char* name;
  std::vector<std::pair<double, double>> points = {};  // layers, GiB
};

int run(const std::string& json_file, const std::string& svg_file) {
  Rung rungs[] = {{"no optimization"}, {"in-place"}, {"sharing"}, {"drop bn-relu"}, {"sublinear (chen)"}, {"ours, +30%"}, {"ours, least"}};
  nlohmann::json table = nlohmann::json::array();
  std::printf("| layers | units |");
  for (const Rung& rung : rungs) std::printf(" %s |", rung.name);
  std::printf("\n|---|---|---|---|---|---|---|---|---|\n");
  for (int layers = 128; layers <= 1024; layers += 128) {
    const std::vector<int> units = units_at_depth(layers);
    const Recipe recipe = deep_resnet(units);
    const Net net(recipe), ours(recipe, true);
    const Joined joint = joined(net);
    const uint64_t bytes[] = {net.no_optimization(), joint.all_bytes, joint.packed_bytes,
                              make_schedule(Net(recipe, false, keep_rule("drop-bn-relu")).chain, {.strategy = "none"}).peak_bytes,
                              least_memory(net.chain, "chen"), memory_at_papers_extra(ours), least_memory(ours.chain, "optimal")};
    std::printf("| %d | [%d,%d,%d,%d] |", layers, units[0], units[1], units[2], units[3]);
    nlohmann::json row = {{"layers", layers}, {"units", units}};
    for (size_t r = 0; r < std::size(rungs); ++r) {
      std::printf(" %.2f |", static_cast<double>(bytes[r]) / kGiB);
      rungs[r].points.push_back({layers, static_cast<double>(bytes[r]) / kGiB});
      row[rungs[r].name] = bytes[r];
    }
    std::printf("\n");
    std::fflush(stdout);
    table.push_back(row);
  }
  Chart chart{.title = "Feature maps of a bottleneck ResNet, batch 32, 224 x 224", .across = "layers",
              .upwards = "planned feature maps, GiB (no parameters, no kernel scratch)", .upwards_unit = "", .x_low = 0, .x_high = 1024, .x_step = 128,
              .y_high = rungs[2].points.back().second * 1.05, .lines = {}, .notes = {"in-place and no optimization go beyond the upper edge; the table has them"}};
  for (const Rung& rung : rungs) chart.lines.push_back({rung.name, rung.points, std::string(rung.name).starts_with("ours")});
  write_file(json_file, nlohmann::json{{"batch", 32}, {"image", {224, 224, 3}}, {"bytes", table}}.dump(1) + "\n");
  write_file(svg_file, chart_svg(chart));
  return 0;
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: chen_curves_bench OUT.json OUT.svg\n");
    return 2;
  }
  try {
    return reprise::bench::run(argv[1], argv[2]);
  } catch (const reprise::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
