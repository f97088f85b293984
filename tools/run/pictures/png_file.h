// Reads the header of a PNG, and checks that its bytes are intact. stb_image, which decodes PNGs,
// checks neither the CRC-32 of chunks nor the Adler-32 of the data. It also allocates as much
// memory as the data demand. Source: PNG specification (W3C, third edition), sections 5, 10 and
// 11.2.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

struct PngHeader {
  uint32_t width = 0, height = 0;
  int depth = 0;   // bits per channel
  int colour = 0;  // colour type: 0 grey, 2 colours, 3 palette, 4 grey and alpha, 6 colours and alpha
};

bool is_png(const std::string& bytes);  // True if the first eight bytes are those of a PNG.

// Returns the header of a PNG; does not read the bytes after it. Throws UserError "FILE: cannot be
// decoded: ...".
PngHeader read_png_header(const std::string& bytes, const std::string& path);

// Throws UserError if a chunk is cut off or has a wrong CRC-32. Throws it too if the data
// decompress to more or fewer bytes than the picture has, or have a wrong Adler-32. Takes as long
// as decompressing the data, and needs little memory.
void check_png(const std::string& bytes, const PngHeader& header, const std::string& path);

// Extends the palette of a PNG with black to 256 colours. Pixels may have an index beyond the end
// of a short palette, and stb_image does not check this. The PNG must have passed check_png().
void fill_palette(std::string& bytes);

// Returns the PNG without transparency and with a palette whose colour n is n. Grey of 16 bits
// stays as it is. The PNG must have passed check_png().
std::string png_of_numbers(const std::string& bytes);

}  // namespace reprise
