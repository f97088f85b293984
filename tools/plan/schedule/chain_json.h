// The chain as JSON, in the format of tools/FILES.md that `reprise chain` writes and `reprise
// schedule` reads. Such a file may come from another program, so that every field is checked and
// every error names file and field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/files/io/output.h"
#include "tools/plan/schedule/chain.h"

namespace reprise {

// Reads a chain from a JSON value. `file` and `text` are for error messages. Throws UserError for:
// an unknown or missing key; no link, or more than kLongestChain; a size that is not an integer
// from 0 to 2^50; a cost that is not a number from 0 to 1e200; a link without a tape; a tape
// smaller than the link's output, which it includes; links with different numbers of residues; a
// residue whose forward costs more than the link's, or whose lists do not fit the tapes; a last
// link with an output.
Chain chain_from_json(const nlohmann::json& value, const std::string& file, const std::string* text = nullptr);
// True if the file is JSON with "links" and not a recipe. Throws UserError if it cannot be read.
bool is_chain_file(const std::string& path);
Chain read_chain(const std::string& path);

// Returns the chain with keys in the order of tools/FILES.md. A tape has its forward scratch only
// if it differs from the link's.
nlohmann::ordered_json chain_to_json(const Chain& chain);
constexpr OutputKind kChainFile = {"chain"};
void write_chain(const Output& to, const Chain& chain);

}  // namespace reprise
