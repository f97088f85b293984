// Texts that are made up during an import: only their lengths are known, and padding follows each.
// Exporters write the use of the mask of padding as dozens of nodes, each exporter and version in
// its own way. Values that depend on the mask alone are computed for these texts. If such a value
// reaches the net, the importer recognises its use by the computed numbers, not by the nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/plan/onnx/onnx_value.h"

namespace reprise {

class Importer;

struct TextProbe {
  int64_t texts = 0, length = 0;  // 0: the net reads no texts

  // Returns the number of tokens of a text; padding fills the other positions. Texts have in turn
  // two thirds of `length` tokens, `length` tokens, and one token.
  int64_t length_of(int64_t text) const {
    const int64_t lengths[] = {length - length / 3, length, 1};
    return lengths[text % 3];
  }
  bool is_text(int64_t text, int64_t token) const { return token < length_of(text); }
};

// Returns the mask [texts, length]: 1 for each token of a text, 0 for padding.
KnownNumbers text_mask(const TextProbe& texts);

// The positions that an attention's scores exclude. A mask that is added excludes by numbers far
// below 0, a mask of flags by false.
struct Sight {
  bool masked = false;  // true: padding is excluded; false: padding is seen
  bool causal = false;  // true: later positions are excluded
};
// Returns what the mask excludes; nothing if it does something else. `mask` is broadcast to [texts,
// heads, length, length].
std::optional<Sight> sight_of(const TextProbe& texts, const KnownNumbers& mask, bool are_flags);

// Tests whether the node is the use of the mask that the function's name states; if so, sets the
// node's output or refuses it, and returns true. The ONNX op of the node is after each function.
bool is_sight_of_scores(Importer& net, NodeReader& reader, const ImportValue& scores, const ImportValue& mask);  // Add
bool is_filled_scores(Importer& net, NodeReader& reader);                                                // Where
bool is_masked_value(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& mask);  // Mul
bool is_masked_sum(Importer& net, NodeReader& reader, const ImportValue& x, const std::vector<int64_t>& axes,
                   bool keeps);
bool is_masked_mean(Importer& net, NodeReader& reader, const ImportValue& sum, const ImportValue& counts);  // Div
bool are_rows_of_tokens(Importer& net, NodeReader& reader, const ImportValue& table);                       // Gather
// Tests whether an Add makes a table's rows the positions of an embedding, and changes the
// embedding if it does. `x` is input `place`.
bool become_positions(Importer& net, NodeReader& reader, const ImportValue& x, size_t place,
                      const ImportValue& constant);
// Returns the rows of a table (of positions, or types) that the tokens of each text read: [1,
// length], or [1, 1] if all rows are equal. `places` is [texts, length]; padding may have any row.
// Returns nothing if the texts differ.
std::optional<KnownNumbers> places_of_each_text(const TextProbe& texts, const KnownNumbers& places);

}  // namespace reprise
