// Where the gradient floats between the two stacks of a chain schedule (PLANNING 6), with the least bytes moved.
// The stacks are known for all actions beforehand, so the sets of places that work are intervals, and this is exact.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

// A forward inside a step: it writes `output` bytes beside the previous output and uses `scratch` bytes meanwhile.
struct GapForward {
  int64_t output = 0;
  int64_t scratch = 0;
};

// What one step asks of the gap [bottom, top), in which a gradient of `gradient` bytes floats.
struct GapStep {
  int64_t bottom = 0;  // new residues already taken off
  int64_t top = 0;
  int64_t gradient = 0;
  std::vector<GapForward> forwards;  // the last output must end at `top`, where it joins the stack
  bool joins_bottom = false;         // the last output must start at `bottom` instead
  bool births = false;               // a backward: the next gradient is written while the old one is live
  int64_t born = 0;                  // its bytes
  int64_t scratch = 0;               // of the backward
};

struct GapPlacement {
  int64_t output = 0;
  int64_t scratch = 0;
};

struct GapAnswer {
  int64_t moved_from = 0;  // differs from `gradient` if the gradient moves before the step
  int64_t gradient = 0;
  std::vector<GapPlacement> forwards;
  int64_t born = 0;
  int64_t scratch = 0;
};

// The sum of what is live in a step must fit its gap; then an answer exists (the gradient at the bottom). Between steps the
// gradient may move anywhere in [bottom, top) of the step to come: the least sum of moved bytes over all steps is found.
std::vector<GapAnswer> float_gradient(const std::vector<GapStep>& steps);

}  // namespace reprise
