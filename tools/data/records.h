// The records of a file that people write, each handed on once, and what becomes of those that cannot be trained on.
// Here because conversations and pairs of answers are read alike. It must not be included outside tools/data.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "tools/data/dataset.h"
#include "tools/data/held_out.h"

namespace reprise {

// Throws UserError that begins with `place` where the record cannot be trained on.
using AddRecord = std::function<void(const nlohmann::ordered_json& record, const std::string& place)>;

// Those of the part, in the file's order. A bad one ends it, or as data.bad says is left out, which `warnings` get; a look names it and goes on.
// Throws UserError, also where no good one is left.
void read_records(const DataSource& data, const DataPart& part, DataLook* look, const AddRecord& add, std::vector<std::string>& warnings);

}  // namespace reprise
