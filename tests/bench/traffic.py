#!/usr/bin/env python3
"""Writes tests/bench/pages/TRAFFIC.md from the counts of traffic_bench and callgrind, and checks the
simulation against callgrind's.

  traffic.py check COUNTS DUMPS                  counts of `traffic_bench --as-callgrind`, a folder of callgrind's
                                                 dumps with its caches
  traffic.py table OUT CHECKED DUMPS COUNTS...   the same check, then a table from the counts of each kernel set
"""
import pathlib
import re
import sys
from typing import NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from page_tables import line

LINE_BYTES = 64
LEVELS = ("L2", "L3", "memory")
MOVED = f"bytes a kflop: {', '.join(LEVELS)}"  # the first head of a table


class Core(NamedTuple):
  caches: str
  flops: dict  # flops per cycle, by kernel set
  rates: tuple  # bytes per cycle that each of LEVELS delivers
  source: str


CORES = {
    "Skylake-SP": Core("32 KiB, 1 MiB, 2.75 MiB", {"avx512": 64, "avx2": 32}, (64, 16, 2.5),
                       "WikiChip (L2), kerncraft's machine file (L3, each way), 128 GB/s for 24 busy cores at 2.1 GHz (Cornell)"),
    "Xeon with AMX": Core("48 KiB, 2 MiB, 4 MiB", {"avx512": 64, "avx2": 32}, (48, 10, 3.9),
                          "assumed (L2: three quarters of 64; L3, which is far: less than Skylake-SP's), 15 GB/s a core at 3.9 GHz"),
    "Zen 4": Core("32 KiB, 1 MiB, 4 MiB", {"avx512": 32, "avx2": 32}, (29, 29, 4.5),
                  "assumed (L2, L3: nine tenths of paths of 32 bytes), ROOFLINE.md's machine: 33 GB/s for two cores at 3.7 GHz"),
    "Zen 5": Core("48 KiB, 1 MiB, 4 MiB", {"avx512": 64, "avx2": 32}, (58, 32, 6.6),
                  "9600X by AIDA64 (L2), assumed (L3), 50 GB/s for two cores at 3.8 GHz"),
    "Cortex-A78AE": Core("64 KiB, 256 KiB, 2 MiB", {"neon": 16}, (29, 14, 8.4),
                         "assumed: what Arm measured on Graviton2's related Neoverse N1: 73, 36 and 21 GB/s at 2.5 GHz"),
    "wide Arm": Core("128 KiB, 4 MiB, 8 MiB", {"neon": 32}, (32, 16, 18), "assumed"),
}
X86 = ("Skylake-SP", "Xeon with AMX", "Zen 4", "Zen 5")
SETS = {"avx512": X86, "avx2": X86, "neon": ("Cortex-A78AE", "wide Arm")}

# The small net whose instructions are shown next to a net's kernels.
SMALL = {"gpt2-small": "small-gpt", "resnet50": "small-resnet"}

# Allowed difference between simulation and callgrind, in lines of L1 and L2 per run, and as a
# share. The simulation does not see the trainer and valgrind's request between rows, libm, or
# spilled registers; callgrind's second level also holds the code. Together they are a few hundred
# lines a row. A panel of A is 288 lines of the stack; which operand lines it evicts depends on the
# compiler's frame: it may be fetched twice more.
UNSEEN_LINES, UNSEEN_SHARE = (750, 1000), 0.02

HEAD = """# Traffic between caches, kernel by kernel

`make traffic`. Each kernel of a step of ResNet-50 (two images; two units a stage have every distinct call) and of
GPT-2 small (one layer and the loss head; 256 tokens) runs on one worker, and every read and write of it goes through
simulated caches. These are counts, not times: they are the same on every machine and under any load, so a change of a
kernel shows as a difference of this file.

How to read it: each set of kernels has two tables of a net. The first says what belongs to a kernel, then for each core
which level limits it first: "L2 0.29" says that L2 alone, at the rate below, needs 0.29 of the time that the arithmetic
needs at the core's peak. Levels work side by side where what comes next is fetched ahead, so a kernel reaches at most
its peak divided by that number where it is above 1; well below 1 it still costs what the core cannot hide. The second
table has the bytes that move between a core's first level and L2, between L2 and L3 and between L3 and memory, both
ways, for each 1,000 float operations. Kernels without products have one table: they move so many times the bytes that
they must (`tools/plan/graph/cost.h`).

Flops an access say what the load ports must do: a core that loads twice a cycle reaches its peak of 64 flops a cycle
only above 32. Instructions are callgrind's, of the kernels as they are built, in the small nets of
`tests/bench/traffic.sh`, whose borders cost more; valgrind 3.19 runs no AVX-512 and no NEON.

What is simulated: sets that forget the least recently used line, a line fetched before it is written, every level
keeping what it has given to the one before. The last level of all x86-64 cores here holds what L2 has forgotten
instead, so the real one holds more. What is fetched ahead, in hardware or by the kernels, is not counted as moved
earlier; nor do addresses miss a TLB. The neon set is the kernels in vectors of four floats with a tile of 8 x 8 that
reads what NEON's reads; inline assembly, in random masks alone, reads no memory. The kernels that announce their
accesses are compiled by clang 14, callgrind's by the build's own compiler. `tests/bench/traffic.py check` holds the
simulation against callgrind's, call by call: lines fetched must agree within {share:.0%} and {lines[0]} lines a row for the first
level, {lines[1]} for the second, where callgrind's holds the code too.
"""


def read_counts(paths):
  """Returns {(recipe, set, call): {"runs", "flops", "bytes", "accesses", "cores": [[lines fetched,
  lines written] by level]}}."""
  counts = {}
  for path in paths:
    for row in pathlib.Path(path).read_text().splitlines():
      recipe, kernels, call, *numbers = row.split("\t")
      runs, flops, least, accesses, *lines = map(int, numbers)
      levels = [lines[i:i + 2] for i in range(0, len(lines), 2)]
      counts[recipe, kernels, call] = {"runs": runs, "flops": flops, "bytes": least, "accesses": accesses,
                                       "cores": [levels[i:i + len(LEVELS)] for i in range(0, len(levels), len(LEVELS))]}
  return counts


def read_dumps(folder):
  """Returns {(recipe, call): {event: count}}, summed over the call's runs."""
  dumps = {}
  for path in pathlib.Path(folder).iterdir():
    text = path.read_text()
    trigger = re.search(r"^desc: Trigger: Client Request: (.*)\t(.*)$", text, re.M)
    if trigger is None:
      continue
    events = re.search(r"^events: (.*)$", text, re.M).group(1).split()
    numbers = re.search(r"^summary: (.*)$", text, re.M).group(1).split()
    of_call = dumps.setdefault((trigger.group(1), trigger.group(2)), dict.fromkeys(events, 0))
    for event, number in zip(events, numbers):
      of_call[event] += int(number)
  return dumps


def check(counts, dumps):
  """Returns a line for every call whose counts differ by more than the allowed difference."""
  faults = []
  for (recipe, _, call), count in counts.items():
    seen = dumps.get((recipe, call))
    if seen is None:
      faults.append(f"callgrind saw no {call}")
      continue
    for level, (read, write) in enumerate((("D1mr", "D1mw"), ("DLmr", "DLmw"))):
      ours, theirs = count["cores"][0][level][0], seen[read] + seen[write]
      if abs(ours - theirs) > UNSEEN_SHARE * theirs + UNSEEN_LINES[level] * count["runs"]:
        faults.append(f"{call}: {ours} lines into level {level + 1}, callgrind {theirs}")
  return faults


def by_kernel(counts):
  kernels = {}
  for (recipe, of_set, call), count in counts.items():
    nothing = {"runs": 0, "flops": 0, "bytes": 0, "accesses": 0, "cores": None}
    total = kernels.setdefault((recipe, of_set, call.split(" ")[0]), nothing)
    for field in ("runs", "flops", "bytes", "accesses"):
      total[field] += count[field]
    cores = total["cores"] or [[[0, 0] for _ in LEVELS] for _ in count["cores"]]
    total["cores"] = [[[a + c, b + d] for (a, b), (c, d) in zip(*both)] for both in zip(cores, count["cores"])]
  return kernels


def moved_bytes(levels):
  return [LINE_BYTES * (fetched + written) for fetched, written in levels]


def shares(core, kernels, moved, flops):
  """Returns for each level the time it needs to deliver the bytes moved, as a share of the time of
  `flops` at the core's peak."""
  return [level / rate / (flops / CORES[core].flops[kernels]) for level, rate in zip(moved, CORES[core].rates)]


def limit(core, kernels, levels, flops):
  of_levels = shares(core, kernels, moved_bytes(levels), flops)
  return f"{LEVELS[of_levels.index(max(of_levels))]} {max(of_levels):.2f}"


def triple(levels, unit, form):
  return ", ".join(form.format(moved / unit) for moved in moved_bytes(levels))


def table(first_cells, cells_of_cores, rows):
  cells = first_cells + cells_of_cores
  return ["", line(cells), "|---" + "|---:" * (len(cells) - 1) + "|"] + [line(row) for row in rows]


def product_tables(what, kernels, counts, instructions):
  """Returns two tables: which level limits each row, and the bytes that this follows from.
  `counts`: by name; `instructions`: per kflop, by name, or empty."""
  limits, moved = [], []
  for name, count in counts.items():
    flops = count["flops"]
    cells = [name, str(count["runs"]), f"{flops / 1e6:.1f}", f"{flops / count['accesses']:.1f}"]
    if instructions:
      cells.append(f"{instructions[name]:.0f}")
    cores = list(zip(SETS[kernels], count["cores"]))
    limits.append(cells + [limit(core, kernels, levels, flops) for core, levels in cores])
    moved.append([name] + [triple(levels, flops / 1000, "{:.1f}") for _, levels in cores])
  first = [what, "runs", "MFLOP", "flops an access"] + (["instructions a kflop"] if instructions else [])
  return table(first, list(SETS[kernels]), limits) + table([MOVED], list(SETS[kernels]), moved)


def other_table(kernels, counts):
  rows = []
  for name, count in counts.items():
    least = count["bytes"]
    rows.append([name, str(count["runs"]), f"{least / 1e6:.1f}"] + [triple(levels, least, "{:.2f}") for levels in count["cores"]])
  return table([f"without products: {', '.join(LEVELS)}", "runs", "MB it must move"], list(SETS[kernels]), rows)


def kernel_tables(kernels, counts, instructions):
  products = {name: count for name, count in sorted(counts.items()) if count["flops"] > 0}
  others = {name: count for name, count in sorted(counts.items()) if count["flops"] == 0 and count["bytes"] >= 1e5}
  return product_tables("kernel", kernels, products, instructions) + other_table(kernels, others)


def instructions_of(recipe, flops, dumps):
  """Returns the instructions per kflop, by kernel."""
  totals = {}
  for (of_recipe, _, call), count in flops.items():
    if of_recipe == SMALL.get(recipe) and count["flops"] > 0:
      total = totals.setdefault(call.split(" ")[0], [0, 0])
      total[0] += dumps[of_recipe, call]["Ir"]
      total[1] += count["flops"]
  return {kernel: 1000 * number / flops for kernel, (number, flops) in totals.items()}


def core_tables():
  flops = lambda of: of["neon"] if "neon" in of else f"{of['avx512']} (AVX2: {of['avx2']})"  # noqa: E731
  rows = [[core, of.caches, flops(of.flops), ", ".join(map(str, of.rates))] for core, of in CORES.items()]
  return (["", line(["core", "L1, L2, L3", "flops a cycle", "bytes a cycle from L2, L3, memory"]), "|---|---|---|---|", *map(line, rows)]
          + ["", line(["core", "where the rates are from"]), "|---|---|"] + [line([core, of.source]) for core, of in CORES.items()])


def page(counts, flops, dumps):
  lines = HEAD.format(share=UNSEEN_SHARE, lines=UNSEEN_LINES).splitlines() + core_tables()
  kernels_of = by_kernel(counts)
  parts = sorted({(recipe, kernels) for recipe, kernels, _ in counts}, key=lambda part: (part[0], list(SETS).index(part[1])))
  of_part = lambda values, part: {name: count for (recipe, kernels, name), count in values.items() if (recipe, kernels) == part}  # noqa: E731
  lines += ["", "## Kernels"]
  for part in parts:
    instructions = instructions_of(part[0], flops, dumps) if part[1] == "avx2" else {}
    lines += ["", f"### {part[0]}, {part[1]}"] + kernel_tables(part[1], of_part(kernels_of, part), instructions)
  return "\n".join(lines) + "\n"


def main(arguments):
  if len(arguments) == 3 and arguments[0] == "check":
    counts = read_counts(arguments[1:2])
    faults = check(counts, read_dumps(arguments[2]))
    print("\n".join(faults) if faults else f"the simulation agrees with callgrind's on {len(counts)} calls")
    return 1 if faults or not counts else 0
  if len(arguments) > 4 and arguments[0] == "table":
    out = pathlib.Path(arguments[1])
    new = out.with_suffix(".new")
    new.write_text(page(read_counts(arguments[4:]), read_counts(arguments[2:3]), read_dumps(arguments[3])))
    new.replace(out)
    return 0
  print(__doc__, file=sys.stderr)
  return 2


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
