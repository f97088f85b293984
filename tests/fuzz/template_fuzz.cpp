// Fuzzes chat templates. Rendering a conversation with any template must give a text, or one line
// of refusal. Templates come with models from the internet.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "tools/files/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const auto conversation = nlohmann::ordered_json::parse(
      R"({"messages": [{"role": "user", "content": " é<|e|> "}, {"role": "assistant", "content": "b\nc"}], "tools": [{"name": "f", "n": [1, 2.5, null, true]}]})");
  const std::string source(reinterpret_cast<const char*>(data), size);
  fuzz::answers_or_refuses([&] {
    const ChatTemplate chat(source, "template", {.bos = "<s>", .eos = "</s>", .pad = std::nullopt});
    const RenderedChat whole = chat.render(conversation, true);
    fuzz::require(whole.text.bytes.size() == whole.text.origins.size(), "every byte has its origin");
    for (const ByteRange& range : whole.generated)
      fuzz::require(range.begin <= range.end && range.end <= whole.text.size(), "marks lie in the text");
    nlohmann::json(whole.text.bytes).dump();  // throws if the text is not UTF-8
  });
  return 0;
}
