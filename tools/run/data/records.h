// Reads a file of records that people write, each record once. Bad records are refused or skipped.
// Conversations and pairs of answers are thus read and tokenised in the same way. Only
// tools/run/data and tools/run/texts include this header.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer.h"
#include "tools/run/data/dataset.h"
#include "tools/run/data/held_out.h"

namespace reprise {

// Adds the samples of one record. Throws UserError that begins with `place` if the record cannot be
// used.
using AddRecord = std::function<void(const nlohmann::ordered_json& record, const std::string& place)>;

// Reads the records of the part, in the order of the file. A bad record ends the reading; if
// data.bad is "skip", it is skipped and counted in `warnings`. If `look` is given, bad records are
// added to it, and reading continues. Throws UserError, also if no good record remains. A
// LimitError is never skipped.
void read_records(const DataSource& data, const DataPart& part, DataLook* look, const AddRecord& add,
                  std::vector<std::string>& warnings);

// Returns the token that fills a row after its last sample: the tokenizer's padding token, or its
// eos if it has none. Returns 0 if there is neither, or if the model does not have the token.
int32_t padding_of(const Tokenizer& tokenizer, uint32_t vocabulary);

// Throws UserError that begins with `place` if the model does not have one of the tokens.
void require_known(const std::vector<int32_t>& ids, uint32_t vocabulary, const std::string& place);

}  // namespace reprise
