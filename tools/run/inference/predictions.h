// Writes predictions for pictures and texts to files: numbers as CSV or npy, maps of classes as
// PNG.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/files/io/output.h"

namespace reprise {

// Writes a CSV file (RFC 4180) with one row for each sample: a text for each of `titles`, then its
// numbers under `names`. If the path ends in .npy, writes only the numbers, f32 [rows, names].
// Throws UserError; no incomplete file remains.
void write_numbers(const Output& to, std::vector<std::string> titles,
                   const std::vector<std::vector<std::string>>& samples, const std::vector<std::string>& names,
                   const std::vector<float>& numbers);

// True if write_numbers() wrote the file. Recognises a table by the digits of its numbers, and an
// npy file by the padding in the header that write_npy() writes.
bool is_predictions(const std::string& path);
constexpr OutputKind kPredictions = {"predictions", is_predictions, true};

// Writes f32 numbers as an npy file, version 1.0. Its header has 128 more blanks than needed, which
// mark the file as written by this program.
void write_npy(const std::string& path, const std::vector<uint64_t>& shape, const float* numbers);

// Writes bytes as a grey PNG (RFC 2083), with the mark of kMap.
void write_grey_png(const std::string& path, uint32_t height, uint32_t width, const uint8_t* bytes);

// True if the file is a map that this program wrote: a PNG or an npy.
bool is_map(const std::string& path);
constexpr OutputKind kMap = {"map", is_map};

}  // namespace reprise
