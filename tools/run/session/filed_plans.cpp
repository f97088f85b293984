// See filed_plans.h.
#include "tools/run/session/filed_plans.h"

#include "lib/backend.h"
#include "lib/check.h"
#include "lib/same_state.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/files/progress/long_work.h"
#include "tools/run/session/status_text.h"

namespace reprise {

FiledPlans::FiledPlans(const std::string& path) : path_(path), filed_(parse_plan_file(read_file(path), path)) {
  plans_.reserve(filed_.size());
  for (const FiledPlan& each : filed_) {
    plans_.push_back(each.plan.view());
    written_.push_back({&plans_.back(),
                        each.recipe.c_str(),
                        each.summary.c_str(),
                        each.hash.c_str(),
                        {each.smaller_budgets.data(), static_cast<uint32_t>(each.smaller_budgets.size())}});
  }
}

void FiledPlans::prove(const Backend& backend) const {
  const LongWork work("proving " + path_);
  for (const Plan& plan : plans_) {
    std::vector<CheckMark> marks(check_marks(plan));
    const Verdict verdict = check(plan, marks.data(), *backend.rules);
    if (!verdict.ok())
      fail(path_, {Code::kBadPlan, fault_text(verdict.fault), uint64_t{verdict.program} << 32 | verdict.row}, &plan);
    if (!same_state(plans_.front(), plan))
      throw UserError(path_ + ": its plans have not the same State; write it again with `reprise plan --binary`");
  }
}

CompiledPlan FiledPlans::proved_for(const std::vector<const Port*>& boards) const {
  Status refusal;
  for (const Port* board : boards) {
    Backend backend;
    const Status status = board->open_backend(plans_.front().backend, &backend);
    if (status.ok()) {
      prove(backend);
      board->close_backend(&backend);
      CompiledPlan first =
          plan_at({plans_.front(), "", "", *board, "", {written_.data(), static_cast<uint32_t>(written_.size())}}, 0);
      first.file = path_.c_str();
      return first;
    }
    if (refusal.ok()) refusal = status;
  }
  throw UserError(path_ + ": backend: \"" + plans_.front().backend +
                  "\": this program cannot run it: " + message_of(refusal));
}

}  // namespace reprise
