// Sums of powers of one value, up to the third: what exporters write of a GELU's form by tanh before the tanh,
//   sqrt(2/pi) (x + 0.044715 x^3),
// in as many ways as models spell it. Here because none of its nodes by itself is a layer's; whatever is no GELU's becomes nodes of its own.
#pragma once

#include <optional>

#include "tools/onnx/importer.h"

namespace reprise {

// a + b and a b, where both are powers of one value or one is a number; nothing where they are not, or a power would be above the third. A value
// plus itself, or times a number, is no sum of powers but the value.
std::optional<ImportValue> sum_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b);
std::optional<ImportValue> product_of_powers(const Importer& net, const ImportValue& a, const ImportValue& b);
std::optional<ImportValue> power_of(const ImportValue& x, int exponent);  // of a value: its square or its cube

bool is_gelu_argument(const ImportValue& powers);

// What nodes of the net write of it, times a factor.
std::optional<ImportValue> append_powers(Importer& net, NodeReader& reader, const ImportValue& powers);

}  // namespace reprise
