// Runs ONNX's own test cases for single ops, from Debian's libonnx-testdata. Each case that can be
// imported must give its outputs in an evaluation.
//
// The first input of a case becomes the images of a net, and a loss reads its first output. The
// other inputs are constants or, if that is refused, further parts of the images.
// tests/golden/onnx/cases.txt lists the cases that pass. The test prints why other applicable cases
// are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>

#include "tests/interfaces/expect_user_error.h"
#include "tests/runtime/training_harness.h"
#include "tools/files/io/output_file.h"
#include "tools/plan/onnx/importer.h"
#include "tools/plan/planning/weight_storage.h"
#include "tools/run/inference/outputs.h"
#include "tools/run/nets/import_net.h"
#include "tools/run/snapshots/initial_weights.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using Text = std::string;
using Shape64 = std::vector<uint64_t>;

const Text kCases = "/usr/share/libonnx-testdata/data/", kGolden = "tests/golden/onnx/cases.txt";

// ---- protobuf, field by field ----

Text varint(uint64_t n) {
  Text bytes;
  for (; n >= 0x80; n >>= 7) bytes += static_cast<char>(n | 0x80);
  return bytes + static_cast<char>(n);
}
Text number(uint64_t field, uint64_t n) { return varint(field << 3) + varint(n); }
Text bytes(uint64_t field, const Text& content) { return varint(field << 3 | 2) + varint(content.size()) + content; }

Text tensor(const Text& name, const Shape64& shape, uint64_t type, const void* numbers, size_t size) {
  Text message;
  for (const uint64_t d : shape) message += number(1, d);
  return bytes(5, message + number(2, type) + bytes(8, name) + bytes(9, Text(static_cast<const char*>(numbers), size)));
}
Text integers(const Text& name, const std::vector<int64_t>& list) {
  return tensor(name, {list.size()}, 7, list.data(), list.size() * sizeof(int64_t));
}
Text node(const Text& op, const std::vector<Text>& inputs, const Text& output) {
  Text message;
  for (const Text& input : inputs) message += bytes(1, input);
  return bytes(1, message + bytes(2, output) + bytes(3, output + "_node") + bytes(4, op));
}
Text float_value(uint64_t field, const Text& name, const Shape64& shape) {
  Text dimensions;
  for (const uint64_t d : shape) dimensions += bytes(1, number(1, d));
  return bytes(field, bytes(1, name) + bytes(2, bytes(1, number(1, 1) + bytes(2, dimensions))));
}

// Calls visit(field, complete field, content) for each field of a message whose wire type has a
// length.
template <typename Visit>
void for_each_field(const Text& message, const Visit& visit) {
  size_t at = 0;
  const auto read = [&] {
    uint64_t n = 0;
    for (uint32_t shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      n |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return n;
    }
  };
  while (at < message.size()) {
    const size_t start = at;
    const uint64_t key = read();
    Text content;
    if ((key & 7) == 2) {
      const uint64_t length = read();
      content = message.substr(at, length);
      at += length;
    } else {
      (key & 7) == 0 ? (void)read() : (void)(at += (key & 7) == 1 ? 8 : 4);
    }
    visit(key >> 3, message.substr(start, at - start), content);
  }
}

// ---- a case ----

uint64_t product(const Shape64& shape, size_t first = 0) {
  uint64_t n = 1;
  for (size_t d = first; d < shape.size(); ++d) n *= shape[d];
  return n;
}

// A tensor of a case, with its numbers.
struct Stored {
  Text message;  // a TensorProto
  OnnxTensor tensor;
  std::vector<float> numbers;  // empty if the type is not float
};

Stored stored(const Text& path) {
  Stored value{read_file(path), {}, {}};
  const OnnxFile file = OnnxFile::of_tensor(path);
  value.tensor = file.model().constants.at(0);
  if (value.tensor.type == static_cast<uint32_t>(OnnxType::kFloat)) value.numbers = file.floats(value.tensor);
  return value;
}

struct Case {
  Text graph;  // fields of the graph: the node and its constants
  uint64_t opset = 0;
  std::vector<Text> inputs;
  Text output;
  std::vector<Stored> in;
  Stored out;
};

// Reads a case from its folder. Returns "", or the reason why the case does not apply.
Text read_case(const Text& folder, Case& c) {
  const OnnxFile file(folder + "/model.onnx");
  const OnnxModel& model = file.model();
  std::set<Text> ops;
  for (const OnnxOps* list : {&image_ops(), &row_ops(), &pointwise_ops(), &layout_ops()}) {
    for (const OnnxOp& op : *list) ops.insert(op.op);
  }
  for (const OnnxNode& each : model.nodes) {
    if (ops.count(each.op) == 0 || !each.domain.empty()) return "has " + each.op;
    for (const OnnxAttribute& attribute : each.attributes) {
      if (attribute.name == "training_mode" && attribute.integer != 0) return "is in training";
    }
  }
  const Text data = folder + "/test_data_set_0/";
  std::set<Text> constants;
  for (const OnnxTensor& constant : model.constants) constants.insert(constant.name);
  for (const OnnxValue& input : model.inputs) {
    if (constants.count(input.name) > 0) continue;
    const Text path = data + "input_" + std::to_string(c.in.size()) + ".pb";
    if (!fs::exists(path)) return "stores no input";
    c.inputs.push_back(input.name);
    c.in.push_back(stored(path));
    if (c.in.back().tensor.type == static_cast<uint32_t>(OnnxType::kBool)) return "has an input that is no number";
  }
  if (c.in.empty() || c.in[0].numbers.empty()) return "reads no floats";
  c.out = stored(data + "output_0.pb");
  if (c.out.numbers.empty()) return "writes no floats";
  const Shape64 &from = c.in[0].tensor.shape, &to = c.out.tensor.shape;
  if (from.empty() || to.empty() || from[0] != to[0]) return "has no axis of samples";
  c.output = model.outputs.at(0).name;
  // Opset 11 is used for older cases: the ops of opsets 6 to 10 compute the same, unless they have
  // an attribute that opset 11 lacks, which is refused.
  c.opset = static_cast<uint64_t>(std::max<int64_t>(11, model.opsets.at("")));
  for_each_field(read_file(folder + "/model.onnx"), [&](uint64_t field, const Text&, const Text& content) {
    if (field == 7) {
      for_each_field(content, [&](uint64_t part, const Text& of_graph, const Text&) {
        c.graph += part == 1 || part == 5 ? of_graph : "";
      });
    }
  });
  return "";
}

// The net for a case, and its input. The images [N,1,1,K] contain those inputs of the case that are
// not constants, one after the other.
struct Net {
  Text model;
  std::vector<float> images;
};

bool may_be_activation(const Case& c, size_t n) {
  return !c.in[n].numbers.empty() && !c.in[n].tensor.shape.empty() &&
         c.in[n].tensor.shape[0] == c.in[0].tensor.shape[0];
}

Net net_of(const Case& c, bool of_constants) {
  const uint64_t N = c.in[0].tensor.shape[0];
  std::vector<size_t> parts;
  Text before, behind, constants;
  uint64_t K = 0;
  for (size_t n = 0; n < c.in.size(); ++n) {
    if (n == 0 || (!of_constants && may_be_activation(c, n))) {
      const uint64_t width = product(c.in[n].tensor.shape, 1);
      const Text name = c.inputs[n];
      before += node("Slice", {"images", name + ".first", name + ".end", name + ".axis"}, name + ".part") +
                node("Reshape", {name + ".part", name + ".shape"}, name);
      const Shape64& shape = c.in[n].tensor.shape;
      constants += integers(name + ".first", {static_cast<int64_t>(K)}) +
                   integers(name + ".end", {static_cast<int64_t>(K + width)}) + integers(name + ".axis", {3}) +
                   integers(name + ".shape", {shape.begin(), shape.end()});
      parts.push_back(n);
      K += width;
    } else {
      constants += bytes(5, c.in[n].message + bytes(8, c.inputs[n]));
    }
  }
  // A plan needs a parameter to train. So the output is multiplied by factors of 1.
  const uint64_t out = product(c.out.tensor.shape, 1);
  const std::vector<float> ones(out, 1.0f);
  constants +=
      integers("out.shape", {static_cast<int64_t>(N), static_cast<int64_t>(out)}) +
      tensor("out.weight", out > 1 ? Shape64{out} : Shape64{1, 1}, 1, ones.data(), ones.size() * sizeof(float));
  behind = node("Reshape", {c.output, "out.shape"}, "out.rows") +
           node(out > 1 ? "Mul" : "MatMul", {"out.rows", "out.weight"}, "out");
  Net net{number(1, 8) +
              bytes(7, before + c.graph + behind + constants + float_value(11, "images", {N, 1, 1, K}) +
                           float_value(12, "out", {N, out})) +
              bytes(8, number(2, c.opset)),
          {}};
  for (uint64_t sample = 0; sample < N; ++sample) {
    for (const size_t n : parts) {
      const auto width = static_cast<long>(product(c.in[n].tensor.shape, 1)), first = static_cast<long>(sample) * width;
      net.images.insert(net.images.end(), c.in[n].numbers.begin() + first, c.in[n].numbers.begin() + first + width);
    }
  }
  return net;
}

// Plans the net and returns its output in an evaluation.
std::vector<float> evaluated(const Text& recipe_file, const Net& net, const Stored& out) {
  Recipe recipe = read_recipe(recipe_file);
  recipe.batch = static_cast<int>(out.tensor.shape[0]);
  const PlannedRun run = plan_run(recipe, "none");
  const Plan plan = run.planned.plan.view();
  const TestArena arena(plan.arena_bytes);
  const Workers alone = {.stack_bytes = 1 << 20};
  Trainer trainer;
  const Status bound = bind_plan(plan, test::test_backend(), alone, arena.get(), trainer);
  if (!bound.ok()) throw UserError(std::string("a plan that cannot be bound: ") + bound.message);
  read_initial_weights(trainer, *open_model_weights(recipe, recipe.init.from), {});
  std::vector<float> numbers;
  const OutputReader reader(trainer, [&](const NetOutputs& outputs) { numbers = outputs.numbers; });
  const std::pair<const Net*, const Stored*> batch = {&net, &out};
  const auto fill = [](void* self, uint64_t, uint32_t, BatchSink& sink) {
    const auto& [images, labels] = *static_cast<const std::pair<const Net*, const Stored*>*>(self);
    sink.add(images->images.data(), images->images.size() * sizeof(float), labels->numbers.data(),
             labels->numbers.size());
    return ok_status();
  };
  const auto labelled = [](void* self, uint64_t) {
    return static_cast<uint64_t>(
        static_cast<const std::pair<const Net*, const Stored*>*>(self)->second->numbers.size());
  };
  EvaluationReport report;
  const BatchSource source = {const_cast<void*>(static_cast<const void*>(&batch)), fill, labelled};
  (void)evaluate(trainer, source, 1, report);  // returns no error: the loss may be infinite or NaN
  return numbers;
}

// Returns "passed", or why the case did not pass. Tolerances are those of ONNX's own runner of
// these cases.
Text verdict(const Case& c, const TemporaryFolder& folder) {
  Text refused;
  for (const bool of_constants : {true, false}) {
    const Net net = net_of(c, of_constants);
    write_file(folder.file("case.onnx"), net.model);
    const ImportReport report = import_net({folder.file("case.onnx"),
                                            folder.file("case.json"),
                                            {.classes = 0, .inputs = {}, .loss = "mse_loss"},
                                            {},
                                            "",
                                            ""});
    if (!report.refused.empty()) {
      if (refused.empty()) refused = "refused: " + report.refused[0];
      continue;
    }
    const std::vector<float> ours = evaluated(folder.file("case.json"), net, c.out);
    if (ours.size() != c.out.numbers.size()) return "differs: writes " + std::to_string(ours.size()) + " numbers";
    for (size_t i = 0; i < ours.size(); ++i) {
      const float right = c.out.numbers[i];
      const bool is_no_number = std::isnan(ours[i]) && std::isnan(right);  // for example the root of a negative number
      if (!(std::abs(ours[i] - right) <= 1e-7f + 1e-3f * std::abs(right)) && ours[i] != right && !is_no_number) {
        return "differs: number " + std::to_string(i) + " is " + std::to_string(ours[i]) + ", not " +
               std::to_string(right);
      }
    }
    return "passed";
  }
  return refused;
}

// Returns the verdict of a case, or in brackets why the case does not apply.
Text outcome(const Text& path, const TemporaryFolder& folder) {
  Case c;
  try {
    const Text reason = read_case(path, c);
    return reason.empty() ? verdict(c, folder) : "[" + reason + "]";
  } catch (const UserError& error) {
    const Text line = error.what();
    return "refused: " + line.substr(line.rfind('/') + 1);
  }
}

TEST(OnnxCases, WriteWhatTheySay) {
  if (!fs::exists(kCases)) GTEST_SKIP() << "Debian's libonnx-testdata is not here";
  const TemporaryFolder folder;
  std::set<Text> names;
  for (const char* group : {"node", "pytorch-converted", "pytorch-operator", "simple"}) {
    for (const auto& entry : fs::directory_iterator(kCases + group))
      names.insert(Text(group) + "/" + entry.path().filename().string());
  }
  std::map<Text, size_t> others;
  std::set<Text> passed, known;
  size_t apply = 0;
  for (const Text& name : names) {
    const Text found = outcome(kCases + name, folder);
    if (found[0] == '[') {
      ++others[found];
      continue;
    }
    ++apply;
    EXPECT_FALSE(found.starts_with("differs")) << name << ": " << found;
    if (found == "passed") passed.insert(name);
    std::cout << name << " " << found << "\n";
  }
  std::cout << passed.size() << " of " << apply << " cases pass; others:";
  for (const auto& [reason, count] : others) std::cout << " " << count << " " << reason;
  std::cout << "\n";
  std::istringstream golden(read_file(kGolden));
  for (Text name; std::getline(golden, name);) {
    known.insert(name);
    EXPECT_EQ(passed.count(name), 1u) << name << " passed before";
  }
  for (const Text& name : passed) EXPECT_EQ(known.count(name), 1u) << name << " is not in " << kGolden;
}

}  // namespace
}  // namespace reprise
