#!/usr/bin/env python3
# Judges what exports contain in addition to weights. transformers makes a model of every supported
# family; Reprise trains it by a step and exports it; transformers 5 and 4 open the result. Answers
# of a trained model must end where transformers and llama.cpp end them. A Llama 3 from a GGUF file
# must be exported as one. Reason: only other programs show that a config is refused or that an end
# token is missing.
# Usage: tests/parity/export_families.py BUILD/reprise
import json
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers.utils import logging

import lm_gguf
from export_peers import OlderGeneration, check, distance, export, failures, kLogits, logits_of

kIds = [1, 5, 3, 9, 2, 7, 4, 8, 6, 11] * 2
kSpecials = ["<eos>", "<bos>", "<turn>", "<end>"]
kTemplate = ("{% for m in messages %}{{ '<turn>' + m.role + '\\n' + m.content + '<end>\\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<turn>assistant\\n' }}{% endif %}")
kCorpus = "A plan says for each tensor when it lives and where. Say hi. Hi you, again and again; user and assistant speak in turn.\n"
kSizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 256, "tie_word_embeddings": True, "initializer_range": 0.2}
kLlama3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
kGemma = {"head_dim": 12, "query_pre_attn_scalar": 16, "sliding_window": 32}
kFamilies = {
    "llama": (transformers.LlamaConfig, {"rope_parameters": kLlama3}),
    "mistral": (transformers.MistralConfig, {"sliding_window": 24}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 12}),
    "smollm3": (transformers.SmolLM3Config, {"pad_token_id": None}),
    "phi3": (transformers.Phi3Config, {"pad_token_id": None, "num_key_value_heads": 4, "tie_word_embeddings": False, "original_max_position_embeddings": 256}),
    "gemma2": (transformers.Gemma2Config, kGemma),
    "gemma3": (transformers.Gemma3TextConfig, kGemma),
    "gpt2": (transformers.GPT2Config, {}),
}


def small_tokenizer():
  tokenizer = Tokenizer(models.BPE())
  tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = decoders.ByteLevel()
  tokenizer.train_from_iterator([kCorpus], trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
  tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in kSpecials])
  return tokenizer


def make_model(folder, family):
  """Writes a random model whose files name only <eos>, while its chat template ends replies with
  <end>. Returns the ids of both."""
  config_class, more = kFamilies[family]
  tokenizer = small_tokenizer()
  eos, bos, end = (tokenizer.token_to_id(token) for token in ("<eos>", "<bos>", "<end>"))
  sizes = {**kSizes, "vocab_size": (tokenizer.get_vocab_size() + 31) // 32 * 32, "bos_token_id": bos, "eos_token_id": eos, **more}
  if family == "gpt2":
    sizes = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 256, "initializer_range": 0.2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             **{key: sizes[key] for key in ("vocab_size", "bos_token_id", "eos_token_id")}}
  torch.manual_seed(7)
  transformers.AutoModelForCausalLM.from_config(config_class(**sizes), dtype=torch.float32).save_pretrained(folder)
  tokenizer.save(os.path.join(folder, "tokenizer.json"))
  write_json(os.path.join(folder, "tokenizer_config.json"),
             {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": kTemplate, "bos_token": "<bos>", "eos_token": "<eos>"})
  write_json(os.path.join(folder, "generation_config.json"), {"eos_token_id": eos})
  return eos, end


def write_json(path, value):
  with open(path, "w") as file:
    json.dump(value, file)


def read_json(path):
  with open(path) as file:
    return json.load(file)


def other_types(base, written):
  """Returns the names of fields whose number is equal but has another JSON type."""
  found = []
  for key, value in base.items():
    other = written.get(key)
    if isinstance(value, dict) and isinstance(other, dict):
      found += other_types(value, other)
    elif isinstance(value, (int, float)) and value == other and type(value) is not type(other):
      found.append(key)
  return found


def train(reprise, folder, model, steps, *words, **more):
  """Trains a recipe of the model on one conversation. Returns the recipe's file and the snapshot's
  folder."""
  data, recipe, saved = (os.path.join(folder, name) for name in ("talk.jsonl", "recipe.json", "snapshot"))
  with open(data, "w") as file:
    file.write(json.dumps({"messages": [{"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "Hi you"}]}) + "\n")
  write_json(recipe, {"name": "families", "model": model, "data": {"kind": "chat", "path": data}, "batch": 1, "sequence": 48, "steps": steps,
                      "optimizer": {"name": "adamw", "lr": 1e-3}, "budget": "256MiB", **more})
  subprocess.run([reprise, "plan", recipe, "--binary", "-o", os.path.join(folder, "plan")], check=True, capture_output=True)
  words = ["--save", saved, "--quiet", "--overwrite", *words]
  subprocess.run([reprise, "train", os.path.join(folder, "plan", "plan.bin"), *words], check=True, capture_output=True)
  return recipe, saved


def judge_family(reprise, family, older):
  print(f"{family}: a step, then the snapshot and the merged folder")
  with tempfile.TemporaryDirectory() as folder:
    base, merged = os.path.join(folder, "base"), os.path.join(folder, "merged")
    eos, end = make_model(base, family)
    recipe, saved = train(reprise, folder, {"huggingface": base}, 1)
    export(reprise, recipe, saved, "--merged", merged)
    for what in (saved, merged):
      found = other_types(read_json(os.path.join(base, "config.json")), read_json(os.path.join(what, "config.json")))
      check(f"numbers of {os.path.basename(what)}/config.json in another type {found}", len(found), 0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(base), dtype=torch.float32)
    model.load_state_dict(load_file(os.path.join(merged, "model.safetensors")), strict=False)
    model.tie_weights()
    expected = logits_of(model.eval(), kIds)
    for what in (saved, merged):
      opened = transformers.AutoModelForCausalLM.from_pretrained(what, dtype=torch.float32).eval()
      check(f"logits, {os.path.basename(what)} and its weights in the base's config", distance(logits_of(opened, kIds), expected), kLogits)
      older.add(f"{family}: {os.path.basename(what)}", what, expected, kIds)
    for name in ("config.json", "generation_config.json"):
      check(f"ends that {name} does not name", 0 if read_json(os.path.join(merged, name))["eos_token_id"] == [eos, end] else 1, 0)


# ---- where answers end -------------------------------------------------------------------------------------------------------------


def write_gguf(path, folder):
  """Writes a GGUF file of the folder's llama as llama.cpp's converter does, with the folder's own
  tokenizer and the address of its base model."""
  config, tokenizer = read_json(os.path.join(folder, "config.json")), read_json(os.path.join(folder, "tokenizer.json"))

  def add_words(writer, count):
    names = {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    tokens, types = [f"[PAD{n}]" for n in range(count)], [gguf.TokenType.UNUSED] * count
    for name, number in names.items():
      tokens[number], types[number] = name, gguf.TokenType.CONTROL if name in kSpecials else gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) if isinstance(merge, list) else merge for merge in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(names["<bos>"])
    writer.add_eos_token_id(names["<eos>"])
    writer.add_add_bos_token(False)
    writer.add_chat_template(kTemplate)
    writer.add_string("general.base_model.0.repo_url", "https://huggingface.co/Org/Tiny-Llama-3")
    writer.add_uint32("general.base_model.count", 1)

  lm_gguf.write_gguf(path, config, load_file(os.path.join(folder, "model.safetensors")), add_words, matrices=np.float32)


def answer_of_llama_cpp(path):
  import xllamacpp
  params = xllamacpp.CommonParams()
  params.model.path = path
  params.n_ctx, params.n_parallel, params.warmup = 256, 1, False
  params.cpuparams.n_threads = 1
  server = xllamacpp.Server(params)
  prompt = "<turn>user\nSay hi.<end>\n<turn>assistant\n"
  answer = server.handle_completions({"prompt": prompt, "max_tokens": 24, "n_predict": 24, "temperature": 0, "cache_prompt": False})
  answer = json.loads(answer) if isinstance(answer, str) else answer
  del server
  return answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]


def answer_of_transformers(folder):
  model, tokenizer = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), transformers.AutoTokenizer.from_pretrained(folder)
  inputs = tokenizer.apply_chat_template([{"role": "user", "content": "Say hi."}], add_generation_prompt=True, return_tensors="pt", return_dict=True)
  ids = model.generate(**inputs, max_new_tokens=24, do_sample=False)[0][inputs["input_ids"].shape[1]:]
  return tokenizer.decode(ids)


def judge_ends(reprise, family, of_gguf):
  print(f"{family}: where a trained reply ends, of a {'GGUF' if of_gguf else 'folder'}")
  with tempfile.TemporaryDirectory() as folder:
    base, merged, file = (os.path.join(folder, name) for name in ("base", "merged", "merged.gguf"))
    make_model(base, family)
    if of_gguf:
      write_gguf(os.path.join(folder, "base.gguf"), base)
    recipe, saved = train(reprise, folder, {"gguf": os.path.join(folder, "base.gguf")} if of_gguf else {"huggingface": base}, 60)
    said = subprocess.run([reprise, "train", os.path.join(folder, "plan", "plan.bin"), "--resume", saved, "--prompt", "Say hi.", "--tokens", "24"],
                          check=True, capture_output=True, text=True).stdout.strip()
    check(f"--prompt, which answers {said!r}, and the reply", int(said != "Hi you"), 0)
    export(reprise, recipe, saved, "--merged", merged)
    said = answer_of_transformers(merged)
    check(f"transformers, which generates {said!r}, and the reply with its end", int(said != "Hi you<end>"), 0)
    if not of_gguf:
      return
    export(reprise, recipe, saved, "--merged-gguf", file)
    text, reason = answer_of_llama_cpp(file)
    check(f"llama.cpp, which answers {text!r} ({reason}), and the reply", int(text.replace("<end>", "") != "Hi you" or reason != "stop"), 0)
    check("rope_type that is not llama3", int(read_json(os.path.join(merged, "config.json"))["rope_parameters"]["rope_type"] != "llama3"), 0)


def judge_llama3(reprise, older):
  """Judges Llama 3's positions through the divisors of a GGUF file, and the adapter's base model by
  the GGUF file's address of it."""
  print("llama: llama3's positions of a GGUF")
  with tempfile.TemporaryDirectory() as folder:
    base, merged, file = (os.path.join(folder, name) for name in ("base", "merged", "base.gguf"))
    make_model(base, "llama")
    write_gguf(file, base)
    lora = {"lora": {"r": 2}, "optimizer": {"name": "sgd", "lr": 1e-9}}
    recipe, saved = train(reprise, folder, {"gguf": file}, 1, "--adapter", os.path.join(folder, "adapter"), **lora)
    export(reprise, recipe, saved, "--merged", merged)
    written, given = (read_json(os.path.join(where, "config.json"))["rope_parameters"] for where in (merged, base))
    check(f"parameters of positions that are not the base's: {written}", int({key: written[key] for key in given} != given), 0)
    expected = logits_of(transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval(), kIds * 8)
    opened = transformers.AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).eval()
    check("logits, merged folder of the GGUF and base, of 160 tokens", distance(logits_of(opened, kIds * 8), expected), kLogits)
    older.add("llama3 of a GGUF", merged, expected, kIds * 8)
    name = read_json(os.path.join(folder, "adapter", "adapter_config.json"))["base_model_name_or_path"]
    check(f"base of the adapter, {name}, and the GGUF's", int(name != "Org/Tiny-Llama-3"), 0)


def main():
  logging.set_verbosity_error()
  logging.disable_progress_bar()
  torch.set_num_threads(1)
  reprise = os.path.abspath(sys.argv[1])
  with tempfile.TemporaryDirectory() as folder:
    older = OlderGeneration(folder)
    for family in (os.environ.get("FAMILIES") or " ".join(kFamilies)).split():
      judge_family(reprise, family, older)
    judge_llama3(reprise, older)
    for family, of_gguf in (("gemma3", False), ("qwen2", False), ("llama", True)):
      judge_ends(reprise, family, of_gguf)
    older.judge()
  print(f"{len(failures)} failed")
  sys.exit(1 if failures else 0)


if __name__ == "__main__":
  main()
