#!/usr/bin/env python3
"""Compares popular nets, imported from torch's two exporters and torch.export, with PyTorch:
gradients, import, plan, steps, memory.

`make bench-nets` runs every part for every net of bench_nets.py and writes tests/bench/pages/NETS.md.
Each part keeps its results in BUILD/nets/results.json, so that it can be run again by itself; a
timed part needs an idle machine. `page` writes the page.
Usage: build/parity-venv/bin/python tests/bench/peers/nets_bench.py [--only NET,...] [--threads 2] [--rounds 2]
         [--seeds 1,2,3] [gradients] [speed] [depthwise] [task] [texts] [page]    (default: all of them)
gradients: one step of sgd whose momentum is then the gradient, next to PyTorch in f64 and f32 on the weights of the
           imported file.
speed:     seconds of import and plan; steps and memory in turns with PyTorch, storing everything and within half of
           its memory.
depthwise: build/tests/bench/depthwise_bench.
task:      nets_task.py.
texts:     texts_task.py.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import warnings

import torch_peer
from torch_peer import BUILD, ROOT

FOLDER = BUILD / "nets"
GRADIENT_BATCH, AT_MOST = 4, 5  # as a multiple of PyTorch's own error
STEPS = 4  # in a turn; the first one is not counted
SGD = {"name": "sgd", "lr": 1e-4, "momentum": 0.9}


def keep(part, name, found):
  """Stores a part's result for one name in results.json, which has those of all parts."""
  path = FOLDER / "results.json"
  results = json.loads(path.read_text()) if path.exists() else {}
  results.setdefault(part, {})[name] = found
  path.write_text(json.dumps(results, indent=1) + "\n")


def run(command, **options):
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)
  if done.returncode != 0:
    sys.exit(f"nets_bench: {' '.join(map(str, command))}: {done.stderr}")
  return done.stdout


# ---- files: the export, a batch, the recipe ---------------------------------------------------------------------------------------

def write_batch(path, x, labels):
  from safetensors.torch import save_file
  save_file({"tokens": x[0], "labels": labels} if isinstance(x, tuple) else {"images": x.contiguous(), "labels": labels}, path)


def import_net(name, exporter, data="synthetic", loss="", options=()):
  """Imports one export. Returns (recipe, [], seconds), or (None, lines of the refusal, seconds)."""
  recipe = FOLDER / f"{name}-{exporter.split('.')[0]}.json"
  command = [BUILD / "reprise", "import", FOLDER / f"{name}.{exporter}", "-o", recipe, "--data", data, *options, "--json"]
  start = time.perf_counter()
  done = subprocess.run([*command, "--loss", loss] if loss else command, cwd=ROOT, capture_output=True, text=True)
  seconds = time.perf_counter() - start
  if done.returncode != 0:
    return None, done.stderr.strip().splitlines(), seconds
  return {"name": "nets-" + recipe.stem, **json.loads(recipe.read_text()), "optimizer": SGD}, [], seconds


# ---- gradients -------------------------------------------------------------------------------------------------------------------

def distances(gradients, exact):
  return {key: (gradients[key].reshape(value.shape) - value).norm().item() for key, value in exact.items()}


def peer_gradients(net, x, labels):
  """Returns three dictionaries by parameter: the gradient in f64; the distance of PyTorch's f32
  gradient from it, in the worse of its two layouts of images; and the distance of another f32 run
  whose weights are changed by less than an ulp. Such a change may flip a ReLU whose input is within
  rounding of zero."""
  import copy
  import torch
  import bench_nets

  def gradients(kind, memory_format, nudge=0.0):
    other = copy.deepcopy(net).to(kind, memory_format=memory_format)
    torch.manual_seed(1)
    with torch.no_grad():
      for parameter in other.parameters():
        parameter.mul_(1 + (torch.rand(parameter.shape) - 0.5) * nudge)
    given = x if isinstance(x, tuple) else x.to(kind).contiguous(memory_format=memory_format)
    bench_nets.loss_of(other, given, labels).backward()
    return {key: parameter.grad.double() for key, parameter in other.named_parameters()}
  exact = gradients(torch.float64, torch.contiguous_format)
  first, second = (distances(gradients(torch.float32, layout), exact) for layout in (torch.contiguous_format, torch.channels_last))
  return exact, {key: max(first[key], second[key]) for key in exact}, distances(gradients(torch.float32, torch.contiguous_format, 2**-23), exact)


def our_gradients(recipe):
  """Returns the gradients from the snapshot after one step: the first step's momentum is the
  gradient."""
  from safetensors.torch import load_file
  program = torch_peer.build_program(recipe, FOLDER)
  snapshot = FOLDER / "snapshot"
  shutil.rmtree(snapshot, ignore_errors=True)
  run([program, "--steps", "1", "--save", snapshot, "--quiet"])
  momenta = load_file(snapshot / "optimizer.safetensors")
  return {key.removeprefix("momentum."): value.double() for key, value in momenta.items()}


def compare_gradients(name, exporter, net, x, labels, batch_path):
  import bench_nets
  import torch
  from safetensors.torch import load_file
  recipe, refused, _ = import_net(name, exporter, f"tensors={batch_path}", bench_nets.NETS[name].loss)
  if refused:
    return {"refused": refused}
  is_folded = exporter == "new.onnx" and bench_nets.has_batch_norm(net)
  peer = bench_nets.folded(net) if is_folded else net
  weights = load_file(FOLDER / recipe["init"]["from"])
  with torch.no_grad():
    for key, parameter in peer.named_parameters():
      parameter.copy_(weights[key].reshape(parameter.shape))
  exact, own, nudged = peer_gradients(peer, x, labels)
  ours = distances(our_gradients({**recipe, "batch": GRADIENT_BATCH, "steps": 1}), exact)
  ratios = {key: ours[key] / max(own[key], 1e-300) for key in exact}
  worst = max(ratios, key=ratios.get)
  return {"tensors": len(ratios), "median": statistics.median(ratios.values()), "worst": ratios[worst], "worst_tensor": worst,
          "nudged": max(nudged[key] / max(own[key], 1e-300) for key in exact), "folded": is_folded}


def gradients(name, _):
  import bench_nets
  import torch
  net = bench_nets.make_net(name)
  batch_path = FOLDER / f"{name}-gradients.safetensors"
  for exporter in bench_nets.EXPORTERS:
    found = []  # draws another batch while a flipped ReLU may have raised the error
    while not found or len(found) < 3 and found[-1].get("worst", 0) > AT_MOST:
      torch.manual_seed(2 + len(found))
      x, labels = bench_nets.NETS[name].draw(GRADIENT_BATCH)
      write_batch(batch_path, x, labels)
      bench_nets.export(net, x, FOLDER / f"{name}.{exporter}", exporter, bench_nets.NETS[name].inputs)
      found.append(compare_gradients(name, exporter, net, x, labels, batch_path))
      print(f"{name}, {exporter}: {json.dumps(found[-1])}", flush=True)
    keep("gradients", f"{name} {exporter}", found)


# ---- speed -----------------------------------------------------------------------------------------------------------------------

def torch_child(name, memory_format, threads):
  import torch
  import bench_nets
  torch.set_num_threads(threads)
  before = torch_peer.peak_kib()
  net = bench_nets.NETS[name].make().train()
  torch.manual_seed(1)
  x, labels = bench_nets.NETS[name].draw(bench_nets.NETS[name].batch)
  if memory_format != "contiguous":
    net = net.to(memory_format=torch.channels_last)
    x = x if isinstance(x, tuple) else x.to(memory_format=torch.channels_last)
  optimizer = torch.optim.SGD(net.parameters(), lr=SGD["lr"], momentum=SGD["momentum"])
  torch_peer.report_steps(optimizer, lambda: bench_nets.loss_of(net, x, labels), STEPS, before)


def torch_turn(name, memory_format, threads):
  command = [sys.executable, __file__, "--child", name, "--format", memory_format, "--threads", str(threads)]
  return json.loads(run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)}).splitlines()[-1])


def plan_seconds(ours):
  start = time.perf_counter()
  run([BUILD / "reprise", "plan", ours.recipe, "-o", FOLDER / "plan"])
  return time.perf_counter() - start


def speed(name, args):
  """Measures steps on files of torch's older exporter, which keeps batch-norms, and times the
  import of all three files."""
  import bench_nets
  import torch
  net = bench_nets.make_net(name)
  torch.manual_seed(1)
  x, labels = bench_nets.NETS[name].draw(bench_nets.NETS[name].batch)
  batch_path = FOLDER / f"{name}-steps.safetensors"
  write_batch(batch_path, x, labels)
  imports, recipes = {}, {}
  for exporter in bench_nets.EXPORTERS:
    path = FOLDER / f"{name}.{exporter}"
    if not path.exists():
      two = tuple(each[:2] for each in bench_nets.inputs_of(x))
      bench_nets.export(net, two, path, exporter, bench_nets.NETS[name].inputs)
    recipes[exporter], refused, imports[exporter] = import_net(name, exporter, f"tensors={batch_path}", bench_nets.NETS[name].loss)
    if refused:
      del imports[exporter]
  recipe = {**recipes["old.onnx"], "batch": len(labels), "steps": 1000, "gradient_release": True}
  turns = torch_peer.Turns()
  forms = ("contiguous", "channels_last")
  plans, plan_times = {}, {}
  for _ in range(args.rounds):
    for form in forms:
      turns.add(form, torch_turn(name, form, args.threads))
    eager = min(forms, key=turns.median)
    if not plans:
      plans["all"] = torch_peer.Ours(recipe, FOLDER, STEPS)
      half = torch_peer.smallest_above(plans["all"], turns.memory[eager] // 2)
      plans["half"] = torch_peer.Ours(recipe, FOLDER, STEPS, half)
      plan_times = {label: plan_seconds(ours) for label, ours in plans.items()}
    for label, ours in plans.items():
      turns.add(label, ours.turn(args.threads))
  found = {"batch": len(labels), "import": imports, "plan": plan_times, "format": eager}
  for label, form in (("torch", eager), ("all", "all"), ("half", "half")):
    found[label] = {"median": turns.median(form), "best": min(turns.seconds[form]), "bytes": turns.memory[form]}
  print(f"{name}: {json.dumps(found)}", flush=True)
  keep("speed", name, found)


def depthwise(_, args):
  keep("depthwise", "layers", json.loads(run([BUILD / "tests/bench/depthwise_bench", str(args.threads)])))


def task(_, args):
  import nets_task
  for seed in args.seeds.split(","):
    keep_task("task", seed, nets_task.task(int(seed), FOLDER, lambda name: import_net(name, "old.onnx")[0], args.threads))


def texts(_, args):
  import texts_task
  import_file = lambda name, data, options: import_net(name, "old.onnx", data, options=options)[0]
  for seed in args.seeds.split(","):
    keep_task("texts", seed, texts_task.task(int(seed), FOLDER, import_file, args.threads))


def keep_task(part, seed, found):
  print(f"{part}, seed {seed}: " + ", ".join(f"{side} {each['accuracy']:.4f}" for side, each in found.items()), flush=True)
  keep(part, seed, found)


PARTS = {"gradients": gradients, "speed": speed, "depthwise": depthwise, "task": task, "texts": texts}
ONCE = ("depthwise", "task", "texts")  # parts that run once, not for each net


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join([*PARTS, "page"]))
  parser.add_argument("--only", metavar="NET,...")
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--rounds", type=int, default=2)
  parser.add_argument("--seeds", default="1,2,3", help="of the tasks")
  parser.add_argument("--child", help=argparse.SUPPRESS)
  parser.add_argument("--format", help=argparse.SUPPRESS)
  args = parser.parse_args()
  warnings.simplefilter("ignore")
  if args.child:
    return torch_child(args.child, args.format, args.threads)
  import bench_nets
  names = args.only.split(",") if args.only else list(bench_nets.NETS)
  wrong = [each for each in args.parts if each not in PARTS and each != "page"] + [name for name in names if name not in bench_nets.NETS]
  if wrong:
    parser.error(f"{wrong[0]}: must be of {', '.join([*PARTS, 'page', *bench_nets.NETS])}")
  FOLDER.mkdir(parents=True, exist_ok=True)
  for part in args.parts or [*PARTS, "page"]:
    if part == "page":
      import nets_page
      nets_page.write(ROOT / "tests/bench/pages/NETS.md", json.loads((FOLDER / "results.json").read_text()))
    else:
      for name in [""] if part in ONCE else names:
        PARTS[part](name, args)


if __name__ == "__main__":
  main()
