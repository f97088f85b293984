// Calls check() with the sample rules on a plan, and compares the reported fault with the expected
// one.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/check.h"
#include "tests/judges/sample_plans.h"

namespace reprise::testing {

inline Verdict judge(const OwnedPlan& plan) {
  const Plan view = plan.view();
  std::vector<CheckMark> marks(check_marks(view));
  return check(view, marks.data(), kSampleRules);
}

inline std::string shown(const Verdict& v) {
  return "fault " + std::to_string(static_cast<int>(v.fault)) + " (" + fault_text(v.fault) + ") program " +
         std::to_string(v.program) + " row " + std::to_string(v.row) + " slot " + std::to_string(v.slot);
}

}  // namespace reprise::testing

#define EXPECT_FAULT(plan, expected)                             \
  do {                                                           \
    const Verdict verdict = judge(plan);                         \
    EXPECT_EQ(verdict.fault, Fault::expected) << shown(verdict); \
  } while (false)
#define EXPECT_SAFE(plan) EXPECT_FAULT(plan, kNone)
