#!/usr/bin/env python3
"""Writes a processor's section of tests/bench/pages/PEERS.md and its row of README's table, from the
parts that peers_bench.py has kept.

An existing section of the processor is replaced, a new one is appended; likewise the row between
README's marks. Nothing else in either file changes, and nothing is written if any part is not
valid.
Usage: tests/bench/peers/peers_page.py FOLDER [--page tests/bench/pages/PEERS.md] [--readme README.md]
         FOLDER contains a PART.json for each part
"""
import argparse
import json
import math
import os
import pathlib
import re
import sys

from page_tables import judged, line, table

ROOT = pathlib.Path(__file__).resolve().parents[3]
NETS = {"resnet20": "ResNet-20", "resnet18": "ResNet-18", "resnet50": "ResNet-50", "resnet990": "ResNet-990", "gpt2-small": "GPT-2 small"}
DTYPES = ("f32", "bf16")
THREADS = (1, 2)  # in products; whole steps use two
TIME = {"f32": 0.6, "bf16": 1.0}  # the aims, as shares of eager PyTorch's time, within the aim's memory
QUARTER_TIME, PRODUCT, LM_TIME, LM_MEMORY, LM_LOSS, QUIET = 1.0, 0.95, 0.75, 0.5, 0.01, 0.05
MARKS = ("<!-- make bench-peers writes these rows -->", "<!-- end of these rows -->")
README_HEAD = ["processor", "f32: time", "beside compile", "memory", "% of peak", "bf16: time", "memory", "SGEMM"]
LOUD = ", busy"  # follows the name of a processor that other programs used too
WIDTH = 140  # columns of a document's line
HEAD = """# Beside PyTorch and SGEMM libraries, processor by processor

`make bench-peers` measures all of a section in one run, in turns with the others, and writes it here; README's table has a row of it.
Whole steps, optimizer included, synthetic data, two threads, gradients released. PyTorch has the better of its memory formats and fused
attention, eager and by torch.compile; in bf16 it takes torch.autocast, and ours stores activations in bf16. Its memory is counted above
that of the interpreter. Images have 32 x 32 (ResNet-20, -18) or 224 x 224 pixels, texts 256 tokens. Seconds are medians, in brackets the
best step. Per cent of the peak counts the convolutions and products of a step that computes nothing twice, beside as many cores' measured
multiply-adds in f32, in bf16 too. The aims, within half of eager PyTorch's memory (GPT-2: 0.6): 0.6 of its time in f32, no slower in bf16;
with a quarter of the transient memory that storing everything takes, or the least, no slower. Bold: misses its aim.

Products are y[M,N] = x[M,K] w[N,K]^T in f32, in per cent of the measured peak: best, median. OpenBLAS and BLIS are told to take their
kernels for AVX-512 where the processor has it; MKL cannot be told. The aim: no more than 5% behind the best of them.
"""


# ---- what was kept -----------------------------------------------------------------------------------------------------------------

class Kept:
  """A part's file; its errors name the file."""

  def __init__(self, path):
    self.path = path
    try:
      self.value = json.loads(path.read_text())
    except (OSError, ValueError) as problem:
      self.refuse(f"cannot be read as JSON: {str(problem).splitlines()[0]}")

  def refuse(self, why):
    sys.exit(f"peers_page: {self.path}: {why}; remove it and run make bench-peers again")

  def at(self, *keys):
    value = self.value
    for n, key in enumerate(keys):
      if not isinstance(value, dict) or key not in value:
        self.refuse(f"lacks {'.'.join(keys[:n + 1])}")
      value = value[key]
    return value

  def number(self, *keys):
    value = self.at(*keys)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
      self.refuse(f"{'.'.join(keys)} is {json.dumps(value)}, not a number above zero")
    return value

  def check_runs(self, *needed):
    for run in {*needed, *self.at("found", "runs")}:
      for field in ("median", "best", "bytes"):
        self.number("found", "runs", run, field)

  def check(self):
    """Refuses the file if a value that the page reads is missing or no positive number. Returns
    self."""
    for keys in (("processor", "name"), ("processor", "cores"), ("date",), ("machine", "kernels"), ("found",)):
      self.at(*keys)
    for rate in ("core_flops", "read", "copy", "triad"):
      self.number("machine", rate)
    self.number("processor", "memory_bytes")
    if not isinstance(self.at("others"), (int, float)):
      self.refuse("others is not a number")
    if not re.fullmatch(r"[\w .,()+/-]+", str(self.at("processor", "name"))):
      self.refuse("processor.name has characters that a heading cannot have")
    part = self.path.stem
    if part.startswith("sgemm-"):
      self.check_products()
    elif part == "lm":
      self.check_runs("peer", "ours")
    elif part in {f"{net}-{dtype}" for net in NETS for dtype in DTYPES}:
      self.check_runs("eager", "all", "quarter")
      for field in ("batch", "flops", "threads", "rounds", "memory_aim"):
        self.number("found", field)
    else:
      self.refuse("is not a part")
    return self

  def check_products(self):
    shapes = self.at("found", "shapes")
    if not isinstance(shapes, list) or not shapes or not all(is_product(each) and [*each["rates"]] == [*shapes[0]["rates"]] for each in shapes):
      self.refuse("found.shapes is not a list of products with their peak and rates")


def is_product(product):
  """True if this is a shape, a peak, and the rates of ours and of at least one other library."""
  try:
    rates = [rate[which] for rate in product["rates"].values() for which in ("best", "median")]
    return len(product["shape"]) == 3 and "ours" in product["rates"] and len(rates) >= 4 and min(product["peak"], *rates) > 0
  except (AttributeError, KeyError, TypeError):
    return False


def read_parts(folder):
  parts = {path.stem: Kept(path).check() for path in sorted(folder.glob("*.json"))}
  if not parts:
    sys.exit(f"peers_page: {folder}: holds no part; make bench-peers measures them")
  first = next(iter(parts.values()))
  for kept in parts.values():
    if kept.at("processor", "name") != first.at("processor", "name"):
      kept.refuse(f"is of {kept.at('processor', 'name')}, but {first.path.name} of {first.at('processor', 'name')}")
  return parts


# ---- steps -------------------------------------------------------------------------------------------------------------------------

class Steps:
  """One net in one format compared with PyTorch."""

  def __init__(self, kept):
    self.found, self.runs = kept.at("found"), kept.at("found", "runs")
    self.peak = kept.number("machine", "core_flops") * self.found["threads"]
    net, self.dtype = kept.path.stem.rsplit("-", 1)
    self.title = f"{NETS[net]}, {self.found['batch']}"

  @property
  def aimed(self):
    """The name of the plan within the aim's memory."""
    return "aim" if "aim" in self.runs else "all"

  def time(self, run, beside="eager"):
    return self.runs[run]["median"] / self.runs[beside]["median"]

  def memory(self, run):
    return self.runs[run]["bytes"] / self.runs["eager"]["bytes"]

  def peak_share(self, run):
    return 100 * self.found["flops"] / self.runs[run]["median"] / self.peak

  def holds(self, run):
    """Returns two booleans: whether time and memory reach their aims."""
    time = self.time(run) <= (TIME[self.dtype] if run == self.aimed else QUARTER_TIME if run == "quarter" else math.inf)
    return time, run != self.aimed or self.memory(run) <= self.found["memory_aim"] + 0.005

  def rows(self):
    within = f"within {self.found['memory_aim']} of PyTorch's memory"
    labels = {"eager": "PyTorch", "compiled": "torch.compile", "all": "everything stored", "aim": within,
              "quarter": self.runs["quarter"].get("label", "a quarter of the transients").removeprefix("ours, ")}
    if self.aimed == "all":
      labels["all"] += f", within {self.found['memory_aim']} too"
    for run in labels:
      if run in self.runs:
        yield [self.title if run == "eager" else "", labels[run], *self.cells(run)]
    if self.found.get("problem"):
      yield ["", f"torch.compile {self.found['problem']}", "", "", "", "", "", ""]

  def cells(self, run):
    each = self.runs[run]
    time, memory = self.holds(run)
    compiled = f"{self.time(run, 'compiled'):.2f}" if "compiled" in self.runs else "-"
    return [f"{each['median']:.3f} ({each['best']:.3f})", judged(self.time(run), time, "{:.2f}"), compiled, f"{each['bytes'] / 2**20:.0f}",
            judged(self.memory(run), memory, "{:.2f}"), f"{self.peak_share(run):.0f}"]


def steps_of(parts, dtype):
  return [Steps(parts[f"{net}-{dtype}"]) for net in NETS if f"{net}-{dtype}" in parts]


def steps_section(parts, dtype):
  lines = [f"### Steps in {dtype}", ""]
  steps = steps_of(parts, dtype)
  if steps:
    head = ["net, batch", "run", "s", "of eager's time", "of compile's", "MiB", "of eager's memory", "% of peak"]
    lines += table(head, [row for each in steps for row in each.rows()])
  missing = [title for net, title in NETS.items() if f"{net}-{dtype}" not in parts]
  return lines + ([f"Not measured here: {', '.join(missing)}.", ""] if missing else [])


# ---- products and the language model -------------------------------------------------------------------------------------------------

def beside_best(product, which):
  return product["rates"]["ours"][which] / max(rate[which] for name, rate in product["rates"].items() if name != "ours")


def product_row(product):
  rates = [", ".join(f"{100 * rate[which] / product['peak']:.0f}" for which in ("best", "median")) for rate in product["rates"].values()]
  beside = ", ".join(judged(beside_best(product, which), beside_best(product, which) >= PRODUCT, "{:.2f}") for which in ("best", "median"))
  return [", ".join(map(str, product["shape"])), f"{product['peak'] / 1e9:.0f}", *rates, beside]


def products_section(parts, threads):
  lines = [f"### Products, {('one thread', 'two threads')[threads - 1]}", ""]
  if f"sgemm-{threads}" not in parts:
    return lines + ["Not measured here.", ""]
  shapes = parts[f"sgemm-{threads}"].at("found", "shapes")
  others = [name for name in shapes[0]["rates"] if name != "ours"]
  return lines + table(["M, N, K", "peak, GFLOP/s", "ours", *others, "ours beside the best of them"], map(product_row, shapes))


def lm_section(parts):
  lines = ["### SmolLM2-135M-Instruct", ""]
  if "lm" not in parts:
    return lines + ["Not measured here.", ""]
  found = parts["lm"].at("found")
  ours, peer, losses = found["runs"]["ours"], found["runs"]["peer"], found.get("validation") or {}
  time, memory = ours["median"] / peer["median"], ours["bytes"] / peer["bytes"]
  apart = abs(losses["ours"] / losses["peer"] - 1) if losses.get("ours") and losses.get("peer") else None
  lines += ["LoRA, r = 8 on all linear layers, f32, 512 tokens, budget 1000 MiB, beside transformers and peft in turns (`make bench-lm` says more).",
            f"The aims: {LM_TIME} of the time, {LM_MEMORY} of the memory, validation losses after 40 steps at most 1% apart.", ""]
  return lines + table(["PyTorch: s, GB", "ours: s, GB", "of its time", "of its memory", "validation losses apart"],
                       [[*(f"{each['median']:.3f}, {each['bytes'] / 1e9:.2f}" for each in (peer, ours)), judged(time, time <= LM_TIME, "{:.2f}"),
                         judged(memory, memory <= LM_MEMORY, "{:.2f}"), "-" if apart is None else judged(apart, apart <= LM_LOSS, "{:.4%}")]])


# ---- the section and the row -----------------------------------------------------------------------------------------------------------

def dates(parts):
  """Returns the date of all parts, or the first and the last."""
  found = sorted({kept.at("date") for kept in parts.values()})
  return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def best_rate(parts, name):
  return max(kept.number("machine", name) for kept in parts.values())


def listed(words):
  return ", ".join(sorted(words))


def machine_lines(parts):
  first = next(iter(parts.values()))
  processor, values = first.at("processor"), list(parts.values())
  caches = ", ".join(f"{name} {size}" for name, size in processor.get("caches", {}).items()) or "caches unknown"
  versions = {kept.value["found"]["torch"].split("+")[0] for kept in values if kept.value["found"].get("torch")}
  rounds = {str(kept.value["rounds"]) for kept in values if kept.value.get("rounds")}
  commits = {kept.value["commit"] for kept in values if kept.value.get("commit")}
  peak, read, copy, triad = (best_rate(parts, name) / 1e9 for name in ("core_flops", "read", "copy", "triad"))
  sources = "".join(f"; {what} {listed(which)}" for what, which in (("PyTorch", versions), ("commit", commits)) if which)
  return [f"Measured {dates(parts)}: {processor['cores']} cores, {caches}, {processor['memory_bytes'] / 2**30:.0f} GiB; "
          f"{processor.get('compiler', 'compiler unknown')}{sources}.",
          f"Peak {peak:.0f} GFLOP/s a core; two threads read {read:.1f} GB/s, copy {copy:.1f}, triad {triad:.1f}. "
          f"Kernels {listed({kept.at('machine', 'kernels') for kept in values})}.",
          f"Rounds: {listed(rounds) or 'unknown'}. {neighbours_line(parts)}", ""]


def others_of(parts):
  """Returns by part the share of the processors that other programs used while the part ran."""
  return {part: kept.at("others") for part, kept in parts.items()}


def neighbours_line(parts):
  loud = [f"{part} {100 * share:.0f}%" for part, share in others_of(parts).items() if share > QUIET]
  if not loud:
    return f"Other programs took at most {100 * max(others_of(parts).values()):.0f}% of the processors beside a part."
  return f"**Other programs were busy beside these parts, in per cent of the processors: {', '.join(loud)}.**"


def section_of(parts):
  name = next(iter(parts.values())).at("processor", "name")
  lines = [f"## {name}", "", *machine_lines(parts)]
  for dtype in DTYPES:
    lines += steps_section(parts, dtype)
  for threads in THREADS:
    lines += products_section(parts, threads)
  return name, "\n".join(wrapped(lines + lm_section(parts))).rstrip() + "\n"


def wrapped(lines):
  """Yields lines of at most WIDTH columns; rows of tables stay whole."""
  for text in lines:
    while len(text) > WIDTH and not text.startswith("|"):
      at = text.rindex(" ", 0, WIDTH)
      yield text[:at]
      text = text[at + 1:]
    yield text


def spread(values, form, whole):
  """Returns "minimum-maximum", with the number of values in brackets if it is less than `whole`."""
  if not values:
    return "-"
  ends = dict.fromkeys(form.format(end) for end in (min(values), max(values)))
  return "-".join(ends) + ("" if len(values) == whole else f" ({len(values)})")


def row_of(name, parts):
  f32, bf16 = steps_of(parts, "f32"), steps_of(parts, "bf16")
  compiled = [each for each in f32 if "compiled" in each.runs]
  of = lambda steps, value, form="{:.2f}": spread([value(each) for each in steps], form, len(NETS))
  time, memory = lambda each: each.time(each.aimed), lambda each: each.memory(each.aimed)
  products = [product for threads in THREADS if f"sgemm-{threads}" in parts for product in parts[f"sgemm-{threads}"].at("found", "shapes")]
  row = [name + (LOUD if max(others_of(parts).values()) > QUIET else ""), of(f32, time), of(compiled, lambda each: each.time(each.aimed, "compiled")), of(f32, memory),
         of(f32, lambda each: each.peak_share(each.aimed), "{:.0f}"), of(bf16, time), of(bf16, memory),
         spread([beside_best(product, "best") for product in products], "{:.2f}", len(products))]
  if len(line(row)) > WIDTH:
    sys.exit(f"peers_page: the processor's name, {name}, is too long for a row of README's table: make bench-peers PROCESSOR='a shorter one'")
  return row


# ---- the files -------------------------------------------------------------------------------------------------------------------------

def with_section(page, name, section):
  """Returns the page with this processor's section replaced, or appended at the end. The text
  before the sections is HEAD."""
  first = re.search(r"^## ", page, re.MULTILINE)
  page = HEAD + ("\n" + page[first.start():] if first else "")
  found = re.search(rf"^## {re.escape(name)}\n.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
  if not found:
    return page.rstrip("\n") + "\n\n" + section
  return page[:found.start()] + section + ("\n" if found.end() < len(page) else "") + page[found.end():]


def with_row(readme, row, path):
  begin, end = (readme.find(mark) for mark in MARKS)
  if not 0 <= begin < end:
    sys.exit(f"peers_page: {path}: lacks the lines {MARKS[0]} and {MARKS[1]}, between which the table stands")
  begin += len(MARKS[0]) + 1
  rows = [each for each in readme[begin:end].splitlines() if each.startswith("|")][2:]
  own = line(row)
  places = [n for n, each in enumerate(rows) if each.split("|")[1].strip().removesuffix(LOUD) == row[0].removesuffix(LOUD)]
  rows = [own if n in places[:1] else each for n, each in enumerate(rows) if n not in places[1:]] + ([] if places else [own])
  head = table(README_HEAD, [])[:2]
  return readme[:begin] + "\n" + "\n".join([*head, *rows]) + "\n\n" + readme[end:]


def write(path, text):
  """Writes a file completely or not at all."""
  new = path.with_name(path.name + ".new")
  new.write_text(text)
  os.replace(new, path)


def write_page(folder, page_path, readme_path):
  """Makes both texts before it writes either file."""
  parts = read_parts(folder)
  name, section = section_of(parts)
  page = with_section(page_path.read_text() if page_path.exists() else "", name, section)
  readme = with_row(readme_path.read_text(), row_of(name, parts), readme_path)
  write(page_path, page)
  write(readme_path, readme)
  print(f"{name}: {len(parts)} parts, in {page_path.name} and in the table of {readme_path.name}")


def main():
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("folder", type=pathlib.Path)
  parser.add_argument("--page", type=pathlib.Path, default=ROOT / "tests/bench/pages/PEERS.md")
  parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
  args = parser.parse_args()
  write_page(args.folder, args.page, args.readme)


if __name__ == "__main__":
  main()
