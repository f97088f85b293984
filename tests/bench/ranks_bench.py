#!/usr/bin/env python3
"""Trains with two ranks on two hosts with a cable of 1 Gbit/s between them: bytes over the cable,
and how much of their time a step waits; writes tests/bench/pages/RANKS_RESULTS.md.

`make bench-ranks` runs it as root on a machine with two cores or more. The hosts are network
namespaces (tests/ports/ranks/mpi/with_hosts.sh), so that each rank has one core of this machine. Each run
waits until other programs use at most a tenth of the processors; after --patience seconds of
waiting in all, no run waits any more. Of several runs the page shows the one during which other
programs used least, and reports that share.
Usage: tests/bench/ranks_bench.py [--rounds 3] [--patience 900]    (needs Open MPI)
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import this_machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("BUILD", "build")
PAGE = ROOT / "tests/bench/pages/RANKS_RESULTS.md"
BUSY, LOOK_SECONDS = 0.1, 3
LINK_BYTES = 250_000_000
UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SGD = {"name": "sgd", "lr": 0.01, "momentum": 0.9}


def resnet(block, units, width, stem, classes, image, batch):
  return {"model": {"family": "resnet", "block": block, "units": units, "width": width, "stem": stem, "classes": classes, "image": image}, "batch": batch,
          "optimizer": SGD}


RESNET20 = resnet("basic", [3, 3, 3], 16, "cifar", 10, [28, 28, 1], 64)
NETS = {
    "resnet50": ("ResNet-50, 8 images of 224 x 224 a rank", resnet("bottleneck", [3, 4, 6, 3], 64, "imagenet", 1000, [224, 224, 3], 8), 6),
    "gpt2-lora": ("GPT-2 small, LoRA of rank 8, 256 tokens a rank",
                  {"model": {"family": "gpt2", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, "batch": 1, "sequence": 256, "lora": {"r": 8},
                   "optimizer": {"name": "adamw", "lr": 1e-4}}, 8),
    "resnet20": ("ResNet-20, 64 images of 28 x 28 a rank", RESNET20, 30),
}  # name -> title, recipe, steps of a run
ONE_PROCESS = "resnet20-one"
# The settings of `make run`.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_mpi_yield_when_idle": "1"}

# Sends and receives at once, as ranks do; prints the seconds until all bytes of the other host have
# arrived.
STREAM = """
import socket, sys, threading, time
own, other, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
listener = socket.create_server((own, 5000))
while True:
  try:
    sender = socket.create_connection((other, 5000), timeout=1)
    break
  except OSError:
    time.sleep(0.05)
receiver, _ = listener.accept()
def send():
  sender.settimeout(None)
  sender.sendall(bytes(size))
start = time.monotonic()
thread = threading.Thread(target=send)
thread.start()
left = size
while left > 0:
  left -= len(receiver.recv(1 << 20))
print(time.monotonic() - start)
thread.join()
"""


def say(words):
  print(f"ranks_bench: {words}", flush=True)


def program(name):
  return BUILD / f"ranks-bench-{name}" / "train"


def compile_all():
  recipes = {name: {**recipe, "parallel": {"ranks": 2}} for name, (_, recipe, _) in NETS.items()}
  recipes[ONE_PROCESS] = {**RESNET20, "accumulate": 2}
  with tempfile.TemporaryDirectory() as folder:
    for name, recipe in recipes.items():
      path = pathlib.Path(folder) / f"{name}.json"
      path.write_text(json.dumps({"name": f"ranks-bench-{name}", "data": {"kind": "synthetic"}, "steps": 1000, "seed": 1, **recipe}))
      subprocess.run(["make", "-s", "build", f"BUILD={os.environ.get('BUILD', 'build')}", f"RECIPE={path}"], cwd=ROOT, check=True,
                     env={**os.environ, "MAKEFLAGS": ""})


# ---- around the hosts ----------------------------------------------------------------------------------------------------------------

def lay_cable():
  def run(words):
    subprocess.run(words.split(), check=True)
  run("ip link add eth0 netns host1 type veth peer name eth0 netns host2")
  for n in (1, 2):
    run(f"ip -n host{n} addr add 10.9.0.{n}/24 dev eth0")
    run(f"ip -n host{n} link set eth0 up")
    run(f"ip netns exec host{n} tc qdisc add dev eth0 root tbf rate 1gbit burst 256k latency 20ms")


def measured_link():
  """Returns bytes per second in the slower direction, while both are used."""
  streams = [subprocess.Popen(["ip", "netns", "exec", f"host{own}", sys.executable, "-c", STREAM, f"10.9.0.{own}", f"10.9.0.{other}", str(LINK_BYTES)],
                              stdout=subprocess.PIPE, text=True) for own, other in ((1, 2), (2, 1))]
  return LINK_BYTES / max(float(stream.communicate(timeout=120)[0]) for stream in streams)


def neighbours():
  look = this_machine.Neighbours()
  time.sleep(LOOK_SECONDS)
  return look.share()


class Patience:
  """The remaining seconds for which runs may wait for other programs."""

  def __init__(self, seconds):
    self.left = seconds

  def wait_for_quiet(self):
    """Waits until other programs use at most BUSY of the processors or no patience is left; returns
    their share then."""
    while (share := neighbours()) > BUSY and self.left > 0:
      self.left -= LOOK_SECONDS
    return share


class OthersDuring:
  """Measures in `share` the part of the processors that other programs use during a with block. The
  hosts' processes are in a /proc of their own; it is sampled every 0.1 s, because some processes
  end without a parent that counts them."""

  def __enter__(self):
    self.start, self.busy, self.first = time.monotonic(), this_machine.busy_seconds(), self.own_seconds()
    self.own, self.ended = self.first, threading.Event()
    self.watcher = threading.Thread(target=self.watch)
    self.watcher.start()
    return self

  @staticmethod
  def own_seconds():
    ticks = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
      try:
        ticks += sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
      except OSError:
        pass
    return ticks / os.sysconf("SC_CLK_TCK")

  def watch(self):
    while not self.ended.wait(0.1):
      self.own = max(self.own, self.own_seconds())

  def __exit__(self, *_):
    self.ended.set()
    self.watcher.join()
    passed, busy = time.monotonic() - self.start, this_machine.busy_seconds() - self.busy
    self.share = max(0.0, busy - (self.own - self.first)) / (passed * os.cpu_count())


def launcher(where, folder):
  if where == "one process":
    return []
  words = ["mpirun", "-np", "2"]
  if where == "one machine":
    return words
  shell = folder / "shell"
  shell.write_bytes((ROOT / "tests/ports/ranks/mpi/host_shell.sh").read_bytes())
  shell.chmod(0o755)
  net = "10.9.0.0/24"
  return [*words, "-H", "10.9.0.1,10.9.0.2", "--mca", "plm_rsh_agent", shell, "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", net, "--mca",
          "oob_tcp_if_include", net]


def run_once(name, where, steps, folder, patience):
  """Runs one training; returns figures from its log and its last lines."""
  log = folder / "log"
  log.unlink(missing_ok=True)
  patience.wait_for_quiet()
  threads = 2 if where == "one process" else 1
  words = ["ip", "netns", "exec", "host1", *launcher(where, folder), program(name), "--threads", str(threads), "--no-tune", "--steps", str(steps), "--log", log]
  with OthersDuring() as others:
    ended = subprocess.run([str(word) for word in words], env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=600)
  if ended.returncode != 0:
    sys.exit(f"ranks_bench: {name} on {where}: {ended.stdout}")
  seconds = [json.loads(line)["seconds"] for line in log.read_text().splitlines()]
  found = {"seconds": statistics.median(seconds[1:]), "others": others.share,
           "memory": re.findall(r"^memory.*?planned (\d+) bytes, measured (\d+) bytes", ended.stdout, re.MULTILINE)}
  if ranks := re.search(r"each sends ([\d.]+) (\w+) a step to every other; rank 0 waited for others in ([\d.]+) s", ended.stdout):
    found |= {"sent": float(ranks[1]) * UNITS[ranks[2]], "waited": float(ranks[3]) / steps}
  say(f"{name}, {where}: {found}")
  return found


def memory_of(run):
  """Returns each rank's planned MiB, as "412.3, 412.3"; bold if the measured bytes differ."""
  return ", ".join(f"{int(planned) / 2**20:.1f}" if planned == measured else f"**{planned} bytes, but {measured}**" for planned, measured in run["memory"])


def measure(args):
  lay_cable()
  patience = Patience(args.patience)
  patience.wait_for_quiet()
  link = measured_link()
  say(f"the cable carries {8 * link / 1e6:.0f} Mbit/s both ways")
  runs = {}
  with tempfile.TemporaryDirectory() as folder:
    for _ in range(args.rounds):
      for name, (_, _, steps) in NETS.items():
        for where in ("two hosts", "one machine"):
          runs.setdefault((name, where), []).append(run_once(name, where, steps, pathlib.Path(folder), patience))
      runs.setdefault((ONE_PROCESS, "one process"), []).append(run_once(ONE_PROCESS, "one process", NETS["resnet20"][2], pathlib.Path(folder), patience))
  return link, {key: min(of_one, key=lambda run: run["others"]) for key, of_one in runs.items()}


# ---- the page ------------------------------------------------------------------------------------------------------------------------

def percent(share):
  return f"{100 * share:.0f}%" if share <= BUSY else f"**{100 * share:.0f}%**"


def wire_row(name, where, link, run):
  wire = run["sent"] / link
  hidden = f"{100 * (1 - run['waited'] / wire):.0f}%" if where == "two hosts" and run["waited"] < wire else "-"
  return (f"| {NETS[name][0] if where == 'two hosts' else ''} | {where} | {run['sent'] / 2**20:.1f} | {wire:.3f} | {run['waited']:.3f} | {hidden} | "
          f"{run['seconds']:.3f} | {percent(run['others'])} | {memory_of(run)} |")


def page(link, runs, args):
  one, two, there = runs[ONE_PROCESS, "one process"], runs["resnet20", "one machine"], runs["resnet20", "two hosts"]
  runs_taken = "one run each" if args.rounds == 1 else f"the quietest of {args.rounds} runs in turns"
  return "\n".join([
      "# Two ranks and a cable of 1 Gbit/s", "",
      "`make bench-ranks` (`tests/bench/ranks_bench.py`) writes this page. Two network namespaces of one machine are the hosts, Open MPI",
      "goes by TCP through a cable that the kernel holds to 1 Gbit/s (`tbf`), and each rank computes with one thread. There is no delay",
      "and no loss beyond that: `tests/runtime/hosts_soak.sh` has these.", "",
      f"{this_machine.processor_name()}, {os.cpu_count()} cores; {datetime.datetime.now(datetime.timezone.utc).date()}; {runs_taken}.", "",
      f"- **sent**: what a rank sends to the other in a step. **wire**: the time of that on the cable, which carried {8 * link / 1e6:.0f} Mbit/s in each",
      "  direction at once, without MPI.",
      "- **waited**: of a step's time, how long rank 0 waited for the other: for what is on the wire, or because that one is slower. In the rows of",
      "  one machine both ranks share memory, and what is waited for there is no wire's.",
      "- **hidden**: the part of the wire's time that a step does not wait for, if all that it waits were the wire's. What TCP takes of the",
      "  processors is no wait, and stands in the seconds of a step alone.",
      "- **a step**: the median of rank 0's, without the first. **others**: what other programs took of the processors beside it; bold: more than a",
      "  tenth, and the seconds say little.",
      "- **planned**: each rank's arena in MiB; where it measured another number of bytes both stand there.", "",
      "| net | where | sent, MiB | wire, s | waited, s | hidden | a step, s | others | planned |",
      "|---|---|---|---|---|---|---|---|---|",
      *(wire_row(name, where, link, runs[name, where]) for name in NETS for where in ("two hosts", "one machine")), "",
      "## Two processes beside two threads", "",
      "ResNet-20 on 128 images a step in two micro-batches of 64; the bits are the same (`tests/runtime/ranks_program_test.sh`).", "",
      "| who computes | a step, s | others |", "|---|---|---|",
      *(f"| {who} | {run['seconds']:.3f} | {percent(run['others'])} |" for who, run in (
          ("one process of two threads, one micro-batch after the other", one), ("two ranks of one thread on one machine", two),
          ("the same with the cable between them", there))), ""])


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--patience", type=float, default=900, metavar="SECONDS")
  parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
  args = parser.parse_args()
  if not args.inside:
    compile_all()
    own = ["--inside", "--rounds", str(args.rounds), "--patience", str(args.patience)]
    hosts = ROOT / "tests/ports/ranks/mpi/with_hosts.sh"
    sys.exit(subprocess.run([hosts, "2", sys.executable, __file__, *own]).returncode)
  PAGE.write_text(page(*measure(args), args))
  say(f"{PAGE.relative_to(ROOT)} is written")


if __name__ == "__main__":
  main()
