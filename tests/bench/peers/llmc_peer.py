#!/usr/bin/env python3
"""Times whole training steps against llm.c's CPU trainer on the same threads, in one run: GPT-2
small, T 256, batch 4, AdamW, f32.

Expects the path of a checkout (github.com/karpathy/llm.c), copies its trainer into a temporary
folder and sets sequence and steps there. Its own Makefile builds it (CC=clang chooses the
compiler). Both programs get the same random weights and the same batch, so their losses must agree:
they do the same work. They take turns; the first step of a turn is not counted.
Usage: tests/bench/peers/llmc_peer.py CHECKOUT [--threads 2] [--rounds 2] [--steps 3]    (needs numpy)
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "parity"))
from safetensors_file import write_safetensors

B, T = 4, 256
POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH = 1024, 50257, 12, 12, 768
PADDED_VOCABULARY = 50304  # as llm.c's own export writes it
RECIPE = {"name": "peer-llmc",
          "model": {"family": "gpt2", "n_positions": POSITIONS, "vocab_size": VOCABULARY, "n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH,
                    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
          "data": {"kind": "tokens", "path": "tokens.bin", "token_bytes": 2, "shuffle": False}, "batch": B, "sequence": T, "steps": 1000, "seed": 1,
          "optimizer": {"name": "adamw", "lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}}
LOSS_TOLERANCE = 2e-4  # relative; llm.c sums in f32 and is built with fast math


class PeerError(Exception):
  """An error that is reported as one line."""


# ---- the same weights and tokens for both ----------------------------------------------------------------------------------------

def make_weights():
  """Returns arrays by name in llm.c's order; matrices are [out, in], and tensors that each layer
  has get a leading axis of layers."""
  random = np.random.default_rng(1)

  def normal(*shape):
    return random.standard_normal(shape, np.float32) * np.float32(0.02)

  def constant(value, *shape):
    return np.full(shape, value, np.float32)
  L, C = LAYERS, WIDTH
  return {"wte.weight": normal(VOCABULARY, C), "wpe.weight": normal(POSITIONS, C),
          "ln_1.weight": constant(1, L, C), "ln_1.bias": constant(0, L, C),
          "attn.c_attn.weight": normal(L, 3 * C, C), "attn.c_attn.bias": constant(0, L, 3 * C),
          "attn.c_proj.weight": normal(L, C, C), "attn.c_proj.bias": constant(0, L, C),
          "ln_2.weight": constant(1, L, C), "ln_2.bias": constant(0, L, C),
          "mlp.c_fc.weight": normal(L, 4 * C, C), "mlp.c_fc.bias": constant(0, L, 4 * C),
          "mlp.c_proj.weight": normal(L, C, 4 * C), "mlp.c_proj.bias": constant(0, L, C),
          "ln_f.weight": constant(1, C), "ln_f.bias": constant(0, C)}


def header(*fields):
  words = np.zeros(256, np.int32)
  words[:len(fields)] = fields
  return words.tobytes()


def write_theirs(folder, weights, tokens):
  with open(folder / "gpt2_124M.bin", "wb") as file:
    file.write(header(20240326, 3, POSITIONS, VOCABULARY, LAYERS, HEADS, WIDTH, PADDED_VOCABULARY))
    for name, array in weights.items():
      file.write(array.tobytes())
      if name == "wte.weight":
        file.write(bytes(4 * WIDTH * (PADDED_VOCABULARY - VOCABULARY)))
  data = folder / "dev" / "data" / "tinyshakespeare"
  data.mkdir(parents=True)
  for split in ("train", "val"):
    (data / f"tiny_shakespeare_{split}.bin").write_bytes(header(20240520, 1, tokens.size) + tokens.tobytes())


def write_ours(folder, weights, tokens):
  tensors = {}
  for name, array in weights.items():
    if array.ndim == 1 or name in ("wte.weight", "wpe.weight"):
      tensors[name] = array
      continue
    for layer, part in enumerate(array):
      tensors[f"h.{layer}.{name}"] = part.T if part.ndim == 2 else part  # Hugging Face's Conv1D is [in, out]
  write_safetensors(folder / "weights.safetensors", tensors)
  (folder / "tokens.bin").write_bytes(tokens.tobytes())
  (folder / "recipe.json").write_text(json.dumps(RECIPE))


# ---- one program each: a turn returns losses and seconds of its steps ---------------------------------------------------------------

def run(command, **options):
  done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
  if done.returncode != 0:
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    raise PeerError(f"{command[0]}: exit status {done.returncode}: {words[0] if words else 'no message'}")
  return done.stdout


def set_constant(source, old, new):
  if source.count(old) != 1:
    raise PeerError(f"train_gpt2.c: \"{old}\" stands there {source.count(old)} times, must be once; this is another version of llm.c")
  return source.replace(old, new)


class Theirs:
  name = "llm.c"

  def __init__(self, checkout, folder, args):
    self.folder, self.threads = folder, args.threads
    for needed in ("train_gpt2.c", "Makefile", "llmc"):
      if not (checkout / needed).exists():
        raise PeerError(f"{checkout / needed}: not there; CHECKOUT must be a checkout of llm.c")
    shutil.copytree(checkout / "llmc", folder / "llmc")
    shutil.copy(checkout / "Makefile", folder)
    source = (checkout / "train_gpt2.c").read_text()
    source = set_constant(source, "int T = 64;", f"int T = {T};")
    source = set_constant(source, "step <= 40;", f"step <= {args.steps};")
    # Validation is outside of the time that the trainer prints.
    source = set_constant(source, "int val_num_batches = 5;", "int val_num_batches = 1;")
    (folder / "train_gpt2.c").write_text(source)
    environment = {key: value for key, value in os.environ.items() if key != "MAKEFLAGS"}
    run(["make", "train_gpt2"], cwd=folder, env=environment)

  def turn(self):
    text = run(["./train_gpt2"], cwd=self.folder, env={**os.environ, "OMP_NUM_THREADS": str(self.threads)})
    steps = re.findall(r"train loss (\S+) \(took (\S+) ms\)", text)
    return [float(loss) for loss, _ in steps], [float(ms) / 1000 for _, ms in steps]


class Ours:
  name = "ours"

  def __init__(self, folder, args):
    self.folder, self.args = folder, args
    run(["make", "-s", "build", f"RECIPE={folder / 'recipe.json'}"], cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""})

  def turn(self):
    log = self.folder / "log.jsonl"
    run([ROOT / "build" / RECIPE["name"] / "train", "--steps", self.args.steps + 1, "--log", log, "--threads", self.args.threads, "--quiet",
         "--init", self.folder / "weights.safetensors"], cwd=ROOT)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.unlink()
    steps = [line for line in lines if "loss" in line]
    return [step["loss"] for step in steps], [step["seconds"] for step in steps]


def compare(checkout, args, folder):
  folders = [folder / "theirs", folder / "ours"]
  for one in folders:
    one.mkdir()
  theirs = Theirs(checkout, folders[0], args)
  weights, tokens = make_weights(), np.random.default_rng(2).integers(0, VOCABULARY, B * T + 1).astype("<u2")
  write_theirs(folders[0], weights, tokens)
  write_ours(folders[1], weights, tokens)
  ours = Ours(folders[1], args)
  losses, seconds = {}, {theirs.name: [], ours.name: []}
  for _ in range(args.rounds):
    for side in (theirs, ours):
      losses[side.name], times = side.turn()
      seconds[side.name] += times[1:]
  apart = max(abs(a / b - 1) for a, b in zip(losses[ours.name], losses[theirs.name], strict=True))
  if apart > LOSS_TOLERANCE:
    raise PeerError(f"the losses are {apart:.1e} apart (relative), must be within {LOSS_TOLERANCE}: not the same work: {losses}")
  medians = {name: statistics.median(times) for name, times in seconds.items()}
  print("| run | median s | best s | tokens/s | loss of the first and last step |\n|---|---|---|---|---|")
  for name, times in seconds.items():
    print(f"| {name} | {medians[name]:.3f} | {min(times):.3f} | {B * T / medians[name]:.0f} | {losses[name][0]:.5f}, {losses[name][-1]:.5f} |")
  print(f"{medians[theirs.name] / medians[ours.name]:.1f} times as fast (median over median, {args.threads} threads, {args.rounds * args.steps} steps each; "
        f"losses at most {apart:.1e} apart)")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("checkout", type=pathlib.Path, metavar="CHECKOUT")
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--rounds", type=int, default=2)
  parser.add_argument("--steps", type=int, default=3)
  args = parser.parse_args()
  for name in ("threads", "rounds", "steps"):
    if getattr(args, name) < 1:
      parser.error(f"--{name}: must be at least 1")
  try:
    with tempfile.TemporaryDirectory() as folder:
      compare(args.checkout, args, pathlib.Path(folder))
  except PeerError as error:
    sys.exit(f"llmc_peer: {error}")


if __name__ == "__main__":
  main()
