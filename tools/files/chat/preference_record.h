// Reads a record of preferences, in one of trl's forms, as a prompt with its answers. All forms are
// defined in this module only, as those of conversations are in conversation.h.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace reprise {

// A prompt with one or two answers.
struct PreferenceRecord {
  nlohmann::ordered_json prompt;      // a text, or a list of messages
  // Texts or lists of messages, like the prompt; not empty. [0]: the preferred answer, or the
  // single answer. [1]: the other answer of a pair.
  nlohmann::ordered_json answers[2];
  std::set<std::string> unused = {};  // keys of the record that are not read
  int wish = 1;                       // 1: the first answer is preferred; -1: it is a single answer and undesirable
};

// Returns the prompt and answers of a record: a single answer if `is_single`, otherwise a pair.
// Throws UserError that begins with `place`. Other keys are not read.
// Pairs: {"prompt", "chosen", "rejected"}, all texts or all lists of messages. If there is no
// prompt, or if the prompt is a text and the answers are lists, the common beginning of both
// answers becomes the prompt.
// Single answers: {"prompt", "completion", "label"}; label is true or false. If the texts are
// lists, the record may have "tools" and "chat_template_kwargs" as in conversation.h; they are read
// when the record is rendered.
PreferenceRecord read_preference(const nlohmann::ordered_json& record, bool is_single, const std::string& place);

}  // namespace reprise
