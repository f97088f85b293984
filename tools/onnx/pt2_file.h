// The files of torch.export (.pt2) as models of ONNX.
// Here so that nothing but this file knows their archive and their JSON (torch/_export/serde/schema.py, whose versions change what
// stands in it).
#pragma once

#include "tools/formats/input_file.h"
#include "tools/onnx/onnx_file.h"

namespace reprise {

bool is_pt2(const InputFile& file);  // by how it begins: as every zip archive does

// Tensors have the names of the module's state_dict, and lie in the archive, where their numbers are stored as they are. Throws
// UserError with the file, the entry and the field of what is not as torch 2.8 and later write it (schema 8).
OnnxModel read_pt2(const InputFile& file);

}  // namespace reprise
