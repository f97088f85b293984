// A net that a person or a program wrote node by node: its recipe fields and its graph. It is for
// networks that belong to no family. Anything that Graph can represent can be trained.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/files/formats/json_fields.h"
#include "tools/files/weights/stored_form.h"
#include "tools/plan/models/model.h"

namespace reprise {

struct NetNode {
  std::string op, name;             // op: a word of the table in net.cpp
  std::vector<std::string> inputs;  // names of earlier nodes, NetModel::input(), or kNetTypes
  // The numbers given for a key of the op; index: the key. A key has one number, or several or none
  // if the op permits it. A flag is 0 or 1.
  std::map<std::string, std::vector<double>> numbers;
  bool operator==(const NetNode&) const = default;
};

struct NetModel {
  static constexpr const char* kFamily = "net";
  static constexpr HuggingFaceNames kHuggingFace = {};

  int image_height = 0, image_width = 0, image_channels = 0;  // size of an image; 0 if the net reads no images
  int text_length = 0, pad = 0;  // a net of texts: tokens of each text, and the token that pads it; 0: no texts
  int sequence = 0;              // a language model: tokens of each sample, each predicted from earlier ones; else 0
  std::vector<NetNode> nodes;  // in the order of the forward; the last is the loss
  // For each parameter or buffer that is shared with an earlier node, its name in that node.
  std::map<std::string, std::string> tied = {};
  struct Stored {
    std::string name;  // name of the parameter in files, instead of the name from its node
    StoredForm form;   // shape, sides and order in files; an empty shape: the usual form
    bool operator==(const Stored&) const = default;
  };
  // Names and forms of parameters in files of weights, if they differ. Index: the name that the
  // parameter has from its node.
  std::map<std::string, Stored> stored = {};
  // The shape of one sample that the loss reads; empty for a loss head, or if the graph cannot be
  // built.
  std::vector<uint32_t> output = {};

  bool reads_texts() const { return text_length > 0; }
  bool is_of_language() const { return sequence > 0; }
  const char* input() const { return reads_texts() || is_of_language() ? kNetTokens : kNetImages; }
  static NetModel read(const JsonFields& fields);
  static nlohmann::json example();
  nlohmann::json write() const;
  ModelDescription describe() const;
  void check(const RecipeRules& rules, MicroBatch batch) const;
  void build(Graph& graph, MicroBatch batch) const;
  bool operator==(const NetModel&) const = default;
};

// Reads a net from a file of its own, which has the same fields. Throws UserError.
NetModel read_net(const nlohmann::json& value, const JsonOrigin& origin);

}  // namespace reprise
