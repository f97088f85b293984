// The records of a file that people write, each handed on once, and what becomes of those that cannot be trained on.
// Here because conversations and pairs of answers are read and tokenised alike. It must not be included outside tools/data.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/data/dataset.h"
#include "tools/data/held_out.h"
#include "tools/tokenizer/tokenizer.h"

namespace reprise {

// Throws UserError that begins with `place` where the record cannot be trained on.
using AddRecord = std::function<void(const nlohmann::ordered_json& record, const std::string& place)>;

// Those of the part, in the file's order. A bad one ends it, or as data.bad says is left out, which `warnings` get; a look names it and goes on.
// Throws UserError, also where no good one is left.
void read_records(const DataSource& data, const DataPart& part, DataLook* look, const AddRecord& add, std::vector<std::string>& warnings);

// What fills a row behind its last sample: the tokenizer's padding, else its eos, where the model has such a token.
int32_t padding_of(const Tokenizer& tokenizer, uint32_t vocabulary);

// Throws UserError that begins with `place` where the model does not know a token.
void require_known(const std::vector<int32_t>& ids, uint32_t vocabulary, const std::string& place);

}  // namespace reprise
