# Decoders of the Llama kind (llama, mistral, qwen2, qwen3, smollm3, phi3, gemma2, gemma3) in plain
# PyTorch, from config.json and tensors with Hugging Face's names. They are the reference in double
# precision: transformers computes norms, softmax and rotary angles in f32 even if a model is f64. A
# second implementation also shows that both compute the same model. A golden must distinguish the
# mutants from the right model.
import math

import torch
from torch.nn import functional

from nets import Gpt2
from recipe_file import kGpt2

# Each mutant: the wrong computation of one thing.
kMutants = {
    "no_unpermute": "rows of q and k in the order of a llama GGUF file",
    "interleaved_rope": "channels 2i and 2i + 1 turn together, instead of i and i + half",
    "wrong_kv_group": "query head h takes key head h mod kv_heads, instead of h / group",
    "norm_after_rope": "q and k are normalised after they have turned (qwen3)",
    "rope_everywhere": "q and k of all layers turn (smollm3)",
    "turns_all": "all channels of a head turn (phi3)",
    "gate_for_up": "the halves of gate_up_proj exchanged (phi3)",
    "norm_without_one": "norms multiply by their weight, not by 1 more (gemma)",
    "no_second_norms": "no norm behind the halves of a block (gemma)",
    "silu_gate": "silu in place of gelu (gemma)",
    "unscaled_embedding": "embeddings are not multiplied by the root of the width (gemma)",
    "all_windowed": "every layer sees its window alone (gemma)",
    "one_rope": "layers with a window turn as those without (gemma3)",
    "scale_of_head": "scores are divided by the root of the head's width, whatever query_pre_attn_scalar is (gemma)",
    "uncapped_scores": "the scores of attention stay as they are (gemma2)",
    "uncapped_logits": "the logits stay as they are (gemma2)",
    "window_ignored": "every token sees all tokens before it",
    "wider_window": "a token sees one token more than its window has",
    "documents_ignored": "positions run on and every token sees the documents before its own",
    "sees_other_documents": "positions start anew, but every token sees the documents before its own",
    "unscaled_rope": "the frequencies and factor of rope_type default"}


# ---- rotary positions: the formulas of the papers, in double precision ----------------------------------------------------------

def head_size(config):
  return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rope_parameters(config, kind="full_attention"):
  """Returns the newer form of a config's rope parameters, from either form, for one kind of
  layers."""
  if kind in (config.get("rope_parameters") or {}):
    config = {"rope_parameters": config["rope_parameters"][kind]}
  rope = {"rope_theta": config.get("rope_theta", 10000.0), **(config.get("rope_scaling") or {}),
          **(config.get("rope_parameters") or {})}
  rope["rope_type"] = rope.get("rope_type") or rope.get("type") or "default"
  return rope


def rotary_channels(config):
  partial = rope_parameters(config).get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
  return int(head_size(config) * partial)


def rope_frequencies(config, length, layers="full_attention"):
  """Returns (frequency of each pair of channels, factor of cos and sin) for samples of `length`
  tokens."""
  rope, channels = rope_parameters(config, layers), rotary_channels(config)
  kind, base, longest = rope["rope_type"], rope["rope_theta"], config["max_position_embeddings"]
  original = rope.get("original_max_position_embeddings") or longest
  factor = rope.get("factor") or longest / original
  exponents = torch.arange(0, channels, 2, dtype=torch.float64) / channels
  plain = base ** -exponents
  if kind == "default":
    return plain, 1.0
  if kind == "linear":
    return plain / factor, 1.0
  if kind == "dynamic":  # only beyond the longest text of the pretraining
    stretch = factor * max(length, longest) / longest - (factor - 1)
    return (base * stretch ** (channels / (channels - 2))) ** -exponents, 1.0
  if kind == "yarn":
    return yarn(rope, plain, factor, original, channels)
  if kind == "longrope":
    divisors = torch.tensor(rope["long_factor" if length > original else "short_factor"], dtype=torch.float64)
    scale = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return plain / divisors, rope.get("attention_factor") or scale
  if kind == "llama3":
    return llama3(rope, plain, factor, original), 1.0
  raise ValueError(f"rope_type {kind} has no formula here")


def yarn(rope, plain, factor, original, channels):
  def channel_of(turns):
    return channels * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(rope["rope_theta"]))
  low, high = channel_of(rope.get("beta_fast") or 32), channel_of(rope.get("beta_slow") or 1)
  if rope.get("truncate", True):
    low, high = math.floor(low), math.ceil(high)
  low, high = max(low, 0), min(high, channels - 1)
  ramp = ((torch.arange(len(plain), dtype=torch.float64) - low) / max(high - low, 0.001)).clamp(0, 1)
  weights = rope.get("mscale"), rope.get("mscale_all_dim")
  up, down = weights if all(weights) else (1.0, 0.0)
  scale = (0.1 * up * math.log(factor) + 1) / (0.1 * down * math.log(factor) + 1) if factor > 1 else 1.0
  return plain / factor * ramp + plain * (1 - ramp), rope.get("attention_factor") or scale


def llama3(rope, plain, factor, original):
  low, high = rope["low_freq_factor"], rope["high_freq_factor"]
  turns = original * plain / (2 * math.pi)
  smooth = ((turns - low) / (high - low)).clamp(0, 1)
  return plain / factor * (1 - smooth) + plain * smooth


def turn(x, positions, frequencies, scale, interleaved):
  """Rotates x [B,H,T,D] by positions [B,T]. Channels without a frequency stay as they are."""
  rest = x[..., 2 * len(frequencies):]
  x = x[..., :2 * len(frequencies)]
  angles = (positions[:, None, :, None] * frequencies.to(x.dtype)).to(x.dtype)
  cos, sin = angles.cos() * scale, angles.sin() * scale
  if interleaved:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.cat((torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2), rest), dim=-1)
  a, b = x.chunk(2, dim=-1)
  return torch.cat((a * cos - b * sin, b * cos + a * sin, rest), dim=-1)


# ---- the decoder -----------------------------------------------------------------------------------------------------------------

def rms_norm(x, weight, epsilon):
  return weight * (x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + epsilon))


def gguf_rows(rows, heads):
  """Returns rows of q or k in the order of a llama GGUF file."""
  half = rows.shape[0] // heads // 2
  return rows.reshape(heads, 2, half, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Decoder:
  """Computes logits(tokens, document_start) from `weights`, a dict of tensors of any float type,
  which may be leaves of a graph."""

  def __init__(self, config, weights, mutant=None):
    self.config, self.weights, self.mutant = config, weights, mutant
    self.heads, self.kv_heads, self.size = config["num_attention_heads"], config["num_key_value_heads"], head_size(config)
    self.epsilon = config["rms_norm_eps"]
    self.gemma = config["model_type"].startswith("gemma")

  def norm(self, x, name):
    weight = self.weights[name + ".weight"]
    return rms_norm(x, 1 + weight if self.gemma and self.mutant != "norm_without_one" else weight, self.epsilon)

  def second_norm(self, x, name):
    return self.norm(x, name) if self.gemma and self.mutant != "no_second_norms" else x

  def layer_kind(self, layer):
    """Returns "full_attention" or "sliding_attention"."""
    if not self.config.get("sliding_window") or self.mutant == "window_ignored":
      return "full_attention"
    if self.gemma and self.mutant != "all_windowed":
      return self.config["layer_types"][layer]
    return "sliding_attention"

  def turns(self, layer):
    skipped = self.config.get("no_rope_layers")
    return not skipped or skipped[layer] == 1 or self.mutant == "rope_everywhere"

  def softcap(self, x, key, mutant):
    cap = self.config.get(key) if self.gemma else None
    return cap * torch.tanh(x / cap) if cap and self.mutant != mutant else x

  def linear(self, x, name):
    bias = self.weights.get(name + ".bias")
    weight = self.weights[name + ".weight"]
    if self.mutant == "no_unpermute" and name.endswith(("q_proj", "k_proj")):
      heads = self.heads if name.endswith("q_proj") else self.kv_heads
      weight, bias = gguf_rows(weight, heads), None if bias is None else gguf_rows(bias, heads)
    return functional.linear(x, weight, bias)

  def head_norm(self, x, name):
    return self.norm(x, name) if name + ".weight" in self.weights else x

  def heads_of(self, x, name):
    """Returns q, k and v, from one merged layer or from a layer each."""
    if name + ".qkv_proj.weight" in self.weights:
      query, key = self.heads * self.size, self.kv_heads * self.size
      return self.linear(x, name + ".qkv_proj").split((query, key, key), dim=-1)
    return [self.linear(x, f"{name}.{part}_proj") for part in "qkv"]

  def attention(self, x, name, positions, seen, frequencies, scale):
    batch, length, _ = x.shape
    q, k, v = (y.view(batch, length, -1, self.size).transpose(1, 2) for y in self.heads_of(x, name))
    interleaved, late = self.mutant == "interleaved_rope", self.mutant == "norm_after_rope"
    norms = [lambda y, part=part: self.head_norm(y, f"{name}.{part}_norm") for part in "qk"]
    if not late:
      q, k = norms[0](q), norms[1](k)
    if frequencies is not None:
      q, k = (turn(y, positions, frequencies, scale, interleaved) for y in (q, k))
    if late:
      q, k = norms[0](q), norms[1](k)
    group = self.heads // self.kv_heads
    k, v = (y.repeat(1, group, 1, 1) if self.mutant == "wrong_kv_group" else y.repeat_interleave(group, dim=1) for y in (k, v))
    divisor = self.config["query_pre_attn_scalar"] if self.gemma and self.mutant != "scale_of_head" else self.size
    scores = self.softcap((q @ k.transpose(2, 3)) / math.sqrt(divisor), "attn_logit_softcapping", "uncapped_scores")
    mixed = scores.masked_fill(~seen, -math.inf).softmax(dim=3) @ v
    return self.linear(mixed.transpose(1, 2).reshape(batch, length, -1), name + ".o_proj")

  def mlp(self, x, name):
    if name + ".gate_up_proj.weight" in self.weights:
      gate, up = self.linear(x, name + ".gate_up_proj").chunk(2, dim=-1)
    else:
      gate, up = self.linear(x, name + ".gate_proj"), self.linear(x, name + ".up_proj")
    if self.mutant == "gate_for_up":
      gate, up = up, gate
    opened = functional.gelu(gate, approximate="tanh") if self.gemma and self.mutant != "silu_gate" else functional.silu(gate)
    return self.linear(opened * up, name + ".down_proj")

  def logits(self, tokens, document_start=None):
    length = tokens.shape[1]
    start = torch.zeros_like(tokens) if document_start is None else document_start
    own = torch.zeros_like(tokens) if self.mutant in ("documents_ignored", "sees_other_documents") else start
    place = torch.arange(length)
    seen = ((place[None, None, :] <= place[None, :, None]) & (place[None, None, :] >= own[:, :, None]))[:, None]
    window = (self.config.get("sliding_window") or length) + int(self.mutant == "wider_window")
    seen_by = {"full_attention": seen, "sliding_attention": seen & (place[None, :] > place[:, None] - window)}
    positions = place - (torch.zeros_like(start) if self.mutant == "documents_ignored" else start)
    plain = {**self.config, "rope_scaling": None, "rope_parameters": {"rope_theta": rope_parameters(self.config)["rope_theta"]}}
    if self.mutant == "turns_all":
      whole = {"partial_rotary_factor": 1.0, "rope_type": "default", "rope_theta": rope_parameters(self.config)["rope_theta"]}
      turns = rope_frequencies({**self.config, "rope_parameters": whole, "partial_rotary_factor": 1.0}, length)
    else:
      turns = rope_frequencies(plain if self.mutant == "unscaled_rope" else self.config, length)
    x = self.weights["model.embed_tokens.weight"][tokens]
    if self.gemma and self.mutant != "unscaled_embedding":
      x = x * math.sqrt(self.config["hidden_size"])
    for layer in range(self.config["num_hidden_layers"]):
      name, kind = f"model.layers.{layer}", self.layer_kind(layer)
      local = kind in (self.config.get("rope_parameters") or {}) and self.mutant != "one_rope"
      frequencies, scale = rope_frequencies(self.config, length, kind) if local else turns
      half = self.attention(self.norm(x, name + ".input_layernorm"), name + ".self_attn", positions, seen_by[kind],
                            frequencies if self.turns(layer) else None, scale)
      x = x + self.second_norm(half, name + ".post_attention_layernorm")
      first = ".pre_feedforward_layernorm" if self.gemma else ".post_attention_layernorm"
      x = x + self.second_norm(self.mlp(self.norm(x, name + first), name + ".mlp"), name + ".post_feedforward_layernorm")
    x = self.norm(x, "model.norm")
    logits = functional.linear(x, self.weights["model.embed_tokens.weight" if self.config["tie_word_embeddings"] else "lm_head.weight"])
    return self.softcap(logits, "final_logit_softcapping", "uncapped_logits")


class Gpt2Decoder:
  """nets.py's GPT-2 with the interface of Decoder; it supports no packed documents."""

  def __init__(self, config, weights, mutant=None):
    del mutant
    self.net = Gpt2({**kGpt2, **config, "n_inner": config.get("n_inner") or 4 * config["n_embd"]}).to(next(iter(weights.values())).dtype)
    self.weights = weights

  def logits(self, tokens, document_start=None):
    assert document_start is None
    return torch.func.functional_call(self.net, self.weights, (tokens,))


def make_decoder(config, weights, mutant=None):
  return (Gpt2Decoder if config["model_type"] == "gpt2" else Decoder)(config, weights, mutant)


def mutants_of(config, documents):
  """Returns the names of the mutants that differ from this model."""
  if config["model_type"] == "gpt2":
    return []
  kind = config["model_type"]
  names = ["interleaved_rope"] + (["gate_for_up"] if kind == "phi3" else ["no_unpermute"])
  names += ["turns_all"] if rotary_channels(config) != head_size(config) else []
  if kind == "smollm3":
    names.append("rope_everywhere")
  if kind.startswith("gemma"):
    names += ["norm_without_one", "no_second_norms", "silu_gate", "unscaled_embedding", "all_windowed"]
    names += ["one_rope"] if kind == "gemma3_text" else []
    names += ["scale_of_head"] if config["query_pre_attn_scalar"] != head_size(config) else []
    names += [f"uncapped_{which}" for which, key in (("scores", "attn_logit_softcapping"), ("logits", "final_logit_softcapping")) if config.get(key)]
  if config["num_attention_heads"] > config["num_key_value_heads"] > 1:
    names.append("wrong_kv_group")
  if kind in ("qwen3", "gemma3_text"):
    names.append("norm_after_rope")
  if config.get("sliding_window"):
    names += ["window_ignored", "wider_window"]
  if documents:
    names += ["documents_ignored", "sees_other_documents"]
  if rope_parameters(config)["rope_type"] not in ("default", "dynamic"):
    names.append("unscaled_rope")
  return names


def merged(weights, adapter, scale):
  """Returns the weights with a LoRA adapter added: V = W + scale B A, as a function of A and B.
  GPT-2's Conv1D is [in, out]. For DoRA each output's row of V is scaled to the length in its
  magnitude; the row's own length is treated as a constant (Liu et al. 2024, 4.3)."""
  result = dict(weights)
  for name in adapter:
    if not name.endswith(".lora_A.weight"):
      continue
    layer = name.removesuffix(".lora_A.weight")
    change = scale * (adapter[layer + ".lora_B.weight"] @ adapter[name])
    is_conv1d = layer.startswith("transformer.")
    sum_of_both = weights[layer + ".weight"] + (change.t() if is_conv1d else change)
    magnitude = adapter.get(layer + ".lora_magnitude_vector")
    if magnitude is not None:
      factor = magnitude / sum_of_both.detach().norm(dim=0 if is_conv1d else 1)
      sum_of_both = sum_of_both * (factor if is_conv1d else factor[:, None])
    result[layer + ".weight"] = sum_of_both
  return result
