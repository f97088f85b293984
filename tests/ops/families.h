// All families of ops: the one list, and what is asked of it.
// Here so that a new family is a file of its own and a line in families.cpp.
#pragma once

#include <span>
#include <vector>

#include "lib/backend.h"
#include "tests/ops/op_family.h"

namespace reprise::test {

std::span<const OpFamily* const> op_families();
const OpFamily& family_of(Op op);

std::vector<KernelCase> kernel_cases(CaseUse use = CaseUse::kTest);

// The data of a case, drawn from its id: a case is the same everywhere and replays from its id alone.
CaseData make_data(const KernelCase& c);

// Not defined for cases with a bad index. What the family expects from stored outputs is left out.
CaseExpected expected(const KernelCase& c, const CaseData& data);

// Whether the backend's kernel reads weights as the case stores them.
inline bool takes_weights_of(const Backend& backend, const KernelCase& c) {
  const WeightFormats formats = backend.rules->kernels[kernel_index(c.op, c.pass)].weights;
  for (uint32_t i = 0; i < c.arguments.size(); ++i) {
    if (c.has(i) && c.info().arguments[i].storage == Storage::kWeight && !takes_weights(formats, c.tensor(i).dtype)) return false;
  }
  return true;
}

}  // namespace reprise::test
