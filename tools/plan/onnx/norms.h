// Norms that models write as chains of small nodes, and the parts of such chains that do not end as
// a norm:
//   layer norm   x -> mean -> centred -> square -> variance (+ epsilon) -> deviation -> normed
//                  -> scaled -> layer_norm
//   rms norm     x -> x^2 -> uncentred variance (+ epsilon) -> deviation -> normed -> rms_norm
//   group norm   an instance norm that is read by groups -> scaled -> group_norm
// A value is divided by the deviation, or multiplied by its inverse. None of these nodes is a layer
// by itself.
#pragma once

#include <optional>

#include "tools/plan/onnx/importer.h"

namespace reprise {

// Tests whether the node is the part of a norm that the function's name states; if so, sets its
// output and returns true. A mean must be over the last axis and keep it.
bool is_mean_of_norm(Importer& net, NodeReader& reader, const ImportValue& x);
bool is_epsilon(Importer& net, NodeReader& reader, const ImportValue& variance, double number);
bool is_centred(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& mean);
bool is_normed(Importer& net, NodeReader& reader, const ImportValue& x, const ImportValue& by, bool divides);
bool is_norm_weight(Importer& net, NodeReader& reader, const ImportValue& normed, const ImportValue& gamma);
bool is_norm_bias(Importer& net, NodeReader& reader, const ImportValue& scaled, const ImportValue& beta);

// True if the value is a part of a norm before the division by the deviation.
bool is_part_of_norm(const ImportValue& value);
// Appends the nodes of a part, or of a norm that has no weight or no bias, and returns the tensor
// that they write.
std::optional<ImportValue> append_part_of_norm(Importer& net, NodeReader& reader, const ImportValue& part);

}  // namespace reprise
