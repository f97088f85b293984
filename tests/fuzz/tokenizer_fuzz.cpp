// Fuzzes the readers of tokenizers, tokenizer.json and GGUF; one that is accepted must tokenise, and every id that it gives is a token.
// Models come from the net.
#include "tests/fuzz/fuzz.h"
#include "tools/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const auto tokenizer = Tokenizer::open(memory.path());
    for (const bool parse_special : {false, true}) {
      for (const int32_t id : tokenizer->encode("a bc <s>, it's  12 \n e\u0301 字", parse_special)) {
        fuzz::require(id >= 0 && static_cast<uint32_t>(id) < tokenizer->vocabulary(), "an id is one of the vocabulary");
        fuzz::require(tokenizer->bytes_of({{id}}) == tokenizer->token(id), "an id is a token");
      }
    }
  });
  return 0;
}
