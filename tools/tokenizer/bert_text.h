// What BERT's tokenizers do to a text before it is cut: it is cleaned, Chinese characters are parted, accents and capitals go.
// Here because a model that has read such texts knows no others. Source of the rules: github.com/huggingface/tokenizers, BertNormalizer, which
// takes categories from the tables of Unicode 8, decomposes by those of Unicode 9, and lowers by today's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/tokenizer/tokenizer_file.h"

namespace reprise {

// Of a text that is UTF-8 and shorter than 2 GiB. `buffer` holds it. Throws UserError where it would become longer than that.
std::string_view bert_text(const BertRules& rules, std::string_view text, std::string& buffer);

// Whether it is a word of its own: a punctuation mark, and in ASCII a symbol too.
bool is_bert_punctuation(uint32_t code);

}  // namespace reprise
