#!/usr/bin/env python3
"""Runs trainings on this machine's card for gpu.sh and prints Markdown tables; one line on stderr
and exit status 1 if something failed.

  gpu_train.py identity       compiled programs of small nets: the same losses and snapshots at every budget, recorded
                              or --eager, planned bytes equal to measured bytes, losses near the CPU's
  gpu_train.py steps [NET...] whole steps of GPT-2 small, ResNet-50 and Chen et al.'s 990 layers, or of these, next to
                              PyTorch if it is installed
  gpu_train.py profile        the time of each kernel of such a step, as Nsight Compute measures it
  gpu_train.py warm           lets torch.compile fill its cache, so that `steps` need not wait for it

Data are synthetic. BUILD names make's folder. PyTorch gets its own fused attention, fused
optimizers, channels_last for images, autocast for bf16, and real f32 (no tf32) for f32. Its batch
is pinned on the host and copied in every step, as ours is.
"""
import concurrent.futures
import csv
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import peer_nets

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = ROOT / os.environ.get("BUILD", "build")
WORK = BUILD / "tests" / "bench" / "gpu"
SGD = {"name": "sgd", "lr": 1e-4, "momentum": 0.9}
MIB = 2 ** 20
CARD = os.environ.get("CARD") or "small"  # the recipes' "card"; gpu.sh gets it from `reprise doctor`
faults = []  # one line for each failure in the tables


def last_line(text):
  lines = [line for line in text.splitlines() if line.strip()]
  return lines[-1].strip() if lines else "it said nothing"


def one_cell(text):
  return str(text).replace("|", " ").replace("\n", " ")[:200]


def write_recipe(recipe):
  path = WORK / f"{recipe['name']}.json"
  path.write_text(json.dumps(recipe, indent=1))
  return path


# ---- the same bits at every budget ------------------------------------------------------------------------------------------------

IDENTITY_STEPS = 4
# Our own recipes, and nets of tests/golden/nets as torch exported them.
IDENTITY_NETS = ["resnet20-fashion.json", "gpt-text.json", "mobilenet_v3.old.onnx", "convnext.new.onnx", "vit.old.onnx", "yolo.pt2", "unet.old.onnx"]


def imported(file, dtype):
  recipe = WORK / f"{file}-{dtype}.json"
  made = subprocess.run([BUILD / "reprise", "import", ROOT / "tests" / "golden" / "nets" / file, "-o", recipe, "--data", "synthetic"], capture_output=True, text=True)
  if made.returncode != 0:
    raise RuntimeError(f"{file} is not imported: {last_line(made.stderr)}")
  return recipe


def identity_recipe(file, dtype):
  path = ROOT / "tools" / "recipes" / file if file.endswith(".json") else imported(file, dtype)
  recipe = json.loads(path.read_text())
  recipe.update({"data": {"kind": "synthetic"}, "steps": IDENTITY_STEPS, "dtype": dtype, "batch": 16, "evaluate_every": 0})
  for key in ("budget", "schedule", "lr_schedule"):
    recipe.pop(key, None)
  # Larger steps amplify small differences: with ResNet-20's own rate, two kernel sets of the CPU
  # are 1e-3 apart after four steps.
  recipe["optimizer"]["lr"] = min(1e-3, recipe["optimizer"]["lr"])
  recipe["name"] = f"gpu-{pathlib.Path(file).stem}-{dtype}"
  return recipe


def build(recipe):
  """Compiles the recipe's program and returns its folder."""
  path = write_recipe(recipe)
  made = subprocess.run(["make", "-s", "build", f"RECIPE={path}", f"BUILD={os.environ.get('BUILD', 'build')}"], cwd=ROOT, capture_output=True, text=True)
  if made.returncode != 0:
    raise RuntimeError(f"{recipe['name']} does not build: {last_line(made.stderr)}")
  return BUILD / recipe["name"]


def budgets_of(recipe):
  """Returns budgets by name: None for storing everything, the smallest, and the one half-way
  between."""
  path = write_recipe(recipe)
  whole = build(recipe)
  everything = json.loads((whole / "manifest.json").read_text())["store_all_bytes"]
  fit = subprocess.run([BUILD / "reprise", "fit", path, "--json", "--budget", "1KiB"], cwd=ROOT, capture_output=True, text=True)
  smallest = json.loads(fit.stdout)["smallest_budget"]
  return {"all": None, "half": (smallest + everything) // 2, "least": smallest}


def train(recipe, options):
  """Returns losses and norms of each step, the bytes of the snapshot's tensors, whether planned
  equals measured bytes, and the arena's bytes."""
  folder = BUILD / recipe["name"]
  log, save = WORK / f"{recipe['name']}{''.join(options)}.jsonl", WORK / f"{recipe['name']}{''.join(options)}.saved"
  log.unlink(missing_ok=True)
  run = subprocess.run([folder / "train", "--log", log, "--save", save, *options], cwd=ROOT, capture_output=True, text=True, timeout=60)
  if run.returncode != 0:
    raise RuntimeError(" ".join([*options, last_line(run.stderr)]))
  steps = [json.loads(line) for line in log.read_text().splitlines()]
  tensors = b"".join((save / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors") if (save / name).exists())
  return {"losses": [step["loss"] for step in steps], "norms": [step["grad_norm"] for step in steps], "tensors": tensors,
          "equal": "(equal)" in run.stderr, "bytes": steps[-1]["planned_bytes"]}


def compare_budgets(file, dtype, pool):
  base = identity_recipe(file, dtype)
  on_card = {**base, "backend": "cuda", "card": CARD}
  cards = {name: {**on_card, "name": f"{base['name']}-{name}", **({"budget": budget} if budget else {})}
           for name, budget in budgets_of(on_card).items()}
  cpu = {**base, "backend": "cpu", "name": f"{base['name']}-cpu"}
  list(pool.map(build, [*cards.values(), cpu]))
  runs = {name: train(recipe, []) for name, recipe in cards.items()}
  runs["all, eager"] = train(cards["all"], ["--eager"])
  runs["least, eager"] = train(cards["least"], ["--eager"])
  runs["all, again"] = train(cards["all"], [])
  first, on_cpu = runs["all"], train(cpu, [])
  same = all(run[key] == first[key] for run in runs.values() for key in ("losses", "norms", "tensors")) and first["tensors"]
  equal = all(run["equal"] for run in runs.values())
  off = max(abs(a - b) / abs(b) for a, b in zip(first["losses"], on_cpu["losses"]))
  near = off <= (2e-2 if dtype == "bf16" else 1e-4)  # the tolerances of tests/ports/cards/cuda_training_test.cpp
  arenas = ", ".join(f"{runs[name]['bytes'] / MIB:.1f}" for name in cards)
  row = (f"| {base['name']} | {arenas} | {'yes' if same else '**NO**'} | {'yes' if equal else '**NO**'} | {off:.1e}{'' if near else ' **TOO FAR**'} |")
  return row, same and equal and near


def identity():
  print("| net | arenas, MiB: all, half, least | the same bits in all runs | planned = measured | losses off the CPU's, at most |\n|---|---|---|---|---|")
  with concurrent.futures.ThreadPoolExecutor(4) as nets, concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 1) - 4)) as builds:
    cases = [(file, dtype) for file in IDENTITY_NETS for dtype in ("f32", "bf16")]
    for case, made in [(case, nets.submit(compare_budgets, *case, builds)) for case in cases]:
      try:
        row, good = made.result()
      except (RuntimeError, OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        row, good = f"| {case[0]} in {case[1]} | **{one_cell(error)}** | | | |", False
      print(row, flush=True)
      faults.extend([] if good else [f"{case[0]} in {case[1]}"])
  print(f"\nRuns of {IDENTITY_STEPS} steps: each budget, two of them --eager as well, one again. Bits: losses, gradient norms, every tensor of the snapshot.")


# ---- whole steps: the recipes -----------------------------------------------------------------------------------------------------

def resnet(units, batch, dtype):
  model = {"family": "resnet", "block": "bottleneck", "units": units, "width": 64, "stem": "imagenet", "classes": 1000, "image": [224, 224, 3]}
  return {"model": model, "batch": batch, "dtype": dtype, "optimizer": SGD}


# Without dropout, because the peer's net has none.
GPT2 = {"model": {"family": "gpt2", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "batch": 8, "sequence": 1024, "dtype": "bf16",
        "optimizer": {"name": "adamw", "lr": 1e-5, "weight_decay": 0.01}}
CHEN = [15, 120, 180, 15]
NETS = {"gpt2-small bf16": GPT2, "resnet50 bf16": resnet([3, 4, 6, 3], 64, "bf16"), "resnet50 f32": resnet([3, 4, 6, 3], 64, "f32"),
        "chen f32": resnet(CHEN, 32, "f32")}
STEPS = {"gpt2-small bf16": 20, "resnet50 bf16": 20, "resnet50 f32": 20, "chen f32": 5}
CHEN_BUDGETS = ["7GiB", "3GiB", "1.2GiB"]
TORCH_MODES = {"chen f32": ["eager", "checkpoint"]}  # the others also use compile, which takes minutes for 990 layers


def full_recipe(name, **more):
  title = "-".join(["gpu", *name.split(), *(str(value) for value in more.values())])
  return {"name": title, "data": {"kind": "synthetic"}, "steps": 1000, "seed": 1, "backend": "cuda", "card": CARD, "gradient_release": True,
          **NETS[name], **more}


# ---- child processes that prepare in parallel and take turns on the card ----------------------------------------------------------

class Child:
  """A process that plans, or imports torch, at once, but uses the card only after go(). Its last
  line of output is a JSON object."""

  def __init__(self, label, command):
    self.label = label
    self.process = subprocess.Popen([str(word) for word in command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

  def go(self, seconds):
    try:
      out, err = self.process.communicate("go\n", timeout=seconds)
    except subprocess.TimeoutExpired:
      self.process.kill()
      self.process.communicate()
      return {"error": f"not done after {seconds} s"}
    try:
      return json.loads(last_line(out))
    except ValueError:
      return {"error": last_line(err) if self.process.returncode != 0 else "no result"}

  def stop(self):
    if self.process.poll() is None:
      self.process.kill()
      self.process.communicate()


def ours(name, label, recipe, *options):
  return Child(label, [BUILD / "tests" / "bench" / "cards" / "gpu_steps", write_recipe(recipe), "--wait", "--steps", STEPS[name], *options])


def has_torch():
  probe = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
  return subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode == 0


def peers(name):
  return [Child(f"torch {mode}", [sys.executable, __file__, "torch", name, mode]) for mode in TORCH_MODES.get(name, ["eager", "checkpoint", "compile"])]


def beside_arena(result):
  found = re.search(r"([\d.]+) of them since this program began", result["device"])
  return float(found.group(1)) if found else 0.0


def memory_of(result):
  """Returns MiB of tensors, and MiB occupied on the card."""
  if "reserved" in result:
    return result["allocated"] / MIB, result["reserved"] / MIB
  return result["planned_bytes"] / MIB, result["planned_bytes"] / MIB + beside_arena(result)


def show_net(name, results):
  unit = "tokens" if "gpt" in name else "images"
  done = {label: result for label, result in results.items() if "error" not in result}
  yardstick = next((label for label in ("torch compile", "torch eager", "torch checkpoint") if label in done), None)
  print(f"\n### {name}\n\n| run | median ms | best ms | {unit}/s | of {yardstick or 'torch'}'s time | tensors MiB | held MiB | planned = measured |\n"
        "|---|---|---|---|---|---|---|---|")
  for label, result in results.items():
    if "error" in result:
      print(f"| {label} | **{one_cell(result['error'])}** | | | | | | |")
      continue
    median = statistics.median(result["seconds"])
    ratio = f"{median / statistics.median(done[yardstick]['seconds']):.2f}" if yardstick else ""
    equal = "" if "reserved" in result else "yes" if result["planned_bytes"] == result["measured_bytes"] else "**NO**"
    tensors, held = memory_of(result)
    print(f"| {label} | {1000 * median:.1f} | {1000 * min(result['seconds']):.1f} | {result['samples'] / median:.0f} | {ratio} | {tensors:.0f} | {held:.0f} | {equal} |")
  sys.stdout.flush()
  for label, result in results.items():
    if "error" in result and not label.startswith("torch"):
      faults.append(f"{name}, {label}")
  own = {label: result for label, result in done.items() if "losses" in result}
  if any(result["planned_bytes"] != result["measured_bytes"] for result in own.values()):
    faults.append(f"{name}: planned bytes are not measured bytes")
  if len(own) > 1:
    same = len({tuple(result["losses"]) for result in own.values()}) == 1
    print(f"\nLosses of our runs: {'the same bits' if same else '**OTHER BITS**'}.")
    if not same:
      faults.append(f"{name}: another budget gives other losses")
  for label, result in own.items():
    print(f"\n`{label}`: {result['device']}")


def show_chen(results):
  """Prints the extra time over the largest budget's forward and backward, whose own recomputation
  is subtracted."""
  base = next((result for label, result in results.items() if label.startswith("ours") and "error" not in result), None)
  if base is None:
    return
  own = statistics.median(base["seconds"]) / (1 + base["extra_work"])
  print("\n| run | feature maps GiB | extra work planned | extra time |\n|---|---|---|---|")
  for label, result in results.items():
    if label.startswith("ours") and "error" not in result:
      print(f"| {label} | {result['feature_map_bytes'] / 2**30:.2f} | {100 * result['extra_work']:.1f}% | {100 * (statistics.median(result['seconds']) / own - 1):+.1f}% |")
  print("\nThe aims are +12, +22 and +40% at 7, 3 and 1.2 GiB of feature maps.")


def start(name, torch_is_here):
  if name == "chen f32":
    children = [ours(name, "ours, all that fits", full_recipe(name))]
    children += [ours(name, f"ours, {budget}", full_recipe(name, feature_map_budget=budget)) for budget in CHEN_BUDGETS]
  else:
    children = [ours(name, "ours, all stored", full_recipe(name)), ours(name, "ours, a third of the transients", full_recipe(name), "--share", "0.33")]
  return children + (peers(name) if torch_is_here else [])


def steps(names):
  unknown = sorted(set(names) - set(NETS))
  if unknown:
    sys.exit(f"no net is called {unknown[0]!r}; there are: {', '.join(NETS)}")
  torch_is_here = has_torch()
  if not torch_is_here:
    print("PyTorch with CUDA is not here: ours alone.")
  children = {}
  # Nets that are prepared in advance; a small board has little memory, too.
  ahead = 2 if (os.cpu_count() or 1) >= 8 else 1
  try:
    for index, name in enumerate(names):
      for ready in names[index:index + ahead]:
        if ready not in children:
          children[ready] = start(ready, torch_is_here)
      results = {child.label: child.go(60) for child in children[name]}
      show_net(name, results)
      if name == "chen f32":
        show_chen(results)
  finally:
    for child in (child for of_net in children.values() for child in of_net):
      child.stop()
  print("\nMedians of steps after two (PyTorch: five) that are not counted. Tensors: our arena, PyTorch's max_memory_allocated. Held: our arena and what CUDA takes "
        "beside it, PyTorch's max_memory_reserved. Our weights are updated as soon as their gradients are complete.")


# ---- where a step's time goes -----------------------------------------------------------------------------------------------------

PROFILED = ["gpt2-small bf16", "resnet50 bf16", "resnet50 f32"]
PROFILED_STEPS = 3  # gpu_steps runs two steps before the one that it counts, and only that one is shown
SHOWN_KERNELS = 14


def nsight():
  beside = sorted(pathlib.Path("/opt/nvidia/nsight-compute").glob("*/ncu")) + [pathlib.Path("/usr/local/cuda/bin/ncu")]
  return shutil.which("ncu") or next((str(path) for path in beside if path.exists()), None)


def short_name(kernel):
  """Returns a kernel's name without namespaces, return type and arguments."""
  kernel = re.sub(r"^void |reprise::|\(anonymous namespace\)::|<unnamed>::", "", kernel)
  return re.sub(r"\((?:unsigned int|int|bool)\)", "", kernel).split(">(")[0].split("(const")[0]


def profile_net(name, ncu):
  log = WORK / f"profile-{name.replace(' ', '-')}.csv"
  run = subprocess.run([ncu, "--csv", "--page", "raw", "--metrics", "gpu__time_duration.sum", "--clock-control", "none", "--graph-profiling", "node",
                        "--print-units", "base", "--print-kernel-base", "demangled", "--log-file", log, BUILD / "tests" / "bench" / "cards" / "gpu_steps",
                        write_recipe(full_recipe(name)), "--steps", str(PROFILED_STEPS - 2)], cwd=ROOT, capture_output=True, text=True, timeout=100)
  text = log.read_text() if log.exists() else ""
  lines = [line for line in text.splitlines() if line.startswith('"')]
  rows = [row for row in csv.DictReader(lines) if row["ID"]]
  if run.returncode != 0 or not rows:
    raise RuntimeError(last_line(run.stderr + text))
  step = rows[-(len(rows) // PROFILED_STEPS):]
  kernels = {}
  for row in step:
    count, taken = kernels.get(short_name(row["Kernel Name"]), (0, 0.0))
    kernels[short_name(row["Kernel Name"])] = count + 1, taken + float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3
  whole = sum(taken for _, taken in kernels.values())
  print(f"\n### {name}\n\n{len(step)} launches, {whole / 1e3:.2f} ms of kernels.\n\n| kernel | launches | us | share |\n|---|---|---|---|")
  for kernel, (count, taken) in sorted(kernels.items(), key=lambda item: -item[1][1])[:SHOWN_KERNELS]:
    print(f"| `{kernel}` | {count} | {taken:.0f} | {100 * taken / whole:.1f}% |", flush=True)


def profile():
  ncu = nsight()
  if not ncu:
    print("Nsight Compute (ncu) is not installed here: nothing was run.")
    sys.exit(3)  # gpu.sh's status for "skipped"
  for name in PROFILED:
    try:
      profile_net(name, ncu)
    except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
      print(f"\n### {name}\n\n**{one_cell(error)}**", flush=True)
      faults.append(f"profile of {name}")
  print("\nEach kernel alone, its caches emptied before it: what they take together is more than a step's time.")


# ---- PyTorch, in a process of its own ---------------------------------------------------------------------------------------------

def torch_net(name, mode):
  from torch.utils.checkpoint import checkpoint
  nets, net = peer_nets.make_peer(NETS[name]["model"])
  if mode == "checkpoint":
    for module in net.modules():
      if isinstance(module, (nets.Block, nets.Bottleneck)):
        module.forward = (lambda whole: lambda x: checkpoint(whole, x, use_reentrant=False))(module.forward)
  return net


def torch_child(name, mode, count):
  import torch
  from torch.nn import functional
  torch.manual_seed(1)
  torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
  torch.backends.cudnn.benchmark = True
  recipe, net = NETS[name], torch_net(name, mode)
  is_gpt, batch = recipe["model"]["family"] == "gpt2", recipe["batch"]
  if is_gpt:
    inputs, targets = torch.randint(0, 50257, (batch, recipe["sequence"])), torch.randint(0, 50257, (batch * recipe["sequence"],))
  else:
    inputs, targets = torch.rand(batch, 3, 224, 224).to(memory_format=torch.channels_last), torch.randint(0, 1000, (batch,))
  if not sys.stdin.readline():
    return
  card = torch.device("cuda")
  net = net.to(card) if is_gpt else net.to(card, memory_format=torch.channels_last)
  settings = {key: value for key, value in recipe["optimizer"].items() if key != "name"}
  optimizer = (torch.optim.AdamW if is_gpt else torch.optim.SGD)(net.parameters(), fused=True, **settings)
  inputs, targets = inputs.pin_memory(), targets.pin_memory()
  forward = torch.compile(net) if mode == "compile" else net

  def step():
    start = time.perf_counter()
    x, y = inputs.to(card, non_blocking=True), targets.to(card, non_blocking=True)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=recipe["dtype"] == "bf16"):
      logits = forward(x)
      loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), y)
    loss.backward()
    optimizer.step()
    loss.item()  # our step, too, ends with its loss on the host
    return time.perf_counter() - start
  for _ in range(5 if count > 5 else 2):
    step()
  torch.cuda.reset_peak_memory_stats()
  seconds = [step() for _ in range(count)]
  print(json.dumps({"seconds": seconds, "samples": batch * recipe.get("sequence", 1), "allocated": torch.cuda.max_memory_allocated(),
                    "reserved": torch.cuda.max_memory_reserved(), "version": torch.__version__}))


def warm():
  if not has_torch():
    return
  for name in NETS:
    if name not in TORCH_MODES:
      subprocess.run([sys.executable, __file__, "torch", name, "compile", "1"], input=b"go\n", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)


def main():
  WORK.mkdir(parents=True, exist_ok=True)
  os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(WORK / "inductor"))
  what = sys.argv[1] if len(sys.argv) > 1 else ""
  if what == "torch" and len(sys.argv) >= 4 and sys.argv[2] in NETS:
    return torch_child(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else STEPS[sys.argv[2]])
  parts = {"identity": identity, "steps": lambda: steps(sys.argv[2:] or list(NETS)), "profile": profile, "warm": warm}
  if what not in parts:
    sys.exit(__doc__)
  parts[what]()
  if faults:
    sys.exit(f"{len(faults)} of it, first {faults[0]}")


if __name__ == "__main__":
  main()
