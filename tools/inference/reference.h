// What the reference says of pairs of answers, asked once before the training begins.
// Here because the reference is the model that a training begins with, its adapter left out: its numbers never change. So they are computed by the
// evaluation program while State still holds that model, and take neither time nor memory of a step. A resumed run begins with the same model
// again and has the same bits.
#pragma once

#include "lib/trainer.h"
#include "tools/data/dataset.h"

namespace reprise {

// For the steps [first, end) of a training set, or so many micro-batches of an evaluation set; nothing where no answer of the set has a
// reference. Throws UserError, also where a signal asks the program to end.
void set_references(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data, uint64_t first, uint64_t end, bool quiet);

}  // namespace reprise
