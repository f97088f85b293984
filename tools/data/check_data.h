// A look at all of the data before a training that takes days.
// Here because opening a folder of pictures only lists them: a broken one would come up when its turn comes.
#pragma once

#include <cstdint>

#include "tools/recipes/recipe.h"

namespace reprise {

// Opens both sets, which checks files, lengths, labels and tokens, and decodes every picture once, on `threads` threads (0: one for each
// processor). Each picture that cannot be decoded, and each sample that DataLook names, is one line on stdout, in the order of the set;
// progress and a summary go to stderr. Returns the exit status: 1 where one of them would end a run, which a picture does unless the recipe
// skips broken ones. Throws UserError as open_dataset does, and where no picture of a set is whole.
int check_data(const Recipe& recipe, uint32_t threads);

// Before a plan is made: opens the sets, of large files the first 16 MiB; those that are not there only where they must be. Throws UserError
// where a training on them would end before its first step.
void look_at_data(const Recipe& recipe, bool must_be_there);

}  // namespace reprise
