// Reads and writes the chain of chain_json.h.
#include "tools/plan/schedule/chain_json.h"

#include <algorithm>
#include <filesystem>

#include "tools/files/formats/json_fields.h"
#include "tools/files/formats/json_text.h"
#include "tools/files/io/output_file.h"

namespace reprise {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr uint64_t kMaxBytes = uint64_t{1} << 50;  // sums over 4096 links stay far below 2^63
constexpr double kMaxCost = 1e200;                 // makespans stay finite

uint64_t bytes_of(const JsonFields& fields, const char* key, uint64_t low = 0) {
  return fields.integer_in(key, fields.at(key), low, kMaxBytes);
}

double cost_of(const JsonFields& fields, const char* key, double high = kMaxCost) {
  return fields.number_in(key, fields.at(key), {.low = 0, .high = high});
}

Tape tape_from(const JsonFields& fields, const Link& link) {
  fields.allow_only({"bytes", "backward_cost", "scratch_bytes", "forward_scratch_bytes"});
  Tape tape;
  tape.bytes = bytes_of(fields, "bytes", link.boundary_bytes);
  tape.backward_cost = cost_of(fields, "backward_cost");
  tape.scratch_bytes = bytes_of(fields, "scratch_bytes");
  tape.forward_scratch_bytes = link.forward_scratch_bytes;
  fields.read("forward_scratch_bytes", tape.forward_scratch_bytes, 0, kMaxBytes);
  return tape;
}

const json& per_tape(const JsonFields& fields, const char* key, const Link& link) {
  const json& list = fields.list_at(key);
  if (list.size() != link.tapes.size()) {
    fields.refuse(key, "must list " + std::to_string(link.tapes.size()) + " numbers, one for each tape, not " +
                           std::to_string(list.size()));
  }
  return list;
}

Residue residue_from(const JsonFields& fields, const Link& link) {
  fields.allow_only({"bytes", "forward_cost", "record_costs", "tape_bytes"});
  Residue residue{.bytes = bytes_of(fields, "bytes"),
                  .forward_cost = cost_of(fields, "forward_cost", link.forward_cost)};
  if (fields.has("record_costs")) {
    for (const json& cost : per_tape(fields, "record_costs", link)) {
      residue.record_costs.push_back(fields.number_in("record_costs", cost, {0, kMaxCost}));
    }
  }
  if (fields.has("tape_bytes")) {
    for (const json& bytes : per_tape(fields, "tape_bytes", link)) {
      const uint64_t tape_bytes = link.tapes[residue.tape_bytes.size()].bytes;
      const uint64_t low = std::max(tape_bytes, link.boundary_bytes + residue.bytes);
      residue.tape_bytes.push_back(fields.integer_in("tape_bytes", bytes, low, tape_bytes + residue.bytes));
    }
  }
  return residue;
}

Link link_from(const JsonFields& fields, size_t n) {
  fields.allow_only({"name", "forward_cost", "boundary_bytes", "forward_scratch_bytes", "tapes", "residues"});
  Link link;
  link.name = "link " + std::to_string(n);
  fields.read("name", link.name);
  link.forward_cost = cost_of(fields, "forward_cost");
  link.boundary_bytes = bytes_of(fields, "boundary_bytes");
  link.forward_scratch_bytes = bytes_of(fields, "forward_scratch_bytes");
  const json& tapes = fields.list_at("tapes");
  if (tapes.empty()) fields.refuse("tapes", "must list at least one tape");
  for (size_t t = 0; t < tapes.size(); ++t) {
    link.tapes.push_back(tape_from(fields.element("tapes", t), link));
  }
  if (!fields.has("residues")) return link;
  const json& residues = fields.list_at("residues");
  for (size_t k = 0; k < residues.size(); ++k) {
    link.residues.push_back(residue_from(fields.element("residues", k), link));
  }
  return link;
}

}  // namespace

Chain chain_from_json(const json& value, const std::string& file, const std::string* text) {
  const JsonFields fields(value, {file, text}, "");
  fields.allow_only({"input_bytes", "links", kWriterKey});
  Chain chain;
  chain.input_bytes = bytes_of(fields, "input_bytes");
  const json& links = fields.list_at("links");
  if (links.empty() || links.size() > kLongestChain) {
    fields.refuse("links", "must list from 1 to " + std::to_string(kLongestChain) + " links, not " +
                               std::to_string(links.size()));
  }
  for (size_t n = 0; n < links.size(); ++n) {
    const JsonFields link_fields = fields.element("links", n);
    chain.links.push_back(link_from(link_fields, n));
    const size_t modes = chain.links[0].residues.size(), here = chain.links[n].residues.size();
    if (here == modes) continue;
    link_fields.refuse("residues", "must list " + std::to_string(modes) + " modes, as links[0] does, not " +
                                       std::to_string(here) +
                                       " (pad with {\"bytes\": 0, \"forward_cost\": the link's})");
  }
  const uint64_t output_bytes = chain.links.back().boundary_bytes;
  if (output_bytes != 0) {
    fields.element("links", links.size() - 1)
        .refuse("boundary_bytes", "must be 0, as the last link is the loss, not " + std::to_string(output_bytes));
  }
  return chain;
}

Chain read_chain(const std::string& path) {
  const std::string text = read_file(path);
  return chain_from_json(parse_json(text, path), path, &text);
}

bool is_chain_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe can be read only once
  const json value = json_or_discarded(read_file(path), JsonComments::kAllowed);
  return value.is_object() && value.contains("links") && !value.contains("model");
}

ordered_json chain_to_json(const Chain& chain) {
  ordered_json links = ordered_json::array();
  for (const Link& link : chain.links) {
    ordered_json tapes = ordered_json::array(), residues = ordered_json::array();
    for (const Tape& tape : link.tapes) {
      tapes.push_back(
          {{"bytes", tape.bytes}, {"backward_cost", tape.backward_cost}, {"scratch_bytes", tape.scratch_bytes}});
      if (tape.forward_scratch_bytes == link.forward_scratch_bytes) continue;
      tapes.back()["forward_scratch_bytes"] = tape.forward_scratch_bytes;
    }
    for (const Residue& residue : link.residues) {
      residues.push_back({{"bytes", residue.bytes}, {"forward_cost", residue.forward_cost}});
      if (!residue.record_costs.empty()) residues.back()["record_costs"] = residue.record_costs;
      if (!residue.tape_bytes.empty()) residues.back()["tape_bytes"] = residue.tape_bytes;
    }
    links.push_back({{"name", link.name}, {"forward_cost", link.forward_cost}, {"boundary_bytes", link.boundary_bytes},
                     {"forward_scratch_bytes", link.forward_scratch_bytes}, {"tapes", tapes}, {"residues", residues}});
  }
  return {{"input_bytes", chain.input_bytes}, {"links", links}};
}

void write_chain(const Output& to, const Chain& chain) {
  to.write(marked_json(kChainFile, chain_to_json(chain).dump(1)) + "\n");
}

}  // namespace reprise
