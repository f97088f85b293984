// The frame of a PNG: its header, and whether all its bytes are those that were written.
// Here because stb_image, which decodes it, compares neither the chunks' CRC-32 nor the data's Adler-32, and takes what memory the data ask for.
// Source: PNG specification (W3C, third edition), sections 5, 10 and 11.2.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

struct PngHeader {
  uint32_t width = 0, height = 0;
  int depth = 0;   // bits of a channel
  int colour = 0;  // colour type: 0 grey, 2 colours, 3 palette, 4 grey and alpha, 6 colours and alpha
  uint64_t pixels() const { return uint64_t{width} * height; }
};

bool is_png(const std::string& bytes);  // by how it begins

// Returns the header of a PNG without a look at what follows it. Throws UserError "FILE: cannot be decoded: ...".
PngHeader read_png_header(const std::string& bytes, const std::string& path);

// Throws UserError where a chunk is cut off or has another CRC-32, or where the data hold more or fewer bytes than the picture or have another
// Adler-32. Takes the time of unpacking the data, and little memory.
void check_png(const std::string& bytes, const PngHeader& header, const std::string& path);

// Fills the palette of a PNG that check_png took up to 256 colours, the rest black: stb_image reads colours that a short one lacks.
void fill_palette(std::string& bytes);

}  // namespace reprise
