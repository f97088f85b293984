# The cases of tests/golden/lm_parity in one list: the tiny model, how it is stored, how it is
# trained, and on which tokens. tests/golden/lm_parity/README.md describes the files of each case.
import numpy as np

kSteps = 10
kBatch, kSequence = 2, 24
kIgnored = -100

kSizes = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "initializer_range": 0.2}
kOneBlock = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 36}
kGemma3 = {**kSizes, "head_dim": 8, "sliding_window": 7, "pad_token_id": None, "tie_word_embeddings": True}
# Seeds of cases for which make_lm_goldens.py refuses the default seed.
kSeeds = {"llama_tied": 300, "llama_linear": 202, "qwen2_tied": 207, "qwen2_untied": 208, "qwen3_untied": 710, "smollm3_nope": 213}
kLora = {"r": 4, "alpha": 8, "dropout": 0.0, "targets": "all-linear", "rslora": False}


def rope(kind, theta=10000.0, **more):
  return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


def two_ropes(theta, local):
  return {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": theta},
                              "sliding_attention": {"rope_type": "default", "rope_theta": local}}}


def models():
  """Returns folder -> {"type", "config", "store": dtype of the file, and optionally "shards",
  "gguf", "old_config"}. "gguf" is "unread" if transformers does not support the architecture, so
  that only llama.cpp must compute the same."""
  llama, one = {"type": "llama"}, {**kSizes, **kOneBlock}
  falling = [1.0 + 0.25 * i for i in range(8)]
  return {
      "llama_tied": {**llama, "store": "bf16", "config": {
          **kSizes, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, **rope("default")}},
      "llama_untied": {**llama, "store": "f16", "gguf": True, "old_config": True, "config": {
          **kSizes, "head_dim": 8, "tie_word_embeddings": False, **rope("default", 500.0)}},
      "llama_linear": {**llama, "store": "f32", "config": {**one, "tie_word_embeddings": True, **rope("linear", factor=2.5)}},
      "llama_dynamic": {**llama, "store": "f16", "config": {
          **one, "tie_word_embeddings": True, "max_position_embeddings": kSequence, **rope("dynamic", factor=3.0)}},
      "llama_yarn": {**llama, "store": "f16", "config": {
          **one, "tie_word_embeddings": True,
          **rope("yarn", 50.0, factor=4.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.5)}},
      "llama_longrope": {**llama, "store": "f16", "config": {
          **one, "tie_word_embeddings": True, "max_position_embeddings": 64,
          **rope("longrope", 100.0, original_max_position_embeddings=16, short_factor=[1.0] * 8, long_factor=falling)}},
      "llama_llama3": {**llama, "store": "f16", "gguf": True, "config": {
          **one, "tie_word_embeddings": True,
          **rope("llama3", 100.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=48)}},
      "qwen2_tied": {"type": "qwen2", "store": "f16", "config": {
          **kSizes, "num_hidden_layers": 1, "tie_word_embeddings": True, **rope("default", 1e6)}},
      "qwen2_untied": {"type": "qwen2", "store": "f16", "shards": True, "gguf": True, "config": {
          **kSizes, "tie_word_embeddings": False, **rope("default")}},
      "qwen3_tied": {"type": "qwen3", "store": "f16", "gguf": True, "config": {
          **kSizes, "num_hidden_layers": 1, "head_dim": 10, "tie_word_embeddings": True, **rope("default", 1e4)}},
      "qwen3_untied": {"type": "qwen3", "store": "bf16", "config": {
          **kSizes, "head_dim": 8, "attention_bias": True,
          "tie_word_embeddings": False, **rope("default", 1e4)}},
      "gpt2_model": {"type": "gpt2", "store": "f32", "config": {
          "vocab_size": 61, "n_positions": 32, "n_embd": 28, "n_layer": 2, "n_head": 4, "n_inner": 40, "resid_pdrop": 0.0,
          "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.25, "tie_word_embeddings": True}},
      "mistral_windowed": {"type": "mistral", "store": "f16", "config": {
          **kSizes, "head_dim": 8, "sliding_window": 7, "tie_word_embeddings": False, **rope("default", 500.0)}},
      "smollm3_nope": {"type": "smollm3", "store": "f16", "gguf": "unread", "config": {
          **kSizes, "num_hidden_layers": 4, "head_dim": 8, "tie_word_embeddings": True, "pad_token_id": None, **rope("default", 500.0)}},
      "phi3_longrope": {"type": "phi3", "store": "f16", "gguf": True, "config": {
          **kSizes, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "pad_token_id": None,
          "tie_word_embeddings": False, "original_max_position_embeddings": 16,
          **rope("longrope", 100.0, partial_rotary_factor=0.75, original_max_position_embeddings=16, short_factor=[1.0] * 6,
                 long_factor=falling[:6])}},
      "phi3_window": {"type": "phi3", "store": "bf16", "config": {
          **one, "hidden_size": 32, "sliding_window": 9, "pad_token_id": None, "tie_word_embeddings": True, **rope("default", 100.0)}},
      "gemma2_capped": {"type": "gemma2", "store": "f16", "gguf": True, "config": {
          **kSizes, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 7, "attn_logit_softcapping": 1.5,
          "final_logit_softcapping": 2.0, "pad_token_id": None, "tie_word_embeddings": True, **rope("default", 500.0)}},
      "gemma3_full_last": {"type": "gemma3_text", "store": "f16", "gguf": True, "config": {
          **kGemma3, "query_pre_attn_scalar": 8, "layer_types": ["sliding_attention", "full_attention"], **two_ropes(100.0, 10000.0)}},
      "gemma3_full_first": {"type": "gemma3_text", "store": "bf16", "config": {
          **kGemma3, "query_pre_attn_scalar": 5, "attention_bias": True, "layer_types": ["full_attention", "sliding_attention"],
          **two_ropes(1000.0, 20.0)}}}


# Models with biases: a recipe may name only parameters that exist.
kBiased = ("llama_tied", "gemma3_full_first", "qwen2_tied", "qwen2_untied", "qwen3_untied")


def adamw(**more):
  return {"name": "adamw", "lr": 0.003, "betas": [0.9, 0.95], "weight_decay": 0.1, "no_decay": ["*norm.weight"], **more}


def case(model, seed, **more):
  """Returns a case with defaults. `masks`: none, tail or uneven; `documents`: samples are
  packed."""
  optimizer = adamw(no_decay=["*.bias", "*norm.weight"]) if model in kBiased else adamw()
  return {"model": model, "seed": seed, "accumulate": 1, "optimizer": optimizer, "masks": "none", "documents": False, "lora": None,
          "lr_schedule": {"kind": "constant"}, "clip_norm": None, **more}


def all_cases():
  whole = {name: case(name, kSeeds.get(name, 100 + index)) for index, name in enumerate(models()) if name != "gpt2_model"}
  warm = {"lr_schedule": {"kind": "cosine", "warmup_steps": 3, "steps": kSteps}}
  lora = {"optimizer": adamw(lr=0.01, weight_decay=0.01, no_decay=[])}
  return {
      **whole,
      "gpt2": case("gpt2_model", 130, optimizer=adamw(no_decay=["*.bias", "*ln_?.weight"])),
      "llama_uneven_masks": case("llama_tied", 231, accumulate=4, masks="uneven", clip_norm=1.0, **warm),
      "llama_packed": case("llama_untied", 232, accumulate=2, documents=True),
      "qwen3_packed": case("qwen3_tied", 233, documents=True, masks="tail"),
      "llama_lora": case("llama_untied", 234, lora={**kLora, "targets": ["q_proj", "v_proj"]}, **lora),
      "llama_lora_all": case("llama_tied", 235, lora=kLora, accumulate=4, masks="uneven", **lora),
      "qwen2_rslora_all": case("qwen2_untied", 136, lora={**kLora, "rslora": True}, masks="tail", **lora, **warm),
      "qwen3_lora_packed": case("qwen3_tied", 137, lora=kLora, documents=True, clip_norm=1.0, **lora),
      "mistral_lora_packed": case("mistral_windowed", 141, lora=kLora, documents=True, **lora),
      "phi3_lora": case("phi3_longrope", 142, lora=kLora, masks="tail", **lora),
      "gemma2_lora": case("gemma2_capped", 143, lora=kLora, accumulate=2, masks="uneven", **lora),
      "gemma3_lora_packed": case("gemma3_full_first", 144, lora=kLora, documents=True, **lora),
      "gpt2_lora": case("gpt2_model", 138, lora={**kLora, "targets": ["c_attn", "c_fc"]}, **lora),
      "llama_dora": case("llama_untied", 239, lora={**kLora, "dora": True}, masks="tail", **lora),
      "gpt2_dora": case("gpt2_model", 140, lora={**kLora, "dora": True, "targets": ["c_attn", "c_fc"]}, accumulate=2, **lora)}


def recipe_of(name, source):
  """Returns the recipe of a case (tools/FILES.md, "The recipe"). The golden's own batches are its
  data; no kind of data reads them."""
  recipe = {"name": "lm_parity_" + name, "model": {"huggingface": "../../models/" + source["model"]}, "data": {"kind": "synthetic"},
            "batch": kBatch, "sequence": kSequence, "accumulate": source["accumulate"], "dtype": "f32",
            "optimizer": source["optimizer"], "lr_schedule": source["lr_schedule"], "steps": kSteps, "schedule": "none",
            "seed": source["seed"], "backend": "cpu"}
  for key in ("clip_norm", "lora"):
    if source[key]:
      recipe[key] = source[key]
  return recipe


# ---- the tokens -----------------------------------------------------------------------------------------------------------------

def document_lengths(random, length):
  """Returns the lengths of the documents of one packed sample."""
  lengths = []
  while sum(lengths) < length:
    lengths.append(int(min(random.integers(2, 12), length - sum(lengths))))
  return lengths


def mask_labels(labels, random, kind, micro):
  """Masks labels so that whole micro-batches have very different numbers of them; in "uneven", the
  third of four has none."""
  if kind == "tail":
    for row, labelled in zip(labels, (labels.shape[1], 7)):
      row[labelled:] = kIgnored
  elif kind == "uneven":
    share = (1.0, 0.2, 0.0, 0.6)[micro % 4]
    labels[random.random(labels.shape) >= share] = kIgnored


def make_batches(source, vocabulary):
  """Returns the micro-batches in the order of the steps: tokens, labels (of the next token, already
  shifted), and document_start if samples are packed."""
  random = np.random.default_rng(source["seed"])
  batches = []
  for number in range(kSteps * source["accumulate"]):
    rows = np.cumsum(random.integers(1, 5, (kBatch, kSequence + 1)), axis=1) % vocabulary
    batch = {"tokens": rows[:, :-1].copy(), "labels": rows[:, 1:].copy()}
    mask_labels(batch["labels"], random, source["masks"], number)
    if source["documents"]:
      starts = []
      for row in range(kBatch):
        lengths = document_lengths(random, kSequence)
        starts.append(np.repeat(np.cumsum([0] + lengths[:-1]), lengths))
        batch["labels"][row, np.cumsum(lengths) - 1] = kIgnored  # the next token belongs to another document
      batch["document_start"] = np.stack(starts)
    batches.append({key: value.tolist() for key, value in batch.items()})
  return batches
