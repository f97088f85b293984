// The chain as JSON, the format of tools/FORMATS.md that `reprise chain` writes and `reprise schedule` reads.
// Other people's chains come in here, so every field is checked and every refusal names file and field.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/formats/output.h"
#include "tools/schedule/chain.h"

namespace reprise {

// Throws UserError for an unknown or missing key, a size that is no integer from 0 to 2^50, a cost that is no number from 0
// to 1e200, a link without a tape, a tape smaller than the link's output (which it includes), residues of different number,
// a residue whose forward costs more than the link's, a last link with an output.
Chain chain_from_json(const nlohmann::json& value, const std::string& file, const std::string* text = nullptr);
Chain read_chain(const std::string& path);

// Keys in the order of tools/FORMATS.md; a tape's forward scratch only where it differs from the link's.
nlohmann::ordered_json chain_to_json(const Chain& chain);
constexpr OutputKind kChainFile = {"chain"};
void write_chain(const Output& to, const Chain& chain);

}  // namespace reprise
