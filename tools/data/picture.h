// One picture's file, decoded to the size that the net wants.
// Here because training and the check of a folder must agree on what can be decoded.
#pragma once

#include <string>

#include "tools/data/images.h"

namespace reprise {

// Fills `target`, [H, W, C] bytes of `shape`; a picture of another size is resized. Throws UserError naming the file. From any thread.
void decode_picture(const std::string& path, const ImageShape& shape, uint8_t* target);

// Fills `target`, a byte for each of height x width places, with a mask's: the grey, or the number of the colour, of a PNG of 8 bits; of another size
// each place takes the pixel at its middle. Throws UserError naming the file.
void decode_mask(const std::string& path, int height, int width, uint8_t* target);

// decode_picture without a result.
void check_picture(const std::string& path, const ImageShape& shape);

}  // namespace reprise
