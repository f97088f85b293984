// Small training programs for the tests: recipes, planned and compiled as the Makefile does, and what they leave behind.
// Here so that a test of the program says only what it runs and what must hold.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/runtime/process.h"

namespace reprise::test {

// $BUILD/test-programs/NAME/train, planned and compiled once in this process; throws with the compiler's words.
std::string train_program(const std::string& name, const nlohmann::json& recipe);

// The steps of a log, or its evaluations; numbers as they were printed, "seconds" and the bytes left out.
struct Log {
  std::vector<nlohmann::json> lines;  // as they are
  std::vector<std::string> results() const;  // what must be the same in every run of the same training
};
Log read_log(const std::string& path);

// All files of a snapshot that hold weights and optimizer state, as one text; "" where one is missing.
std::string snapshot_tensors(const std::string& folder);

// An IDX data set of `count` images of 8 x 8 (and as many for testing) with labels from 0 to 3.
void write_idx_data(const std::string& folder, int count);

}  // namespace reprise::test
