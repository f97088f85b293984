// Implements board.h: reads the file of a board, and computes a step's lower bound row by row, as
// the roofline of flops and bytes.
#include "tools/plan/costs/board.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tools/files/formats/json_fields.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/io/text.h"
#include "tools/plan/graph/cost.h"

namespace reprise {

using nlohmann::json;

namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 50;

double rate(const JsonFields& fields, const std::string& key) {
  return fields.number_in(key, fields.at(key), kPositive);
}
uint64_t bytes(const JsonFields& fields, const std::string& key) {
  return fields.integer_in(key, fields.at(key), 0, kMaxBytes);
}

}  // namespace

BoardKind board_kind(const std::string& path) {
  const std::string text = read_file(path);
  const json file = parse_json(text, path, JsonComments::kAllowed);
  const bool has_processors = file.is_object() && file.contains("processors") && file["processors"].is_object();
  return {.has_card = has_processors && file["processors"].contains("cuda"),
          .is_chip = file.is_object() && file.contains("flash_bytes")};
}

Board read_board(const std::string& path, const BackendRules& backend) {
  const std::string text = read_file(path);
  const json file = parse_json(text, path, JsonComments::kAllowed);
  const JsonFields fields(file, {path, &text}, "");
  fields.allow_only({"name", "usable_bytes", "flash_bytes", "ram_bytes", "processors", "sources"});
  Board board;
  fields.at("name");
  fields.read("name", board.name);
  const uint64_t usable_bytes = bytes(fields, "usable_bytes");
  const JsonFields processors = fields.object("processors");
  processors.allow_only({"cpu", "cuda"});
  // the backend's name without the suffixes for a card's size and for the math
  const std::string processor(backend.name, std::strcspn(backend.name, "-+"));
  board.backend = processor;
  if (!processors.has(processor))
    fields.refuse("processors", "has no \"" + processor + "\", which is the recipe's backend");
  const JsonFields own = processors.object(processor);
  own.allow_only({"reserve_bytes", "code_bytes", "f32_flops", "bf16_flops", "bytes_per_second"});
  board.processor = {bytes(own, "reserve_bytes"), rate(own, "f32_flops"), rate(own, "bf16_flops"),
                     rate(own, "bytes_per_second")};
  if (fields.has("flash_bytes")) board.chip = {bytes(fields, "flash_bytes"), bytes(own, "code_bytes"), {}};
  if (board.chip && fields.has("ram_bytes")) board.chip->ram_bytes = bytes(fields, "ram_bytes");
  board.host =
      backend.host_share(usable_bytes, board.chip && board.chip->ram_bytes ? 0 : board.processor.reserve_bytes);
  return board;
}

uint64_t weights_bytes(const OwnedPlan& plan) {
  uint64_t all = 0;
  for (const StateTensor& each : plan.state)
    all += each.kind == StateKind::kParameter || each.kind == StateKind::kBuffer ? each.tensor.bytes : 0;
  return all;
}

std::string beyond_chip(const Board& board, const OwnedPlan& plan, uint64_t plan_bytes) {
  const Chip& chip = *board.chip;
  const uint64_t data = board.processor.reserve_bytes, weights = weights_bytes(plan);
  if (chip.ram_bytes && plan.worker_stack_bytes + data > *chip.ram_bytes) {
    return "a stack of " + bytes_text(plan.worker_stack_bytes) + " and data of " + bytes_text(data) +
           " are more than the " + bytes_text(*chip.ram_bytes) + " of RAM that " + board.name + " has for them";
  }
  if (chip.code_bytes + plan_bytes + weights > chip.flash_bytes) {
    return "code of " + bytes_text(chip.code_bytes) + ", a plan of " + bytes_text(plan_bytes) + " and weights of " +
           bytes_text(weights) + " are more than the " + bytes_text(chip.flash_bytes) + " of flash that " + board.name +
           " has";
  }
  return "";
}

namespace {

// True if a recipe's "math" applies to the op.
bool has_math(Op op) {
  return op == Op::kLinear || op == Op::kConv || op == Op::kNormConv || op == Op::kConvTranspose || op == Op::kLossHead;
}
// Returns the processor's flop/s with this math. Tensor cores multiply tf32 at half the rate of
// bf16.
double flops_by_math(const BoardProcessor& processor, Recipe::Math math) {
  switch (math) {
    case Recipe::Math::kTf32: return std::max(processor.f32_flops, processor.bf16_flops / 2);
    case Recipe::Math::kBf16x3: return std::max(processor.f32_flops, processor.bf16_flops / 3);
    default: return processor.f32_flops;
  }
}

}  // namespace

Roofline step_roofline(const OwnedPlan& plan, const BoardProcessor& processor, const Recipe& recipe) {
  Roofline roofline;
  const double of_all = recipe.dtype == Recipe::Dtype::kBf16 ? processor.bf16_flops : processor.f32_flops;
  for_each_step_row(plan, [&](const OwnedProgram& program, const Row& row, uint32_t times) {
    const CallCost cost = kernel_cost(kernel_call(plan, program, row), plan.attributes);
    const double flops = has_math(row.op) ? std::max(of_all, flops_by_math(processor, recipe.math)) : of_all;
    const double computing = times * cost.flops / flops, moving = times * cost.bytes / processor.bytes_per_second;
    roofline.seconds += std::max(computing, moving);
    if (moving > computing) roofline.bandwidth_seconds += moving;
  });
  return roofline;
}

json host_share_json(const HostShare& share) {
  return {{"system_bytes", share.system_bytes},
          {"headroom_bytes", share.headroom_bytes},
          {"staging_bytes", share.staging_bytes},
          {"bytes", share.bytes()},
          {"room_bytes", share.space_bytes()}};
}

json board_json(const Board& board, const SolvedModel& model, const PlannedModel& planned, uint64_t plan_bytes) {
  json answer = {{"name", board.name},
                 {"backend", board.backend},
                 {"usable_bytes", board.host.usable_bytes},
                 {"reserve_bytes", board.processor.reserve_bytes},
                 {"room_bytes", board.host.space_bytes()},
                 {"host_share", host_share_json(board.host)},
                 {"least_seconds", nullptr},
                 {"bound", nullptr},
                 {"bound_share", nullptr}};
  if (board.chip) {
    const bool made = planned.plan.arena_bytes > 0;
    const auto of_plan = [made](uint64_t count) { return made ? json(count) : json(); };
    answer.update({{"flash_bytes", board.chip->flash_bytes},
                   {"code_bytes", board.chip->code_bytes},
                   {"plan_bytes", of_plan(plan_bytes)},
                   {"weights_bytes", of_plan(weights_bytes(planned.plan))},
                   {"ram_bytes", board.chip->ram_bytes ? json(*board.chip->ram_bytes) : json()},
                   {"data_bytes", board.processor.reserve_bytes},
                   {"stack_bytes", of_plan(planned.plan.worker_stack_bytes)}});
  }
  if (!planned.fits) return answer;
  const Roofline roofline = step_roofline(planned.plan, board.processor, model.recipe);
  const double share = roofline.bandwidth_seconds / roofline.seconds;
  answer["least_seconds"] = roofline.seconds;
  answer["bound"] = share > 0.5 ? "bandwidth" : "flops";
  answer["bound_share"] = std::max(share, 1 - share);
  return answer;
}

namespace {

// Returns text that states what each memory of a chip contains.
std::string chip_text(const Board& board, const json& answer) {
  const auto part = [&answer](const char* key) { return bytes_text(answer[key].get<uint64_t>()); };
  const std::string beside = "a stack of " + part("stack_bytes") + " and data of " + part("data_bytes");
  const std::string arena = "an arena may take " + bytes_text(board.host.space_bytes());
  return "  on the board    " + board.name + ": " + arena + ", " +
         (board.chip->ram_bytes ? beside + " lie in " + part("ram_bytes") : "beside it lie " + beside) +
         "\n  in its flash    code of " + part("code_bytes") + ", a plan of " + part("plan_bytes") +
         " and weights of " + part("weights_bytes") + ", of " + part("flash_bytes") + "\n";
}

}  // namespace

std::string board_text(const Board& board, const json& answer) {
  const std::string text = board.chip
                               ? chip_text(board, answer)
                               : "  on the board    " + board.name + (board.backend == "cuda" ? ", its card: " : ": ") +
                                     host_share_text(board.host).text + ", an arena may take " +
                                     bytes_text(board.host.space_bytes()) + "\n";
  if (answer["least_seconds"].is_null()) return text;
  char line[160];
  std::snprintf(line, sizeof line,
                "  a step there    at least %.3g s, by flops and bytes at the board's rates (%s bind%s %.0f%% of it): "
                "a bound, not a measurement\n",
                answer["least_seconds"].get<double>(), answer["bound"].get<std::string>().c_str(),
                answer["bound"] == "bandwidth" ? "s" : "", 100 * answer["bound_share"].get<double>());
  return text + line;
}

}  // namespace reprise
