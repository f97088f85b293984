// Fuzzes a mask: a PNG of 8 bits, grey or with a palette, whose numbers fill each place or which is refused.
#include "tests/fuzz/fuzz.h"
#include "tools/data/picture.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    uint8_t places[3 * 5];
    decode_mask(memory.path(), 3, 5, places);
  });
  return 0;
}
