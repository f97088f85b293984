// Fuzzes the reader of torch.export's files, the translation of their ops, and the conversion to a
// net. Such files come from the internet.
//
// An input consists of the graph's JSON and the weights' JSON, each after its length in two bytes,
// and then the bytes of the numbers. An archive is made from them. If the first length is 0, the
// rest of the input is the archive itself.
#include <zlib.h>

#include <cstring>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tools/plan/models/net.h"
#include "tools/plan/onnx/net_of_onnx.h"

namespace {

void put(std::string& to, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) to += static_cast<char>(i < 8 ? value >> (8 * i) : 0);
}

// A zip archive of uncompressed entries.
class Archive {
 public:
  void add(const std::string& name, const std::string& content) {
    const auto header = [&](std::string& to) {
      put(to, 0, 10), put(to, crc32_z(0, reinterpret_cast<const unsigned char*>(content.data()), content.size()), 4),
          put(to, content.size(), 4), put(to, content.size(), 4), put(to, name.size(), 2);
    };
    put(directory_, 0x02014b50, 4), put(directory_, 0, 2), header(directory_), put(directory_, 0, 12),
        put(directory_, file_.size(), 4);
    directory_ += name;
    put(file_, 0x04034b50, 4), header(file_), put(file_, 0, 2);
    file_ += name + content;
    ++count_;
  }
  std::string file() const {
    std::string all = file_ + directory_;
    put(all, 0x06054b50, 4), put(all, 0, 4), put(all, count_, 2), put(all, count_, 2), put(all, directory_.size(), 4),
        put(all, file_.size(), 4), put(all, 0, 2);
    return all;
  }

 private:
  std::string file_, directory_;
  uint64_t count_ = 0;
};

// Removes a length of two bytes, and as many further bytes, from `input`. Returns the further
// bytes.
std::string take(std::string& input) {
  if (input.size() < 2) return "";
  const size_t length = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
  const std::string taken = input.substr(2, length);
  input.erase(0, 2 + taken.size());
  return taken;
}

std::string archive_of(std::string input) {
  const std::string program = take(input);
  if (program.empty()) return input;
  Archive archive;
  archive.add("net/models/model.json", program);
  archive.add("net/data/weights/model_weights_config.json", take(input));
  archive.add("net/data/constants/model_constants_config.json", R"({"config": {}})");
  archive.add("net/data/weights/w", input);
  return archive.file();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  const std::string file = archive_of(std::string(reinterpret_cast<const char*>(data), size));
  memory.hold(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  fuzz::answers_or_refuses([&] {
    const OnnxFile opened(memory.path());
    const ImportedNet net = net_of_onnx(opened, {});
    for (const std::string& line : net.refused) fuzz::require(!line.empty(), "a refusal says why");
    if (!net.refused.empty()) return;
    read_net(net.graph, {"file"});
    for (const ImportedTensor& weight : net.weights)
      fuzz::require(!numbers_of(opened, weight).empty() || weight.tensor->elements() == 0, "a weight has numbers");
  });
  return 0;
}
