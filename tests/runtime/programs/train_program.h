// Small training programs for tests, planned and compiled from recipes as the Makefile does it, and
// functions that read the files that the programs write.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/programs/process.h"

namespace reprise::test {

// Plans and compiles $BUILD/test-programs/NAME/train, at most once in this process, and returns its
// path. Throws with the compiler's message if this fails.
std::string train_program(const std::string& name, const nlohmann::json& recipe);

// Returns the recipe after the JSON merge patch `changes`.
nlohmann::json with(nlohmann::json recipe, const nlohmann::json& changes);

// Returns the smallest budget that `reprise fit` reports.
uint64_t smallest_budget(const nlohmann::json& recipe);

// The steps and evaluations of a log file.
struct Log {
  std::vector<nlohmann::json> lines;  // lines as printed, each a step or an evaluation
  // Returns the lines without seconds and bytes, which differ between runs of one training.
  std::vector<std::string> results() const;
};
Log read_log(const std::string& path);

// Returns the number of the step after which the snapshot in `folder` was saved.
uint64_t saved_step(const std::string& folder);

// Returns all files of a snapshot with weights and optimizer state, joined to one text; "" if a
// file is missing.
std::string snapshot_tensors(const std::string& folder);

// Writes an IDX data set with `count` images of 8 x 8 for training, and as many for testing. The
// labels are from 0 to 3.
void write_idx_data(const std::string& folder, int count);

using Arguments = std::vector<std::string>;

// A fixture that runs training programs, and has a folder for the files that they write.
class TrainProgram : public ::testing::Test {
 protected:
  ProcessResult train(const std::string& program, Arguments arguments, const ProcessOptions& options = {});
  // Runs the program with --quiet, and requires exit status 0 and no output.
  void quietly(const std::string& program, Arguments arguments);
  // Runs the program with --quiet, and requires exit status `status` and one line on stderr that
  // contains every fragment.
  void expect_refusal(const std::string& program, Arguments arguments, const Arguments& fragments, int status = 1);
  std::string at(const std::string& name) const { return folder_.file(name); }

  TemporaryFolder folder_;
};

}  // namespace reprise::test
