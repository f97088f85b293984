// A trained net back into the ONNX file that it was imported from.
// Here because only the import says which of the file's tensors a tensor of the net is: the file is imported once more, and asked.
#pragma once

#include <map>
#include <string>

#include "tools/formats/safetensors.h"
#include "tools/onnx/net_of_onnx.h"
#include "tools/weights/weight_source.h"

namespace reprise {

// Says in a file of imported weights what they were imported from, by its checksum and its path from `folder`, where that file will be.
void note_source(SafetensorsWriter& writer, const OnnxFile& file, const ImportRequest& request, const std::string& folder);

// Returns whether a file holds weights that `reprise import` wrote; false too where it cannot be read.
bool is_imported(const std::string& path);

struct OnnxExport {
  size_t tensors = 0;  // of the net
  size_t resized = 0;  // of them those of a new head
  // Nodes of the file, by op, that compute as in training: by each batch's statistics, or drawing.
  std::map<std::string, size_t> in_training;
};

// Writes `to`: the file that `imported` (a file of imported weights) was made of, with the numbers of `weights`, which has the net's
// names. The file must be where it was, seen from `imported`, or beside it, and have the same bytes. A head of another number of classes makes its
// tensors, and the sizes of what is computed from them, as large. `to` may be none of `inputs`, nor what is read. Throws UserError.
OnnxExport export_onnx(const WeightSource& weights, const std::string& imported, const std::string& to, std::vector<std::string> inputs = {});

}  // namespace reprise
