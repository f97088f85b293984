// Says what is wrong with a backend's kernel on a case, if anything.
// Here so that every kernel meets the same judge; kernel_judge_test.cpp shows that it rejects wrong kernels.
#pragma once

#include <string>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"

namespace reprise::test {

// All of these answer "" for a kernel without fault. Guards and inputs are watched in every run.

// By the double-precision reference. A case with bad data must be noted as a fault (embedding, labels) or set skip (a loss
// that is not finite). `worst_error`, where given, becomes the largest error of an element, in units of its tolerance.
std::string judge_reference(const CaseDevice& device, const KernelCase& c, double* worst_error = nullptr);
// Bits must not depend on the number of workers, the order of tasks, addresses, or what outputs and scratch held before.
std::string judge_workers(const CaseDevice& device, const KernelCase& c);
// The same of a card, which takes no workers.
std::string judge_memory(const CaseDevice& device, const KernelCase& c);
// An in-place pair of kOps gives the bits that separate memory gives.
std::string judge_in_place(const CaseDevice& device, const KernelCase& c);
bool has_in_place(const KernelCase& c);
// Adding to zeros gives the value that overwriting gives, exactly; adding a weight's gradient to another gives their sum in f32, exactly, but where
// the sum runs on from what is there (ArgumentInfo::running).
std::string judge_accumulate(const CaseDevice& device, const KernelCase& c);
// Weights stored in any format give the bits that the same numbers give when they are stored as f32.
std::string judge_stored_weights(const CaseDevice& device, const KernelCase& c);

// Whether |got - expected| <= kSafety * 2^-24 * sqrt(terms) * magnitude everywhere (ref/array.h says why); else the worst element.
// For a result stored as bf16 one rounding to the nearest bf16 is added, and no more.
// `worst_error`, where given, is raised to the largest error in units of the tolerance.
std::string difference(const std::string& name, const ref::Expected& expected, const std::vector<double>& got, double stored_rounding = 0,
                       double* worst_error = nullptr);

}  // namespace reprise::test
