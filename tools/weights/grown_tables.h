// A model's tables of tokens, its embeddings and its head, with rows for tokens that its files do not know.
// Here because these rows are what training begins with, whichever file holds the others.
#pragma once

#include <functional>
#include <memory>

#include "tools/tokenizer/new_tokens.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// What a table must have. `tokenizer`: the vocabulary with its new tokens, asked when a row is made.
struct TableRows {
  uint64_t rows = 0;
  bool makes_spare = false;  // of a table that has rows for the new tokens already these are made, too: nobody has trained them
  std::function<TokenizerFile(NewTokens& made)> tokenizer;
};

// The source's tensors. A table with fewer rows has them all, as F32. A row that is made is the mean of the table's rows of tokens that were
// there before: their sum in f64, from the first row on, divided by their number and rounded to f32.
std::unique_ptr<WeightSource> grow_tables(std::unique_ptr<WeightSource> source, TableRows rows);

}  // namespace reprise
