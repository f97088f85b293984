// Extends the embeddings and the head of a model by rows for tokens that its files do not have.
// Training starts with these rows. They are computed in one way for all file formats.
#pragma once

#include <functional>
#include <memory>

#include "tools/files/tokenizer/new_tokens.h"
#include "tools/files/weights/weight_source.h"

namespace reprise {

// The rows that both tables must have, and how to get the vocabulary.
struct TableRows {
  uint64_t rows = 0;  // rows of each table
  // True: a table that already has `rows` rows is replaced, too. Its rows for new tokens are
  // computed like new rows, because they were never trained.
  bool makes_spare = false;
  // Returns the vocabulary with its new tokens. It is called when a row of a replaced table is
  // first read.
  std::function<TokenizerFile(NewTokens& made)> tokenizer;
};

// Returns the source's tensors. A table with fewer than `rows` rows is replaced by a longer F32
// table. A new row is the mean of the table's rows of all tokens before the new ones. The mean is
// computed in f64: the sum from the first row on, divided by the number of rows, and rounded to
// f32.
std::unique_ptr<WeightSource> grow_tables(std::unique_ptr<WeightSource> source, TableRows rows);

}  // namespace reprise
