// Fuzzes a line of conversation data: JSON of any form becomes a conversation or one line.
// Such files come from anybody.
#include "tests/fuzz/fuzz.h"
#include "tools/chat/conversation.h"
#include "tools/formats/json_lines.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const JsonLines lines(memory.path());
    for (uint64_t n = 0; n < lines.size(); ++n) {
      const Conversation conversation = read_conversation(lines.read(n), lines.place(n));
      fuzz::require(conversation.is_text != conversation.variables.is_object(), "a sample is a text or a conversation");
      if (!conversation.is_text) fuzz::require(conversation.prompt_messages <= conversation.variables["messages"].size(), "a prompt is part of it");
    }
  });
  return 0;
}
