// Which messages of a conversation are learned. Recipes contain this setting, and tools/files/chat
// applies it.
#pragma once

namespace reprise {

enum class TrainOn {
  kAssistant,  // the assistant's messages, including the end of a turn
  kAll,        // all messages
};

}  // namespace reprise
