// What a loss adds to the step's scalars once it is summed.
// Here because losses with a linear layer and without one count alike.
#pragma once

#include "cuda/device_math.h"
#include "lib/plan.h"

namespace reprise {

// By one thread of a launch. In training the loss is divided by the labels of the whole step; in evaluation it is a sum, with its counts.
__device__ inline void add_loss(StepScalars* scalars, double loss, uint64_t labelled, uint64_t correct, bool training) {
  if (training) {
    loss /= static_cast<double>(scalars->step_labelled);
    if (!is_finite(loss)) scalars->skip = 1;
  } else {
    scalars->labelled += labelled;
    scalars->correct += correct;
  }
  scalars->loss_sum += loss;
}

}  // namespace reprise
