// The list of all families of ops. A new family is one file and one line in families.cpp.
#pragma once

#include <span>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/op_family.h"

namespace reprise::test {

std::span<const OpFamily* const> op_families();
const OpFamily& family_of(Op op);

std::vector<KernelCase> kernel_cases(CaseUse use = CaseUse::kTest);

// Returns the data of a case. The data depend only on the id, so that the id suffices to repeat a
// case.
CaseData make_data(const KernelCase& c);

// Returns the expected outputs, except those that a family computes from outputs that the kernel
// has stored (OpFamily::expect_from_stored). Must not be called for a case with a bad index.
CaseExpected expected(const KernelCase& c, const CaseData& data);

// True if the backend's kernel can read the weights in the type in which the case stores them.
inline bool takes_weights_of(const Backend& backend, const KernelCase& c) {
  const WeightFormats formats = backend.rules->kernels[kernel_index(c.op, c.pass)].weights;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.has(i) && c.info().arguments[i].storage == Storage::kWeight && !takes_weights(formats, c.tensor(i).dtype))
      return false;
  }
  return true;
}

}  // namespace reprise::test
