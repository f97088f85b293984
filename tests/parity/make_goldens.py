#!/usr/bin/python3
# Makes the goldens of tests/golden/parity, or (--verify) makes them anew elsewhere and compares.
# One command re-blesses the goldens; they are never edited by hand. The script must not use
# Reprise's code; --train runs a command that the caller specifies.
import argparse
import gzip
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import numpy as np

import golden_check
from recipe_file import RecipeError, read_json, read_recipe
from safetensors_file import SafetensorsError, read_safetensors, write_safetensors
from torch_parity import write_json

kFolder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "parity")
kSteps = 6
kJitter = 0.1
kProbes = 16


def resnet_recipe(name, seed, batch, image, optimizer, **more):
  model = {"family": "resnet", "block": "basic", "units": [1, 1, 1], "width": 8, "stem": "cifar", "classes": 10,
           "image": image, **more.pop("model", {})}
  data = more.pop("data", {"kind": "tensors", "path": "data.safetensors"})
  return {"name": "parity_" + name, "model": model, "data": {**data, "shuffle": False}, "batch": batch, "dtype": "f32",
          "optimizer": optimizer, "steps": kSteps, "schedule": "none", "seed": seed, "backend": "cpu", **more}


def gpt2_recipe(name, seed, batch, sequence, optimizer, **more):
  model = {"family": "gpt2", "vocab_size": 61, "n_positions": sequence, "n_embd": 32, "n_layer": 2, "n_head": 4,
           "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "initializer_range": 0.25, **more.pop("model", {})}
  data = more.pop("data", {"kind": "tokens", "path": "tokens.bin", "token_bytes": 2})
  return {"name": "parity_" + name, "model": model, "data": {**data, "shuffle": False}, "batch": batch,
          "sequence": sequence, "dtype": "f32", "optimizer": optimizer, "steps": kSteps, "schedule": "none",
          "seed": seed, "backend": "cpu", **more}


def all_recipes():
  """Returns one case a line; odd extents are intended, as are sample counts that wrap around."""
  no_decay_bn = ["*.bias", "*bn?.weight", "*downsample.1.weight"]
  return {
      "resnet_basic_sgd": resnet_recipe(
          "resnet_basic_sgd", 1, 6, [12, 12, 3], {"name": "sgd", "lr": 0.05, "momentum": 0.9}),
      "resnet_basic_nesterov": resnet_recipe(
          "resnet_basic_nesterov", 2, 6, [13, 11, 3],
          {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05,
           "no_decay": no_decay_bn}),
      "resnet_bottleneck_sgd": resnet_recipe(
          "resnet_bottleneck_sgd", 33, 4, [40, 36, 3], {"name": "sgd", "lr": 0.02},
          model={"block": "bottleneck", "units": [1, 1, 1, 1], "width": 6, "stem": "imagenet", "classes": 7}),
      "resnet_basic_adamw": resnet_recipe(
          "resnet_basic_adamw", 22, 6, [12, 12, 3], {"name": "adamw", "lr": 0.002}),
      "resnet_idx_accumulate": resnet_recipe(
          "resnet_idx_accumulate", 5, 4, [14, 14, 1], {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True},
          model={"units": [2, 1, 1], "width": 5},
          data={"kind": "idx", "path": ".", "mean": [0.286], "std": [0.353]}, accumulate=2, evaluate_every=3,
          lr_schedule={"kind": "step", "warmup_steps": 2, "milestones": [3, 5], "gamma": 0.5}),
      "resnet_ignored_labels": resnet_recipe(
          "resnet_ignored_labels", 9, 5, [9, 10, 2], {"name": "sgd", "lr": 0.05, "momentum": 0.9},
          model={"units": [1, 1, 1], "width": 4, "classes": 5}, accumulate=2, clip_norm=1.5),
      "resnet_frozen_trunk": resnet_recipe(
          "resnet_frozen_trunk", 11, 6, [12, 12, 3], {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
          freeze=["conv1.*", "bn1.*", "layer1.*", "layer2.0.bn2.*", "layer3.0.bn1.weight"]),
      "gpt2_nesterov": gpt2_recipe(
          "gpt2_nesterov", 6, 3, 16, {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True}),
      "gpt2_adamw": gpt2_recipe(
          "gpt2_adamw", 7, 3, 17,
          {"name": "adamw", "lr": 0.003, "betas": [0.9, 0.95], "weight_decay": 0.1,
           "no_decay": ["*.bias", "*ln_?.weight"]},
          model={"n_embd": 36},
          data={"kind": "tokens", "path": "tokens.bin", "eval_path": "eval.bin", "token_bytes": 4},
          lr_schedule={"kind": "cosine", "warmup_steps": 2, "steps": kSteps},
          clip_norm=1.0, accumulate=2, evaluate_every=3),
      "gpt2_text_sgd": gpt2_recipe(
          "gpt2_text_sgd", 8, 2, 23, {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
          model={"vocab_size": 256, "n_embd": 20, "n_layer": 1, "n_inner": 52, "n_positions": 29,
                 "layer_norm_epsilon": 1e-3},
          data={"kind": "text", "path": "text.txt"}, clip_norm=0.5)}


kText = """A practised passage returns, and each return costs a little work and saves a little room.
The player keeps the opening bar in mind; the middle is found again from it, note by note.
What is kept, what is dropped, and what is played once more: that is the whole of the score.
"""


def write_data(folder, recipe):
  """Writes random but learnable data: every label shifts its image's mean; tokens follow one
  another by a noisy rule."""
  random = np.random.default_rng(recipe["seed"])
  kind = recipe["data"]["kind"]
  if kind == "text":
    with open(os.path.join(folder, "text.txt"), "w") as file:
      file.write(kText)
  elif kind == "tokens":
    for name, count in (("path", 400), ("eval_path", 103)):
      if name in recipe["data"]:
        write_tokens(os.path.join(folder, recipe["data"][name]), random, count, recipe)
  elif kind == "tensors":
    images, labels = random_images(random, 11, recipe["model"])
    if "ignored" in recipe["name"]:
      labels[[0, 4, 7, 8]] = -100
    write_safetensors(os.path.join(folder, "data.safetensors"), {"images": images.astype(np.float32), "labels": labels})
  else:
    write_idx_folder(folder, random, recipe["model"])


def random_images(random, count, model):
  height, width, channels = model["image"]
  labels = random.integers(0, model["classes"], count)
  shift = (labels / model["classes"] - 0.5)[:, None, None, None]
  return random.standard_normal((count, channels, height, width)) + shift, labels.astype(np.int64)


def write_tokens(path, random, count, recipe):
  vocabulary = recipe["model"]["vocab_size"]
  tokens = np.cumsum(random.integers(1, 5, count)) % vocabulary
  with open(path, "wb") as file:
    file.write(tokens.astype(f"<u{recipe['data']['token_bytes']}").tobytes())


def write_idx_folder(folder, random, model):
  for split, count in (("train", 30), ("t10k", 12)):
    images, labels = random_images(random, count, model)
    pixels = np.clip(images[:, 0] * 60 + 110, 0, 255).astype(np.uint8)
    write_idx(os.path.join(folder, f"{split}-images-idx3-ubyte.gz"), pixels)
    write_idx(os.path.join(folder, f"{split}-labels-idx1-ubyte"), labels.astype(np.uint8))


def write_idx(path, array):
  data = struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape) + array.tobytes()
  with open(path, "wb") as file:
    file.write(gzip.compress(data, mtime=0) if path.endswith(".gz") else data)


def make_case(folder, source):
  from training import make_golden, make_weights, probe
  shutil.rmtree(folder, ignore_errors=True)
  os.makedirs(folder)
  write_json(os.path.join(folder, "recipe.json"), source)
  recipe = read_recipe(os.path.join(folder, "recipe.json"))
  write_data(folder, source)
  weights_path = os.path.join(folder, "W.safetensors")
  write_safetensors(weights_path, make_weights(recipe, kJitter))
  weights = read_safetensors(weights_path)
  golden = make_golden(recipe, kSteps, weights_path, weights)
  write_json(os.path.join(folder, "golden.json"), golden)
  worst, step = probe(recipe, golden, weights_path, weights, kProbes)
  if worst > 0.2 or max(golden["tolerance"]) > 1e-4:
    raise RecipeError(f"step {step}: torch's own f32 runs differ by {worst:.2g} tolerances, the largest of which is "
                      f"{max(golden['tolerance']):.1e}: ReLU or max pool sits on a tie; choose another seed")
  return golden


def verify_case(stored, source):
  """Trains the stored recipe, weights and data anew, in a copy. Another torch may draw other
  weights: the stored ones are used. Returns None or the fault."""
  from training import make_golden
  if read_json(os.path.join(stored, "recipe.json")) != source:
    return "recipe.json is not what make_goldens.py writes; make the goldens again"
  with tempfile.TemporaryDirectory() as scratch:
    folder = shutil.copytree(stored, os.path.join(scratch, "case"))
    recipe = read_recipe(os.path.join(folder, "recipe.json"))
    weights_path = os.path.join(folder, "W.safetensors")
    fresh = make_golden(recipe, kSteps, weights_path, read_safetensors(weights_path))
  return golden_check.check_golden(fresh, read_json(os.path.join(stored, "golden.json")))


def train_case(template, stored, source, logs):
  """Runs the caller's training command and checks the log that it wrote. Returns None or the
  fault."""
  log = os.path.join(logs, source["name"] + ".jsonl")
  if os.path.exists(log):
    os.remove(log)
  values = {"recipe": os.path.join(stored, "recipe.json"), "init": os.path.join(stored, "W.safetensors"), "log": log,
            "name": source["name"], "steps": str(kSteps)}
  values = {key: shlex.quote(os.path.abspath(value) if key in ("recipe", "init", "log") else value)
            for key, value in values.items()}
  command = template.format(**values)
  if subprocess.run(command, shell=True).returncode != 0:
    return f"failed: {command}"
  return golden_check.check_log(read_json(os.path.join(stored, "golden.json")), log)


def parse_arguments():
  parser = argparse.ArgumentParser(description="Makes tests/golden/parity with PyTorch.")
  parser.add_argument("--out", default=os.path.normpath(kFolder), help="where the goldens stand (default %(default)s)")
  parser.add_argument("--case", action="append", help="only this case (repeatable)")
  parser.add_argument("--verify", action="store_true", help="make them afresh elsewhere and compare; write nothing")
  parser.add_argument("--train", metavar="COMMAND", help="check Reprise itself against the stored goldens: runs "
                      "COMMAND for every case, with {recipe} {init} {log} {name} {steps} replaced")
  parser.add_argument("--logs", default="build/parity", help="where --train puts the logs (default %(default)s)")
  arguments = parser.parse_args()
  unknown = set(arguments.case or []) - set(all_recipes())
  if unknown:
    parser.error(f"no case {', '.join(unknown)}; the cases are {', '.join(all_recipes())}")
  return arguments


def run_case(arguments, name, source):
  """Returns None or the fault."""
  folder = os.path.join(arguments.out, name)
  if not (arguments.verify or arguments.train):
    golden = make_case(folder, source)
    print(f"{name}: loss {golden['loss_f64'][0]:.6g} -> {golden['loss_f64'][-1]:.6g}, "
          f"largest tolerance {max(golden['tolerance']):.1e}")
    return None
  fault = verify_case(folder, source) if arguments.verify else None
  if arguments.train and not fault:
    os.makedirs(arguments.logs, exist_ok=True)
    fault = train_case(arguments.train, folder, source, arguments.logs)
  print(f"{name}: {fault or 'agrees'}", flush=True)
  return fault


def main():
  arguments = parse_arguments()
  faults = 0
  for name, source in all_recipes().items():
    if arguments.case and name not in arguments.case:
      continue
    try:
      faults += run_case(arguments, name, source) is not None
    except (RecipeError, SafetensorsError) as error:
      print(f"{name}: {error}")
      faults += 1
  return 1 if faults else 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except ImportError as error:
    print(f"make_goldens: {error}: install python3-torch and python3-numpy", file=sys.stderr)
    sys.exit(1)
