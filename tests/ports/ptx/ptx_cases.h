// Code shared by the tests that run CUDA's kernels by PTX: the PTX that nvcc has made, and the
// machine that runs cases of the table. Each of these tests is a program of its own, so that they
// can run in parallel. If there is no PTX, they are skipped.
#pragma once

#include "tests/ports/fibres/cuda_fibre.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/cuda_backend.h"
#include "tests/ops/families.h"
#include "tests/ports/fibres/cuda_fibre_cases.h"
#include "tests/ports/ptx/ptx_launches.h"
#include "tests/ports/test_workers.h"
#include "tests/runtime/programs/process.h"

namespace reprise::test {

// ---- the PTX ----

inline const std::vector<ptx::PtxFile>& files() {
  static const std::vector<ptx::PtxFile> kFiles = ptx::read_ptx_files(build_folder() + "/cuda");
  return kFiles;
}
inline ptx::Kernels& kernels() {
  static ptx::Kernels kernels(files());
  return kernels;
}

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (files().empty())
      GTEST_SKIP() << "no PTX in " << build_folder() << "/cuda: there is no nvcc here, and no kernel runs by PTX";
    fibre::set_order(1);
    machine_.set_order(1);
    fibre::set_tensor_core(fibre::kTensorCores[0]);
  }
  ~Ptx() override { EXPECT_EQ(fibre::take_report().text, ""); }

  ptx::Machine machine_;
};

// ---- cases ----

inline const CudaMachine kMachine = [] {
  CudaMachine machine;
  choose_cuda_machine(machine);
  return machine;
}();
inline const Backend kBackend = cuda_backend(kMachine);

inline CaseRunResult run_here(const KernelCase& c, const CaseData& data, const Backend& backend = kBackend) {
  static const TestWorkers one(1);
  return run_case(watched(backend), c, data, {.workers = &one.workers()});
}

// Returns the case of the table with this id, which may also be the id of a case stored as bf16.
inline KernelCase case_of(const std::string& id) {
  for (const KernelCase& c : kernel_cases()) {
    if (c.id == id) return c;
    if (const std::optional<KernelCase> stored = stored_as_bf16(c); stored && stored->id == id) return *stored;
  }
  ADD_FAILURE() << "no case " << id;
  return {};
}

}  // namespace reprise::test
