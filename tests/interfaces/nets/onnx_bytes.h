// Encodes ONNX files field by field, because tests need invalid files, which no exporter writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::test {

using Text = std::string;

inline Text varint(uint64_t n) {
  Text bytes;
  for (; n >= 0x80; n >>= 7) bytes += static_cast<char>(n | 0x80);
  return bytes + static_cast<char>(n);
}
inline Text number(int field, uint64_t n) { return varint(static_cast<uint64_t>(field) << 3) + varint(n); }
inline Text bytes(int field, const Text& content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}

inline Text tensor(const Text& name, const std::vector<uint64_t>& shape, float value = 0.5f) {
  Text message;
  uint64_t elements = 1;
  for (const uint64_t d : shape) message += number(1, d), elements *= d;
  Text raw;
  for (uint64_t i = 0; i < elements; ++i) raw.append(reinterpret_cast<const char*>(&value), sizeof value);
  return message + number(2, 1) + bytes(8, name) + bytes(9, raw);
}
inline Text integers(const Text& name, const std::vector<int64_t>& values) {
  Text list;
  for (const int64_t value : values) list += varint(static_cast<uint64_t>(value));
  return bytes(5, bytes(1, name) + bytes(8, list) + number(20, 7));
}
inline Text integer(const Text& name, int64_t value) {
  return bytes(5, bytes(1, name) + number(3, static_cast<uint64_t>(value)) + number(20, 2));
}
inline Text node(const Text& op, const std::vector<Text>& inputs, const Text& output, const Text& attributes = "") {
  Text message;
  for (const Text& input : inputs) message += bytes(1, input);
  return bytes(1, message + bytes(2, output) + bytes(3, output + "_node") + bytes(4, op) + attributes);
}
inline Text value(int field, const Text& name, const std::vector<int64_t>& shape) {
  Text dimensions;
  for (const int64_t d : shape) dimensions += bytes(1, d < 0 ? bytes(2, "n") : number(1, static_cast<uint64_t>(d)));
  return bytes(field, bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, dimensions))));
}

struct Parts {
  Text nodes = node("Conv", {"x", "c.weight"}, "a") + node("Relu", {"a"}, "r") + node("GlobalAveragePool", {"r"}, "g") +
               node("Flatten", {"g"}, "f") + node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  Text constants = bytes(5, tensor("c.weight", {4, 1, 1, 1})) + bytes(5, tensor("fc.weight", {3, 4})) +
                   bytes(5, tensor("fc.bias", {3}));
  Text input = value(11, "x", {-1, 1, 6, 6}), output = value(12, "y", {-1, 3}), more = "";
  uint64_t opset = 17;
  Text file() const {
    return number(1, 8) + bytes(7, nodes + constants + input + output + more) + bytes(8, number(2, opset));
  }
};

}  // namespace reprise::test
