// The weights of a GGUF file under Hugging Face's names and in Hugging Face's layouts. llama.cpp's
// files interleave, fuse and transpose rows; this reader reverses that.
#pragma once

#include <memory>
#include <string>

#include "tools/files/weights/weight_source.h"

namespace reprise {

// True if the file begins with GGUF's magic bytes; false if it cannot be read.
bool is_gguf(const std::string& path);

// Opens a GGUF file. Throws UserError.
std::unique_ptr<WeightSource> open_gguf_weights(const std::string& path);

}  // namespace reprise
