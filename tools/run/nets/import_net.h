// Imports a net: turns an ONNX file or a .pt2 into a recipe, a net of nodes and a file of weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plan/onnx/net_of_onnx.h"
#include "tools/run/nets/check_net.h"

namespace reprise {

struct ImportOrder {
  // `recipe` is the file to write, NET.json; the net and its weights are written next to it.
  std::string file, recipe;
  ImportRequest request;
  std::vector<std::string> freeze;  // patterns for the recipe's `freeze`
  std::string data_kind, data_path;
  std::string check = {};      // stored outputs that the net must compute (check_net.h); empty: none
  const Port* port = nullptr;  // executes the check
  // The texts' tokenizer; empty: the one in the file's folder, if the data need one.
  std::string tokenizer = {};
};

struct ImportReport {
  std::string recipe, graph, weights;  // paths of the files
  size_t model_nodes = 0, nodes = 0, left_out = 0, links = 0, tensors = 0;
  std::vector<std::pair<std::string, size_t>> ops;  // ops of the net, with their counts
  // For each op of the net, the number of its nodes that replace a chain of several nodes of the
  // model. Has only ops with such nodes.
  std::map<std::string, size_t> joined;
  std::string tied;                                 // the embedding whose table is also the head's weight; "" for none
  std::vector<std::string> drawn;  // parameters of a new head
  uint64_t elements = 0, trained_elements = 0;
  size_t trained_tensors = 0, tied_tensors = 0;
  uint64_t tied_elements = 0;
  Findings findings;
  uint64_t smallest_budget_bytes = 0;  // smallest budget at the recipe's batch
  int batch = 0;
  std::optional<CheckReport> check;
  std::vector<std::string> refused;  // reasons, one line each; if there is one, nothing was written
};

// Imports a net and writes its files, or reports in `refused` why the model cannot be read. If it
// throws UserError, it leaves no file.
ImportReport import_net(const ImportOrder& order);

std::string import_text(const ImportReport& report);
nlohmann::json import_json(const ImportReport& report);

}  // namespace reprise
