// The manual of the kernels: of each what it computes, its arguments, who has it, and what a call of given sizes takes beside them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/backend.h"
#include "tools/audit/kernel_sizes.h"

namespace reprise {

// What the kernel of that name computes, in a line; "" of a name that no kernel has.
std::string synopsis_of(const std::string& kernel);

// The indices in kOps of the kernels that `name` means: one by its whole name, all of an op by the op's; every kernel for "". Throws
// UserError (usage) with the nearest names where there is none.
std::vector<uint32_t> kernels_named(const std::string& name);

// {"name", "synopsis", "attribute": [fields], "arguments": [{"name", "shapes", "role", "storage", "types", "optional", "adds"}],
// "in_place", "backends": [{"name", "exists", "weights": [types], "scratch_bytes", "stack_bytes"}], "sizes": [names]}. The bytes are null
// without a call of these sizes, and where the kernel is missing or takes no weights that are stored as the call's; `in_place` is null,
// or the output and the input that may share memory.
nlohmann::json kernel_json(uint32_t kernel, const SizedCall* call);

// A line of what every kernel computes, or a page of each.
std::string kernel_lines(const nlohmann::json& kernels);
std::string kernel_pages(const nlohmann::json& kernels);

}  // namespace reprise
