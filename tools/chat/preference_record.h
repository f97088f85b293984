// A record of preferences as people write it, in trl's forms, becomes a prompt with its answers.
// Here because which form means what must be decided in one place, as conversation.h does for conversations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace reprise {

struct PreferenceRecord {
  nlohmann::ordered_json prompt;      // a text, or a list of messages
  nlohmann::ordered_json answers[2];  // of the same kind, none of them empty; the preferred one first, or the only one
  int wish = 1;                       // -1: an only answer that is not wished for
};

// Pairs: {"prompt", "chosen", "rejected"}, all texts or all lists of messages. Without a prompt, or with one that is a text beside lists, the
// prompt is what both answers begin with. Single answers: {"prompt", "completion", "label"}, label true or false. Other keys are not read.
// Throws UserError that begins with `place`.
PreferenceRecord read_preference(const nlohmann::ordered_json& record, bool is_single, const std::string& place);

}  // namespace reprise
