// Tests the export of trained weights into the imported ONNX file: new numbers in place, all other
// bytes unchanged, a head of another size, and refusals. The test encodes files with few nodes
// field by field.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "lib/bf16.h"
#include "lib/f16.h"
#include "tests/interfaces/command_line.h"
#include "tests/interfaces/expect_user_error.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/planning/planner.h"
#include "tools/run/nets/export_net.h"
#include "tools/run/nets/import_net.h"

namespace reprise::test {
namespace {

using nlohmann::json;
using Text = std::string;
namespace fs = std::filesystem;

const std::string kResNet = "tests/golden/onnx/resnet.onnx";

std::vector<float> numbers_in(const WeightSource& source, const std::string& name) {
  uint64_t elements = 1;
  for (const uint64_t dimension : source.find(name)->shape) elements *= dimension;
  std::vector<float> numbers(elements);
  source.read(name, 0, elements, numbers.data());
  return numbers;
}
const OnnxTensor& constant(const OnnxFile& file, const std::string& name) {
  const auto& all = file.model().constants;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const OnnxTensor& tensor) { return tensor.name == name; });
  if (found == all.end()) throw std::runtime_error("no constant " + name);
  return *found;
}

// ---- files made field by field ----

Text varint(uint64_t n) {
  Text bytes;
  for (; n >= 0x80; n >>= 7) bytes += static_cast<char>(n | 0x80);
  return bytes + static_cast<char>(n);
}
Text number(int field, uint64_t n) { return varint(static_cast<uint64_t>(field) << 3) + varint(n); }
Text bytes(int field, const Text& content) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(content.size()) + content;
}

template <typename T>
Text raw(const std::vector<T>& numbers) {
  return Text(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T));
}
Text tensor(const Text& name, const std::vector<uint64_t>& shape, OnnxType type, const Text& numbers) {
  Text message;
  for (const uint64_t d : shape) message += number(1, d);
  return bytes(5, message + number(2, static_cast<uint64_t>(type)) + bytes(8, name) + numbers);
}
Text node(const Text& op, const std::vector<Text>& inputs, const Text& output) {
  Text message;
  for (const Text& input : inputs) message += bytes(1, input);
  return bytes(1, message + bytes(2, output) + bytes(4, op));
}
Text value(int field, const Text& name, const std::vector<uint64_t>& shape) {
  Text dimensions;
  for (const uint64_t d : shape) dimensions += bytes(1, number(1, d));
  return bytes(field, bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, dimensions))));
}

// Returns the net x [2,1,4,4] -> conv -> pool -> rows -> Gemm with a matrix [in,out]. The matrix
// may have any type, and may be stored anywhere. The nodes of `between` are before the Gemm, which
// reads the value named `rows`.
Text file_of(const Text& conv, const Text& matrix, const Text& between = "", const Text& rows = "f") {
  const Text nodes = node("Conv", {"x", "conv.weight"}, "a") + node("GlobalAveragePool", {"a"}, "g") +
                     node("Flatten", {"g"}, "f") + between + node("Gemm", {rows, "fc.weight"}, "y");
  return number(1, 8) +
         bytes(7, nodes + conv + bytes(2, "a graph") + matrix + value(11, "x", {2, 1, 4, 4}) +
                      value(11, "fc.weight", {2, 3}) + value(12, "y", {2, 3}) + value(13, "f", {2, 2})) +
         bytes(8, number(2, 17));
}
Text conv_of_floats() { return tensor("conv.weight", {2, 1, 1, 1}, OnnxType::kFloat, bytes(9, raw<float>({1, 2}))); }
Text matrix_of_floats() {
  return tensor("fc.weight", {2, 3}, OnnxType::kFloat, bytes(4, raw<float>({1, 2, 3, 4, 5, 6})));
}

class OnnxExportTest : public CommandLine {
 protected:
  std::string at(const std::string& name) const { return folder_.file(name); }

  // Imports `file` as net.json, and writes weights to trained.safetensors, as a training might.
  void import(const std::string& file, int classes = 0) {
    ImportOrder order;
    order.file = file;
    order.recipe = at("net.json");
    order.request.classes = classes;
    ASSERT_EQ(import_net(order).refused, std::vector<std::string>());
    const auto imported = open_weights(at("net.safetensors"));
    SafetensorsWriter writer(at("trained.safetensors"));
    std::map<std::string, std::vector<float>> numbers;
    for (const std::string& name : imported->names()) {
      writer.declare(name, StoredType::kF32, imported->find(name)->shape);
      for (const float n : numbers_in(*imported, name)) numbers[name].push_back(0.5f * n + 0.25f);
    }
    if (classes > 0) {
      const std::vector<uint64_t> shape = {static_cast<uint64_t>(classes), head_inputs_};
      writer.declare("fc.weight", StoredType::kF32, shape);
      if (has_bias_) writer.declare("fc.bias", StoredType::kF32, {shape[0]});
    }
    for (const std::string& name : imported->names())
      writer.write(numbers[name].data(), numbers[name].size() * sizeof(float));
    if (classes > 0) {
      std::vector<float> head(static_cast<size_t>(classes) * (head_inputs_ + (has_bias_ ? 1 : 0)));
      for (size_t n = 0; n < head.size(); ++n) head[n] = static_cast<float>(n);
      writer.write(head.data(), head.size() * sizeof(float));
    }
    writer.finish();
  }
  OnnxExport write(const std::string& to) {
    return export_onnx(open_weights(at("trained.safetensors")), at("net.safetensors"), at(to));
  }

  uint64_t head_inputs_ = 16;
  bool has_bias_ = true;
};

// Every tensor gets the new numbers, and no other byte changes.
TEST_F(OnnxExportTest, KeepsEveryOtherByte) {
  import(kResNet);
  EXPECT_EQ(write("out.onnx").tensors, 47u);
  const OnnxFile before(kResNet), after(at("out.onnx"));
  Text old = read_file(kResNet), now = read_file(at("out.onnx"));
  const Text mark = bytes(14, bytes(1, "written_by") + bytes(2, "reprise onnx"));
  const size_t marked = now.find(mark);
  ASSERT_LT(marked, 16u);
  now.erase(marked, mark.size());
  ASSERT_EQ(old.size(), now.size());
  const auto trained = open_weights(at("trained.safetensors"));
  for (const std::string& name : trained->names()) {
    EXPECT_EQ(after.floats(constant(after, name)), numbers_in(*trained, name)) << name;
    const OnnxTensor& place = constant(before, name);
    for (uint64_t n = place.at; n < place.at + place.bytes; ++n) old[n] = now[n] = 0;
  }
  EXPECT_EQ(old, now);
}

// A file exported in training mode computes in training mode in other programs, too. The report
// counts the nodes that do: batch-norms, and Dropout nodes whose training_mode is true.
TEST_F(OnnxExportTest, CountsWhatComputesAsInTraining) {
  using Counts = std::map<std::string, size_t>;
  import(kResNet);
  EXPECT_EQ(write("out.onnx").in_training, (Counts{{"BatchNormalization", 9}}));
  import("tests/golden/nets/resnet.unfolded.onnx");
  EXPECT_EQ(write("out.onnx").in_training, Counts());
  head_inputs_ = 2, has_bias_ = false;
  for (const bool is_training : {true, false}) {
    const Text mode = tensor("mode", {}, OnnxType::kBool, bytes(9, Text(1, is_training ? '\1' : '\0')));
    const Text constant =
        bytes(1, bytes(2, "mode") + bytes(4, "Constant") + bytes(5, bytes(1, "value") + mode + number(20, 4)));
    for (const bool is_node : {true, false}) {
      Text file = file_of(conv_of_floats() + (is_node ? "" : mode), matrix_of_floats(),
                          (is_node ? constant : "") + node("Dropout", {"f", "", "mode"}, "d"), "d");
      write_file(at("net.onnx"), file);
      import(at("net.onnx"));
      EXPECT_EQ(write("out.onnx").in_training, is_training ? (Counts{{"Dropout", 1}}) : Counts()) << is_node;
    }
  }
}

// The file contains the table twice. The second copy is transposed, as the head's weight. Both must
// get the trained numbers.
TEST_F(OnnxExportTest, WritesATiedTableWhereverItStands) {
  import("tests/golden/nets/plain_gpt2.new.onnx");
  write("out.onnx");
  const std::vector<float> table = numbers_in(*open_weights(at("trained.safetensors")), "transformer.wte.weight");
  const OnnxFile after(at("out.onnx"));
  size_t whole = 0, transposed = 0;
  for (const OnnxTensor& tensor : after.model().constants) {
    const bool is_whole = tensor.shape == std::vector<uint64_t>{31, 16},
               is_transposed = tensor.shape == std::vector<uint64_t>{16, 31};
    if (!is_whole && !is_transposed) continue;
    const std::vector<float> numbers = after.floats(tensor);
    for (size_t v = 0; v < 31; ++v) {
      for (size_t c = 0; c < 16; ++c)
        EXPECT_EQ(numbers[is_whole ? v * 16 + c : c * 31 + v], table[v * 16 + c]) << tensor.name;
    }
    is_whole ? ++whole : ++transposed;
  }
  EXPECT_EQ(whole, 1u);
  EXPECT_EQ(transposed, 1u);
}

TEST_F(OnnxExportTest, MakesSpaceForANewHead) {
  import(kResNet, 5);
  EXPECT_EQ(write("out.onnx").resized, 2u);
  const OnnxFile before(kResNet), after(at("out.onnx"));
  const auto trained = open_weights(at("trained.safetensors"));
  for (const std::string& name : trained->names())
    EXPECT_EQ(after.floats(constant(after, name)), numbers_in(*trained, name)) << name;
  EXPECT_EQ(constant(after, "fc.weight").shape, (std::vector<uint64_t>{5, 16}));
  EXPECT_EQ(after.model().outputs.at(0).shape.back().size, 5);
  EXPECT_EQ(after.model().nodes.size(), before.model().nodes.size());
  // The file is imported again. It is shorter by the removed numbers of the head, four bytes each,
  // apart from a few bytes in field lengths.
  import(at("out.onnx"));
  EXPECT_EQ(describe_model(read_recipe(at("net.json")).model).classes, 5);
  EXPECT_LE(fs::file_size(at("out.onnx")), fs::file_size(kResNet) - 4 * 5 * 17 + 32) << "but for our mark";
  EXPECT_GE(fs::file_size(at("out.onnx")) + 8, fs::file_size(kResNet) - 4 * 5 * 17 + 32) << "but for our mark";
}

// The file has the matrix as [in,out] and lists it as an input, as old files do. The shapes of
// values that depend on the matrix change with it.
TEST_F(OnnxExportTest, MakesSpaceInAMatrixOfColumns) {
  write_file(at("net.onnx"), file_of(conv_of_floats(), matrix_of_floats()));
  head_inputs_ = 2, has_bias_ = false;
  import(at("net.onnx"), 4);
  write("out.onnx");
  const OnnxFile after(at("out.onnx"));
  EXPECT_EQ(constant(after, "fc.weight").shape, (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(after.floats(constant(after, "fc.weight")), (std::vector<float>{0, 2, 4, 6, 1, 3, 5, 7}));
  const Text is = read_file(at("out.onnx"));
  const Text raw_matrix = raw<float>({0, 2, 4, 6, 1, 3, 5, 7});
  for (const Text& part : {bytes(2, "a graph"), value(11, "x", {2, 1, 4, 4}), value(11, "fc.weight", {2, 4}),
                           value(12, "y", {2, 4}), value(13, "f", {2, 2}), bytes(9, raw_matrix)}) {
    EXPECT_NE(is.find(part), Text::npos) << part;
  }
}

// Numbers are rounded to the nearest number of the tensor's type. Unchanged numbers keep their
// bytes.
TEST_F(OnnxExportTest, WritesTheTypeThatIsThere) {
  const Text conv = tensor("conv.weight", {2, 1, 1, 1}, OnnxType::kDouble, bytes(9, raw<double>({0.5, 1.0 / 3})));
  const Text matrix = tensor("fc.weight", {2, 3}, OnnxType::kHalf,
                             bytes(9, raw<uint16_t>({0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600})));
  write_file(at("net.onnx"), file_of(conv, matrix));
  import(at("net.onnx"));
  write("out.onnx");
  const OnnxFile after(at("out.onnx"));
  const float third = static_cast<float>(1.0 / 3);
  EXPECT_NE(read_file(at("out.onnx")).find(raw<double>({0.5, 0.5f * third + 0.25f})), Text::npos)
      << "0.5 becomes itself";
  std::vector<uint16_t> halves;
  for (const float n : {1.f, 2.f, 3.f, 4.f, 5.f, 6.f}) halves.push_back(f32_to_f16(0.5f * n + 0.25f));
  EXPECT_NE(read_file(at("out.onnx")).find(bytes(9, raw(halves))), Text::npos);
}

TEST_F(OnnxExportTest, WritesNumbersBesideTheModel) {
  const auto entry = [](const Text& key, const Text& text) { return bytes(13, bytes(1, key) + bytes(2, text)); };
  const Text matrix =
      tensor("fc.weight", {2, 3}, OnnxType::kFloat,
             entry("location", "net.data") + entry("offset", "4") + entry("length", "24") + number(14, 1));
  fs::create_directories(at("from"));
  fs::create_directories(at("to"));
  write_file(at("from/net.data"), "head" + raw<float>({1, 2, 3, 4, 5, 6}) + "tail");
  write_file(at("from/net.onnx"), file_of(conv_of_floats(), matrix));
  import(at("from/net.onnx"));
  write("to/out.onnx");
  EXPECT_EQ(read_file(at("to/out.onnx.data")).substr(4096), raw<float>({0.75f, 1.25f, 1.75f, 2.25f, 2.75f, 3.25f}));
  EXPECT_FALSE(fs::exists(at("to/net.data"))) << "the model does not choose what is written";
  const OnnxFile after(at("to/out.onnx"));
  EXPECT_EQ(after.floats(after.model().constants.back()),
            (std::vector<float>{0.75f, 1.25f, 1.75f, 2.25f, 2.75f, 3.25f}));
  EXPECT_EQ(read_file(at("from/net.data")), "head" + raw<float>({1, 2, 3, 4, 5, 6}) + "tail");
  write("from/out.onnx");
  EXPECT_EQ(read_file(at("from/net.data")), "head" + raw<float>({1, 2, 3, 4, 5, 6}) + "tail");
  write("from/out.onnx");
  fs::remove(at("from/out.onnx"));
  fs::copy_file(at("from/net.data"), at("from/other.onnx.data"));
  expect_user_error([&] { write("from/other.onnx"); }, {"other.onnx.data", "not"});
  EXPECT_FALSE(fs::exists(at("from/other.onnx")));
}

TEST_F(OnnxExportTest, IsRefusedByWhatIsWrong) {
  fs::copy_file(kResNet, at("net.onnx"));
  import(at("net.onnx"));
  expect_user_error([&] { write("net.onnx"); }, {"net.onnx", "input itself"});
  fs::rename(at("trained.safetensors"), at("noted.safetensors"));
  fs::copy_file(at("noted.safetensors"), at("trained.safetensors"));
  expect_user_error(
      [&] { export_onnx(open_weights(at("trained.safetensors")), at("noted.safetensors"), at("out.onnx")); },
      {"noted.safetensors", "imported from"});
  SafetensorsWriter writer(at("other.safetensors"));
  writer.declare("conv1.weight", StoredType::kF32, {1});
  const float one = 1;
  writer.write(&one, sizeof one);
  writer.finish();
  expect_user_error([&] { export_onnx(open_weights(at("other.safetensors")), at("net.safetensors"), at("out.onnx")); },
                    {"other.safetensors", "\"conv1.weight\"", "[4,3,3,3]"});
  fs::create_directories(at("moved"));
  fs::rename(at("net.onnx"), at("moved/net.onnx"));
  expect_user_error([&] { write("out.onnx"); }, {"net.onnx", "is gone"});
  fs::rename(at("net.safetensors"), at("moved/net.safetensors"));
  EXPECT_EQ(export_onnx(open_weights(at("trained.safetensors")), at("moved/net.safetensors"), at("out.onnx")).tensors,
            47u)
      << "moved together";
  write_file(at("moved/net.onnx"), read_file(kResNet) + Text("\x0a\x00", 2));
  expect_user_error(
      [&] { export_onnx(open_weights(at("trained.safetensors")), at("moved/net.safetensors"), at("other.onnx")); },
      {"moved/net.onnx", "has changed"});
  EXPECT_FALSE(fs::exists(at("other.onnx")));
  import("tests/golden/pt2/resnet.pt2");
  expect_user_error([&] { write("other.onnx"); }, {"resnet.pt2", "torch.export"});
}

// A number that the tensor's type cannot represent stops the export.
TEST_F(OnnxExportTest, RefusesWhatATypeCannotHold) {
  const Text matrix = tensor("fc.weight", {2, 3}, OnnxType::kHalf,
                             bytes(9, raw<uint16_t>({0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600})));
  write_file(at("net.onnx"), file_of(conv_of_floats(), matrix));
  import(at("net.onnx"));
  Text trained = read_file(at("trained.safetensors"));
  const float large = 70000;
  std::memcpy(&trained[trained.size() - 4], &large, 4);
  write_file(at("trained.safetensors"), trained);
  expect_user_error([&] { write("out.onnx"); }, {"net.onnx", "\"fc.weight\"", "70000"});
  EXPECT_FALSE(fs::exists(at("out.onnx")));
}

}  // namespace
}  // namespace reprise::test
