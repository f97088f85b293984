// Places the gradient between the two stacks of a chain schedule (PLANNING 6) so that few bytes are
// moved. The stacks are known for all actions in advance, so the possible addresses are intervals.
#pragma once

#include <cstdint>
#include <vector>

namespace reprise {

// A forward inside a step: it writes `output` bytes while the previous output is live and uses
// `scratch` bytes.
struct GapForward {
  int64_t output = 0;
  int64_t scratch = 0;
};

// The blocks that one step needs in the gap [bottom, top), in addition to the gradient of
// `gradient` bytes.
struct GapStep {
  int64_t bottom = 0;  // end of the bottom stack, with the step's new residues
  int64_t top = 0;
  int64_t gradient = 0;
  std::vector<GapForward> forwards;  // the last output must end at `top`, where it joins the stack
  bool joins_bottom = false;         // the last output must start at `bottom` instead
  bool births = false;               // a backward: the next gradient is written while the old one is live
  int64_t born = 0;                  // bytes of the next gradient
  int64_t scratch = 0;               // scratch bytes of the backward
};

struct GapPlacement {
  int64_t output = 0;
  int64_t scratch = 0;
};

struct GapAnswer {
  int64_t moved_from = 0;  // address before the step; differs from `gradient` if the gradient moves
  int64_t gradient = 0;
  std::vector<GapPlacement> forwards;
  int64_t born = 0;
  int64_t scratch = 0;
};

// Returns, for each step, the addresses of the gradient and of the other blocks in the gap, with
// few moved bytes. The sum of moved bytes is the minimum, unless the possible addresses before some
// step are more than 256 intervals of different costs. Between steps the gradient may move anywhere
// in [bottom, top) of the next step. The live blocks of a step must fit its gap; a result then
// exists, because the gradient can be at the bottom.
std::vector<GapAnswer> float_gradient(const std::vector<GapStep>& steps);

}  // namespace reprise
