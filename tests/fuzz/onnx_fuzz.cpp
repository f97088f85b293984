// Fuzzes the reader of ONNX files, and their conversion to a net with its nodes and the numbers of
// its weights. Such files come from the internet.
#include "tests/fuzz/fuzz.h"
#include "tools/plan/models/net.h"
#include "tools/plan/onnx/net_of_onnx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const OnnxFile file(memory.path());
    const ImportedNet net = net_of_onnx(file, {});
    for (const std::string& line : net.refused) fuzz::require(!line.empty(), "a refusal says why");
    if (!net.refused.empty()) return;
    read_net(net.graph, {"file"});
    for (const ImportedTensor& weight : net.weights) {
      uint64_t elements = 1;
      for (const uint64_t dimension : weight.shape) elements *= dimension;
      fuzz::require(numbers_of(file, weight).size() == elements, "a weight has the numbers of its shape");
    }
  });
  return 0;
}
