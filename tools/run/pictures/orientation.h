// The orientation tag of a picture's file: it states how the camera was held, and thus how the
// picture must be rotated. Cameras store pixels in the order of the sensor, and a net must see the
// picture as a person sees it. Sources: Exif 2.32, section 4.6.4 (tag 0x0112); PNG specification
// (third edition), section 11.3.4.3 (eXIf); XMP, part 2 (tiff:Orientation).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tools/run/data/images.h"

namespace reprise {

// Returns bytes [at, at + count) of a file; fewer if the file ends before.
using ByteReader = std::function<std::string(uint64_t at, uint64_t count)>;

// Returns the orientation of a JPEG or PNG, from 1 to 8; 1 (upright) if the file has no tag. Uses
// the Exif tag, or XMP's if there is no Exif tag, like PIL.ImageOps.exif_transpose. Ignores damage:
// the decoder reports it.
int orientation_of(const ByteReader& file);

// Returns the size of a picture as it is shown, rotated by its orientation, without decoding it.
// Returns 0 x 0 if the file is damaged or of an unknown kind. Throws UserError if the file cannot
// be read.
ImageShape shown_size(const std::string& path);

// Returns the shape that a picture of shape `stored` has after its rotation.
ImageShape oriented_shape(const ImageShape& stored, int orientation);

// Rotates a picture. `from` is [H, W, C] of shape `stored`; `to` receives the picture as it is
// shown, [H, W, C] of oriented_shape(stored, orientation). `to` must not overlap `from`.
void orient_picture(const ImageShape& stored, const uint8_t* from, int orientation, uint8_t* to);

}  // namespace reprise
