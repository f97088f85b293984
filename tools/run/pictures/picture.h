// Decodes the file of one picture to the size that the net reads. A training and the check of a
// folder use the same code, so that they agree on what can be decoded.
#pragma once

#include <cstdint>
#include <string>

#include "tools/run/data/images.h"

namespace reprise {

// Maximum pixels of a picture, and of one side. The limits exceed those of cameras; decoding a PNG
// of 16 bits at the limit needs about 1 GiB of memory.
constexpr uint64_t kMaxPixels = uint64_t{64} << 20, kLongestSide = 65535;

// The reason that is given if no better one is known.
constexpr const char* kDamagedPicture =
    "it is damaged, or of a variant that is not read; save it anew as JPEG, PNG, BMP, PPM or PGM";

// Throws UserError "FILE: cannot be decoded: REASON".
[[noreturn]] void refuse_picture(const std::string& path, const std::string& reason);

// Fills `target`, bytes [H, W, C] of `shape`, with the picture as it is shown (orientation.h),
// resized if it has another size. Every thread may call it. Throws UserError that names the file.
void decode_picture(const std::string& path, const ImageShape& shape, uint8_t* target);

// Fills `target`, [height, width] numbers, from a mask: a PNG of 1 to 16 bits. The number is the
// stored grey value, or the palette's index. The mask is rotated by its orientation. If the mask
// has another size, each number is that of the pixel at the middle of its area. Returns the mask's
// own size. Throws UserError that names the file.
ImageShape decode_mask(const std::string& path, int height, int width, uint16_t* target);

// Decodes the picture and discards the result. Throws UserError if decode_picture() would.
void check_picture(const std::string& path, const ImageShape& shape);

}  // namespace reprise
