// Files of what a net says of pictures and texts: numbers as CSV or npy, classes of places as PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/formats/output.h"

namespace reprise {

// Rows of numbers under their names, each behind its sample (RFC 4180): one text under the first of `titles`, or one under each. Where the path
// ends in .npy the numbers alone, f32 [rows, names]. Throws UserError; nothing half-written is left.
void write_numbers(const Output& to, std::vector<std::string> titles, const std::vector<std::vector<std::string>>& samples,
                   const std::vector<std::string>& names, const std::vector<float>& numbers);

// Returns whether a file is one that write_numbers() wrote: by our numbers, printed with nine digits, or by the padding of write_npy()'s header.
bool is_predictions(const std::string& path);
constexpr OutputKind kPredictions = {"predictions", is_predictions, true};

// An array of f32 in the form of NumPy's files, version 1.0. Its header has 128 more blanks than it needs, which is our mark.
void write_npy(const std::string& path, const std::vector<uint64_t>& shape, const float* numbers);

// Bytes as a grey PNG (RFC 2083) with the mark of kMap.
void write_grey_png(const std::string& path, uint32_t height, uint32_t width, const uint8_t* bytes);

// Returns whether a file is a map that a net wrote of a picture: a PNG or an npy.
bool is_map(const std::string& path);
constexpr OutputKind kMap = {"map", is_map};

}  // namespace reprise
