// Imports a net: an ONNX file becomes a recipe, a net of nodes and a file of weights, which are trained as any other.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/onnx/check_net.h"
#include "tools/onnx/net_of_onnx.h"

namespace reprise {

struct ImportOrder {
  std::string file, recipe;         // recipe: where it is written, NET.json; the net and its weights lie beside it
  ImportRequest request;
  std::vector<std::string> freeze;  // patterns for the recipe
  std::string data_kind, data_path;
  std::string check = {};      // stored outputs that the net must compute (check_net.h); "": none
  const Port* port = nullptr;  // where it then runs
  std::string tokenizer = {};  // of texts; empty: the one that lies beside the file, where data need one
};

struct ImportReport {
  std::string recipe, graph, weights;  // the files
  size_t model_nodes = 0, nodes = 0, left_out = 0, links = 0, tensors = 0;
  std::vector<std::pair<std::string, size_t>> ops;  // of the net, with how many there are
  std::map<std::string, size_t> joined;              // of them those that the model has as several nodes
  std::string tied;  // the embedding whose table is the head's weight, too; "" for none
  uint64_t elements = 0, trained_elements = 0;
  uint64_t smallest_budget_bytes = 0;  // at the recipe's batch
  int batch = 0;
  std::optional<CheckReport> check;
  std::vector<std::string> refused;  // where there is one, nothing was written
};

// Throws UserError. Nothing is left where it does.
ImportReport import_net(const ImportOrder& order);

std::string import_text(const ImportReport& report);
nlohmann::json import_json(const ImportReport& report);

}  // namespace reprise
