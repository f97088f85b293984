// Resizes an image of bytes: photographs have various sizes, a planned net has one.
#pragma once

#include <cstdint>

#include "tools/run/data/images.h"

namespace reprise {

// Resizes `source`, bytes [H, W, C] of shape `from`, to `target`, bytes [H, W, C] of shape `to`.
// The channels must be equal; the aspect ratio is not kept. The filter is bilinear. When shrinking,
// it is a triangle over all source pixels of a target pixel, like the antialias of PIL and
// torchvision. The result is rounded once, at the end.
void resize_image(const ImageShape& from, const uint8_t* source, const ImageShape& to, uint8_t* target);

}  // namespace reprise
