// What a conversation teaches. Here because recipes name it, and tools/chat marks it.
#pragma once

namespace reprise {

enum class TrainOn {
  kAssistant,  // what the assistant says, and the end of its turn
  kAll,
};

}  // namespace reprise
