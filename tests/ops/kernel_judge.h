// Functions that test a backend's kernel on a case. All kernels are tested by these functions;
// kernel_judge_test.cpp shows that they reject wrong kernels.
#pragma once

#include <string>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/families.h"
#include "tests/ops/kernel_run.h"

namespace reprise::test {

// The judge functions return "" for a correct kernel, and otherwise its faults. Each run also
// checks that guards and inputs are unchanged.

// Compares the outputs with the double-precision reference. A bad index must be recorded as a data
// fault. A loss that is not finite must set scalars.skip. If `worst_error` is not null,
// *worst_error is raised to the largest error of an element, in units of the element's tolerance.
std::string judge_reference(const CaseDevice& device, const KernelCase& c, double* worst_error = nullptr);
// Requires bits that do not depend on the number of workers, the order of tasks, the addresses, or
// the old content of outputs and scratch.
std::string judge_workers(const CaseDevice& device, const KernelCase& c);
// Requires everything that judge_workers requires, except that it does not vary the workers. Used
// for cards.
std::string judge_memory(const CaseDevice& device, const KernelCase& c);
// Requires that an in-place call gives the same bits as a call with separate memory. kOps names the
// output that may share memory with an input.
std::string judge_in_place(const CaseDevice& device, const KernelCase& c);
bool has_in_place(const KernelCase& c);
// Tests a case that accumulates. Adding to zeros must give exactly the result of overwriting.
// Adding a weight gradient to an old value must give exactly the f32 sum of the old value and the
// gradient. Sums that continue from the old value (ArgumentInfo::running) are exempt from the
// second rule.
std::string judge_accumulate(const CaseDevice& device, const KernelCase& c);
// Requires a kernel to give the same bits for weights in any format as for the same numbers stored
// as f32.
std::string judge_stored_weights(const CaseDevice& device, const KernelCase& c);

// Returns "" if |got - expected| <= kSafety * 2^-24 * sqrt(terms) * magnitude for every element
// (see ref/array.h). Otherwise describes the worst element. `stored_rounding` is a relative error
// that storing may add, for example one rounding to bf16. If `worst_error` is not null,
// *worst_error is raised to the largest error in units of the tolerance.
std::string difference(const std::string& name, const ref::Expected& expected, const std::vector<double>& got,
                       double stored_rounding = 0, double* worst_error = nullptr);

}  // namespace reprise::test
