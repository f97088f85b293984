#!/usr/bin/env python3
"""Compares products in f32 with the libraries that others use: MKL through PyTorch, OpenBLAS
through NumPy, BLIS's own sgemm.

A library that is older than the processor, or that an environment variable restricts, may use its
AVX2 kernels: OpenBLAS and BLIS are told to use AVX-512 if the processor has it. MKL cannot be told.

All compute y[M,N] = x[M,K] w[N,K]^T on the same threads, in turns. The results are best and median
over all calls of all turns, in per cent of the peak that our process measures (multiply-adds in
registers, times the threads).
Usage: tests/bench/peers/sgemm_peer.py [--threads 1] [--turns 5] [--seconds 0.3] [--json FILE]
         (needs torch and numpy; BLIS as libblis.so.4)
A torch that is built without MKL is called torch. --json writes the results for programs to read.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BENCH = ROOT / os.environ.get("BUILD", "build") / "tests/bench/sgemm_bench"
# Squares; GPT-2 small's layers over 1,024 rows; a narrow, a deep and a wide one.
SHAPES = [(512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1024, 2304, 768), (1024, 768, 768), (1024, 3072, 768), (1024, 768, 3072),
          (8192, 64, 576), (512, 512, 8192), (256, 8192, 768)]


def times(call, seconds):
  call()
  taken, end = [], time.perf_counter() + seconds
  while not taken or time.perf_counter() < end:
    start = time.perf_counter()
    call()
    taken.append(time.perf_counter() - start)
  return taken


def peers(M, N, K, threads):
  import ctypes
  import numpy
  import torch
  torch.set_num_threads(threads)
  x, w, y = torch.rand(M, K), torch.rand(N, K), torch.empty(M, N)
  x_array, w_array, y_array = x.numpy(), w.numpy(), y.numpy()
  found = {"MKL" if torch.backends.mkl.is_available() else "torch": lambda: torch.mm(x, w.t(), out=y),
           "OpenBLAS": lambda: numpy.matmul(x_array, w_array.T, out=y_array)}
  try:
    blis = ctypes.CDLL("libblis.so.4")
  except OSError:
    return found
  address = lambda tensor: ctypes.c_void_p(tensor.data_ptr())
  one, zero = ctypes.c_float(1), ctypes.c_float(0)
  row_major, plain, transposed = 101, 111, 112  # CBLAS's constants
  found["BLIS"] = lambda: blis.cblas_sgemm(row_major, plain, transposed, M, N, K, one, address(x), K, address(w), K, zero, address(y), N)
  return found


def measure(shape, args):
  """Returns best and median rate of each library, and the peak, in flops per second."""
  M, N, K = shape
  calls = peers(M, N, K, args.threads)
  taken = {name: [] for name in ["ours", *calls]}
  peak = 0
  for _ in range(args.turns):
    out = subprocess.run([BENCH, *map(str, (M, N, K, args.threads, args.seconds))], check=True, capture_output=True, text=True).stdout.split()
    peak = max(peak, float(out[0]) * args.threads)
    taken["ours"] += [float(each) for each in out[1:]]
    for name, call in calls.items():
      taken[name] += times(call, args.seconds)
  rates = {name: {"best": 2 * M * N * K / min(all), "median": 2 * M * N * K / statistics.median(all)} for name, all in taken.items()}
  return {"shape": shape, "peak": peak, "rates": rates}


def row_of(found):
  """Returns a table row: best and median of each library in per cent of the peak, and ours divided
  by the best of the others."""
  rates, peers = found["rates"], [name for name in found["rates"] if name != "ours"]
  cells = [f"{100 * rate['best'] / found['peak']:.0f}, {100 * rate['median'] / found['peak']:.0f}" for rate in rates.values()]
  beside = (rates["ours"][which] / max(rates[name][which] for name in peers) for which in ("best", "median"))
  return [", ".join(map(str, found["shape"])), f"{found['peak'] / 1e9:.0f}", *cells, ", ".join(f"{each:.2f}" for each in beside)]


def head_of(found, threads):
  peers = [name for name in found["rates"] if name != "ours"]
  return ["M, N, K", f"peak of {threads}", "ours: best, median", *peers, "ours beside the best of them"]


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--threads", type=int, default=1)
  parser.add_argument("--turns", type=int, default=5)
  parser.add_argument("--seconds", type=float, default=0.3, help="of each turn")
  parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="what was found, flops a second")
  args = parser.parse_args()
  if not BENCH.exists():
    sys.exit(f"sgemm_peer: {BENCH} is not there: make {BENCH.relative_to(ROOT)}")
  found = []
  for shape in SHAPES:
    found.append(measure(shape, args))
    if len(found) == 1:
      head = head_of(found[0], args.threads)
      print("| " + " | ".join(head) + " |\n" + "|" + "---|" * len(head))
    print("| " + " | ".join(row_of(found[-1])) + " |", flush=True)
  if args.json:
    args.json.write_text(json.dumps({"threads": args.threads, "turns": args.turns, "shapes": found}, indent=1) + "\n")


if __name__ == "__main__":
  if "OMP_NUM_THREADS" not in os.environ:  # libraries read these variables when they are loaded
    threads = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
    names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS"]
    kernels = {"OPENBLAS_CORETYPE": "SkylakeX", "BLIS_ARCH_TYPE": "0"} if "avx512bw" in pathlib.Path("/proc/cpuinfo").read_text() else {}
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **kernels, **{name: threads for name in names}})
  main()
