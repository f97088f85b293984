// Files of what a net says of pictures and texts: numbers as CSV or npy, classes of places as PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

// Rows of numbers under their names, each behind its sample (RFC 4180): one text under the first of `titles`, or one under each. Where the path
// ends in .npy the numbers alone, f32 [rows, names]. Throws UserError; nothing half-written is left.
void write_numbers(const std::string& path, std::vector<std::string> titles, const std::vector<std::vector<std::string>>& samples,
                   const std::vector<std::string>& names, const std::vector<float>& numbers);

// An array of f32 in the form of NumPy's files, version 1.0.
void write_npy(const std::string& path, const std::vector<uint64_t>& shape, const float* numbers);

// Bytes as a grey PNG (RFC 2083).
void write_grey_png(const std::string& path, uint32_t height, uint32_t width, const uint8_t* bytes);

}  // namespace reprise
