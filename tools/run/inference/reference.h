// Computes the log-probabilities that a reference model gives to pairs of answers, once, before the
// training begins. The reference is the model with which the training starts, without its adapter,
// so that its numbers do not change. The evaluation program computes them while State contains this
// model; training steps need no time or memory for it. A resumed run starts with the same model and
// gets the same bits.
#pragma once

#include "lib/trainer.h"
#include "tools/run/data/dataset.h"

namespace reprise {

// Sets the references for steps [first, end) of a training set, or for micro-batches [first, end)
// of an evaluation set. Does nothing if the set needs no references. Throws UserError, also if a
// signal asks the program to end.
void set_references(Trainer& trainer, const Port& port, const Recipe& recipe, Dataset& data, uint64_t first,
                    uint64_t end, bool quiet);

}  // namespace reprise
