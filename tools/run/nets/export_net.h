// Writes a trained net back into the ONNX file that it was imported from. The file is imported once
// more, because only an import shows which tensor of the file belongs to each tensor of the net.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tools/files/formats/safetensors.h"
#include "tools/files/weights/weight_source.h"
#include "tools/plan/onnx/net_of_onnx.h"

namespace reprise {

// Adds metadata to a file of imported weights: the checksum of the source, its path from `folder`,
// in which the file of weights will be, and the request.
void note_source(SafetensorsWriter& writer, const OnnxFile& file, const ImportRequest& request,
                 const std::string& folder);

// True if the file contains weights that `reprise import` wrote; false if it cannot be read.
bool is_imported(const std::string& path);

struct OnnxExport {
  size_t tensors = 0;  // tensors of the net
  size_t resized = 0;  // tensors of a new head, included in `tensors`
  // For each op, the number of the file's nodes that compute as in training: with the statistics of
  // each batch, or with random numbers. Has only ops with such nodes.
  std::map<std::string, size_t> in_training;
};

// Writes `to`: the ONNX file that `imported` (a file of imported weights) was made from, with the
// numbers of `trained`. The tensors of `trained` have the names and shapes of files of weights. The
// ONNX file must have the same bytes as at the import; it is looked for at its path from
// `imported`, then in the folder of `imported`. If the head has another number of classes, its
// tensors and the values computed from them get the new size. `to` must not be one of `inputs`, or
// a file that is read. Throws UserError.
OnnxExport export_onnx(std::shared_ptr<const WeightSource> trained, const std::string& imported, const std::string& to,
                       std::vector<std::string> inputs = {});

}  // namespace reprise
