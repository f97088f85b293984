// Norms that models write as chains of small nodes, and what a part of such a chain is where it ends as no norm:
//   layer norm   x -> mean -> centred -> square -> variance (+ epsilon) -> deviation -> normed -> scaled -> layer_norm
//   rms norm     x -> x^2 -> variance of what is not centred (+ epsilon) -> deviation -> normed -> rms_norm
//   group norm   an instance norm that is read by groups -> scaled -> group_norm
// A deviation divides, or its inverse is multiplied. Here because none of these nodes by itself is a layer's.
#pragma once

#include <optional>

#include "tools/onnx/importer.h"

namespace reprise {

// Each answers whether the node was such, and says what it writes.
bool is_mean_of_norm(Importer& net, NodeReader& reader, const ImportValue& x);  // over the last axis, which stays
bool is_epsilon(Importer& net, NodeReader& reader, const ImportValue& variance, double number);
bool is_centred(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& mean);
bool is_normed(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& by, bool divides);
bool is_norm_weight(Importer& net, NodeReader& reader, const ImportValue& normed, const ImportValue& gamma);
bool is_norm_bias(Importer& net, NodeReader& reader, const ImportValue& scaled, const ImportValue& beta);

bool is_part_of_norm(const ImportValue& value);  // before it is normed
// What nodes of the net write of a part, or of a norm that has no weight or no bias: a tensor.
std::optional<ImportValue> append_part_of_norm(Importer& net, NodeReader& reader, const ImportValue& part);

}  // namespace reprise
