// Draws Chen et al.'s figure: the bytes of feature maps over the depth of the net, by their methods
// and by this library's. chen_curves_bench OUT.json OUT.svg (`make chen-curves`) writes JSON, a
// table and a picture. `--draw JSON SVG` draws only the picture. All numbers are planned bytes;
// chen_bench measures bytes.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/planner/deep_resnet.h"
#include "tools/files/drawing/chart.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/plan/graph/fold.h"
#include "tools/plan/graph/link.h"
#include "tools/plan/recipes/recipe_graph.h"
#include "tools/plan/schedule/schedule.h"

namespace reprise::bench {
namespace {

constexpr double kGiB = 1073741824.0;
constexpr double kPapersExtra = 0.30;  // the extra time that the paper reports for its plan

// The inputs of every method for one net. The paper's methods use the net as written, and this
// library's use the folded net. As in the paper, the kernels' scratch and the parameters are not
// counted.
struct Net {
  Graph graph;
  ChainBodies bodies;
  Chain chain;

  explicit Net(const Recipe& recipe, bool folds = false, const KeepRule& keep = {}) : graph(build_model(recipe)) {
    bodies = folds ? cut_into_folded_links(graph) : cut_into_links(graph);
    solve_links(graph, bodies.links, kNoScratch, convolution_flops, keep);
    chain = chain_of(graph, bodies.links);
  }

  // Returns the calls of one forward and backward of the whole net as one list.
  std::vector<Call> step() const {
    std::vector<Call> calls;
    for (const LinkBody& link : bodies.links) calls.insert(calls.end(), link.forward.begin(), link.forward.end());
    for (auto link = bodies.links.rbegin(); link != bodies.links.rend(); ++link)
      calls.insert(calls.end(), link->backward.begin(), link->backward.end());
    return calls;
  }

  bool is_feature_map(ValueId v) const {
    return v != kNoValue &&
           (graph.values[v].kind == ValueKind::kActivation || graph.values[v].kind == ValueKind::kGradient);
  }

  // Returns the bytes if every value and every gradient has its own memory.
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

// Bytes of buffers: `all_bytes` after in-place operations have joined values into buffers, and
// `packed_bytes` after the buffers are packed by their lifetimes.
struct Joined {
  uint64_t all_bytes = 0, packed_bytes = 0;
};
Joined joined(const Net& net) {
  const ArrangedCalls arranged = arrange_calls(net.graph, net.step(), {}, kNoScratch);
  Joined result{.packed_bytes = arranged.scratch_bytes};
  for (const ArrangedCalls::Buffer& buffer : arranged.buffers) result.all_bytes += buffer.bytes;
  return result;
}

uint64_t min_memory(const Chain& chain, const std::string& strategy) {
  return make_schedule(chain, {.strategy = strategy, .memory_bytes = 0}).smallest_memory;
}

// Returns the minimum memory, to within 1%, at which `optimal` costs no more than the paper's plan.
uint64_t memory_at_papers_extra(const Net& net) {
  uint64_t low = min_memory(net.chain, "optimal"), high = make_schedule(net.chain, {.strategy = "none"}).peak_bytes;
  const double maximum = net.forward_backward() * (1 + kPapersExtra);
  while (high > low + low / 100) {
    const uint64_t middle = (low + high) / 2;
    const Schedule plan = make_schedule(net.chain, {.memory_bytes = middle});
    (plan.feasible && plan.makespan <= maximum ? high : low) = middle;
  }
  return high;
}

constexpr const char* kRungs[] = {"no optimization",  "in-place",   "sharing",    "drop bn-relu",
                                  "sublinear (chen)", "ours, +30%", "ours, least"};

// Returns the picture of the table. Both axes are logarithmic. Memory that is proportional to the
// depth has slope 1, and memory that is proportional to the root of the depth has slope 1/2.
std::string picture(const nlohmann::json& rows) {
  Chart chart{.title = "Feature maps of a bottleneck ResNet, batch 32, 224 x 224",
              .across = "layers, logarithmic",
              .upwards = "planned feature maps, GiB, logarithmic (no parameters, no kernel scratch)",
              .upwards_unit = "",
              .x_low = 128,
              .x_high = 1024,
              .y_high = 0,
              .logarithmic = true,
              .y_low = INFINITY,
              .lines = {},
              .guides = {},
              .notes = {}};
  for (const char* rung : kRungs) {
    ChartLine line{rung, {}, std::string(rung).starts_with("ours")};
    for (const nlohmann::json& row : rows)
      line.points.push_back({row.at("layers").get<double>(), row.at(rung).get<double>() / kGiB});
    for (const auto& [layers, gib] : line.points) {
      chart.y_low = std::min(chart.y_low, gib / 1.2);
      chart.y_high = std::max(chart.y_high, gib * 1.2);
    }
    chart.lines.push_back(line);
  }
  const auto through = [&chart](const char* name, size_t line, double slope) {
    const auto& [layers, gib] = chart.lines[line].points.front();
    chart.guides.push_back({name, layers, gib, slope});
  };
  through("slope 1: memory grows as the depth", 2, 1);
  through("slope 1/2: as its root", 4, 0.5);
  return chart_svg(chart);
}

nlohmann::json row_of(int layers) {
  const std::vector<int> units = units_at_depth(layers);
  const Recipe recipe = deep_resnet(units);
  const Net net(recipe), ours(recipe, true);
  const Joined joint = joined(net);
  const uint64_t bytes[] = {
      net.no_optimization(),
      joint.all_bytes,
      joint.packed_bytes,
      make_schedule(Net(recipe, false, keep_rule("drop-bn-relu")).chain, {.strategy = "none"}).peak_bytes,
      min_memory(net.chain, "chen"),
      memory_at_papers_extra(ours),
      min_memory(ours.chain, "optimal")};
  std::printf("| %d | [%d,%d,%d,%d] |", layers, units[0], units[1], units[2], units[3]);
  nlohmann::json row = {{"layers", layers}, {"units", units}};
  for (size_t r = 0; r < std::size(kRungs); ++r) {
    std::printf(" %.2f |", static_cast<double>(bytes[r]) / kGiB);
    row[kRungs[r]] = bytes[r];
  }
  std::printf("\n");
  std::fflush(stdout);
  return row;
}

int run(const std::string& json_file, const std::string& svg_file) {
  nlohmann::json table = nlohmann::json::array();
  std::printf("| layers | units |");
  for (const char* rung : kRungs) std::printf(" %s |", rung);
  std::printf("\n|---|---|---|---|---|---|---|---|---|\n");
  for (int layers = 128; layers <= 1024; layers += 128) table.push_back(row_of(layers));
  write_file(json_file, nlohmann::json{{"batch", 32}, {"image", {224, 224, 3}}, {"bytes", table}}.dump(1) + "\n");
  write_file(svg_file, picture(table));
  return 0;
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  using namespace reprise;
  if (argc != 3 && !(argc == 4 && std::string(argv[1]) == "--draw")) {
    std::fprintf(stderr, "usage: chen_curves_bench OUT.json OUT.svg, or chen_curves_bench --draw IN.json OUT.svg\n");
    return 2;
  }
  try {
    if (argc == 3) return bench::run(argv[1], argv[2]);
    write_file(argv[3], bench::picture(parse_json(read_file(argv[2]), argv[2]).at("bytes")));
    return 0;
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
