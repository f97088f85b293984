// Adds a summed loss to the step's scalars. Losses with and without a linear layer share this
// function, so that they count rows in the same way.
#pragma once

#include "cuda/device_math.h"
#include "lib/plan.h"

namespace reprise {

// Adds a loss to `scalars`. In training, first divides the loss by the number of labels in the
// step, and sets `skip` if the result is not finite. In evaluation, also adds the counts. Call the
// function from one thread of a launch.
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
