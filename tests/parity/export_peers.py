#!/usr/bin/env python3
# Judges `reprise export`, and the folder of a snapshot, by other programs. It makes a snapshot with
# a random adapter and exports it in every form. peft, transformers 5, transformers 4 and llama.cpp
# must compute the same with the files (pip install peft transformers torch gguf xllamacpp).
# transformers 4 is in the folder `transformers-4` of this environment, where `make parity` installs
# it. Reason: only a program that reads the files can show that they are right. This script must not
# use Reprise's knowledge of how a tensor is stored.
# Usage: tests/parity/export_peers.py BUILD/reprise [SMOLLM2.gguf]
import ctypes
import ctypes.util
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

kModels = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "lm_parity", "models")
kRank, kAlpha = 4, 6.0
kLogits, kProbabilities = 1e-4, 1e-3
# Additions to a recipe's "lora": ranks and alphas of some layers, and modules that are trained
# whole. A tied model's embeddings are also its head.
kLoras = ({}, {"rslora": True})
kOwn = ({"rank_pattern": {"down_proj": 2, "layers.0.self_attn.*": 6}, "alpha_pattern": {"q_proj": 9}, "rslora": True},
        {"rank_pattern": {"up_proj": 7}, "modules_to_save": ["embed_tokens", "lm_head", "norm", "layers.0.mlp.gate_proj"]})
kOwnGpt2 = ({"rank_pattern": {"c_fc": 2, "h.0.attn.*": 6}, "alpha_pattern": {"c_attn": 9}, "rslora": True},
            {"rank_pattern": {"c_fc": 7}, "modules_to_save": ["wte", "ln_f", "h.0.attn.c_proj"]})
# Phi-3 has joined layers; a pattern that matches no layer is refused.
kOwnPhi3 = ({**kOwn[0], "alpha_pattern": {"qkv_proj": 9}},
            {"rank_pattern": {"down_proj": 7},
             "modules_to_save": ["embed_tokens", "lm_head", "norm", "layers.0.mlp.gate_up_proj"]})
kIds = [1, 5, 3, 9, 2, 7, 4, 8, 6, 11] * 2  # more than the 16 up to which a longrope uses its short factors
kPrompts = ["The capital of France is", "def add(a, b):\n    return", "12 + 30 = 42. 7 + 8 ="]
failures = []


def check(what, value, bound):
  good = value <= bound
  print(f"  {'ok  ' if good else 'FAIL'} {what}: {value:.3g} (at most {bound:g})")
  if not good:
    failures.append(what)


def checksum(path):
  xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
  xxhash.XXH3_64bits.restype = ctypes.c_uint64
  with open(path, "rb") as file:
    data = file.read()
  return {"bytes": len(data), "xxh3": f"{xxhash.XXH3_64bits(data, ctypes.c_size_t(len(data))):016x}"}


def recipe_file(folder, model, lora):
  path = os.path.join(folder, "recipe.json")
  recipe = {"name": "export_peers", "model": model, "data": {"kind": "synthetic"}, "batch": 1, "sequence": 16, "steps": 1,
            "optimizer": {"name": "adamw", "lr": 1e-3}, "lora": {"r": kRank, "alpha": kAlpha, "targets": "all-linear", **lora}}
  with open(path, "w") as file:
    json.dump(recipe, file)
  return path


def snapshot(reprise, folder, recipe, base):
  """Writes a snapshot of the recipe with a random adapter, and random modules that are trained
  whole, as a training would. Returns its folder."""
  listed = json.loads(subprocess.run([reprise, "parameters", recipe, "--json"], check=True, capture_output=True, text=True).stdout)
  subprocess.run([reprise, "plan", recipe, "-o", os.path.join(folder, "plan")], check=True, capture_output=True)
  with open(os.path.join(folder, "plan", "manifest.json")) as file:
    canonical = json.load(file)["recipe"]
  path = os.path.join(folder, "snapshot")
  os.makedirs(path, exist_ok=True)
  generator = torch.Generator().manual_seed(3)
  adapter = {p["name"]: torch.randn(p["shape"], generator=generator) * 0.05 for p in listed["parameters"] if p["trains"]}
  assert any(".lora_" in name for name in adapter), adapter.keys()
  save_file(adapter, os.path.join(path, "model.safetensors"))
  save_file({}, os.path.join(path, "optimizer.safetensors"))
  with open(os.path.join(path, "config.json"), "w") as file:
    file.write("{}")
  with open(os.path.join(path, "training.json"), "w") as file:
    json.dump({"format": 1, "step": 1, "kernel_set": "none", "recipe": canonical, "base": {"path": base, **checksum(base)}}, file)
  return path


def export(reprise, recipe, path, *form):
  subprocess.run([reprise, "export", recipe, "--snapshot", path, *form], check=True, capture_output=True, text=True)


def logits_of(model, ids):
  with torch.no_grad():
    return model(torch.tensor([ids])).logits[0].double()


def with_adapter(base, folder):
  """Returns the model with a PEFT adapter, and checks that the adapter has every tensor and no
  other."""
  model = PeftModel.from_pretrained(base, folder)
  ours = {name.replace(".modules_to_save.default.", ".").replace(".default.", ".") for name, _ in model.named_parameters(remove_duplicate=False)
          if ".lora_" in name or ".modules_to_save." in name}
  stored = set(load_file(os.path.join(folder, "adapter_model.safetensors")))
  check("keys of the adapter that are missing or not expected", len(ours ^ stored), 0)
  return model.eval()


def distance(a, b):
  return float((a - b).abs().max())


class OlderGeneration:
  """Collects folders until transformers 4 reads them all in one process."""

  def __init__(self, folder):
    self.folder, self.tasks, self.expected = folder, [], []

  def add(self, what, folder, logits, ids=kIds, text=None):
    kept = os.path.join(self.folder, str(len(self.tasks)))
    shutil.copytree(folder, kept)
    self.tasks.append({"folder": kept, "ids": ids, "text": text})
    self.expected.append((what, logits))

  def judge(self):
    tasks, out = os.path.join(self.folder, "tasks.json"), os.path.join(self.folder, "out.safetensors")
    with open(tasks, "w") as file:
      json.dump(self.tasks, file)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "folder_logits.py")
    subprocess.run([sys.executable, script, tasks, out], check=True, env={**os.environ, "PYTHONPATH": os.path.join(sys.prefix, "transformers-4")})
    with safe_open(out, "pt") as file:
      version = file.metadata()["version"]
      print(f"transformers {version}")
      check("generation that is not 4", 0 if version.startswith("4.") else 1, 0)
      for number, (what, logits) in enumerate(self.expected):
        check(f"logits, {what}", distance(file.get_tensor(str(number)).double(), logits), kLogits)
        if self.tasks[number]["text"] is not None:
          check(f"ids, {what}", 0 if file.get_tensor(f"ids.{number}").tolist() == self.tasks[number]["ids"] else 1, 0)


def judge_snapshot(reprise, name, older):
  """Judges a snapshot's folder in both generations of transformers: its weights after a step, with
  the config of the original model."""
  path = os.path.abspath(os.path.join(kModels, name))
  print(f"{name}: the snapshot of a training of its GGUF")
  with tempfile.TemporaryDirectory() as folder:
    recipe = os.path.join(folder, "recipe.json")
    with open(recipe, "w") as file:
      json.dump({"name": "export_peers_" + name, "model": {"gguf": os.path.join(path, "model.gguf")}, "data": {"kind": "synthetic"}, "batch": 1,
                 "sequence": 16, "steps": 1, "optimizer": {"name": "sgd", "lr": 1e-3}}, file)
    saved = os.path.join(folder, "snapshot")
    subprocess.run([reprise, "train", recipe, "--save", saved, "--quiet"], check=True, env={**os.environ, "XDG_CACHE_HOME": folder})
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path), dtype=torch.float32)
    result = model.load_state_dict(load_file(os.path.join(saved, "model.safetensors")), strict=False)
    check("tensors of the snapshot that the model has not", len(result.unexpected_keys), 0)
    model.tie_weights()
    expected = logits_of(model.eval(), kIds)
    check("logits, snapshot in transformers and its weights in the published config",
          distance(logits_of(AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32).eval(), kIds), expected), kLogits)
    older.add(f"{name}: snapshot", saved, expected)


def judge_folder(reprise, name, older):
  path = os.path.abspath(os.path.join(kModels, name))
  ids = kIds
  for lora in kLoras + {"gpt2": kOwnGpt2, "phi3": kOwnPhi3}.get(name.split("_")[0], kOwn):
    print(f"{name} {lora or ''}")
    with tempfile.TemporaryDirectory() as folder:
      single = os.path.join(path, "model.safetensors")
      recipe = recipe_file(folder, {"huggingface": path}, lora)
      saved = snapshot(reprise, folder, recipe, single if os.path.exists(single) else single + ".index.json")
      out = os.path.join(folder, "out")
      export(reprise, recipe, saved, "--adapter", out + "_adapter")
      export(reprise, recipe, saved, "--merged", out + "_merged")
      plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
      before = logits_of(plain, ids)
      expected = logits_of(with_adapter(plain, out + "_adapter"), ids)
      merged = logits_of(AutoModelForCausalLM.from_pretrained(out + "_merged", dtype=torch.float32).eval(), ids)
      check("logits, merged folder in transformers and adapter in peft", distance(merged, expected), kLogits)
      check("what the adapter does, inverted", 1e-2 / max(distance(before, expected), 1e-30), 1)
      older.add(f"{name}: merged folder {lora or ''}", out + "_merged", expected)
      if os.path.exists(os.path.join(path, "model.gguf")):
        file = os.path.join(path, "model.gguf")
        recipe = recipe_file(folder, {"gguf": file}, lora)
        saved = snapshot(reprise, folder, recipe, file)
        export(reprise, recipe, saved, "--merged-gguf", out + ".gguf")
        export(reprise, recipe, saved, "--merged", out + "_of_gguf")
        merged = logits_of(AutoModelForCausalLM.from_pretrained(out + "_of_gguf", dtype=torch.float32).eval(), ids)
        check("logits, merged folder of the GGUF in transformers and adapter in peft", distance(merged, expected), kLogits)
        older.add(f"{name}: merged folder of the GGUF", out + "_of_gguf", expected)
        config = AutoModelForCausalLM.from_pretrained(path).config  # transformers does not read all of it from a GGUF
        try:
          again = AutoModelForCausalLM.from_pretrained(folder, gguf_file="out.gguf", config=config, dtype=torch.float32)
        except ValueError as error:
          if "is not supported yet" not in str(error):
            raise
          print(f"  skipped: {error}")
          continue
        check("logits, merged GGUF in transformers and adapter in peft", distance(logits_of(again.eval(), ids), expected), kLogits)


def evaluation(reprise, recipe, folder, *words):
  result = subprocess.run([reprise, "train", recipe, "--evaluate", "--batches", "64", "--json", "--quiet", *words], check=True, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": folder})
  return json.loads(result.stdout)["loss"]


def judge_saved_by_peft(reprise, name):
  """Judges that training resumes equally from a snapshot and from the adapter that peft saves after
  loading that snapshot's adapter."""
  path = os.path.abspath(os.path.join(kModels, name))
  print(f"{name}: saved by peft")
  with tempfile.TemporaryDirectory() as folder:
    recipe = recipe_file(folder, {"huggingface": path}, kOwn[1])
    saved = snapshot(reprise, folder, recipe, os.path.join(path, "model.safetensors"))
    out = os.path.join(folder, "out")
    export(reprise, recipe, saved, "--adapter", out + "_adapter")
    plain = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    with_adapter(plain, out + "_adapter").save_pretrained(out + "_peft")
    expected = evaluation(reprise, recipe, folder, "--resume", saved)
    check("loss, adapter that peft saved and snapshot", abs(evaluation(reprise, recipe, folder, "--init-adapter", out + "_peft") - expected), 0)
    check("what the adapter does to the loss, inverted", 1e-3 / max(abs(evaluation(reprise, recipe, folder) - expected), 1e-30), 1)


# ---- llama.cpp ---------------------------------------------------------------------------------------------------------------------


def llama_probabilities(path, adapter=None, prompts=kPrompts):
  """Returns for each prompt the probabilities of the 20 most likely next tokens, {token id: p}."""
  import xllamacpp
  params = xllamacpp.CommonParams()
  params.model.path = path
  params.n_ctx, params.n_parallel, params.warmup = 256, 1, False
  params.cpuparams.n_threads = 2
  if adapter:
    params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 1.0)]
  server = xllamacpp.Server(params)
  answers = []
  for prompt in prompts:
    answer = server.handle_completions({"prompt": prompt, "max_tokens": 1, "n_predict": 1, "temperature": 0, "n_probs": 20, "logprobs": 20, "cache_prompt": False})
    answer = json.loads(answer) if isinstance(answer, str) else answer
    choice = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    answers.append({entry["id"]: float(np.exp(entry["logprob"])) for entry in choice})
  del server
  return answers


def probability_distance(a, b):
  return max(abs(x[token] - y.get(token, 0)) for x, y in zip(a, b) for token in sorted(x, key=x.get)[-15:])


def gguf_numbers(path):
  import gguf
  return {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in gguf.GGUFReader(path).tensors}


def judge_rounding(reprise, recipe, saved, folder):
  """Compares the errors that export reports with those of the numbers that gguf reads from the
  blocks."""
  exact, rounded = os.path.join(folder, "exact.gguf"), os.path.join(folder, "rounded.gguf")
  export(reprise, recipe, saved, "--merged-gguf", exact)
  given = gguf_numbers(exact)
  for kind in ("f16", "bf16", "q8_0", "q4_0", "q4_k"):
    words = [reprise, "export", recipe, "--snapshot", saved, "--merged-gguf", rounded, "--type", kind, "--json"]
    said = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["tensors"]
    written = gguf_numbers(rounded)
    check(f"tensors of {kind} that are not said", len(given.keys() ^ {tensor["name"] for tensor in said}), 0)
    apart = 0
    for tensor in said:
      a, b = given[tensor["name"]], written[tensor["name"]]
      apart = max(apart, abs(np.abs(b - a).max() / np.abs(a).max() - tensor["largest"]), abs(np.sqrt(((b - a) ** 2).sum() / (a ** 2).sum()) - tensor["rms"]))
    check(f"errors of {kind}, said and of what gguf reads", apart, 1e-6)
  os.remove(exact)
  os.remove(rounded)


def judge_smollm2(reprise, base, older, lora):
  print(f"{os.path.basename(base)} {lora}")
  base = os.path.abspath(base)
  with tempfile.TemporaryDirectory() as folder:
    recipe = recipe_file(folder, {"gguf": base}, lora)
    saved = snapshot(reprise, folder, recipe, base)
    merged, adapter, out = (os.path.join(folder, name) for name in ("merged.gguf", "adapter.gguf", "out"))
    export(reprise, recipe, saved, "--adapter-gguf", adapter)
    export(reprise, recipe, saved, "--adapter", out + "_adapter")
    export(reprise, recipe, saved, "--merged", out + "_merged")
    model = AutoModelForCausalLM.from_pretrained(out + "_merged", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(out + "_merged")
    for prompt in kPrompts + ["a  1\n    12 caf\u00e9 \u4f60\u597d <|im_start|>user"]:
      words = [reprise, "tokenize", base, "--special", "--json"]
      ids = json.loads(subprocess.run(words, input=prompt.encode(), check=True, capture_output=True).stdout)["ids"]
      check("ids that the folder's tokenizer gives otherwise", sum(a != b for a, b in zip(ids, tokenizer.encode(prompt))) + abs(len(ids) - len(tokenizer.encode(prompt))), 0)
    text = kPrompts[0]
    older.add(f"SmolLM2: merged folder of the GGUF {lora}", out + "_merged", logits_of(model, tokenizer.encode(text)), tokenizer.encode(text), text)
    expected = []
    for prompt in kPrompts:
      probabilities = logits_of(model, tokenizer.encode(prompt))[-1].softmax(0)
      top = probabilities.topk(20)
      expected.append(dict(zip(top.indices.tolist(), top.values.tolist())))
    plain = llama_probabilities(base)
    check("what the adapter does, inverted", 1e-2 / max(probability_distance(plain, expected), 1e-30), 1)
    judge_rounding(reprise, recipe, saved, folder)
    # F16 rounds every weight to 11 bits, and llama.cpp also the activations of such a product; Q8_0
    # rounds both to 8 bits. For the adapter with its own ranks F32 is enough: rounding does not
    # depend on the adapter.
    for kind, bound in (("f32", kProbabilities), ("f16", 5e-3), ("q8_0", 0.03))[:3 if lora is kLoras[1] else 1]:
      export(reprise, recipe, saved, "--merged-gguf", merged, "--type", kind)
      check(f"top-20 probabilities, merged {kind} GGUF in llama.cpp and folder in transformers", probability_distance(llama_probabilities(merged), expected), bound)
    # llama.cpp multiplies quantised weights with activations that it quantises to 8 bits: the base
    # is therefore written as F32.
    plain_recipe = recipe_file(folder, {"gguf": base}, lora)
    zero = {name: tensor * 0 for name, tensor in load_file(os.path.join(saved, "model.safetensors")).items()}
    save_file(zero, os.path.join(saved, "model.safetensors"))
    export(reprise, plain_recipe, saved, "--merged-gguf", merged, "--type", "f32")
    check("top-20 probabilities, F32 base with adapter GGUF in llama.cpp and folder in transformers", probability_distance(llama_probabilities(merged, adapter), expected), kProbabilities)


def judge_new_tokens(reprise, base):
  """Judges a vocabulary with new tokens: their ids in transformers and in llama.cpp, and the
  outputs that depend on their rows."""
  print(f"{os.path.basename(base)} with new tokens")
  base = os.path.abspath(base)
  tokens, prompt = ["<tool_call>", "</tool_call>"], "Call it: <tool_call>{\"name\"</tool_call> and"
  with tempfile.TemporaryDirectory() as folder:
    recipe = recipe_file(folder, {"gguf": base, "new_tokens": tokens}, {"modules_to_save": ["embed_tokens"]})
    saved = snapshot(reprise, folder, recipe, base)
    merged, out = os.path.join(folder, "merged.gguf"), os.path.join(folder, "out")
    export(reprise, recipe, saved, "--adapter", out + "_adapter")
    export(reprise, recipe, saved, "--merged", out + "_merged")
    export(reprise, recipe, saved, "--merged-gguf", merged, "--type", "f32")
    ids = json.loads(subprocess.run([reprise, "tokenize", recipe, "--json"], input=prompt.encode(), check=True, capture_output=True).stdout)["ids"]
    for name in ("_adapter", "_merged"):
      tokenizer = AutoTokenizer.from_pretrained(out + name)
      check(f"new tokens that the tokenizer of {name[1:]} gives otherwise", int(tokenizer.encode(prompt) != ids or ids.count(len(tokenizer) - 2) != 1), 0)
    model = AutoModelForCausalLM.from_pretrained(out + "_merged", dtype=torch.float32).eval()
    check("rows that the table lacks", abs(model.get_input_embeddings().weight.shape[0] - len(tokenizer)), 0)
    probabilities = logits_of(model, ids)[-1].softmax(0)
    top = probabilities.topk(20)
    expected = [dict(zip(top.indices.tolist(), top.values.tolist()))]
    check("top-20 probabilities behind new tokens, merged GGUF in llama.cpp and folder in transformers",
          probability_distance(llama_probabilities(merged, prompts=[prompt]), expected), kProbabilities)
    letters = llama_probabilities(merged, prompts=[prompt.replace("_call", "-call")])
    check("what the new tokens do, inverted", 1e-4 / max(probability_distance(letters, expected), 1e-30), 1)


def main():
  logging.set_verbosity_error()
  logging.disable_progress_bar()
  torch.set_num_threads(2)
  reprise = os.path.abspath(sys.argv[1])
  with tempfile.TemporaryDirectory() as folder:
    older = OlderGeneration(folder)
    for name in sorted(os.listdir(kModels)):
      if glob.glob(os.path.join(kModels, name, "model.safetensors*")):
        judge_folder(reprise, name, older)
    for name in ("llama_tied", "llama_untied"):
      judge_saved_by_peft(reprise, name)
    for name in ("llama_llama3", "qwen2_untied"):
      judge_snapshot(reprise, name, older)
    if len(sys.argv) > 2:
      for lora in (kLoras[1], kOwn[0]):
        judge_smollm2(reprise, sys.argv[2], older, lora)
      judge_new_tokens(reprise, sys.argv[2])
    older.judge()
  print(f"{len(failures)} failed")
  sys.exit(1 if failures else 0)


if __name__ == "__main__":
  main()
