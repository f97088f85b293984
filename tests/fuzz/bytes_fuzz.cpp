// Fuzzes parse_bytes, which reads texts such as "7GiB" and "512MiB" on command lines and in
// recipes. A silent overflow would plan for another budget.
#include "tests/fuzz/fuzz.h"
#include "tools/files/io/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const uint64_t bytes = parse_bytes(text, "--budget");
    fuzz::require(bytes >= 1 && bytes <= INT64_MAX, "bytes are from 1 to 2^63 - 1");
    fuzz::require(parse_bytes(std::to_string(bytes)) == bytes, "an integer is read back");
  });
  return 0;
}
