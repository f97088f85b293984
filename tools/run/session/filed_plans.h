// The plans in a plan file. A program runs them instead of its compiled plans.
#pragma once

#include <string>
#include <vector>

#include "tools/plan/writing/plan_file.h"
#include "tools/run/session/compiled_plan.h"

namespace reprise {

// The contents of one plan file.
class FiledPlans {
 public:
  // Reads the file. Throws UserError if it cannot be read or is incomplete.
  explicit FiledPlans(const std::string& path);
  FiledPlans(const FiledPlans&) = delete;
  FiledPlans& operator=(const FiledPlans&) = delete;

  // Returns the first plan, for the first of `boards` that has its backend. First proves all plans,
  // as the compiler proves the plans in plan.h; no memory is acquired for a plan before that. The
  // result is valid as long as this object. Throws UserError if no board has the backend, or if a
  // plan is not safe.
  CompiledPlan proved_for(const std::vector<const Port*>& boards) const;

 private:
  void prove(const Backend& backend) const;

  std::string path_;
  std::vector<FiledPlan> filed_;
  std::vector<Plan> plans_;  // views of the plans in filed_
  std::vector<WrittenPlan> written_;
};

}  // namespace reprise
