#!/usr/bin/env python3
# Compares the next-token probabilities of peft, transformers and llama.cpp (by the package
# xllamacpp), from the files that Reprise writes: an adapter or a merged model is right if other
# programs read it and give the same answers.
"""Usage: build/parity-venv/bin/python tests/parity/lm_roundtrip.py IDS.json SIDE SIDE... [--tolerance 1e-3]
         [--logits FILE]
SIDE is one of
  folder=DIR            transformers, from config.json and safetensors
  peft=DIR+ADAPTER      the same with a PEFT adapter, which must load without a missing or an unexpected key
  gguf=FILE             llama.cpp
  gguf=FILE+ADAPTER     the same with an adapter file
  ours=FILE.json        {"top": [[id, probability], ...]}, Reprise's 20 most probable next tokens
IDS.json is a list of ids, or {"ids": [...]} as `reprise tokenize --json` prints it. The 20 most
probable next tokens of the first side are compared with every other side's. --logits names a
safetensors file with Reprise's own logits, F32 "logits" [T, vocabulary]; each peft or folder side
must have them within 1e-4. llama.cpp rounds the factors of a quantised or F16 matrix: use F32 files
if 1e-3 must be met."""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

kTop = 20
kLogitTolerance = 1e-4


class RoundTripError(Exception):
  pass


def read_ids(path):
  with open(path) as file:
    value = json.load(file)
  return value["ids"] if isinstance(value, dict) else value


# ---- the sides: each returns {id: probability} --------------------------------------------------------------------------------------

def load_peft(folder, adapter):
  import torch
  from peft import PeftConfig, get_peft_model, load_peft_weights, set_peft_model_state_dict
  from transformers import AutoModelForCausalLM
  model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), PeftConfig.from_pretrained(adapter))
  result = set_peft_model_state_dict(model, load_peft_weights(adapter, device="cpu"))
  missing = [key for key in result.missing_keys if "lora_" in key]
  if missing or result.unexpected_keys:
    unexpected = list(result.unexpected_keys)
    raise RoundTripError(f"{adapter}: {len(missing)} keys are missing, {len(unexpected)} unexpected: {(missing + unexpected)[0]}")
  return model


def torch_logits(folder, adapter, ids):
  """Returns the logits [T, vocabulary] in f32."""
  import torch
  from transformers import AutoModelForCausalLM
  model = load_peft(folder, adapter) if adapter else AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
  with torch.no_grad():
    return model.eval()(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def check_logits(path, logits, side):
  import numpy as np
  from safetensors_file import read_safetensors
  ours = read_safetensors(path)["logits"]
  if tuple(ours.shape) != tuple(logits.shape):
    raise RoundTripError(f"{path}: logits are {ours.shape}, {side} has {tuple(logits.shape)}")
  apart = np.abs(ours - logits.numpy()).max()
  print(f"{side}: logits at most {apart:.2e} from {path}")
  return apart <= kLogitTolerance


def llama_cpp(path, adapter, ids):
  import math
  import xllamacpp
  params = xllamacpp.CommonParams()
  params.model.path, params.n_ctx, params.n_parallel, params.n_gpu_layers, params.verbosity = path, 512, 1, 0, -1
  params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
  params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
  if adapter:
    info = xllamacpp.CommonAdapterLoraInfo()
    info.path, info.scale = adapter, 1.0
    params.lora_adapters = [info]
  answer = xllamacpp.Server(params).handle_completions({"prompt": ids, "n_predict": 1, "n_probs": kTop, "samplers": [], "cache_prompt": False})
  return {entry["id"]: math.exp(entry["logprob"]) for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]}


def ask(side, ids, logits_path):
  """Returns ({id: probability}, whether the logits agree)."""
  kind, _, value = side.partition("=")
  first, _, adapter = value.partition("+")
  if kind in ("folder", "peft"):
    logits = torch_logits(first, adapter, ids)
    good = check_logits(logits_path, logits, side) if logits_path else True
    return dict(enumerate(logits[-1].double().softmax(dim=0).tolist())), good
  if kind == "gguf":
    return llama_cpp(first, adapter, ids), True
  if kind == "ours":
    with open(first) as file:
      return {int(token): probability for token, probability in json.load(file)["top"]}, True
  raise RoundTripError(f"{side}: must begin with folder=, peft=, gguf= or ours=")


# ---- the comparison -----------------------------------------------------------------------------------------------------------------

def best(answer):
  return sorted(answer.items(), key=lambda entry: -entry[1])[:kTop]


def distance(expected, answer):
  """Returns the largest difference over the most probable tokens of either side. A token that a
  side does not list counts as at most that side's smallest probability."""
  floor = min(answer.values())
  apart = [abs(p - answer[token]) if token in answer else max(0.0, p - floor) for token, p in best(expected)]
  floor = min(expected.values())
  return max(apart + [max(0.0, p - floor) for token, p in best(answer) if token not in expected])


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("ids")
  parser.add_argument("sides", nargs="+", metavar="SIDE")
  parser.add_argument("--tolerance", type=float, default=1e-3)
  parser.add_argument("--logits")
  args = parser.parse_args()
  from transformers.utils import logging
  logging.set_verbosity_error()
  logging.disable_progress_bar()
  ids, faults = read_ids(args.ids), 0
  expected = None
  for side in args.sides:
    answer, good = ask(side, ids, args.logits)
    if expected is None:
      expected = answer
      print(f"{side}: " + ", ".join(f"{token} {p:.5f}" for token, p in best(expected)))
    else:
      apart = distance(expected, answer)
      good = good and apart <= args.tolerance
      print(f"{side}: probabilities at most {apart:.2e} from the first {'ok' if apart <= args.tolerance else 'OFF'}")
    faults += not good
  return 1 if faults else 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except (RoundTripError, OSError) as error:
    print(f"lm_roundtrip: {error}", file=sys.stderr)
    sys.exit(1)
