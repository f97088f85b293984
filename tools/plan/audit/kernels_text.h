// The manual of the kernels: what each kernel computes, its arguments, the backends that have it,
// and the scratch and stack of a call with given sizes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/backend.h"
#include "tools/plan/audit/kernel_sizes.h"

namespace reprise {

// Returns one line that states what this kernel computes; "" if no kernel has the name.
std::string synopsis_of(const std::string& kernel);

// Returns the indices in kOps of the kernels that `name` selects. A kernel's whole name selects
// one, the name of an op all of its kernels, and "" all kernels. Throws UserError (usage) with the
// nearest names if nothing matches.
std::vector<uint32_t> kernels_named(const std::string& name);

// Returns {"name", "synopsis", "attribute": [fields], "arguments": [{"name", "shapes", "role",
// "storage", "types", "optional", "adds"}], "in_place", "backends": [{"name", "exists", "weights":
// [types], "levels": [names], "scratch_bytes", "stack_bytes"}], "sizes": [names]}. The bytes are
// null if `call` is null, if the backend lacks the kernel, or if it does not accept the call's type
// of weights. `in_place` names the output and the input that may share memory, or is null.
nlohmann::json kernel_json(uint32_t kernel, const SizedCall* call);

// Returns one line for each kernel. kernel_pages() returns a page for each kernel.
std::string kernel_lines(const nlohmann::json& kernels);
std::string kernel_pages(const nlohmann::json& kernels);

}  // namespace reprise
