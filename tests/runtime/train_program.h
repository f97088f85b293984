// Small training programs for the tests: recipes, planned and compiled as the Makefile does, and what they leave behind.
// Here so that a test of the program says only what it runs and what must hold.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/faces/expect_user_error.h"
#include "tests/runtime/process.h"

namespace reprise::test {

// $BUILD/test-programs/NAME/train, planned and compiled once in this process; throws with the compiler's words.
std::string train_program(const std::string& name, const nlohmann::json& recipe);

// A recipe with changes, as a JSON merge patch.
nlohmann::json with(nlohmann::json recipe, const nlohmann::json& changes);

// What `reprise fit` says of it.
uint64_t smallest_budget(const nlohmann::json& recipe);

// The steps of a log, or its evaluations; numbers as they were printed, "seconds" and the bytes left out.
struct Log {
  std::vector<nlohmann::json> lines;  // as they are
  std::vector<std::string> results() const;  // what must be the same in every run of the same training
};
Log read_log(const std::string& path);

uint64_t saved_step(const std::string& folder);  // of a snapshot

// All files of a snapshot that hold weights and optimizer state, as one text; "" where one is missing.
std::string snapshot_tensors(const std::string& folder);

// An IDX data set of `count` images of 8 x 8 (and as many for testing) with labels from 0 to 3.
void write_idx_data(const std::string& folder, int count);

using Arguments = std::vector<std::string>;

// Runs training programs, and has a folder for what they leave.
class TrainProgram : public ::testing::Test {
 protected:
  ProcessResult train(const std::string& program, Arguments arguments, const ProcessOptions& options = {});
  // Runs quietly; demands silence and success.
  void quietly(const std::string& program, Arguments arguments);
  // Runs quietly; demands that status, and one line that holds every fragment.
  void expect_refusal(const std::string& program, Arguments arguments, const Arguments& fragments, int status = 1);
  std::string at(const std::string& name) const { return folder_.file(name); }

  TemporaryFolder folder_;
};

}  // namespace reprise::test
