// Fuzzes files of conversations and preferences: JSON lines, a JSON list or CSV. Each input must
// give records, or one line of refusal. Anybody may write such files.
#include "tests/fuzz/fuzz.h"
#include "tools/files/chat/conversation.h"
#include "tools/files/chat/preference_record.h"
#include "tools/files/formats/record_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace reprise;
  static const fuzz::MemoryFile memory;
  memory.hold(data, size);
  fuzz::answers_or_refuses([&] {
    const auto records = open_records(memory.path());
    for (uint64_t n = 0; n < records->size(); ++n) {
      const Conversation conversation = read_conversation(records->read(n), records->place(n));
      fuzz::require(conversation.is_text != conversation.variables.is_object(), "a sample is a text or a conversation");
      if (!conversation.is_text)
        fuzz::require(conversation.prompt_messages <= conversation.variables["messages"].size(),
                      "a prompt is part of it");
    }
  });
  for (const bool is_single : {false, true}) {
    fuzz::answers_or_refuses([&] {
      const auto records = open_records(memory.path());
      for (uint64_t n = 0; n < records->size(); ++n) {
        const PreferenceRecord record = read_preference(records->read(n), is_single, records->place(n));
        for (int i = 0; i < (is_single ? 1 : 2); ++i)
          fuzz::require(record.answers[i].type() == record.prompt.type() && !record.answers[i].empty(),
                        "an answer is there, as the prompt is");
      }
    });
  }
  return 0;
}
