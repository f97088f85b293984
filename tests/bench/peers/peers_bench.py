#!/usr/bin/env python3
"""Compares Reprise with other software on this processor: products, training steps and a language
model; writes tests/bench/pages/PEERS.md and README's table.

`make bench-peers` builds what this needs and runs it. Each part is a run of one peer script, in
turns with its peers, and keeps its results in BUILD/peers/PROCESSOR/PART.json. A part whose file
exists is not run again, so that a stopped benchmark can go on: remove the file to repeat it.
Usage: build/parity-venv/bin/python tests/bench/peers/peers_bench.py [--rounds 3] [--busy] [--processor NAME] [PART...]
         (default: all parts)
A word names a part, or all parts that begin with it ("sgemm", "resnet20"):

sgemm-1, sgemm-2:  sgemm_peer.py next to MKL, OpenBLAS and BLIS, on one thread and on two.
NET-f32, NET-bf16: torch_peer.py, the net's steps next to eager PyTorch and torch.compile; NET is resnet20, resnet18,
                   gpt2-small, resnet50 or resnet990.
lm:                lm_bench.sh, adapters of SmolLM2-135M-Instruct next to transformers and peft, if the model is there.
page:              peers_page.py writes the section and the row.
It starts only if other programs use at most a tenth of the processors; --busy measures anyway, and
the page reports it.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import this_machine
import torch_peer
from torch_peer import BUILD, ROOT

BENCH = pathlib.Path(__file__).resolve().parent
BUSY, LOOK_SECONDS = 0.1, 3
NETS = ("resnet20", "resnet18", "gpt2-small", "resnet50", "resnet990")  # quick ones first
START = time.monotonic()


class Failed(Exception):
  pass


def say(words):
  minutes, seconds = divmod(int(time.monotonic() - START), 60)
  print(f"{minutes:3d}:{seconds:02d}  {words}", flush=True)


def run_shown(command, **environment):
  """Runs a command and prints its lines at once, each with the elapsed time. Raises Failed."""
  own = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
  with subprocess.Popen([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                        env={**own, "PYTHONUNBUFFERED": "1", "MAKEFLAGS": "", **environment}) as child:
    for line in filter(str.strip, child.stdout):
      say("  " + line.rstrip())
  if child.returncode != 0:
    raise Failed(f"{pathlib.Path(command[0]).name} {command[1]} ended with exit status {child.returncode}")


# ---- parts: each returns what it found -----------------------------------------------------------------------------------------------

def products(threads):
  def measure(folder, rounds):
    out = folder / "found"
    run_shown([sys.executable, BENCH / "sgemm_peer.py", "--threads", threads, "--turns", rounds, "--json", out])
    return json.loads(out.read_text())
  return measure


def steps(net, dtype):
  def measure(folder, rounds):
    out = folder / "found"
    run_shown([sys.executable, BENCH / "torch_peer.py", "--only", net, "--dtype", dtype, "--compile", "--rounds", rounds, "--json", out])
    return json.loads(out.read_text())[0]
  return measure


def language_model(folder, rounds):
  for needed in (BUILD / "data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", BUILD / "data/chatterbot.jsonl"):
    if not needed.exists():
      raise Failed(f"{needed} is not there, PyPI has it")
  run_shown(["make", "-s", "build", "RECIPE=tests/bench/peers/lm-lora.json"])
  run_shown([BENCH / "lm_bench.sh", "--turns", rounds, "--json", folder, "lora"])
  found, losses = (json.loads((folder / f"lora-{what}.json").read_text()) for what in ("time", "loss"))
  return {**found, "validation": losses["validation"]}


PARTS = {**{f"sgemm-{threads}": products(threads) for threads in (1, 2)},
         **{f"{net}-{dtype}": steps(net, dtype) for net in NETS for dtype in ("f32", "bf16")}, "lm": language_model}


# ---- what is kept ----------------------------------------------------------------------------------------------------------------------

def measured_machine():
  return json.loads(subprocess.run([BUILD / "tests/bench/machine_bench"], cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def first_line(command):
  """Returns the first line of a command's output; "" if the command cannot be run."""
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True) if shutil.which(command[0]) else None
  return done.stdout.split("\n")[0] if done and done.returncode == 0 else ""


def processor(name):
  compiler = os.environ.get("CXX", "g++")
  return {"name": name, "cores": os.cpu_count(), "caches": this_machine.caches(), "memory_bytes": this_machine.memory_bytes(),
          "compiler": re.sub(r"\s*\(.*?\)", "", first_line([*compiler.split(), "--version"])) or compiler}


def run_part(part, path, args):
  """Measures a part and writes its results to its own file, completely or not at all."""
  folder = path.parent / "work"
  shutil.rmtree(folder, ignore_errors=True)
  folder.mkdir(parents=True)
  before, neighbours, start = measured_machine(), this_machine.Neighbours(), time.monotonic()
  found = PARTS[part](folder, args.rounds)
  seconds, others, after = time.monotonic() - start, neighbours.share(), measured_machine()
  machine = {key: max(value, after[key]) if isinstance(value, float) else value for key, value in before.items()}
  kept = {"part": part, "processor": processor(args.processor), "machine": machine, "date": str(datetime.date.today()),
          "commit": first_line(["git", "describe", "--always", "--dirty", "--exclude=*"]), "rounds": args.rounds, "seconds": round(seconds),
          "others": round(others, 4), "found": found}
  (folder / "kept").write_text(json.dumps(kept, indent=1) + "\n")
  os.replace(folder / "kept", path)
  shutil.rmtree(folder)
  say(f"{part} took {seconds:.0f} s; other programs took {100 * others:.0f}% of the processors beside it")


def look_for_neighbours(args):
  neighbours = this_machine.Neighbours()
  time.sleep(LOOK_SECONDS)
  share = neighbours.share()
  if share <= BUSY:
    return
  words = f"other programs take {100 * share:.0f}% of the processors (load average {this_machine.load_average():.2f})"
  if not args.busy:
    sys.exit(f"peers_bench: {words}: wait until the machine is idle, or BUSY=1 measures all the same, and the page says so")
  say(f"{words}; it is measured all the same, and the page says so")


def chosen_parts(words, refuse):
  every = [*PARTS, "page"]
  for word in words:
    if not any(part == word or part.startswith(word + "-") for part in every):
      refuse(f"{word}: must be of {', '.join(every)}")
  return [part for part in every if not words or any(part == word or part.startswith(word + "-") for word in words)]


def rounds_of(path):
  found = re.search(r'^ "rounds": (\d+)', path.read_text(), re.MULTILINE)
  return f"rounds: {found[1] if found else 'unknown'}"


def run_parts(parts, folder, args):
  """Runs the parts that have no file yet; returns the names of those that failed."""
  missing = [part for part in parts if not (folder / f"{part}.json").exists()]
  for path in (folder / f"{part}.json" for part in parts if part not in missing):
    say(f"{path.stem} is kept ({rounds_of(path)}): to measure it again, remove {os.path.relpath(path, ROOT)}")
  if missing:
    look_for_neighbours(args)
  failed = []
  for n, part in enumerate(missing):
    say(f"[{n + 1}/{len(missing)}] {part}")
    try:
      run_part(part, folder / f"{part}.json", args)
    except Failed as problem:
      say(f"{part} was not measured: {problem}")
      failed.append(part)
  return failed


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join([*PARTS, "page"]))
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--busy", action="store_true", help="measure beside other programs")
  parser.add_argument("--processor", metavar="NAME", default=this_machine.processor_name(), help="its name on the page (default: %(default)s)")
  args = parser.parse_args()
  if args.rounds < 1:
    parser.error("--rounds: must be at least 1")
  parts = chosen_parts(args.parts, parser.error)
  folder = BUILD / "peers" / re.sub(r"[^a-z0-9]+", "-", args.processor.lower()).strip("-")
  folder.mkdir(parents=True, exist_ok=True)
  say(f"{args.processor}: {', '.join(parts)}; kept in {os.path.relpath(folder, ROOT)}")
  failed = run_parts([part for part in parts if part != "page"], folder, args)
  if "page" in parts:
    run_shown([sys.executable, BENCH / "peers_page.py", folder])
  if failed:
    sys.exit(f"peers_bench: not measured: {', '.join(failed)}; make bench-peers tries them again")


if __name__ == "__main__":
  try:
    main()
  except Failed as problem:
    sys.exit(f"peers_bench: {problem}")
  except KeyboardInterrupt:
    sys.exit("peers_bench: stopped; what is finished is kept, and make bench-peers goes on from there")
