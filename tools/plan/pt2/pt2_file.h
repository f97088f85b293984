// Reads the files of torch.export (.pt2) as models of ONNX. Only this file handles their archive
// and their JSON (torch/_export/serde/schema.py, whose versions differ in content).
#pragma once

#include "tools/files/io/input_file.h"
#include "tools/plan/onnx/onnx_file.h"

namespace reprise {

bool is_pt2(const InputFile& file);  // True if the file begins as every zip archive does.

// Returns the model of a .pt2. Tensors have the names of the module's state_dict; their numbers
// stay in the archive, which stores them uncompressed. Throws UserError with the file, the entry
// and the field that differs from what torch 2.8 and later write (schema 8).
OnnxModel read_pt2(const InputFile& file);

}  // namespace reprise
