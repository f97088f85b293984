#!/usr/bin/env python3
"""Models how fast a core's front end, ports and latencies allow the main loops of the register
tiles to run, with llvm-mca.
  tile_model.py BUILD [ARM_BUILD]     rows of Markdown for tests/bench/pages/TILES.md, of the objects in
                                      BUILD/lib/cpu/gemm and ARM_BUILD/lib/cpu/gemm
  tile_model.py --peaks               multiply-adds in registers alone in the same model
A row contains a loop, a core, and instructions, flops and cycles per iteration. Then follow the
busiest resource's busy cycles, its name (it may be the front end), and the share of the core's peak
in the model. In the model every load hits the first cache; other caches are not modelled.

Reason: a tile that is fast on the available processor may be slow on another one.
"""
import json
import re
import subprocess
import sys

import neon_counts

MCA = "llvm-mca-19"
TURNS = 200
X86 = ("skylake-avx512", "sapphirerapids", "znver4")
ARM = ("cortex-a78", "neoverse-n1")
# Object, its loops, the cores on which they run.
LOOPS = (
    ("gemm_tile", ("run_avx512", "run_avx512_of<12u>", "run_avx512_rows"), X86),
    ("gemm_tile", ("run_avx2", "run_avx2_of<6u>", "run_avx2_rows"), X86),
    ("gemm_bf16_tile", ("run", "run_rows"), ("sapphirerapids", "znver4")),
)
ARM_LOOPS = (("gemm_neon_tile", ("run_neon", "run_neon_of<12u>", "run_neon_rows"), ARM),)
TITLES = {"run": "pairs of bf16", "run_rows": "pairs of bf16, rows"}
# Independent sums, enough for any latency.
PEAKS = {
    "zmm": "\n".join(f"vfmadd231ps %zmm30, %zmm31, %zmm{n}" for n in range(24)),
    "ymm": "\n".join(f"vfmadd231ps %ymm14, %ymm15, %ymm{n}" for n in range(12)),
    "pairs": "\n".join(f"vdpbf16ps %zmm30, %zmm31, %zmm{n}" for n in range(24)),
    "neon": "\n".join(f"fmla v{n}.4s, v30.4s, v31.4s" for n in range(24)),
}


def is_arm(core):
  return core in ARM


def model(core, text):
  """Returns cycles per iteration, the maximum of them for which a resource or the front end is
  busy, and its name."""
  target = "aarch64-linux-gnu" if is_arm(core) else "x86_64-linux-gnu"
  run = subprocess.run([MCA, f"-mtriple={target}", f"-mcpu={core}", f"-iterations={TURNS}", "-json"], input=text, capture_output=True, text=True, check=True)
  report = json.loads(run.stdout)
  region, units = report["CodeRegions"][0], report["TargetInfo"]["Resources"]
  summary = region["SummaryView"]
  whole = max(entry["InstructionIndex"] for entry in region["ResourcePressureView"]["ResourcePressureInfo"])
  busy = {units[entry["ResourceIndex"]]: entry["ResourceUsage"] for entry in region["ResourcePressureView"]["ResourcePressureInfo"]
          if entry["InstructionIndex"] == whole}
  busy["front end"] = summary["TotaluOps"] / TURNS / summary["DispatchWidth"]
  unit = max(busy, key=busy.get)
  return summary["TotalCycles"] / TURNS, busy[unit], re.sub(r"\.\W*$", "", unit)


def peak(core, kind):
  text = PEAKS[kind]
  return sum(neon_counts.flops_of(*line.split(" ", 1)) for line in text.splitlines()) / model(core, text)[0]


def assembly(loop):
  """Returns the loop as assembler text; branches go to its own label."""
  lines = ["turn:"]
  for instruction in loop:
    operands = re.sub(r"\s*(//| # ).*$", "", instruction.operands)
    if neon_counts.TARGET.search(operands):
      operands = re.sub(r"\b[0-9a-f]+ <.*", "turn", operands)
    lines.append(f"{instruction.name} {operands}")
  return "\n".join(lines)


def rows(build, groups):
  for name, loops, cores in groups:
    tool = "aarch64-linux-gnu-objdump" if is_arm(cores[0]) else "objdump"
    command = [tool, "-dC", "--no-show-raw-insn", f"{build}/lib/cpu/gemm/{name}.o"]
    dump = subprocess.run(command, capture_output=True, text=True, check=True)
    functions = neon_counts.read_functions(dump.stdout.splitlines())
    for title in loops:
      loop = neon_counts.main_loop(functions.get(title, []))
      flops = sum(instruction.flops for instruction in loop)
      if flops == 0:
        sys.exit(f"tile_model: {name}.o: {title} has no loop that multiplies")
      kind = "neon" if is_arm(cores[0]) else "pairs" if "bf16" in name else "zmm" if "512" in title else "ymm"
      for core in cores:
        cycles, least, unit = model(core, assembly(loop))
        share = flops / cycles / peak(core, kind)
        yield f"| {TITLES.get(title, title)} | {core} | {len(loop)} | {flops} | {cycles:.1f} | {least:.1f} | {unit} | {100 * share:.0f}% |"


def main():
  if sys.argv[1:] == ["--peaks"]:
    for core in X86:
      print(core, " ".join(f"{kind} {peak(core, kind):.1f}" for kind in ("zmm", "ymm", "pairs")))
    for core in ARM:
      print(core, f"neon {peak(core, 'neon'):.1f}")
    return
  if len(sys.argv) not in (2, 3):
    sys.exit(__doc__)
  for row in rows(sys.argv[1], LOOPS):
    print(row)
  if len(sys.argv) == 3:
    for row in rows(sys.argv[2], ARM_LOOPS):
      print(row)


if __name__ == "__main__":
  main()
