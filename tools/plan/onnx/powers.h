// Sums of powers of one value, up to the third. Exporters write the argument of a GELU's tanh as
//   sqrt(2/pi) (x + 0.044715 x^3),
// in as many ways as models spell it. None of its nodes is a layer by itself. A sum that is not
// part of a GELU becomes nodes of its own.
#pragma once

#include <optional>

#include "tools/plan/onnx/importer.h"

namespace reprise {

// Returns a + b, or a b, as powers of one value x. There are two cases:
//   - a and b are each a tensor x or powers of the same x; in a sum at least one is powers
//   - one is powers, the other is one known number with no more axes
// Returns nothing in other cases, or if a product has a power above the third. So a tensor plus
// itself, or a tensor plus or times a number, is no sum of powers; a tensor times itself is.
std::optional<ImportValue> sum_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b);
std::optional<ImportValue> product_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b);
// Returns the square or the cube of a tensor; nothing for other exponents, other forms of values,
// and expanded tensors (ImportValue::expanded).
std::optional<ImportValue> power_of(const ImportValue& x, int exponent);

bool is_gelu_argument(const ImportValue& powers);

// Appends nodes that compute the powers, and returns the tensor that they write.
std::optional<ImportValue> append_powers(Importer& net, NodeReader& reader, const ImportValue& powers);

}  // namespace reprise
