// See plan_requests.h.
#include "tools/run/training/plan_requests.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "tools/files/formats/json_text.h"
#include "tools/files/io/error.h"
#include "tools/files/io/text.h"
#include "tools/plan/recipes/recipe.h"
#include "tools/run/session/plan_signals.h"

namespace reprise {

PlanSizes::PlanSizes(const CompiledPlan& compiled) {
  for (uint32_t p = 0; p < std::max<uint32_t>(1, compiled.plans.count); ++p) {
    const CompiledPlan each = plan_at(compiled, p);
    const std::optional<uint64_t> budget = parse_recipe(each.recipe, each.plan.name, "/").budget_bytes;
    plans_.push_back(
        {each.plan.arena_bytes, budget, "the plan of " + bytes_text(budget.value_or(each.plan.arena_bytes))});
  }
  by_size_.resize(plans_.size());
  std::iota(by_size_.begin(), by_size_.end(), 0u);
  // The budget is part of the key, because two budgets may have equal plans.
  const auto size_of = [this](uint32_t plan) { return std::pair(plans_[plan].arena_bytes, plans_[plan].budget_bytes); };
  std::sort(by_size_.begin(), by_size_.end(), [&](uint32_t a, uint32_t b) { return size_of(a) < size_of(b); });
}

uint32_t PlanSizes::rank(uint32_t plan) const {
  return static_cast<uint32_t>(std::find(by_size_.begin(), by_size_.end(), plan) - by_size_.begin());
}

uint32_t PlanSizes::moved(uint32_t plan, int up) const {
  return by_size_[static_cast<size_t>(
      std::clamp<int64_t>(static_cast<int64_t>(rank(plan)) + up, 0, static_cast<int64_t>(by_size_.size()) - 1))];
}

std::optional<uint32_t> PlanSizes::find(const std::string& budget, std::string& problem) const {
  const bool is_number = budget.size() == 1 && budget[0] >= '0' && budget[0] <= '9';
  if (is_number && static_cast<size_t>(budget[0] - '0') < plans_.size()) return static_cast<uint32_t>(budget[0] - '0');
  uint64_t bytes = 0;
  try {
    bytes = parse_bytes(budget, "budget");
  } catch (const UserError& error) {
    problem = error.what();
    return std::nullopt;
  }
  std::optional<uint32_t> largest;
  for (const uint32_t plan : by_size_) {
    if (plans_[plan].arena_bytes <= bytes) largest = plan;
  }
  if (!largest)
    problem = "budget " + bytes_text(bytes) + " holds no plan of this program: the smallest takes " +
              bytes_text(plans_[by_size_[0]].arena_bytes);
  return largest;
}

PlanRequests::PlanRequests(const PlanSizes& sizes, const ProgramOptions& options, ControlFile* control, uint32_t plan)
    : sizes_(sizes), said_(plan), control_(control), pressure_(options.pressure) {
  count_plan_signals_from(sizes.rank(plan));
  if (options.pressure > 0) pressure_file_.emplace(options.pressure_file);
}

std::optional<PlanRequest> PlanRequests::take(uint32_t now, double seconds) {
  std::optional<PlanRequest> request = by_signal(now);
  if (std::optional<PlanRequest> later = by_control(now)) request = std::move(later);
  if (request && !request->is_warning) said_ = request->plan;
  if (!request) request = by_pressure(now, seconds);
  if (request) count_plan_signals_from(sizes_.rank(request->plan));
  return request;
}

void PlanRequests::refused(uint32_t now, double seconds) {
  count_plan_signals_from(sizes_.rank(now));
  pressure_.changed(-1, seconds);
}

std::optional<PlanRequest> PlanRequests::by_signal(uint32_t now) {
  const std::optional<uint32_t> rank = take_plan_signals();
  if (!rank) return std::nullopt;
  const uint32_t plan = sizes_.plan_of_rank(*rank);
  return PlanRequest{plan, std::string(plan == now                    ? "a signal"
                                       : sizes_.is_smaller(plan, now) ? "SIGUSR1"
                                                                      : "SIGUSR2") +
                               " asks for " + sizes_.name(plan)};
}

std::optional<PlanRequest> PlanRequests::by_control(uint32_t now) {
  if (control_ == nullptr || !control_->has_changed()) return std::nullopt;
  const std::string line(control_->last_line()), who = control_->path() + ": ";
  if (line.empty() || line == kPauseCommand || line == kGoCommand) return std::nullopt;
  constexpr std::string_view kWord = "budget ";
  if (!line.starts_with(kWord)) {
    return PlanRequest{now,
                       who + json_shown(line) +
                           " is no command; \"budget 3GiB\" is one, or \"budget 1\", \"pause\" and \"go\"",
                       true};
  }
  std::string problem;
  const std::optional<uint32_t> plan = sizes_.find(line.substr(kWord.size()), problem);
  if (!plan) return PlanRequest{now, who + problem, true};
  return PlanRequest{*plan, who + json_shown(line) + " asks for " + sizes_.name(*plan)};
}

std::optional<PlanRequest> PlanRequests::by_pressure(uint32_t now, double seconds) {
  if (!pressure_file_ || !pressure_.is_due(seconds)) return std::nullopt;
  std::string problem;
  const std::optional<double> share = pressure_file_->read(problem);
  if (!share) {
    pressure_file_.reset();
    return PlanRequest{now, "--pressure: " + problem + "; plans change by signals and --control alone", true};
  }
  const int up = pressure_.judge(*share, seconds);
  const bool has_more = up > 0 ? sizes_.is_smaller(now, said_) : up < 0 && sizes_.moved(now, -1) != now;
  if (!has_more) return std::nullopt;
  pressure_.changed(up, seconds);
  char words[96];
  std::snprintf(words, sizeof words, "the memory pressure, %.1f%% of the last 10 seconds, asks for ", *share);
  const uint32_t plan = sizes_.moved(now, up);
  return PlanRequest{plan, words + sizes_.name(plan)};
}

}  // namespace reprise
