// The names in tokenizer.ggml.pre of GGUF files: for each, how it cuts a text, and other settings
// of the tokenizer. A GGUF file only names its pre-tokenizer; a tokenizer.json describes it.
#pragma once

#include <string>
#include <vector>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// One pre-tokenizer.
struct PreTokenizer {
  const char* words;  // its names, separated by blanks
  std::vector<CutStep> cuts;
  bool composes = false, takes_whole_words = false, adds_bos = false;
};

// Returns the pre-tokenizer with this name; null if the name is not known.
const PreTokenizer* find_pre_tokenizer(const std::string& word);

// Returns the first name of each pre-tokenizer, for messages.
std::vector<std::string> pre_tokenizer_words();

}  // namespace reprise
