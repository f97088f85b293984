// Texts that are made up while a net is imported: of each only its length is known, and behind it stands padding.
// Here because exporters write what a net does with the mask of padding as dozens of nodes, each exporter and each version others. All that
// depends on the mask alone is computed for these texts, and judged where it meets the net: by what it does, not by how it is written.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/onnx/onnx_value.h"

namespace reprise {

class Importer;

struct TextProbe {
  int64_t texts = 0, length = 0;  // 0: the net reads no texts

  // Of the first text two thirds are no padding, the second has none, the third is one token.
  int64_t length_of(int64_t text) const {
    const int64_t lengths[] = {length - length / 3, length, 1};
    return lengths[text % 3];
  }
  bool is_text(int64_t text, int64_t token) const { return token < length_of(text); }
};

// 1 for each token of a text, 0 for padding; [texts, length].
KnownNumbers text_mask(const TextProbe& texts);

// What the scores of an attention are shut to, each position of a text to each: of numbers that are added, by those far below 0; of flags, by false.
struct Sight {
  bool masked = false;  // no text sees padding, which it else would
  bool causal = false;  // none sees what stands behind
};
// Nothing where the numbers do something else. `mask` is broadcast to [texts, heads, length, length].
std::optional<Sight> sight_of(const TextProbe& texts, const KnownNumbers& mask, bool are_flags);

// Each reads what it needs of the node, and answers whether the node was such.
bool is_sight_of_scores(Importer& net, NodeReader& reader, const ImportValue& scores, const ImportValue& mask);  // a sum
bool is_filled_scores(Importer& net, NodeReader& reader);                                                       // a Where
bool is_masked_value(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& mask);          // a product
bool is_masked_sum(Importer& net, NodeReader& reader, const ImportValue& x, const std::vector<int64_t>& axes, bool keeps);
bool is_masked_mean(Importer& net, NodeReader& reader, const ImportValue& sum, const ImportValue& counts);       // a division
bool are_rows_of_tokens(Importer& net, NodeReader& reader, const ImportValue& table);  // a Gather
bool become_positions(Importer& net, NodeReader& reader, const ImportValue& x, size_t place, const ImportValue& constant);  // a sum; x is its input `place`
// Of places in a table, [texts, length], those of any one text, [1, length], or [1, 1] where all are one: its positions, or their types. What
// is padding has any. Nothing where texts differ.
std::optional<KnownNumbers> places_of_each_text(const TextProbe& texts, const KnownNumbers& places);

}  // namespace reprise
