// The weights of a GGUF file under Hugging Face's names and in its layouts.
// Here because llama.cpp's files interleave, fuse and transpose rows.
#pragma once

#include <memory>
#include <string>

#include "tools/weights/weight_source.h"

namespace reprise {

// Whether the file begins as a GGUF does; false where it cannot be read.
bool is_gguf(const std::string& path);

// Throws UserError.
std::unique_ptr<WeightSource> open_gguf_weights(const std::string& path);

}  // namespace reprise
