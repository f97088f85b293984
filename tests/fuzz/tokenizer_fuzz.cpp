// Fuzzes the readers of tokenizer.json and of tokenizers in GGUF files. An accepted tokenizer must
// tokenise a text, and every id that it returns must be a token. Models come from the internet.
#include "tests/fuzz/fuzz.h"
#include "tools/files/tokenizer/tokenizer.h"

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
