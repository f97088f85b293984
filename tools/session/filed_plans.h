// The plans of a plan file, which a program runs in place of those that were compiled into it.
#pragma once

#include <string>
#include <vector>

#include "tools/session/compiled_plan.h"
#include "tools/writing/plan_file.h"

namespace reprise {

class FiledPlans {
 public:
  // Throws UserError where the file cannot be read, or is not whole.
  explicit FiledPlans(const std::string& path);
  FiledPlans(const FiledPlans&) = delete;
  FiledPlans& operator=(const FiledPlans&) = delete;

  // The first plan, for the first of the boards that has its backend. All of them are proved, as the compiler proves those of plan.h, before
  // any memory is taken for one. It lives as long as this object. Throws UserError where no board has the backend, or a plan is not safe.
  CompiledPlan proved_for(const std::vector<const Port*>& boards) const;

 private:
  void prove(const Backend& backend) const;

  std::string path_;
  std::vector<FiledPlan> filed_;
  std::vector<Plan> plans_;            // views of them
  std::vector<WrittenPlan> written_;
};

}  // namespace reprise
