// Shrinks or stretches an image of bytes to a given size.
// Photographs come in any size, a planned net has one.
#pragma once

#include <cstdint>

#include "tools/data/images.h"

namespace reprise {

// [H, W, C] bytes to [H, W, C] bytes of `to`; the aspect ratio is not kept, channels must be equal. Bilinear with the
// filter widened when shrinking (a triangle over all source pixels that fall on one target pixel, as PIL and
// torchvision's antialias do), rounded once at the end.
void resize_image(const ImageShape& from, const uint8_t* source, const ImageShape& to, uint8_t* target);

}  // namespace reprise
