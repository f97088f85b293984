#!/usr/bin/env python3
"""Times whole training steps against PyTorch on the same threads, in one run: time per step and
peak memory.

Both train the same recipes on synthetic data, in turns of a few steps each. PyTorch gets the best
of its memory formats (a format whose best step takes more than twice the other's has no second
round) and its own fused attention. With --compile it also runs inductor's torch.compile in the
better format, if compilation ends within ten minutes. PyTorch's memory is counted above that of the
interpreter with torch loaded, and without the compiler's. With --dtype bf16 PyTorch uses
torch.autocast, and ours stores activations in bf16. Ours is planned without a budget; if that needs
more, once more within half of PyTorch's memory (0.6 for GPT-2); and with a quarter of the transient
memory that storing everything needs, or the smallest budget if that is larger. Each weight is
updated as soon as its gradient is complete ("gradient_release").
Usage: tests/bench/peers/torch_peer.py [--threads 2] [--rounds 3] [--only NAME,...] [--compile]
         [--dtype bf16] [--json FILE]
(needs torch: pip install torch). --json writes the results for programs to read.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import peer_nets

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / os.environ.get("BUILD", "build")
SGD = {"name": "sgd", "lr": 1e-4, "momentum": 0.9}


def resnet(block, units, width, stem, classes, size, batch):
  model = {"family": "resnet", "block": block, "units": units, "width": width, "stem": stem, "classes": classes, "image": [size, size, 3]}
  return {"model": model, "batch": batch, "optimizer": SGD}


WORKLOADS = {
    "resnet20": (resnet("basic", [3, 3, 3], 16, "cifar", 10, 32, 128), 12),
    "resnet18": (resnet("basic", [2, 2, 2, 2], 64, "cifar", 10, 32, 32), 8),
    "resnet50": (resnet("bottleneck", [3, 4, 6, 3], 64, "imagenet", 1000, 224, 16), 3),
    "resnet990": (resnet("bottleneck", [15, 120, 180, 15], 64, "imagenet", 1000, 224, 2), 2),
    # Without dropout, because the peer's net has none.
    "gpt2-small": ({"model": {"family": "gpt2", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "batch": 4, "sequence": 256,
                    "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.01}}, 4),
}  # name -> recipe, steps of a turn
MEMORY_AIM = {"gpt2-small": 0.6}  # a share of PyTorch's memory; the others: a half


def recipe_of(name, dtype="f32"):
  recipe = {"name": f"peer-{name}", "data": {"kind": "synthetic"}, "steps": 1000, "seed": 1, "gradient_release": True, **WORKLOADS[name][0]}
  return recipe if dtype == "f32" else {**recipe, "name": f"peer-{name}-{dtype}", "dtype": dtype}


# ---- PyTorch, in a process of its own -----------------------------------------------------------------------------------------

def torch_child(args):
  import torch
  from torch.nn import functional
  torch.set_num_threads(args.threads)
  torch.manual_seed(1)
  before = peak_kib()
  recipe = recipe_of(args.child)
  model = recipe["model"]
  _, net = peer_nets.make_peer(model)
  if model["family"] == "gpt2":
    inputs = torch.randint(0, 50257, (recipe["batch"], recipe["sequence"]))
    targets = torch.randint(0, 50257, (recipe["batch"] * recipe["sequence"],))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-5, weight_decay=0.01)
  else:
    height, width, channels = model["image"]
    inputs, targets = torch.randn(recipe["batch"], channels, height, width), torch.randint(0, model["classes"], (recipe["batch"],))
    optimizer = torch.optim.SGD(net.parameters(), lr=SGD["lr"], momentum=SGD["momentum"])
    if args.format != "contiguous":
      net, inputs = net.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)

  if args.compile:
    net = torch.compile(net)

  def loss():
    with torch.autocast("cpu", torch.bfloat16, enabled=args.dtype == "bf16"):
      logits = net(inputs)
      return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets)
  report_steps(optimizer, loss, WORKLOADS[args.child][1], before)


def peak_kib():
  """Returns the peak memory of this program in KiB. getrusage() would start with the peak of the
  process that started this one."""
  for line in pathlib.Path("/proc/self/status").read_text().splitlines():
    if line.startswith("VmHWM:"):
      return int(line.split()[1])
  raise OSError("/proc/self/status has no VmHWM")


def report_steps(optimizer, loss, count, before):
  """Runs one step that is not counted and `count` steps, and prints their figures. `before` is the
  process's peak in KiB before it had a net."""
  import torch

  def step():
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss().backward()
    optimizer.step()
    return time.perf_counter() - start
  step()
  seconds = [step() for _ in range(count)]
  after = peak_kib()
  print(json.dumps({"seconds": seconds, "bytes": (after - before) * 1024, "version": torch.__version__}))


COMPILE_SECONDS = 600


class DidNotCompile(Exception):
  pass


def torch_turn(name, memory_format, args, compiles=False):
  command = [sys.executable, __file__, "--child", name, "--format", memory_format, "--threads", str(args.threads), "--dtype", args.dtype]
  command += ["--compile"] if compiles else []
  try:
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMPILE_SECONDS if compiles else None,
                         env={**os.environ, "OMP_NUM_THREADS": str(args.threads)})
  except subprocess.TimeoutExpired as late:
    raise DidNotCompile(f"did not compile within {COMPILE_SECONDS} s") from late
  except subprocess.CalledProcessError as failed:
    if not compiles:
      sys.exit(failed.stderr or f"torch_peer: PyTorch was killed by signal {-failed.returncode} in {name}: is there enough memory?")
    errors = re.findall(r"^[\w.]+(?:Error|Exception)\b", failed.stderr, re.MULTILINE) or [f"exit status {failed.returncode}"]
    raise DidNotCompile(f"does not compile ({errors[-1].split('.')[-1]})") from failed
  return json.loads(out.stdout.splitlines()[-1])


# ---- Reprise --------------------------------------------------------------------------------------------------------------------

def build_program(recipe, folder):
  """Compiles the program of a recipe, whose file it writes into the folder; returns the program's
  path."""
  path = folder / f"{recipe['name']}.json"
  path.write_text(json.dumps(recipe))
  built = subprocess.run(["make", "-s", "build", f"RECIPE={path}"], cwd=ROOT, env={**os.environ, "MAKEFLAGS": ""}, capture_output=True, text=True)
  if built.returncode != 0:
    sys.exit(built.stderr)
  return BUILD / recipe["name"] / "train"


class Ours:
  """One compiled plan of a recipe, within a budget if one is given. A turn runs `steps` steps after
  a first one that is not counted."""

  def __init__(self, recipe, folder, steps, budget=None):
    if budget is not None:
      recipe = {**recipe, "name": f"{recipe['name']}-{budget}", "budget": budget}
    self.steps, self.folder = steps, folder
    self.program = build_program(recipe, folder)
    self.recipe = folder / f"{recipe['name']}.json"
    self.manifest = json.loads((self.program.parent / "manifest.json").read_text())

  def turn(self, threads):
    """Runs a turn. A signal stops the run after its steps, because a run that ends by itself
    evaluates."""
    log, wanted = self.folder / "log.jsonl", self.steps + 1
    with subprocess.Popen([self.program, "--log", log, "--threads", str(threads), "--quiet"], cwd=ROOT, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True) as run:
      steps = []
      while len(steps) < wanted and run.poll() is None:
        time.sleep(0.05)
        lines = log.read_text().splitlines(keepends=True) if log.exists() else []
        steps = [step for step in map(json.loads, (line for line in lines if line.endswith("\n"))) if "loss" in step]
      run.terminate()
      if len(steps) < wanted:
        sys.exit(run.stderr.read())
    log.unlink()
    return {"seconds": [step["seconds"] for step in steps[1:wanted]], "bytes": max(step["measured_bytes"] for step in steps)}


def smallest_above(whole, budget):
  """Returns the budget, or the smallest possible one if that is larger."""
  fit = subprocess.run([BUILD / "reprise", "fit", whole.recipe, "--json", "--budget", str(budget)], cwd=ROOT, capture_output=True, text=True)
  answer = json.loads(fit.stdout)
  return budget if answer["fits"] else answer["smallest_budget"]


class Turns:
  """Seconds and memory of everything that runs in turns, by label."""

  def __init__(self):
    self.seconds, self.memory = {}, {}

  def add(self, label, result):
    self.seconds.setdefault(label, []).extend(result["seconds"])
    self.memory[label] = max(self.memory.get(label, 0), result["bytes"])

  def median(self, label):
    return statistics.median(self.seconds[label])


def step_flops(whole):
  """Returns the flops of a step that stores everything, in convolutions and products, from its
  plan."""
  words = (whole.program.parent / "plan.txt").read_text()
  return float(re.search(r"^  a whole step +(\S+) GFLOP", words, re.MULTILINE)[1]) * 1e9


def ours(name, dtype, folder, budget=None):
  return Ours(recipe_of(name, dtype), folder, WORKLOADS[name][1], budget)


def small_plans(name, dtype, folder, whole, torch_bytes):
  """Returns {role: (label, plan)}: "aim", within the aim's memory, if storing everything needs
  more; and "quarter", with a quarter of the transient memory."""
  regions = {region["name"]: region["planned_bytes"] for region in whole.manifest["regions"]}
  lasting, everything = regions["state"] + regions.get("carried", 0), whole.manifest["store_all_bytes"]
  plans = {}
  aim = MEMORY_AIM.get(name, 0.5)
  if everything > aim * torch_bytes:
    plans["aim"] = (f"ours, within {aim} of torch's memory", ours(name, dtype, folder, smallest_above(whole, int(aim * torch_bytes))))
  budget = smallest_above(whole, lasting + (everything - lasting) // 4)
  plans["quarter"] = (f"ours, {100 * (budget - lasting) / (everything - lasting):.0f}% of the transients", ours(name, dtype, folder, budget))
  return plans


class TorchTurns:
  """PyTorch's part of each round."""

  def __init__(self, name, args, turns):
    self.name, self.args, self.turns = name, args, turns
    self.formats = ["contiguous"] if "gpt" in name else ["contiguous", "channels_last"]
    self.problem = None  # why its compiler failed

  def median(self, memory_format):
    return self.turns.median(f"torch {memory_format}")

  def best(self, memory_format):
    return min(self.turns.seconds[f"torch {memory_format}"])

  def take(self, say):
    """Runs one turn of each format; returns the label of the better eager format."""
    for each in self.formats:
      say(f"torch {each}")
      self.turns.add(f"torch {each}", torch_turn(self.name, each, self.args))
    better = min(self.formats, key=self.median)
    self.formats = [each for each in self.formats if self.best(each) <= 2 * self.best(better)]
    if self.args.compile and not self.problem:
      say("torch compiled")
      try:
        self.turns.add("torch compiled", torch_turn(self.name, better, self.args, compiles=True))
      except DidNotCompile as problem:
        self.problem = str(problem)
    return f"torch {better}"


def take_turns(name, args, folder):
  """Returns the turns; labels by role; the flops of a step; why PyTorch's compiler failed, or
  None."""
  turns = Turns()
  peer, whole, plans = TorchTurns(name, args, turns), ours(name, args.dtype, folder), {}
  for n in range(args.rounds):
    say = lambda label: print(f"{name} in {args.dtype}, round {n + 1} of {args.rounds}: {label}", file=sys.stderr, flush=True)
    eager = peer.take(say)
    plans = plans or {"all": ("ours", whole), **small_plans(name, args.dtype, folder, whole, turns.memory[eager])}
    for label, plan in plans.values():
      say(label)
      turns.add(label, plan.turn(args.threads))
  roles = {"eager": eager, "compiled": "torch compiled", **{role: label for role, (label, _) in plans.items()}}
  roles = {role: label for role, label in roles.items() if label in turns.seconds}
  return turns, roles, step_flops(whole), peer.problem


def compare(name, args, folder):
  """Prints a table's rows; returns the results by role."""
  turns, roles, flops, problem = take_turns(name, args, folder)
  torch_labels = [label for label in turns.seconds if label.startswith("torch")]
  best = min(map(turns.median, torch_labels))
  for label, seconds in turns.seconds.items():
    print(f"| {name} | {label} | {turns.median(label):.3f} | {min(seconds):.3f} | {turns.median(label) / best:.2f} | "
          f"{turns.memory[label] / 2**20:.0f} | {turns.memory[label] / turns.memory[roles['eager']]:.2f} |", flush=True)
  if problem:
    print(f"| {name} | torch compiled: {problem} | | | | | |", flush=True)
  import importlib.metadata
  runs = {role: {"label": label, "median": turns.median(label), "best": min(turns.seconds[label]), "bytes": turns.memory[label]}
          for role, label in roles.items()}
  return {"net": name, "dtype": args.dtype, "threads": args.threads, "rounds": args.rounds, "batch": WORKLOADS[name][0]["batch"], "flops": flops,
          "memory_aim": MEMORY_AIM.get(name, 0.5), "torch": importlib.metadata.version("torch"), "runs": runs, "problem": problem}


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--only", default=",".join(WORKLOADS))
  parser.add_argument("--compile", action="store_true", help="torch.compile too")
  parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
  parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="what was found, a list with an entry for each net")
  parser.add_argument("--child", help=argparse.SUPPRESS)
  parser.add_argument("--format", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if args.child:
    return torch_child(args)
  unknown = [name for name in args.only.split(",") if name not in WORKLOADS]
  if unknown:
    parser.error(f"--only: {unknown[0]}: must be of {', '.join(WORKLOADS)}")
  print("| workload | run | median s | best s | of torch's time | MiB | of torch's memory |\n|---|---|---|---|---|---|---|")
  with tempfile.TemporaryDirectory() as folder:
    found = [compare(name, args, pathlib.Path(folder)) for name in args.only.split(",")]
  if args.json:
    args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
  main()
