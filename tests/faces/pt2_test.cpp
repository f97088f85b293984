// Nets as torch.export.save wrote them: the net that the ONNX exporter gives of the same module, and refusals that name entry and field. The bad
// archives are made here, entry by entry.
#include <gtest/gtest.h>

#include <functional>

#include "tests/faces/command_line.h"
#include "tests/faces/expect_user_error.h"
#include "tools/formats/json_text.h"
#include "tools/formats/output_file.h"
#include "tools/onnx/import_net.h"
#include "tools/weights/weight_source.h"

namespace reprise::test {
namespace {

using nlohmann::json;
using Text = std::string;

const std::string kGoldens = "tests/golden/pt2/";  // tests/parity/make_pt2_goldens.py

ImportOrder order_of(const std::string& file, const std::string& recipe) {
  ImportOrder order;
  order.file = file;
  order.recipe = recipe;
  return order;
}

std::vector<float> numbers_in(const WeightSource& source, const std::string& name) {
  uint64_t elements = 1;
  for (const uint64_t dimension : source.find(name)->shape) elements *= dimension;
  std::vector<float> numbers(elements);
  source.read(name, 0, elements, numbers.data());
  return numbers;
}

// The nodes of a net, each by its place in place of its name, which exporters choose.
json nodes_by_place(const std::string& file) {
  json nodes = parse_json(read_file(file), file).at("nodes");
  std::map<std::string, size_t> places;
  for (json& node : nodes) {
    for (json& input : node.at("inputs")) {
      if (const auto found = places.find(input); found != places.end()) input = found->second;
    }
    places.emplace(node.at("name"), places.size());
    node.erase("name");
  }
  return nodes;
}

class Pt2Import : public CommandLine {};

// Exported for evaluation with an open batch, where ReLU writes in place, or in training, where batch-norm writes its statistics.
TEST_F(Pt2Import, IsTheNetThatOnnxHas) {
  EXPECT_TRUE(import_net(order_of("tests/golden/onnx/resnet.onnx", folder_.file("onnx.json"))).refused.empty());
  const auto theirs = open_weights("tests/golden/onnx/resnet.safetensors");
  for (const char* name : {"resnet.pt2", "resnet_training.pt2"}) {
    const ImportReport report = import_net(order_of(kGoldens + name, folder_.file("net.json")));
    EXPECT_EQ(report.refused, std::vector<std::string>()) << name;
    EXPECT_EQ(nodes_by_place(folder_.file("net.graph.json")), nodes_by_place(folder_.file("onnx.graph.json"))) << name;
    const auto ours = open_weights(folder_.file("net.safetensors"));
    EXPECT_EQ(ours->names(), theirs->names()) << name;
    for (const std::string& tensor : theirs->names()) EXPECT_EQ(numbers_in(*ours, tensor), numbers_in(*theirs, tensor)) << tensor;
  }
}

// What the file is, its content says.
TEST_F(Pt2Import, AsksForNoName) {
  std::filesystem::copy_file(kGoldens + "resnet.pt2", folder_.file("net.onnx"));
  const json report = json_answer({"import", folder_.file("net.onnx"), "-o", folder_.file("net.json"), "--classes", "3", "--json"});
  EXPECT_EQ(report.at("ops").at("conv"), 9);
}

}  // namespace
}  // namespace reprise::test
