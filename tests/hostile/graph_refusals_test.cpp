// Tests ONNX models that no exporter writes. Each must be refused with lines that name the error,
// whatever nodes follow the wrong one. No file may be written.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tests/interfaces/command_line.h"
#include "tests/interfaces/expect_user_error.h"
#include "tests/interfaces/nets/onnx_bytes.h"
#include "tools/files/io/error.h"
#include "tools/files/io/output_file.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

class GraphRefusals : public ::testing::Test {
 protected:
  ImportReport import(const Text& file) const {
    write_file(folder_.file("net.onnx"), file);
    return import_net({folder_.file("net.onnx"), folder_.file("net.json"), {}, {}, "", ""});
  }
  void expect_refused(const Parts& parts, const std::vector<Text>& words) const {
    const std::vector<Text> lines = import(parts.file()).refused;
    ASSERT_FALSE(lines.empty()) << words[0];
    for (const Text& word : words) EXPECT_NE(lines[0].find(word), Text::npos) << word << " is not in " << lines[0];
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.json"))) << "nothing is written";
  }
  void expect_error(const Text& file, std::initializer_list<Text> words) const {
    expect_user_error([&] { import(file); }, words);
    EXPECT_FALSE(std::filesystem::exists(folder_.file("net.json"))) << "nothing is written";
  }
  const TemporaryFolder folder_;
};

// Returns an initializer `name` of a model: a vector of 64-bit integers.
Text list(const Text& name, const std::vector<int64_t>& values) {
  Text numbers;
  for (const int64_t value : values) numbers.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes(5, number(1, values.size()) + number(2, 7) + bytes(8, name) + bytes(9, numbers));
}

// Returns Parts whose layers follow `nodes`. `nodes` write "x2", which the layers read instead of
// x.
Parts behind(const Text& nodes, const Text& constants = "") {
  Parts parts;
  parts.nodes = nodes + node("Conv", {"x2", "c.weight"}, "a") + node("Relu", {"a"}, "r") +
                node("GlobalAveragePool", {"r"}, "g") + node("Flatten", {"g"}, "f") +
                node("Gemm", {"f", "fc.weight", "fc.bias"}, "y", integer("transB", 1));
  parts.constants += constants;
  return parts;
}

// A node that reads the output of a refused node must not be read, so that only the refused node is
// reported.
TEST_F(GraphRefusals, ANodeBehindARefusedOneIsNotRead) {
  const Text four[] = {"s", "b", "m", "v"};
  for (const Text& unknown : four) {
    std::vector<Text> inputs = {"x"};
    Text constants;
    for (const Text& name : four) {
      inputs.push_back(name);
      if (name != unknown) constants += bytes(5, tensor(name, {1}));
    }
    const Parts parts = behind(node("Bogus", {"x"}, unknown) + node("BatchNormalization", inputs, "x2"), constants);
    const std::vector<Text> lines = import(parts.file()).refused;
    ASSERT_EQ(lines.size(), 1u) << unknown;
    EXPECT_NE(lines[0].find("Bogus"), Text::npos) << lines[0];
  }
  for (const char* op : {"Conv",
                         "ConvTranspose",
                         "Gemm",
                         "MatMul",
                         "Concat",
                         "Where",
                         "Attention",
                         "GroupNormalization",
                         "InstanceNormalization",
                         "LayerNormalization",
                         "RMSNormalization",
                         "Resize",
                         "Pad",
                         "Slice",
                         "Split",
                         "Gather",
                         "PRelu",
                         "Pow",
                         "Einsum",
                         "Clip",
                         "Expand",
                         "Tile",
                         "Reshape"}) {
    for (const std::vector<Text>& inputs :
         {std::vector<Text>{"u", "u", "u", "u", "u"}, {"x", "u", "u", "u"}, {"x", "x", "u"}, {"u"}, {}}) {
      const Parts parts = behind(node("Bogus", {"x"}, "u") + node(op, inputs, "x2"));
      EXPECT_FALSE(import(parts.file()).refused.empty()) << op;
    }
  }
}

// Some outputs of nodes are not available after an import, for example the running statistics of a
// norm or the indices of a pool. A node that reads such an output must be refused by name.
TEST_F(GraphRefusals, AnOutputThatIsNotReadIsNamed) {
  const Text two_outputs = bytes(1, bytes(1, "x") + bytes(2, "x1") + bytes(2, "mask") + bytes(4, "Dropout"));
  expect_refused(behind(two_outputs + node("Mul", {"x", "mask"}, "x2")), {"x2_node", "\"mask\"", "not available"});
}

TEST_F(GraphRefusals, NamesMeanOneThing) {
  Parts parts;
  parts.constants += bytes(5, tensor("c.weight", {4, 1, 1, 1}));
  expect_refused(parts, {"\"c.weight\"", "two constants"});
  parts = {};
  parts.constants += bytes(5, tensor("", {4}));
  expect_refused(parts, {"a constant has no name"});
  parts = {};
  parts.input += parts.input;
  expect_refused(parts, {"\"x\"", "two inputs"});
  expect_refused(behind(node("Relu", {"x"}, "x")), {"Relu", "\"x\"", "one writer"});
  expect_refused(behind(node("Relu", {"x"}, "x2") + node("Relu", {"x"}, "x2")), {"\"x2\"", "one writer"});
  expect_refused(behind(node("Relu", {"x2"}, "x2")), {"\"x2\"", "nothing before it writes"});
  expect_refused(behind(node("Add", {"x", "z"}, "x2") + node("Relu", {"x2"}, "z")),
                 {"\"z\"", "nothing before it writes"});
}

TEST_F(GraphRefusals, NamesAreUtf8AndShownEscaped) {
  const Text bad = "a\xff\x1b[31m";
  Parts parts;
  parts.nodes = node("Relu", {"x"}, bad) + parts.nodes;
  expect_error(parts.file(), {"net.onnx: byte ", "\"a\\xff\\u001b[31m", "is not UTF-8"});
  parts = {};
  parts.constants += bytes(5, tensor(bad, {1}));
  expect_error(parts.file(), {"is not UTF-8"});
  const std::vector<Text> lines = import(behind(node("\x1b]0;pwn\x07", {"x"}, "x2")).file()).refused;
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find('\x1b'), Text::npos);
  EXPECT_NE(lines[0].find("\\u001b]0;pwn"), Text::npos) << lines[0];
}

TEST_F(GraphRefusals, ExternalDataLiesBesideTheModel) {
  const auto with = [](const Text& location, const Text& entries = "") {
    Parts parts;
    const auto entry = [](const Text& key, const Text& value) { return bytes(13, bytes(1, key) + bytes(2, value)); };
    parts.constants +=
        bytes(5, number(1, 4) + number(2, 1) + bytes(8, "far") + number(14, 1) + entry("location", location) + entries);
    return parts.file();
  };
  const auto entry = [](const Text& key, const Text& value) { return bytes(13, bytes(1, key) + bytes(2, value)); };
  write_file(folder_.file("numbers.bin"), Text(16, '\0'));
  std::filesystem::create_symlink("numbers.bin", folder_.file("link.bin"));
  std::filesystem::create_directory_symlink(".", folder_.file("here"));
  EXPECT_TRUE(import(with("numbers.bin")).refused.empty());
  std::filesystem::remove(folder_.file("net.json"));
  for (const Text& location : {Text("link.bin"), Text("here/numbers.bin")})
    expect_error(with(location), {"\"far\"", "symbolic link", "beside the model's"});
  for (const Text& location : {Text("../x"), Text("/etc/passwd"), Text("numbers.bin\0.txt", 15), Text("")})
    expect_error(with(location), {"\"far\"", "location is"});
  expect_error(with("numbers.bin", entry("offset", "17")), {"\"far\"", "offset"});
  expect_error(with("numbers.bin", entry("length", "17")), {"\"far\"", "ends before"});
  expect_error(with("numbers.bin", entry("offset", "18446744073709551615")), {"offset is"});
}

TEST_F(GraphRefusals, FilesOfZerosAndListsWithoutEndAreRefused) {
  expect_error(Text(100, '\0'), {"net.onnx: byte 0: a field of number 0"});
  Text one = integers("axes", std::vector<int64_t>(1 << 20, 1)), all;
  for (int n = 0; n < 40; ++n) all += bytes(1, one);
  expect_error(number(1, 8) + bytes(7, all), {"more than 256 MiB"});
  Text nodes;
  const Text each = bytes(1, bytes(4, "Relu"));
  for (int n = 0; n < 20001; ++n) nodes += each;
  expect_error(number(1, 8) + bytes(7, nodes), {"more than 20000 nodes"});
}

TEST_F(GraphRefusals, AHoleIsNoWholeFile) {
  write_file(folder_.file("net.onnx"), "");
  std::filesystem::resize_file(folder_.file("net.onnx"), uint64_t{1} << 34);
  expect_user_error(
      [&] {
        import_net({folder_.file("net.onnx"), folder_.file("net.json"), {}, {}, "", ""});
      },
      {"net.onnx", "must be whole"});
}

// Arithmetic on constants is limited. Long chains of nodes on a large constant, and long sums of
// constants, must be refused.
TEST_F(GraphRefusals, ArithmeticBeforeTheNetRunsIsBounded) {
  Text nodes = node("ConstantOfShape", {"shape"}, "v0"), value = "v0";
  for (int n = 1; n < 400; ++n) {
    const Text next = "v" + std::to_string(n);
    nodes += node("Neg", {value}, next);
    value = next;
  }
  const Parts parts = behind(nodes + node("Mul", {"x", value}, "x2"), list("shape", {1, 1, 1000, 1000}));
  expect_error(parts.file(), {"net.onnx: its nodes compute with more than"});
  nodes = "", value = "p";
  for (int n = 1; n < 200; ++n) {
    const Text next = "s" + std::to_string(n);
    nodes += node("Add", {value, "p"}, next);
    value = next;
  }
  expect_refused(behind(nodes + node("Add", {"x", value}, "x2"), bytes(5, tensor("p", {6, 6}))),
                 {"a sum of more than 64 constants"});
}

TEST_F(GraphRefusals, ABatchIsBounded) {
  Parts parts;
  parts.input = value(11, "x", {int64_t{1} << 40, 1, 6, 6});
  expect_refused(parts, {"\"x\"", "a batch of 1099511627776"});
}

// Random nodes over a few values and constants must be read or refused.
TEST_F(GraphRefusals, RandomNodesAreReadOrRefused) {
  const char* const ops[] = {"Conv",
                             "BatchNormalization",
                             "MaxPool",
                             "AveragePool",
                             "GlobalAveragePool",
                             "ReduceMean",
                             "ReduceMax",
                             "ReduceL2",
                             "Pad",
                             "GroupNormalization",
                             "InstanceNormalization",
                             "Resize",
                             "Relu",
                             "Clip",
                             "Erf",
                             "PRelu",
                             "Sqrt",
                             "Pow",
                             "Dropout",
                             "Cast",
                             "Mul",
                             "Div",
                             "Add",
                             "Sub",
                             "Where",
                             "Gemm",
                             "MatMul",
                             "Softmax",
                             "Attention",
                             "LayerNormalization",
                             "RMSNormalization",
                             "Reshape",
                             "Flatten",
                             "Squeeze",
                             "Unsqueeze",
                             "Transpose",
                             "Slice",
                             "Split",
                             "Gather",
                             "GatherND",
                             "Concat",
                             "Expand",
                             "Tile",
                             "Shape",
                             "ConstantOfShape",
                             "Range",
                             "CumSum",
                             "Trilu",
                             "Bogus"};
  const Text names[] = {"axis",    "axes",     "perm",   "group", "kernel_shape", "pads",
                        "strides", "keepdims", "transB", "to",    "num_groups",   "split"};
  const std::vector<int64_t> numbers[] = {{},           {0},          {1},
                                          {-1},         {1, 1},       {2, 3},
                                          {0, 2, 3, 1}, {1, 1, 1, 1}, {int64_t{1} << 40},
                                          {INT64_MIN},  {0, 0, 0, 0}};
  std::mt19937 random(60);
  const auto any = [&](size_t count) { return random() % count; };
  Text constants = bytes(5, tensor("k0", {})) + bytes(5, tensor("k1", {1})) + bytes(5, tensor("k2", {4, 1, 1, 1})) +
                   bytes(5, tensor("k3", {0})) + bytes(5, tensor("k4", {1}, NAN));
  for (size_t n = 0; n < std::size(numbers); ++n) constants += list("i" + std::to_string(n), numbers[n]);
  for (int round = 0; round < 400; ++round) {
    Text nodes, last = "x";
    const size_t count = 1 + any(8);
    for (size_t n = 0; n < count; ++n) {
      std::vector<Text> inputs;
      for (size_t i = any(5) + (n + 1 < count); i-- > 0;) {
        const size_t kind = inputs.empty() ? 0 : any(10);
        inputs.push_back(kind < 2   ? last
                         : kind < 5 ? "k" + std::to_string(any(5))
                         : kind < 9 ? "i" + std::to_string(any(std::size(numbers)))
                                    : "");
      }
      Text attributes;
      for (size_t a = any(3); a-- > 0;)
        attributes += any(2) == 0 ? integer(names[any(std::size(names))], static_cast<int64_t>(any(5)) - 2)
                                  : integers(names[any(std::size(names))], numbers[any(std::size(numbers))]);
      last = n + 1 == count ? "x2" : "n" + std::to_string(n);
      nodes += node(ops[any(std::size(ops))], inputs, last, attributes);
    }
    try {
      import(behind(nodes, constants).file());
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace reprise::test
