#!/usr/bin/env python3
# Makes the goldens of tests/golden/weights: for each architecture a tiny GGUF file of random
# numbers in several types, and the same model as transformers reads it. Needs pip install gguf
# transformers torch safetensors. An independent reader decides which row of a GGUF file is which
# row of a model.
import os
import tempfile

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "weights")
kWidth, kInner, kVocabulary, kHeads, kKvHeads, kHead = 32, 64, 24, 4, 2, 8
Q = gguf.GGMLQuantizationType


kWideHeads = ("qwen3", "gemma2", "gemma3")
kReadAs = {"smollm3": "llama"}  # transformers 5.23 does not support the architecture, whose tensors are llama's


def decoder_tensors(arch):
  """Yields (name, shape, type) of the tensors of a model with one block."""
  head = 16 if arch in kWideHeads else kHead  # these heads need not add up to the width
  rows, kv_rows = kHeads * head, kKvHeads * head
  yield "token_embd.weight", (kVocabulary, kWidth), Q.Q8_0
  yield "blk.0.attn_norm.weight", (kWidth,), Q.F32
  if arch == "phi3":
    yield "blk.0.attn_qkv.weight", (rows + 2 * kv_rows, kWidth), Q.Q4_1
  else:
    yield "blk.0.attn_q.weight", (rows, kWidth), Q.Q4_1
    yield "blk.0.attn_k.weight", (kv_rows, kWidth), Q.Q5_0
    yield "blk.0.attn_v.weight", (kv_rows, kWidth), Q.F16
  if arch == "qwen2":
    yield "blk.0.attn_q.bias", (rows,), Q.F32
    yield "blk.0.attn_k.bias", (kv_rows,), Q.F32
    yield "blk.0.attn_v.bias", (kv_rows,), Q.F32
  if arch in ("qwen3", "gemma3"):
    yield "blk.0.attn_q_norm.weight", (head,), Q.F32
    yield "blk.0.attn_k_norm.weight", (head,), Q.F32
  yield "blk.0.attn_output.weight", (kWidth, rows), Q.Q4_0
  yield "blk.0.ffn_norm.weight", (kWidth,), Q.F32
  if arch == "phi3":
    yield "blk.0.ffn_up.weight", (2 * kInner, kWidth), Q.BF16  # gate and up
  else:
    yield "blk.0.ffn_gate.weight", (kInner, kWidth), Q.Q5_1
    yield "blk.0.ffn_up.weight", (kInner, kWidth), Q.BF16
  yield "blk.0.ffn_down.weight", (kWidth, kInner), Q.F32
  yield "output_norm.weight", (kWidth,), Q.F32
  if arch in ("gemma2", "gemma3"):
    yield "blk.0.post_attention_norm.weight", (kWidth,), Q.F32
    yield "blk.0.post_ffw_norm.weight", (kWidth,), Q.F32
  elif arch not in ("llama", "smollm3"):
    yield "output.weight", (kVocabulary, kWidth), Q.F16


def gpt2_tensors():
  yield "token_embd.weight", (kVocabulary, kWidth), Q.Q8_0
  yield "position_embd.weight", (16, kWidth), Q.F32
  for name, rows, columns, kind in [("attn_qkv", 3 * kWidth, kWidth, Q.Q5_1), ("attn_output", kWidth, kWidth, Q.F16),
                                    ("ffn_up", kInner, kWidth, Q.BF16), ("ffn_down", kWidth, kInner, Q.F32)]:
    yield f"blk.0.{name}.weight", (rows, columns), kind
    yield f"blk.0.{name}.bias", (rows,), Q.F32
  for name in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"]:
    yield name + ".weight", (kWidth,), Q.F32
    yield name + ".bias", (kWidth,), Q.F32


def write_gguf(path, arch, tensors, random):
  writer = gguf.GGUFWriter(path, arch)
  writer.add_block_count(1)
  writer.add_context_length(16)
  writer.add_embedding_length(kWidth)
  writer.add_feed_forward_length(kInner)
  writer.add_head_count(kHeads)
  writer.add_vocab_size(kVocabulary)
  if arch == "gpt2":
    writer.add_layer_norm_eps(1e-5)
  else:
    writer.add_head_count_kv(kKvHeads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(5e5)
    if arch in kWideHeads:
      writer.add_key_length(16)
      writer.add_value_length(16)
    if arch in ("gemma2", "gemma3"):
      writer.add_sliding_window(8)
  for name, shape, kind in tensors:
    numbers = random.standard_normal(shape).astype(np.float32)
    if kind == Q.F32:
      writer.add_tensor(name, numbers)
    else:
      stored = gguf.quantize(numbers, kind)
      writer.add_tensor(name, stored, raw_dtype=kind, raw_shape=stored.shape if stored.dtype == np.uint8 else None)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()


def main():
  for n, arch in enumerate(["llama", "qwen2", "qwen3", "gpt2", "smollm3", "phi3", "gemma2", "gemma3"]):
    name = os.path.join(kFolder, arch)
    tensors = list(gpt2_tensors() if arch == "gpt2" else decoder_tensors(arch))
    write_gguf(name + ".gguf", arch, tensors, np.random.default_rng(n))
    with tempfile.TemporaryDirectory() as cache:
      os.environ["HF_HOME"] = cache
      write_gguf(os.path.join(cache, arch + ".gguf"), kReadAs.get(arch, arch), tensors, np.random.default_rng(n))
      config = AutoConfig.from_pretrained(cache, gguf_file=arch + ".gguf")
      config.pad_token_id = None  # the family's own may be beyond so small a vocabulary
      if arch in kWideHeads:
        config.head_dim = 16  # transformers 5.23 ignores attention.key_length
      if arch == "gpt2":
        config.n_inner, config.n_positions, config.vocab_size = kInner, 16, kVocabulary  # and GPT-2's lengths
      model = AutoModelForCausalLM.from_pretrained(cache, gguf_file=arch + ".gguf", config=config, dtype=torch.float32)
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items() if not key.endswith((".attn.bias", ".masked_bias"))}
    if model.config.tie_word_embeddings:
      state.pop("lm_head.weight", None)
    save_file(state, name + ".safetensors")
    os.chmod(name + ".safetensors", 0o644)


if __name__ == "__main__":
  main()
