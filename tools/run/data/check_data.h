// Checks all data of a recipe before a training starts. Opening a folder of pictures only lists its
// files. Without this check, a broken picture would be found only when a step reads it.
#pragma once

#include <cstdint>
#include <string>

#include "tools/plan/recipes/recipe.h"

namespace reprise {

// Checks both sets of a recipe. Returns the exit status: 0, or 1 if a fault would end a training; a
// broken picture does not count if the recipe skips broken pictures. Opens both sets, which checks
// files, lengths, labels and tokens. Decodes every picture once, on `threads` threads (0: one for
// each processor). Prints a line on stdout for each picture that cannot be decoded and for each
// sample that DataLook names, in the order of the set. Progress and a summary go to stderr. Throws
// UserError like open_dataset, and if no picture of a set can be decoded.
int check_data(const Recipe& recipe, uint32_t threads);

// Opens both sets before a plan is made, but checks only the first 16 MiB of a file of tokens, text
// or records. Skips a set whose path does not exist, unless `must_be_there` is true. Throws
// UserError if the data have a fault that would end a training.
void look_at_data(const Recipe& recipe, bool must_be_there);

// Returns one line that names the files or folders of the recipe's data that do not exist; "" if
// they all exist.
std::string missing_data(const Recipe& recipe);

}  // namespace reprise
