# Writes a tiny model as a GGUF file with the package gguf: rows of q and k permuted for the
# architecture llama, llama3's scaling as a tensor of divisors. With it the goldens have a file that
# Reprise did not write.
import math

import gguf
import numpy as np

from decoders import gguf_rows, head_size, rope_parameters, rotary_channels

kNames = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
kBlockNames = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
               "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
               "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


kPhiNames = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
kGemmaNames = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}
kArchitectures = {"mistral": "llama", "gemma3_text": "gemma3"}  # only those that differ from the model's type


def gguf_name(architecture, name):
  layer, kind = name.rsplit(".", 1)
  if layer in kNames:
    return f"{kNames[layer]}.{kind}"
  _, _, block, part = layer.split(".", 3)
  names = {**kBlockNames, **(kPhiNames if architecture == "phi3" else kGemmaNames if architecture.startswith("gemma") else {})}
  return f"blk.{block}.{names[part]}.{kind}"


def rope_divisors(rope, size):
  """Returns the divisors of each pair's frequency in llama3's scaling."""
  plain = rope["rope_theta"] ** -(np.arange(0, size, 2) / size)
  turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)
  low, high = rope["low_freq_factor"], rope["high_freq_factor"]
  smooth = np.clip((turns - low) / (high - low), 0, 1)
  return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def add_metadata(writer, config, add_words):
  rope = rope_parameters(config)
  writer.add_name("tiny")
  writer.add_vocab_size(config["vocab_size"])
  writer.add_context_length(config["max_position_embeddings"])
  writer.add_embedding_length(config["hidden_size"])
  writer.add_block_count(config["num_hidden_layers"])
  writer.add_feed_forward_length(config["intermediate_size"])
  writer.add_head_count(config["num_attention_heads"])
  writer.add_head_count_kv(config["num_key_value_heads"])
  writer.add_key_length(head_size(config))
  writer.add_value_length(head_size(config))
  writer.add_rope_dimension_count(rotary_channels(config))
  writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
  writer.add_rope_freq_base(rope["rope_theta"])
  if config.get("sliding_window"):
    writer.add_sliding_window(config["sliding_window"])
  if config["model_type"] == "gemma3_text":
    writer.add_sliding_window_pattern(config["layer_types"].index("full_attention") + 1)
  if config["model_type"] == "gemma2":
    writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
  add_words(writer, config["vocab_size"])
  return rope


def add_longrope(writer, config, rope):
  """Writes what llama.cpp's converter of Phi-3 writes: two tensors of divisors, and no name of the
  type."""
  for which in ("long", "short"):
    writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
  original, longest = rope["original_max_position_embeddings"], config["max_position_embeddings"]
  writer.add_rope_scaling_orig_ctx_len(original)
  writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(longest / original) / math.log(original)))


def add_tokenizer(writer, count):
  """Adds a byte-level BPE of `count` tokens, because llama.cpp reads no model without one: letters
  from "!", one merge, a control token."""
  letters = [chr(ord("!") + n) for n in range(count - 2)]
  writer.add_tokenizer_model("gpt2")
  writer.add_tokenizer_pre("gpt-2")
  writer.add_token_list(letters + ['!"', "<|end|>"])
  writer.add_token_types([gguf.TokenType.NORMAL] * (count - 1) + [gguf.TokenType.CONTROL])
  writer.add_token_merges(['! "'])
  writer.add_bos_token_id(count - 1)
  writer.add_eos_token_id(count - 1)
  writer.add_add_bos_token(False)


def write_gguf(path, config, weights, add_words=add_tokenizer, matrices=np.float16):
  """Writes the model; `add_words(writer, vocab_size)` adds its tokenizer. Vectors are F32;
  `matrices` is the type of matrices, and F16 represents these models' weights exactly."""
  architecture = kArchitectures.get(config["model_type"], config["model_type"])
  writer = gguf.GGUFWriter(path, architecture)
  rope = add_metadata(writer, config, add_words)
  if rope["rope_type"] == "llama3":
    writer.add_tensor("rope_freqs.weight", rope_divisors(rope, head_size(config)))
  if rope["rope_type"] == "longrope":
    add_longrope(writer, config, rope)
  for name, tensor in weights.items():
    if architecture.startswith("gemma") and name.endswith("norm.weight"):
      tensor = tensor + 1  # llama.cpp multiplies with this
    for part, heads in (("q_proj", config["num_attention_heads"]), ("k_proj", config["num_key_value_heads"])):
      if architecture in ("llama", "smollm3") and f"{part}." in name:
        tensor = gguf_rows(tensor, heads)
    rows = tensor.float().numpy().astype(matrices if tensor.dim() == 2 else np.float32)
    writer.add_tensor(gguf_name(architecture, name), np.ascontiguousarray(rows))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
