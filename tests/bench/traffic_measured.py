#!/usr/bin/env python3
"""Compares the measurements of kernels in ROOFLINE.md with the predictions from TRAFFIC.md's
counts, in a section of TRAFFIC.md. Where a model of caches predicts wrongly, something else limits
the kernel.

  traffic_measured.py [PAGE ROOFLINE]    default: tests/bench/pages/TRAFFIC.md and ROOFLINE.md

Only that section of PAGE changes.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from page_tables import line
from traffic import CORES, MOVED, shares

KERNELS = "avx512"  # the kernel set that all processors in ROOFLINE.md ran
# Names in ROOFLINE.md -> names in traffic_bench.
NETS = {"gpt2-small": "gpt2-small", "resnet50-224": "resnet50", "resnet50-f32": "resnet50"}
TITLE, NEXT = "## Predicted and measured", "## Kernels"
COLUMNS = 13  # columns of roofline_bench's tables; "-" marks a value that was not recorded

TEXT = """Per cent of the peak: what the counts allow a core, and what `ROOFLINE.md` measured of two workers in f32. The higher
number of a range is the page's limit: all levels deliver side by side while the core computes. The lower is what is
left where nothing goes on beside anything else: arithmetic, then L2, then L3, then memory. **Bold** is what lies
outside its range. Measured were four or eight images and 1,024 rows of tokens, counted two and 256. Of Skylake-SP no
kernel was measured.
"""
MISSES = """
Where the model misses:

- **Attention is below its range everywhere.** Flops are those of the products that the mask leaves. Exponentials, masks
  and rescaling between them take time and no flops, and where the diagonal cuts a tile, whole vectors are computed of
  which the mask leaves a part. Of a longer sequence fewer tiles are cut: with 1,024 tokens Zen 4 reached 74 backward
  and 71 forward.
- **The Xeon's weight gradients are below.** They were measured before its products packed A, and the counts are of
  products that do: 19 bytes from L3, where Skylake-SP's products, which pack nothing there, move 63.
- **ResNet-50's loss head is above on Zen 4.** Its weights and their gradient are 8 MB each, which the core's share of
  the third level, 4 MiB, does not hold; the machine's two cores had 32 MiB. It has twice Zen 5's images too.

Within the ranges, Zen 4 hides most: its multipliers are half as wide as the others', so its levels have twice the time
beside the same arithmetic. The Xeon hides least, with a third level that is far. 100 is no bound for convolutions of
3 x 3 at stride 1: Winograd's multiply 16 times for 36 (`ROOFLINE.md` has them call by call), which the other calls of
the same kernel pay for.
"""


class Fault(Exception):
  pass


def read_moved(page):
  """Returns {(net, kernel, core): bytes from each level for 1,000 flops}, of the set KERNELS."""
  moved, net, cores = {}, None, None
  for row in page.splitlines():
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    if row.startswith("#"):
      title = re.fullmatch(r"### (\S+), (\S+)", row)
      net = title.group(1) if title and title.group(2) == KERNELS else None
    elif cells[0] == MOVED or not row:
      cores = cells[1:]
    elif net and cores and not row.startswith("|---"):
      for core, numbers in zip(cores, cells[1:]):
        moved[net, cells[0], core] = [float(number) for number in numbers.split(", ")]
  return moved


def read_measured(roofline):
  """Returns {(net, kernel, core): per cent of peak}."""
  measured, core, net, in_kernels = {}, None, None, False
  for row in roofline.splitlines():
    if row.startswith("## "):
      core = row[3:]
    elif row.startswith("== "):
      net = NETS.get(row[3:].split(",")[0])
    cells = row.split()
    if not cells or cells[-1] in ("kernel", "call"):
      in_kernels = bool(cells) and cells[-1] == "kernel"
    elif in_kernels and net and len(cells) == COLUMNS and cells[7] != "-":
      if core not in CORES:
        raise Fault(f'ROOFLINE.md: the section "{core}" is none of the cores of traffic.py: {", ".join(CORES)}')
      measured[net, cells[12], core] = float(cells[7])
  return measured


def predicted(core, moved):
  of_levels = shares(core, KERNELS, moved, 1000)
  return round(100 / (1 + sum(of_levels))), round(min(100, 100 / max(of_levels)))


def cell(core, moved, share):
  if share is None:
    return ""
  least, most = predicted(core, moved)
  text = f"{round(share)}"
  return f"{least} to {most}, " + (text if least <= round(share) <= most else f"**{text}**")


def section(moved, measured):
  cores = [core for core in CORES if any(of == core for _, _, of in measured)]
  rows = []
  for net, kernel in dict.fromkeys((net, kernel) for net, kernel, _ in moved):
    shares_of = [measured.get((net, kernel, core)) for core in cores]
    if any(share is not None for share in shares_of):
      rows.append(line([net, kernel] + [cell(core, moved[net, kernel, core], share) for core, share in zip(cores, shares_of)]))
  if not rows:
    raise Fault("ROOFLINE.md measured no kernel that TRAFFIC.md counts")
  head = ["net", "kernel"] + [f"{core}: predicted, measured" for core in cores]
  return "\n".join([TITLE, "", TEXT, line(head), "|---|---" + "|---:" * len(cores) + "|", *rows]) + "\n" + MISSES.rstrip("\n") + "\n"


def with_section(page, roofline):
  before, separator, after = page.partition(f"\n{NEXT}\n")
  if not separator:
    raise Fault(f'TRAFFIC.md: there is no line "{NEXT}"')
  before = before.partition(f"\n{TITLE}\n")[0]
  return f"{before}\n{section(read_moved(page), read_measured(roofline))}{separator}{after}"


def main(arguments):
  here = pathlib.Path(__file__).parent
  if len(arguments) not in (0, 2) or any(argument.startswith("-") for argument in arguments):
    print(__doc__, file=sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr)
    return 0 if arguments in (["-h"], ["--help"]) else 2
  page, roofline = map(pathlib.Path, arguments or (here / "pages/TRAFFIC.md", here / "pages/ROOFLINE.md"))
  try:
    text = with_section(page.read_text(), roofline.read_text())
  except (Fault, OSError) as fault:
    print(f"traffic_measured: {fault}", file=sys.stderr)
    return 1
  new = page.with_suffix(".new")
  new.write_text(text)
  new.replace(page)
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1:]))
