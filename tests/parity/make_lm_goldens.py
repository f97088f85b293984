#!/usr/bin/env python3
# Makes the goldens of language models, tests/golden/lm_parity, or (--verify) makes them anew and
# compares. One command re-blesses them; they are never edited by hand. Needs the packages of
# requirements.txt (make parity).
"""Usage: build/parity-venv/bin/python tests/parity/make_lm_goldens.py [--case NAME]... [--verify]"""
import argparse
import json
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import golden_check
from lm_cases import all_cases, kSequence, make_batches, models, recipe_of
from recipe_file import RecipeError, read_json
from safetensors_file import SafetensorsError, read_safetensors, write_safetensors

kFolder = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "lm_parity"))
kJitter = 0.3  # for norms and biases, which start at 1 and 0: a swapped or unread one must show
kProbes = 8


# ---- the files of a model and of an adapter ---------------------------------------------------------------------------------------

def make_model(folder, source, seed):
  """Writes a random model as transformers saves it; its numbers are representable in the file's
  type."""
  import torch
  from transformers import AutoConfig, AutoModelForCausalLM
  torch.manual_seed(seed)
  model = AutoModelForCausalLM.from_config(AutoConfig.for_model(source["type"], **source["config"]))
  with torch.no_grad():
    for tensor in model.parameters():
      if tensor.dim() == 1:
        tensor.add_(kJitter * torch.randn(tensor.shape))
  shutil.rmtree(folder, ignore_errors=True)
  dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[source["store"]]
  model.to(dtype).save_pretrained(folder, max_shard_size="20KB" if source.get("shards") else "1GB")
  os.remove(os.path.join(folder, "generation_config.json"))
  if source.get("old_config"):
    write_old_config(os.path.join(folder, "config.json"))
  if source.get("gguf"):
    add_gguf(folder, source["gguf"] != "unread")


def write_old_config(path):
  """Rewrites the config in the form that transformers wrote before 5.0."""
  config = read_json(path)
  rope = config.pop("rope_parameters")
  config.update(rope_theta=rope.pop("rope_theta"), rope_scaling=None, torch_dtype=config.pop("dtype"))
  write_json(path, config)


def add_gguf(folder, is_read):
  """Writes model.gguf next to the safetensors. transformers must read the same numbers from it if
  it can (`is_read`), and llama.cpp must compute the same."""
  import torch
  from transformers import AutoConfig, AutoModelForCausalLM
  from lm_gguf import write_gguf
  from lm_roundtrip import distance, llama_cpp
  from lm_training import Reference, read_model
  config, weights = read_model(folder)
  path = os.path.join(folder, "model.gguf")
  write_gguf(path, config, weights)
  read = weights
  if is_read:
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", config=AutoConfig.from_pretrained(folder), dtype=torch.float32)
    read = read.state_dict()
  for name, tensor in weights.items():
    if not torch.equal(read[name], tensor):
      raise RecipeError(f"{path}: transformers reads another {name}")
  ids = torch.arange(0, 7 * kSequence, 7) % config["vocab_size"]
  with torch.no_grad():
    expected = Reference(config, weights).logits({"tokens": ids[None]})[0, -1].softmax(dim=0)
  apart = distance(dict(enumerate(expected.tolist())), llama_cpp(path, "", ids.tolist()))
  print(f"{path}: llama.cpp's probabilities are at most {apart:.1e} from the reference's")
  if apart > 1e-3:
    raise RecipeError(f"{path}: llama.cpp reads another model")


def make_adapter(folder, model_folder, lora, seed):
  """Writes a LoRA adapter as peft saves it. lora_B is random, because peft's initial zeros would
  hide everything."""
  import torch
  from peft import LoraConfig, get_peft_model
  from transformers import AutoModelForCausalLM
  torch.manual_seed(seed)
  model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
  gpt2 = model.config.model_type == "gpt2"
  adapted = get_peft_model(model, LoraConfig(r=lora["r"], lora_alpha=lora["alpha"], lora_dropout=lora["dropout"], use_rslora=lora["rslora"],
                                             use_dora=lora.get("dora", False),
                                             target_modules=lora["targets"], task_type="CAUSAL_LM", fan_in_fan_out=gpt2))
  with torch.no_grad():
    for name, tensor in adapted.named_parameters():
      if "lora_B" in name:
        tensor.copy_(0.1 * torch.randn(tensor.shape))
  adapted.save_pretrained(folder)
  os.remove(os.path.join(folder, "README.md"))
  path = os.path.join(folder, "adapter_config.json")
  config = read_json(path)
  config["target_modules"] = sorted(config["target_modules"])  # a set; peft does not fix its order
  config["base_model_name_or_path"] = os.path.basename(model_folder)
  write_json(path, config)


# ---- the goldens ------------------------------------------------------------------------------------------------------------------

def write_json(path, value):
  with open(path, "w") as file:
    json.dump(value, file, indent=1)
    file.write("\n")


def write_batches(path, batches):
  """Writes one micro-batch a line."""
  with open(path, "w") as file:
    file.write("[\n" + ",\n".join(" " + json.dumps(batch, separators=(",", ":")) for batch in batches) + "\n]\n")


def open_case(folder):
  from lm_training import Case
  recipe = read_json(os.path.join(folder, "recipe.json"))
  model = os.path.normpath(os.path.join(folder, recipe["model"]["huggingface"]))
  adapter = os.path.join(folder, "adapter") if "lora" in recipe else None
  return Case(recipe, model, adapter, read_json(os.path.join(folder, "batches.json")))


def full_golden(folder):
  """Returns (case, golden.json, f64 gradients) from the files in the folder."""
  from lm_training import make_golden
  case = open_case(folder)
  golden, gradients = make_golden(case)
  return case, {"recipe": read_json(os.path.join(folder, "recipe.json")), **golden, "evaluations": []}, gradients


def make_case(folder, name, source):
  import numpy as np
  shutil.rmtree(folder, ignore_errors=True)
  os.makedirs(folder)
  recipe = recipe_of(name, source)
  write_json(os.path.join(folder, "recipe.json"), recipe)
  model = os.path.normpath(os.path.join(folder, recipe["model"]["huggingface"]))
  write_batches(os.path.join(folder, "batches.json"), make_batches(source, read_json(os.path.join(model, "config.json"))["vocab_size"]))
  if source["lora"]:
    make_adapter(os.path.join(folder, "adapter"), model, source["lora"], source["seed"])
  case, golden, gradients = full_golden(folder)
  write_json(os.path.join(folder, "golden.json"), golden)
  write_safetensors(os.path.join(folder, "gradients.safetensors"),
                    {key: value.numpy().astype(np.float32) for key, value in sorted(gradients.items())})
  return judge(case, golden, gradients)


def judge(case, golden, gradients):
  """Prints how sensitive the golden is; returns None, or why another seed must be chosen."""
  from lm_training import check_documents, check_mutants, probe
  errors = [entry["error_f32"] for entry in golden["gradients"].values()]
  print(f"  loss {golden['loss_f64'][0]:.6g} -> {golden['loss_f64'][-1]:.6g}; tolerance at most {max(golden['tolerance']):.1e}; "
        f"f32 error of {len(errors)} gradients {min(errors):.1e} to {max(errors):.1e}")
  faults = []
  loss, gradient, where = probe(case, golden, gradients, kProbes)
  print(f"  {kProbes} other f32 runs: losses at most {loss:.2g} tolerances off, gradients {gradient:.2g} bounds ({where})")
  if loss > 0.5 or gradient > 0.6 or max(golden["tolerance"]) > 1e-4:
    faults.append("other f32 runs come too near the bounds; choose another seed")
  if "document_start" in case.batches[0]:
    apart = check_documents(case, golden, gradients)
    print(f"  documents apart: {apart:.1e} from packed")
    if apart > 1e-9:
      faults.append("documents apart are not the packed ones")
  for mutant, (loss, gradient, share) in check_mutants(case, golden, gradients).items():
    print(f"  mutant {mutant}: loss {loss:.3g} tolerances off, gradients up to {gradient:.3g} bounds, {share:.0%} of them off")
    if loss < 10 or gradient < 100:
      faults.append(f"the mutant {mutant} comes too near")
  return "; ".join(faults) or None


def verify_case(folder, name, source):
  """Trains the stored model on the stored data anew. Another torch may draw other weights: the
  stored ones are used."""
  stored = read_json(os.path.join(folder, "golden.json"))
  if stored["recipe"] != recipe_of(name, source):
    return "recipe.json is not what make_lm_goldens.py writes; make the goldens again"
  case, fresh, gradients = full_golden(folder)
  fault = golden_check.check_golden(fresh, stored)
  kept = read_safetensors(os.path.join(folder, "gradients.safetensors"))
  for key, right in gradients.items():
    apart = abs(kept[key] - right.numpy()).max() / abs(right.numpy()).max()
    if not apart <= 1e-7:
      fault = fault or f"{key}: the f64 gradient is {apart:.1e} from the stored one"
  return fault or judge(case, stored, gradients)


def parse_arguments():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--out", default=kFolder, help="where the goldens stand (default %(default)s)")
  parser.add_argument("--case", action="append", help="only this case (repeatable); models that are there are made again only with every case")
  parser.add_argument("--verify", action="store_true", help="make them afresh and compare; write nothing")
  arguments = parser.parse_args()
  unknown = set(arguments.case or []) - set(all_cases())
  if unknown:
    parser.error(f"no case {', '.join(unknown)}; the cases are {', '.join(all_cases())}")
  return arguments


def main():
  arguments = parse_arguments()
  from transformers.utils import logging
  logging.set_verbosity_error()
  logging.disable_progress_bar()
  if not arguments.verify:
    for seed, (name, source) in enumerate(models().items()):
      folder = os.path.join(arguments.out, "models", name)
      if not arguments.case or not os.path.exists(folder):
        make_model(folder, source, seed)
  faults = 0
  for name, source in all_cases().items():
    if arguments.case and name not in arguments.case:
      continue
    folder = os.path.join(arguments.out, "cases", name)
    try:
      fault = verify_case(folder, name, source) if arguments.verify else make_case(folder, name, source)
    except (RecipeError, SafetensorsError) as error:
      fault = error
    print(f"{name}: {fault or ('agrees' if arguments.verify else 'made')}", flush=True)
    faults += fault is not None
  return 1 if faults else 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except (ImportError, RecipeError) as error:
    print(f"make_lm_goldens: {error}", file=sys.stderr)
    sys.exit(1)
