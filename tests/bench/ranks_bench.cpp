// Writes RANKS.md: the predicted gain of more boards for two trainings. For every number of ranks a
// real plan is made and simulated with a network (tools/plan/costs/wire_time.h). The seconds of
// kernels and of the network are assumptions, as the page states. Nothing is measured. The page
// answers whether many boards are worth buying.
//
//   build/tests/bench/ranks_bench >tests/bench/pages/RANKS.md
#include <algorithm>
#include <cstdio>
#include <string>

#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/plan/costs/backends.h"
#include "tools/plan/costs/board.h"
#include "tools/plan/costs/prediction.h"
#include "tools/plan/graph/cost.h"

namespace reprise::bench {
namespace {

constexpr double kShareOfRates = 0.5;  // the share of a board's rates that kernels reach
constexpr uint32_t kRanks[] = {1, 2, 4, 8, 16, 32, 64};
constexpr int kAccumulate = 8;

struct Net {
  const char* title;
  const char* text;
};
constexpr Net kNets[] = {
    {"LoRA of Llama 3.2 1B, rank 16 on all linear layers, 2048 tokens a micro-batch",
     R"({"name": "llama-3.2-1b-lora", "model": {"family": "llama", "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
     "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
     "rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192}}, "init": "random", "data": {"kind": "synthetic"}, "batch": 1, "sequence": 2048, "dtype": "bf16", "steps": 1,
     "weights": {"frozen": "q4_0"}, "lora": {"r": 16, "alpha": 32}, "optimizer": {"name": "adamw", "lr": 1e-4}, "budget": "6GiB"})"},
    {"ResNet-50 at 224 x 224, all weights, 32 images a micro-batch",
     R"({"name": "resnet50", "model": {"family": "resnet", "block": "bottleneck", "units": [3, 4, 6, 3], "width": 64, "stem": "imagenet", "classes": 1000,
     "image": [224, 224, 3]}, "data": {"kind": "synthetic"}, "batch": 32, "steps": 1, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}, "budget": "6GiB"})"}};

struct Computer {
  const char* title;
  Recipe::BackendChoice backend;  // selects the rates in the board's file
};
constexpr Computer kComputers[] = {{"its processor", Recipe::BackendChoice::kCpu},
                                   {"its card (ranks of cards are not built)", Recipe::BackendChoice::kCuda}};

constexpr Wire kWires[] = {{2, 2e-4, 1 / 117e6}, {2, 2e-4, 1 / 1170e6}};

Recipe recipe_of(const Net& net, uint32_t ranks, int accumulate, bool two_levels = false) {
  Recipe recipe = parse_recipe(net.text, "ranks_bench", "/");
  recipe.parallel = ParallelRecipe{.ranks = static_cast<int>(ranks), .two_levels = two_levels};
  recipe.accumulate = accumulate;
  return recipe;
}

// Prices each call by the longer of two times, for its flops and for its bytes.
MeasuredCosts costs_of(const Net& net, const Computer& computer) {
  Recipe recipe = recipe_of(net, 1, 1);
  recipe.backend = computer.backend;
  const BoardProcessor rates = read_board("tools/boards/orin-nano-8gb.json", backend_of(recipe)).processor;
  const double flops = kShareOfRates * (recipe.dtype == Recipe::Dtype::kBf16 ? rates.bf16_flops : rates.f32_flops),
               bytes = kShareOfRates * rates.bytes_per_second;
  const auto seconds = [flops, bytes](const CallCost& cost) {
    return std::max(cost.flops / flops, cost.bytes / bytes);
  };
  MeasuredCosts costs;
  costs.call_seconds = [seconds](const Graph& graph, const Call& call) { return seconds(call_cost(graph, call)); };
  costs.row_seconds = [seconds](const OwnedPlan& plan, const OwnedProgram& program, const Row& row) {
    return seconds(kernel_cost(kernel_call(plan, program, row), plan.attributes));
  };
  return costs;
}

struct Steps {
  uint64_t sent_bytes = 0, arena_bytes = 0;
  double seconds[std::size(kWires)] = {};
  double wire_seconds[std::size(kWires)] = {};
};

Steps steps_of(const Net& net, const MeasuredCosts& costs, uint32_t ranks, int accumulate, bool two_levels = false) {
  SolvedModel model = solve_model(recipe_of(net, ranks, accumulate, two_levels), costs);
  const PlannedModel planned = plan_model(model, request_of(model));
  if (!planned.fits)
    throw UserError(model.recipe.name + ": does not fit its budget with " + std::to_string(ranks) + " ranks");
  Steps steps;
  steps.arena_bytes = planned.plan.arena_bytes;
  for (size_t w = 0; w < std::size(kWires); ++w) {
    model.measured->wire = kWires[w];
    const WireTime time = step_on_wire(model, planned.plan);
    steps.seconds[w] = time.step_seconds, steps.wire_seconds[w] = time.wire_seconds, steps.sent_bytes = time.sent_bytes;
  }
  return steps;
}

// The ways to run a step of several ranks, which the page compares for each network.
constexpr const char* kWays[] = {"flat, 1", "flat, 8", "two-level, 8"};

// The number of single boards that are together as fast as the ranks, for each network and way.
struct Worth {
  double boards[std::size(kWires)][std::size(kWays)] = {};
};

void print_pays(const std::vector<Worth>& worth) {
  std::printf("| half a board each, up to |");
  for (size_t w = 0; w < std::size(kWires); ++w) {
    for (size_t way = 0; way < std::size(kWays); ++way) {
      uint32_t pays = 1;
      for (size_t n = 0; n < std::size(kRanks); ++n) {
        if (worth[n].boards[w][way] >= 0.5 * kRanks[n]) pays = kRanks[n];
      }
      std::printf(" **%u** |", pays);
    }
  }
  std::printf(" |\n");
}

void print_table(const Net& net, const Computer& computer) {
  const MeasuredCosts costs = costs_of(net, computer);
  const Steps one = steps_of(net, costs, 1, 1), one_of_eight = steps_of(net, costs, 1, kAccumulate);
  std::vector<Worth> worth;
  std::string rows;
  uint64_t sent = 0;
  for (const uint32_t ranks : kRanks) {
    const Steps flat = steps_of(net, costs, ranks, 1), flat_8 = steps_of(net, costs, ranks, kAccumulate),
                two_level = steps_of(net, costs, ranks, kAccumulate, true);
    worth.emplace_back();
    char cell[64];
    rows += "| " + std::to_string(ranks) + " |";
    for (size_t w = 0; w < std::size(kWires); ++w) {
      const double boards[] = {ranks * one.seconds[w] / flat.seconds[w],
                               ranks * one_of_eight.seconds[w] / flat_8.seconds[w],
                               ranks * one_of_eight.seconds[w] / two_level.seconds[w]};
      for (size_t way = 0; way < std::size(kWays); ++way) {
        worth.back().boards[w][way] = boards[way];
        std::snprintf(cell, sizeof cell, " %.1f (%.0f%%) |", boards[way], 100 * boards[way] / ranks);
        rows += cell;
      }
    }
    rows += " " + bytes_text(flat.arena_bytes) + " |\n";
    if (ranks > 1) sent = flat.sent_bytes;
  }
  std::printf(
      "\n## %s, on %s\n\nOne board takes %.3g s for a micro-batch. Of each micro-batch a rank sends %s to every "
      "other.\n\n",
      net.title, computer.title, one.seconds[0], bytes_text(sent).c_str());
  std::printf(
      "| boards | 1 Gbit/s: flat, 1 | flat, 8 | two-level, 8 | 10 Gbit/s: flat, 1 | flat, 8 | two-level, 8 | arena "
      "|\n|---|---|---|---|---|---|---|---|\n%s",
      rows.c_str());
  print_pays(worth);
}

void print_head() {
  std::printf(
      "# Scaling to 64 boards, on paper\n\n"
      "**Nothing of the tables of boards is measured: it is a simulation with assumed prices.** The last section has "
      "what the same walk foretold of\n"
      "runs on one machine. `build/tests/bench/ranks_bench` writes the page: for every number of boards it makes the "
      "real plan of a rank, and\n"
      "walks its rows beside one queue for the wire (`tools/plan/costs/wire_time.h`, \"compare --ranks\" in "
      "tools/COMMANDS.md).\n\n"
      "- **A board** is a Jetson Orin Nano 8 GB with an arena of at most 6 GiB. Each kernel takes the time of its "
      "flops or of its bytes, whichever\n"
      "  is longer, at %.0f%% of the rates in `tools/boards/orin-nano-8gb.json`: 166 GFLOP/s and 77 GB/s of the "
      "processor; of the card 2.09 TFLOP/s\n"
      "  of f32, with which ResNet-50 computes, and 16.7 of bf16, with which Llama does.\n"
      "- **The wire** of 1 Gbit/s carries 117 MB/s each way at once, that of 10 Gbit/s ten times as much. A tensor of "
      "each other rank takes 0.2 ms\n"
      "  beside its bytes, on both, one tensor after another: of N ranks each receives N - 1 tensors for one of its "
      "own. The switch is never the\n"
      "  limit, ranks are alike and start together, and the wire goes on while rows run. Small tensors overlap in "
      "truth, so that 0.2 ms for each\n"
      "  is more than they would take.\n"
      "- **flat, 1**: each rank takes one micro-batch a step; **flat, 8** eight, and each gradient travels as often.\n"
      "- **two-level, 8**: a rank adds its eight before they travel, so that an eighth of the gradients is sent.\n"
      "- **Where it ends**: while a rank computes one gradient, N - 1 of others come in. Flat, the samples a second no "
      "longer rise where these take\n"
      "  longer than a micro-batch, however many boards are added; in two levels that is eight times as far away.\n"
      "- **A cell** says how many single boards the boards are worth, by samples a second, and which share of "
      "themselves that is. The last row\n"
      "  says up to how many boards each is worth at least half of one.\n",
      100 * kShareOfRates);
}

// Prints predicted and measured times of real runs. The times are constants, because they were
// measured by hand and this program prints the complete page.
void print_runs() {
  std::printf(
      "\n## The walk beside real runs\n\n"
      "Measured by hand on 2026-11-28: two cores of an AMD EPYC, Open MPI 4.1, a GPT-2 of 4 layers of 256, one thread "
      "a rank, 12.4 MiB of\n"
      "gradients; `profile --peers`, `compare --ranks 1,2`, then 100 steps (40 over TCP) in two or three turns. A slow "
      "wire is\n"
      "the loopback of a network namespace of its own, held to 2 Gbit/s for both directions together. **Nobody has "
      "measured\n"
      "two machines with a cable between them.**\n\n"
      "| ranks, wire | tokens of a rank | foretold | best | median |\n|---|---|---|---|---|\n"
      "| one | 128 | 29.8 ms | 29.3 ms | 29.8 to 30.9 ms |\n"
      "| two, memory that they share | 128 | 30.6 ms | 34.0 ms | 34.9 to 36.9 ms |\n"
      "| two, TCP, 1 Gbit/s each way | 128 | 117.6 ms | 117.5 ms | 120 to 136 ms |\n"
      "| two, TCP, 1 Gbit/s each way | 768 | 170 ms | 192 ms | not told: other work took the cores |\n\n"
      "Where the wire binds, the walk is right. Where it is hidden, steps are 11%% to 21%% longer than foretold: the "
      "ranks' own cores move the bytes,\n"
      "which the walk takes for somebody else's work, and two ranks share one machine's memory.\n");
}

}  // namespace
}  // namespace reprise::bench

int main() {
  using namespace reprise::bench;
  try {
    print_head();
    for (const Net& net : kNets) {
      for (const Computer& computer : kComputers) print_table(net, computer);
    }
    print_runs();
    return 0;
  } catch (const reprise::UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.status;
  }
}
