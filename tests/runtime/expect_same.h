// Requires that two trainings of one recipe have the same bits, whatever their plans and numbers of
// workers. Also requires that measured memory is planned memory.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/runtime/training_harness.h"

namespace reprise {

inline void expect_same(const RunResult& expected, const RunResult& actual, const std::string& what) {
  EXPECT_EQ(expected.losses, actual.losses) << what;
  EXPECT_EQ(expected.gradient_norms, actual.gradient_norms) << what;
  EXPECT_TRUE(expected.state == actual.state) << what << ": weights, moments or statistics differ";
  EXPECT_TRUE(expected.gradients == actual.gradients) << what << ": gradients differ";
  EXPECT_EQ(expected.evaluation.loss, actual.evaluation.loss) << what;
  EXPECT_EQ(actual.planned_bytes, actual.measured_bytes) << what;
  EXPECT_EQ(actual.planned_spill_bytes, actual.measured_spill_bytes) << what;
}

}  // namespace reprise
