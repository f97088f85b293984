// BERT's normalisation of a text before it is cut. It removes control characters, separates Chinese
// characters, and removes accents and capitals. A model that was trained on normalised texts needs
// them at inference, too. Source of the rules: github.com/huggingface/tokenizers, BertNormalizer.
// Its categories are from Unicode 8, its decomposition from Unicode 9, and its lower case from the
// newest Unicode.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/files/tokenizer/tokenizer_file.h"

namespace reprise {

// Returns the normalised text, which is stored in `buffer`. The text must be UTF-8 of less than 2
// GiB. Throws UserError if the normalised text would be longer than that.
std::string_view bert_text(const BertRules& rules, std::string_view text, std::string& buffer);

// True if the character is a word by itself: a punctuation mark, or an ASCII symbol.
bool is_bert_punctuation(uint32_t code);

}  // namespace reprise
