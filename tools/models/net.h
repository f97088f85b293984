// A net that a person, or a program, wrote down node by node: its recipe fields and its graph.
// Here because not every network is of a family: what Graph can hold can be trained, whoever made it.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/formats/json_fields.h"
#include "tools/models/model.h"

namespace reprise {

struct NetNode {
  std::string op, name;             // op: a word of net.cpp's table
  std::vector<std::string> inputs;  // names of nodes before it, NetModel::input(), or kNetTypes
  std::map<std::string, std::vector<double>> numbers;  // each key of the op: one number, or as many as the key may have, or none; flags are 0 or 1
  bool operator==(const NetNode&) const = default;
};

struct NetModel {
  static constexpr const char* kFamily = "net";
  static constexpr HuggingFaceNames kHuggingFace = {};

  int image_height = 0, image_width = 0, image_channels = 0;  // of a net that reads pictures
  int text_length = 0, pad = 0;  // of one that reads texts: tokens of each, and the one behind its end
  int sequence = 0;              // of a language model: tokens of each sample, of which it learns each from those before it
  std::vector<NetNode> nodes;  // in the order of the forward; the last is the loss
  std::map<std::string, std::string> tied = {};  // of parameters and buffers that are those of a node before: whose
  std::vector<uint32_t> output = {};  // of one sample: what a loss that is no head reads; {} where that cannot be built

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

// A net that stands alone, as in a file of its own: the same fields. Throws UserError.
NetModel read_net(const nlohmann::json& value, const JsonOrigin& origin);

}  // namespace reprise
