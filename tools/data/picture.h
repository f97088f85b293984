// One picture's file, decoded to the size that the net wants.
// Here because training and the check of a folder must agree on what can be decoded.
#pragma once

#include <cstdint>
#include <string>

#include "tools/data/images.h"

namespace reprise {

// The most pixels of a picture: above what cameras have, and about a GiB of memory while a PNG of 16 bits is decoded.
constexpr uint64_t kMostPixels = uint64_t{64} << 20, kLongestSide = 65535;

// The reason of a refusal where no other is known.
constexpr const char* kDamagedPicture = "it is damaged, or of a variant that is not read; save it anew as JPEG, PNG, BMP, PPM or PGM";

// Throws UserError "FILE: cannot be decoded: REASON".
[[noreturn]] void refuse_picture(const std::string& path, const std::string& reason);

// Fills `target`, [H, W, C] bytes of `shape`; a picture of another size is resized. Throws UserError naming the file. From any thread.
void decode_picture(const std::string& path, const ImageShape& shape, uint8_t* target);

// Fills `target`, a byte for each of height x width places, with a mask's: the grey, or the number of the colour, of a PNG of 8 bits; of another size
// each place takes the pixel at its middle. Throws UserError naming the file.
void decode_mask(const std::string& path, int height, int width, uint8_t* target);

// decode_picture without a result.
void check_picture(const std::string& path, const ImageShape& shape);

}  // namespace reprise
