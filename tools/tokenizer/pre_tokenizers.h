// What the words of a GGUF file's tokenizer.ggml.pre mean: how a text is cut, and what else goes with the tokenizer of that name.
// Here because such a file names its pre-tokenizer, where a tokenizer.json spells it.
#pragma once

#include <string>
#include <vector>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

struct PreTokenizer {
  const char* words;  // with blanks between
  std::vector<CutStep> cuts;
  bool composes = false, takes_whole_words = false, adds_bos = false;
};

// Null where the word is not known.
const PreTokenizer* find_pre_tokenizer(const std::string& word);

// The first word of each, for messages.
std::vector<std::string> pre_tokenizer_words();

}  // namespace reprise
