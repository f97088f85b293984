// See gguf_names.h. The tables have a row for each tensor; '#' stands for the number of a
// transformer block.
#include "tools/files/weights/gguf_names.h"

#include <cctype>
#include <span>

namespace reprise {
namespace {

struct NameRow {
  const char* gguf;
  const char* published;
  GgufOrder order = GgufOrder::kSame;
  GgufPart part = GgufPart::kWhole;
};

// Names are without ".weight" and ".bias". If several rows have the same published name, the file
// is written with the first row's name.
constexpr NameRow kEveryDecoder[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
};

constexpr NameRow kDecoder[] = {
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", GgufOrder::kPairs},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", GgufOrder::kPairs},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.q_proj", GgufOrder::kPairs, GgufPart::kQuery},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.k_proj", GgufOrder::kPairs, GgufPart::kKey},
    {"blk.#.attn_qkv", "model.layers.#.self_attn.v_proj", GgufOrder::kSame, GgufPart::kValue},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm"},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm"},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
};

constexpr NameRow kPhi3[] = {
    {"blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj"},
};

constexpr NameRow kGemma[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm", GgufOrder::kPlusOne},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "model.layers.#.input_layernorm", GgufOrder::kPlusOne},
    {"blk.#.attn_q", "model.layers.#.self_attn.q_proj"},
    {"blk.#.attn_k", "model.layers.#.self_attn.k_proj"},
    {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
    {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
    {"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", GgufOrder::kPlusOne},
    {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", GgufOrder::kPlusOne},
    {"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm", GgufOrder::kPlusOne},
    {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", GgufOrder::kPlusOne},
    {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
    {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
    {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"},
    {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", GgufOrder::kPlusOne},
};

constexpr NameRow kGpt2[] = {
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"blk.#.attn_norm", "transformer.h.#.ln_1"},
    {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn", GgufOrder::kTransposed},
    {"blk.#.attn_output", "transformer.h.#.attn.c_proj", GgufOrder::kTransposed},
    {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
    {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc", GgufOrder::kTransposed},
    {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj", GgufOrder::kTransposed},
};

struct Architecture {
  // The name of an architecture, and the tables with the names of its tensors.
  const char* name;
  std::span<const NameRow> rows, shared;
  bool pairs;  // true: kPairs in the tables is the order in this architecture; false: kPairs means kSame
};
constexpr Architecture kArchitectures[] = {
    {"llama", kDecoder, kEveryDecoder, true},
    {"qwen2", kDecoder, kEveryDecoder, false},
    {"qwen3", kDecoder, kEveryDecoder, false},
    {"smollm3", kDecoder, kEveryDecoder, true},
    {"phi3", kPhi3, kEveryDecoder, false},
    {"gemma2", kGemma, {}, false},
    {"gemma3", kGemma, {}, false},
    {"gpt2", kGpt2, {}, false},
};

// Calls visit(row) for each row of the architecture's tables.
template <typename Visit>
void for_each_row(const Architecture& architecture, const Visit& visit) {
  for (const NameRow& row : architecture.rows) visit(row);
  for (const NameRow& row : architecture.shared) visit(row);
}

const Architecture* find_architecture(const std::string& name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

// The parts of a name: "blk.12.attn_q.weight" has "blk.#.attn_q", "12" and ".weight".
struct Parts {
  std::string stem, block, ending;
};
Parts parts_of(const std::string& name) {
  Parts parts;
  const size_t dot = name.rfind('.');
  parts.ending = dot == std::string::npos ? "" : name.substr(dot);
  const std::string stem = name.substr(0, dot);
  for (size_t i = 0; i < stem.size(); ++i) {
    const bool begins =
        i > 0 && stem[i - 1] == '.' && std::isdigit(static_cast<unsigned char>(stem[i])) != 0 && parts.block.empty();
    if (!begins) {
      parts.stem += stem[i];
      continue;
    }
    while (i < stem.size() && std::isdigit(static_cast<unsigned char>(stem[i])) != 0) parts.block += stem[i++];
    parts.stem += '#';
    --i;
  }
  return parts;
}

std::string joined(std::string stem, const Parts& parts) {
  if (const size_t hash = stem.find('#'); hash != std::string::npos) stem.replace(hash, 1, parts.block);
  return stem + parts.ending;
}

GgufOrder order_of(const NameRow& row, const Architecture& architecture, const std::string& ending) {
  if (row.order == GgufOrder::kPairs && !architecture.pairs) return GgufOrder::kSame;
  if (row.order == GgufOrder::kTransposed && ending == ".bias") return GgufOrder::kSame;
  return row.order;
}

bool is_tensor(const Parts& parts) { return parts.ending == ".weight" || parts.ending == ".bias"; }

}  // namespace

const std::vector<std::string>& gguf_architectures() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Architecture& architecture : kArchitectures) all.emplace_back(architecture.name);
    return all;
  }();
  return names;
}

std::string gguf_architecture_of(const std::string& model_type) {
  if (model_type == "mistral") return "llama";
  if (model_type == "gemma3_text") return "gemma3";
  return model_type;
}

std::vector<GgufName> published_names(const std::string& architecture_name, const std::string& gguf_name) {
  const Architecture* architecture = find_architecture(architecture_name);
  const Parts parts = parts_of(gguf_name);
  std::vector<GgufName> names;
  if (architecture == nullptr || !is_tensor(parts)) return names;
  for_each_row(*architecture, [&](const NameRow& row) {
    if (row.gguf == parts.stem)
      names.push_back({joined(row.published, parts), order_of(row, *architecture, parts.ending), row.part});
  });
  return names;
}

std::optional<GgufName> gguf_name(const std::string& architecture_name, const std::string& published_name) {
  const Architecture* architecture = find_architecture(architecture_name);
  const Parts parts = parts_of(published_name);
  if (architecture == nullptr || !is_tensor(parts)) return std::nullopt;
  std::optional<GgufName> name;
  for_each_row(*architecture, [&](const NameRow& row) {
    const bool is_its = row.published == parts.stem && row.part == GgufPart::kWhole;
    if (is_its && !name) name = GgufName{joined(row.gguf, parts), order_of(row, *architecture, parts.ending), row.part};
  });
  return name;
}

}  // namespace reprise
